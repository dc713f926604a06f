"""Who made the engine wait: the idle time of the engine that binds the run, shared out among what held the next
operation.

The engine with the most work of its own is the one that no repair can make faster than its work; all that a repair can
win is its idle time. So every gap of that engine is walked back from the operation that ended it. What held that
operation (stream order, a fence, an event, a busy engine, the host)? If it only waited for its input, the walk goes on
with the input. If it waited for something that need not have been so, the gap is charged to it, as far as the operation
could have started earlier without it; the rest of the gap goes to the next best constraint, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, Engine, OpKind
from gapless.timeline.measure import total, union

from .host import Activity, TimeIn, activities
from .work import HOP, LONG_AGO, Ints, Work


class Reason(IntEnum):
    """Why the binding engine stood still."""

    PIPELINE = 0  # filling or draining: the input was on its way and nothing avoidable held it
    REUSE = 1  # stream order or an event, behind work whose result it did not need: a stream or buffer used again
    FENCE = 2  # the legacy default stream's fence
    BLOCKED = 3  # the host was blocked in a call and issued the operation late
    HOST = 4  # the host was working, in its own code or in short calls, and issued the operation late
    ALLOCATING = 5  # the host issued late: it was allocating or freeing memory
    STAGING = 6  # the host issued late: it was copying pageable memory to or from the driver's buffers
    FIRST_USE = 7  # the host issued late: something was used for the first time
    SLOW_COPY = 8  # a copy of pageable memory ran below the rate of pinned memory
    UNEXPLAINED = 9  # ready by all that the timeline shows, and yet not started


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waits:
    """Idle time of the binding engine by reason, one row a charge. ``start`` and ``end`` give the gap charged from."""

    start: Ints  # ns
    end: Ints  # ns
    cost: Ints  # ns of the gap charged to this row; the rows of one gap never add up to more than the gap
    reason: NDArray[np.int8]
    op: Ints  # the operation that waited
    by: Ints  # the operation it waited for, -1 none
    call: Ints  # row of timeline.calls: that blocked the host, or that issued the operation late; -1 none

    def __len__(self) -> int:
        return len(self.cost)

    def take(self, rows: NDArray[Any]) -> Waits:
        """Give the waits of these rows (an index array or a mask)."""
        return Waits(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @staticmethod
    def join(parts: list[Waits]) -> Waits:
        """Give all rows of several Waits that cost anything."""
        joined = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Waits)}
        return Waits(**joined).take(joined["cost"] > 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blame:
    """The binding engine and its waits."""

    engine: Engine
    busy: int  # ns that the engine needs for its work
    idle: int  # ns of the window in which it did nothing
    turnaround: int  # ns of the idle time that lie between operations it did back to back: nobody's fault
    host_busy: int  # ns in which the issuing host thread was not blocked
    host_bound: bool  # the host needs longer for its own part than the engine for its own
    waits: Waits


def is_reuse(before: int, after: int) -> bool:
    """Tell whether an operation (an OpKind) behind another one in its stream needs none of its results.

    Data flow through H2D, kernel, D2H. An upload needs nothing that the device computed, and what comes after a
    download needs nothing of it: such an order only keeps the buffers apart, and more buffers in more streams lift it.
    """
    if before == after:
        return False
    return after == OpKind.H2D or before == OpKind.D2H


def blame(work: Work, needed: Ints) -> Blame:
    """Share out the idle time of the engine that binds.

    *needed* gives for each operation the ns that it would take at its best: less than its duration for a copy of
    pageable memory. The engine with the largest sum binds.
    """
    engine, busy = _binding_engine(work, needed)
    host_busy = _host_busy(work)
    host_bound = host_busy > busy
    gaps, waiting, turnaround = _gaps(work, engine)
    walker = _Walker(work, engine, host_bound)
    excess = _Excess(work, needed)
    for op in np.flatnonzero((work.engine == engine) & (excess.of > 0)).tolist():
        walker.charge_slow_copy(op, int(excess.of[op]))
    for (start, end), op in zip(gaps.tolist(), waiting.tolist(), strict=True):
        slow, copy = excess.within(start, end)
        walker.explain(start, end, op, slow, copy)
    idle = int((gaps[:, 1] - gaps[:, 0]).sum()) + turnaround
    return Blame(engine=engine, busy=busy, idle=idle, turnaround=turnaround, host_busy=host_busy, host_bound=host_bound,
                 waits=_by_activity(work, walker.waits()))  # fmt: skip


def _binding_engine(work: Work, needed: Ints) -> tuple[Engine, int]:
    """The engine that needs most time for its own work, and that time: the union of its operations less the excess."""
    best = Engine.SM, 0
    for engine in (Engine.SM, Engine.H2D, Engine.D2H, Engine.PEER):
        rows = np.flatnonzero(work.engine == engine)
        busy = total(union(work.ops.start[rows], work.ops.end[rows]))
        busy -= int((work.ops.end[rows] - work.ops.start[rows] - needed[rows]).sum())
        if busy > best[1]:
            best = engine, busy
    return best


class _Excess:
    """Time that copies take beyond what they need, and how much of it lies inside a gap."""

    def __init__(self, work: Work, needed: Ints) -> None:
        durations = work.ops.end - work.ops.start
        self.of = durations - needed
        rows = np.flatnonzero(self.of > 0)
        self._rows = rows[np.argsort(work.ops.start[rows], kind="stable")]
        self._start, self._end = work.ops.start[self._rows], work.ops.end[self._rows]
        self._share = self.of[self._rows] / np.maximum(durations[self._rows], 1)

    def within(self, start: int, end: int) -> tuple[int, int]:
        """The excess inside ``[start, end]`` in ns and the copy that has most of it (-1 where there is none)."""
        if not len(self._rows):
            return 0, -1
        first, last = np.searchsorted(self._end, start), np.searchsorted(self._start, end)
        if first >= last:
            return 0, -1
        inside = np.minimum(self._end[first:last], end) - np.maximum(self._start[first:last], start)
        excess = np.maximum(inside, 0) * self._share[first:last]
        return int(excess.sum()), int(self._rows[first + int(excess.argmax())])


def _host_busy(work: Work) -> int:
    """Time inside the window in which no host thread was blocked by the device."""
    blocked = np.flatnonzero(work.blocked_on >= 0)
    since = np.clip(work.blocked_from[blocked], work.start, work.end)
    until = np.clip(work.blocked_until[blocked], work.start, work.end)
    return work.end - work.start - total(union(since, until))


def _gaps(work: Work, engine: Engine) -> tuple[Ints, Ints, int]:
    """The engine's gaps as ``(n, 2)``, the operation that ended each, and the time lost between back-to-back ones."""
    rows = np.flatnonzero(work.engine == engine)
    reached = np.maximum.accumulate(np.concatenate(([work.start], work.ops.end[rows])))[:-1]
    begun = work.ops.start[rows]
    open_ = begun > reached
    rows, reached, begun = rows[open_], reached[open_], begun[open_]
    # An operation that was ready before the engine was free waited for the engine alone: that is turnaround.
    ready = np.maximum.reduce([work.stream_ready, work.fence_ready, work.event_ready, work.launched])[rows]
    soon = begun - reached <= HOP
    after_same = (work.stream_pred[rows] >= 0) & (work.engine[work.stream_pred[rows]] == engine)
    back_to_back = soon & ((ready < reached) | (after_same & (work.launched[rows] <= reached)))
    turnaround = int((begun - reached)[back_to_back].sum())
    keep = ~back_to_back
    return np.column_stack((reached[keep], begun[keep])), rows[keep], turnaround


