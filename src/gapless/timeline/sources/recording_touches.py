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


def touches(processes: Sequence[Process], memory: Columns, by_id: CallsById, calls: Columns, ops: Columns) -> Columns:
    """Give the columns of ``Touches``. What no known call does, or is no sensible range, is left out.

    *memory* holds the allocations and frees of all processes, with ``correlation`` and the row of their ``stream``.
    """
    parts = [*(_accessed(process) for process in processes), _allocated(memory)]
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
    pointer = kind == TouchKind.ARGUMENT
    whose = own(np.full(len(rows), process.number, np.int64), rows["correlation"].astype(np.int64))
    return _columns(
        whose, kind=kind, address=rows["address"].astype(np.int64),
        bytes=np.where(pointer, -1, rows["bytes"].astype(np.int64)), gaps=rows["pitch"] > 0,
        argument=np.where(pointer, rows["index"].astype(np.int64), -1),
    )  # fmt: skip


def _allocated(rows: Columns) -> Columns:
    return _columns(
        rows["correlation"], kind=_looked_up(rows["memoryOperationType"], _OPERATIONS), address=rows["address"],
        bytes=rows["bytes"], memory=_looked_up(rows["memoryKind"], MEMORIES, MemoryKind.UNKNOWN),
        stream=rows["stream"],
    )  # fmt: skip


def _columns(correlation: Int64, **given: NDArray[Any]) -> Columns:
    table = Touches.build(**given)
    return {name: table.column(name) for name in Touches.__slots__ if name != "call"} | {"correlation": correlation}


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
