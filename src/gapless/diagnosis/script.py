"""The Script: what the host threads of a measured run did, act by act, ready to be edited and run again.

A Script says what a Program needs to know and a timeline only shows in passing: the host's own work before each call,
the call's own cost without its waiting, how long each operation takes when nothing disturbs it. A repair is an edit of
it; ``replay.run`` turns it into a Program and lets the model say when everything happens. Times are ns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.timeline.timeline import RangeKind

from .fit import Profiler, host_speed, lone_durations
from .host import first_uses
from .known_events import KnownEvents, known_events
from .work import LONG_AGO, Ints, Work

SYNC_CALLS = (CallKind.SYNC_DEVICE, CallKind.SYNC_STREAM, CallKind.SYNC_EVENT)
FREE_CALLS = (CallKind.FREE, CallKind.HOST_FREE, CallKind.HOST_UNREGISTER)
ALLOCATION_CALLS = (*FREE_CALLS, CallKind.MALLOC, CallKind.HOST_MALLOC, CallKind.HOST_REGISTER)
READ_BACK = 1024  # bytes up to which a download is a value that the host asks for

# Calls that are acts of their own; all others are part of the host's work between two acts.
_ACTS = (CallKind.COPY_SYNC, *SYNC_CALLS, *ALLOCATION_CALLS)
_COPIES = (OpKind.H2D, OpKind.D2H)
_PLAIN_CALL = 1_500  # ns: own cost of a copy call that always waits and so never shows it
LONG_RETURN = 20_000  # ns: a call that returns this much after its operation began did something else there
PAUSE_LEAST, PAUSE_MOST = 15_000, 200_000  # ns between which a pause that nothing explains is kept
_SYNC_CALL = 500  # ns: own cost of a synchronise
# New streams of a repair are numbered from here on; smaller numbers are rows of the timeline's streams.
NEW_STREAM = 1 << 20


@dataclass(slots=True)
class Act:
    """One call of a host thread and the operation that it puts into a stream, if any."""

    thread: int  # logical: threads that take turns are one
    gap: int  # host work before the call
    call: int  # CallKind
    cost: int  # own time of the call before it waits
    post: int = 0  # host time after the waiting, until it returned
    op: int = -1  # OpKind of the operation, -1 none
    stream: int = -1  # row of timeline.streams, or NEW_STREAM and up; of a synchronise: what it waits for, -1 unknown
    duration: float = 0.0  # of the operation, alone
    bytes: int = -1
    src: int = MemoryKind.UNKNOWN
    dst: int = MemoryKind.UNKNOWN
    grid: tuple[int, int, int, int] | None = None  # blocks, threads a block, registers a thread, shared bytes a block
    name: int = -1  # row of timeline.strings
    waited: bool = False  # the call waited for the device when it was recorded
    event: int = -1  # of RECORD and WAIT_EVENT acts; of SYNC_EVENT acts that wait for a known one
    row: int = -1  # row of the Work's operations, -1 for what a repair added
    setting_up: int = 0  # the part of the gap in which an operator compiled or set up what its first launch needs
    first_use: bool = False  # the call loaded or set up what was used for the first time

    @property
    def pageable(self) -> bool:
        """Whether it copies from or to pageable memory."""
        return (self.op == OpKind.H2D and self.src == MemoryKind.PAGEABLE) or (
            self.op == OpKind.D2H and self.dst == MemoryKind.PAGEABLE
        )

    @property
    def reads_back(self) -> bool:
        """Whether it fetches a value of at most 1 KiB."""
        return self.op == OpKind.D2H and 0 <= self.bytes <= READ_BACK

    @property
    def synchronises(self) -> bool:
        """Whether it is a synchronise."""
        return self.call in SYNC_CALLS

    @property
    def works(self) -> bool:
        """Whether it puts work into a stream, and not only the record of an event or a wait for one."""
        return self.op >= 0 and self.op not in (OpKind.RECORD, OpKind.WAIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The acts of all logical threads, those of one thread in order."""

    acts: tuple[Act, ...]
    threads: int
    events: int = 0
    held: int = 0  # ns from the first call for which the device is still busy with work from before the script
    legacy: frozenset[int] = frozenset()  # the streams that are legacy default streams
    non_blocking: bool = False  # all blocking and unknown streams are made non-blocking
    graph: bool = False  # launches without cost are nodes of one graph
    connections: int = 0  # CUDA_DEVICE_MAX_CONNECTIONS, 0: the machine's

    def with_acts(self, acts: Iterable[Act]) -> Script:
        """Give the same script with other acts."""
        return replace(self, acts=tuple(acts))

    def last_operation(self) -> int:
        """Give the index of the last act that puts work into a stream."""
        return max((i for i, act in enumerate(self.acts) if act.works), default=-1)

    def without(self, dropped: Iterable[int]) -> Script:
        """Leave acts out (by index); the host's own work before them stays."""
        gone = set(dropped)
        if not gone:
            return self
        kept: list[Act] = []
        carried: dict[int, tuple[int, int]] = {}
        for i, act in enumerate(self.acts):
            gap, setting_up = carried.pop(act.thread, (0, 0))
            if gap:
                act = replace(act, gap=act.gap + gap, setting_up=act.setting_up + setting_up)
            if i in gone:
                carried[act.thread] = act.gap, act.setting_up
            else:
                kept.append(act)
        return self.with_acts(kept)


