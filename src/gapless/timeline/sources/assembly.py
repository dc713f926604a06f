"""What every source does to its rows at the end: put them in order, drop repeats, link device work to host calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


def group_starts(*keys: NDArray[Any]) -> Mask:
    """Tell where a new group begins in rows sorted by these keys."""
    fresh = np.zeros(len(keys[0]), np.bool_)
    fresh[:1] = True
    for key in keys:
        fresh[1:] |= key[1:] != key[:-1]
    return fresh


def repeats(start: Int64, others: Sequence[NDArray[Any]]) -> Mask:
    """Tell which rows, in order of ``start``, repeat an earlier row in every column."""
    same_start = np.zeros(len(start), np.bool_)
    same_start[1:] = start[1:] == start[:-1]
    same_start[:-1] |= same_start[1:]
    rows = np.flatnonzero(same_start)
    found = np.zeros(len(start), np.bool_)
    if len(rows):
        columns = [start[rows], *(column[rows] for column in others)]
        order = np.lexsort((rows, *reversed(columns)))
        fresh = group_starts(*(column[order] for column in columns))
        found[rows[order[~fresh]]] = True
    return found


def overlaps(stream: NDArray[Any], start: Int64, end: Int64) -> int:
    """Count the rows that start before an earlier row of their stream has ended; rows are in order of start."""
    order = np.argsort(stream, kind="stable")
    stream, start, end = stream[order], start[order], end[order]
    count = 0
    bounds = np.append(np.flatnonzero(group_starts(stream)), len(stream))
    for first, last in zip(bounds[:-1], bounds[1:], strict=True):
        latest = np.maximum.accumulate(end[first:last])
        count += int((start[first + 1 : last] < latest[:-1]).sum())
    return count


def calls_by_correlation(correlation: Int64, start: Int64, end: Int64, driver: Mask) -> tuple[Int64, Int64, Mask]:
    """Choose one call for each correlation id: give the ids, sorted, their rows, and which ids are ambiguous.

    A runtime call and the driver call it makes can carry one id: the runtime call stands for both. Of nested calls the outer
    one does. Two calls with one id that do not nest are ambiguous. 0 is no id.
    """
    order = np.lexsort((-end, start, driver, correlation))
    order = order[correlation[order] != 0]
    ids = correlation[order]
    fresh = group_starts(ids)
    group = np.cumsum(fresh) - 1
    chosen = order[fresh]
    outside = (end[order] > end[chosen][group]) | (start[order] < start[chosen][group])
    ambiguous = np.zeros(len(chosen), np.bool_)
    ambiguous[group[outside & (driver[order] == driver[chosen][group])]] = True
    return ids[fresh], chosen, ambiguous


def look_up(wanted: Int64, ids: Int64, rows: Int64) -> Int64:
    """Give for each wanted id its row, -1 where there is none; ``ids`` are sorted."""
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[at] == wanted, rows[at], -1)


def on_several_streams(correlation: Int64, stream: NDArray[Any]) -> Mask:
    """Tell which rows share their correlation id with a row of another stream."""
    order = np.lexsort((stream, correlation))
    ids, streams = correlation[order], stream[order]
    group = np.cumsum(group_starts(ids)) - 1
    fresh = group_starts(ids, streams)
    many = np.bincount(group[fresh]) > 1 if len(order) else np.zeros(0, np.bool_)
    found = np.zeros(len(order), np.bool_)
    found[order] = many[group]
    return found
