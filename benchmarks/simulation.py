"""How fast the model simulates: operations a second and bytes an operation, in plain Python and compiled.

    uv run python benchmarks/simulation.py               10^4, 10^5 and 10^6 operations
    uv run --extra fast python benchmarks/simulation.py  the compiled way as well

The program is the chunk loop (copy there, kernel, copy back) over four streams with a synchronise at the end; building
it is not counted, everything that ``schedule`` does is. Times are processor time of this process, the best of three.
``teaching`` takes the short way (``model/flow.py``), ``teaching, simulator`` the way of every other program, ``h200``
that way with every cost and queue of the profile.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gapless.model import flow
from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.model.machine import Machine
from gapless.model.plan import plan
from gapless.model.program import Program
from gapless.model.schedule import collect, schedule
from gapless.model.simulator import Simulator
from gapless.model.units import ms

CHUNK = (OpKind.H2D, OpKind.KERNEL, OpKind.D2H)
CALLS = (CallKind.COPY_ASYNC, CallKind.LAUNCH, CallKind.COPY_ASYNC)


def chunk_loop(operations: int, streams: int = 4) -> Program:
    chunks = operations // 3
    program = Program()
    for i in range(streams):
        program.stream(f"s{i}", StreamKind.NON_BLOCKING)
    program.extend(
        call=np.tile(CALLS, chunks),
        op=np.tile(CHUNK, chunks),
        stream=np.repeat(np.arange(chunks) % streams, 3),
        duration=np.full(3 * chunks, 1 * ms),
        src=np.tile([MemoryKind.PINNED, 0, MemoryKind.DEVICE], chunks),
        dst=np.tile([MemoryKind.DEVICE, 0, MemoryKind.PINNED], chunks),
    )
    program.sync_device()
    return program


def by_simulator(program: Program, machine: Machine) -> object:
    sim = Simulator(program, machine, plan(program, machine))
    sim.run()
    return collect(program, machine, sim)


def compiled(program: Program, machine: Machine) -> object:
    return flow.run(program, machine, plan(program, machine), compiled=True)


def in_plain_python(program: Program, machine: Machine) -> object:
    return flow.run(program, machine, plan(program, machine), compiled=False)


def seconds(way: Callable[[Program, Machine], object], program: Program, machine: Machine, repeats: int = 3) -> float:
    best = float("inf")
    for _ in range(repeats):
        before = time.process_time()
        way(program, machine)
        best = min(best, time.process_time() - before)
    return best


def peak() -> int:
    """Give the most memory this process has had, in bytes (Linux)."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


def memory(operations: int) -> None:
    """Print the bytes an operation of program and schedule together, at the highest."""
    schedule(chunk_loop(30), Machine())
    before = peak()
    kept = schedule(chunk_loop(operations), Machine())
    print((peak() - before) / len(kept.program))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=10**6, help="operations of the longest program")
    parser.add_argument("--memory", type=int, metavar="OPERATIONS", help="only print bytes an operation")
    options = parser.parse_args()
    if options.memory:
        memory(options.memory)
        return 0
    ways: list[tuple[str, Callable[[Program, Machine], object], str, int]] = [
        ("teaching", in_plain_python, "teaching", options.most),
        ("teaching, simulator", by_simulator, "teaching", options.most),
        ("h200", by_simulator, "h200", min(options.most, 10**5)),
    ]
    if flow.compile_it() is not None:
        compiled(chunk_loop(300), Machine())  # compile, or load what has been compiled
        ways.insert(0, ("teaching, compiled", compiled, "teaching", options.most))
    else:
        print("Numba is not installed: no compiled way (uv run --extra fast ...)")
    print(f"{'machine':22} {'operations':>11} {'seconds':>9} {'operations/s':>13}")
    for name, way, profile, most in ways:
        for operations in (n for n in (10**4, 10**5, 10**6) if n <= most):
            program = chunk_loop(operations)
            took = seconds(way, program, Machine.named(profile))
            print(f"{name:22} {len(program):11,} {took:9.3f} {len(program) / took:13,.0f}")
    command = [sys.executable, __file__, "--memory", str(options.most)]
    per_operation = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(f"memory: {per_operation:.0f} bytes an operation, program and schedule together, at the highest")
    return 0


if __name__ == "__main__":
    sys.exit(main())
