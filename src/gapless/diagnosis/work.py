"""One device's work, ready for questions: its operations in order, who issued them, and what each had to wait for.

``gather`` turns a Timeline into a Work: the operations of one device inside a window, each with its stream and engine
predecessors, the fences and event waits that held it, and the call that issued it. All times are ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import ENGINE_OF, MEMORY, OP, CallKind, Engine, OpKind, StreamKind
from gapless.model.ordering import StreamOrder
from gapless.timeline.timeline import Calls, MarkKind, Ops, Timeline

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

LONG_AGO = np.iinfo(np.int64).min // 4  # the time of a constraint that does not exist
LATER = np.iinfo(np.int64).max // 4

_ENGINE_OF_KIND = np.array([ENGINE_OF[kind] for kind in OpKind], np.int8)

# Calls that hold the host until device work is done (section 4 and table 3.1 of the specification).
WAITING_CALLS = (
    CallKind.SYNC_DEVICE,
    CallKind.SYNC_STREAM,
    CallKind.SYNC_EVENT,
    CallKind.COPY_SYNC,
    CallKind.FREE,
    CallKind.HOST_FREE,
    CallKind.HOST_UNREGISTER,
)

# An operation that starts within this time of the end of what it waited for was held by it; a longer pause has another
# reason.
HOP = 15_000
# A device clock and a host clock agree to a few microseconds in a trace.
CLOCK_SLACK = 3_000
# The data of a pageable upload land this much after its call has returned, at most (R3.12: 23 us on an H200).
STAGING_LAG = 30_000
# A launch that reaches an idle device starts it this long after the call began, where the trace shows no sample.
LAUNCH_LATENCY = 5_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """The operations of one device in order of start, with what constrained them. Rows are rows of ``ops``."""

    timeline: Timeline
    device: int
    start: int  # of the window
    end: int
    ops: Ops
    rows: Ints  # row of timeline.ops of each operation
    engine: NDArray[np.int8]  # Engine of each operation
    issue: Ints  # begin of the call that issued it; its own start where no call is known
    launched: Ints  # earliest moment at which the launch had reached the device
    stream_pred: Ints  # row of the operation before it in its stream, -1 none
    stream_ready: Ints  # when that one ended
    fence_pred: Ints  # row of the last operation that the legacy default stream's fence made it wait for, -1 none
    fence_ready: Ints
    event_pred: Ints  # row of the last operation before a recorded event that its stream waits for, -1 none
    event_ready: Ints
    engine_pred: Ints  # row of the operation whose end freed its engine, -1 none
    engine_ready: Ints
    launch_latency: int  # how long a launch takes to reach an idle device
    blocked_on: Ints  # a column over timeline.calls: the operation that the call waited for, -1 where it did not wait

    @property
    def calls(self) -> Calls:
        """The host calls of the whole timeline."""
        return self.timeline.calls

    def pageable(self) -> Bools:
        """Tell for each operation whether it is a copy from or to pageable host memory."""
        ops = self.ops
        return (((ops.kind == OP.H2D) & (ops.src == MEMORY.PAGEABLE))
                | ((ops.kind == OP.D2H) & (ops.dst == MEMORY.PAGEABLE)))  # fmt: skip


def gather(timeline: Timeline, device: int, start: int, end: int) -> Work:
    """Collect the work of one device (a row of ``timeline.devices``) that ran inside ``[start, end]`` ns."""
    rows = np.flatnonzero((timeline.ops.device == device) & (timeline.ops.start < end) & (timeline.ops.end > start))
    ops = timeline.ops.take(rows)
    order = np.argsort(ops.start, kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        ops, rows = ops.take(order), rows[order]
    engine = _ENGINE_OF_KIND[ops.kind]
    issue = np.minimum(at(timeline.calls.start, ops.call, LATER), ops.start)
    latency = _launch_latency((ops.start - issue)[ops.call >= 0])
    launched = _launched(timeline, ops, issue, latency)
    in_order = np.lexsort((ops.start, issue))
    stream_pred = _previous_in_stream(ops, in_order)
    fence_pred = _fences(timeline, ops, in_order)
    event_pred = _awaited(timeline, ops, issue)
    engine_pred = _previous_on_engine(ops, engine)
    return Work(
        timeline=timeline, device=device, start=start, end=end, ops=ops, rows=rows, engine=engine,
        issue=issue, launched=launched,
        stream_pred=stream_pred, stream_ready=_ends(ops, stream_pred),
        fence_pred=fence_pred, fence_ready=_ends(ops, fence_pred),
        event_pred=event_pred, event_ready=_ends(ops, event_pred),
        engine_pred=engine_pred, engine_ready=_ends(ops, engine_pred),
        launch_latency=latency, blocked_on=_blocked_on(timeline, ops, issue),
    )  # fmt: skip


def at(column: NDArray[Any], rows: NDArray[Any], none: int) -> NDArray[Any]:
    """Give the values of a column in some rows, and *none* for the row -1."""
    if not len(column):
        return np.full(len(rows), none)
    return np.where(rows >= 0, column[np.maximum(rows, 0)], none)


def _ends(ops: Ops, rows: Ints) -> Ints:
    return at(ops.end, rows, LONG_AGO)


def _launch_latency(delays: Ints) -> int:
    """How long a launch takes to reach an idle device: the quick end of what the trace shows, within reason."""
    if not len(delays):
        return LAUNCH_LATENCY
    return int(np.clip(np.quantile(delays, 0.05), 1_000, 2 * LAUNCH_LATENCY))


def _launched(timeline: Timeline, ops: Ops, issue: Ints, latency: int) -> Ints:
    """When each launch had reached the device.

    Soon after the call began; for a launch that took long (a module to load, a large graph) and for an upload that had
    to be staged (R3.12) at its end. Other copies may wait inside their call for what is before them, so the end of the
    call says nothing.
    """
    kind, returned = at(timeline.calls.kind, ops.call, -1), at(timeline.calls.end, ops.call, LATER)
    is_launch = np.isin(kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH))
    is_staged = (ops.kind == OP.H2D) & (ops.src == MEMORY.PAGEABLE)
    is_staged &= kind == CallKind.COPY_ASYNC  # the synchronous form waits for the device first
    at_its_end = (is_launch | is_staged) & (returned <= ops.start + CLOCK_SLACK)
    reached = np.where(at_its_end, np.maximum(issue + latency, returned), issue + latency)
    return np.where(ops.call >= 0, np.minimum(reached, ops.start), LONG_AGO)


def _previous_in_stream(ops: Ops, in_order: Ints) -> Ints:
    """R1.3: the operation issued before each one into the same stream."""
    previous = np.full(len(ops), -1)
    by_stream = in_order[np.argsort(ops.stream[in_order], kind="stable")]
    same = ops.stream[by_stream[1:]] == ops.stream[by_stream[:-1]]
    previous[by_stream[1:][same]] = by_stream[:-1][same]
    return previous


def _previous_on_engine(ops: Ops, engine: NDArray[np.int8]) -> Ints:
    """The operation on the same engine that ended last before each one started (R3.6; kernels share the SMs)."""
    previous = np.full(len(ops), -1)
    for one in np.unique(engine):
        rows = np.flatnonzero(engine == one)
        by_end = rows[np.argsort(ops.end[rows], kind="stable")]
        at = np.searchsorted(ops.end[by_end], ops.start[rows], side="right") - 1
        found = at >= 0
        candidate = by_end[np.maximum(at, 0)]
        found &= candidate != rows  # an operation of no length ends where it starts
        previous[rows[found]] = candidate[found]
    return previous


def _fences(timeline: Timeline, ops: Ops, in_order: Ints) -> Ints:
    """R2.1: the last-ending operation that the legacy default stream's fence puts before each one."""
    pred = np.full(len(ops), -1)
    kinds = [stream.kind for stream in timeline.streams]
    used = {kinds[row] for row in np.unique(ops.stream).tolist()}
    if StreamKind.LEGACY not in used or not used & {StreamKind.BLOCKING, StreamKind.PER_THREAD}:
        return pred
    order = StreamOrder()
    streams, ends = ops.stream.tolist(), ops.end.tolist()
    for op in in_order.tolist():
        stream = streams[op]
        fences = [waits for waits, by_fence in order.issue(op, stream, kinds[stream]) if by_fence]
        if fences:
            pred[op] = max(fences, key=ends.__getitem__)
    return pred


