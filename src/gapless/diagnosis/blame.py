"""Who made the engine wait: the idle time of the engine that binds the run, shared out among what held the next
operation.

The engine with the most work of its own is the one that no repair can make faster than its work; all that a repair can
win is its idle time. So every gap of that engine is walked back from the operation that ended it. What held that
operation (stream order, a fence, an event, a busy engine, the host)? If it only waited for its input, the walk goes on
with the input. If it waited for something that need not have been so, the gap is charged to it, as far as the operation
could have started earlier without it; the rest of the gap goes to the next best constraint, and so on.

Lifting waits on the device wins no more than the host can follow, so what has been charged is remembered along the way,
and a gap that the host's own pace would make in any case is charged to that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gapless.model.kinds import Engine
from gapless.timeline.measure import total, union

from .excess import Excess
from .host import Activity, activities
from .waits import Reason, Waits
from .walk import Walker
from .work import HOP, LONG_AGO, Bools, Ints, Work, at

# ns that an engine takes from one operation to the next in any case (H200, with a profiler).
TURNAROUND = {Engine.SM: 1_000, Engine.H2D: 2_500, Engine.D2H: 5_000, Engine.PEER: 2_500}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blame:
    """The binding engine and its waits."""

    engine: Engine
    busy: int  # ns that the engine needs for its work
    idle: int  # ns of the window in which it did nothing
    turnaround: int  # ns of the idle time that lie between operations it did back to back: nobody's fault
    waits: Waits  # the rest of the idle time, and what slow copies on the engine itself take too long


def blame(work: Work, needed: Ints) -> Blame:
    """Share out the idle time of the engine that binds.

    *needed* gives for each operation the ns that it would take at its best: less than its duration for a copy of
    pageable memory. The engine with the largest sum binds.
    """
    engine, busy = _binding_engine(work, needed)
    gaps, turnaround = _gaps(work, engine)
    waits = _by_activity(work, _charged(work, engine, gaps, Excess(work, needed)))
    idle = int((gaps.end - gaps.start).sum()) + turnaround
    return Blame(engine=engine, busy=busy, idle=idle, turnaround=turnaround, waits=waits)


def _binding_engine(work: Work, needed: Ints) -> tuple[Engine, int]:
    """The engine that needs most time for its own work, and that time: the union of its operations less the excess."""
    best = Engine.SM, 0
    for engine in TURNAROUND:
        rows = np.flatnonzero(work.engine == engine)
        busy = total(union(work.ops.start[rows], work.ops.end[rows]))
        busy -= int((work.ops.end[rows] - work.ops.start[rows] - needed[rows]).sum())
        if busy > best[1]:
            best = engine, busy
    return best


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Gaps:
    """The gaps of one engine, in order of time."""

    start: Ints
    end: Ints
    op: Ints  # the operation that ended it; of the last, that runs to the end of the window, the last of all engines


SHORTEST_TURNAROUND = 2_000  # ns between operations back to back, at least


def _gaps(work: Work, engine: Engine) -> tuple[_Gaps, int]:
    """The engine's gaps, and the time lost between operations that it did back to back.

    The last gap is what the other engines still do when the binding one is through.
    """
    rows = np.flatnonzero(work.engine == engine)
    reached = np.maximum.accumulate(np.concatenate(([work.start], work.ops.end[rows])))[:-1]
    begun = work.ops.start[rows]
    open_ = begun > reached
    rows, reached, begun = rows[open_], reached[open_], begun[open_]
    # An operation that was ready before the engine was free waited for the engine alone: that is turnaround.
    ready = np.maximum.reduce([work.stream_ready, work.fence_ready, work.event_ready, work.launched])[rows]
    soon = begun - reached <= HOP
    after_same = at(work.engine, work.stream_pred[rows], Engine.NONE) == engine
    # Of work that no known call issued nobody can say when it was ready: only the shortest pauses are turnaround.
    soon &= (work.ops.call[rows] >= 0) | (begun - reached <= SHORTEST_TURNAROUND)
    back_to_back = soon & ((ready < reached) | (after_same & (work.launched[rows] <= reached)))
    start, end, op = (column[~back_to_back] for column in (reached, begun, rows))
    done = int(work.ops.end[work.engine == engine].max(initial=work.start))
    if done < work.end:
        start, end, op = np.append(start, done), np.append(end, work.end), np.append(op, work.ops.end.argmax())
    return _Gaps(start=start, end=end, op=op), int((begun - reached)[back_to_back].sum())


def _charged(work: Work, engine: Engine, gaps: _Gaps, excess: Excess) -> Waits:
    """Charge every gap, in order of time: at once where only the host was late, by a walk where more held it up."""
    ops, walker = work.ops, Walker(work)
    length = gaps.end - gaps.start
    winnable = np.maximum(length - TURNAROUND[engine], 0)
    slow, copies = excess.within(gaps.start, gaps.end)
    own = excess.own(engine)
    own_before = np.concatenate(([0], np.cumsum(excess.of[own])))[np.searchsorted(ops.start[own], gaps.start)]
    own_since = np.diff(own_before, prepend=0)
    simple = _only_host_was_late(work, gaps) & (slow == 0)
    blocked = np.zeros(len(gaps.op), np.int64)
    rows = np.flatnonzero(~simple | (np.asarray(walker.held_up)[gaps.op] > 0) | (own_since > 0))
    columns = (gaps.start, gaps.end, gaps.op, winnable, slow, copies, own_since, simple)
    table = zip(rows.tolist(), *(column[rows].tolist() for column in columns), strict=True)
    for row, begin, end, op, left, too_long, copy, brought, is_simple in table:
        walker.saved += brought
        if is_simple:
            blocked[row] = walker.of_block(op, left)
        else:
            walker.explain(begin, end, op, left, too_long, copy)
    block = np.asarray(walker.last_block)[gaps.op]
    start, end, op = gaps.start, gaps.end, gaps.op
    return Waits.join([
        walker.waits(),
        Waits.build(start, end, length - winnable, Reason.PIPELINE, op),
        Waits.build(start, end, np.where(simple, winnable - blocked, 0), Reason.HOST, op, call=ops.call[op]),
        Waits.build(start, end, blocked, Reason.BLOCKED, op, by=at(work.blocked_on, block, -1), call=block),
        Waits.build(ops.start[own], ops.end[own], excess.of[own], Reason.SLOW_COPY, own, by=own, call=ops.call[own]),
    ])  # fmt: skip


def _only_host_was_late(work: Work, gaps: _Gaps) -> Bools:
    """Tell for each gap whether nothing but a late host can have made it, so that a walk would find nothing else."""
    op = gaps.op
    ready = np.maximum.reduce([work.stream_ready, work.fence_ready, work.event_ready])[op]
    # No event wait that the timeline does not show can have been the last to hold it.
    no_event = (len(np.unique(work.ops.stream)) == 1) | (work.ops.start[op] - work.launched[op] <= HOP)
    late = (work.ops.call[op] >= 0) & (work.launched[op] > gaps.start) & (work.ops.start[op] == gaps.end)
    return late & (ready <= gaps.start) & no_event


_REASON_OF = {
    Activity.ALLOCATING: Reason.ALLOCATING,
    Activity.STAGING: Reason.STAGING,
    Activity.FIRST_USE: Reason.FIRST_USE,
    Activity.OWN_STAGING: Reason.OWN_STAGING,
}


def _by_activity(work: Work, waits: Waits) -> Waits:
    """Split the waits for the host by what it was doing in the time just before it issued.

    Of a host that had been blocked, only the time after the block counts.
    """
    rows = np.flatnonzero(np.isin(waits.reason, (Reason.HOST, Reason.BLOCKED)))
    if not len(rows):
        return waits
    calls, cost = work.calls, waits.cost.copy()
    late = waits.take(rows)
    issuing, until = work.ops.call[late.op], work.ops.start[late.op]
    free_since = np.where(late.reason == Reason.BLOCKED, at(calls.end, late.call, LONG_AGO), LONG_AGO)
    since = np.minimum(np.maximum(until - late.cost, free_since), until)
    parts: list[Waits] = []
    for activity, stretches in activities(work).items():
        spent = np.minimum(stretches.between(calls.thread[issuing], since, until), cost[rows])
        cost[rows] -= spent
        parts.append(Waits.build(late.start, late.end, spent, _REASON_OF[activity], late.op, call=issuing))
    return Waits.join([replace(waits, cost=cost), *parts])


__all__ = ["Blame", "blame"]
