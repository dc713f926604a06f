"""Which bytes a tensor covers, and which tensors share bytes, exactly: views, slices, columns, strides.

The race check of the model takes ranges of bytes. A column of a matrix is thousands of ranges, so the bytes of one
memory are put together into **cells**: all bytes that the same views cover are one cell. A view then is a few ranges of
cells, and two views share bytes exactly if they share a cell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# A view: (first byte, bytes of an element, sizes, strides in bytes). None is all of a memory.
View: TypeAlias = "tuple[int, int, tuple[int, ...], tuple[int, ...]] | None"
Ranges: TypeAlias = tuple[tuple[int, int], ...]

MOST_RUNS = 1 << 18  # stretches of bytes of one view that are told apart


def runs(view: tuple[int, int, tuple[int, ...], tuple[int, ...]]) -> NDArray[np.int64] | None:
    """Give the stretches of bytes that a view covers, (n, 2), sorted and merged; None where there are too many."""
    offset, width, sizes, strides = view
    if 0 in sizes:
        return np.empty((0, 2), np.int64)
    dims = sorted((abs(stride), size) for size, stride in zip(sizes, strides, strict=True) if size > 1 and stride)
    while dims and dims[0][0] <= width:  # bytes that lie next to each other, from the innermost dimension outwards
        stride, size = dims.pop(0)
        width += stride * (size - 1)
    count = 1
    for _, size in dims:
        count *= size
    if count > MOST_RUNS:
        return None
    starts = np.array([offset], np.int64)
    for stride, size in dims:
        starts = (starts[None, :] + np.arange(size, dtype=np.int64)[:, None] * stride).ravel()
    starts.sort()
    ends = np.maximum.accumulate(starts + width)
    opens = np.concatenate(([True], starts[1:] > ends[:-1]))
    last = np.concatenate((opens[1:], [True]))
    return np.stack((starts[opens], ends[last]), 1)


def cells(views: Iterable[View], size: int) -> tuple[dict[View, Ranges], int, set[View]]:
    """Put the bytes of a memory of *size* bytes into cells.

    Gives the ranges of cells of each view, the number of cells, and the views that are too finely cut to be told from
    what lies between: those count as everything from their first byte to their last.
    """
    known: dict[View, NDArray[np.int64]] = {}
    coarse: set[View] = set()
    for view in dict.fromkeys(views):
        if view is None:
            known[view] = np.array([[0, max(size, 1)]], np.int64)
            continue
        some = runs(view)
        if some is None:
            coarse.add(view)
            offset, width, sizes, strides = view
            some = np.array([[offset, offset + width + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))]])
        known[view] = some
    edges = np.unique(np.concatenate([some.ravel() for some in known.values()]))
    if len(edges) < 2:
        return dict.fromkeys(known, ()), 0, coarse
    covers = np.zeros((len(known), len(edges)), np.int8)
    for row, some in zip(covers, known.values(), strict=True):
        np.add.at(row, np.searchsorted(edges, some[:, 0]), 1)
        np.add.at(row, np.searchsorted(edges, some[:, 1]), -1)
    covered = np.cumsum(covers, axis=1, dtype=np.int32)[:, :-1] > 0
    kinds = np.unique(covered, axis=1)  # columns: the cells, those that the same views cover as one
    kinds = kinds[:, kinds.any(axis=0)]
    return {view: _ranges(row) for view, row in zip(known, kinds, strict=True)}, kinds.shape[1], coarse


def _ranges(covered: NDArray[np.bool_]) -> Ranges:
    steps = np.flatnonzero(np.diff(np.concatenate(([0], covered.astype(np.int8), [0]))))
    return tuple(zip(steps[::2].tolist(), steps[1::2].tolist(), strict=True))