def _awaited(timeline: Timeline, ops: Ops, issue: Ints) -> Ints:
    """R5.2: the last operation covered by an event that each one's stream waits for, where the source tells."""
    pred = np.full(len(ops), -1)
    marks, calls = timeline.marks, timeline.calls
    waits = np.flatnonzero(
        (marks.kind == MarkKind.WAIT) & (marks.stream >= 0) & (marks.waits_on >= 0) & (marks.call >= 0)
    )
    if not len(waits):
        return pred
    record_time = {int(c): int(t) for c, t in zip(calls.correlation.tolist(), calls.start.tolist(), strict=True) if c}
    streams: dict[int, InStream] = {}
    for stream in {*np.unique(marks.stream[waits]).tolist(), *np.unique(marks.waits_on[waits]).tolist()}:
        streams[stream] = InStream(ops, issue, np.flatnonzero(ops.stream == stream))
    ends = ops.end.tolist()
    for row in waits.tolist():
        wait_time = int(calls.start[marks.call[row]])
        recorded = record_time.get(int(marks.record[row]), wait_time)
        first = streams[int(marks.stream[row])].first_after(wait_time)
        last = streams[int(marks.waits_on[row])].last_ending_before(recorded)
        if first >= 0 and last >= 0 and (pred[first] < 0 or ends[last] > ends[pred[first]]):
            pred[first] = last
    return pred


