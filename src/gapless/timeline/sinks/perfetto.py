"""Perfetto's protobuf traces: engines, streams and host threads as tracks, launches tied to their work, findings above.

A trace is a list of packets. The first holds all texts with a number each; then one packet describes each track; then
each slice is a packet that begins it and one that ends it, all in order of time. Field numbers are those of
``perfetto/trace/trace_packet.proto`` and the files it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import Engine, MemoryKind, OpKind, StreamKind
from gapless.timeline.events import waits_for_records
from gapless.timeline.measure import DEVICE_ENGINES, engine_of
from gapless.timeline.sinks.files import MARK
from gapless.timeline.sinks.nesting import rows
from gapless.timeline.sinks.notes import Note
from gapless.timeline.sinks.protobuf import double, fixed64, message, number, text, varint
from gapless.timeline.timeline import MarkKind, RangeKind, Timeline

_PIECE = 1 << 20  # bytes given at a time
_SEQUENCE = number(10, 1)  # trusted_packet_sequence_id
_PACKET = b"\x0a"  # the tag of a packet, field 1 of the trace
_NEEDS_TEXTS = number(13, 2)  # sequence_flags: SEQ_NEEDS_INCREMENTAL_STATE
_OF_EVENTS = _SEQUENCE + _NEEDS_TEXTS + b"\x40"  # the tag of the timestamp
_FIRST = number(13, 1) + number(87, 1)  # SEQ_INCREMENTAL_STATE_CLEARED, first_packet_on_sequence
_BEGIN, _END, _INSTANT = 1, 2, 3  # TrackEvent.Type
_EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
_ROOT = number(1, 0) + number(11, _EXPLICIT) + text(14, MARK)  # the TrackDescriptor above all others
_LABELS: Mapping[Engine, str] = {
    Engine.H2D: "H2D copy engine", Engine.SM: "SMs", Engine.D2H: "D2H copy engine", Engine.PEER: "peer copies",
}  # fmt: skip
_STREAM_KINDS: Mapping[StreamKind, str] = {
    StreamKind.LEGACY: "legacy default", StreamKind.PER_THREAD: "per-thread default",
    StreamKind.BLOCKING: "blocking", StreamKind.NON_BLOCKING: "non-blocking",
}  # fmt: skip
_RANGES: Mapping[RangeKind, str] = {
    RangeKind.CPU_OP: "operator", RangeKind.PYTHON: "python", RangeKind.ANNOTATION: "annotation",
    RangeKind.NVTX: "nvtx", RangeKind.STEP: "step", RangeKind.OVERHEAD: "profiler",
    RangeKind.LOADING: "loading code", RangeKind.STAGING: "staging",
}  # fmt: skip


def left_out(timeline: Timeline) -> tuple[str, ...]:
    """Say what a Perfetto trace is not given of a timeline."""
    return ("Left out which memory each call touches.",) if len(timeline.touches) else ()


def pieces(timeline: Timeline, notes: Sequence[Note] = ()) -> Iterator[bytes]:
    """Give the bytes of a trace. Times start at 0 with whatever comes first in the timeline."""
    texts = _Texts(timeline.strings)
    tracks = list(_tracks(timeline, notes, texts))
    buffer = bytearray()
    buffer += _packet(_FIRST + message(60, _ROOT))
    buffer += _packet(_NEEDS_TEXTS + message(12, texts.interned()))
    for track in tracks:
        buffer += _packet(message(60, track.descriptor))
    yield from _pieces(buffer, [track for track in tracks if track.slices])


def _pieces(buffer: bytearray, tracks: Sequence[_Track]) -> Iterator[bytes]:
    """Give what stands in *buffer*, then the events of all tracks in order of time."""
    times = [np.array([time for time, _, _ in track.slices], np.int64) for track in tracks]
    first = min((int(own[0]) for own in times), default=0)
    turns = np.repeat(np.arange(len(tracks)), [len(own) for own in times])
    turns = turns[np.argsort(np.concatenate([*times, np.empty(0, np.int64)]), kind="stable")]
    waiting = [track.events() for track in tracks]
    for turn in turns.tolist():
        time, event = next(waiting[turn])
        content = _OF_EVENTS + varint(time - first) + event
        buffer += _PACKET
        buffer += varint(len(content))
        buffer += content
        if len(buffer) >= _PIECE:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


def _packet(content: bytes) -> bytes:
    return message(1, _SEQUENCE + content)


def _described(uuid: int, parent: int, name: str, rank: int) -> bytes:
    """Encode a TrackDescriptor whose children stand in the order of their ranks."""
    return (
        number(1, uuid) + (number(5, parent) if parent else b"") + text(2, name) + number(11, _EXPLICIT)
        + number(12, rank)
    )  # fmt: skip


class _Texts:
    """Numbers texts, from 1 on: names and categories of events, names of annotations."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = strings  # row r of the timeline's strings has number r + 1
        self._more: dict[str, int] = {}
        self._facts: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._values: dict[str, int] = {}

    def name(self, words: str) -> bytes:
        """Encode the name of an event that is no string of the timeline."""
        return number(10, self._more.setdefault(words, len(self.strings) + len(self._more) + 1))

    def category(self, words: str) -> bytes:
        return number(3, self._categories.setdefault(words, len(self._categories) + 1))

    def fact(self, words: str) -> bytes:
        """Encode the name of an annotation."""
        return number(1, self._facts.setdefault(words, len(self._facts) + 1))

    def value(self, words: str) -> bytes:
        """Encode the text of an annotation that many events repeat."""
        return number(17, self._values.setdefault(words, len(self._values) + 1))

    def interned(self) -> bytes:
        """Encode the InternedData of all that has been asked for."""
        names = [*enumerate(self.strings, 1), *((iid, words) for words, iid in self._more.items())]
        parts = [message(2, number(1, iid) + text(2, words)) for iid, words in names]
        parts += [message(1, number(1, iid) + text(2, words)) for words, iid in self._categories.items()]
        parts += [message(3, number(1, iid) + text(2, words)) for words, iid in self._facts.items()]
        parts += [message(29, number(1, iid) + text(2, words)) for words, iid in self._values.items()]
        return b"".join(parts)


