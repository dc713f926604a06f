"""What every source does with its rows in the end: drop repeats, link device work to host calls, number the places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, OpKind
from gapless.timeline.sources.columns import Columns, distinct
from gapless.timeline.sources.losses import Losses

Int64: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

_AMBIGUOUS = "Could not tell which call issued {events}: several calls or streams share the correlation id."


class CallsById:
    """Host calls by correlation id.

    A runtime call and the driver call it makes can carry one id: the runtime call stands for both. Of nested calls the
    outer one does. Where calls of one id do not nest, the id is ambiguous. 0 is no id.
    """

    def __init__(self, calls: Mapping[str, NDArray[Any]]) -> None:
        """Take columns ``correlation``, ``start``, ``end`` and ``driver`` (a call into the driver's own API)."""
        correlation, start, end, driver = (calls[name] for name in ("correlation", "start", "end", "driver"))
        order = np.flatnonzero(correlation > 0)
        if not (correlation[order[1:]] > correlation[order[:-1]]).all():
            order = order[np.lexsort((-end[order], start[order], driver[order], correlation[order]))]
        first = new_groups(correlation[order])
        self._ids = correlation[order[first]]
        self._rows = order[first]
        self._ambiguous = np.zeros(len(self._rows), np.bool_)
        if len(self._rows) < len(order):
            group = np.cumsum(first) - 1
            outer = self._rows[group]
            apart = (driver[order] == driver[outer]) & ((start[order] < start[outer]) | (end[order] > end[outer]))
            self._ambiguous[group[apart]] = True

    def rows(self, correlation: Int64) -> tuple[Int64, Mask]:
        """Give for each id the row of its call, -1 where there is none, and whether it is ambiguous."""
        if not len(self._ids):
            return np.full(len(correlation), -1, np.int64), np.zeros(len(correlation), np.bool_)
        at = np.minimum(np.searchsorted(self._ids, correlation), len(self._ids) - 1)
        known = self._ids[at] == correlation
        return np.where(known, self._rows[at], -1), known & self._ambiguous[at]


class Places:
    """The devices and streams of a timeline, and the rows that their numbers stand for."""

    def __init__(self, tables: Iterable[tuple[Int64, Int64]]) -> None:
        """Take pairs of columns: device numbers (-1 to 2^15 - 2) and stream numbers (-1 to 2^32 - 1)."""
        keys = np.unique(np.concatenate([np.empty(0, np.int64), *(distinct(_key(*table))[0] for table in tables)]))
        self._keys = keys
        self.streams = list(zip((keys >> 33).tolist(), ((keys & (1 << 33) - 1) - 1).tolist(), strict=True))

    def rows(self, device: Int64, stream: Int64) -> Int64:
        """Give the row of each stream; -1 for one that was not among the tables."""
        if not len(self._keys):
            return np.full(len(stream), -1, np.int64)
        keys = _key(device, stream)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, at, -1)


def _key(device: Int64, stream: Int64) -> Int64:
    return (device.astype(np.int64) << 33) + stream + 1


def new_groups(*columns: NDArray[Any]) -> Mask:
    """Tell which rows differ from the row before in one of the columns; the first row does."""
    fresh = np.zeros(len(columns[0]), np.bool_)
    fresh[:1] = True
    for column in columns:
        fresh[1:] |= column[1:] != column[:-1]
    return fresh


def repeated(table: Columns, names: Sequence[str]) -> Mask:
    """Tell which rows, in order of ``start``, are the same as an earlier row in these columns and the start."""
    start = table["start"]
    found = np.zeros(len(start), np.bool_)
    beside = np.zeros(len(start), np.bool_)
    beside[1:] = start[1:] == start[:-1]
    beside[:-1] |= beside[1:]
    rows = np.flatnonzero(beside)
    if len(rows):
        columns = [start[rows], *(table[name][rows] for name in names)]
        order = np.lexsort((rows, *columns))
        found[rows[order[~new_groups(*(column[order] for column in columns))]]] = True
    return found


def of_calls(values: NDArray[Any], call: Int64) -> NDArray[Any]:
    """Give a column of the calls for each of these rows; -1 where the call is unknown."""
    return np.where(call >= 0, values[call] if len(values) else -1, -1)


def unlink_doubtful(ops: Columns, calls: Columns, by_id: CallsById, losses: Losses) -> None:
    """Take back links to calls where the id is of several calls, or of work on several streams.

    A graph has work on several streams, and a copy between devices a leg on each.
    """
    several = on_several(ops["correlation"], ops["stream"])
    spread = (ops["graph"] >= 0) | (of_calls(calls["kind"], ops["call"]) == CallKind.GRAPH_LAUNCH)
    spread |= ops["kind"] == OpKind.P2P
    doubtful = (ops["call"] >= 0) & (by_id.rows(ops["correlation"])[1] | (several & ~spread))
    losses.add(_AMBIGUOUS, int(doubtful.sum()))
    ops["call"] = np.where(doubtful, -1, ops["call"])


def on_several(ids: Int64, places: NDArray[Any]) -> Mask:
    """Tell which rows share their id with a row at another place."""
    found = np.zeros(len(ids), np.bool_)
    if len(ids) and not (ids[1:] > ids[:-1]).all():
        order = np.lexsort((places, ids))
        group = np.cumsum(new_groups(ids[order])) - 1
        distinct = new_groups(ids[order], places[order])
        found[order] = (np.bincount(group[distinct]) > 1)[group]
    return found


def overlaps(stream: NDArray[Any], start: Int64, end: Int64) -> int:
    """Count the rows, in order of start, that start before an earlier row of their stream has ended."""
    order = np.argsort(stream, kind="stable")
    start, end = start[order], end[order]
    bounds = np.append(np.flatnonzero(new_groups(stream[order])), len(stream)).tolist()
    return sum(
        int((start[first + 1 : last] < np.maximum.accumulate(end[first:last])[:-1]).sum())
        for first, last in pairwise(bounds)
    )