class InStream:
    """The operations of one stream in order of issue, for questions about moments."""

    def __init__(self, ops: Ops, issue: Ints, rows: Ints) -> None:
        self._rows = rows[np.argsort(issue[rows], kind="stable")]
        self._issue = issue[self._rows]
        ends = ops.end[self._rows]
        latest = np.maximum.accumulate(ends)
        self._latest = np.maximum.accumulate(np.where(ends == latest, np.arange(len(ends)), 0))

    def first_after(self, time: int) -> int:
        """Give the first operation issued after a time (ns); -1 none."""
        at = int(np.searchsorted(self._issue, time, side="right"))
        return int(self._rows[at]) if at < len(self._rows) else -1

    def last_before(self, time: int) -> int:
        """Give the last operation issued before a time (ns); -1 none."""
        at = int(np.searchsorted(self._issue, time, side="left")) - 1
        return int(self._rows[at]) if at >= 0 else -1

    def last_ending_before(self, time: int) -> int:
        """Give the operation that ends last of those issued before a time (ns); -1 none."""
        at = int(np.searchsorted(self._issue, time, side="left")) - 1
        return int(self._rows[self._latest[at]]) if at >= 0 else -1


def _blocked_on(timeline: Timeline, ops: Ops, issue: Ints) -> Ints:
    """For each host call the operation for which it kept its thread waiting, -1 where it did not."""
    calls = timeline.calls
    on = np.full(len(calls), -1)
    if not len(ops):
        return on
    # A copy with host memory that blocks waits for itself: sync forms, and pageable ones whose call outlasts the start
    # of the copy (table 3.1). One call, one copy; of several operations with one call none is told apart.
    own = np.full(len(calls), -1)
    own[ops.call[ops.call >= 0]] = np.flatnonzero(ops.call >= 0)
    rows = np.flatnonzero(np.isin(calls.kind, (CallKind.COPY_SYNC, CallKind.COPY_ASYNC)) & (own >= 0))
    mine = own[rows]
    # An upload from pageable memory returns when it is staged, a little before its data have landed (R3.12).
    waits = (
        (calls.end[rows] >= ops.end[mine] - STAGING_LAG)
        & (calls.end[rows] > ops.start[mine])
        & np.isin(ops.kind[mine], (OP.H2D, OP.D2H, OP.H2H))
    )
    # Table 3.1: with pinned memory the asynchronous form returns at once; a long call was busy with other things.
    pinned = (ops.src[mine] == MEMORY.PINNED) | (ops.dst[mine] == MEMORY.PINNED)
    waits &= ~(pinned & (calls.kind[rows] == CallKind.COPY_ASYNC))
    on[rows[waits]] = mine[waits]
    # Any other waiting call is over when the last operation it covers is: the one that ended last before it returned.
    rows = np.flatnonzero(np.isin(calls.kind, WAITING_CALLS) & (on < 0))
    on[rows] = _ended_last_before(calls, rows, ops, issue, np.arange(len(ops)))
    # A thread that waits for a stream or an event rather waits for what it has issued itself, if that is just done.
    rows = rows[np.isin(calls.kind[rows], (CallKind.SYNC_STREAM, CallKind.SYNC_EVENT))]
    issuers = at(calls.thread, ops.call, -1)
    for thread in np.unique(calls.thread[rows]).tolist():
        mine = rows[calls.thread[rows] == thread]
        own = _ended_last_before(calls, mine, ops, issue, np.flatnonzero(issuers == thread))
        just = (own >= 0) & (calls.end[mine] - at(ops.end, own, LONG_AGO) <= HOP)
        on[mine[just]] = own[just]
    return on


def _ended_last_before(calls: Calls, rows: Ints, ops: Ops, issue: Ints, among: Ints) -> Ints:
    """For each of some calls, which of some operations ended last before it returned; -1 if it need not have waited."""
    if not len(among):
        return np.full(len(rows), -1)
    by_end = among[np.argsort(ops.end[among], kind="stable")]
    place = np.searchsorted(ops.end[by_end], calls.end[rows] + CLOCK_SLACK, side="right") - 1
    last = by_end[np.maximum(place, 0)]
    waited = (place >= 0) & (ops.end[last] > calls.start[rows]) & (issue[last] <= calls.start[rows])
    return np.where(waited, last, -1)


__all__ = ["HOP", "LONG_AGO", "Bools", "Engine", "InStream", "Ints", "Work", "at", "gather"]
