"""The short way through the commonest programs: one host thread, one device, ideal queues, no measured gaps.

``flow`` follows the same rules as ``simulator.py``, for the calls and operations that chunk loops consist of, in one
function over flat columns of numbers. It needs no objects, so that Numba can compile the very same source; ``fits``
says whether a program may take it. All it gives is what the simulator gives, number by number (a test compares them).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from heapq import heappop, heappush
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np

from .columns import among
from .kinds import CALL, FLAG, OP, Bound, StreamKind
from .machine import Machine
from .ordering import fences, is_blocking
from .plan import PLACES, Action, Place, Plan, Until
from .program import Program

COMPILED_FROM = 200_000  # rows; for fewer, compiling takes longer than it saves
_ACTIONS = (Action.NOTHING, Action.PUT, Action.PUT_AND_WAIT, Action.SYNC_STREAM, Action.SYNC_EVENT, Action.DRAIN)
_PLACES = (Place.NOWHERE, Place.SM, Place.H2D, Place.D2H, Place.PEER, Place.WORKER)
_KINDS = (
    OP.KERNEL, OP.H2D, OP.D2H, OP.D2D, OP.MEMSET, OP.HOST_FUNCTION, OP.RECORD, OP.WAIT,
    OP.MALLOC, OP.FREE, -1,
)  # fmt: skip
_FIT_ACTIONS, _FIT_PLACES, _FIT_KINDS = among(*_ACTIONS), among(*_PLACES), among(*_KINDS)
_GRAPHS = among(CALL.CAPTURE, CALL.CAPTURE_END, CALL.GRAPH_BUILD)

# The numbers that `flow` compares; Numba takes them as constants.
_NOTHING, _PUT, _PUT_AND_WAIT, _SYNC_STREAM, _SYNC_EVENT = _ACTIONS[:5]
_NOWHERE, _SM, _WORKER, _QUEUES = Place.NOWHERE, Place.SM, Place.WORKER, len(PLACES)
_RECORD, _WAIT = int(OP.RECORD), int(OP.WAIT)
_HOST, _STREAM, _FENCE, _EVENT, _COPY_ENGINE, _BY_SM, _BY_WORKER = (
    int(bound)
    for bound in (Bound.HOST, Bound.STREAM, Bound.FENCE, Bound.EVENT, Bound.COPY_ENGINE, Bound.SM, Bound.WORKER)
)
_LEGACY, _FENCED, _FREE = 0, 1, 2  # how a stream stands to the legacy default stream (R2.1)
_DONE = -1


def fits(program: Program, machine: Machine, plan: Plan) -> bool:
    """Tell whether a program on a machine needs none of the rules that only the simulator knows."""
    rows = program.rows
    if len(program.threads) > 1 or any(info.device for info in program.streams) or np.any(rows.device):
        return False
    special = (
        plan.late, plan.lag, plan.slots, plan.drain_first, plan.first, plan.empty, plan.triggers, machine.hops,
        machine.issue_latency, machine.turnaround, machine.graph_node_cost, machine.sync_return, machine.record_cost,
        machine.device_hop,
        machine.inline_idle, machine.inline_pending, machine.smem_config_per_sm,
    )  # fmt: skip
    if any(special) or plan.pools or plan.entries is not None or plan.slowed is not None:
        return False
    if machine.queues_of(copies=False) is not None or machine.queues_of(copies=True) is not None:
        return False
    if {machine.h2d_engines, machine.d2h_engines, machine.peer_engines, machine.hostfn_workers} != {1}:
        return False
    most_grids = 1 if machine.kernels == "exclusive" else machine.resident_grids
    if max(plan.blocks) > 1 and most_grids < len(program.streams):
        return False  # R6.10: a kernel without a slot lets those pass of which some blocks are placed
    if machine.copy_arbitration != "ready" or machine.legacy_noop_barrier != "yes" or set(plan.rounds) != {1}:
        return False
    longest = float(np.sum(plan.work, dtype=np.float64)) + (
        float(np.sum(plan.cost, dtype=np.float64)) if plan.cost is not None else 0.0
    )
    return bool(
        longest < 2.0**62  # no time can overflow
        and _FIT_ACTIONS[plan.action].all()
        and _FIT_PLACES[plan.place].all()
        and _FIT_KINDS[rows.op].all()
        and not np.any(rows.flags & (FLAG.PROGRAMMATIC | FLAG.FIRST_OF_LIBRARY))
        and not _GRAPHS[rows.call].any()
        and all(until == Until.DONE for until in plan.until.values())
        and not any(event.device >= 0 for event in program.events)
    )


def run(program: Program, machine: Machine, plan: Plan, compiled: bool | None = None) -> Columns:
    """Run a program that fits. *compiled* None: if Numba is there and the program is long."""
    rows, streams, n = program.rows, program.streams, len(program)
    function = compile_it() if compiled or (compiled is None and n >= COMPILED_FROM) else None
    priorities = [machine.clamped(info.priority) for info in streams]
    levels = sorted({0, *priorities})
    standing = [
        _LEGACY if info.kind == StreamKind.LEGACY else _FENCED if is_blocking(info.kind) else _FREE for info in streams
    ]
    feeders = [i for i, info in enumerate(streams) if fences(info.kind, StreamKind.LEGACY) and standing[i] != _LEGACY]
    exclusive = machine.kernels == "exclusive"
    cost = np.zeros(n, np.int64) if plan.cost is None else plan.cost
    columns = (
        plan.action, cost, plan.place, plan.work, rows.stream, rows.op, rows.object, np.maximum(rows.grid, 0),
    )  # fmt: skip
    things = (plan.blocks, plan.units, standing or [0], [levels.index(p) for p in priorities] or [0], feeders or [-1])
    numbers = (
        len(levels), plan.capacity, 1 if exclusive else machine.resident_grids,
        int(Bound.SM if exclusive else Bound.GRID_SLOT), len(program.events),
    )  # fmt: skip
    fill = (0, -1, 0, -1, -1, -1)
    result = Columns(n)
    filled = [getattr(result, name) for name in _RESULTS]
    if function is not None:
        to_work_in = [np.full(n, value, np.int64) for value in fill]
        function(*columns, *(np.array(thing, np.int64) for thing in things), *numbers, *to_work_in, *filled)
    else:  # times stay where they are, in few bytes; small numbers that are read often become lists
        lists = [column.data if column.dtype == np.int64 else column.tolist() for column in columns]
        plain: Callable[..., None] = flow
        plain(*lists, *things, *numbers, *([value] * n for value in fill), *(column.data for column in filled))
    return result


_RESULTS = ("start", "end", "bound", "bound_by", "begin", "issued", "returned", "saw", "waited_by")


class Columns:
    """What ``flow`` fills: by row, times in ps; -1 none."""

    def __init__(self, rows: int) -> None:
        self.start, self.end, self.begin, self.issued, self.returned = (np.full(rows, -1, np.int64) for _ in range(5))
        self.bound = np.zeros(rows, np.int8)
        self.bound_by, self.saw, self.waited_by = (np.full(rows, -1, np.int32) for _ in range(3))


@cache
def compile_it() -> Callable[..., None] | None:
    """Give ``flow`` compiled by Numba, from the same source; None where Numba is not there."""
    try:
        numba: Any = import_module("numba")  # optional, and slow to import
    except ImportError:
        return None
    try:
        jit = numba.njit(cache=True)
        helpers = {helper.__name__: jit(helper) for helper in (_queue, _wait, _count)}
    except RuntimeError:  # nowhere to keep what is compiled
        jit = numba.njit
        helpers = {helper.__name__: jit(helper) for helper in (_queue, _wait, _count)}
    return jit(FunctionType(flow.__code__, globals() | helpers, "flow"))


def _queue(op, where, head, tail, behind, ready):
    """Let an operation wait in a queue: behind all that became ready before, or now but was issued before."""
    if head[where] < 0:
        head[where] = tail[where] = op
        behind[op] = -1
    elif ready[tail[where]] < ready[op] or tail[where] < op:
        behind[tail[where]] = op
        behind[op] = -1
        tail[where] = op
    else:
        before, after = -1, head[where]
        while ready[after] < ready[op] or after < op:
            before, after = after, behind[after]
        behind[op] = after
        if before < 0:
            head[where] = op
        else:
            behind[before] = op


def _wait(before, op, why, edge_first, edge_last, edges, spare):
    """Let an operation (-1: the host) wait for another one; give the next spare place among the edges."""
    edge = spare
    if spare >= 0:
        spare = edges[edge + 2]
        edges[edge], edges[edge + 1], edges[edge + 2] = op, why, -1
    else:
        edge = len(edges)
        edges.append(op)
        edges.append(why)
        edges.append(-1)
    if edge_first[before] < 0:
        edge_first[before] = edge
    else:
        edges[edge_last[before] + 2] = edge
    edge_last[before] = edge
    return spare


def _count(op, more, placed):
    """Count more (or fewer) blocks of a kernel, for the few kernels that are not placed all at once; give how many."""
    for i in range(len(placed)):
        if placed[i][0] == op:
            now = placed[i][1] + more
            placed[i] = (op, now)
            if not now:
                placed[i] = placed[-1]
                placed.pop()
            return now
    if more > 0:
        placed.append((op, more))
    return max(more, 0)


def flow(
    action, cost, place, work, stream, kind, event, grid,  # columns by row
    blocks_of, units_of, standing, level, feeders,  # by grid, by grid, by stream, by stream; streams
    levels, capacity, most_grids, no_slot, events,  # numbers
    left, follower, ready, behind, edge_first, edge_last,  # columns by row, to work in
    start, end, bound, bound_by, begin, issued, returned, saw, waited_by,  # columns by row, the result
):  # fmt: skip
    """Run a program to its end; fills the columns of the last line.

    Columns are lists or memory views in plain Python, arrays when compiled. What will end stands in a heap as ``(time,
    what, blocks)``, where *what* is the operation, plus the number of rows for kernels, plus twice that for host
    functions: so that of what ends at one instant copies come first, as in the simulator.
    """
    rows, streams = len(action), len(standing)
    last = [-1] * streams  # the last operation of each stream
    recorded = [-1] * (events + 1)
    running = [-1] * _QUEUES  # by place: the operation on that engine
    freed_by = [-1] * _QUEUES  # by place: what ended there last
    head = [-1] * (_QUEUES + levels)  # by place, kernels by priority: what is ready, first come first
    tail = [-1] * (_QUEUES + levels)
    edges, spare = [-1, -1, -1], -1  # what else waits for an operation, why, and the next of its edges; three a wait
    placed = [(0, 0)]  # kernels that were not placed all at once, and how many of their blocks run
    placed.pop()
    to_place = [(0, 0)]  # and how many of their blocks are still to be placed
    to_place.pop()
    free, resident, slotless, fence = capacity, 0, -1, -1
    look = [0]  # places where something may start
    look.pop()
    heap = [(0, 0, 0)]
    heap.pop()
    over = [0]
    at, acts, waits_for, now, host_at = 0, False, 0, 0, 0

    while True:
        # The host goes on as far as it can.
        while at < rows and host_at <= now and not waits_for:
            if not acts:
                begin[at] = now
                acts = True
                if cost[at] > 0:
                    host_at = now + cost[at]
                    continue
            acts = False
            issued[at] = now
            does = action[at]
            if does in (_PUT, _PUT_AND_WAIT):
                mine = stream[at]
                bound[at] = _HOST
                bound_by[at] = at
                waits = 0
                before = last[mine]
                if before >= 0 and left[before] != _DONE:  # R1.3
                    follower[before] = at
                    waits = 1
                if standing[mine] == _FENCED:  # R2.1
                    if fence >= 0 and fence != before and left[fence] != _DONE:
                        spare = _wait(fence, at, _FENCE, edge_first, edge_last, edges, spare)
                        waits += 1
                elif standing[mine] == _LEGACY:
                    for other in feeders:
                        before = last[other] if other >= 0 else -1
                        if before >= 0 and left[before] != _DONE:
                            spare = _wait(before, at, _FENCE, edge_first, edge_last, edges, spare)
                            waits += 1
                    fence = at
                if kind[at] == _RECORD:
                    recorded[event[at]] = at  # R5.1, R5.4
                elif kind[at] == _WAIT:
                    before = recorded[event[at]]
                    saw[at] = before
                    if before >= 0 and left[before] != _DONE:  # R5.2, R5.3
                        spare = _wait(before, at, _EVENT, edge_first, edge_last, edges, spare)
                        waits += 1
                last[mine] = at
                left[at] = waits
                if not waits:
                    ready[at] = now
                    where = place[at]
                    if where == _NOWHERE:
                        start[at] = end[at] = now
                        left[at] = _DONE
                    else:
                        look.append(where)
                        _queue(at, _QUEUES + level[mine] if where == _SM else where, head, tail, behind, ready)
                if does == _PUT_AND_WAIT and left[at] != _DONE:  # table 3.1
                    spare = _wait(at, -1, 0, edge_first, edge_last, edges, spare)
                    waits_for = 1
            elif does == _SYNC_EVENT:
                before = recorded[event[at]]
                saw[at] = before
                if before >= 0 and left[before] != _DONE:
                    spare = _wait(before, -1, 0, edge_first, edge_last, edges, spare)
                    waits_for = 1
            elif does != _NOTHING:
                for other in range(streams):
                    covered = does != _SYNC_STREAM or other == stream[at]  # R2.6
                    if not covered and standing[stream[at]] == _LEGACY:
                        covered = standing[other] == _FENCED  # R2.5
                    before = last[other]
                    if covered and before >= 0 and left[before] != _DONE:
                        spare = _wait(before, -1, 0, edge_first, edge_last, edges, spare)
                        waits_for += 1
            if not waits_for:
                returned[at] = now
                at += 1

        # What can start starts.
        while len(look):
            where = look.pop()
            if where != _SM:
                op = head[where]
                if running[where] < 0 and op >= 0:  # R3.6, R6.1: one at a time, by readiness, then issue order
                    head[where] = behind[op]
                    running[where] = op
                    start[op] = now
                    if ready[op] < now:
                        bound[op] = _BY_WORKER if where == _WORKER else _COPY_ENGINE
                        bound_by[op] = freed_by[where]
                    heappush(heap, (now + work[op], op + (2 * rows if where == _WORKER else 0), 0))
                continue
            first = 0
            while first < levels:  # R6.13: by priority
                op = head[_QUEUES + first]
                if op < 0:
                    first += 1
                    continue
                blocks = _count(op, 0, to_place)  # of a kernel of which some are placed
                begun = blocks > 0
                if resident >= most_grids and not begun:  # R6.10
                    slotless = op
                    break
                if not begun:
                    blocks = blocks_of[grid[op]]
                fit = min(free // units_of[grid[op]], blocks)
                if not fit:
                    break  # R6.11, A2: nobody passes a head that does not fit
                if not begun:
                    start[op] = now
                    resident += 1
                    if ready[op] < now:
                        bound[op] = no_slot if slotless == op else _BY_SM
                        bound_by[op] = freed_by[_SM]
                free -= fit * units_of[grid[op]]
                heappush(heap, (now + work[op], op + rows, fit))
                if begun or fit < blocks:
                    _count(op, fit, placed)
                    _count(op, -fit if begun else blocks - fit, to_place)
                if fit < blocks:
                    break
                head[_QUEUES + first] = behind[op]

        # On to the next moment, at which everything that ends ends.
        host_goes = at < rows and not waits_for
        if len(heap):
            now = min(heap[0][0], host_at) if host_goes else heap[0][0]
        elif host_goes:
            now = host_at
        else:
            break
        while len(heap) and heap[0][0] == now:
            _, what, blocks = heappop(heap)
            op = what % rows
            where = place[op]
            freed_by[where] = op
            look.append(where)
            if where == _SM:
                free += blocks * units_of[grid[op]]
                if _count(op, -blocks, placed) or _count(op, 0, to_place):
                    continue  # more blocks run, or are to come
                resident -= 1
            else:
                running[where] = -1
            over[0] = op
            number = 0
            while number < len(over):  # and with it what takes no time and waits for nothing any more
                op = over[number]
                number += 1
                left[op] = _DONE
                end[op] = now
                target, why, edge = follower[op], _STREAM, edge_first[op]
                while target >= 0 or edge >= 0:
                    if target < 0:
                        target, why, freed = edges[edge], edges[edge + 1], edge
                        edge = edges[edge + 2]
                        edges[freed + 2] = spare
                        spare = freed
                    if target < 0:  # the host waited for it
                        waits_for -= 1
                        if not waits_for:
                            waited_by[at] = op
                            returned[at] = host_at = now
                            at += 1
                        continue
                    bound[target] = why
                    bound_by[target] = op
                    left[target] -= 1
                    if not left[target]:
                        ready[target] = now
                        where = place[target]
                        if where == _NOWHERE:
                            start[target] = now
                            over.append(target)
                        else:
                            look.append(where)
                            mine = _QUEUES + level[stream[target]] if where == _SM else where
                            _queue(target, mine, head, tail, behind, ready)
                    target = -1
            while len(over) > 1:
                over.pop()
