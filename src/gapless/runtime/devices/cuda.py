"""A GPU, through cuda.core and cuda.bindings (extra ``cuda``).

Streams are non-blocking, so that nothing on the default stream holds them (R2.1). Copies are always asynchronous and of
pinned memory. Device memory is allocated and freed outside the loop only: ``cuMemFree`` and ``cuMemFreeHost`` wait for
all work of the device (section 4).
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from time import perf_counter_ns
from typing import Any, cast

import numpy as np

from gapless.model.errors import GaplessError
from gapless.model.extras import install_line
from gapless.model.kinds import OpKind

from . import Crew, DeviceArray, HostArray, KernelOptions, Launch, Source, pool
from .address import address
from .crew import Threads, copy

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
MEMORY_TYPE, PINNED = 2, 1  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_HOST
RECENT = 500_000_000  # ns in which two clocks do not drift apart by what counts


class CudaError(RuntimeError):
    """What the driver reports. The message begins with CUDA's name of the error."""


def is_available() -> bool:
    """Tell whether there is a GPU and what it takes to use it."""
    try:
        from cuda.bindings import driver  # pyright: ignore[reportMissingImports]
        from cuda.core import Device  # noqa: F401 # pyright: ignore[reportMissingImports]

        if int(driver.cuInit(0)[0]):
            return False
        problem, count = driver.cuDeviceGetCount()
        return not int(problem) and count > 0
    except (ImportError, RuntimeError, OSError):  # no package, no driver
        return False


def open_device(number: int = 0) -> Cuda:
    """Give a GPU by its number. Raises GaplessError where there is none, with what is missing."""
    try:
        import cuda.core  # noqa: F401 # pyright: ignore[reportMissingImports]
    except ImportError:
        raise GaplessError(f'A GPU needs cuda.core. Write: {install_line("cuda")}; or use device="host".') from None
    if not is_available():
        raise GaplessError('No GPU can be used here: the driver finds none. Use device="host".')
    from cuda.bindings import driver  # pyright: ignore[reportMissingImports]

    count = driver.cuDeviceGetCount()[1]
    if number >= count:
        raise GaplessError(f"There is no device cuda:{number}; this machine has {count}.")
    return Cuda(number)


def error_of(problem: Any) -> CudaError:
    """Give the error for a status that is none of success."""
    return CudaError(f"{getattr(problem, 'name', problem)} ({int(problem)})")


def check(result: Any) -> Any:
    """Give what a driver call returns beside its status. Raises CudaError."""
    problem, *values = result
    if int(problem):
        raise error_of(problem)
    return values[0] if len(values) == 1 else values or None


class CudaArray:
    """An array in device memory, for every library that reads ``__cuda_array_interface__``."""

    __slots__ = ("dtype", "memory", "nbytes", "pointer", "shape", "views")

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], memory: Any) -> None:
        self.pointer = pointer
        self.shape = shape
        self.dtype = dtype
        self.nbytes = prod(shape) * dtype.itemsize
        self.views: dict[str, Any] = {}  # what libraries made of it, by their name
        self.memory = memory  # it lives as long

    def bare(self) -> CudaArray:
        """Give the same without views, for a library to hold: a view that held this would never go."""
        return CudaArray(self.pointer, self.shape, self.dtype, self.memory)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer if self.nbytes else 0, False),
                "version": 3, "strides": None, "stream": None}  # fmt: skip


class Memory:
    """Device memory."""

    def __init__(self, device: Cuda, nbytes: int) -> None:
        self._device = device
        self._pointer = 0
        with device.current():
            self._pointer = int(check(device.driver.cuMemAlloc(nbytes)))
        self.nbytes = nbytes

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> CudaArray:
        """Give the bytes from *offset* on as an array, which keeps the memory."""
        return CudaArray(self._pointer + offset, shape, dtype, self)

    def __del__(self) -> None:
        if self._pointer:
            with self._device.current():
                self._device.driver.cuMemFree(self._pointer)


class _Pinned:
    """Pinned host memory; NumPy arrays of it refer to this, and with the last of them it goes."""

    def __init__(self, device: Cuda, nbytes: int) -> None:
        self._device = device
        self._pointer = 0
        with device.current():
            flags = device.driver.CU_MEMHOSTALLOC_PORTABLE
            self._pointer = int(check(device.driver.cuMemHostAlloc(nbytes, flags)))
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (self._pointer, False), "version": 3}

    def __del__(self) -> None:
        if self._pointer:
            with self._device.current():
                self._device.driver.cuMemFreeHost(self._pointer)


