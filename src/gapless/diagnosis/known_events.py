"""Events that a timeline tells of or shows: which call recorded which one, which stream and which call waited for it.

Only events that something waits for are of use. Every record is an event of its own, so that a wait means the record
that it meant (R5.2), however often the program used the same event.

Recordings name all events. Most traces name none; two things still show a stream that waits for another: an operation
that starts the moment another stream's has ended, although all that is known had let it start long before; and a record
with a wait straight behind it (``wait_stream``), between work of two streams that kept that order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from gapless.model.kinds import CallKind
from gapless.timeline.timeline import MarkKind, Timeline

from .work import HOP, InStream, Work

NOTHING, UNKNOWN = -1, -2


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEvents:
    """Events by number, by rows of ``timeline.calls`` and of the Work's operations; streams are rows of streams."""

    count: int = 0
    records: dict[int, tuple[int, int]] = field(default_factory=dict[int, "tuple[int, int]"])  # call: stream, event
    behind: dict[int, int] = field(default_factory=dict[int, int])  # operation: event recorded right behind it
    before: dict[int, int] = field(default_factory=dict[int, int])  # operation: event that it waits for
    waits: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, "list[tuple[int, int]]"])  # call: such
    syncs: dict[int, int] = field(default_factory=dict[int, int])  # call that synchronises with an event: event
    streams: dict[int, int] = field(default_factory=dict[int, int])  # call that synchronises with a stream: stream


def known_events(work: Work) -> KnownEvents:
    """Find the events of one device's work.

    Where the timeline does not say which event a call waited for, an event behind the operation that it waited for
    stands for it; a wait of a stream for an event of which no record is known waits for all that its stream was given
    before (``Marks.waits_on``).
    """
    found = KnownEvents()
    number = _Numbers(work)
    marks = work.timeline.marks
    mine = [stream.device == work.device for stream in work.timeline.streams]
    for row in np.flatnonzero((marks.kind == MarkKind.SYNC_STREAM) & (marks.call >= 0) & (marks.stream >= 0)).tolist():
        if mine[marks.stream[row]]:
            found.streams[int(marks.call[row])] = int(marks.stream[row])
    for row in np.flatnonzero((marks.kind == MarkKind.WAIT) & (marks.call >= 0) & (marks.stream >= 0)).tolist():
        stream, other = int(marks.stream[row]), int(marks.waits_on[row])
        if not mine[stream] or other < 0 or not mine[other]:
            continue
        event = number.of_record(int(marks.record[row]), other)
        if event == UNKNOWN:
            event = number.of_last_before(int(work.calls.start[marks.call[row]]), other)
        if event >= 0:
            found.waits.setdefault(int(marks.call[row]), []).append((stream, event))
    for row in np.flatnonzero((marks.kind == MarkKind.SYNC_EVENT) & (marks.call >= 0)).tolist():
        other = int(marks.waits_on[row])
        event = number.of_record(int(marks.record[row]), other) if other >= 0 and mine[other] else UNKNOWN
        if event >= 0:
            found.syncs[int(marks.call[row])] = event
    for call in np.flatnonzero((work.calls.kind == CallKind.SYNC_EVENT) & (work.blocked_on >= 0)).tolist():
        if call not in found.syncs and work.ops.call[work.blocked_on[call]] >= 0:
            found.syncs[call] = number.behind(int(work.blocked_on[call]))
    if not tells_events(work.timeline):
        for op, other in ((_by_calls(work) if not found.waits else {}) | _by_time(work)).items():
            found.before[op] = number.behind(other)
    return replace(found, count=number.count, records=number.records, behind=number.operations)


def tells_events(timeline: Timeline) -> bool:
    """Tell whether a timeline has every wait of a stream for an event, so that none need be guessed.

    Recordings see the calls of the runtime and of the driver alike. torch.profiler sees no event calls of the driver.
    """
    told = timeline.format in ("gapless", "nsys") and len(timeline.calls) > 0
    return told and all(gap.what not in _BLIND for gap in timeline.unknown)


_BLIND = ("event-waits", "host-calls", "records-dropped", "graph-nodes", "kind-refused")


