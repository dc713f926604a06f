"""The host as a device: a stream is a thread, a copy is a copy, a kernel is a function of NumPy arrays.

The same order, the same back-pressure, the same errors as on a GPU. It is of use by itself where the function lets go
of the interpreter's lock, as NumPy's do: the chunks of different slots are then computed at the same time.
"""

from __future__ import annotations

import _thread
import os
import platform
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from time import perf_counter_ns
from typing import Any, cast

import numpy as np

from gapless.model.errors import GaplessError
from gapless.model.kinds import OpKind
from gapless.runtime.cpus import usable
from gapless.runtime.kernels import name_of
from gapless.timeline.timeline import HOST

from . import DeviceArray, HostArray, Job, KernelOptions, Launch, Source
from .crew import Threads, copy

PATIENCE = 0.1  # seconds after which who waits looks by himself


def open_device(number: int = 0) -> Host:
    """Give the host; there is one."""
    if number:
        raise GaplessError(f"There is one host, no host:{number}. Write host.")
    return Host()


class Event:
    """Done when its work is over; never recorded, it is done.

    Made of a bare lock, which is held while there is work: an exception that comes at any moment, such as Ctrl-C,
    leaves nothing half done in it, as it may in threading.Event.
    """

    __slots__ = ("_pending", "_time")

    def __init__(self) -> None:
        self._pending: Any = None
        self._time = 0

    def wait(self) -> None:
        """Wait until the work before the event is over."""
        while (pending := self._pending) is not None:
            if pending.acquire(timeout=PATIENCE):  # else another who waits may have been stopped while it held it
                pending.release()

    def done(self) -> bool:
        """Tell whether the work before the event is over."""
        return self._pending is None

    def time_ns(self) -> int:
        """Give when it was over."""
        return self._time

    def expect(self) -> None:
        """Take the event back: it now stands for work that is not over."""
        pending = threading.Lock()
        pending.acquire()
        self._pending = pending

    def happen(self) -> None:
        """Say that the work is over."""
        self._time = perf_counter_ns()
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.release()


class Memory:
    """Bytes."""

    __slots__ = ("_bytes", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._bytes = np.empty(nbytes, np.uint8)

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """Give the bytes from *offset* on as an array."""
        return as_array(self._bytes, offset, shape, dtype)


def is_masked(value: Any) -> bool:
    """Tell whether it is a masked array. ``numpy.ma`` is not loaded for it, which takes longer than many a kernel."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)


def as_array(block: HostArray, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
    """Give bytes of a block as an array of a shape and type."""
    size = prod(shape) * dtype.itemsize
    return block[offset : offset + size].view(dtype).reshape(shape)


@dataclass(slots=True, eq=False)
class _Work:
    """One piece of a stream's work."""

    commands: Callable[[], None]
    event: Event | None
    begun: bool = False

    def end(self) -> None:
        """Say that it is over."""
        if self.event is not None:
            self.event.happen()


class Stream:
    """Work in order, by a thread that lives while there is work: an idle stream has none.

    The thread is started by one call of C, which an exception cannot come into.
    """

    def __init__(self) -> None:
        self._work: deque[_Work] = deque()
        self._lock = threading.Lock()
        self._working = False

    def submit(self, kind: OpKind, commands: Callable[[], None], event: Any, size: int = 0) -> None:
        """Add work, then record the event."""
        work, start = _Work(commands, event), False
        try:
            if event is not None:
                event.expect()
            with self._lock:
                self._work.append(work)
                start, self._working = not self._working, True
            if start:
                _thread.start_new_thread(self._run, ())
        except BaseException:  # no thread could be started, or Ctrl-C: nobody is to wait for what will not be done
            with self._lock:
                if not work.begun:
                    self._work = deque(other for other in self._work if other is not work)
                    self._working = self._working and not start
                    work.end()
            raise

    def h2d(self, target: DeviceArray, source: HostArray) -> None:
        """Copy to the device."""
        np.copyto(cast(HostArray, target), source)

    def d2h(self, target: HostArray, source: DeviceArray) -> None:
        """Copy to the host."""
        np.copyto(target, cast(HostArray, source))

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._work:
                    self._working = False
                    return
                work = self._work.popleft()
                work.begun = True
            try:
                work.commands()
            finally:
                work.end()


class Host:
    """Threads and NumPy."""

    real = True
    stages = pools = False
    timing_costs = False

    def __init__(self) -> None:
        self.name = self.key = f"{HOST}{platform.machine()}, {usable()} CPUs)"

    def stream(self, priority: int = 0) -> Stream:
        """Make a stream; threads have no priority."""
        return Stream()

    def event(self, *, spins: bool = True, timed: bool = True) -> Event:
        """Make an event; who waits for it sleeps."""
        return Event()

    def memory(self, nbytes: int) -> Memory:
        """Allocate memory."""
        return Memory(nbytes)

    def pinned(self, nbytes: int) -> HostArray:
        """Allocate memory."""
        return np.empty(nbytes, np.uint8)

    def is_pinned(self, array: HostArray) -> bool:
        """Tell that all memory will do."""
        return True

    def register(self, array: HostArray) -> Callable[[], None] | None:
        """Pin nothing: all memory will do."""
        return None

    def copy(self, target: HostArray, source: Source) -> None:
        """Copy in the calling thread."""
        copy(target, source)

    def crew(self, lanes: int, threads: int) -> Threads:
        """Make a crew."""
        return Threads(lanes)

    def kernel(self, kernel: Any, options: KernelOptions) -> Launch:
        """Call a function of NumPy arrays. Raises GaplessError for what only a GPU can run."""
        return numpy_launch(kernel, "the host")

    def now_ns(self) -> int:
        """Give the host's clock."""
        return perf_counter_ns()

    def align_clock(self) -> None:
        """Have one clock."""

    def free_bytes(self) -> int:
        """Give the memory that is free."""
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):
            return 0


