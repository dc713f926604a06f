"""Thousands of runs of the ring on a GPU with random delays at every stage; each result compared bit for bit.

    python benchmarks/pipeline_stress.py [--seconds N]

Kernels spin for random times, and the source, the consumer and the threads that stage sleep at random.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from gapless.runtime.devices import pool
from gapless.runtime.devices.crew import Threads, copy
from gapless.runtime.devices.cuda import Cuda
from gapless.runtime.kernels import cuda_kernel
from gapless.runtime.pipeline import Pipeline

SLOW = cuda_kernel(
    """
    __global__ void slow(const float* x, float* y, size_t n) {
      size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
      unsigned mixed = (unsigned)(n * 2654435761u) ^ (blockIdx.x * 40503u);
      long long until = clock64() + (mixed % 7 == 0 ? (mixed >> 12) % 200000 : 0);
      while (clock64() < until) {}
      if (i < n) y[i] = 2.0f * x[i] + 1.0f;
    }
    """,
    "slow",
)


def nap(chance: float = 0.2) -> None:
    if random.random() < chance:
        time.sleep(random.random() * 300e-6)


class SleepyThreads(Threads):
    """A crew in Python whose lanes sleep before and after they copy."""

    def submit(self, lane, token, copies):
        """Ask for copies, one of them of a list that sleeps."""
        super().submit(lane, token, replace(copies, after=Nap(copies.after)))


class Nap:
    """An event that is waited for between two naps."""

    def __init__(self, event) -> None:
        self.event = event

    def wait(self) -> None:
        """Wait."""
        nap()
        if self.event is not None:
            self.event.wait()
        nap()


class Sleepy(Cuda):
    """A GPU with crews that sleep, in C and in Python, and a caller that sleeps as well."""

    def __init__(self, library) -> None:
        super().__init__()
        self._staging = library
        self.pools = not isinstance(library, str)
        self.key = self.name = f"{self.name}, sleepy {self.pools}"  # what it costs is nobody else's cost

    def crew(self, lanes: int, threads: int):
        """Make a crew that sleeps."""
        return super().crew(lanes, threads) if self.pools else SleepyThreads(lanes, prepare=self.current)

    def copy(self, target, source) -> None:
        """Copy, after a nap."""
        nap()
        copy(target, source)


def sleepy(batches: list[np.ndarray]) -> Iterator[np.ndarray]:
    for batch in batches:
        nap()
        yield batch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    seconds = parser.parse_args().seconds
    random.seed(5)
    rng = np.random.default_rng(5)
    in_c = Sleepy(pool.Library(pool.compile_here(Path(tempfile.mkdtemp()), delays=True)))
    in_python = Sleepy("Python's threads are meant")
    device = in_c
    x = rng.random(400_000, dtype=np.float32)
    y = 2 * x + 1
    pinned, target = device.pinned(x.nbytes).view(np.float32), device.pinned(x.nbytes).view(np.float32)
    pinned[:] = x
    runs = chunks = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        device = (in_c, in_python)[int(rng.integers(2))]
        slots, threads = int(rng.integers(1, 7)), (None, 0, 3)[int(rng.integers(3))]
        with Pipeline(
            SLOW, device=device, slots=slots, threads=threads, chunk=int(rng.integers(4_000, 400_000))
        ) as pipe:
            for _ in range(4):
                target.fill(-1)
                for source, out in ((x, None), (pinned, target), (pinned, None), (x, target)):
                    if not np.array_equal(pipe(source, out=out), y):
                        raise SystemExit(f"wrong result: {pipe.plan()}")
                    runs, chunks = runs + 1, chunks + pipe.plan().chunks
                batches = [x[: int(size)] for size in rng.integers(1, 60_000, 40)]
                kept = []
                for got, batch in zip(pipe.stream(sleepy(batches)), batches, strict=True):
                    nap()
                    kept.append((got, len(batch)))
                    if len(kept) > 6:
                        kept.pop(0)
                    for old, size in kept:
                        if not np.array_equal(old, y[:size]):
                            raise SystemExit(f"wrong batch of {size}: {pipe.plan()}")
                runs, chunks = runs + 1, chunks + len(batches)
    print(f"{runs} runs, {chunks} chunks, all right to the bit")


if __name__ == "__main__":
    main()
