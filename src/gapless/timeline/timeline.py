"""The Timeline: what one run of a CUDA program did, as columns.

Measured runs (torch.profiler, Nsight Systems, gapless's own recorder) and simulated ones have the same type. Times are
whole nanoseconds on one clock per timeline; index columns that can be unknown hold -1; text is kept once in ``strings``
and referred to by number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, Protocol, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind

Int8: TypeAlias = NDArray[np.int8]
Int16: TypeAlias = NDArray[np.int16]
Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
Float32: TypeAlias = NDArray[np.float32]
Column: TypeAlias = NDArray[Any]


class MarkKind(IntEnum):
    """What a mark says about events and synchronisation (section 5 of the specification)."""

    RECORD = 0  # an event recorded in a stream
    WAIT = 1  # a stream waiting for an event
    SYNC_EVENT = 2  # the host waiting for an event
    SYNC_STREAM = 3
    SYNC_DEVICE = 4


class TouchKind(IntEnum):
    """How a call, or the work that it issues, touches memory."""

    READ = 0
    WRITE = 1
    ARGUMENT = 2  # a pointer among a kernel's arguments: how much of what it points to is touched, and how, is unknown
    ALLOCATE = 3
    FREE = 4


class RangeKind(IntEnum):
    """Who named a range of host time."""

    CPU_OP = 0  # an operator of the framework, such as aten::mm
    PYTHON = 1  # a Python frame, named "file.py(12): function"
    ANNOTATION = 2  # record_function and the like
    NVTX = 3
    STEP = 4  # an iteration marked by the program, such as ProfilerStep#3
    OVERHEAD = 5  # the profiler at work
    LOADING = 6  # the driver loading code for a first launch; profilers note it among their own work
    STAGING = 7  # the program's own threads copying between pageable and pinned memory, and the wait for them


# The columns of each table and what fills one that a source does not give.
_FILL: Mapping[str, int | float] = {"occupancy": float("nan"), "bytes": -1, "correlation": 0}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Columns of one length."""

    def __len__(self) -> int:
        return len(self.column(fields(self)[0].name))

    def column(self, name: str) -> Column:
        """Give one column by its name."""
        return cast(Column, getattr(self, name))

    def take(self, rows: NDArray[Any] | slice) -> Self:
        """Give the same table with these rows (an index array, a boolean mask or a slice)."""
        return replace(self, **{f.name: self.column(f.name)[rows] for f in fields(self)})

    @classmethod
    def build(cls, **columns: Iterable[Any]) -> Self:
        """Build the table from sequences or arrays; a column left out is unknown in every row.

        Raises ``TypeError`` for a name that is no column and ``ValueError`` for columns of different lengths.
        """
        names = {f.name for f in fields(cls)}
        if strangers := set(columns) - names:
            raise TypeError(f"{cls.__name__} has no column {', '.join(sorted(strangers))}")
        given = {name: np.asarray(values, dtype=_DTYPES[name]) for name, values in columns.items()}
        lengths = {len(column) for column in given.values()}
        if len(lengths) > 1:
            raise ValueError(f"columns of {cls.__name__} differ in length: {sorted(lengths)}")
        rows = lengths.pop() if lengths else 0
        for name in names - given.keys():
            shape = (rows, 3) if name in _TRIPLES else (rows,)
            given[name] = np.full(shape, _FILL.get(name, _UNKNOWN.get(name, -1)), dtype=_DTYPES[name])
        for name in _TRIPLES & given.keys():
            given[name] = given[name].reshape(rows, 3)
        return cls(**given)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ops(Table):
    """Work on devices, in order of start: kernels, copies, memsets."""

    kind: Int8  # OpKind
    name: Int32  # row of strings
    device: Int16  # row of devices
    stream: Int32  # row of streams
    start: Int64  # ns
    end: Int64  # ns
    bytes: Int64  # -1 unknown
    src: Int8  # MemoryKind of the source of a copy
    dst: Int8  # MemoryKind of its destination, or of what a memset fills
    grid: Int32  # (n, 3), -1 unknown
    block: Int32  # (n, 3), -1 unknown
    registers: Int32  # a thread
    shared: Int32  # bytes of shared memory a block
    occupancy: Float32  # estimated achieved occupancy, 0 to 1, NaN unknown
    correlation: Int64  # 0 unknown
    graph: Int64  # id of the graph (or graph node) that launched it, -1 none known
    call: Int32  # row of calls that issued it, -1 unknown


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calls(Table):
    """Calls of host threads into CUDA, in order of begin."""

    kind: Int8  # CallKind
    name: Int32  # row of strings
    thread: Int32  # row of threads
    start: Int64  # ns
    end: Int64  # ns
    correlation: Int64  # 0 unknown
    stack: Int32  # row of strings: a recorded call stack, innermost first, separated by ";", -1 none
    result: Int32  # what the call returned: 0 success, else CUDA's number of the error, -1 unknown


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Marks(Table):
    """Event records, waits for events, and synchronisations as the device saw them."""

    kind: Int8  # MarkKind
    device: Int16  # row of devices: whose work a SYNC_DEVICE waits for, in whose stream the others are; -1 unknown
    stream: Int32  # row of streams, -1 unknown
    start: Int64  # ns
    end: Int64  # ns
    event: Int64  # id of the event, -1 unknown
    call: Int32  # row of calls, -1 unknown
    waits_on: Int32  # row of streams in which the awaited event was recorded, -1 unknown
    record: Int64  # correlation of the record that is waited for, -1 unknown


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranges(Table):
    """Named stretches of host time: framework operators, Python frames, annotations, steps."""

    kind: Int8  # RangeKind
    name: Int32  # row of strings
    thread: Int32  # row of threads
    start: Int64  # ns
    end: Int64  # ns
    stack: Int32  # row of strings: a recorded call stack, innermost first, separated by ";", -1 none


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Touches(Table):
    """Which memory calls and the work they issue touch, in order of the calls; empty where the source cannot tell."""

    kind: Int8  # TouchKind
    call: Int32  # row of calls
    address: Int64
    bytes: Int64  # from the first byte to the last; -1 unknown
    gaps: Int8  # 1: not all bytes between are touched (a copy of rows of a larger array)
    argument: Int32  # of ARGUMENT: which one, from 0; -1 unknown
    memory: Int8  # MemoryKind
    stream: Int32  # row of streams: of a stream-ordered allocation or free; -1 of all else


