"""Devices that a pipeline runs on, and the small protocol that each of them keeps.

``cuda.py`` is a GPU, ``host.py`` threads and NumPy, ``simulated.py`` a GPU that is only computed. A new device is one
file here and one line in ``DEVICES``; ``gapless.testing.conformance`` checks that it keeps the protocol.

A **stream** takes work in order. ``submit`` gives it one piece of work: a function that gives the commands (``h2d``,
``d2h``, a kernel). A GPU's stream calls it at once, since commands are only put into a queue; the host's stream calls
it in a thread of its own, when all earlier work of the stream is over. Either way the work of one stream runs in order,
the work of different streams at the same time, and the event is done when the work is.

A **crew** is the host threads that copy between pageable and pinned memory, for a lane a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model.errors import GaplessError
from gapless.model.kinds import OpKind

HostArray: TypeAlias = NDArray[Any]
Source: TypeAlias = "HostArray | Sequence[HostArray]"  # one array, or many whose rows are to be put one after another


class DeviceArray(Protocol):
    """An array in a device's memory, as kernels get and give it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; the first dimension is rows."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its elements."""
        ...


class Memory(Protocol):
    """A stretch of device memory. It is given back when nothing refers to it any more."""

    nbytes: int

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        """Give the bytes from *offset* on as an array."""
        ...


class Event(Protocol):
    """A point in a stream's work (section 5). An event never recorded is done (R5.3)."""

    def wait(self) -> None:
        """Let the calling thread wait until the work before the event is over. Raises what the device reports."""
        ...

    def done(self) -> bool:
        """Tell whether the work before the event is over, without waiting."""
        ...

    def time_ns(self) -> int:
        """Give when it was over, on the clock of ``Device.now_ns``. Only of an event that is done."""
        ...


class Stream(Protocol):
    """Work in order. See the module's text."""

    def submit(self, kind: OpKind, commands: Callable[[], None], event: Event | None, size: int = 0) -> None:
        """Add work of one kind (H2D, KERNEL or D2H) that *commands* gives, then record *event*, if any.

        *size* is the bytes it moves, where the caller knows. Whatever *commands* raises is the caller's to catch.
        """
        ...

    def h2d(self, target: DeviceArray, source: HostArray) -> None:
        """Copy to the device; *source* is contiguous and pinned, and must not change until the event is done."""
        ...

    def d2h(self, target: HostArray, source: DeviceArray) -> None:
        """Copy to the host; *target* is contiguous and pinned, and must not be read until the event is done."""
        ...


@dataclass(slots=True, eq=False)
class Copies:
    """What a crew is asked to do: wait for an event, then copy each source into its target.

    On a device whose streams call their commands late, the list of pairs may be filled until the event is done.
    """

    pairs: list[tuple[HostArray, Source]]
    after: Event | None = None


@dataclass(slots=True, eq=False)
class Copied:
    """What a crew has done: when copying began and ended, ns on ``Device.now_ns``, or what failed.

    *worked* is the ns that its threads were copying, together.
    """

    token: Any
    span: tuple[int, int] | None
    worked: int = 0
    error: BaseException | None = None


class Crew(Protocol):
    """Host threads that copy. What is asked for a lane is done in order, unless the device ``pools``."""

    def submit(self, lane: int, token: Any, copies: Copies) -> None:
        """Ask for copies; ``next`` will give the token back."""
        ...

    def next(self) -> Copied:
        """Wait until something has been done, and say what. Ctrl-C gets through."""
        ...

    def close(self) -> list[Copied]:
        """Let the threads finish what they are at, drop the rest, wait until they are gone; give what is news."""
        ...


@dataclass(slots=True, eq=False)
class Job:
    """One chunk as a kernel sees it. *allocate* gives memory of the slot: (number of the output, shape, dtype)."""

    inputs: tuple[DeviceArray, ...]
    first: int  # first row of the chunk
    rows: int
    allocate: Callable[[int, tuple[int, ...], np.dtype[Any]], DeviceArray]


