"""Runs on a real GPU that are broken off, taken up again, done beside others, or given a priority."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapless.runtime.devices.cuda import Cuda, check, is_available
from gapless.runtime.kernels import cuda_kernel
from gapless.runtime.pipeline import Pipeline

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not is_available(), reason="no GPU, or no cuda.core")]

SOURCE = """
__global__ void axpb(const float* x, float* y, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i] + 1.0f;
}
"""
X = np.random.default_rng(8).random(8 << 20, dtype=np.float32)
Y = 2 * X + 1

RESUMED = """
import os, sys
import numpy as np
from gapless.runtime import resume
from gapless.runtime.kernels import cuda_kernel
from gapless.runtime.pipeline import Pipeline
resume.EVERY = 0  # this run takes less than the second that a kill may cost
folder, stops = sys.argv[1], int(sys.argv[2])
x = np.load(f"{folder}/x.npy", mmap_mode="r")
out = np.lib.format.open_memmap(f"{folder}/y.npy", mode="r+" if os.path.exists(f"{folder}/y.npy") else "w+",
                                dtype=np.float32, shape=x.shape)
seen = []
def progress(done, rows):
    seen.append(done)
    if stops and done >= rows // 2:
        os._exit(7)
with Pipeline(cuda_kernel(open(f"{folder}/axpb.cu").read(), "axpb"), chunk=1 << 20) as pipe:
    pipe(x, out=out, resume=f"{folder}/journal", progress=progress)
print(len(seen))
"""


def child(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_run_that_was_killed_is_taken_up_where_it_was(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "axpb.cu").write_text(SOURCE)
    killed = child(RESUMED, tmp_path, 1)
    assert killed.returncode == 7, killed.stderr
    rest = child(RESUMED, tmp_path, 0)
    assert rest.returncode == 0, rest.stderr
    chunks = X.nbytes >> 20
    assert 0 < int(rest.stdout) <= chunks // 2 + 1  # the chunk at which it was killed stands in no journal
    assert np.array_equal(np.load(tmp_path / "y.npy"), Y)


@pytest.mark.parametrize("memory", ["pageable", "pinned"])
@pytest.mark.parametrize("function", [False, True])
def test_ctrl_c_ends_a_run_within_a_chunk_or_so(memory: str, function: bool) -> None:
    device = Cuda()
    source, target = X, np.zeros_like(X)
    if memory == "pinned":
        source, target = (device.pinned(X.nbytes).view(np.float32) for _ in range(2))
        source[:] = X
    done: list[int] = []

    def progress(rows: int, of: int) -> None:
        done.append(rows)
        if len(done) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    options: dict[str, Any] = {}
    kernel: Any = cuda_kernel(SOURCE, "axpb")
    if function:
        pytest.importorskip("cupy")
        kernel, options = (lambda a: 2 * a + 1), {"arrays": "cupy"}
    with Pipeline(kernel, device=device, chunk=256 << 10, **options) as pipe:
        pipe(source, out=target)
        target.fill(-1)
        with pytest.raises(KeyboardInterrupt):
            pipe(source, out=target, progress=progress)
        assert len(done) < X.nbytes >> 18
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("gapless")]
        pipe(source, out=target)  # as if nothing had been
    assert np.array_equal(target, Y)


def test_several_pipelines_from_several_threads() -> None:
    kernel = cuda_kernel(SOURCE, "axpb")
    with (
        Pipeline(kernel, chunk=1 << 20) as one,
        Pipeline(kernel, chunk=3 << 19, priority="low") as other,
        ThreadPoolExecutor(4) as pool,
    ):
        results = list(pool.map(lambda pipe: pipe(X), [one, other, one, other, one, other]))
    assert all(np.array_equal(got, Y) for got in results)


def test_priorities_are_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Cuda()
    made: list[Any] = []
    monkeypatch.setattr(device, "stream", lambda priority=0: made.append(Cuda.stream(device, priority)) or made[-1])
    lowest, highest = check(device.driver.cuCtxGetStreamPriorityRange())
    for priority, wanted in (("low", lowest), ("normal", lowest), ("high", highest)):
        made.clear()
        with Pipeline(cuda_kernel(SOURCE, "axpb"), device=device, priority=priority) as pipe:
            assert np.array_equal(pipe(X), Y)
        assert made[-1].stream.priority == wanted  # the ring's; others may be of the calibration
        if priority == "low":
            assert pipe.plan().ahead == 2


def test_low_priority_lets_the_copies_of_others_through() -> None:
    """While a large run of low priority is under way, small runs take less long than while it has its way."""
    device = Cuda()
    source, target = (device.pinned(1 << 30).view(np.float32) for _ in range(2))
    part, back = (device.pinned(1 << 20).view(np.float32) for _ in range(2))
    kernel = cuda_kernel(SOURCE, "axpb")
    waits: dict[str, float] = {}
    for priority in ("normal", "low"):
        with (
            Pipeline(kernel, device=device, priority=priority, chunk=64 << 20 if priority == "normal" else None) as big,
            Pipeline(kernel, device=device, priority="high") as small,
        ):
            big(source, out=target)
            small(part, out=back)
            over = threading.Event()

            def work(big: Any = big, over: threading.Event = over) -> None:
                for _ in range(4):
                    big(source, out=target)
                over.set()

            worker = threading.Thread(target=work)
            worker.start()
            times: list[int] = []
            while not over.is_set():
                start = device.now_ns()
                small(part, out=back)
                times.append(device.now_ns() - start)
            worker.join()
            waits[priority] = float(np.median(times))
    assert waits["low"] < waits["normal"], waits


def test_two_gpus_at_once() -> None:
    """Each pipeline's memory, streams and kernels are its GPU's, whatever thread it is called in."""
    if check(Cuda().driver.cuDeviceGetCount()) < 2:
        pytest.skip("one GPU")
    source = cuda_kernel(SOURCE, "axpb")
    libraries = [name for name in ("cupy", "torch") if importlib.util.find_spec(name)]
    kernels: list[tuple[Any, dict[str, Any]]] = [(lambda a: 2 * a + 1, {"arrays": name}) for name in libraries]
    for kernel, options in [(source, {}), *kernels]:
        with (
            Pipeline(kernel, device="cuda:0", chunk=1 << 20, **options) as one,
            Pipeline(kernel, device="cuda:1", chunk=1 << 20, **options) as other,
            ThreadPoolExecutor(4) as pool,
        ):
            results = list(pool.map(lambda pipe: pipe(X), [one, other] * 4))
            assert all(np.array_equal(got, Y) for got in results)
            assert all(np.array_equal(pipe(X), Y) for pipe in (other, one, other))
            for number, pipe in enumerate((one, other)):
                batches = [X[: 1000 * size] for size in range(1, 30)]
                for got, batch in zip(pipe.stream(batches), batches, strict=True):
                    assert np.array_equal(got, Y[: len(batch)]), number