class Event:
    """An event."""

    __slots__ = ("_device", "event", "handle", "is_timed", "stream")

    def __init__(self, device: Cuda, *, spins: bool = True, timed: bool = True) -> None:
        from cuda.core import EventOptions  # pyright: ignore[reportMissingImports]

        self._device = device
        self.is_timed = timed
        with device.current():
            self.event: Any = device.core.create_event(EventOptions(timing_enabled=timed, blocking_sync=not spins))
        self.handle = int(self.event.handle)
        self.stream = 0  # the one that it was recorded in last, if any

    def wait(self) -> None:
        """Let the calling thread wait."""
        with self._device.current():
            self.event.sync()

    def done(self) -> bool:
        """Tell whether the work before the event is over."""
        try:
            return bool(self.event.is_done)
        except Exception:  # what the device reports is said by ``wait``
            return True

    def time_ns(self) -> int:
        """Give when it was over, on the host's clock."""
        if not self.stream:
            return 0
        base, base_ns = self._device.base
        return base_ns + int((self.event - base) * 1e6)

    def record(self, stream: int) -> None:
        """Record it in a stream, given by its handle."""
        self._device.expect(self._device.calls.cuEventRecord(self.handle, stream))
        self.stream = stream


class Stream:
    """A non-blocking stream."""

    def __init__(self, device: Cuda, priority: int) -> None:
        from cuda.core import StreamOptions  # pyright: ignore[reportMissingImports]

        self._device = device
        with device.current():
            lowest, highest = check(device.driver.cuCtxGetStreamPriorityRange())
            options = StreamOptions(nonblocking=True, priority=min(max(priority, highest), lowest))
            self.stream: Any = device.core.create_stream(options=options)
        self.handle = int(self.stream.handle)
        self.libraries: dict[str, Any] = {}  # the stream as libraries know it, by their name

    def submit(self, kind: OpKind, commands: Callable[[], None], event: Any, size: int = 0) -> None:
        """Give commands to the stream, now, then record the event."""
        with self._device.current():
            try:
                commands()
            finally:
                if event is not None:
                    cast(Event, event).record(self.handle)

    def h2d(self, target: DeviceArray, source: HostArray) -> None:
        """Copy to the device."""
        pointer = cast(CudaArray, target).pointer
        self._device.expect(
            self._device.calls.cuMemcpyHtoDAsync_v2(pointer, address(source), source.nbytes, self.handle)
        )

    def d2h(self, target: HostArray, source: DeviceArray) -> None:
        """Copy to the host."""
        pointer = cast(CudaArray, source).pointer
        self._device.expect(
            self._device.calls.cuMemcpyDtoHAsync_v2(address(target), pointer, target.nbytes, self.handle)
        )


