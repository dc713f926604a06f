"""Python programs that benchmarks/recording.py runs alone and under each profiler.

    loops.py PROGRAM PASSES [--with torch.profiler | cupti-python] [--trace FILE]

PROGRAM: launches (the C++ loop of empty kernels, called with ctypes), small (PyTorch, one tiny operation after the
other), training (PyTorch, steps of two transformer layers), or chunks:VARIANT,COUNT,KIB,ROUNDS. Prints the host's ns a
pass, one line each; the profiler is started before the first and stopped after the last.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

COUNT = 500  # launches or operations a pass


def launches() -> Callable[[], int]:
    library = ctypes.CDLL(str(Path(os.environ["LOOPS_LIBRARY"])))
    library.launches_ns.restype = ctypes.c_longlong
    return lambda: library.launches_ns(COUNT)


def small() -> Callable[[], int]:
    import torch

    x = torch.ones(16, device="cuda")

    def batch() -> int:
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(COUNT):
            x.add_(1)
        return time.perf_counter_ns() - start

    return batch


def training() -> Callable[[], int]:
    import torch

    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0), 2, enable_nested_tensor=False
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.randn(32, 512, 1024, device="cuda")

    def step() -> int:
        start = time.perf_counter_ns()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        return time.perf_counter_ns() - start

    return step


def chunks(words: str) -> Callable[[], int]:
    variant, count, kib, rounds = words.split(",")
    library = ctypes.CDLL(str(Path(os.environ["LOOPS_LIBRARY"])))

    def once() -> int:
        start = time.perf_counter_ns()
        library.chunk_loop(variant.encode(), int(count), int(kib), int(rounds), 1)
        return time.perf_counter_ns() - start

    return once


def profiler(name: str, trace: str) -> AbstractContextManager[Any]:
    if name == "torch.profiler":
        from torch.profiler import ProfilerActivity, profile

        kept = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True)
        return _traced(kept, trace)
    if name == "cupti-python":
        return _CuptiPython()
    return nullcontext()


class _traced:  # noqa: N801
    def __init__(self, kept: Any, trace: str):
        self.kept, self.trace = kept, trace

    def __enter__(self) -> None:
        self.kept.__enter__()

    def __exit__(self, *why: object) -> None:
        self.kept.__exit__(*why)
        if self.trace:
            self.kept.export_chrome_trace(self.trace)


class _CuptiPython:
    """Keeps what it is given, as its documentation's first example does."""

    def __enter__(self) -> None:
        from cupti import cupti

        self.cupti, self.kept = cupti, []
        cupti.activity_register_callbacks(lambda: (8 << 20, 0), self.kept.extend)
        for kind in ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION"):
            cupti.activity_enable(getattr(cupti.ActivityKind, kind))

    def __exit__(self, *why: object) -> None:
        self.cupti.activity_flush_all(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("passes", type=int)
    parser.add_argument("--with", dest="tool", default="")
    parser.add_argument("--trace", default="")
    given = parser.parse_args()
    if given.program.startswith("chunks:"):
        one = chunks(given.program.removeprefix("chunks:"))
    else:
        one = {"launches": launches, "small": small, "training": training}[given.program]()
        for _ in range(5):
            one()
    with profiler(given.tool, given.trace):
        taken = [one() for _ in range(given.passes)]
    print("\n".join(map(str, taken)))


if __name__ == "__main__":
    main()
