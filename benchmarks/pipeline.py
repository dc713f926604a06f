"""The pipeline beside what people use today, and sweeps of what it chooses, on the GPU of this machine.

    python benchmarks/pipeline.py [--out FOLDER] [--size BYTES] [--runs N] [--sweep]

Writes pipeline.json and prints the tables.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median

import numpy as np

from gapless.runtime.bench import AXPB, bench, bench_pipeline
from gapless.runtime.devices import open_device
from gapless.runtime.pipeline import Pipeline

MIB = 1 << 20


def timed(run, runs: int = 3) -> float:
    run()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return median(times) * 1e3


def sweep(size: int) -> list[str]:
    device = open_device()
    x = np.random.default_rng(1).random(size // 4, dtype=np.float32)
    out = np.zeros_like(x)
    lines = []
    for slots in (8, 12, 16, 24):
        for chunk in (1, 2, 4, 8):
            with Pipeline(AXPB, device=device, slots=slots, chunk=chunk * MIB) as pipe:
                ms = timed(lambda pipe=pipe: pipe(x, out=out))
                fresh = timed(lambda pipe=pipe: pipe(x), 2)
                staging = pipe.report().busy.get("staging", 0)
            lines.append(f"staged slots={slots} chunk={chunk}MiB out={ms:.1f} fresh={fresh:.1f} staging={staging:.2f}")
    with Pipeline(AXPB, device=device, staging="register") as pipe:
        lines.append(f"registered out={timed(lambda: pipe(x, out=out)):.1f}")
    source, target = device.pinned(size).view(np.float32), device.pinned(size).view(np.float32)
    source[:] = x
    for slots in (3, 4, 6, 8):
        for chunk in (4, 8, 16, 32, 64):
            with Pipeline(AXPB, device=device, slots=slots, chunk=chunk * MIB) as pipe:
                ms = timed(lambda pipe=pipe: pipe(source, out=target), 5)
            lines.append(f"pinned slots={slots} chunk={chunk}MiB {ms:.2f}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--size", type=int, default=2 << 30)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args()
    machine = bench()
    print(machine, flush=True)
    if options.sweep:
        lines = sweep(options.size)
        print("\n".join(lines), flush=True)
        (options.out / "sweep.txt").write_text("\n".join(lines))
    cases = bench_pipeline(size=options.size, runs=options.runs)
    (options.out / "pipeline.json").write_text(json.dumps([case.to_dict() for case in cases], indent=1))
    (options.out / "machine.json").write_text(machine.to_json())
    for case in cases:
        print(case, flush=True)


if __name__ == "__main__":
    main()