def script_of(work: Work, profiler: Profiler, tail: float) -> Script:
    """Write the script of a measured run, with the profiler's own cost taken out (``TRACED`` leaves it in).

    *tail* is the last part of a kernel in which its SMs fall free (``Machine.kernel_tail``).
    """
    calls, ops = work.calls, work.ops
    profiler = profiler.at_speed(host_speed(work))
    events = known_events(work)
    rows, threads = _acts(work, events)
    if not len(rows):
        return Script(acts=(), threads=1)
    durations = lone_durations(work, tail)
    before = _previous_end(work, rows, threads)
    gaps = np.maximum(calls.start[rows] - before, 0)
    gaps = np.maximum(gaps - _recording(work, before, calls.start[rows], profiler), gaps // 4)
    own = _own_cost(work, rows, profiler)
    pageable = work.pageable()
    of_call = _operations_by_call(work)
    pauses = _unexplained(work)
    pauses[list(events.before)] = 0
    pauses = pauses.tolist()
    first = first_uses(work)
    setting_up = dict(zip(first.call.tolist(), (calls.start[first.call] - first.start).tolist(), strict=True))
    loading = set(first.call[first.start == calls.start[first.call]].tolist())
    acts: list[Act] = []
    stream_now: dict[int, int] = {}
    for row, thread, gap, cost in zip(rows.tolist(), threads.tolist(), gaps.tolist(), own.tolist(), strict=True):
        waited_for = int(work.blocked_on[row])
        late = max(0, int(calls.end[row] - ops.end[waited_for])) if waited_for >= 0 else 0
        kind = CallKind(int(calls.kind[row]))
        issued = of_call.get(row)
        if issued:
            for position, op in enumerate(issued):
                act = _operation(work, op, kind, float(durations[op]))
                act.thread = thread
                if op in events.before:
                    acts.append(_wait(thread, act.stream, events.before[op]))
                if position == 0 and acts and acts[-1].call in FREE_CALLS:
                    acts[-1].post += pauses[op]  # the device is slow to start again after a free
                else:
                    act.duration += pauses[op]
                if position == 0:
                    act.gap, act.cost, act.waited = gap, cost, waited_for >= 0
                    act.setting_up, act.first_use = min(gap, setting_up.get(row, 0)), row in loading
                    if act.waited:  # it waits for itself: what it did before and after is the host's
                        act.cost, act.post = _PLAIN_CALL, late
                        if pageable[op] and kind is CallKind.COPY_ASYNC:
                            act.duration += _staged_before(work, op, row)
                    elif calls.end[row] - ops.start[op] > LONG_RETURN:  # issued at once, but long in returning
                        act.cost = min(cost, int(ops.start[op] - calls.start[row]))
                        act.post = cost - act.cost
                acts.append(act)
                if op in events.behind:
                    acts.append(_record(thread, act.stream, events.behind[op]))
                stream_now[thread] = act.stream
            continue
        if row in events.records:
            acts.append(_record(thread, *events.records[row], gap=gap, cost=cost))
            continue
        if row in events.waits:
            for stream, number in events.waits[row]:
                acts.append(_wait(thread, stream, number, gap=gap, cost=cost))
                gap = cost = 0
            continue
        act = Act(thread=thread, gap=gap, call=kind, cost=cost, waited=waited_for >= 0, first_use=row in loading)
        if kind is CallKind.SYNC_EVENT:
            act.event = events.syncs.get(row, -1)
        elif kind in SYNC_CALLS:
            guess = int(ops.stream[waited_for]) if act.waited else stream_now.get(thread, -1)
            act.stream = events.streams.get(row, guess)
        if act.waited:
            act.cost, act.post = _SYNC_CALL, max(0, late - profiler.synchronise)
        acts.append(act)
    return Script(acts=tuple(acts), threads=int(threads.max()) + 1, events=events.count, held=_held(work),
                  legacy=_legacy(work))  # fmt: skip


def _record(thread: int, stream: int, event: int, *, gap: int = 0, cost: int = 0) -> Act:
    return Act(thread=thread, gap=gap, call=CallKind.RECORD, cost=cost, op=OpKind.RECORD, stream=stream, event=event)


def _wait(thread: int, stream: int, event: int, *, gap: int = 0, cost: int = 0) -> Act:
    return Act(thread=thread, gap=gap, call=CallKind.WAIT_EVENT, cost=cost, op=OpKind.WAIT, stream=stream, event=event)


def _legacy(work: Work) -> frozenset[int]:
    streams = work.timeline.streams
    return frozenset(row for row, stream in enumerate(streams) if stream.kind is StreamKind.LEGACY)


def _held(work: Work) -> int:
    """How long after the first call the device was still busy with what had been issued before the window."""
    issued = work.issue[work.ops.call >= 0]
    all_ops = work.timeline.ops
    first = int(work.ops.start.min())
    if not len(issued) or not np.any((all_ops.device == work.device) & (all_ops.start < first)):
        return 0
    held = first - int(issued.min()) - work.launch_latency
    return held if held > LONG_RETURN else 0


def _acts(work: Work, events: KnownEvents) -> tuple[Ints, Ints]:
    """The calls that are acts, thread by thread in order, and the logical thread of each."""
    calls = work.calls
    issued = work.ops.call[work.ops.call >= 0]
    if not len(issued):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    chosen = np.isin(calls.kind, _ACTS) & ~_of_others(work)
    chosen[issued] = True
    chosen[list(events.records)] = chosen[list(events.waits)] = True
    chosen &= (calls.start >= calls.start[issued].min()) & (calls.start <= work.end)
    rows = np.flatnonzero(chosen)
    threads = _logical_threads(work, rows)
    order = np.lexsort((calls.start[rows], threads))
    return rows[order], threads[order]


def _of_others(work: Work) -> NDArray[np.bool_]:
    """The calls of threads that work for other devices and not for this one."""
    all_ops, thread = work.timeline.ops, work.calls.thread
    mine = thread[work.ops.call[work.ops.call >= 0]]
    others = thread[all_ops.call[(all_ops.call >= 0) & (all_ops.device != work.device)]]
    return np.isin(thread, others) & ~np.isin(thread, mine)


def _logical_threads(work: Work, rows: Ints) -> Ints:
    """Number the threads. Those whose calls take turns (a program and its autograd engine) count as one."""
    calls = work.calls
    thread, start, end = calls.thread[rows], calls.start[rows], calls.end[rows]
    names, numbers = np.unique(thread, return_inverse=True)
    order = np.argsort(start, kind="stable")
    reached = np.maximum.accumulate(end[order])[:-1]
    at_once = (reached > start[order][1:]) & (thread[order][1:] != thread[order][:-1])
    if len(names) == 1 or np.count_nonzero(at_once) <= 0.02 * len(rows):
        return np.zeros(len(rows), np.int64)
    return numbers.astype(np.int64)


def _previous_end(work: Work, rows: Ints, threads: Ints) -> Ints:
    """When the act before each one returned; the first of all begins the script."""
    before = np.empty(len(rows), np.int64)
    before[1:] = work.calls.end[rows][:-1]
    before[np.flatnonzero(np.diff(threads, prepend=-1))] = work.calls.start[rows].min()
    return before


def _recording(work: Work, since: Ints, until: Ints, profiler: Profiler) -> Ints:
    """Time that the profiler spends on operators and Python frames that begin between two acts."""
    ranges = work.timeline.ranges
    spent = np.zeros(len(since), np.int64)
    for kind, cost in ((RangeKind.CPU_OP, profiler.cpu_op), (RangeKind.PYTHON, profiler.python)):
        if cost:
            begins = np.sort(ranges.start[ranges.kind == kind])
            spent += (np.searchsorted(begins, until) - np.searchsorted(begins, since)) * cost
    return spent


def _own_cost(work: Work, rows: Ints, profiler: Profiler) -> Ints:
    """What each call costs the host when it does not wait, without the profiler's share."""
    calls, ranges = work.calls, work.timeline.ranges
    cost = calls.end[rows] - calls.start[rows]
    if profiler.silent:
        return cost
    for i in np.flatnonzero(ranges.kind == RangeKind.OVERHEAD).tolist():  # asking for buffers, flushing them
        inside = np.minimum(calls.end[rows], ranges.end[i]) - np.maximum(calls.start[rows], ranges.start[i])
        cost = cost - np.where(inside > profiler.least_flush, inside, 0)
    launches = np.isin(calls.kind[rows], (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH))
    framework = bool((ranges.kind == RangeKind.CPU_OP).any())
    each = np.where(launches, profiler.launch_in_framework if framework else profiler.launch, profiler.call)
    cost = np.maximum(cost - each, np.minimum(cost, 1_000))
    if len(cost) and cost[0] >= profiler.first:  # the first traced call of a run also starts the tracing
        cost[0] = max(int(cost[0]) - profiler.first, 2_500)
    return cost


def _operations_by_call(work: Work) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for op, (call, kind) in enumerate(zip(work.ops.call.tolist(), work.ops.kind.tolist(), strict=True)):
        if call >= 0 and kind not in _NO_WORK:
            found.setdefault(call, []).append(op)
    return found


# What takes no engine: records and waits come from the marks, the rest orders nothing that a replay needs.
_NO_WORK = frozenset({OpKind.RECORD, OpKind.WAIT, OpKind.MALLOC, OpKind.FREE, OpKind.GRAPH})
_CALL_OF = {OpKind.KERNEL: CallKind.LAUNCH, OpKind.MEMSET: CallKind.MEMSET_ASYNC}
_KEPT_CALLS = (CallKind.COPY_SYNC, CallKind.COPY_ASYNC, CallKind.LAUNCH, CallKind.MEMSET_ASYNC, CallKind.MEMSET_SYNC)


def _operation(work: Work, row: int, call: CallKind, duration: float) -> Act:
    ops = work.ops
    kind = OpKind(int(ops.kind[row]))
    if kind is OpKind.P2P:  # R3.7: the host does not wait; the other device is not replayed
        call = CallKind.COPY_ASYNC
    return Act(
        thread=0, gap=0, call=call if call in _KEPT_CALLS else _CALL_OF.get(kind, CallKind.COPY_ASYNC), cost=0,
        op=kind, stream=int(ops.stream[row]), duration=max(duration, 1.0), bytes=int(ops.bytes[row]),
        src=int(ops.src[row]), dst=int(ops.dst[row]), grid=_grid(work, row) if kind is OpKind.KERNEL else None,
        name=int(ops.name[row]), row=row,
    )  # fmt: skip


def _grid(work: Work, row: int) -> tuple[int, int, int, int] | None:
    ops = work.ops
    if ops.grid[row][0] < 0 or ops.block[row][0] < 0:
        return None
    return (
        _product(ops.grid[row]),
        _product(ops.block[row]),
        max(0, int(ops.registers[row])),
        max(0, int(ops.shared[row])),
    )


def _product(shape: NDArray[np.int32]) -> int:
    return int(shape[0]) * int(shape[1]) * int(shape[2])


def _unexplained(work: Work) -> NDArray[np.int64]:
    """Short pauses before an operation that nothing in the timeline explains, such as the one behind a ``cudaFree``.

    They belong to the machine and are kept. Long ones are more likely waits that the timeline does not show, and are
    left out: the replay error then tells that something is missing. A copy of pageable memory explains its own.
    """
    ready = np.maximum.reduce([work.launched, work.stream_ready, work.fence_ready, work.event_ready, work.engine_ready])
    pause = work.ops.start - ready
    idle = np.zeros(len(pause), bool)
    for engine in np.unique(work.engine):
        rows = np.flatnonzero(work.engine == engine)
        reached = np.maximum.accumulate(np.concatenate(([LONG_AGO], work.ops.end[rows][:-1])))
        idle[rows] = reached <= ready[rows]
    kept = (pause > PAUSE_LEAST) & (pause < PAUSE_MOST) & idle & ~work.pageable()
    return np.where(kept, pause - PAUSE_LEAST // 2, 0)


def _staged_before(work: Work, op: int, call: int) -> int:
    """Time between the moment a blocking pageable copy could begin and its start: the host staging its first piece."""
    ready = max(int(work.calls.start[call]), int(work.stream_ready[op]), int(work.engine_ready[op]),
                int(work.fence_ready[op]))  # fmt: skip
    return max(0, int(work.ops.start[op]) - ready - work.launch_latency)