def _address_of(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _calls_without_release() -> Any:
    """Give the calls that every chunk needs, made without letting go of the interpreter's lock.

    They only put something into a queue, or look something up, in 1 or 2 us. Let go of at each of them, the lock might
    go to another thread of Python, and each of its ways costs more than the call (a futex, and a CPU to wake).
    """
    calls = ctypes.PyDLL(_LIBRARY)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    calls.cuMemcpyHtoDAsync_v2.argtypes = (pointer, pointer, size, pointer)
    calls.cuMemcpyDtoHAsync_v2.argtypes = (pointer, pointer, size, pointer)
    calls.cuEventRecord.argtypes = (pointer, pointer)
    calls.cuPointerGetAttribute.argtypes = (pointer, ctypes.c_int, pointer)
    calls.cuLaunchKernel.argtypes = (pointer, *(ctypes.c_uint,) * 7, pointer, pointer, pointer)
    return calls


class Cuda:
    """One GPU. Its primary context is shared with CuPy, PyTorch and all who use the runtime API."""

    real = stages = timing_costs = True
    pools: bool
    now_ns = staticmethod(perf_counter_ns)  # the host's clock; events are tied to it

    def __init__(self, number: int = 0) -> None:
        from cuda.bindings import driver  # pyright: ignore[reportMissingImports]
        from cuda.core import Device  # pyright: ignore[reportMissingImports]

        self.driver: Any = driver
        self.core: Any = Device(number)
        self.number = number
        self._only = int(check(driver.cuDeviceGetCount())) == 1
        self._local = threading.local()
        self.core.set_current()
        self._context = check(driver.cuCtxGetCurrent())
        self._local.set = True
        self.calls = _calls_without_release()
        self._staging = pool.load()
        self.name = str(self.core.name) if str(self.core.name).startswith("NVIDIA") else f"NVIDIA {self.core.name}"
        self.pools = not isinstance(self._staging, str)
        crew = "" if self.pools else ", threads of Python"
        self.key = f"{self.name}, CUDA {check(driver.cuDriverGetVersion())}{crew}"
        self._clock = Stream(self, 0)
        self.base: tuple[Any, int] = (None, 0)
        self.align_clock()

    def expect(self, problem: int) -> None:
        """Raise CudaError unless a call went well."""
        if problem:
            raise self.error(problem)

    def error(self, problem: int) -> CudaError:
        """Give the error for what a call has given."""
        return error_of(self.driver.CUresult(problem))

    @contextmanager
    def _pushed(self) -> Iterator[None]:
        check(self.driver.cuCtxPushCurrent(self._context))
        try:
            yield
        finally:
            self.driver.cuCtxPopCurrent()

    def current(self) -> Any:
        """Make the GPU the calling thread's for a while; where it is the only one, for good."""
        if not self._only:
            return self._pushed()
        if not getattr(self._local, "set", False):
            check(self.driver.cuCtxSetCurrent(self._context))
            self._local.set = True
        return _NOTHING

    def stream(self, priority: int = 0) -> Stream:
        """Make a stream; *priority* is clamped to what the device has (R6.13)."""
        return Stream(self, priority)

    def event(self, *, spins: bool = True, timed: bool = True) -> Event:
        """Make an event."""
        return Event(self, spins=spins, timed=timed)

    def memory(self, nbytes: int) -> Memory:
        """Allocate device memory."""
        return Memory(self, nbytes)

    def pinned(self, nbytes: int) -> HostArray:
        """Allocate pinned host memory."""
        return np.asarray(_Pinned(self, nbytes))

    def is_pinned(self, array: HostArray) -> bool:
        """Tell whether both ends of an array lie in memory that CUDA knows as pinned."""
        if not array.nbytes:
            return True
        first = address(array)
        return self._knows(first) and self._knows(first + array.nbytes - 1)

    def _knows(self, pointer: int) -> bool:
        kind = ctypes.c_uint()
        with self.current():
            problem = self.calls.cuPointerGetAttribute(ctypes.addressof(kind), MEMORY_TYPE, pointer)
        return not problem and kind.value == PINNED

    def register(self, array: HostArray) -> Callable[[], None] | None:
        """Pin memory in place; None for memory that the driver cannot pin, such as some mapped files."""
        if not (array.flags.c_contiguous and array.nbytes):
            return None
        pointer = address(array)
        with self.current():
            (problem,) = self.driver.cuMemHostRegister(pointer, array.nbytes, self.driver.CU_MEMHOSTREGISTER_PORTABLE)
        if int(problem):
            return None

        def undo() -> None:
            with self.current():
                check(self.driver.cuMemHostUnregister(pointer))

        return undo

    def copy(self, target: HostArray, source: Source) -> None:
        """Copy in the calling thread."""
        copy(target, source)

    def crew(self, lanes: int, threads: int) -> Crew:
        """Make a crew: in C where it can be had."""
        if isinstance(self._staging, str):
            return Threads(lanes, prepare=self.current)
        wait, enter = (_address_of(getattr(self.calls, name)) for name in ("cuEventSynchronize", "cuCtxSetCurrent"))
        context = int(self._context)
        return pool.Pool(self._staging, threads, wait=wait, enter=enter, context=context, failed=self.error)

    def kernel(self, kernel: Any, options: KernelOptions) -> Launch:
        """Make any kernel a launch."""
        from .frameworks import launch_of

        return launch_of(self, kernel, options)

    def align_clock(self) -> None:
        """Record an event in a stream of its own, wait for it, and take its time and the host's for the same.

        Clocks that were tied a moment ago are left as they are.
        """
        if perf_counter_ns() - self.base[1] < RECENT and self.base[0] is not None:
            return
        event = Event(self)
        with self.current():
            event.record(self._clock.handle)
            event.event.sync()
        self.base = (event.event, perf_counter_ns())

    def free_bytes(self) -> int:
        """Give the device memory that is free."""
        with self.current():
            return int(check(self.driver.cuMemGetInfo())[0])


class _Nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NOTHING = _Nothing()
