"""What host threads did: how far the device held them up, and what they were at when they issued work late."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, OpKind
from gapless.timeline.timeline import RangeKind

from .work import Ints, Work, at

FIRST_USE_LEAST = 100_000  # ns: a shorter first call is not worth a word
FIRST_USE_FACTOR = 20  # a first use takes this many times as long as the same call usually does
SET_UP_LEAST = 1_000_000  # ns: an operator that takes so long to its first launch has set something up
TINY = 1024  # bytes up to which a copy carries a value, not data: nothing to stage, nothing to pin
QUEUE = 900  # R6.9: about a thousand entries fill a launch queue, and the next launch waits for room
QUEUE_WAIT = 20_000  # ns: a launch into a full queue that takes less has not waited


class Activity(IntEnum):
    """What a host thread may be at before it issues work."""

    ALLOCATING = 1
    STAGING = 2  # copying pageable memory into the driver's pinned buffers, or out of them
    FIRST_USE = 3  # loading a module, building a context, compiling: what is needed once
    OWN_STAGING = 4  # the same with pinned buffers of the program's own, or waiting for threads that do


_ALLOCATING = (
    CallKind.MALLOC, CallKind.FREE, CallKind.HOST_MALLOC, CallKind.HOST_FREE, CallKind.HOST_REGISTER,
    CallKind.HOST_UNREGISTER,
)  # fmt: skip


def activities(work: Work) -> dict[Activity, TimeIn]:
    """Give the stretches of host time that each activity takes; no two of one thread overlap."""
    calls = work.calls
    first = first_uses(work)
    doing = np.zeros(len(calls), np.int8)
    doing[np.isin(calls.kind, _ALLOCATING)] = Activity.ALLOCATING
    copies = np.flatnonzero(work.pageable() & (work.ops.call >= 0) & (work.ops.bytes > TINY))
    doing[work.ops.call[copies]] = Activity.STAGING
    doing[first.call] = 0  # those have stretches of their own
    found = {Activity.FIRST_USE: TimeIn(calls.thread[first.call], first.start, first.end)}
    for activity in (Activity.ALLOCATING, Activity.STAGING):
        rows = np.flatnonzero(doing == activity)
        found[activity] = TimeIn(calls.thread[rows], calls.start[rows], calls.end[rows])
    own = work.timeline.ranges.take(work.timeline.ranges.kind == RangeKind.STAGING)
    found[Activity.OWN_STAGING] = TimeIn(own.thread, own.start, own.end)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstUses:
    """The calls that used something for the first time, and from when to when the host was at it."""

    call: Ints  # row of timeline.calls
    start: Ints  # ns; before the call where it was the operator around it that set itself up
    end: Ints


def first_uses(work: Work) -> FirstUses:
    """Find the long calls that are the first of their kind, and the operators that took long before a first launch."""
    calls = work.calls
    launches = _first_launches(work)
    loading = _loading(work, launches)
    setting_up, since = _setting_up(work, launches)
    return FirstUses(
        call=np.concatenate((loading, setting_up)),
        start=np.concatenate((calls.start[loading], since)),
        end=np.concatenate((calls.end[loading], calls.start[setting_up])),
    )


def _first_launches(work: Work) -> Ints:
    """The calls that launched each kernel for the first time."""
    ops = work.ops
    launches = np.flatnonzero((ops.call >= 0) & (ops.kind == OpKind.KERNEL))
    launches = launches[np.argsort(work.issue[launches], kind="stable")]
    _, first = np.unique(ops.name[launches], return_index=True)
    return np.unique(ops.call[launches[first]]).astype(np.int64)


def _loading(work: Work, launches: Ints) -> Ints:
    """The long calls that are the first of an API, or the launch of a kernel not seen before."""
    calls = work.calls
    long_ = (calls.end - calls.start >= FIRST_USE_LEAST) & (work.blocked_on < 0)
    if not long_.any():
        return np.empty(0, np.int64)
    _, first_of_api = np.unique(calls.name, return_index=True)
    first = np.union1d(first_of_api, launches)
    loading = _loads_code(work)
    first = np.union1d(first, np.flatnonzero(loading))
    return np.array([row for row in first[long_[first]].tolist() if loading[row] or _is_unusual(work, row)], np.int64)


def _loads_code(work: Work) -> NDArray[np.bool_]:
    """The calls in which the driver loads code for more than half of the time, where the profiler noted it."""
    calls, ranges = work.calls, work.timeline.ranges
    spent = np.zeros(len(calls), np.int64)
    for i in np.flatnonzero(ranges.kind == RangeKind.LOADING).tolist():
        inside = np.minimum(calls.end, ranges.end[i]) - np.maximum(calls.start, ranges.start[i])
        spent += np.where(calls.thread == ranges.thread[i], np.maximum(inside, 0), 0)
    return spent * 2 > calls.end - calls.start


def _is_unusual(work: Work, row: int) -> bool:
    calls = work.calls
    if calls.kind[row] in (CallKind.MODULE, CallKind.DEVICE):
        return True
    same = np.flatnonzero(calls.name == calls.name[row])
    usual = float(np.median((calls.end - calls.start)[same]))
    return len(same) == 1 or calls.end[row] - calls.start[row] >= FIRST_USE_FACTOR * usual


def _setting_up(work: Work, launches: Ints) -> tuple[Ints, Ints]:
    """The first launches that come long after their thread's last call, inside one operator; and when that returned.

    An operator needs microseconds from its begin to its launch, unless it compiles or sets up a library first.
    """
    calls, ranges = work.calls, work.timeline.ranges
    pause = pauses(work)[launches]
    found: list[int] = []
    for call, length in zip(
        launches[pause >= SET_UP_LEAST].tolist(), pause[pause >= SET_UP_LEAST].tolist(), strict=True
    ):
        until = int(calls.start[call])
        operators = (ranges.kind == RangeKind.CPU_OP) & (ranges.thread == calls.thread[call]) & (ranges.end >= until)
        if (operators & (ranges.start <= until - length // 2)).any():
            found.append(call)
    rows = np.array(found, np.int64)
    return rows, calls.start[rows] - pauses(work)[rows]


def pauses(work: Work) -> Ints:
    """For each host call the time (ns) since its thread came back from the call before it, 0 for the first."""
    calls = work.calls
    order = np.lexsort((calls.start, calls.thread))
    pause = np.zeros(len(calls), np.int64)
    before, after = order[:-1], order[1:]
    same = calls.thread[before] == calls.thread[after]
    pause[after[same]] = np.maximum(calls.start[after] - calls.end[before], 0)[same]
    return pause


def last_block(work: Work) -> Ints:
    """For each operation the last call that kept its issuing thread waiting before it was issued, -1 if none."""
    calls = work.calls
    issuing, threads = work.ops.call, at(calls.thread, work.ops.call, -1)
    found = np.full(len(work.ops), -1)
    blocks = np.flatnonzero(work.blocked_on >= 0)
    for thread in np.unique(calls.thread[blocks]).tolist():
        mine = blocks[calls.thread[blocks] == thread]
        mine = mine[np.argsort(calls.end[mine], kind="stable")]
        ops = np.flatnonzero((threads == thread) & (issuing >= 0))
        place = np.searchsorted(calls.end[mine], calls.start[issuing[ops]], side="right") - 1
        found[ops[place >= 0]] = mine[place[place >= 0]]
    return found


def held_up(work: Work) -> Ints:
    """For each operation how long (ns) its issuing thread had stood in waits for the device before it, in the window.

    Without those calls the thread would have been that much earlier, and no more: the rest is its own pace.
    """
    calls = work.calls
    rows = np.concatenate((np.flatnonzero(work.blocked_on >= 0), _into_full_queues(work)))
    waits = TimeIn(calls.thread[rows], calls.start[rows], calls.end[rows])
    issue = np.maximum(at(calls.start, work.ops.call, work.start), work.start)
    return waits.between(at(calls.thread, work.ops.call, -1), np.full(len(issue), work.start), issue)


def _into_full_queues(work: Work) -> Ints:
    """The calls that waited for room in a launch queue (R6.9): long ones with a full queue's work outstanding."""
    calls, issuing = work.calls, work.ops.call
    known = np.flatnonzero(issuing >= 0)
    rows, which = np.unique(issuing[known], return_inverse=True)
    if len(rows) < QUEUE:
        return np.empty(0, np.int64)
    done = np.zeros(len(rows), np.int64)
    np.maximum.at(done, which, work.ops.end[known])
    start = calls.start[rows]
    outstanding = np.searchsorted(np.sort(start), start) - np.searchsorted(np.sort(done), start, side="right")
    waited = (calls.end[rows] - start >= QUEUE_WAIT) & (work.blocked_on[rows] < 0)
    return rows[(outstanding >= QUEUE) & waited].astype(np.int64)


