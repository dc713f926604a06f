"""Events that a timeline tells of: which call recorded which one, which stream and which call waited for it.

Only events that something waits for are of use. Every record is an event of its own, so that a wait means the record
that it meant (R5.2), however often the program used the same event.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gapless.model.kinds import CallKind
from gapless.timeline.timeline import MarkKind

from .work import Work

NOTHING, UNKNOWN = -1, -2


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEvents:
    """Events by number, by rows of ``timeline.calls`` and of the Work's operations; streams are rows of streams."""

    count: int = 0
    records: dict[int, tuple[int, int]] = field(default_factory=dict[int, "tuple[int, int]"])  # call: stream, event
    behind: dict[int, int] = field(default_factory=dict[int, int])  # operation: event recorded right behind it
    waits: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, "list[tuple[int, int]]"])  # call: the same
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
    found.records.update(number.records)
    found.behind.update(number.operations)
    return KnownEvents(count=number.count, records=found.records, behind=found.behind, waits=found.waits,
                       syncs=found.syncs, streams=found.streams)  # fmt: skip


class _Numbers:
    """Numbers events as they are asked for."""

    def __init__(self, work: Work) -> None:
        self.count = 0
        self.records: dict[int, tuple[int, int]] = {}
        self.operations: dict[int, int] = {}
        self._work = work
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
        work = self._work
        given = np.flatnonzero((work.ops.stream == stream) & (work.issue < time) & (work.ops.call >= 0))
        return self.behind(int(given[np.argmax(work.issue[given])])) if len(given) else NOTHING

    def behind(self, op: int) -> int:
        """Give the event that is recorded right behind an operation."""
        if op not in self.operations:
            self.operations[op] = self._next()
        return self.operations[op]

    def _next(self) -> int:
        self.count += 1
        return self.count - 1


__all__ = ["KnownEvents", "known_events"]
