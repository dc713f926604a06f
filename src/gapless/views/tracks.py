"""Which of several tracks under one another each interval of a lane lies in, so that they do not cover each other."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def nested(start: NDArray[Any], end: NDArray[Any]) -> Rows:
    """Give the depth of each interval, where intervals hold each other as calls of functions do.

    They must be in order of start, the longest first of those that start together.
    """
    over = np.searchsorted(np.sort(end), start, side="right")
    return np.arange(len(start)) - over


def packed(start: NDArray[Any], end: NDArray[Any], most: int) -> Rows:
    """Give each interval, in order of start, the first track that is free; where *most* are taken, the next to be."""
    track = np.zeros(len(start), np.int64)
    reached = np.maximum.accumulate(end) if len(end) else end
    late = np.flatnonzero(start[1:] < reached[:-1])
    if not len(late):
        return track
    # All that starts when everything before it is over begins anew: only stretches that overlap need a look.
    opens = np.concatenate(([0], np.flatnonzero(start[1:] >= reached[:-1]) + 1, [len(start)]))
    crowded = np.flatnonzero(np.diff(opens) > 1)
    for first, after in zip(opens[crowded].tolist(), opens[crowded + 1].tolist(), strict=True):
        track[first:after] = _dealt(start[first:after].tolist(), end[first:after].tolist(), most)
    return track


def _dealt(start: list[int], end: list[int], most: int) -> list[int]:
    busy: list[tuple[int, int]] = []  # (end, track)
    free = list(range(most))
    tracks: list[int] = []
    for begin, done in zip(start, end, strict=True):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        track = heapq.heappop(free) if free else heapq.heappop(busy)[1]
        heapq.heappush(busy, (done, track))
        tracks.append(track)
    return tracks
