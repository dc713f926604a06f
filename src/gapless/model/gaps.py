"""Why engines wait in a schedule: what ended each of their gaps, and the chain that makes the run as long as it is.

An operation's binding constraint names what came last of all it had to wait for. Where that is the host, the question
goes on: what kept the host thread from making the call earlier? Both are answered here, for people; a ``Schedule``
itself holds the bare constraints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kinds import Bound, Engine, OpKind
from .schedule import Schedule

ENGINES = (Engine.H2D, Engine.SM, Engine.D2H, Engine.PEER)
OF_CALLS = (Bound.LOCK, Bound.MESSAGE, Bound.STORE)  # here the one waited for is a call, not an operation
_LIMITS = (Bound.FENCE, Bound.FIRST_USE, Bound.GRID_SLOT, Bound.QUEUE, Bound.WORKER)
# Do nothing themselves: what they wait for is what matters.
_PASSING = (OpKind.RECORD, OpKind.WAIT, OpKind.WRITE_VALUE, OpKind.WAIT_VALUE)


class Cause(NamedTuple):
    """What an operation had to wait for until it started.

    ``by`` is the operation waited for (for a lock or a message the row of the call), -1 none. ``call`` is the call that
    held the host thread where the host came late: in which it waited for ``by``, or which took its time where there is
    no ``by``; -1 the host was not late.
    """

    bound: Bound
    by: int = -1
    call: int = -1


class Gap(NamedTuple):
    """A stretch of time (ps) in which an engine does nothing. ``op`` ends it; -1: nothing more comes."""

    device: int
    engine: Engine
    start: int
    end: int
    op: int
    cause: Cause


class Gaps(NamedTuple):
    """Gaps of one engine with the same cause; ``number`` of them, ``time`` in all in ps, ``first`` as an example."""

    first: Gap
    number: int
    time: int


class Link(NamedTuple):
    """Part of the chain: an operation (``call`` -1) or a call that took time (``op`` -1), and what it waited for."""

    op: int
    call: int
    start: int
    end: int
    cause: Cause


class Causes:
    """Finds causes in one schedule; built once, as it holds the columns as lists."""

    def __init__(self, run: Schedule) -> None:
        self._rows = len(run.program)
        self._launch: list[int] = run.node_launch.tolist()
        self._kind: list[int] = run.program.rows.op.tolist()
        self._bound: list[int] = run.bound.tolist()
        self._by: list[int] = run.bound_by.tolist()
        self._begin: list[int] = run.begin.tolist()
        self._issued: list[int] = run.issued.tolist()
        self._delays, self._waits = run.delays, run.waits
        self._before = _last_that_took_time(run)

    def of(self, op: int) -> Cause:
        """Say what an operation waited for."""
        bound, by = self._bound[op], self._by[op]
        while bound != Bound.HOST and 0 <= by < self._rows and self._kind[by] in _PASSING:
            deeper = self._bound[by]
            if deeper in (Bound.NONE, Bound.HOST):
                return self._of_call(by)
            bound, by = (deeper if bound == Bound.STREAM else bound), self._by[by]
        if bound in (Bound.NONE, Bound.HOST):
            return self._of_call(op if op < self._rows else self._launch[op - self._rows])
        return Cause(Bound(bound), by)

    def _of_call(self, row: int) -> Cause:
        """Say why a call did not put its operation into the stream earlier."""
        if row in self._delays:
            return Cause(*self._delays[row], call=row)
        if self._issued[row] > self._begin[row]:
            return Cause(Bound.HOST, call=row)
        return self.before(row)

    def before(self, row: int) -> Cause:
        """Say what kept the thread from beginning a call earlier."""
        held = self._before[row]
        if held < 0:
            return Cause(Bound.NONE)
        return self.waited(held) or Cause(Bound.HOST, call=held)

    def waited(self, row: int) -> Cause | None:
        """Say what a call waited for; None where it did not wait."""
        waited = self._waits.get(row) or self._delays.get(row)
        return Cause(*waited, call=row) if waited else None


def gaps(run: Schedule) -> list[Gap]:
    """Give the gaps of every engine that does anything, from the start of the run to its end, with their causes."""
    causes, found = Causes(run), list[Gap]()
    for device in range(_devices(run)):
        on_device = _is_on(run, device)
        for engine in ENGINES:
            ops = np.flatnonzero(on_device & (run.engine == engine) & (run.end > run.start))
            if len(ops):
                found += _gaps(run, causes, device, engine, ops)
    return found


def _gaps(run: Schedule, causes: Causes, device: int, engine: Engine, ops: NDArray[np.intp]) -> Iterable[Gap]:
    ops = ops[np.argsort(run.start[ops], kind="stable")]
    start = run.start[ops]
    busy_until = np.concatenate([[0], np.maximum.accumulate(run.end[ops])])
    for at in np.flatnonzero(start > busy_until[:-1]).tolist():
        op = int(ops[at])
        yield Gap(device, engine, int(busy_until[at]), int(start[at]), op, causes.of(op))
    if busy_until[-1] < run.makespan:
        yield Gap(device, engine, int(busy_until[-1]), run.makespan, -1, Cause(Bound.NONE))


def held_up(run: Schedule) -> list[Gap]:
    """Give the operations that a fence or a limit held up while their engine worked on something else.

    As gaps of no engine and no length: engine order and stream order alone hold operations up all the time, and cost
    nothing as long as their engine works.
    """
    ops = np.flatnonzero(np.isin(run.bound, _LIMITS) & (run.end > run.start))
    if not len(ops):
        return []
    ended_gaps = {gap.op for gap in gaps(run)}
    causes = Causes(run)
    return [
        Gap(-1, Engine.NONE, int(run.start[op]), int(run.start[op]), op, causes.of(op))
        for op in ops.tolist()
        if op not in ended_gaps
    ]


def alike(found: Iterable[Gap], run: Schedule, lines: Sequence[int] | NDArray[np.int32] = ()) -> list[Gaps]:
    """Put gaps with the same cause together, each engine's longest first.

    The cause is the same where the kind of constraint is, and operations and calls come from the same *lines* of the
    tape (by row); without lines, where they are of the same kind.
    """
    kinds = (run.program.rows.call.astype(np.int32) if not len(lines) else np.asarray(lines)).tolist()

    def place(op: int) -> int:
        return kinds[run.row_of(op)] if op >= 0 else -1

    groups: dict[tuple[int, ...], list[Gap]] = {}
    for gap in found:
        bound, by, call = gap.cause
        key = (gap.device, gap.engine, bound, place(gap.op), place(by), place(call))
        groups.setdefault(key, []).append(gap)
    summed = [Gaps(group[0], len(group), sum(gap.end - gap.start for gap in group)) for group in groups.values()]
    order = {engine: at for at, engine in enumerate((*ENGINES, Engine.NONE))}
    return sorted(summed, key=lambda gaps: (gaps.first.device, order[gaps.first.engine], -gaps.time))


def chain(run: Schedule) -> list[Link]:
    """Give what makes the run as long as it is: from what ends last back to the start, each with what it waited for.

    The links come in the order of time. What is between their times went by on the way (a launch that reaches the
    device, one engine that follows another). Where an operation had to wait for several at once, the chain stays on its
    engine: so the engine that binds shows.
    """
    causes, found, on_engine = Causes(run), list[Link](), _in_turn(run)
    start, end, begin, returned = (c.tolist() for c in (run.start, run.end, run.begin, run.returned))
    last_op, last_call = (int(np.argmax(c)) if len(c) else -1 for c in (run.end, run.returned))
    by_call = last_call >= 0 and (last_op < 0 or returned[last_call] > end[last_op])
    op, call = (-1, last_call) if by_call else (last_op, -1)
    for _ in range(len(start) + len(begin)):
        if op >= 0:
            cause = Cause(on_engine[op][0], on_engine[op][1]) if op in on_engine else causes.of(op)
            found.append(Link(op, -1, start[op], end[op], cause))
        elif call >= 0:
            waited = causes.waited(call)
            cause = waited or causes.before(call)
            since = end[waited.by] if waited and waited.bound not in OF_CALLS else begin[call]
            found.append(Link(-1, call, max(begin[call], since), returned[call], cause))
        else:
            break
        waits_for_op = cause.by >= 0 and cause.bound not in OF_CALLS
        op, call = (cause.by, -1) if waits_for_op else (-1, cause.by if cause.by >= 0 else cause.call)
    return found[::-1]


def _in_turn(run: Schedule) -> dict[int, tuple[Bound, int]]:
    """For operations that start when another one that had their engine alone ends: that one."""
    rows = run.program.rows
    whole = np.array([grid.blocks == 1 and grid.block == 1 for grid in run.program.grids] or [False])
    row = np.concatenate([np.arange(len(run.program)), run.node_row])
    alone = np.isin(run.engine, (Engine.H2D, Engine.D2H)) | ((run.engine == Engine.SM) & whole[rows.grid[row]])
    ops = np.flatnonzero(alone & (run.end > run.start))
    found: dict[int, tuple[Bound, int]] = {}
    for device in range(_devices(run)):
        for engine, bound in ((Engine.H2D, Bound.COPY_ENGINE), (Engine.SM, Bound.SM), (Engine.D2H, Bound.COPY_ENGINE)):
            mine = ops[(run.engine[ops] == engine) & _is_on(run, device)[ops]]
            ended = dict(zip(run.end[mine].tolist(), mine.tolist(), strict=True))
            for op, start in zip(mine.tolist(), run.start[mine].tolist(), strict=True):
                if start in ended:
                    found[op] = bound, ended[start]
    return found


def _last_that_took_time(run: Schedule) -> list[int]:
    """For each call the last one before it in its thread that took any time, -1 none."""
    before = np.full(len(run.program), -1, np.int64)
    thread = run.program.rows.thread
    for number in range(len(run.program.threads)):
        rows = np.flatnonzero(thread == number)
        if len(rows) > 1:
            took = np.where(run.returned[rows] > run.begin[rows], np.arange(len(rows)), -1)
            last = np.maximum.accumulate(took)[:-1]
            before[rows[1:]] = np.where(last >= 0, rows[last], -1)
    return before.tolist()


def _devices(run: Schedule) -> int:
    return 1 + max((info.device for info in run.program.streams), default=0)


def _is_on(run: Schedule, device: int) -> NDArray[np.bool_]:
    """Tell for each operation whether its stream is one of a device."""
    devices = np.array([info.device for info in run.program.streams] or [0])
    issued_by = np.concatenate([np.arange(len(run.program)), run.node_launch])
    stream = run.program.rows.stream[issued_by]
    return (stream >= 0) & (devices[np.maximum(stream, 0)] == device)
