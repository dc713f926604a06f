"""The pipeline beside what people use today, and sweeps of what it chooses, on the GPU of this machine.

    python benchmarks/pipeline.py [CASE ...] [--out FOLDER] [--size BYTES] [--runs N] [--sweep]

Cases: out, fresh, pinned, loops, items; all of them by default. Writes pipeline.json and prints the tables.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import pstats
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from gapless.model.errors import GaplessError
from gapless.runtime.bench import AXPB, CASES, bench, bench_pipeline
from gapless.runtime.devices import open_device
from gapless.runtime.pipeline import Pipeline

MIB = 1 << 20


def in_turns(ways: dict[str, Any], runs: int) -> list[str]:
    """Time all ways in turns, so that none has a better hour; give a line each."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(runs + 2):
        for name, run in ways.items():
            start = time.perf_counter()
            run()
            if turn >= 2:  # the first allocates, the second knows the kernel
                times[name].append((time.perf_counter() - start) * 1e3)
    return [f"{name} {median(runs):.2f} [{min(runs):.2f} to {max(runs):.2f}]" for name, runs in times.items()]


def sweep(size: int) -> list[str]:
    """Time choices by hand: slots and chunk sizes, staged and from pinned memory."""
    device = open_device()
    x = np.random.default_rng(1).random(size // 4, dtype=np.float32)
    out = np.zeros_like(x)
    pipes = {
        f"staged slots={slots} chunk={chunk}MiB": Pipeline(AXPB, device=device, slots=slots, chunk=chunk * MIB)
        for slots in (8, 12, 16)
        for chunk in (2, 4, 8, 16)
    }
    pipes["staged, chosen"] = Pipeline(AXPB, device=device)
    lines = in_turns({name: lambda pipe=pipe: pipe(x, out=out) for name, pipe in pipes.items()}, 4)
    lines += [f"{name}: {pipe.report().busy}" for name, pipe in pipes.items()]
    for pipe in pipes.values():
        pipe.close()
    source, target = device.pinned(size).view(np.float32), device.pinned(size).view(np.float32)
    source[:] = x
    pipes = {
        f"pinned slots={slots} chunk={chunk}MiB": Pipeline(AXPB, device=device, slots=slots, chunk=chunk * MIB)
        for slots in (3, 4, 6)
        for chunk in (4, 8, 16, 32, 64)
    }
    pipes["pinned, chosen"] = Pipeline(AXPB, device=device)
    lines += in_turns({name: lambda pipe=pipe: pipe(source, out=target) for name, pipe in pipes.items()}, 5)
    small = Pipeline(AXPB, device=device, slots=4, chunk=1 << 16)
    part, back = source[: 1 << 24], target[: 1 << 24]
    lines += in_turns({"1024 chunks of 64 KiB": lambda: small(part, out=back)}, 3)
    profile = cProfile.Profile()
    profile.runcall(small, part, out=back)
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(28)
    return [*lines, text.getvalue()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], metavar="CASE")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--size", type=int, default=2 << 30)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args()
    try:
        machine = bench()
    except GaplessError as problem:
        parser.error(str(problem))
    print(machine, flush=True)
    if options.sweep:
        lines = sweep(options.size)
        print("\n".join(lines), flush=True)
        (options.out / "sweep.txt").write_text("\n".join(lines))
    (options.out / "machine.json").write_text(machine.to_json())
    cases = []
    for case in bench_pipeline(size=options.size, runs=options.runs, cases=options.cases or CASES):
        print(case, flush=True)
        cases.append(case.to_dict())
        (options.out / "pipeline.json").write_text(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
