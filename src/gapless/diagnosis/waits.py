"""The idle time of the engine that binds a run, by the reason why it stood still."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .work import Ints


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
    PACE = 10  # were all that is charged before it gone, the host's own pace would be next to hold it up
    OWN_STAGING = 11  # the host issued late: threads of the program were copying between pageable and pinned memory


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waits:
    """One row a charge. ``start`` and ``end`` give the gap charged from, or the slow copy itself."""

    start: Ints  # ns
    end: Ints  # ns
    cost: Ints  # ns charged to this row; the rows of one gap add up to the gap
    reason: NDArray[np.int8]
    op: Ints  # the operation that waited
    by: Ints  # the operation it waited for, -1 none
    call: Ints  # row of timeline.calls: that blocked the host, or that issued the operation late; -1 none

    @classmethod
    def build(cls, start: Ints, end: Ints, cost: Ints, reason: Reason, op: Ints, by: Any = -1, call: Any = -1) -> Waits:
        """Build rows of one reason. *by* and *call* may be one value for all."""
        columns = np.broadcast_arrays(start, end, cost, op, by, call)
        start, end, cost, op, by, call = (np.asarray(column, np.int64) for column in columns)
        return cls(start=start, end=end, cost=cost, reason=np.full(len(cost), reason, np.int8), op=op, by=by, call=call)

    def __len__(self) -> int:
        return len(self.cost)

    def take(self, rows: NDArray[Any]) -> Waits:
        """Give the waits of these rows (an index array or a mask)."""
        return Waits(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @staticmethod
    def join(parts: list[Waits]) -> Waits:
        """Give all rows of several Waits that cost anything."""
        parts = [part if (part.cost > 0).all() else part.take(part.cost > 0) for part in parts]
        return Waits(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Waits)})
