"""Kernels of every library on a real GPU: right results on the slot's stream, whatever the library."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from gapless.model.errors import GaplessError
from gapless.runtime.devices.cuda import Cuda, is_available
from gapless.runtime.kernels import cuda_kernel
from gapless.runtime.pipeline import Pipeline

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not is_available(), reason="no GPU, or no cuda.core")]

SOURCE = """
__global__ void axpb(const float* x, float* y, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i] + 1.0f;
}
__global__ void slow(const float* x, float* y, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  unsigned h = (unsigned)(i / 4096) * 2654435761u;
  long long until = clock64() + (h >> 16) * 4;
  while (clock64() < until) {}
  if (i < n) y[i] = 2.0f * x[i] + 1.0f;
}
template <typename T> __global__ void twice(const T* x, T* y, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + x[i];
}
__global__ void count_up(long long* y, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = (long long)i;
}
"""
X = np.random.default_rng(3).random(3_000_017, dtype=np.float32)
Y = 2 * X + 1


def need(name: str) -> Any:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return importlib.import_module(name)


def run(kernel: Any, x: np.ndarray = X, **how: Any) -> Any:
    with Pipeline(kernel, chunk=1 << 20, **how) as pipe:
        first = pipe(x)
        again = pipe(x)
        assert np.array_equal(first, again)
        return again


def test_cuda_source() -> None:
    assert np.array_equal(run(cuda_kernel(SOURCE, "axpb")), Y)


def test_a_template_for_another_type() -> None:
    x = np.arange(100_003, dtype=np.int64)
    assert np.array_equal(run(cuda_kernel(SOURCE, "twice<long long>"), x), 2 * x)


def test_outputs_of_another_type_and_none_in() -> None:
    with Pipeline(cuda_kernel(SOURCE, "count_up"), outputs=[((), np.int64)], chunk=8192) as pipe:
        assert np.array_equal(pipe(rows=1024), np.arange(1024))


def test_source_that_does_not_compile() -> None:
    with pytest.raises(GaplessError, match="cannot compile the kernel bad"):
        Pipeline(cuda_kernel("__global__ void bad() { nonsense }", "bad"))


def test_cuda_core_kernel() -> None:
    from cuda.core import Program, ProgramOptions

    device = Cuda()
    code = Program(SOURCE, "c++", ProgramOptions(std="c++17", arch=f"sm_{device.core.arch}"))
    kernel = code.compile("cubin", name_expressions=("axpb",)).get_kernel("axpb")
    assert np.array_equal(run(kernel, device=device), Y)


def test_cupy_function() -> None:
    need("cupy")
    assert np.array_equal(run(lambda a: 2 * a + 1, arrays="cupy"), Y)


def test_cupy_elementwise_and_raw() -> None:
    cupy = need("cupy")
    assert np.array_equal(run(cupy.ElementwiseKernel("float32 x", "float32 y", "y = 2 * x + 1", "k")), Y)
    raw = cupy.RawKernel('extern "C" ' + SOURCE.strip().split("\n}")[0] + "\n}", "axpb")
    assert np.array_equal(run(raw), Y)


def test_torch_function_and_module() -> None:
    torch = need("torch")

    def function(a: Any) -> Any:
        return torch.add(2 * a, 1)

    assert np.array_equal(run(function), Y)
    layer = torch.nn.Linear(8, 4).cuda()
    x = np.random.default_rng(5).random((10_000, 8), dtype=np.float32)
    with torch.no_grad():
        expected = layer(torch.from_numpy(x).cuda()).cpu().numpy()
        assert np.allclose(run(layer, x), expected, atol=1e-5)


@pytest.mark.parametrize("package", ["numba", "numba_cuda_mlir"])
def test_numba(package: str) -> None:
    need(package)
    try:
        cuda = importlib.import_module(f"{package}.cuda")

        @cuda.jit
        def axpb(x, y, n):
            i = cuda.grid(1)
            if i < n:
                y[i] = x[i] + x[i]

        axpb[1, 32](cuda.to_device(X[:32]), cuda.to_device(X[:32]), 32)
    except Exception as problem:
        pytest.skip(f"{package} itself fails here: {type(problem).__name__}: {problem}")
    assert np.array_equal(run(axpb), 2 * X)

    def function(x, stream):
        y = cuda.device_array_like(x, stream=stream)
        axpb[(len(x) + 255) // 256, 256, stream](x, y, len(x))
        return y

    assert np.array_equal(run(function), 2 * X)


def test_triton(tmp_path: Any) -> None:
    triton = need("triton")
    need("torch")
    path = tmp_path / "kernels.py"
    path.write_text(
        "import triton\nimport triton.language as tl\n"
        "@triton.jit\ndef axpb(x, y, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y + i, 2 * tl.load(x + i, mask=i < n) + 1, mask=i < n)\n"
    )
    spec = importlib.util.spec_from_file_location("gapless_triton_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert triton is not None
    assert np.array_equal(run(module.axpb), Y)


def test_current_streams_are_the_slots() -> None:
    cupy, torch = need("cupy"), need("torch")
    seen: list[tuple[int, int]] = []

    def kernel(a: Any) -> Any:
        seen.append((cupy.cuda.get_current_stream().ptr, torch.cuda.current_stream().cuda_stream))
        return 2 * a + 1

    before = cupy.cuda.get_current_stream().ptr, torch.cuda.current_stream().cuda_stream
    assert np.array_equal(run(kernel, arrays="cupy", slots=3), Y)
    assert all(one == other for one, other in seen)
    assert len({one for one, _ in seen}) == 3
    assert (cupy.cuda.get_current_stream().ptr, torch.cuda.current_stream().cuda_stream) == before


def test_reduction_and_no_output() -> None:
    need("cupy")
    x = np.arange(1_000_003, dtype=np.int64)
    with Pipeline(lambda a: a.sum(), arrays="cupy", chunk=1 << 18, reduce=np.add) as pipe:
        assert pipe(x) == x.sum()
    seen: list[int] = []
    with Pipeline(lambda a: seen.append(len(a)), arrays="cupy", chunk=1 << 18) as pipe:
        assert pipe(x) is None
    assert sum(seen) == len(x)


def test_pinned_and_registered_and_strided() -> None:
    device = Cuda()
    source, target = device.pinned(X.nbytes).view(np.float32), device.pinned(X.nbytes).view(np.float32)
    source[:] = X
    with Pipeline(cuda_kernel(SOURCE, "axpb"), device=device, chunk=1 << 20) as pipe:
        assert pipe(source, out=target) is target
        assert np.array_equal(target, Y)
        assert pipe.plan().threads == 0
        assert np.array_equal(pipe(X[::3]), Y[::3])
    with Pipeline(cuda_kernel(SOURCE, "axpb"), device=device, chunk=1 << 20, staging="register") as pipe:
        out = np.zeros_like(X)
        pipe(X, out=out)
        assert np.array_equal(out, Y)
        assert not device.is_pinned(X)


def test_random_delays_in_kernels_and_threads() -> None:
    kernel = cuda_kernel(SOURCE, "slow")
    rng = np.random.default_rng(11)
    with Pipeline(kernel, slots=4) as pipe:
        for _ in range(20):
            sizes = rng.integers(1, 60_000, 50)
            batches = [X[: int(size)] for size in sizes]
            for got, batch in zip(pipe.stream(iter(batches)), batches, strict=True):
                assert np.array_equal(got, Y[: len(batch)])


def test_out_of_memory_in_the_kernel_shrinks_the_ring_once() -> None:
    cupy = need("cupy")
    failed: list[int] = []

    def kernel(a: Any) -> Any:
        if not failed:
            failed.append(1)
            raise cupy.cuda.memory.OutOfMemoryError(1, 1, 1)
        return 2 * a + 1

    with Pipeline(kernel, arrays="cupy", chunk=1 << 20) as pipe, pytest.warns(RuntimeWarning, match="ran out"):
        assert np.array_equal(pipe(X), Y)


def test_an_illegal_address_comes_out(tmp_path: Any) -> None:
    """In a process of its own: the context is of no use after it."""
    import subprocess
    import sys

    script = tmp_path / "bad.py"
    script.write_text(
        "import numpy as np\nfrom gapless.runtime.kernels import cuda_kernel\n"
        "from gapless.runtime.pipeline import Pipeline\n"
        "k = cuda_kernel('__global__ void k(const float* x, float* y, size_t n) { *(int*)8 = 1; }', 'k')\n"
        "try:\n    Pipeline(k, chunk=1 << 18)(np.ones(1 << 20, np.float32))\n"
        "except Exception as e:\n    print('CAUGHT', e, getattr(e, '__notes__', ''))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert "CAUGHT" in done.stdout, done.stdout + done.stderr
    assert "chunk 0" in done.stdout
