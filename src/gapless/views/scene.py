"""What the browser draws, as JSON: lanes of intervals, arrows between them, what belongs together.

The drawing module (``web/lanes.js``) takes a scene, which is this object:

``version``
    1.
``title``
    What is shown, for a screen reader: ``loop.json.gz on NVIDIA H200``.
``start``, ``end``
    The stretch that is shown at first. All times are whole ns from the scene's own zero, the first work on the device.
``strings``, ``kinds``
    The texts that columns refer to by number; for each kind of interval ``[words, look]``. The looks are ``sm``,
    ``h2d``, ``d2h``, ``peer``, ``memory``, ``host``, ``call``, ``block``, ``alloc``, ``range``, ``step``, ``record``,
    ``wait`` and ``finding``.
``items``
    Columns over all intervals: ``start``, ``length``, ``name`` (a string), ``kind``, ``bytes`` (-1 none), ``about`` (a
    string that says why it started when it did; -1 none).
``lanes``
    From top to bottom, each ``{label, short, group, look, rows, tracks, track, glyphs}``. ``group`` is ``findings``,
    ``engines``, ``streams``, ``host`` or ``ranges``; ``rows`` are the lane's items in order of start, ``track``
    says for each in which of the ``tracks`` under one another it lies; ``glyphs`` are records and waits of events,
    drawn on top. An item may be in several lanes. The lane of finding k (from 0) is the k-th of its group.
``arrows``
    ``kinds`` as above with looks ``launch``, ``event``, ``fence`` and ``block``; columns ``from``, ``to`` (items),
    ``kind``. An arrow leads from the end of an item to the start of another; ``launch`` from start to start, ``block``
    from end to end.
``path``
    The items of the critical path, first to last.
``notes``
    What is not drawn, a sentence each.
``data``
    All columns; see ``packing.py``. A column stands in the object as ``[offset, count, bytes a value, differences]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, Engine, OpKind, StreamKind
from gapless.timeline.measure import DEVICE_ENGINES, engine_of, union
from gapless.timeline.timeline import MarkKind, RangeKind, Timeline
from gapless.views import wording
from gapless.views.links import Arrow, Links
from gapless.views.packing import Packer
from gapless.views.tracks import nested, packed

Ints = NDArray[np.int64]
Scene = dict[str, Any]

VERSION = 1
_ENGINES = {
    Engine.H2D: ("H2D", "h2d"),
    Engine.SM: ("SM", "sm"),
    Engine.D2H: ("D2H", "d2h"),
    Engine.PEER: ("P2P", "peer"),
}
# Lanes of a kind, and tracks of a lane; beyond that the least busy and the deepest are left out, which is said.
MOST_STREAMS, MOST_THREADS, MOST_TRACKS, DEEPEST = 32, 12, 4, 16


_ARROWS = (("issued by", "launch"), ("event wait", "event"), ("legacy fence", "fence"), ("kept waiting", "block"))

# The kinds of items: those of OpKind, then classes of calls, then those of RangeKind, then findings.
_OPS = (
    ("kernel", "sm"), ("copy to the device", "h2d"), ("copy to the host", "d2h"), ("copy on the device", "memory"),
    ("copy between devices", "peer"), ("copy on the host", "host"), ("memset", "memory"), ("host function", "host"),
    ("event record", "record"), ("event wait", "wait"), ("allocation", "memory"), ("free", "memory"), ("graph", "sm"),
)  # fmt: skip
_CALLS = (("call", "call"), ("waiting call", "block"), ("allocating call", "alloc"), ("host work", "host"))
_RANGES = (
    ("operator", "range"), ("Python frame", "range"), ("annotation", "range"), ("NVTX range", "range"),
    ("step", "step"), ("profiler", "call"), ("loading code", "call"), ("staging", "host"),
)  # fmt: skip
_KINDS = (*_OPS, *_CALLS, *_RANGES, ("finding", "finding"))
_CALL, _RANGE, _FINDING = len(_OPS), len(_OPS) + len(_CALLS), len(_KINDS) - 1

_NONE: Ints = np.zeros(0, np.int64)
_RANGE_LANES = (
    ((RangeKind.STEP, RangeKind.ANNOTATION, RangeKind.NVTX, RangeKind.STAGING), "ranges"),
    ((RangeKind.CPU_OP, RangeKind.OVERHEAD), "operators"),
    ((RangeKind.PYTHON,), "Python frames"),
)

_BLOCKING = (CallKind.SYNC_DEVICE, CallKind.SYNC_STREAM, CallKind.SYNC_EVENT, CallKind.COPY_SYNC, CallKind.RECEIVE)
_ALLOCATING = (
    CallKind.MALLOC, CallKind.FREE, CallKind.HOST_MALLOC, CallKind.HOST_FREE, CallKind.HOST_REGISTER,
    CallKind.HOST_UNREGISTER,
)  # fmt: skip
_CLASS_OF_CALL = np.zeros(len(CallKind), np.int64)
_CLASS_OF_CALL[list(_BLOCKING)] = 1
_CLASS_OF_CALL[list(_ALLOCATING)] = 2
_CLASS_OF_CALL[[CallKind.HOST_WORK, CallKind.HOST_READ, CallKind.HOST_WRITE]] = 3

_STREAM_WORDS = {
    StreamKind.LEGACY: "default", StreamKind.PER_THREAD: "per-thread", StreamKind.BLOCKING: "blocking",
    StreamKind.NON_BLOCKING: "non-blocking",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Highlight:
    """Where one finding shows: its title and its spans, ``(n, 2)`` ns on the timeline's clock."""

    title: str
    spans: Ints