class TimeIn:
    """How long each thread spent in some disjoint stretches of its time."""

    def __init__(self, threads: NDArray[np.int32], start: Ints, end: Ints) -> None:
        self._by_thread: dict[int, tuple[Ints, Ints, Ints]] = {}
        for thread in np.unique(threads).tolist():
            mine = np.flatnonzero(threads == thread)
            mine = mine[np.argsort(start[mine], kind="stable")]
            length = end[mine] - start[mine]
            self._by_thread[thread] = start[mine], length, np.concatenate(([0], np.cumsum(length)))

    def between(self, threads: NDArray[np.int32], since: Ints, until: Ints) -> Ints:
        """Time in ns inside the stretches of each thread, for each ``[since, until]``."""
        spent = np.zeros(len(since), np.int64)
        for thread, own in self._by_thread.items():
            rows = np.flatnonzero(threads == thread)
            spent[rows] = _before(until[rows], *own) - _before(since[rows], *own)
        return spent


def _before(times: Ints, start: Ints, length: Ints, sums: Ints) -> Ints:
    at = np.searchsorted(start, times, side="right") - 1
    inside = np.clip(times - start[np.maximum(at, 0)], 0, length[np.maximum(at, 0)])
    return np.where(at >= 0, sums[np.maximum(at, 0)] + inside, 0)