def _by_time(work: Work) -> dict[int, int]:
    """Find operations that started the moment another stream's ended, long after all that is known had let them.

    Gives the operation that each waited for, by rows of the Work's operations.
    """
    ops = work.ops
    ready = np.maximum.reduce([work.launched, work.stream_ready, work.fence_ready, work.event_ready, work.engine_ready])
    late = np.flatnonzero((ops.start - ready > HOP) & ~work.pageable() & (ops.call >= 0))
    by_end = np.argsort(ops.end, kind="stable")
    ends = ops.end[by_end]
    found: dict[int, int] = {}
    for op, start, since in zip(late.tolist(), ops.start[late].tolist(), ready[late].tolist(), strict=True):
        first = int(np.searchsorted(ends, max(start - HOP, since + 1)))
        for other in by_end[first : int(np.searchsorted(ends, start, side="right"))][::-1].tolist():
            if ops.stream[other] != ops.stream[op] and work.issue[other] < work.issue[op] and ops.call[other] >= 0:
                found[op] = other
                break
    return found


def _by_calls(work: Work) -> dict[int, int]:
    """Find records with a wait straight behind them, between work of two streams, where the order was kept.

    Gives for the first operation behind the wait the last one before the record.
    """
    calls, ops = work.calls, work.ops
    issued = np.full(len(calls), -1)
    rows = np.flatnonzero(ops.call >= 0)
    issued[ops.call[rows]] = rows
    kinds = calls.kind
    matter = np.flatnonzero(np.isin(kinds, (CallKind.RECORD, CallKind.WAIT_EVENT)) | (issued >= 0))
    found: dict[int, int] = {}
    for thread in np.unique(calls.thread[matter]).tolist() if np.any(kinds == CallKind.WAIT_EVENT) else []:
        mine = matter[calls.thread[matter] == thread].tolist()
        last, record, waits = -1, -1, -1
        for before, call in zip([-1, *mine], mine, strict=False):
            if issued[call] >= 0:
                op = int(issued[call])
                if waits >= 0 and ops.stream[waits] != ops.stream[op] and ops.end[waits] <= ops.start[op]:
                    found[op] = waits
                last, waits = op, -1
            elif kinds[call] == CallKind.RECORD:
                record = last
            elif before >= 0 and kinds[before] == CallKind.RECORD and record >= 0:
                waits = record
    return found


class _Numbers:
    """Numbers events as they are asked for."""

    def __init__(self, work: Work) -> None:
        self.count = 0
        self.records: dict[int, tuple[int, int]] = {}
        self.operations: dict[int, int] = {}
        self._work = work
        self._streams: dict[int, InStream] = {}
        calls = work.calls
        rows = np.flatnonzero(calls.kind == CallKind.RECORD)
        self._call_of = dict(zip(calls.correlation[rows].tolist(), rows.tolist(), strict=True))
        self._first = int(work.issue[work.ops.call >= 0].min(initial=np.iinfo(np.int64).max))

    def of_record(self, correlation: int, stream: int) -> int:
        """Give the event of a record by its correlation, UNKNOWN or NOTHING (recorded before all work)."""
        call = self._call_of.get(correlation, -1) if correlation > 0 else -1
        if call < 0:
            return UNKNOWN
        if self._work.calls.start[call] < self._first:
            return NOTHING
        if call not in self.records:
            self.records[call] = stream, self._next()
        return self.records[call][1]

    def of_last_before(self, time: int, stream: int) -> int:
        """Give an event behind the last operation that a stream had been given at a time; NOTHING without one."""
        if stream not in self._streams:
            ops = self._work.ops
            rows = np.flatnonzero((ops.stream == stream) & (ops.call >= 0))
            self._streams[stream] = InStream(ops, self._work.issue, rows)
        last = self._streams[stream].last_before(time)
        return self.behind(last) if last >= 0 else NOTHING

    def behind(self, op: int) -> int:
        """Give the event that is recorded right behind an operation."""
        if op not in self.operations:
            self.operations[op] = self._next()
        return self.operations[op]

    def _next(self) -> int:
        self.count += 1
        return self.count - 1


__all__ = ["KnownEvents", "known_events"]
