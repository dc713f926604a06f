"""Python programs that benchmarks/recording.py runs: alone, and with each profiler in turn, in one process.

    loops.py costs FOLDER [TOOL...]                   ns a launch, an operation, a step: adds to FOLDER/costs.jsonl
    loops.py chunks VARIANT,COUNT,KIB,ROUNDS PASSES   the chunk loop of loops.cu, called with ctypes
    loops.py beside FOLDER NAME COUNT,KIB,ROUNDS TURNS VARIANT...
                                                      the same alone, recorded and under torch.profiler, in turns

``costs`` takes turns: each loop alone and under each tool (all, or those named), a process each, in another order each
turn, and again. Only the loop is timed. With each pass it keeps what the core's piece of arithmetic took (core_ns of
loops.cu): which passes had the core to themselves is known when the whole run is, so tables.py tells. That is the core
of the thread that issues: what PyTorch's backward pass issues comes from a thread on another.
``beside`` keeps a loop's memory and streams from turn to turn: what differs between turns
of one tool is not what differs between tools. It leaves VARIANT.NAME.TURN.gapless and .json.gz in FOLDER and prints the
walls, a line of JSON a turn.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

TURNS, STRETCHES = 8, 3  # processes of each tool, and stretches in each of them
SELDOM = ("torch.profiler", "cupti-python")  # every second turn: enough to compare with
PATIENCE_S = 60
LAUNCHES = 100  # a batch, few enough that no queue fills
SETTLES_S = 0.12
WARM, ALONE, PROFILED = 3, 3, 2  # passes of a chunk loop


def library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(Path(os.environ["LOOPS_LIBRARY"])))
    loaded.launches_ns.restype = loaded.core_ns.restype = ctypes.c_longlong
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


TOOLS: dict[str, Callable[[Path], AbstractContextManager[Any]]] = {
    "gapless": lambda path: _recording(path, lines=True),
    "gapless --no-lines": lambda path: _recording(path, lines=False),
    "torch.profiler": lambda _: torch_profiler(),
    "cupti-python": lambda _: CuptiPython(),
}


def _recording(path: Path, *, lines: bool) -> AbstractContextManager[Any]:
    from gapless.recorder.recording import Recording

    return Recording(path.with_suffix(".gapless"), force=True, lines=lines)


def shuffled(tools: list[str], turn: int) -> list[str]:
    """Give the order of a turn, the same in each run: no tool is always the first or after the same other."""
    return random.Random(turn).sample(tools, len(tools))


def costs(folder: Path, tools: list[str]) -> None:
    """Measure each tool in processes of its own: only one can hold CUPTI, and launches stay dearer after it."""
    import torch  # noqa: F401  the processes that are forked have it

    run = round(time.time())
    for turn in range(TURNS):
        now = [tool for tool in ("untraced", *tools) if tool not in SELDOM or turn % 2 == 0]
        for tool in shuffled(now, turn):
            process = multiprocessing.get_context("fork").Process(target=cost, args=(folder, tool, run, turn))
            process.start()
            process.join(PATIENCE_S)
            if process.is_alive():
                print(tool, "did not end", file=sys.stderr)
                process.kill()


def cost(folder: Path, tool: str, run: int, turn: int) -> None:
    """Keep apart what a loop takes at first: gapless then asks every launch for its line."""
    core = library().core_ns

    def timed(loop: Callable[[], float]) -> tuple[float, int]:
        before = core()
        ns = loop()
        return round(ns, 1), max(before, core())

    loops = {"launches": (launches(), 60), "small": (small(), 40), "training": (training(), 15)}
    for loop, _ in loops.values():
        for _ in range(10):
            loop()
    taken: dict[str, list[list[tuple[float, int]]]] = {}
    for _ in range(STRETCHES):
        for name, (loop, passes) in loops.items():
            with TOOLS[tool](folder / "costs") if tool in TOOLS else nullcontext():
                settled = time.perf_counter() + (SETTLES_S if tool.startswith("gapless") else 0)
                first: list[tuple[float, int]] = []
                while time.perf_counter() < settled:
                    first.append(timed(loop))
                mine = [timed(loop) for _ in range(passes)]
            taken.setdefault(name, []).append(mine[2:])
            if first:
                taken.setdefault(f"{name}, at first", []).append(first[2:])
    (folder / "costs.gapless").unlink(missing_ok=True)
    found = {"run": run, "tool": tool, "turn": turn, "passes": taken}
    with (folder / "costs.jsonl").open("a") as file:
        file.write(json.dumps(found) + "\n")


def chunks(words: str, passes: int) -> None:
    variant, count, kib, rounds = words.split(",")
    library().chunk_loop(variant.encode(), int(count), int(kib), int(rounds), passes)


class ChunkLoop:
    """A chunk loop of loops.cu with its memory and streams; called, it gives the nanoseconds of a pass."""

    def __init__(self, variant: str, size: str) -> None:
        made = library().chunk_loop_made
        made.restype = ctypes.c_void_p
        self._ns = library().chunk_loop_ns
        self._ns.restype = ctypes.c_longlong
        self._loop = ctypes.c_void_p(made(variant.encode(), *map(int, size.split(","))))

    def __call__(self) -> int:
        """Make a pass."""
        return self._ns(self._loop)


def beside(folder: Path, name: str, size: str, turns: int, variants: list[str]) -> None:
    """torch.profiler keeps hold of CUPTI once it has run: its turns come last. Each is beside the untraced loop."""
    loops = {variant: ChunkLoop(variant, size) for variant in variants}
    for loop in loops.values():
        for _ in range(WARM):
            loop()
    for tool, end in (("gapless", "gapless"), ("torch.profiler", "json.gz")):
        for turn in range(turns):
            for variant, loop in loops.items():
                alone = [loop() for _ in range(ALONE)]
                path = folder / f"{variant}.{name}.{turn}.{end}"
                with TOOLS[tool](path) as kept:
                    under = [loop() for _ in range(PROFILED)]
                if tool == "torch.profiler":
                    kept.export_chrome_trace(str(path))
                found = {"variant": variant, "process": name, "turn": turn, "tool": tool, "file": path.name}
                print(json.dumps({**found, "untraced_ns": alone, "ns": under}), flush=True)


def main() -> None:
    what, *words = sys.argv[1:]
    if what == "costs":
        folder, *tools = words
        if unknown := [tool for tool in tools if tool not in TOOLS]:
            print(f"there is no tool {unknown[0]!r}: it is one of {', '.join(TOOLS)}", file=sys.stderr)
            sys.exit(2)
        costs(Path(folder), tools or list(TOOLS))
    elif what == "chunks":
        chunks(words[0], int(words[1]))
    else:
        beside(Path(words[0]), words[1], words[2], int(words[3]), words[4:])


if __name__ == "__main__":
    main()
