"""The pipeline on the host device beside the serial loop over the same chunks, for a function that lets go of the lock.

python benchmarks/pipeline_host.py [--megabytes N]
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np

from gapless.runtime.pipeline import Pipeline


def work(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.sin(x) ** 2 + np.cos(x) ** 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=128)
    x = np.random.default_rng(0).random(parser.parse_args().megabytes * 250_000, dtype=np.float32)
    out, serial = np.empty_like(x), np.empty_like(x)
    pipe = Pipeline(work, device="host")
    rows = pipe.plan(x, out=out).rows
    times: dict[str, list[float]] = {"serial loop": [], "pipeline": []}
    for _ in range(5):
        start = time.perf_counter()
        for first in range(0, len(x), rows):
            serial[first : first + rows] = work(x[first : first + rows])
        times["serial loop"].append(time.perf_counter() - start)
        start = time.perf_counter()
        pipe(x, out=out)
        times["pipeline"].append(time.perf_counter() - start)
    assert np.array_equal(out, serial)
    for name, runs in times.items():
        print(f"{name}: {median(runs) * 1e3:.1f} ms [{min(runs) * 1e3:.1f} to {max(runs) * 1e3:.1f}]")
    print(pipe.report())


if __name__ == "__main__":
    main()
