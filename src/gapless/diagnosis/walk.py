"""Walks a gap of the binding engine back from the operation that ended it, and charges what held it up."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, OpKind

from .host import held_up, last_block
from .waits import Reason, Waits
from .work import HOP, LONG_AGO, Work

LONGEST_WALK = 256  # steps: a walk of this length has left every sensible gap

_BY_THE_HOST = (Reason.BLOCKED, Reason.HOST, Reason.PACE)
# What brings the device forward, and the host no more than the device had held it up.
_SAVES = (Reason.REUSE, Reason.FENCE, Reason.BLOCKED, Reason.SLOW_COPY, Reason.UNEXPLAINED)


class Constraint(NamedTuple):
    """What let an operation start no earlier than a moment. Later ones bind; they sort by that."""

    time: int
    reason: Reason
    by: int  # the operation waited for, -1 none
    fenced: bool = False  # the host stood in a copy that the legacy default stream's fence held


def is_reuse(before: int, after: int) -> bool:
    """Tell whether an operation (an OpKind) behind another one in its stream needs none of its results.

    Data flow through H2D, kernel, D2H. An upload needs nothing that the device computed, and what comes after a
    download needs nothing of it: such an order only keeps the buffers apart, and more buffers in more streams lift it.
    """
    if before == after:
        return False
    return after == OpKind.H2D or before == OpKind.D2H


class Walker:
    """Charges gaps one after another, in order of time.

    ``saved`` is how much earlier the device would be by now if all that has been charged to waits on the device or to
    a blocked host were gone. The host would be earlier by no more than the device had held it up: beyond that, its own
    pace is what the engine would wait for (PACE), and lifting waits on the device does not win it.
    """

    def __init__(self, work: Work) -> None:
        self.saved = 0
        self._charges: list[tuple[int, int, int, int, int, int, int]] = []
        self.last_block = _fast(last_block(work))
        self.held_up = _fast(held_up(work))
        self._window_start = work.start
        self._start, self._end = _fast(work.ops.start), _fast(work.ops.end)
        self._kind, self._stream, self._call = _fast(work.ops.kind), _fast(work.ops.stream), _fast(work.ops.call)
        self._launched = _fast(work.launched)
        self._by_stream = _fast(work.stream_pred), _fast(work.stream_ready)
        self._by_event = _fast(work.event_pred), _fast(work.event_ready)
        self._by_fence = _fast(work.fence_pred), _fast(work.fence_ready)
        self._by_engine = _fast(work.engine_pred), _fast(work.engine_ready)
        self._call_kind, self._blocked_on = _fast(work.calls.kind), _fast(work.blocked_on)
        by_end = np.argsort(work.ops.end, kind="stable")
        self._in_order_of_end, self._ends_in_order = _fast(by_end), _fast(work.ops.end[by_end])

    def explain(self, begin: int, end: int, op: int, left: int, slow: int, copy: int) -> None:
        """Charge *left* ns of the gap ``[begin, end]`` that *op* ended.

        For *slow* ns of the gap copies such as *copy* took longer than they need.
        """
        if slow > 0:
            left -= self._charge(begin, end, min(left, slow), Reason.SLOW_COPY, op, copy, self._call[copy])
        for _ in range(LONGEST_WALK):
            left, needs = self._explain_op(begin, end, op, left)
            if left <= 0 or needs < 0:
                break
            op = needs
        self._charge(begin, end, left, Reason.PIPELINE, op)

    def of_block(self, op: int, left: int) -> int:
        """How much of *left* ns before *op* goes back to a call that had kept the host waiting."""
        owed = self.held_up[op] - self.saved
        if owed <= 0 or self.last_block[op] < 0:
            return 0
        cost = min(left, self._start[op] - self._launched[op] + owed)
        self.saved += cost
        return cost

    def waits(self) -> Waits:
        """All that ``explain`` has charged."""
        columns = np.array(self._charges, np.int64).reshape(-1, 7).T
        return Waits(start=columns[0], end=columns[1], cost=columns[2], reason=columns[3].astype(np.int8),
                     op=columns[4], by=columns[5], call=columns[6])  # fmt: skip

    def _charge(self, begin: int, end: int, cost: int, reason: Reason, op: int, by: int = -1, call: int = -1) -> int:
        """Charge *cost* ns of the gap ``[begin, end]`` and give it back."""
        if cost > 0:
            self._charges.append((begin, end, cost, reason, op, by, call))
            if reason in _SAVES:
                self.saved += cost
        return max(cost, 0)

    def _explain_op(self, begin: int, end: int, op: int, left: int) -> tuple[int, int]:
        """Charge what held *op*; give what is left of the gap, and the operation whose result *op* had to wait for.

        Every avoidable constraint is lifted in turn, from the latest: it costs what *op* would have started earlier.
        The operation is -1 where the walk ends: before the gap, or where nothing unavoidable is known.
        """
        at = self._start[op]
        held = self._constraints(op) if at > self._window_start else []
        if held and held[0].reason not in _BY_THE_HOST and at - held[0].time > HOP:
            pause = at - held[0].time - HOP
            left -= self._charge(begin, end, min(left, pause), Reason.UNEXPLAINED, op, held[0].by)
            at -= pause
        host_lifted = False
        while held and left > 0:
            first = held[0]
            if first.reason is Reason.PIPELINE:
                return left, first.by if first.time > begin else -1
            reason, late = first.reason, op
            if host_lifted and reason in (Reason.REUSE, Reason.FENCE) and self._is_late(first.by):
                reason, late = Reason.HOST, first.by  # were the host not late, that one had been done earlier too
            call = {Reason.BLOCKED: self.last_block[op], Reason.HOST: self._call[late]}.get(reason, -1)
            held = _without(first, held[1:])
            then = max(held[0].time if held else LONG_AGO, self._window_start)  # nothing is won before the window
            left -= self._charge(begin, end, min(left, at - then), reason, late, first.by, call)
            at, host_lifted = then, host_lifted or reason is Reason.HOST
        return left, -1

    def _is_late(self, op: int) -> bool:
        """Tell whether the host was the last thing that held an operation."""
        ready = max(pred[1][op] for pred in (self._by_stream, self._by_event, self._by_fence))
        return self._launched[op] > ready

    def _constraints(self, op: int) -> list[Constraint]:
        """All that held *op*, the latest first."""
        start, kind = self._start[op], self._kind[op]
        held: list[Constraint] = []
        for pred, ready in (self._by_stream, self._by_event):
            by = pred[op]
            if by >= 0 and ready[op] <= start + HOP:
                reason = Reason.REUSE if is_reuse(self._kind[by], kind) else Reason.PIPELINE
                held.append(Constraint(min(ready[op], start), reason, by))
        pred, ready = self._by_fence
        if pred[op] >= 0 and ready[op] <= start + HOP:
            held.append(Constraint(min(ready[op], start), Reason.FENCE, pred[op]))
        pred, ready = self._by_engine
        if pred[op] >= 0 and start - ready[op] <= HOP:
            held.append(Constraint(ready[op], Reason.PIPELINE, pred[op]))
        if self._call[op] >= 0:
            held += self._of_host(op)
        held.sort(reverse=True)
        if [c.reason for c in held[:2]] == [Reason.PACE, Reason.HOST]:
            del held[0]  # the host was late as it is
        if held and start - held[0].time > HOP and (event := self._nearby_end(op, held[0].time)) >= 0:
            # R5.2: an event wait that the timeline does not show looks like this.
            reason = Reason.REUSE if is_reuse(self._kind[event], kind) else Reason.PIPELINE
            held.insert(0, Constraint(self._end[event], reason, event))
        return held

    def _of_host(self, op: int) -> list[Constraint]:
        """How the host held *op*: by a call that kept it waiting, and by its own work."""
        start, launched = self._start[op], self._launched[op]
        owed = self.held_up[op] - self.saved  # how much earlier the host would be, had nothing kept it waiting
        if owed <= 0:
            return [Constraint(min(start, launched - owed), Reason.PACE, -1), Constraint(launched, Reason.HOST, -1)]
        block = self.last_block[op]
        if block < 0:  # only full launch queues kept it waiting, and those go with the waits on the device
            return [Constraint(launched - owed, Reason.HOST, -1)]
        on = self._blocked_on[block]
        fenced = self._call_kind[block] == CallKind.COPY_SYNC and self._is_fence_bound(on)
        return [Constraint(launched, Reason.BLOCKED, on, fenced), Constraint(launched - owed, Reason.HOST, -1)]

    def _is_fence_bound(self, op: int) -> bool:
        """Tell whether the fence was the last thing that held an operation."""
        fence, stream = self._by_fence[1][op], self._by_stream[1][op]
        return fence > LONG_AGO and fence >= stream

    def _nearby_end(self, op: int, after: int) -> int:
        """The operation of another stream that ended just before *op* started, and later than *after*; -1 if none."""
        start = self._start[op]
        for at in range(bisect_right(self._ends_in_order, start) - 1, -1, -1):
            other = self._in_order_of_end[at]
            if self._end[other] <= after or start - self._end[other] > HOP:
                return -1
            if other != op and self._stream[other] != self._stream[op]:
                return other
        return -1


def _fast(column: NDArray[Any]) -> Sequence[int]:
    """The column with plain integers for elements, without a copy: a NumPy array is several times slower to index."""
    return cast(Sequence[int], np.ascontiguousarray(column).data)


def _without(lifted: Constraint, rest: list[Constraint]) -> list[Constraint]:
    """The constraints that remain when one is lifted, with those that go with it."""
    if lifted.reason is Reason.FENCE or lifted.fenced:
        rest = [c for c in rest if c.reason is not Reason.FENCE and not c.fenced]
    if lifted.reason is Reason.BLOCKED:  # the host waited for the very operation that is also before this one
        rest = [c for c in rest if c.reason is not Reason.REUSE or c.by != lifted.by]
    return rest


__all__ = ["Walker", "is_reuse"]