# What looks like a kernel and needs a GPU: classes by name, since their packages need not be there.
_FOR_GPUS = frozenset({"CudaSource", "Kernel", "JITFunction", "Autotuner", "CUDADispatcher", "MLIRDispatcher",
                       "RawKernel", "ElementwiseKernel", "ReductionKernel"})  # fmt: skip


def numpy_launch(kernel: Any, where: str) -> Launch:
    """Make a function of NumPy arrays a launch. Raises GaplessError for what is none."""
    name = type(kernel).__name__
    if not callable(kernel) and name not in _FOR_GPUS:
        raise GaplessError(
            f"A kernel on {where} is a function of NumPy arrays that gives arrays, such as lambda x: 2 * x + 1. This "
            f"is {'None' if kernel is None else f'of type {name}'}."
        )
    if name in _FOR_GPUS:
        raise GaplessError(
            f"A {name} runs on a GPU, not on {where}. Give a function of NumPy arrays, or a device that is a GPU."
        )

    def launch(stream: Any, job: Job) -> tuple[Any, ...]:
        given = kernel(*job.inputs) if job.inputs else kernel(job.first, job.rows)
        return tuple(_array(one, kernel) for one in as_tuple(given))

    return launch


def _array(given: Any, kernel: Any) -> HostArray:
    """Take what a kernel gave as an array. Raises GaplessError for text and for whatever else is no array or number."""
    if is_masked(given):
        raise GaplessError(f"{name_of(kernel)} gave a masked array. Give its .filled(...), or its .data.")
    array = None if isinstance(given, str | bytes) else np.asarray(given)
    if array is None or array.dtype.hasobject:
        what = (
            "an array of Python objects"
            if isinstance(given, np.ndarray)
            else f"a result of type {type(given).__name__}"
        )
        raise GaplessError(f"{name_of(kernel)} gave {what}; results must be arrays or numbers.")
    return array


def as_tuple(given: Any) -> tuple[Any, ...]:
    """Give what a kernel returned as a tuple: nothing, one array or several."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, tuple | list) else (given,)
