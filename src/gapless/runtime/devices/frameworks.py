"""Kernels of CuPy, PyTorch, Numba, Triton, cuda.core and CUDA C++, each as a launch on a slot's stream.

Arrays go over by ``__cuda_array_interface__`` without a copy; what a library makes of a slot's array is kept with it.
While a function runs, the slot's stream is the current stream of every library that is loaded and has one.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from gapless.model.errors import GaplessError
from gapless.runtime.kernels import CudaSource, elements_of, name_of, outputs_of

from . import Job, KernelOptions, Launch
from .cuda import Cuda, CudaArray, Stream
from .host import as_tuple

LIBRARIES = ("cupy", "torch", "numba", "numba_cuda_mlir")
NUMBAS = LIBRARIES[2:]  # Numba's two compilers for CUDA; arrays and streams of one are not the other's
TRITON_BLOCK = 1024


def launch_of(device: Cuda, kernel: Any, options: KernelOptions) -> Launch:
    """Make any kernel a launch. Raises GaplessError for what is none."""
    if options.launch is not None:
        return _by_hand(device, options)
    module, kind = type(kernel).__module__, type(kernel).__name__
    if isinstance(kernel, CudaSource):
        return _core(device, compiled(device, kernel), options)
    if module.startswith("cuda.core") and kind == "Kernel":
        return _core(device, kernel, options)
    if kind in ("CUDADispatcher", "MLIRDispatcher"):
        return _numba(device, kernel, options)
    if module.startswith("triton") and kind in ("JITFunction", "Autotuner", "Heuristics"):
        return _triton(device, kernel, options)
    if module.startswith("cupy") and kind == "RawKernel":
        return _cupy_raw(device, kernel, options)
    if callable(kernel):
        return _function(device, kernel, options)
    raise GaplessError(f"A {kind} is no kernel: give a function of device arrays, or a kernel of one of the libraries.")


# ----------------------------------------------------------------------------------------------------- functions


def _function(device: Cuda, kernel: Callable[..., Any], options: KernelOptions) -> Launch:
    library = options.arrays or library_of(kernel)
    if library == "numba" and "numba.cuda" not in sys.modules and "numba_cuda_mlir" in sys.modules:
        library = "numba_cuda_mlir"
    wants_stream = _takes_stream(kernel)
    if library in NUMBAS and not wants_stream:
        raise GaplessError(
            "Numba has no current stream: let the function take stream= and launch kernel[grid, block, stream]."
        )
    convert = _CONVERT[library]

    def launch(stream: Stream, job: Job) -> tuple[Any, ...]:
        more = {"stream": _stream_for(library, device, stream)} if wants_stream else {}
        with current_streams(device, stream):
            inputs = [convert(array, device, stream) for array in job.inputs]
            given = kernel(*inputs, **more) if inputs else kernel(job.first, job.rows, **more)
            return tuple(as_device(one, kernel) for one in as_tuple(given))

    return launch


def library_of(kernel: Any) -> str:
    """Find out whose arrays a function works on: from what it names, else from what is loaded or installed.

    Raises GaplessError where it names both CuPy and PyTorch, or neither is there.
    """
    named = _named_by(kernel)
    if len(named) == 1:
        return named.pop()
    if named:
        raise GaplessError(
            f'{name_of(kernel)} uses {" and ".join(sorted(named))}: say whose arrays it takes, arrays="cupy".'
        )
    for among in ([name for name in LIBRARIES[:2] if name in sys.modules], [n for n in LIBRARIES[:2] if find_spec(n)]):
        if among:
            return among[0]
    raise GaplessError("A plain function needs CuPy or PyTorch on a GPU. Install one, or give CUDA C++ (cuda_kernel).")


def _named_by(kernel: Any) -> set[str]:
    """Give the libraries that a function or its class names."""
    found = {type(kernel).__module__.partition(".")[0]}
    while isinstance(kernel, partial):
        kernel = kernel.func
    if inspect.isclass(type(kernel)) and not hasattr(kernel, "__code__"):  # an object: a torch.nn.Module, say
        found |= {base.__module__.partition(".")[0] for base in type(kernel).__mro__}
        kernel = getattr(kernel, "__func__", None) or vars(type(kernel)).get("__call__")
    code = getattr(kernel, "__code__", None)
    if isinstance(code, CodeType):
        names = _names(code)
        scope = {**getattr(kernel, "__globals__", {})}
        for name, cell in zip(code.co_freevars, getattr(kernel, "__closure__", None) or (), strict=False):
            try:
                scope[name] = cell.cell_contents
                names.add(name)
            except ValueError:  # not bound yet
                continue
        for value in (scope[name] for name in names if name in scope):
            module = value.__name__ if isinstance(value, ModuleType) else getattr(type(value), "__module__", "")
            if not isinstance(value, ModuleType) and isinstance(getattr(value, "__module__", None), str):
                module = value.__module__
            found.add(str(module).partition(".")[0])
    return found & set(LIBRARIES)


def _names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _takes_stream(kernel: Any) -> bool:
    try:
        return "stream" in inspect.signature(kernel).parameters
    except (TypeError, ValueError):
        return False


@contextmanager
def current_streams(device: Cuda, stream: Stream) -> Iterator[None]:
    """Make a stream the current one of every loaded library that has one."""
    with ExitStack() as stack:
        if "cupy" in sys.modules:
            stack.enter_context(_stream_for("cupy", device, stream))
        if "torch" in sys.modules:
            import torch  # pyright: ignore[reportMissingImports]

            stack.enter_context(torch.cuda.stream(_stream_for("torch", device, stream)))
        yield


def _stream_for(library: str, device: Cuda, stream: Stream) -> Any:
    """Give a stream as a library knows it."""
    known = stream.libraries.get(library)
    if known is None:
        known = stream.libraries[library] = _STREAMS[library](device, stream)
    return known


def _cupy_stream(device: Cuda, stream: Stream) -> Any:
    import cupy  # pyright: ignore[reportMissingImports]

    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(stream.stream)
    return cupy.cuda.ExternalStream(stream.handle, device.number)


def _torch_stream(device: Cuda, stream: Stream) -> Any:
    import torch  # pyright: ignore[reportMissingImports]

    return torch.cuda.ExternalStream(stream.handle, device=torch.device("cuda", device.number))


def _numba_stream(device: Cuda, stream: Stream, package: str = "numba") -> Any:
    return import_module(f"{package}.cuda").external_stream(stream.handle)


def _core_stream(device: Cuda, stream: Stream) -> Any:
    return stream.stream


_STREAMS = {
    "cupy": _cupy_stream, "torch": _torch_stream, "cuda": _core_stream,
    **{package: partial(_numba_stream, package=package) for package in NUMBAS},
}  # fmt: skip


def _as_cupy(array: Any, device: Cuda, stream: Stream) -> Any:
    view = array.views.get("cupy")
    if view is None:
        import cupy  # pyright: ignore[reportMissingImports]

        view = array.views["cupy"] = cupy.ndarray(
            array.shape, array.dtype, cupy.cuda.MemoryPointer(
                cupy.cuda.UnownedMemory(array.pointer, max(array.nbytes, 1), array.memory, device.number), 0
            ),
        )  # fmt: skip
    return view


def _as_torch(array: Any, device: Cuda, stream: Stream) -> Any:
    view = array.views.get("torch")
    if view is None:
        import torch  # pyright: ignore[reportMissingImports]

        place = torch.device("cuda", device.number)
        if array.nbytes:
            view = torch.as_tensor(array.bare(), device=place)
        else:
            like = torch.from_numpy(np.empty(0, array.dtype)).dtype
            view = torch.empty(array.shape, dtype=like, device=place)
        array.views["torch"] = view
    return view


def _as_numba(array: Any, device: Cuda, stream: Stream, package: str = "numba") -> Any:
    view = array.views.get(package)
    if view is None:
        view = array.views[package] = import_module(f"{package}.cuda").as_cuda_array(array.bare(), sync=False)
    return view


def _as_is(array: Any, device: Cuda, stream: Stream) -> Any:
    return array


_CONVERT: dict[str, Callable[[Any, Cuda, Stream], Any]] = {
    "cupy": _as_cupy, "torch": _as_torch, "cuda": _as_is,
    **{package: partial(_as_numba, package=package) for package in NUMBAS},
}  # fmt: skip


class _Result:
    """An array that a kernel gave, as the pipeline copies it; it keeps the library's own alive."""

    __slots__ = ("dtype", "given", "pointer", "shape")

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], given: Any) -> None:
        self.pointer = pointer
        self.shape = shape
        self.dtype = dtype
        self.given = given