@dataclass(slots=True)
class _Track:
    """One row on the screen: its descriptor, and what begins and ends on it."""

    uuid: int
    descriptor: bytes
    slices: list[tuple[int, int, bool]] = field(default_factory=list)  # time, number, whether it begins
    say: Callable[[int], bytes] = lambda row: b""  # what is told of a slice
    instant: bool = False

    def events(self) -> Iterator[tuple[int, bytes]]:
        """Give the time of each event and its TrackEvent, as a field of a packet."""
        here = number(11, self.uuid)
        begin, end = number(9, _INSTANT if self.instant else _BEGIN) + here, message(11, number(9, _END) + here)
        for time, row, begins in self.slices:
            yield time, message(11, begin + self.say(row)) if begins else end


class _Numbers:
    """Gives each track the next uuid and each child the next rank under its parent. 0 is the root."""

    def __init__(self) -> None:
        self._last, self._ranks = 0, dict[int, int]()

    def track(self, name: str, parent: int = 0) -> _Track:
        self._last += 1
        rank = self._ranks[parent] = self._ranks.get(parent, -1) + 1
        return _Track(self._last, _described(self._last, parent, name, rank))


def _tracks(timeline: Timeline, notes: Sequence[Note], texts: _Texts) -> Iterator[_Track]:
    """Give all tracks, groups before what is in them: findings, each GPU's engines and streams, host threads."""
    made = _Numbers()

    def lanes(
        name: str, parent: int, of: tuple[NDArray[np.int64], NDArray[np.int64]], say: Callable[[int], bytes],
        *, nest: bool = False,
    ) -> Iterator[_Track]:  # fmt: skip
        """Give as many tracks of one name as the slices need; Perfetto draws them as one."""
        for placed in rows(*of, nest=nest):
            track = made.track(name, parent)
            track.slices, track.say = placed, say
            yield track

    if notes:
        group = made.track("findings of gapless")
        yield group
        for note in notes:
            told = texts.name(note.name) + texts.category("finding") + _facts(texts, note.facts, texts.value)
            yield from lanes(note.name, group.uuid, (note.spans[:, 0], note.spans[:, 1]), lambda row, told=told: told)

    ops, flows = timeline.ops, _Flows(timeline)
    engine, say = engine_of(ops), _Operations(timeline, texts, flows)
    for row, device in enumerate(timeline.devices):
        group = made.track(f"GPU {device.id}" + (f": {device.name}" if device.name else ""))
        yield group
        for served in DEVICE_ENGINES:
            mine = np.flatnonzero((ops.device == row) & (engine == served))
            yield from lanes(
                _LABELS[served], group.uuid, (ops.start[mine], ops.end[mine]),
                lambda i, mine=mine: say.operation(int(mine[i]), tied=False),
            )  # fmt: skip
        for number_, stream in enumerate(timeline.streams):
            if stream.device != row:
                continue
            mine = np.flatnonzero((ops.stream == number_) & (ops.device == row))
            known = [
                stream.name if stream.name not in (str(stream.id), f"stream {stream.id}") else "",
                _STREAM_KINDS.get(stream.kind, ""),
            ]
            about = ", ".join(word for word in known if word)
            name = f"stream {stream.id}" + (f" ({about})" if about else "")
            yield from lanes(
                name, group.uuid, (ops.start[mine], ops.end[mine]),
                lambda i, mine=mine: say.operation(int(mine[i]), tied=True),
            )  # fmt: skip
            marks = np.flatnonzero(
                (timeline.marks.stream == number_) & np.isin(timeline.marks.kind, (MarkKind.RECORD, MarkKind.WAIT))
            )
            if len(marks):
                track = made.track(f"events in stream {stream.id}", group.uuid)
                at = timeline.marks.end[marks]
                track.slices = [(int(at[i]), i, True) for i in np.argsort(at, kind="stable").tolist()]
                track.say, track.instant = (lambda i, marks=marks: say.mark(int(marks[i]))), True
                yield track
    yield from _host(timeline, texts, flows, made.track, lanes)