_REASON_OF = {
    Activity.ALLOCATING: Reason.ALLOCATING,
    Activity.STAGING: Reason.STAGING,
    Activity.FIRST_USE: Reason.FIRST_USE,
}


def _by_activity(work: Work, waits: Waits) -> Waits:
    """Split the waits for a working host by what it was doing in the time just before it issued."""
    rows = np.flatnonzero(waits.reason == Reason.HOST)
    doing = activities(work)
    if not len(rows) or not doing.any():
        return waits
    until = work.ops.start[waits.op[rows]]
    since, threads = until - waits.cost[rows], work.calls.thread[waits.call[rows]]
    parts = [waits]
    for activity, reason in _REASON_OF.items():
        spent = TimeIn(work, doing == activity).between(threads, since, until)
        spent = np.minimum(spent, waits.cost[rows])
        waits.cost[rows] -= spent
        some = rows[spent > 0]
        parts.append(replace(waits.take(some), cost=spent[spent > 0], reason=np.full(len(some), reason, np.int8)))
    return Waits.join(parts)


class _Walker:
    """Walks gaps back and keeps the charges. Plain lists: element access in NumPy arrays is ten times slower."""

    def __init__(self, work: Work, engine: Engine, host_bound: bool) -> None:
        self.engine = int(engine)
        self.host_bound = host_bound
        self.window_start = work.start
        self.starts: list[int] = work.ops.start.tolist()
        self.kinds: list[int] = work.ops.kind.tolist()
        self.calls_of: list[int] = work.ops.call.tolist()
        self.issue: list[int] = work.issue.tolist()
        self.launched: list[int] = work.launched.tolist()
        self.preds = {
            Reason.REUSE: (work.stream_pred.tolist(), work.stream_ready.tolist()),
            Reason.FENCE: (work.fence_pred.tolist(), work.fence_ready.tolist()),
        }
        self.event: tuple[list[int], list[int]] = work.event_pred.tolist(), work.event_ready.tolist()
        self.on_engine: tuple[list[int], list[int]] = work.engine_pred.tolist(), work.engine_ready.tolist()
        self.blocks = _Blocks(work)
        by_end = np.argsort(work.ops.end, kind="stable")
        self.by_end: list[int] = by_end.tolist()
        self.sorted_ends: Ints = work.ops.end[by_end]
        self.streams: list[int] = work.ops.stream.tolist()
        self.ends: list[int] = work.ops.end.tolist()
        self.charges: list[tuple[int, int, int, int, int, int, int]] = []

    def waits(self) -> Waits:
        columns = np.array(self.charges, np.int64).reshape(-1, 7).T
        return Waits(start=columns[0], end=columns[1], cost=columns[2], reason=columns[3].astype(np.int8),
                     op=columns[4], by=columns[5], call=columns[6])  # fmt: skip

    def charge_slow_copy(self, op: int, excess: int) -> None:
        """Charge the excess of a copy on the binding engine itself."""
        self._charge(self.starts[op], self.ends[op], excess, excess, Reason.SLOW_COPY, op, op, self.calls_of[op])

    def explain(self, begin: int, end: int, op: int, slow: int, copy: int) -> None:
        """Charge the gap that *op* ended; *slow* ns of it are the excess of slow copies such as *copy*."""
        left = end - begin
        if slow > 0:
            left = self._charge(begin, end, min(slow, left), left, Reason.SLOW_COPY, op, copy, self.calls_of[copy])
        excluded: set[tuple[Reason, int]] = set()
        for _ in range(256):  # a walk of this length has left every sensible gap
            if left <= 0 or self.starts[op] <= self.window_start:
                break
            candidates = self._constraints(op, begin)
            open_ = [c for c in candidates if (c[1], c[3]) not in excluded]
            best = max(open_, default=None)
            if best is None:
                break
            time, reason, by, family = best
            pause = self.starts[op] - time
            if pause > HOP and not excluded:
                event = self._nearby_end(op, time)
                if event >= 0:  # R5.2: an event wait that the timeline does not show looks like this
                    time, by = self.ends[event], event
                    reason = Reason.REUSE if is_reuse(self.kinds[event], self.kinds[op]) else Reason.PIPELINE
                elif reason is not Reason.HOST and reason is not Reason.BLOCKED:
                    left = self._charge(begin, end, min(left, pause - HOP), left, Reason.UNEXPLAINED, op, by, -1)
            if left <= 0 or (time <= begin and reason is Reason.PIPELINE):
                break
            if reason is Reason.PIPELINE:
                op, excluded = by, set()
                continue
            # Avoidable: the operation could have started at the next best constraint.
            rest = [c for c in open_ if (c[1], c[3]) != (reason, family)]
            if reason is Reason.FENCE or family == _FENCED:
                rest = [c for c in rest if c[1] is not Reason.FENCE and c[3] != _FENCED]
            if reason is Reason.BLOCKED:  # the host waited for the very operation that is also before this one
                rest = [c for c in rest if c[1] is not Reason.REUSE or c[2] != by]
            then = max((c[0] for c in rest), default=LONG_AGO)
            shift = min(left, self.starts[op] - max(then, begin) if then > begin else left)
            call = -1
            if reason in (Reason.BLOCKED, Reason.HOST):
                issuing = self.calls_of[op]
                block = self.blocks.before(issuing, begin)
                call = block if reason is Reason.BLOCKED else issuing
                if reason is Reason.BLOCKED and self.host_bound:
                    # Without the wait the host would still need its own time, and it is the host that is short of it.
                    own = min(shift, self.issue[op] - max(self.blocks.end_of(block), begin))
                    if own > 0:
                        left = self._charge(begin, end, own, left, Reason.HOST, op, -1, issuing)
                        shift -= own
            if shift > 0:
                left = self._charge(begin, end, shift, left, reason, op, by, call)
            if left <= 0 or then <= begin:
                break
            excluded |= {(c[1], c[3]) for c in candidates if c not in rest}
        if left > 0:
            self._charge(begin, end, left, left, Reason.PIPELINE, op, -1, -1)

    def _charge(self, begin: int, end: int, cost: int, left: int, reason: Reason, op: int, by: int, call: int) -> int:
        if cost > 0:
            self.charges.append((begin, end, cost, int(reason), op, by, call))
        return left - max(cost, 0)

    def _constraints(self, op: int, begin: int) -> list[tuple[int, Reason, int, int]]:
        """All that held *op*, each as ``(time, reason, operation waited for, family)``; later times bind."""
        start = self.starts[op]
        found: list[tuple[int, Reason, int, int]] = []
        for preds, ready in (self.preds[Reason.REUSE], self.event):
            by = preds[op]
            if by >= 0 and ready[op] <= start + HOP:
                reason = Reason.REUSE if is_reuse(self.kinds[by], self.kinds[op]) else Reason.PIPELINE
                found.append((min(ready[op], start), reason, by, 0))
        preds, ready = self.preds[Reason.FENCE]
        if preds[op] >= 0 and ready[op] <= start + HOP:
            found.append((min(ready[op], start), Reason.FENCE, preds[op], 0))
        preds, ready = self.on_engine
        if preds[op] >= 0 and start - ready[op] <= HOP:
            found.append((ready[op], Reason.PIPELINE, preds[op], 0))
        call = self.calls_of[op]
        if call >= 0:
            block = self.blocks.before(call, begin)
            if block < 0:
                found.append((self.launched[op], Reason.HOST, -1, 0))
            else:
                on = self.blocks.on[block]
                fenced = self.blocks.kinds[block] == CallKind.COPY_SYNC and self._fence_bound(on)
                found.append((self.launched[op], Reason.BLOCKED, on, _FENCED if fenced else 0))
        return found

    def _fence_bound(self, op: int) -> bool:
        """Tell whether the fence was the last thing that held an operation."""
        fence, stream = self.preds[Reason.FENCE][1][op], self.preds[Reason.REUSE][1][op]
        return fence > LONG_AGO and fence >= stream

    def _nearby_end(self, op: int, after: int) -> int:
        """The operation of another stream that ended just before *op* started, and later than *after*; -1 if none."""
        start = self.starts[op]
        at = int(np.searchsorted(self.sorted_ends, start, side="right")) - 1
        while at >= 0:
            other = self.by_end[at]
            if self.ends[other] <= after or start - self.ends[other] > HOP:
                return -1
            if other != op and self.streams[other] != self.streams[op]:
                return other
            at -= 1
        return -1


