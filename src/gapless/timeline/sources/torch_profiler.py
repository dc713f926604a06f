"""torch.profiler's traces: the JSON that Kineto writes for CUDA and ROCm, old and new dialects.

Old files (2021) say ``Kernel``, ``Runtime``, ``Operator`` and ``"stream 7"`` and give whole microseconds since 1970; new
ones say ``kernel``, ``cuda_runtime``, ``cpu_op`` and give decimal microseconds relative to ``baseTimeNanoseconds``.
``displayTimeUnit`` never changes the unit. Rows of ``gpu_user_annotation`` cover kernels and are not kernels.
"""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.timeline.apis import call_kind
from gapless.timeline.sources import assembly
from gapless.timeline.sources.chrome import BLOCK, Category, Complete, Event, Events, Metadata
from gapless.timeline.sources.decimals import UNREADABLE, Microseconds
from gapless.timeline.sources.feed import Progress, pieces
from gapless.timeline.sources.losses import Losses
from gapless.timeline.timeline import (
    Calls,
    Device,
    MarkKind,
    Marks,
    Ops,
    RangeKind,
    Ranges,
    Stream,
    Thread,
    Timeline,
    Unknown,
)

FORMAT = "torch.profiler"

_RANGES: Mapping[Category, RangeKind] = {
    Category.CPU_OP: RangeKind.CPU_OP,
    Category.OLD_OPERATOR: RangeKind.CPU_OP,
    Category.PYTHON: RangeKind.PYTHON,
    Category.ANNOTATION: RangeKind.ANNOTATION,
    Category.OVERHEAD: RangeKind.OVERHEAD,
}
_CALLS = frozenset({Category.RUNTIME, Category.DRIVER, Category.OLD_RUNTIME})
_KERNELS = frozenset({Category.KERNEL, Category.OLD_KERNEL})
_MEMCPYS = frozenset({Category.MEMCPY, Category.OLD_MEMCPY})
_MEMSETS = frozenset({Category.MEMSET, Category.OLD_MEMSET})
_MARKS = frozenset({Category.SYNC, Category.EVENT})
_NOWHERE = 0xFFFFFFFF  # CUPTI's number for "no stream" and "no event"

Int64: TypeAlias = NDArray[np.int64]
Args = TypeVar("Args", bound=msgspec.Struct)

# Numbers that fit their column; any other is taken as not told.
Device16: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=(1 << 15) - 2)]
Small: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=(1 << 31) - 1)]
Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=(1 << 62))]
Triple: TypeAlias = tuple[Small, Small, Small]


class _KernelArgs(msgspec.Struct, gc=False):
    device: Device16 = -1
    stream: Whole = -1
    correlation: Whole = 0
    registers: Small = msgspec.field(default=-1, name="registers per thread")
    shared: Small = msgspec.field(default=-1, name="shared memory")
    grid: Triple = (-1, -1, -1)
    block: Triple = (-1, -1, -1)
    occupancy: float = msgspec.field(default=float("nan"), name="est. achieved occupancy %")
    graph: Whole = msgspec.field(default=0, name="graph id")
    node: Whole = msgspec.field(default=0, name="graph node id")
    priority: Small | None = None


class _CopyArgs(msgspec.Struct, gc=False):
    device: Device16 = -1
    in_device: Device16 = msgspec.field(default=-1, name="inDevice")
    from_device: Device16 = msgspec.field(default=-1, name="fromDevice")
    to_device: Device16 = msgspec.field(default=-1, name="toDevice")
    stream: Whole = -1
    correlation: Whole = 0
    bytes: Whole = -1
    graph: Whole = msgspec.field(default=0, name="graph id")
    node: Whole = msgspec.field(default=0, name="graph node id")


class _CallArgs(msgspec.Struct, gc=False):
    correlation: Whole = 0


class _HipArgs(msgspec.Struct, gc=False):
    """HIP's calls know what its device rows leave out."""

    correlation: Whole = 0
    bytes: Whole = -1
    size: Whole | str = -1
    shared: Small = msgspec.field(default=-1, name="shared memory")
    grid: Triple = (-1, -1, -1)
    block: Triple = (-1, -1, -1)


class _SyncArgs(msgspec.Struct, gc=False):
    device: Device16 = -1
    stream: Whole = -1
    correlation: Whole = 0
    kind: str = msgspec.field(default="", name="cuda_sync_kind")
    waits_on: Whole = msgspec.field(default=-1, name="wait_on_stream")
    record: Whole = msgspec.field(default=-1, name="wait_on_cuda_event_record_corr_id")
    event: Whole = msgspec.field(default=-1, name="wait_on_cuda_event_id")
    recorded: Whole = msgspec.field(default=-1, name="event_id")