def scene_of(
    timeline: Timeline, *, title: str = "", devices: Sequence[int] | None = None, window: tuple[int, int] | None = None,
    highlights: Sequence[Highlight] = (), links: Links | None = None, host: bool = True,
) -> Scene:  # fmt: skip
    """Give the scene of a timeline.

    *devices* are rows of ``timeline.devices`` (by default all that worked), *window* a stretch in ns on the timeline's
    clock (by default all of the devices' work). Without *host* only engines and streams are drawn.
    """
    ops = timeline.ops
    shown = np.unique(ops.device).tolist() if devices is None else list(devices)
    mine = np.isin(ops.device, shown)
    if window is None:
        window = (int(ops.start[mine].min()), int(ops.end[mine].max())) if mine.any() else _of_host(timeline)
    start, end = window
    around = start - (end - start) // 10, end + (end - start) // 10
    maker = _Maker(timeline, origin=start)
    maker.highlights(highlights)
    rows = np.flatnonzero(mine & (ops.end > start) & (ops.start < end))
    rows = rows[np.argsort(ops.start[rows], kind="stable")]
    first = maker.ops(rows, links)
    maker.engines(rows, first, shown)
    maker.streams(rows, first, (ops.start, ops.end))
    if host:
        maker.calls(*around, links)
        maker.ranges(*around)
    maker.arrows(links)
    return maker.scene(wording.visible(title or timeline.source or "timeline"), max(end - start, 1))


def _of_host(timeline: Timeline) -> tuple[int, int]:
    tables = [table for table in (timeline.calls, timeline.ranges) if len(table)]
    if not tables:
        return 0, 1
    return min(int(t.start.min()) for t in tables), max(int(t.end.max()) for t in tables)