def _host(
    timeline: Timeline, texts: _Texts, flows: _Flows, track: Callable[..., _Track],
    lanes: Callable[..., Iterator[_Track]],
) -> Iterator[_Track]:  # fmt: skip
    """Give the tracks of host threads: named ranges, and the calls inside them."""
    calls, ranges = timeline.calls, timeline.ranges
    cuda, kinds = texts.category("cuda call"), {int(kind): texts.category(word) for kind, word in _RANGES.items()}
    names, kind_of, called_names = ranges.name.tolist(), ranges.kind.tolist(), calls.name.tolist()
    groups: dict[int, _Track] = {}
    for number_, thread in enumerate(timeline.threads):
        called, named = (np.flatnonzero(table.thread == number_) for table in (calls, ranges))
        if not len(called) + len(named):
            continue
        if thread.pid not in groups:
            groups[thread.pid] = track(f"host process {thread.pid}" if thread.pid > 0 else "host")
            yield groups[thread.pid]
        # Ranges first: of two with the same times the range is the outer one.
        starts = np.concatenate((ranges.start[named], calls.start[called]))
        ends = np.concatenate((ranges.end[named], calls.end[called]))

        def say(row: int, called: NDArray[np.int64] = called, named: NDArray[np.int64] = named) -> bytes:
            if row < len(named):
                at = int(named[row])
                return number(10, names[at] + 1) + kinds[kind_of[at]]
            at = int(called[row - len(named)])
            return number(10, called_names[at] + 1) + cuda + flows.of_call(at)

        name = f"thread {thread.tid}" if thread.tid >= 0 else "thread"
        name += f" {thread.name}" if thread.name and thread.name != str(thread.tid) else ""
        yield from lanes(name, groups[thread.pid].uuid, (starts, ends), say, nest=True)


class _Flows:
    """The arrows: from a call to each operation that it issued, from a record to each wait for it."""

    def __init__(self, timeline: Timeline) -> None:
        ops = timeline.ops
        self._tied = (ops.call >= 0).tolist()
        issued = np.flatnonzero(ops.call >= 0)
        issued = issued[np.argsort(ops.call[issued], kind="stable")]
        self._issued = issued.tolist()
        self._of_call = np.searchsorted(ops.call[issued], np.arange(len(timeline.calls) + 1)).tolist()
        self._after = len(ops) + 1
        self._to_wait = waits_for_records(timeline)
        self._from_record: dict[int, list[int]] = {}
        for wait, record in self._to_wait.items():
            self._from_record.setdefault(record, []).append(wait)

    def of_call(self, call: int) -> bytes:
        """Encode the beginnings of the arrows of a call; an arrow's number is its operation's, from 1 on."""
        issued = self._issued[self._of_call[call] : self._of_call[call + 1]]
        return b"".join([fixed64(47, op + 1) for op in issued]) if issued else b""

    def to_op(self, op: int) -> bytes:
        return fixed64(48, op + 1) if self._tied[op] else b""

    def of_mark(self, mark: int) -> bytes:
        """Encode the arrows of a record or a wait."""
        if mark in self._to_wait:
            return fixed64(48, self._after + mark)
        return b"".join(fixed64(47, self._after + wait) for wait in self._from_record.get(mark, ()))


