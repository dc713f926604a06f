"""The columns under a Program: the call table and the accesses, and how they grow.

What each column means stands in ``program.py``.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The call table as columns of one length; see the module's text."""

    call: NDArray[np.int8]
    op: NDArray[np.int8]
    thread: NDArray[np.int16]
    stream: NDArray[np.int32]
    object: NDArray[np.int32]
    second: NDArray[np.int32]
    duration: NDArray[np.int64]
    bytes: NDArray[np.int64]
    cost: NDArray[np.int64]
    src: NDArray[np.int8]
    dst: NDArray[np.int8]
    device: NDArray[np.int16]
    grid: NDArray[np.int32]
    flags: NDArray[np.int16]
    name: NDArray[np.int32]
    label: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.call)


@dataclass(frozen=True, slots=True, eq=False)
class Accesses:
    """Which call's operation (or host thread) reads and writes which bytes, sorted by row."""

    row: NDArray[np.int32]
    buffer: NDArray[np.int32]
    write: NDArray[np.bool_]
    low: NDArray[np.int64]
    high: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)


ROW_DTYPES: dict[str, Any] = {
    "call": np.int8, "op": np.int8, "thread": np.int16, "stream": np.int32, "object": np.int32, "second": np.int32,
    "duration": np.int64, "bytes": np.int64, "cost": np.int64, "src": np.int8, "dst": np.int8, "device": np.int16,
    "grid": np.int32, "flags": np.int16, "name": np.int32, "label": np.int32,
}  # fmt: skip
ACCESS_DTYPES: dict[str, Any] = {
    "row": np.int32, "buffer": np.int32, "write": np.bool_, "low": np.int64, "high": np.int64,
}  # fmt: skip
ROW_FILL = dict.fromkeys(ROW_DTYPES, -1) | {"thread": 0, "src": 0, "dst": 0, "device": 0, "flags": 0}


class Columns:
    """Columns that grow by rows: rows gather in one flat buffer and move into typed chunks now and then."""

    def __init__(self, dtypes: dict[str, Any]) -> None:
        self._dtypes = dtypes
        self._chunks: list[dict[str, NDArray[Any]]] = []
        self._pending = array("q")
        self._limit = len(dtypes) << 14
        self._gathered = 0  # rows in chunks

    def __len__(self) -> int:
        return self._gathered + len(self._pending) // len(self._dtypes)

    def append(self, *row: int) -> int:
        """Append one row, all columns in order; give its number."""
        number = self._gathered + len(self._pending) // len(self._dtypes)
        self._pending.extend(row)
        if len(self._pending) >= self._limit:
            self._gather()
        return number

    def extend(self, columns: dict[str, NDArray[Any]]) -> range:
        """Append arrays of one length, one for every column; give the numbers of the new rows."""
        self._gather()
        first, count = self._gathered, len(next(iter(columns.values())))
        if count:
            self._chunks.append(columns)
            self._gathered += count
        return range(first, first + count)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Give all rows as one array a column."""
        self._gather()
        if len(self._chunks) > 1:
            self._chunks = [{name: np.concatenate([c[name] for c in self._chunks]) for name in self._dtypes}]
        if not self._chunks:
            return {name: np.empty(0, dtype) for name, dtype in self._dtypes.items()}
        return self._chunks[0]

    def _gather(self) -> None:
        if self._pending:
            table = np.frombuffer(self._pending, np.int64).reshape(-1, len(self._dtypes))
            chunk = {name: table[:, i].astype(dtype) for i, (name, dtype) in enumerate(self._dtypes.items())}
            self._chunks.append(chunk)
            self._gathered += len(table)
            self._pending = array("q")