class _Maker:
    """Gathers items and lanes, then packs them."""

    def __init__(self, timeline: Timeline, *, origin: int) -> None:
        self._timeline, self._origin = timeline, origin
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._string = np.full(len(timeline.strings), -1, np.int64)  # number of each of the timeline's texts
        self._items: list[dict[str, Any]] = []
        self._count = 0
        self._lanes: list[dict[str, Any]] = []
        self._item_of_op = np.full(len(timeline.ops) + 1, -1, np.int64)  # the last one for the row -1
        self._item_of_call = np.full(len(timeline.calls) + 1, -1, np.int64)
        self._arrows: list[tuple[Arrow, Ints, Ints]] = []
        self._path: Ints = _NONE
        self._notes: list[str] = []

    def _text(self, text: str) -> int:
        text = wording.visible(text)
        number = self._numbers.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
        return number

    def _names(self, names: NDArray[np.int32]) -> Ints:
        """Number the texts that a column refers to."""
        for row in np.flatnonzero(np.bincount(names[names >= 0], minlength=1)).tolist():
            if self._string[row] < 0:
                self._string[row] = self._text(self._timeline.strings[row])
        return (
            np.where(names >= 0, self._string[np.maximum(names, 0)], -1)
            if len(self._string)
            else names.astype(np.int64)
        )

    def _add(self, start: Any, end: Any, name: Any, kind: Any, size: Any = -1, about: Any = -1) -> int:
        """Add items; give the number of the first."""
        first, count = self._count, len(start)
        columns = {"name": name, "kind": kind, "bytes": size, "about": about}
        self._items.append(
            {"start": start - self._origin, "length": np.maximum(end - start, 0)}
            | {key: np.broadcast_to(np.asarray(values, np.int64), count) for key, values in columns.items()}
        )
        self._count += count
        return first

    def _lane(self, group: str, label: str, short: str, look: str, items: Ints, track: Ints, glyphs: Ints) -> None:
        self._lanes.append({
            "group": group, "label": wording.visible(label), "short": wording.visible(short), "look": look,
            "rows": items, "track": track, "tracks": int(track.max(initial=0)) + 1, "glyphs": glyphs,
        })  # fmt: skip

    # Parts

    def highlights(self, highlights: Sequence[Highlight]) -> None:
        """Add a lane for each finding."""
        for number, highlight in enumerate(highlights, 1):
            merged = union(highlight.spans[:, 0], highlight.spans[:, 1])
            first = self._add(merged[:, 0], merged[:, 1], self._text(highlight.title), _FINDING)
            rows = first + np.arange(len(merged))
            self._lane("findings", highlight.title, str(number), "finding", rows, np.zeros(len(rows), np.int64), _NONE)

    def ops(self, rows: Ints, links: Links | None) -> int:
        """Add the operations; give the number of the first."""
        ops = self._timeline.ops.take(rows)
        about: Any = -1
        if links is not None and links.reason is not None and len(links.reasons):
            numbers = np.array([self._text(reason) for reason in links.reasons] + [-1])
            about = numbers[links.reason[rows]]
        first = self._add(ops.start, ops.end, self._names(ops.name), ops.kind, ops.bytes, about)
        self._item_of_op[rows] = first + np.arange(len(rows))
        return first

    def engines(self, rows: Ints, first: int, devices: Sequence[int]) -> None:
        """Add a lane for each engine of each device that has work; H2D, SM and D2H always."""
        ops = self._timeline.ops
        served, device = engine_of(ops)[rows], ops.device[rows]
        for number in devices:
            for engine in DEVICE_ENGINES:
                mine = np.flatnonzero((served == engine) & (device == number))
                if engine is Engine.PEER and not len(mine):
                    continue
                label, look = _ENGINES[engine]
                track = packed(ops.start[rows[mine]], ops.end[rows[mine]], MOST_TRACKS)
                on = f" of device {self._timeline.devices[number].id}" if len(devices) > 1 else ""
                self._lane("engines", label + on, label, look, first + mine, track, _NONE)

    def streams(self, rows: Ints, first: int, times: tuple[Ints, Ints]) -> None:
        """Add a lane for each stream, those with most work where there are many; with their records and waits."""
        timeline, (start, end) = self._timeline, times
        streams = timeline.ops.stream[rows]
        spent = np.bincount(streams, weights=(end - start)[rows], minlength=len(timeline.streams))
        used = np.flatnonzero(np.bincount(streams, minlength=len(timeline.streams)))
        kept = np.sort(used[np.argsort(-spent[used], kind="stable")][:MOST_STREAMS])
        for number in kept.tolist():
            mine = np.flatnonzero(streams == number)
            info = timeline.streams[number]
            name = info.name or f"stream {info.id}"
            kind = _STREAM_WORDS.get(info.kind, "")
            label = f"{name} ({kind}{', inferred' if info.inferred else ''})" if kind and kind not in name else name
            track = packed(start[rows[mine]], end[rows[mine]], MOST_TRACKS)
            short = name if info.name and not name.startswith("stream ") else f"s{info.id}"
            self._lane("streams", label, short, "stream", first + mine, track, self._marks(number))
        if len(used) > len(kept):
            self._notes.append(f"{len(used) - len(kept)} more streams with less work are not drawn.")

    def _marks(self, stream: int) -> Ints:
        """Add the records and waits of a stream."""
        marks = self._timeline.marks
        rows = np.flatnonzero((marks.stream == stream) & np.isin(marks.kind, (MarkKind.RECORD, MarkKind.WAIT)))
        rows = rows[np.argsort(marks.start[rows], kind="stable")]
        kind = np.where(marks.kind[rows] == MarkKind.RECORD, OpKind.RECORD, OpKind.WAIT)
        names = [self._text(f"event {event}" if event >= 0 else "event") for event in marks.event[rows].tolist()]
        return self._add(marks.start[rows], marks.end[rows], names, kind) + np.arange(len(rows))

    def calls(self, since: int, until: int, links: Links | None) -> None:
        """Add a lane for each host thread that made calls in a stretch of time; those with most calls."""
        calls = self._timeline.calls
        kind = _CLASS_OF_CALL[calls.kind]
        for arrow, _, held in links.waits if links is not None else ():
            if arrow is Arrow.BLOCK:  # a copy of pageable memory waits although its name says Async
                kind[held] = np.where(kind[held] == 0, 1, kind[held])
        rows = np.flatnonzero((calls.end >= since) & (calls.start <= until))
        rows = rows[np.argsort(calls.start[rows], kind="stable")]
        for thread, mine in self._by_thread(calls.thread[rows], "make calls"):
            chosen = rows[mine]
            first = self._add(calls.start[chosen], calls.end[chosen], self._names(calls.name[chosen]),
                              _CALL + kind[chosen])  # fmt: skip
            items = first + np.arange(len(chosen))
            self._item_of_call[chosen] = items
            track = packed(calls.start[chosen], calls.end[chosen], MOST_TRACKS)
            label, short = self._thread(thread)
            self._lane("host", label, short, "call", items, track, _NONE)

    def ranges(self, since: int, until: int) -> None:
        """Add lanes for the named stretches of each thread: what the program marked, operators, Python frames."""
        ranges = self._timeline.ranges
        for kinds, what in _RANGE_LANES:
            rows = np.flatnonzero(np.isin(ranges.kind, kinds) & (ranges.end >= since) & (ranges.start <= until))
            rows = rows[np.lexsort((-ranges.end[rows], ranges.start[rows]))]
            for thread, mine in self._by_thread(ranges.thread[rows], f"have {what}"):
                chosen = rows[mine]
                depth = nested(ranges.start[chosen], ranges.end[chosen])
                if deep := int((depth >= DEEPEST).sum()):
                    self._notes.append(f"{deep:,} {what} nested more than {DEEPEST} deep are not drawn.")
                    chosen, depth = chosen[depth < DEEPEST], depth[depth < DEEPEST]
                start, end = np.maximum(ranges.start[chosen], since), np.minimum(ranges.end[chosen], until)
                first = self._add(start, end, self._names(ranges.name[chosen]), _RANGE + ranges.kind[chosen])
                label, short = self._thread(thread)
                self._lane(
                    "ranges",
                    f"{what} of {label}",
                    f"{what} {short}",
                    "range",
                    first + np.arange(len(chosen)),
                    depth,
                    _NONE,
                )

    def _by_thread(self, threads: NDArray[np.int32], what: str) -> Iterator[tuple[int, Ints]]:
        """Give the rows of each thread, for those that have most."""
        counts = np.bincount(threads, minlength=1)
        used = np.flatnonzero(counts)
        kept = used[np.argsort(-counts[used], kind="stable")][:MOST_THREADS]
        if len(used) > len(kept):
            self._notes.append(f"{len(used) - len(kept)} more threads {what} and are not drawn.")
        for thread in np.sort(kept).tolist():
            yield thread, np.flatnonzero(threads == thread)

    def _thread(self, number: int) -> tuple[str, str]:
        thread = self._timeline.threads[number]
        short = str(thread.tid) if len(self._timeline.threads) > 1 else "host"
        return (thread.name, thread.name) if thread.name else (f"thread {thread.tid}", short)

    def arrows(self, links: Links | None) -> None:
        """Add what leads from item to item, and the critical path."""
        ops = self._timeline.ops
        self._arrow(Arrow.LAUNCH, self._item_of_call[ops.call], self._item_of_op[:-1])
        if links is None:
            return
        for arrow, by, waiting in links.waits:
            to = self._item_of_call if arrow is Arrow.BLOCK else self._item_of_op
            self._arrow(arrow, self._item_of_op[by], to[waiting])
        if links.path is not None:
            path = links.path
            item = np.where(
                path >= 0, self._item_of_op[np.maximum(path, -1)], self._item_of_call[np.maximum(-1 - path, -1)]
            )
            self._path = item[item >= 0]

    def _arrow(self, arrow: Arrow, source: Ints, target: Ints) -> None:
        both = (source >= 0) & (target >= 0)
        self._arrows.append((arrow, source[both], target[both]))

    # The whole

    def scene(self, title: str, length: int) -> Scene:
        """Pack everything."""
        packer = Packer()
        items = {
            "start": packer.add(self._column("start"), differences=True),
            **{name: packer.add(self._column(name)) for name in ("length", "name", "kind", "bytes", "about")},
        }
        for lane in self._lanes:
            lane["rows"] = packer.add(lane["rows"], differences=True)
            lane["track"] = packer.add(lane["track"] if lane["tracks"] > 1 else _NONE)
            lane["glyphs"] = packer.add(lane["glyphs"], differences=True)
        kinds = np.concatenate([np.full(len(source), arrow) for arrow, source, _ in self._arrows])
        arrows = {
            "kinds": _ARROWS,
            "from": packer.add(np.concatenate([source for _, source, _ in self._arrows]), differences=True),
            "to": packer.add(np.concatenate([target for *_, target in self._arrows]), differences=True),
            "kind": packer.add(kinds),
        }
        return {
            "version": VERSION, "title": title, "start": 0, "end": length, "strings": self._texts, "kinds": _KINDS,
            "items": items, "lanes": self._lanes, "arrows": arrows, "path": packer.add(self._path, differences=True),
            "notes": self._notes, "data": packer.data,
        }  # fmt: skip

    def _column(self, name: str) -> Ints:
        return np.concatenate([_NONE, *(table[name] for table in self._items)])