_DTYPES: Mapping[str, Any] = {
    "kind": np.int8, "name": np.int32, "device": np.int16, "stream": np.int32, "start": np.int64, "end": np.int64,
    "bytes": np.int64, "src": np.int8, "dst": np.int8, "grid": np.int32, "block": np.int32, "registers": np.int32,
    "shared": np.int32, "occupancy": np.float32, "correlation": np.int64, "graph": np.int64, "call": np.int32,
    "thread": np.int32, "event": np.int64, "waits_on": np.int32, "record": np.int64, "stack": np.int32,
    "result": np.int32, "address": np.int64, "gaps": np.int8, "argument": np.int32, "memory": np.int8,
}  # fmt: skip
_TRIPLES = frozenset({"grid", "block"})
_UNKNOWN: Mapping[str, int] = {
    "src": MemoryKind.UNKNOWN, "dst": MemoryKind.UNKNOWN, "memory": MemoryKind.UNKNOWN, "gaps": 0,
}  # fmt: skip


HOST = "host ("  # how the name of a device begins that is threads of a host


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU as the source describes it; 0 or empty where it does not. Threads of a host may stand for one."""

    id: int
    name: str = ""
    vendor: str = ""  # "nvidia", "amd" or empty
    sms: int = 0
    compute_capability: tuple[int, int] = (0, 0)
    memory_bytes: int = 0
    threads_per_sm: int = 0
    registers_per_sm: int = 0
    shared_per_sm: int = 0

    @property
    def is_host(self) -> bool:
        """Whether it is no GPU but threads of a host, as a pipeline on ``device="host"`` has them."""
        return self.name.startswith(HOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream of one device. ``inferred`` says that the kind was read off the timeline's behaviour, not told."""

    device: int  # row of devices
    id: int  # the source's number
    kind: StreamKind = StreamKind.UNKNOWN
    inferred: bool = False
    priority: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A host thread."""

    pid: int
    tid: int
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Something the source cannot tell: a stable slug, one sentence, and how to record so that it can."""

    what: str
    text: str
    remedy: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether the program did what the source lacks: there may be a race among it, and so may a wait."""
        return self.what in ("records-dropped", "unfinished", "calls-missing", "records-taken", "stuck")


class Told(Protocol):
    """What says of its source what was damaged in it and what it cannot tell: a Timeline, and what is made of one."""

    @property
    def lost(self) -> tuple[str, ...]:
        """One sentence for each kind of damage."""
        ...

    @property
    def mended(self) -> tuple[str, ...]:
        """Those of ``lost`` by which nothing is gone that the program asked of the GPU."""
        ...

    @property
    def unknown(self) -> tuple[Unknown, ...]:
        """What the source cannot tell."""
        ...


def missing(told: Told) -> tuple[str, ...]:
    """Say what is gone from a source by damage, and what it lacks though the program did it."""
    gone = (sentence for sentence in told.lost if sentence not in told.mended)
    return (*gone, *(one.text for one in told.unknown if one.is_missing))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """What one run did. See the module's text for units and conventions.

    ``clock_ns`` is the wall clock (ns since 1970) of time 0 of the columns, or None. ``lost`` holds one sentence for
    everything that was damaged in the source and left out; ``mended`` are those of them by which nothing is gone that
    the program asked of the GPU. ``info`` holds the source's own facts by name.
    """

    ops: Ops = field(default_factory=Ops.build)
    calls: Calls = field(default_factory=Calls.build)
    marks: Marks = field(default_factory=Marks.build)
    ranges: Ranges = field(default_factory=Ranges.build)
    touches: Touches = field(default_factory=Touches.build)
    devices: tuple[Device, ...] = ()
    streams: tuple[Stream, ...] = ()
    threads: tuple[Thread, ...] = ()
    strings: Sequence[str] = ()
    source: str = ""  # path, or what made it
    format: str = ""  # "torch.profiler", "nsys", "gapless", "simulated"
    clock_ns: int | None = None
    info: Mapping[str, str | int] = field(default_factory=dict[str, "str | int"])
    unknown: tuple[Unknown, ...] = ()
    lost: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Timeline of {self.source or 'nothing'}: {len(self.ops):,} operations, {len(self.calls):,} calls>"

    def name_of(self, row: int) -> str:
        """Give the text of a ``name`` or ``stack`` column's value; empty for -1."""
        return self.strings[row] if row >= 0 else ""

    def window(self) -> tuple[int, int]:
        """Give the first start and the last end of device work in ns; ``(0, 0)`` where there is none."""
        if not len(self.ops):
            return 0, 0
        return int(self.ops.start.min()), int(self.ops.end.max())

    def with_streams(self, streams: Iterable[Stream]) -> Self:
        """Give the same timeline with other knowledge of its streams (same number, same order)."""
        changed = tuple(streams)
        if len(changed) != len(self.streams):
            raise ValueError(f"expected {len(self.streams)} streams, got {len(changed)}")
        return replace(self, streams=changed)


__all__ = [
    "CallKind", "Calls", "Device", "MarkKind", "Marks", "MemoryKind", "OpKind", "Ops", "RangeKind", "Ranges", "Stream",
    "StreamKind", "Table", "Thread", "Timeline", "TouchKind", "Touches", "Unknown",
]  # fmt: skip