class _NameArgs(msgspec.Struct, gc=False):
    name: str = ""


class _RangeArgs(msgspec.Struct, gc=False):
    stack: str = msgspec.field(default="", name="Call stack")


_MARK_KINDS = {
    "Event Sync": MarkKind.SYNC_EVENT,
    "Stream Sync": MarkKind.SYNC_STREAM,
    "Stream Wait Event": MarkKind.WAIT,
    "Context Sync": MarkKind.SYNC_DEVICE,
    "Record": MarkKind.RECORD,
}
_MEMORIES = {
    "Pageable": MemoryKind.PAGEABLE,
    "Pinned": MemoryKind.PINNED,
    "Device": MemoryKind.DEVICE,
    "Device Static": MemoryKind.DEVICE,
    "Array": MemoryKind.ARRAY,
    "Managed": MemoryKind.MANAGED,
    "Managed Static": MemoryKind.MANAGED,
}
_HOST = (MemoryKind.PAGEABLE, MemoryKind.PINNED)
_ON_DEVICE = (MemoryKind.DEVICE, MemoryKind.ARRAY)
_KINDS_BY_ENDS = {"HD": OpKind.H2D, "DH": OpKind.D2H, "DD": OpKind.D2D, "PP": OpKind.P2P, "HH": OpKind.H2H}
_PAREN = re.compile(r"\((?:([\w ]+) -> )?([\w ]+)\)")
_LETTERS = re.compile(r"\b([HDAP])to([HDAP])\b|(Host|Device|Array|Peer)To(Host|Device|Array|Peer)")
_STREAM = re.compile(r"(?:stream )?(\d{1,18})")
_DIGITS = re.compile(r"-?\d{1,18}")


class _Numbers(dict[Any, int]):
    """Numbers things in the order in which they come up."""

    def __missing__(self, key: object) -> int:
        self[key] = number = len(self)
        return number


class _Columns:
    """Columns that grow by a list of values a batch."""

    def __init__(self, *names: str) -> None:
        self._parts: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
        self.start = Microseconds()
        self.duration = Microseconds()
        self.rows = 0

    def add(self, events: list[Complete], **values: NDArray[Any]) -> None:
        """Append one row an event: its times, and what the caller read off it."""
        self.rows += len(events)
        self.start.add([event.ts for event in events])
        self.duration.add([event.dur for event in events])
        for name, part in values.items():
            self._parts[name].append(part)

    def columns(self, losses: Losses) -> dict[str, NDArray[Any]]:
        """Give all columns in order of start, rows without a start left out; ``start`` and ``end`` in ns."""
        columns = {
            name: np.concatenate(parts) if parts else np.empty(0, np.int64) for name, parts in self._parts.items()
        }
        self._parts.clear()
        start, duration = self.start.column(), self.duration.column()
        unknown = duration == UNREADABLE
        negative = (duration < 0) & ~unknown
        duration[unknown | negative] = 0
        timed = start != UNREADABLE
        losses.add(_NO_TIME, int((~timed).sum()))
        losses.add(_NO_LENGTH, int((unknown & timed).sum()))
        losses.add(_NEGATIVE, int((negative & timed).sum()))
        columns |= {"start": start, "end": start + duration}
        rows = np.flatnonzero(timed)
        rows = rows[np.argsort(start[rows], kind="stable")]
        return {name: column[rows] for name, column in columns.items()}


_NO_TIME = "Left out {events}: no usable time."
_NO_LENGTH = "Took the length of {events} as zero: none is given."
_NEGATIVE = "Took the length of {events} as zero: it is negative."
_REPEATED = "Left out {events}: exact repeats of another."
_AMBIGUOUS = "Could not tell which call issued {events}: the correlation id belongs to several."
_DIRECTION = "Took {events} as copies inside the device: the trace does not say between which memories."