class _Operations:
    """What is told of operations and marks."""

    def __init__(self, timeline: Timeline, texts: _Texts, flows: _Flows) -> None:
        self._timeline, self._texts, self._flows = timeline, texts, flows
        self._columns = [timeline.ops.column(name).tolist() for name in _COLUMNS]
        self._told: dict[int, bytes] = {}
        self._categories = {int(kind): texts.category(kind.name.lower()) for kind in OpKind}
        self._marks = {MarkKind.RECORD: "record event", MarkKind.WAIT: "wait for event"}
        for row in np.flatnonzero(np.isin(timeline.marks.kind, list(self._marks))).tolist():
            texts.name(self._mark_name(row))  # numbered before any packet is written
        for name in _FACTS:
            texts.fact(name)

    def operation(self, row: int, *, tied: bool) -> bytes:
        """Encode name, category and facts of an operation, *tied* to its call by an arrow."""
        if (told := self._told.pop(row, None)) is None:  # each is asked for twice: engine and stream
            told = self._told[row] = self._tell(row)
        return told + (self._flows.to_op(row) if tied else b"")

    def mark(self, row: int) -> bytes:
        """Encode a record or a wait."""
        return self._texts.name(self._mark_name(row)) + self._flows.of_mark(row)

    def _mark_name(self, row: int) -> str:
        marks = self._timeline.marks
        event = f" {marks.event[row]}" if marks.event[row] >= 0 else ""
        return self._marks[MarkKind(int(marks.kind[row]))] + event

    def _tell(self, row: int) -> bytes:
        kind, name, stream, start, end, size, src, dst, grid, block, registers, shared, occupancy, graph, id_ = (
            column[row] for column in self._columns
        )
        facts: dict[str, str | int | float] = {"stream": self._timeline.streams[stream].id}
        if kind == OpKind.KERNEL:
            for about, shape in (("grid", grid), ("block", block)):
                if shape[0] >= 0:
                    facts[about] = " × ".join(map(str, shape))
            told = {"registers": registers, "shared memory": shared}
            facts |= {about: value for about, value in told.items() if value >= 0}
            if occupancy == occupancy:  # NaN is unknown
                facts["occupancy"] = occupancy
        elif size >= 0:
            facts["bytes"] = size
            if end > start:
                facts["GB/s"] = size / (end - start)
        for about, memory in (("from", src), ("to", dst)):
            if memory != MemoryKind.UNKNOWN:
                facts[about] = _MEMORIES[memory]
        facts |= {about: value for about, value in {"graph": graph, "correlation": id_}.items() if value > 0}
        shown = number(10, name + 1) if name >= 0 else b""
        return shown + self._categories[kind] + _facts(self._texts, facts)


_COLUMNS = (
    "kind", "name", "stream", "start", "end", "bytes", "src", "dst", "grid", "block", "registers", "shared",
    "occupancy", "graph", "correlation",
)  # fmt: skip
_MEMORIES = [kind.name.lower() for kind in MemoryKind]
_FACTS = (
    "stream", "grid", "block", "registers", "shared memory", "occupancy", "bytes", "GB/s", "from", "to", "graph",
    "correlation",
)  # fmt: skip


def _facts(
    texts: _Texts, facts: Mapping[str, str | int | float], say: Callable[[str], bytes] = lambda words: text(6, words)
) -> bytes:
    """Encode DebugAnnotations, texts as *say* does."""
    parts: list[bytes] = []
    for name, value in facts.items():
        if isinstance(value, str):
            told = say(value)
        elif isinstance(value, int):
            told = number(4, value)
        else:
            told = double(5, value)
        parts.append(message(4, texts.fact(name) + told))
    return b"".join(parts)
