"""How many operations a second the model schedules, and at what memory: ``uv run python benchmarks/simulation.py``.

The program is the chunk loop (copy in, kernel, copy out) over four streams on the ``teaching`` machine. Plain is the
scheduler in Python; compiled is the same source through Numba (``uv run --extra fast`` before the command), its first
call, which compiles, left out. Times are CPU time, medians of three; memory is the peak that Python's
allocator saw while one program was scheduled, the program itself left out.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from time import process_time

from gapless.model import flow
from gapless.model.kinds import StreamKind
from gapless.model.machine import Machine
from gapless.model.plan import plan
from gapless.model.program import Program
from gapless.model.schedule import schedule

SIZES = (10_000, 100_000, 1_000_000)


def chunk_loop(operations: int, streams: int = 4) -> Program:
    program = Program()
    several = [program.stream(f"s{i}", StreamKind.NON_BLOCKING) for i in range(streams)]
    for chunk in range(operations // 3):
        stream = several[chunk % streams]
        stream.h2d(1000)
        stream.kernel(1000)
        stream.d2h(1000)
    return program


def seconds(call: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(3):
        begun = process_time()
        call()
        times.append(process_time() - begun)
    return median(times)


def peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def measure(size: int, machine: Machine, *, compiled: bool) -> str:
    program = chunk_loop(size)
    laid_out = plan(program, machine)
    assert flow.fits(program, machine, laid_out)
    took = seconds(lambda: flow.run(program, machine, laid_out, compiled=False))
    line = f"{size:9,} operations   plain {size / took:9,.0f} /s"
    if compiled:
        took = seconds(lambda: flow.run(program, machine, laid_out, compiled=True))
        line += f"   compiled {size / took:9,.0f} /s"
    took = seconds(lambda: schedule(program, machine))
    line += f"   schedule() {size / took:9,.0f} /s"
    if size < SIZES[-1]:  # tracing every allocation of the largest takes long and tells nothing new
        line += f"   peak {peak(lambda: schedule(program, machine)) / size:.0f} B/operation"
    return line


def main() -> None:
    machine = Machine()
    compiled = find_spec("numba") is not None
    if compiled:
        small = chunk_loop(300)
        flow.run(small, machine, plan(small, machine), compiled=True)
    else:
        print("compiled: not measured, Numba is not installed (extra: fast)")
    for size in SIZES:
        print(measure(size, machine, compiled=compiled), flush=True)


if __name__ == "__main__":
    main()