def recognise(head: bytes) -> bool:
    """Tell whether a file that starts so may be a trace: JSON, an object or a list."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def read(path: Path, progress: Progress | None = None, *, block: int = BLOCK) -> Timeline:
    """Read a trace into a Timeline. Raises ``GaplessError`` for a file that holds none.

    ``block`` is how many bytes are decoded in one go; it never changes the result.
    """
    losses = Losses()
    events = Events(pieces(path, progress, losses), str(path), losses, block)
    reader = _Reader()
    collecting = gc.isenabled()
    gc.disable()  # the events make no cycles, and looking for them would double the time
    try:
        for batch in events:
            reader.add(batch)
    finally:
        if collecting:
            gc.enable()
    return reader.timeline(str(path), events.facts, losses)


class _Reader:
    """Sorts events into columns and makes the Timeline of them."""

    def __init__(self) -> None:
        self.strings = _Numbers()
        self.threads = _Numbers()  # (pid, tid) as they stand in the file
        self.kernels = _Columns(
            "name", "device", "stream", "correlation", "registers", "shared", "grid", "block", "occupancy", "graph"
        )
        self.copies = _Columns(  # and memsets
            "name", "device", "stream", "correlation", "bytes", "graph", "memset", "peer"
        )
        self.calls = _Columns("name", "thread", "correlation", "driver")
        self.marks = _Columns("kind", "device", "stream", "correlation", "waits_on", "record", "event")
        self.ranges = _Columns("kind", "name", "thread", "stack")
        self.names: dict[tuple[int | str, int | str], str] = {}  # of threads and streams
        self.priorities: dict[tuple[int, int], int] = {}  # (device, stream): priority
        self.hip: list[_HipArgs] = []

    def add(self, batch: Iterable[Event]) -> None:
        """Take a batch of events in the order of the file."""
        by_category: dict[Category, list[Complete]] = {}
        for event in batch:
            if type(event) is Complete:
                try:
                    by_category[event.cat].append(event)
                except KeyError:
                    by_category[event.cat] = [event]
            elif type(event) is Metadata and event.name == "thread_name":
                self.names[event.pid, event.tid] = _decode(event.args, _NameArgs).name.strip()
        for category, events in by_category.items():
            if category in _RANGES:
                self._add_ranges(_RANGES[category], events)
            elif category in _CALLS:
                self._add_calls(category, events)
            elif category in _KERNELS:
                self._add_kernels(events)
            elif category in _MEMCPYS or category in _MEMSETS:
                self._add_copies(category in _MEMSETS, events)
            elif category in _MARKS:
                self._add_marks(events)

    def _add_ranges(self, kind: RangeKind, events: list[Complete]) -> None:
        stacks = np.full(len(events), -1, np.int32)
        if kind is RangeKind.CPU_OP and b'"Call stack"' in (joined := _joined(events)):
            found = _decode_all(events, _RangeArgs, joined)
            stacks[:] = [self.strings[args.stack] if args.stack else -1 for args in found]
        self.ranges.add(
            events, kind=np.full(len(events), kind, np.int8), name=self._names(events), thread=self._threads(events),
            stack=stacks,
        )  # fmt: skip

    def _add_calls(self, category: Category, events: list[Complete]) -> None:
        if events[0].name.startswith("hip"):
            found = _decode_all(events, _HipArgs)
            self.hip += found
        else:
            found = _decode_all(events, _CallArgs)
        self.calls.add(
            events, name=self._names(events), thread=self._threads(events),
            correlation=np.array([args.correlation for args in found], np.int64),
            driver=np.full(len(events), category is Category.DRIVER),
        )  # fmt: skip

    def _add_kernels(self, events: list[Complete]) -> None:
        found = _decode_all(events, _KernelArgs)
        for args in found:
            if args.priority is not None:
                self.priorities[args.device, args.stream] = args.priority
        self.kernels.add(
            events, name=self._names(events), **_place(events, found),
            correlation=np.array([args.correlation for args in found], np.int64),
            registers=np.array([args.registers for args in found], np.int32),
            shared=np.array([args.shared for args in found], np.int32),
            grid=_triples([args.grid for args in found]), block=_triples([args.block for args in found]),
            occupancy=np.array([args.occupancy for args in found], np.float32),
            graph=np.array([args.graph or args.node or -1 for args in found], np.int64),
        )  # fmt: skip

    def _add_copies(self, memset: bool, events: list[Complete]) -> None:
        found = _decode_all(events, _CopyArgs)
        for args in found:
            if args.device < 0:
                args.device = args.in_device
        self.copies.add(
            events, name=self._names(events), **_place(events, found),
            correlation=np.array([args.correlation for args in found], np.int64),
            bytes=np.array([args.bytes for args in found], np.int64),
            graph=np.array([args.graph or args.node or -1 for args in found], np.int64),
            memset=np.full(len(events), memset),
            peer=np.array([-1 < args.from_device != args.to_device > -1 for args in found]),
        )  # fmt: skip

    def _add_marks(self, events: list[Complete]) -> None:
        found = _decode_all(events, _SyncArgs)
        for event, args in zip(events, found, strict=True):
            args.kind = "Record" if event.cat is Category.EVENT else args.kind or event.name
        self.marks.add(
            events, **_place(events, found),
            kind=np.array([_MARK_KINDS.get(args.kind, -1) for args in found], np.int8),
            correlation=np.array([args.correlation for args in found], np.int64),
            waits_on=np.array([_somewhere(args.waits_on) for args in found], np.int64),
            record=np.array([_somewhere(args.record) or -1 for args in found], np.int64),
            event=np.array([_somewhere(max(args.event, args.recorded)) for args in found], np.int64),
        )  # fmt: skip

    def _names(self, events: list[Complete]) -> NDArray[np.int32]:
        numbers = self.strings
        return np.array([numbers[event.name] for event in events], np.int32)

    def _threads(self, events: list[Complete]) -> NDArray[np.int32]:
        numbers = self.threads
        return np.array([numbers[event.pid, event.tid] for event in events], np.int32)

    def timeline(self, source: str, facts: Mapping[str, Any], losses: Losses) -> Timeline:
        """Put the columns together."""
        kernels, copies = self.kernels.columns(losses), self.copies.columns(losses)
        calls, ranges, marks = self.calls.columns(losses), self.ranges.columns(losses), self.marks.columns(losses)
        strings = tuple(self.strings)
        vendor = self._vendor(facts, strings)
        places = _Places(facts, vendor, (kernels, copies, marks))
        tick = 1000 if _whole_microseconds(kernels, copies, calls) else 0

        calls["kind"] = np.array([call_kind(name) for name in strings], np.int8)[calls["name"]]
        calls = _unrepeated(calls, ("name", "thread", "end", "correlation"), tick, calls["correlation"] != 0, losses)
        ops = self._ops(kernels, copies, places, strings, losses)
        ops["call"] = _link(ops, calls, losses)
        by_graph = (ops["graph"] >= 0) | ((ops["call"] >= 0) & (calls["kind"][ops["call"]] == CallKind.GRAPH_LAUNCH))
        once = (ops["correlation"] != 0) & ~by_graph
        ops = _unrepeated(ops, ("name", "kind", "stream", "end", "correlation"), tick, once, losses)
        marks = _marks(marks, calls, places)
        if not tick:  # of nested operators, whole microseconds can be the same
            ranges = _unrepeated(ranges, ("name", "kind", "thread", "end"), tick, False, losses)
        step = np.array([name.startswith("ProfilerStep#") for name in strings], np.bool_)
        ranges["kind"][step[ranges["name"]]] = RangeKind.STEP

        zero = min((int(table["start"][0]) for table in (ops, calls, ranges, marks) if len(table["start"])), default=0)
        for table in (ops, calls, ranges, marks):
            table["start"] -= zero
            table["end"] -= zero
        threads, thread_rows = self._threads_told()
        calls["thread"], ranges["thread"] = thread_rows[calls["thread"]], thread_rows[ranges["thread"]]
        return Timeline(
            ops=Ops.build(**ops),
            calls=Calls.build(
                **{name: calls[name] for name in ("kind", "name", "thread", "start", "end", "correlation")}
            ),
            marks=Marks.build(**marks),
            ranges=Ranges.build(**ranges),
            devices=places.devices,
            streams=places.streams(vendor, self.names, self.priorities),
            threads=threads,
            strings=strings,
            source=source,
            format=FORMAT,
            clock_ns=_clock(facts, zero),
            info=_info(facts) | {"overlaps": assembly.overlaps(ops["stream"], ops["start"], ops["end"])},
            unknown=tuple(_unknown(ops, calls, marks, ranges, vendor)),
            lost=losses.sentences(),
        )

    def _vendor(self, facts: Mapping[str, Any], strings: Sequence[str]) -> str:
        """Tell whose GPU it was, by the names of calls, else of devices."""
        if self.hip:
            return "amd"
        if any(re.match(r"cu(da)?[A-Z]", name) for name in strings):
            return "nvidia"
        names = " ".join(str(device.get("name")) for device in _listed_devices(facts))
        if re.search("AMD|Radeon|Instinct|gfx", names):
            return "amd"
        return "nvidia" if re.search("NVIDIA|GeForce|Tesla|Quadro|TITAN|RTX", names) else ""

    def _ops(
        self,
        kernels: dict[str, NDArray[Any]],
        copies: dict[str, NDArray[Any]],
        places: _Places,
        strings: Sequence[str],
        losses: Losses,
    ) -> dict[str, NDArray[Any]]:
        """Make one table of kernels, copies and memsets, in order of start."""
        tables: list[Ops] = []
        if len(kernels["start"]):
            own = {name: column for name, column in kernels.items() if name not in ("device", "stream")}
            tables.append(Ops.build(kind=np.full(len(own["start"]), OpKind.KERNEL), **own, **places.rows(kernels)))
        if len(copies["start"]):
            own = {name: copies[name] for name in ("name", "correlation", "bytes", "graph", "start", "end")}
            tables.append(Ops.build(**own, **places.rows(copies), **_directions(copies, strings, losses)))
        ops = {column: np.concatenate([t.column(column) for t in (*tables, Ops.build())]) for column in Ops.__slots__}
        order = np.argsort(ops["start"], kind="stable")
        ops = {name: column[order] for name, column in ops.items()}
        self._fill_from_hip(ops)
        return ops

    def _fill_from_hip(self, ops: dict[str, NDArray[Any]]) -> None:
        """Fill sizes and shapes that ROCm's device rows lack from the calls that issued them."""
        told = {args.correlation: args for args in self.hip if args.correlation > 0}
        if len(told) < len(self.hip):  # an id that several calls share tells nothing
            counts = Counter(args.correlation for args in self.hip)
            told = {correlation: args for correlation, args in told.items() if counts[correlation] == 1}
        for row in np.flatnonzero(np.isin(ops["correlation"], list(told))):
            args = told[int(ops["correlation"][row])]
            if ops["kind"][row] == OpKind.KERNEL:
                if ops["grid"][row, 0] < 0:
                    ops["grid"][row], ops["block"][row] = args.grid, args.block
                if ops["shared"][row] < 0:
                    ops["shared"][row] = args.shared
            elif ops["bytes"][row] < 0:
                size = args.bytes if args.bytes >= 0 else args.size
                ops["bytes"][row] = (
                    size if isinstance(size, int) else int(size) if re.fullmatch(r"\d{1,18}", size) else -1
                )

    def _threads_told(self) -> tuple[tuple[Thread, ...], NDArray[np.int32]]:
        """Give the threads, and for each number given out while reading its row: ``"25738"`` and 25738 are one."""
        names = {(_plain(pid), _plain(tid)): name for (pid, tid), name in self.names.items()}
        found: dict[Thread, int] = {}
        rows: list[int] = []
        for pid, tid in self.threads:
            process, thread = _plain(pid), _plain(tid)
            name = names.get((process, thread), "" if isinstance(thread, int) else thread)
            told = Thread(
                pid=process if isinstance(process, int) else -1,
                tid=thread if isinstance(thread, int) else -1,
                name=name,
            )
            rows.append(found.setdefault(told, len(found)))
        return tuple(found), np.array(rows, np.int32)


