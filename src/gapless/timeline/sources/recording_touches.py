"""Which memory calls touch, as a recording tells: what copies and memsets read and write, where kernels' arguments
point, what was allocated and freed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import MemoryKind, OpKind
from gapless.timeline.sources.assembly import CallsById
from gapless.timeline.sources.columns import Columns, take
from gapless.timeline.sources.cupti import own
from gapless.timeline.sources.recording_format import Access
from gapless.timeline.sources.recording_format import Block as Type
from gapless.timeline.sources.recording_process import Process
from gapless.timeline.sources.recording_records import Kind
from gapless.timeline.timeline import Touches, TouchKind

Int64: TypeAlias = NDArray[np.int64]

MEMORIES = {
    1: MemoryKind.PAGEABLE, 2: MemoryKind.PINNED, 3: MemoryKind.DEVICE, 4: MemoryKind.ARRAY, 5: MemoryKind.MANAGED,
    6: MemoryKind.DEVICE, 7: MemoryKind.MANAGED,
}  # fmt: skip
_KINDS = {
    Access.READ: TouchKind.READ, Access.WRITE: TouchKind.WRITE, Access.ARGUMENT: TouchKind.ARGUMENT,
    Access.HOST_READ: TouchKind.READ, Access.HOST_WRITE: TouchKind.WRITE,
}  # fmt: skip
_OPERATIONS = {1: TouchKind.ALLOCATE, 2: TouchKind.FREE}


def touches(processes: Sequence[Process], by_id: CallsById, calls: Columns, ops: Columns) -> Columns:
    """Give the columns of ``Touches``. What no known call does, or is no sensible range, is left out."""
    parts = [part for process in processes for part in (_accessed(process), _allocated(process))]
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    call, ambiguous = by_id.rows(found.pop("correlation"))
    end = found["address"] + np.maximum(found["bytes"], 0)
    usable = (call >= 0) & ~ambiguous & (found["address"] > 0) & (end >= found["address"]) & (found["kind"] >= 0)
    found = take(found | {"call": call}, usable)
    found = take(found, np.argsort(found["call"], kind="stable"))
    _name_host_memory(found, calls, ops)
    return found


def _accessed(process: Process) -> Columns:
    rows = process.rows(Type.ACCESSES)
    kind = _looked_up(rows["how"], _KINDS)
    size = rows["bytes"].astype(np.int64)
    return _columns(
        process, rows["correlation"], kind, rows["address"],
        np.where(kind == TouchKind.ARGUMENT, -1, size),
        gaps=(rows["pitch"] > 0), argument=np.where(kind == TouchKind.ARGUMENT, rows["index"].astype(np.int64), -1),
    )  # fmt: skip


def _allocated(process: Process) -> Columns:
    rows = process.table(Kind.MEMORY2)
    kind = _looked_up(rows["memoryOperationType"], _OPERATIONS)
    return _columns(
        process, rows["correlationId"], kind, rows["address"], rows["bytes"],
        memory=_looked_up(rows["memoryKind"], MEMORIES, MemoryKind.UNKNOWN),
    )  # fmt: skip


def _columns(
    process: Process, correlation: NDArray[Any], kind: NDArray[np.int8], address: NDArray[Any], size: NDArray[Any],
    **more: NDArray[Any],
) -> Columns:  # fmt: skip
    count = len(kind)
    whose = own(np.full(count, process.number, np.int64), correlation.astype(np.int64))
    given = {"kind": kind, "address": address.astype(np.int64), "bytes": size, **more}
    table = Touches.build(**given)
    return {name: table.column(name) for name in Touches.__slots__ if name != "call"} | {"correlation": whose}


def _looked_up(numbers: NDArray[Any], meaning: dict[Any, Any], none: int = -1) -> NDArray[np.int8]:
    distinct, row = np.unique(numbers, return_inverse=True)
    return np.array([meaning.get(number, none) for number in distinct.tolist()] or [none], np.int8)[row]


def _name_host_memory(found: Columns, calls: Columns, ops: Columns) -> None:
    """Give reads and writes the kind of memory that their copy tells: its source's, its destination's."""
    if not len(ops["call"]):
        return
    op = np.full(len(calls["kind"]) + 1, -1)
    op[ops["call"]] = np.arange(len(ops["call"]))
    op[-1] = -1  # where the operations without a call went
    row = op[found["call"]]
    copies = (OpKind.H2D, OpKind.D2H, OpKind.D2D, OpKind.P2P, OpKind.H2H, OpKind.MEMSET)
    moves = np.isin(found["kind"], (TouchKind.READ, TouchKind.WRITE)) & (row >= 0) & np.isin(ops["kind"], copies)[row]
    memory = np.where(found["kind"] == TouchKind.READ, ops["src"][row], ops["dst"][row])
    found["memory"] = np.where(moves, memory, found["memory"]).astype(np.int8)
