"""Programs with a fault, and the same programs repaired: recorded and timed on a GPU to score predictions.

    python programs.py record OUT [before|after ...]

writes OUT/NAME.before.json.gz (torch.profiler) for every program and OUT/walls.json with untraced wall times (median,
least and most of RUNS runs) of the variants named, both by default. Needs PyTorch, nvcc and an NVIDIA GPU.
"""

from __future__ import annotations

import ctypes
import gc
import gzip
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

RUNS, WARM_UPS = 9, 3
MIB = 1 << 20
Run = Callable[[], object]
PROGRAMS: dict[str, tuple[tuple[str, ...], Callable[[], tuple[Run, Run]]]] = {}


def program(*repairs: str) -> Callable[[Callable[[], tuple[Run, Run]]], Callable[[], tuple[Run, Run]]]:
    """Register a program: a function that gives its faulty and its repaired run, and the repairs between them."""

    def register(make: Callable[[], tuple[Run, Run]]) -> Callable[[], tuple[Run, Run]]:
        PROGRAMS[make.__name__] = repairs, make
        return make

    return register


def raw() -> ctypes.CDLL:
    """Compile and load the loops in chunks.cu."""
    folder = Path(tempfile.mkdtemp())
    source = Path(__file__).with_name("chunks.cu")
    subprocess.run(
        ["nvcc", "-O3", "-shared", "-Xcompiler", "-fPIC", "-arch=native", "-o", folder / "chunks.so", source],
        check=True,
    )
    library = ctypes.CDLL(str(folder / "chunks.so"))
    size = ctypes.c_size_t
    library.chunk_loop.argtypes = [ctypes.c_int, size, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    return library


LIBRARY: list[ctypes.CDLL] = []


def chunk_loop(*, chunks: int, up: int, down: int, rounds: int, grid: int, streams: int, sync: bool = False) -> Run:
    """Run raw chunks: *up* bytes to the device, a kernel, *down* bytes back."""
    if not LIBRARY:
        LIBRARY.append(raw())
    return lambda: LIBRARY[0].chunk_loop(chunks, up, down, rounds, grid, streams, int(sync))


@program("streams=3")
def copy_heavy() -> tuple[Run, Run]:
    """Upload 24 MiB, compute a little, download 6 MiB, 48 times: one stream, then three."""
    shape = {"chunks": 48, "up": 24 * MIB, "down": 6 * MIB, "rounds": 400, "grid": 1056}
    return chunk_loop(**shape, streams=1), chunk_loop(**shape, streams=3)


@program("streams=4")
def upload_only() -> tuple[Run, Run]:
    """Upload 2 MiB and reduce it, 200 times, nothing comes back: one stream, then four."""
    shape = {"chunks": 200, "up": 2 * MIB, "down": 0, "rounds": 2600, "grid": 1056}
    return chunk_loop(**shape, streams=1), chunk_loop(**shape, streams=4)


@program("no-sync")
def sync_small_chunks() -> tuple[Run, Run]:
    """Wait for every chunk of 512 KiB in three streams, then only at the end."""
    shape = {"chunks": 300, "up": MIB // 2, "down": MIB // 2, "rounds": 900, "grid": 1056, "streams": 3}
    return chunk_loop(**shape, sync=True), chunk_loop(**shape)


@program("streams=4")
def shared_sms() -> tuple[Run, Run]:
    """Launch kernels of 30 blocks, far fewer than there are SMs: one stream, then four."""
    if not LIBRARY:
        LIBRARY.append(raw())
    return lambda: LIBRARY[0].small_kernels(400, 30, 30000, 1), lambda: LIBRARY[0].small_kernels(400, 30, 30000, 4)


@program("no-sync")
def staged_events() -> tuple[Run, Run]:
    """Hand items from a copy stream to a compute stream to a download stream: by the host, then by events."""
    count, elements = 40, 2 * MIB
    sources = [torch.randn(elements).pin_memory() for _ in range(4)]
    targets = [torch.empty(elements).pin_memory() for _ in range(count)]
    inputs = [torch.empty(elements, device="cuda") for _ in range(count)]
    outputs = [torch.empty(elements, device="cuda") for _ in range(count)]
    up, middle, down = (torch.cuda.Stream() for _ in range(3))

    def run(hand_over: Callable[[torch.cuda.Stream, torch.cuda.Stream], None]) -> None:
        for i in range(count):
            with torch.cuda.stream(up):
                inputs[i].copy_(sources[i % 4], non_blocking=True)
            hand_over(up, middle)
            with torch.cuda.stream(middle):
                torch.erfinv(inputs[i], out=outputs[i])
                for _ in range(12):
                    torch.sin(outputs[i], out=outputs[i])
            hand_over(middle, down)
            with torch.cuda.stream(down):
                targets[i].copy_(outputs[i], non_blocking=True)
            if hand_over is by_host:
                down.synchronize()
        torch.cuda.synchronize()

    def by_host(first: torch.cuda.Stream, then: torch.cuda.Stream) -> None:
        first.synchronize()

    def by_event(first: torch.cuda.Stream, then: torch.cuda.Stream) -> None:
        then.wait_stream(first)

    return lambda: run(by_host), lambda: run(by_event)


def network(width: int, depth: int) -> nn.Module:
    """Give a plain stack of linear layers on the device, in half precision."""
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers).cuda().half()


@program("pin", "no-sync")
def loader_training() -> tuple[Run, Run]:
    """Train from a DataLoader over pageable memory, then over pinned memory with non_blocking copies."""
    model = network(4096, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.randn(30 * 2048, 4096, dtype=torch.float32).half()
    batches = [slice(i * 2048, (i + 1) * 2048) for i in range(30)]

    def loader(source: torch.Tensor) -> torch.utils.data.DataLoader[tuple[torch.Tensor, ...]]:
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(source), batch_size=None, sampler=batches)

    def run(source: torch.utils.data.DataLoader[tuple[torch.Tensor, ...]], non_blocking: bool) -> None:
        for (batch,) in source:
            x = batch.to("cuda", non_blocking=non_blocking)
            loss = model(x).square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()

    plain, pinned = loader(data), loader(data.pin_memory())
    return lambda: run(plain, False), lambda: run(pinned, True)


@program("pin", "no-sync", "streams=3")
def server() -> tuple[Run, Run]:
    """Answer requests: NumPy in, NumPy out, one after another; then three in flight from pinned memory."""
    model = network(2048, 6)
    requests = [np.random.default_rng(i).standard_normal((2048, 2048)).astype(np.float16) for i in range(40)]
    pinned = [torch.from_numpy(r).pin_memory() for r in requests]
    answers = [torch.empty(2048, 2048, dtype=torch.float16).pin_memory() for _ in requests]
    streams = [torch.cuda.Stream() for _ in range(3)]

    @torch.inference_mode()
    def before() -> None:
        for request in requests:
            model(torch.from_numpy(request).cuda()).cpu().numpy()

    @torch.inference_mode()
    def after() -> None:
        for i, request in enumerate(pinned):
            with torch.cuda.stream(streams[i % 3]):
                answers[i].copy_(model(request.cuda(non_blocking=True)), non_blocking=True)
        torch.cuda.synchronize()

    return before, after


@program("graph")
def tiny_steps() -> tuple[Run, Run]:
    """Run a small network 150 times: launch by launch, then as a CUDA graph."""
    model = network(256, 10)
    x = torch.randn(64, 256, device="cuda", dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.inference_mode():
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model(x)

    @torch.inference_mode()
    def before() -> None:
        for _ in range(150):
            model(x)
        torch.cuda.synchronize()

    def after() -> None:
        for _ in range(150):
            graph.replay()
        torch.cuda.synchronize()

    return before, after


@program("pool")
def emptied_cache() -> tuple[Run, Run]:
    """Empty the allocator's cache in every step, then never."""
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    source = torch.randn(4096, 1024).half().pin_memory()

    def run(empty: bool) -> None:
        for _ in range(30):
            x = source.cuda(non_blocking=True)
            y = a @ x
            z = torch.relu(y) @ x.T
            del x, y, z
            if empty:
                torch.cuda.empty_cache()
        torch.cuda.synchronize()

    return lambda: run(True), lambda: run(False)


def timed(run: Run) -> float:
    """Give one run's wall time in ms."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3


def wall(run: Run) -> dict[str, float]:
    """Time a run several times, untraced."""
    gc.collect()
    for _ in range(WARM_UPS):
        timed(run)
    times = sorted(timed(run) for _ in range(RUNS))
    return {"wall_ms": statistics.median(times), "wall_min_ms": times[0], "wall_max_ms": times[-1]}


def record(run: Run, path: Path) -> None:
    """Record one run with torch.profiler, as a user would."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, with_stack=True) as profiler:
        run()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(path))
    text = gzip.decompress(path.read_bytes())  # the profiler writes the name of a temporary file into it
    path.write_bytes(gzip.compress(re.sub(rb'"traceName": "[^"]*"', b'"traceName": ""', text), 9, mtime=0))


def main() -> None:
    """Record and time every program."""
    out, variants = Path(sys.argv[2]), sys.argv[3:] or ["before", "after"]
    out.mkdir(parents=True, exist_ok=True)
    walls: dict[str, object] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name, (repairs, make) in PROGRAMS.items():
        try:
            runs = dict(zip(("before", "after"), make(), strict=True))
            walls[name] = {"repairs": repairs} | {variant: wall(runs[variant]) for variant in variants}
            record(runs["before"], out / f"{name}.before.json.gz")
        except Exception as problem:  # one program that fails must not cost the others
            walls[name] = {"failed": repr(problem)}
        print(name, json.dumps(walls[name]), flush=True)
        torch.cuda.empty_cache()
    (out / "walls.json").write_text(json.dumps(walls, indent=1))


if __name__ == "__main__":
    main()