# (stream, job) -> the outputs, arrays of the device.
Launch: TypeAlias = "Callable[[Any, Job], tuple[Any, ...]]"


class Device(Protocol):
    """Where a pipeline's chunks go."""

    name: str  # what it is called in messages and reports
    key: str  # under which its costs are kept: with another driver it costs something else
    stages: bool  # whether pageable memory must be staged
    pools: bool  # whether the threads of its crew share the copies of each chunk; else a lane has a thread of its own
    timing_costs: bool  # whether timed events hold its engines up, so that only some chunks are to have them
    real: bool  # whether its time is the world's; else its clock is one thread's, and its costs are computed

    def stream(self, priority: int = 0) -> Stream:
        """Make a stream. Lower *priority* goes first; out of range is clamped (R6.13)."""
        ...

    def event(self, *, spins: bool = True, timed: bool = True) -> Event:
        """Make an event. *spins*: who waits for it keeps a CPU busy and goes on at once; else it sleeps.

        Only one that is *timed* can be asked for its time.
        """
        ...

    def memory(self, nbytes: int) -> Memory:
        """Allocate device memory. Raises an error that ``out_of_memory`` knows."""
        ...

    def pinned(self, nbytes: int) -> HostArray:
        """Allocate pinned host memory: bytes. It is given back when nothing refers to it any more."""
        ...

    def is_pinned(self, array: HostArray) -> bool:
        """Tell whether the device copies from and to this memory directly."""
        ...

    def register(self, array: HostArray) -> Callable[[], None] | None:
        """Pin memory where it is, and give what undoes it; None where that cannot be done."""
        ...

    def copy(self, target: HostArray, source: Source) -> None:
        """Copy between host arrays, in the calling thread."""
        ...

    def crew(self, lanes: int, threads: int) -> Crew:
        """Make a crew for one run: of so many threads where the device ``pools``, else of one a lane."""
        ...

    def kernel(self, kernel: Any, options: KernelOptions) -> Launch:
        """Make a kernel callable on this device. Raises GaplessError for what this device cannot run."""
        ...

    def now_ns(self) -> int:
        """Give the time on the clock that events and crews use."""
        ...

    def align_clock(self) -> None:
        """Tie the device's clock to the host's anew. Called once in a run, and then every few seconds."""
        ...

    def free_bytes(self) -> int:
        """Give how much device memory is free; 0 where there is no telling."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions:
    """How a kernel is to be called, where it does not say so itself."""

    arrays: str | None = None  # "cupy", "torch", "numba", "cuda": what a plain function works on; None: found out
    outputs: tuple[tuple[tuple[int, ...] | None, np.dtype[Any] | None], ...] | None = None
    launch: Callable[..., None] | None = None
    block: int = 256


def out_of_memory(problem: BaseException) -> bool:
    """Tell whether an error says that memory ran out, whichever library raised it."""
    named = {cls.__name__ for cls in type(problem).__mro__}
    return isinstance(problem, MemoryError) or "OutOfMemoryError" in named or "OUT_OF_MEMORY" in str(problem)


DEVICES = {"cuda": "gapless.runtime.devices.cuda", "host": "gapless.runtime.devices.host"}


def open_device(device: str | Device | None = None) -> Device:
    """Give a device: ``"cuda"``, ``"cuda:1"``, ``"host"``, a device itself, or by default a GPU where there is one.

    Raises GaplessError for a name that is none, and for a GPU that is not there.
    """
    if device is None:
        from .cuda import is_available

        device = "cuda" if is_available() else "host"
    if not isinstance(device, str):
        if not hasattr(device, "stream"):
            raise GaplessError(f"There is no device {device!r}. Write cuda, cuda:1 (the second GPU) or host.")
        return device
    name, colon, number = device.partition(":")
    if name not in DEVICES or (colon and not number.isdecimal()):
        raise GaplessError(f"There is no device {device!r}. Write cuda, cuda:1 (the second GPU) or host.")
    return import_module(DEVICES[name]).open_device(int(number or 0))