class _Places:
    """Devices and streams, and the rows that device and stream numbers stand for."""

    def __init__(self, facts: Mapping[str, Any], vendor: str, tables: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        pairs = [np.empty((0, 2), np.int64)]
        for table in tables:
            for column in ("stream", "waits_on"):
                if column in table:
                    pairs.append(np.stack((table["device"], table[column]), axis=1))
            if "waits_on" in table:  # marks: -1 is no stream of its own
                pairs[-2:] = [pair[pair[:, 1] >= 0] for pair in pairs[-2:]]
        self.pairs = np.unique(np.concatenate(pairs), axis=0)
        described = {device.id: device for device in _described(facts, vendor)}
        for number in np.unique(self.pairs[:, 0]).tolist():
            described.setdefault(number, Device(id=number, vendor=vendor))
        self.devices = tuple(described[number] for number in sorted(described))
        self._device_ids = np.array([device.id for device in self.devices], np.int64)

    def rows(self, table: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Give the ``device`` and ``stream`` columns as rows."""
        return {
            "device": np.searchsorted(self._device_ids, table["device"]),
            "stream": self.stream_rows(table["device"], table["stream"]),
        }

    def stream_rows(self, device: Int64, stream: Int64) -> Int64:
        """Give the row of each (device, stream); -1 where there is none."""
        rows = {pair: row for row, pair in enumerate(map(tuple, self.pairs.tolist()))}
        distinct, back = np.unique(np.stack((device, stream), axis=1), axis=0, return_inverse=True)
        return np.array([rows.get(tuple(pair), -1) for pair in distinct.tolist()], np.int64)[back.reshape(-1)]

    def streams(
        self, vendor: str, names: Mapping[tuple[int | str, int | str], str], priorities: Mapping[tuple[int, int], int]
    ) -> tuple[Stream, ...]:
        """Describe the streams. CUPTI numbers the default stream of the first context 7; ROCm numbers it 0."""
        default = {"nvidia": 7, "amd": 0}.get(vendor)
        plain = {(_plain(pid), _plain(tid)): name for (pid, tid), name in names.items()}
        rows = {device.id: row for row, device in enumerate(self.devices)}
        return tuple(
            Stream(
                device=rows[device],
                id=stream,
                kind=StreamKind.LEGACY if stream == default else StreamKind.UNKNOWN,
                inferred=stream == default,
                priority=priorities.get((device, stream)),
                name=plain.get((device, stream), ""),
            )
            for device, stream in self.pairs.tolist()
        )


def _joined(events: list[Complete]) -> bytes:
    return b"[" + b",".join([event.args for event in events]) + b"]"


def _decode_all(events: list[Complete], kind: type[Args], joined: bytes = b"") -> list[Args]:
    """Decode the args of all events in one go; where one is odd, each for itself."""
    try:
        return _decoder(kind).decode(joined or _joined(events))
    except (msgspec.DecodeError, RecursionError):
        return [_decode(event.args, kind) for event in events]


@cache
def _decoder(kind: type[Args]) -> msgspec.json.Decoder[list[Args]]:
    return msgspec.json.Decoder(list[kind])


def _decode(args: msgspec.Raw, kind: type[Args]) -> Args:
    """Decode the args of one event; what is of another type than it should be is taken as not told."""
    try:
        return msgspec.json.decode(args, type=kind)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        members = msgspec.json.decode(args, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return kind()
    told: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in members:
            for text in (members[field.encode_name], bytes(members[field.encode_name]).strip(b'"')):
                try:
                    told[field.name] = msgspec.json.decode(text, type=field.type)
                except (msgspec.DecodeError, RecursionError):
                    continue
                break
    return kind(**told)


def _triples(values: list[tuple[int, int, int]]) -> NDArray[np.int32]:
    return np.fromiter(chain.from_iterable(values), np.int32, 3 * len(values)).reshape(-1, 3)


def _place(events: list[Complete], found: Sequence[Any]) -> dict[str, Int64]:
    """Give device and stream by the args, else by where the event is drawn: ``pid`` and ``tid``."""
    devices = [
        args.device if args.device >= 0 else _drawn(event.pid) for event, args in zip(events, found, strict=True)
    ]
    streams = [
        args.stream if args.stream >= 0 else _drawn(event.tid) for event, args in zip(events, found, strict=True)
    ]
    return {"device": np.array(devices, np.int64), "stream": np.array(streams, np.int64)}


def _drawn(place: int | str) -> int:
    """Give the number in ``7``, ``"7"`` or ``"stream 7"``; -1 where there is none."""
    number = place if isinstance(place, int) else int(found[1]) if (found := _STREAM.fullmatch(place)) else -1
    return number if 0 <= number < 1 << 15 else -1


def _plain(place: int | str) -> int | str:
    """Give a process or thread number as a number, also where it is written as text."""
    return int(place) if isinstance(place, str) and _DIGITS.fullmatch(place) else place


def _somewhere(number: int) -> int:
    return -1 if number == _NOWHERE else number


def _unrepeated(
    table: dict[str, NDArray[Any]], columns: Iterable[str], tick: int, once: NDArray[np.bool_] | bool, losses: Losses
) -> dict[str, NDArray[Any]]:
    """Leave out exact repeats. Rows that could have happened twice within the clock's tick stay, unless ``once``."""
    repeated = assembly.repeats(table["start"], [table[name] for name in columns])
    repeated &= (table["end"] - table["start"] > tick) | once
    losses.add(_REPEATED, int(repeated.sum()))
    return {name: column[~repeated] for name, column in table.items()} if repeated.any() else table


def _whole_microseconds(*tables: Mapping[str, NDArray[Any]]) -> bool:
    return all(not (table["start"] % 1000).any() and not (table["end"] % 1000).any() for table in tables)


def _link(ops: Mapping[str, NDArray[Any]], calls: Mapping[str, NDArray[Any]], losses: Losses) -> NDArray[np.int32]:
    """Give for each op the row of the call that issued it, -1 where that is not certain."""
    ids, rows, ambiguous = assembly.calls_by_correlation(
        calls["correlation"], calls["start"], calls["end"], calls["driver"]
    )
    call = assembly.look_up(ops["correlation"], ids, rows)
    graph = (
        (calls["kind"][rows] == CallKind.GRAPH_LAUNCH)[np.searchsorted(ids, ops["correlation"]).clip(max=len(ids) - 1)]
        if len(ids)
        else np.zeros(len(call), np.bool_)
    )
    doubtful = assembly.look_up(ops["correlation"], ids, ambiguous.astype(np.int64)) == 1
    doubtful |= assembly.on_several_streams(ops["correlation"], ops["stream"]) & ~graph & (ops["graph"] < 0)
    doubtful &= call >= 0
    losses.add(_AMBIGUOUS, int(doubtful.sum()))
    call[doubtful] = -1
    return call.astype(np.int32)


def _directions(
    copies: Mapping[str, NDArray[Any]], strings: Sequence[str], losses: Losses
) -> dict[str, NDArray[np.int8]]:
    """Read kind and memories of copies and memsets off their names, such as ``Memcpy HtoD (Pageable -> Device)``."""
    told = np.full((len(strings), 3), -1, np.int8)
    for name in np.unique(copies["name"]).tolist():
        told[name] = _direction(strings[name])
    kind, src, dst = told[copies["name"]].T
    kind = np.where(copies["memset"], OpKind.MEMSET, np.where(copies["peer"], OpKind.P2P, kind)).astype(np.int8)
    losses.add(_DIRECTION, int((kind < 0).sum()))
    kind[kind < 0] = OpKind.D2D
    return {"kind": kind, "src": np.where(copies["memset"], MemoryKind.UNKNOWN, src), "dst": dst}


def _direction(name: str) -> tuple[int, MemoryKind, MemoryKind]:
    """Give OpKind (-1 unknown), source and destination memory by a copy's or memset's name."""
    words = _PAREN.search(name)
    src = _MEMORIES.get(words[1] or "", MemoryKind.UNKNOWN) if words else MemoryKind.UNKNOWN
    dst = _MEMORIES.get(words[2], MemoryKind.UNKNOWN) if words else MemoryKind.UNKNOWN
    if letters := _LETTERS.search(name):
        ends = (letters[1] or letters[3])[0] + (letters[2] or letters[4])[0]
        kind = _KINDS_BY_ENDS.get(ends.replace("A", "D"), -1)
    else:
        ends = "".join("H" if m in _HOST else "D" if m in _ON_DEVICE else "?" for m in (src, dst))
        kind = _KINDS_BY_ENDS.get(ends, -1)
    return kind, src, dst


def _marks(
    marks: dict[str, NDArray[Any]], calls: Mapping[str, NDArray[Any]], places: _Places
) -> dict[str, NDArray[Any]]:
    """Make the marks: what ``cuda_sync`` and ``cuda_event`` rows say, and the records and waits of which only the calls are told."""
    marks = {name: column[marks["kind"] >= 0] for name, column in marks.items()}
    ids, rows, ambiguous = assembly.calls_by_correlation(
        calls["correlation"], calls["start"], calls["end"], calls["driver"]
    )
    ids, rows = ids[~ambiguous], rows[~ambiguous]
    told = {
        "kind": marks["kind"], "start": marks["start"], "end": marks["end"], "event": marks["event"],
        "stream": places.stream_rows(marks["device"], marks["stream"]),
        "waits_on": places.stream_rows(marks["device"], marks["waits_on"]),
        "record": np.where(marks["record"] > 0, marks["record"], -1),
        "call": assembly.look_up(marks["correlation"], ids, rows),
    }  # fmt: skip
    parts = [told]
    for call_kind_, mark_kind in ((CallKind.RECORD, MarkKind.RECORD), (CallKind.WAIT_EVENT, MarkKind.WAIT)):
        covered = told["call"][told["kind"] == mark_kind]
        own = np.setdiff1d(np.flatnonzero(calls["kind"] == call_kind_), covered)
        correlation = calls["correlation"][own]
        # A wait that names this record knows its stream and event.
        known = told["record"] > 0
        order = np.argsort(told["record"][known], kind="stable")
        records = told["record"][known][order]
        none = np.full(len(own), -1)
        is_record = mark_kind is MarkKind.RECORD
        parts.append({
            "kind": np.full(len(own), mark_kind), "start": calls["start"][own], "end": calls["end"][own],
            "event": assembly.look_up(correlation, records, told["event"][known][order]) if is_record else none,
            "stream": assembly.look_up(correlation, records, told["waits_on"][known][order]) if is_record else none,
            "waits_on": none, "record": none, "call": own,
        })  # fmt: skip
    whole = {name: np.concatenate([part[name] for part in parts]) for name in told}
    order = np.argsort(whole["start"], kind="stable")
    return {name: column[order] for name, column in whole.items()}


def _listed_devices(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    devices = facts.get("deviceProperties")
    return [device for device in devices if isinstance(device, Mapping)] if isinstance(devices, list) else []


def _described(facts: Mapping[str, Any], vendor: str) -> Iterator[Device]:
    """Give the devices that the trace describes."""

    def number(device: Mapping[str, Any], *names: str) -> int:
        return next((device[n] for n in names if type(device.get(n)) is int), 0)

    for device in _listed_devices(facts):
        if type(identity := device.get("id")) is int and 0 <= identity < (1 << 15) - 1:
            name = device.get("name")
            yield Device(
                id=identity,
                name=name if isinstance(name, str) else "",
                vendor=vendor,
                sms=number(device, "numSms"),
                compute_capability=(number(device, "computeMajor"), number(device, "computeMinor")),
                memory_bytes=number(device, "totalGlobalMem"),
                threads_per_sm=number(device, "maxThreadsPerMultiprocessor"),
                registers_per_sm=number(device, "regsPerMultiprocessor"),
                shared_per_sm=number(device, "sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"),
            )


def _clock(facts: Mapping[str, Any], zero: int) -> int | None:
    """Give the wall clock of ``zero``: told by the base, or plain from times that count since 1970."""
    base = facts.get("baseTimeNanoseconds")
    if type(base) is int and 0 <= base < 1 << 62:
        return base + zero
    return zero if 10**18 < zero < 4 * 10**18 else None


def _info(facts: Mapping[str, Any]) -> dict[str, str | int]:
    """Keep the trace's own facts: plain values, and those of ``distributedInfo``."""
    distributed = facts.get("distributedInfo")
    told = dict(facts) | (dict(distributed) if isinstance(distributed, Mapping) else {})
    return {
        name: value for name, value in told.items() if type(value) is int or (type(value) is str and len(value) <= 1000)
    }


def _unknown(
    ops: Mapping[str, NDArray[Any]],
    calls: Mapping[str, NDArray[Any]],
    marks: Mapping[str, NDArray[Any]],
    ranges: Mapping[str, NDArray[Any]],
    vendor: str,
) -> Iterator[Unknown]:
    """Say what the trace cannot tell, and how to record it so that it can."""
    if not len(ops["kind"]):
        return
    yield Unknown(
        what="stream-kinds",
        text="The trace does not say which streams wait for the default stream and which do not.",
        remedy="torch.profiler cannot record it; torch.cuda.Stream makes non-blocking streams, cudaStreamCreate blocking ones.",
    )
    if not len(calls["kind"]):
        yield Unknown(
            what="host-calls",
            text="The trace has no host calls, so it does not say when the host issued the work or waited for it.",
            remedy="Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
        )
    elif lone := int((ops["call"] < 0).sum()):
        yield Unknown(
            what="host-calls",
            text=f"The call that issued {lone} of {len(ops['call'])} device operations is not in the trace.",
            remedy="Record whole steps: start and stop the profiler after torch.cuda.synchronize().",
        )
    sync_events = (
        "Record with torch.profiler.profile(..., "
        "experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True))."
        if vendor != "amd"
        else ""
    )
    waits = marks["kind"] == MarkKind.WAIT
    lost_waits = int((waits & ((marks["stream"] < 0) | ((marks["waits_on"] < 0) & (marks["record"] < 0)))).sum())
    if lost_waits or not len(calls["kind"]):
        yield Unknown(
            what="event-waits",
            text=f"For {lost_waits} of {int(waits.sum())} waits of a stream for an event, the trace does not say which "
            "stream waits for which."
            if lost_waits
            else "The trace does not say which streams wait for each other's events.",
            remedy=sync_events,
        )
    asked = np.isin(calls["kind"], (CallKind.SYNC_STREAM, CallKind.SYNC_EVENT))
    told = (marks["kind"] == MarkKind.SYNC_STREAM) & (marks["stream"] >= 0)
    told |= (marks["kind"] == MarkKind.SYNC_EVENT) & ((marks["waits_on"] >= 0) | (marks["record"] >= 0))
    asked[marks["call"][told & (marks["call"] >= 0)]] = False
    if asked.any():
        yield Unknown(
            what="sync-targets",
            text=f"For {int(asked.sum())} synchronise calls, the trace does not say which stream or event the host waits for.",
            remedy=sync_events,
        )
    yield Unknown(
        what="buffers",
        text="The trace does not say which memory the operations read and write.",
        remedy="torch.profiler cannot record it for kernels.",
    )
    if not ((ranges["kind"] == RangeKind.PYTHON) | (ranges["stack"] >= 0)).any():
        yield Unknown(
            what="source-lines",
            text="The trace does not say from which lines of the program the work came.",
            remedy="Record with torch.profiler.profile(..., with_stack=True).",
        )
    from_host = (ops["kind"] == OpKind.H2D) & (ops["src"] == MemoryKind.UNKNOWN)
    blind = int((from_host | ((ops["kind"] == OpKind.D2H) & (ops["dst"] == MemoryKind.UNKNOWN))).sum())
    if blind:
        yield Unknown(
            what="memory-kinds",
            text=f"For {blind} copies, the trace does not say whether the host's memory is pinned.",
            remedy="" if vendor == "amd" else "Record with a newer PyTorch.",
        )
