"""Where results go: into one array, folded into one value, or to whoever iterates."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gapless.model.errors import GaplessError

from .devices import HostArray
from .slots import Chunk, Flight
from .stock import Stock


class Stream:
    """Results go to whoever iterates."""

    hands_over = ordered = True

    def target(self, chunk: Chunk, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray | None:
        """Leave it to the ring."""
        return None


class Whole:
    """Results of chunks make up one result of the whole.

    Chunks whose results have a row for every row are put into one array a result, the user's where *out* was given.
    Other results are put one after another (single values make an array), or folded by *fold*, in order of the chunks.
    """

    hands_over = False

    @property
    def ordered(self) -> bool:
        """Tell whether there are results that are put one after another, or folded."""
        return bool(self._parts)

    def __init__(
        self, rows: int, out: Sequence[HostArray] | None, fold: Callable[[Any, Any], Any] | None, stock: Stock
    ) -> None:
        self._rows = rows
        self._out = out
        self._stock = stock
        self._fold = fold
        self._arrays: dict[int, HostArray] = {}
        self._parts: dict[int, list[Any]] = {}
        self._count: int | None = None  # outputs a chunk
        self._lock = threading.Lock()

    def target(self, chunk: Chunk, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray | None:
        """Give a chunk's part of the whole; None for a result that is not row by row."""
        with self._lock:
            if number not in self._arrays and number not in self._parts:
                if self._fold is None and shape[:1] == (chunk.rows,):
                    self._arrays[number] = self._array(number, (self._rows, *shape[1:]), dtype)
                else:
                    self._parts[number] = []
        if number in self._parts:
            return None
        array = self._arrays[number]
        if array.dtype != dtype or (chunk.rows, *array.shape[1:]) != shape:
            raise GaplessError(
                f"The kernel gave {_described(shape, dtype)} for {chunk.rows} rows, where "
                f"{_described((chunk.rows, *array.shape[1:]), array.dtype)} had to come after the results before it. "
                "Results that are not row by row must be so for every chunk; reduce= folds them."
            )
        return array[chunk.first : chunk.first + chunk.rows]

    def take(self, flight: Flight) -> None:
        """Take in the results of the next chunk."""
        if self._count is None:
            self._count = len(flight.results)
        elif self._count != len(flight.results):
            raise GaplessError(
                f"The kernel gave {len(flight.results)} results for {flight.chunk.where()} and {self._count} before."
            )
        for number, parts in self._parts.items():
            part = flight.results[number]
            if self._fold is None or not parts:
                parts.append(part)
            else:
                parts[0] = self._fold(parts[0], part)

    def result(self) -> Any:
        """Give the whole: None, an array, or a tuple of arrays."""
        if self._out is not None and (self._count or 0) != len(self._out):
            raise GaplessError(f"The kernel gives {self._count or 0} results, and out= has {len(self._out)} arrays.")
        whole = [self._joined(number) for number in range(self._count or 0)]
        return None if not whole else whole[0] if len(whole) == 1 else tuple(whole)

    def _joined(self, number: int) -> Any:
        if number in self._arrays:
            return self._arrays[number]
        parts = self._parts[number]
        if self._fold is not None:
            joined = np.asarray(parts[0])
        else:
            joined = np.stack(parts) if not parts[0].ndim else np.concatenate(parts)
        if self._out is None:
            return joined
        out = self._array(number, joined.shape, joined.dtype)
        out[...] = joined
        return out

    def _array(self, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        if self._out is None:
            return self._stock.take(shape, dtype, results=number + 1)
        if number >= len(self._out):
            raise GaplessError(f"The kernel gives more than the {len(self._out)} results that out= has arrays for.")
        out = self._out[number]
        if out.shape != shape or out.dtype != dtype:
            raise GaplessError(
                f"out= is {_described(out.shape, out.dtype)}, and the kernel's result {_described(shape, dtype)}."
            )
        return out


def _described(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    return f"an array of shape {shape} and dtype {dtype}"