def as_device(given: Any, kernel: Any) -> Any:
    """Take an array that a kernel gave. Raises GaplessError for what is not in the device's memory."""
    if isinstance(given, CudaArray):
        return given
    if type(given).__module__.partition(".")[0] == "torch":
        given = given.detach().contiguous()
        if given.device.type == "cuda" and "bfloat16" in str(given.dtype):
            raise GaplessError("NumPy has no bfloat16: let the kernel give result.float() or result.view(torch.int16).")
    interface = getattr(given, "__cuda_array_interface__", None)
    if interface is None:
        raise GaplessError(
            f"{name_of(kernel)} gave a {type(given).__module__}.{type(given).__name__}; results must be arrays in the "
            "GPU's memory (without .get(), .cpu() or .item(), which wait for the GPU)."
        )
    if interface.get("strides") is not None and type(given).__module__.startswith("cupy"):
        import cupy  # pyright: ignore[reportMissingImports]

        given = cupy.ascontiguousarray(given)
        interface = given.__cuda_array_interface__
    shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
    strides = interface.get("strides")
    if strides is not None and tuple(strides) != _c_strides(shape, dtype) and 0 not in shape:
        raise GaplessError(f"{name_of(kernel)} gave an array that is not contiguous. Give a contiguous copy.")
    return _Result(int(interface["data"][0]), shape, dtype, given)


