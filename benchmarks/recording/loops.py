"""Python programs that benchmarks/recording.py runs: alone, and with each profiler in turn, in one process.

    loops.py costs FOLDER                             writes costs.json: ns a launch, an operation, a step
    loops.py chunks VARIANT,COUNT,KIB,ROUNDS PASSES   the chunk loop of loops.cu, called with ctypes
    loops.py traces FOLDER COUNT,KIB,ROUNDS VARIANT.. the same under torch.profiler, one trace a variant

``costs`` takes turns: each loop alone, recorded by gapless, recorded without source lines, under torch.profiler, under
cupti-python, and again. A profiler is started before and stopped after a turn; only the loop is timed.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

TURNS = 3
LAUNCHES = 100  # a batch, few enough that no queue fills


def library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(Path(os.environ["LOOPS_LIBRARY"])))
    loaded.launches_ns.restype = ctypes.c_longlong
    return loaded


def launches() -> Callable[[], float]:
    loop = library().launches_ns
    return lambda: loop(LAUNCHES) / LAUNCHES


def small() -> Callable[[], float]:
    import torch

    x = torch.ones(16, device="cuda")

    def batch() -> float:
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(LAUNCHES):
            x.add_(1)
        return (time.perf_counter_ns() - start) / LAUNCHES

    return batch


def training() -> Callable[[], float]:
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.randn(32, 512, 1024, device="cuda")

    def step() -> float:
        start = time.perf_counter_ns()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        return time.perf_counter_ns() - start

    return step


class CuptiPython:
    """Keeps the records that it is given."""

    def __enter__(self) -> None:
        from cupti import cupti

        self.cupti, self.kept = cupti, list[Any]()
        self.kinds = [
            getattr(cupti.ActivityKind, name)
            for name in ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION")
        ]
        cupti.activity_register_callbacks(lambda: (8 << 20, 0), self.kept.extend)
        for kind in self.kinds:
            cupti.activity_enable(kind)

    def __exit__(self, *why: object) -> None:
        self.cupti.activity_flush_all(1)
        for kind in self.kinds:
            self.cupti.activity_disable(kind)


def torch_profiler() -> AbstractContextManager[Any]:
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True)


def costs(folder: Path) -> None:
    from gapless.recorder.recording import Recording

    loops = {"launches": (launches(), 100), "small": (small(), 60), "training": (training(), 20)}
    path = folder / "costs.gapless"
    tools: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "untraced": nullcontext,
        "gapless": lambda: Recording(path, force=True),
        "gapless --no-lines": lambda: Recording(path, force=True, lines=False),
        "torch.profiler": torch_profiler,
        "cupti-python": CuptiPython,
    }
    for loop, _ in loops.values():
        for _ in range(10):
            loop()
    taken: dict[str, dict[str, list[float]]] = {name: {tool: [] for tool in tools} for name in loops}
    # torch.profiler and cupti-python keep hold of CUPTI once they have run: their turns come last, each beside more
    # of the untraced loops
    for group in (list(tools)[:3], ["untraced", "torch.profiler"], ["untraced", "cupti-python"]):
        for _ in range(TURNS):
            for tool in group:
                for name, (loop, passes) in loops.items():
                    try:
                        with tools[tool]():
                            mine = [loop() for _ in range(passes)]
                    except Exception as problem:
                        print(name, tool, problem, file=sys.stderr)
                        continue
                    taken[name][tool] += mine[2:]
            found = {name: {tool: _summed(ns) for tool, ns in by.items() if ns} for name, by in taken.items()}
            (folder / "costs.json").write_text(json.dumps(found))


def _summed(ns: list[float]) -> dict[str, float]:
    ordered = sorted(ns)
    tenth = len(ordered) // 10
    return {"median_ns": median(ordered), "low_ns": ordered[tenth], "high_ns": ordered[-1 - tenth], "passes": len(ns)}


def chunks(words: str, passes: int) -> None:
    variant, count, kib, rounds = words.split(",")
    library().chunk_loop(variant.encode(), int(count), int(kib), int(rounds), passes)


def traces(folder: Path, size: str, variants: list[str]) -> None:
    for variant in variants:
        with torch_profiler() as kept:
            chunks(f"{variant},{size}", 2)
        kept.export_chrome_trace(str(folder / f"{variant}.json.gz"))


def main() -> None:
    what, *words = sys.argv[1:]
    if what == "costs":
        costs(Path(words[0]))
    elif what == "chunks":
        chunks(words[0], int(words[1]))
    else:
        traces(Path(words[0]), words[1], words[2:])


if __name__ == "__main__":
    main()
