"""Columns that grow while a file is read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Columns: TypeAlias = dict[str, NDArray[Any]]

TRIPLE = "three int32"  # the dtype of a column of shape (n, 3)


class Numbering:
    """Numbers things in the order in which they come up."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of(self, things: Sequence[Hashable]) -> list[int]:
        """Give the number of each; a new thing gets the next."""
        try:
            return list(map(self._numbers.__getitem__, things))
        except KeyError:
            for thing in things:
                self._numbers.setdefault(thing, len(self._numbers))
            return list(map(self._numbers.__getitem__, things))

    def things(self) -> list[Any]:
        """Give the things in order of their numbers."""
        return list(self._numbers)


class Growing:
    """A table that grows by batches. ``dtypes`` names its columns."""

    def __init__(self, **dtypes: Any) -> None:
        self._dtypes = dtypes
        self._batches: dict[str, list[NDArray[Any]]] = {name: [] for name in dtypes}

    def add(self, **values: Sequence[Any]) -> None:
        """Append a batch: for each column a sequence, all of one length."""
        for name, dtype in self._dtypes.items():
            count = len(values[name])
            if dtype is TRIPLE:
                flat = np.fromiter(chain.from_iterable(values[name]), np.int32, 3 * count)
                self._batches[name].append(flat.reshape(-1, 3))
            else:
                self._batches[name].append(np.fromiter(values[name], dtype, count))

    def columns(self) -> Columns:
        """Give the whole columns; the batches are gone then."""
        whole: Columns = {}
        for name, dtype in self._dtypes.items():
            none = np.empty((0, 3), np.int32) if dtype is TRIPLE else np.empty(0, dtype)
            whole[name] = np.concatenate([none, *self._batches.pop(name)])
        return whole


def distinct(numbers: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Give the different numbers in order, and a row of each. Fast where equal numbers stand beside each other."""
    begins = np.flatnonzero(np.concatenate([np.ones(min(len(numbers), 1), np.bool_), numbers[1:] != numbers[:-1]]))
    found, first = np.unique(numbers[begins], return_index=True)
    return found, begins[first]


def joined(parts: Sequence[Columns]) -> Columns:
    """Give tables of the same columns as one, without a copy where only one has rows."""
    filled = [part for part in parts if len(next(iter(part.values())))]
    if len(filled) < 2:
        return dict((filled or parts)[0])
    return {name: np.concatenate([part[name] for part in filled]) for name in filled[0]}


def take(columns: Mapping[str, NDArray[Any]], rows: NDArray[Any]) -> Columns:
    """Give the same columns with these rows."""
    return {name: column[rows] for name, column in columns.items()}


def in_order(columns: Mapping[str, NDArray[Any]]) -> Columns:
    """Give the same columns in order of ``start``. Of rows with one start the longest comes first.

    What is left is settled by the other columns, so that the order does not depend on how the rows came.
    """
    start = columns["start"]
    later = start[1:] >= start[:-1]
    sorted_ = dict(columns) if later.all() else take(columns, np.argsort(start, kind="stable"))
    start = sorted_["start"]
    tied = np.zeros(len(start), np.bool_)
    tied[1:] = start[1:] == start[:-1]
    tied[:-1] |= tied[1:]
    if tied.any():
        rows = np.flatnonzero(tied)
        settled = {name: column[rows] for name, column in sorted_.items()}
        others = [column for name, column in settled.items() if column.ndim == 1 and name not in ("start", "end")]
        order = np.lexsort((*others, -settled["end"], settled["start"]))
        for name, column in sorted_.items():
            sorted_[name] = column.copy()
            sorted_[name][rows] = settled[name][order]
    return sorted_