def _c_strides(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    strides, step = [], dtype.itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


# --------------------------------------------------------------------------------------------------- raw kernels


def _raw(options: KernelOptions, start: Callable[[Stream, tuple[Any, ...], int], None]) -> Launch:
    """Make a launch of a raw kernel: outputs in the slot, one thread an element; nothing for no elements."""

    def launch(stream: Stream, job: Job) -> tuple[Any, ...]:
        outputs = outputs_of(job, options.outputs)
        count = elements_of(job, outputs)
        if count:
            start(stream, (*job.inputs, *outputs), count)
        return outputs

    return launch


def _blocks(count: int, block: int) -> int:
    return -(-count // block)


def compiled(device: Cuda, source: CudaSource) -> Any:
    """Compile CUDA C++ for this GPU. Raises GaplessError with what the compiler says."""
    from cuda.core import Program, ProgramOptions  # pyright: ignore[reportMissingImports]

    options = ProgramOptions(std="c++17", arch=f"sm_{device.core.arch}")
    with device.current():
        try:
            code = Program(source.source, "c++", options).compile("cubin", name_expressions=(source.name,))
            return code.get_kernel(source.name)
        except Exception as problem:
            raise GaplessError(f"NVRTC cannot compile the kernel {source.name}:\n{problem}") from problem


def _core(device: Cuda, kernel: Any, options: KernelOptions) -> Launch:
    """Launch a kernel of cuda.core; not by its ``launch``, which lets go of the interpreter's lock (see cuda.py)."""
    handle, calls = int(kernel.handle), device.calls

    @lru_cache(maxsize=1024)
    def parameters(pointers: tuple[int, ...], count: int) -> Any:
        """Give what the driver takes: an array of the addresses of all arguments."""
        values = (ctypes.c_uint64 * (len(pointers) + 1))(*pointers, count)
        start, step = ctypes.addressof(values), ctypes.sizeof(ctypes.c_uint64)
        places = (ctypes.c_void_p * len(values))(*(start + step * number for number in range(len(values))))
        return places, values  # the values live as long as the places that point to them

    def start(stream: Stream, arrays: tuple[Any, ...], count: int) -> None:
        places, _ = parameters(tuple([array.pointer for array in arrays]), count)
        blocks = _blocks(count, options.block)
        device.expect(calls.cuLaunchKernel(handle, blocks, 1, 1, options.block, 1, 1, 0, stream.handle, places, None))

    launch = _raw(options, start)
    launch.kernel = kernel  # pyright: ignore[reportFunctionMemberAccess]  # it lives as long
    return launch


def _numba(device: Cuda, kernel: Any, options: KernelOptions) -> Launch:
    package = type(kernel).__module__.partition(".")[0]
    package = package if package in NUMBAS else "numba"  # numba-cuda's own modules are found under either name

    def start(stream: Stream, arrays: tuple[Any, ...], count: int) -> None:
        views = [_CONVERT[package](array, device, stream) for array in arrays]
        there = _stream_for(package, device, stream)
        kernel[_blocks(count, options.block), options.block, there](*views, count)

    return _raw(options, start)


def _triton(device: Cuda, kernel: Any, options: KernelOptions) -> Launch:
    inner = kernel
    while hasattr(inner, "fn") and type(inner).__name__ != "JITFunction":
        inner = inner.fn
    empty = inspect.Parameter.empty
    constants = [p.name for p in inner.params if p.is_constexpr and getattr(p, "default", empty) is empty]
    if len(constants) != 1:
        raise GaplessError(
            f"A Triton kernel needs one constexpr, the elements of a block; {name_of(inner)} has {len(constants)}. "
            "Say how to launch it with launch=."
        )
    block = constants[0]
    given = {block: TRITON_BLOCK} if inner is kernel else {}  # an autotuner brings its own

    def start(stream: Stream, arrays: tuple[Any, ...], count: int) -> None:
        views = [_as_torch(array, device, stream) for array in arrays]
        with current_streams(device, stream):
            kernel[lambda meta: (_blocks(count, meta[block]),)](*views, count, **given)

    import torch  # noqa: F401 # pyright: ignore[reportMissingImports]  # whose current stream Triton takes

    return _raw(options, start)


def _cupy_raw(device: Cuda, kernel: Any, options: KernelOptions) -> Launch:
    def start(stream: Stream, arrays: tuple[Any, ...], count: int) -> None:
        views = [_as_cupy(array, device, stream) for array in arrays]
        with current_streams(device, stream):
            kernel((_blocks(count, options.block),), (options.block,), (*views, np.uint64(count)))

    return _raw(options, start)


def _by_hand(device: Cuda, options: KernelOptions) -> Launch:
    """Let the user's function launch: ``launch(stream, inputs, outputs, rows)``, the stream one of cuda.core."""
    by_hand = options.launch
    assert by_hand is not None
    convert = _CONVERT[options.arrays or "cuda"]

    def launch(stream: Stream, job: Job) -> tuple[Any, ...]:
        outputs = outputs_of(job, options.outputs)
        inputs = tuple(convert(array, device, stream) for array in job.inputs)
        with current_streams(device, stream):
            by_hand(stream.stream, inputs, tuple(convert(array, device, stream) for array in outputs), job.rows)
        return outputs

    return launch