_FENCED = 1  # the family of waits that the legacy default stream's fence brings, wherever the host stands in them


class _Blocks:
    """The calls that kept a host thread waiting, by thread."""

    def __init__(self, work: Work) -> None:
        calls = work.calls
        self.kinds: list[int] = calls.kind.tolist()
        self.on: list[int] = work.blocked_on.tolist()
        self._end = calls.end
        self._call_start = calls.start
        self._thread: list[int] = calls.thread.tolist()
        rows = np.flatnonzero(work.blocked_on >= 0)
        self._by_thread: dict[int, tuple[NDArray[np.intp], Ints]] = {}
        for thread in np.unique(calls.thread[rows]).tolist():
            mine = rows[calls.thread[rows] == thread]
            mine = mine[np.argsort(calls.end[mine], kind="stable")]
            self._by_thread[thread] = mine, calls.end[mine]

    def end_of(self, block: int) -> int:
        return int(self._end[block])

    def before(self, call: int, begin: int) -> int:
        """The last call that blocked the caller's thread before *call*, and was not over before *begin*; -1 if none."""
        own = self._by_thread.get(self._thread[call])
        if own is None:
            return -1
        rows, ends = own
        at = int(np.searchsorted(ends, self._call_start[call], side="right")) - 1
        return int(rows[at]) if at >= 0 and ends[at] > begin else -1


__all__ = ["Blame", "Reason", "Waits", "blame", "is_reuse"]
