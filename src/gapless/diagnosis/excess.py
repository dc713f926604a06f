"""What copies of pageable memory take beyond what they need, and how much of it lies inside a gap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import Engine

from .work import Ints, Work


class Excess:
    """The time beyond need, taken to be spread evenly over each copy."""

    def __init__(self, work: Work, needed: Ints) -> None:
        self.of = work.ops.end - work.ops.start - needed  # ns, for each operation
        self._engine = work.engine
        self._rows = np.flatnonzero(self.of > 0)
        self._start, end = work.ops.start[self._rows], work.ops.end[self._rows]
        self._zero = work.start  # times are summed up as floats, so they count from here
        share = self.of[self._rows] / (end - self._start)
        order = np.argsort(end, kind="stable")
        self._begun = self._start - self._zero, share
        self._done = (end - self._zero)[order], share[order]

    def within(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """The excess in ns inside each stretch, and the last copy begun before its end (-1 where there is none)."""
        if not len(self._rows):
            return np.zeros(len(start), np.int64), np.full(len(start), -1)
        inside = (self._before(end) - self._before(start)).astype(np.int64)
        last = self._rows[np.maximum(np.searchsorted(self._start, end) - 1, 0)]
        return inside, np.where(inside > 0, last, -1)

    def own(self, engine: Engine) -> Ints:
        """The operations of an engine that take longer than they need."""
        return self._rows[self._engine[self._rows] == engine]

    def _before(self, times: Ints) -> NDArray[np.float64]:
        """The excess before each moment: as if no copy begun had ended, less what those that have did not take."""
        return _sloped(times - self._zero, *self._begun) - _sloped(times - self._zero, *self._done)


def _sloped(times: Ints, since: Ints, share: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of ``share * (time - since)`` over all *since* (sorted) before each time."""
    shares = np.concatenate(([0.0], np.cumsum(share)))
    offsets = np.concatenate(([0.0], np.cumsum(share * since)))
    before = np.searchsorted(since, times)
    return np.asarray(shares[before] * times - offsets[before], np.float64)
