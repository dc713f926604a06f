"""What people use today, as they write it: y = 2x + 1 over a large array, and over many small ones.

Each contender is a function of (x, out) that gives the result, or None where *out* takes it. Those whose library is not
installed are left out.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .devices import HostArray

Contender = Callable[[HostArray, "HostArray | None"], HostArray]


def contenders() -> dict[str, Contender]:
    """Give the libraries' ways from NumPy to NumPy, by name."""
    makers = {"CuPy": ("cupy", _cupy), "PyTorch": ("torch", _torch), "JAX": ("jax", _jax)}
    return {name: make() for name, (package, make) in makers.items() if find_spec(package)}


def _cupy() -> Contender:
    import cupy  # pyright: ignore[reportMissingImports]

    def run(x: HostArray, out: HostArray | None) -> HostArray:
        y = 2 * cupy.asarray(x) + 1
        return cupy.asnumpy(y) if out is None else y.get(out=out)

    return run


def _torch() -> Contender:
    import torch  # pyright: ignore[reportMissingImports]

    def run(x: HostArray, out: HostArray | None) -> HostArray:
        y = 2 * torch.from_numpy(x).cuda() + 1
        if out is None:
            return y.cpu().numpy()
        torch.from_numpy(out).copy_(y)
        return out

    return run


def _jax() -> Contender:
    import jax  # pyright: ignore[reportMissingImports]

    compiled = jax.jit(lambda a: 2 * a + 1)

    def run(x: HostArray, out: HostArray | None) -> HostArray:
        y = np.asarray(compiled(x))
        if out is None:
            return y
        out[...] = y
        return out

    return run


def cupy_loop(streams: int, chunk: int) -> Contender:
    """Give the loop of k streams over pinned memory, by hand with CuPy; *chunk* in elements."""
    import cupy  # pyright: ignore[reportMissingImports]

    kernel = cupy.ElementwiseKernel("float32 x", "float32 y", "y = 2 * x + 1", "axpb")
    queues = [cupy.cuda.Stream(non_blocking=True) for _ in range(streams)]
    buffers = [(cupy.empty(chunk, cupy.float32), cupy.empty(chunk, cupy.float32)) for _ in queues]

    def run(x: HostArray, out: HostArray | None) -> HostArray:
        assert out is not None
        for number, first in enumerate(range(0, len(x), chunk)):
            queue, (a, b) = queues[number % streams], buffers[number % streams]
            part = x[first : first + chunk]
            with queue:
                a[: len(part)].set(part, stream=queue)
                kernel(a[: len(part)], b[: len(part)])
                b[: len(part)].get(out=out[first : first + chunk], stream=queue, blocking=False)
        for queue in queues:
            queue.synchronize()
        return out

    return run


def cuda_loop(streams: int, chunk: int) -> Contender | None:
    """Give the same loop in CUDA C++, or None where there is no nvcc; *chunk* in elements."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="gapless-"))
    try:
        library = folder / "loop.so"
        source = Path(__file__).with_name("loop.cu")
        flags = ["-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC"]
        made = subprocess.run([nvcc, *flags, "-o", library, source], capture_output=True, text=True, check=False)
        if made.returncode:
            return None
        loop = ctypes.CDLL(str(library))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    loop.loop_open.argtypes = [ctypes.c_int, ctypes.c_size_t]
    loop.loop_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    if loop.loop_open(streams, chunk * 4):
        return None

    def run(x: HostArray, out: HostArray | None) -> HostArray:
        assert out is not None
        problem = loop.loop_run(x.ctypes.data, out.ctypes.data, len(x), chunk, streams)
        if problem:
            raise RuntimeError(f"the loop in CUDA C++ failed with error {problem}")
        return out

    return run


def cupy_items() -> Callable[[list[HostArray]], list[Any]] | None:
    """Give the plain CuPy loop over small items."""
    if not find_spec("cupy"):
        return None
    import cupy  # pyright: ignore[reportMissingImports]

    return lambda items: [cupy.asnumpy(2 * cupy.asarray(item) + 1) for item in items]
