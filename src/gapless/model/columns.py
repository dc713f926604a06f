"""The columns under a Program: the call table and the accesses, and how they grow.

==============  =======  ==============================================================================================
column          dtype    what it holds
==============  =======  ==============================================================================================
``call``        int8     ``CallKind``
``op``          int8     ``OpKind`` of the operation the call puts into a stream, -1 for none
``thread``      int16    row of ``threads``
``stream``      int32    row of ``streams``: where the operation goes, or which stream the call is about; -1 none
``object``      int32    what else the call is about: row of ``events`` (RECORD, WAIT_EVENT, SYNC_EVENT, QUERY of an
                         event, ELAPSED), of ``buffers`` (allocation, free, REUSE, HOST_READ, HOST_WRITE), of
                         ``messages`` (SEND, RECEIVE), of ``words`` (WRITE_VALUE, WAIT_VALUE, STORE), of ``graphs``
                         (CAPTURE_END, GRAPH_LAUNCH, GRAPH_BUILD, GRAPH_UPDATE); -1 none
``second``      int32    a second one: the later event of ELAPSED, the buffer whose memory REUSE hands out, the
                         ``CaptureMode`` of CAPTURE, the ``Condition`` of WAIT_VALUE, the destination device of a
                         peer copy, the graph that GRAPH_BUILD instantiates once more or GRAPH_UPDATE takes over; -1
                         none
``duration``    int64    ps the operation takes when nothing disturbs it (of HOST_WORK: the work); -1: from its size
``bytes``       int64    bytes copied, filled or allocated, of WRITE_VALUE, WAIT_VALUE and STORE the value; -1 not given
``cost``        int64    ps of host time the call itself takes; -1: what the machine says
``src, dst``    int8     ``MemoryKind`` of both sides of a copy, or of what a memset fills
``device``      int16    device that is current when the call is made
``grid``        int32    row of ``grids``: how a kernel occupies the GPU; -1 no kernel
``flags``       int16    ``Flag`` bits
``name``        int32    row of ``strings``: the operation's name, -1 none
``label``       int32    row of ``strings``: the call's label, -1 none
==============  =======  ==============================================================================================

What operations and host threads read and write stands in a second table, ``program.accesses``, sorted by row:
``row``, ``buffer``, ``write`` (bool), ``low``, ``high`` (bytes; ``high`` -1: to the end of the buffer). Copies access
their ``src`` and ``dst`` buffers there too.
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


def among(*kinds: int) -> NDArray[np.bool_]:
    """Give a table that tells which numbers of a column are some kinds: ``table[column]``. -1 may be one of them."""
    table = np.zeros(128, np.bool_)  # kinds are numbers of one byte; -1 looks at the end, where there is none yet
    table[[int(kind) for kind in kinds]] = True
    return table


class Columns:
    """Columns that grow by rows: rows gather in one flat buffer and move into typed chunks now and then."""

    def __init__(self, dtypes: dict[str, Any]) -> None:
        self._dtypes = dtypes
        self._chunks: list[dict[str, NDArray[Any]]] = []
        self._pending = array("q")
        self._limit = len(dtypes) << 14
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, *row: int) -> int:
        """Append one row, all columns in order; give its number."""
        number = self._rows
        self._rows = number + 1
        self._pending.extend(row)
        if len(self._pending) >= self._limit:
            self._gather()
        return number

    def extend(self, columns: dict[str, NDArray[Any]]) -> range:
        """Append arrays of one length, one for every column; give the numbers of the new rows."""
        self._gather()
        first, count = self._rows, len(next(iter(columns.values())))
        if count:
            self._chunks.append(columns)
            self._rows += count
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
            self._pending = array("q")
