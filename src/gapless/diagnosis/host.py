"""What a host thread was doing when it issued work late: allocating, staging a copy, using something for the first
time.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind

from .work import Bools, Ints, Work

FIRST_USE_LEAST = 100_000  # ns: a shorter first call is not worth a word
FIRST_USE_FACTOR = 20  # a first use takes this many times as long as the same call usually does


class Activity(IntEnum):
    """What a host thread does in a call into CUDA."""

    CALLING = 0  # any other call
    ALLOCATING = 1
    STAGING = 2  # copying pageable memory into the driver's pinned buffers, or out of them
    FIRST_USE = 3  # loading a module, building a context, a first call of its kind


_ALLOCATING = (
    CallKind.MALLOC, CallKind.FREE, CallKind.HOST_MALLOC, CallKind.HOST_FREE, CallKind.HOST_REGISTER,
    CallKind.HOST_UNREGISTER,
)  # fmt: skip


def activities(work: Work) -> NDArray[np.int8]:
    """Give the Activity of every host call."""
    calls = work.calls
    doing = np.zeros(len(calls), np.int8)
    doing[np.isin(calls.kind, _ALLOCATING)] = Activity.ALLOCATING
    copies = np.flatnonzero(work.pageable() & (work.ops.call >= 0))
    doing[work.ops.call[copies]] = Activity.STAGING
    doing[first_uses(work)] = Activity.FIRST_USE
    return doing


def first_uses(work: Work) -> Ints:
    """Find the long calls that are the first of their kind: of an API, or the launch of a kernel not seen before."""
    calls, ops = work.calls, work.ops
    waited = work.blocked_on >= 0
    long_ = np.flatnonzero((calls.end - calls.start >= FIRST_USE_LEAST) & ~waited)
    if not len(long_):
        return long_
    _, first_of_api = np.unique(calls.name, return_index=True)
    issued = ops.call >= 0
    launches = np.flatnonzero(issued)[np.argsort(work.issue[issued], kind="stable")]
    _, first_of_kernel = np.unique(ops.name[launches], return_index=True)
    first = np.zeros(len(calls), bool)
    first[first_of_api] = True
    first[ops.call[launches[first_of_kernel]]] = True
    found = [row for row in long_[first[long_]].tolist() if _unusual(work, row)]
    return np.array(found, np.int64)


def _unusual(work: Work, row: int) -> bool:
    calls = work.calls
    if calls.kind[row] in (CallKind.MODULE, CallKind.DEVICE):
        return True
    same = np.flatnonzero(calls.name == calls.name[row])
    usual = float(np.median((calls.end - calls.start)[same]))
    return len(same) == 1 or calls.end[row] - calls.start[row] >= FIRST_USE_FACTOR * usual


class TimeIn:
    """How long a thread spent in some of its calls between two moments."""

    def __init__(self, work: Work, chosen: Bools) -> None:
        self._calls = work.calls
        self._by_thread: dict[int, tuple[Ints, Ints, Ints]] = {}
        rows = np.flatnonzero(chosen)
        threads = work.calls.thread[rows]
        for thread in np.unique(threads).tolist():
            mine = rows[threads == thread]
            start = work.calls.start[mine]
            length = work.calls.end[mine] - start
            self._by_thread[thread] = start, length, np.concatenate(([0], np.cumsum(length)))

    def between(self, threads: NDArray[np.int32], since: Ints, until: Ints) -> Ints:
        """Time in ns inside the chosen calls of each thread, for each stretch ``[since, until]``."""
        spent = np.zeros(len(since), np.int64)
        for thread, own in self._by_thread.items():
            rows = np.flatnonzero(threads == thread)
            spent[rows] = _before(until[rows], *own) - _before(since[rows], *own)
        return spent


def _before(times: Ints, start: Ints, length: Ints, sums: Ints) -> Ints:
    at = np.searchsorted(start, times, side="right") - 1
    inside = np.clip(times - start[np.maximum(at, 0)], 0, length[np.maximum(at, 0)])
    return np.where(at >= 0, sums[np.maximum(at, 0)] + inside, 0)
