"""Slices that overlap, dealt to rows in which they do not: tools draw a row as a stack, and drop what does not nest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def rows(starts: NDArray[np.int64], ends: NDArray[np.int64], *, nest: bool) -> Iterator[list[tuple[int, int, bool]]]:
    """Deal slices to as few rows as first fit finds, and give each row's beginnings and ends in their order.

    Of each: the time, the number of the slice, and whether it begins. With *nest* a slice may lie inside another of its
    row, as calls do; else the slices of a row follow one another.
    """
    placed: list[list[tuple[int, int, bool]]] = []
    open_in: list[list[tuple[int, int]]] = []  # of each row the slices that have not ended: (end, slice)
    begin, until = starts.tolist(), ends.tolist()
    for i in np.lexsort((-ends, starts)).tolist():
        start, end = begin[i], until[i]
        for row, still in zip(placed, open_in, strict=True):
            while still and still[-1][0] <= start:
                row.append((*still.pop(), False))
            if not still or (nest and end <= still[-1][0]):
                break
        else:
            row, still = [], []
            placed.append(row)
            open_in.append(still)
        row.append((start, i, True))
        still.append((end, i))
    for row, still in zip(placed, open_in, strict=True):
        row.extend((*left, False) for left in reversed(still))
        yield row
