"""The rows of CUPTI's tables in gapless's words: times that can be used, copies and memsets by their numbers' meaning.

What the numbers mean is given as words, because they differ: a memory kind of 1 is pageable for CUPTI and pinned for
Nsight Systems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import MemoryKind, OpKind
from gapless.timeline.sources.columns import Columns, Numbering, take
from gapless.timeline.sources.cupti import FARTHEST, NO_TIME, NONE, NOWHERE
from gapless.timeline.sources.losses import Losses
from gapless.timeline.timeline import MarkKind

MOST_DEVICE = (1 << 15) - 2

COPIES = {
    1: "HTOD", 2: "DTOH", 3: "HTOA", 4: "ATOH", 5: "ATOA", 6: "ATOD", 7: "DTOA", 8: "DTOD", 9: "HTOH", 10: "PTOP",
    11: "UVM_HTOD", 12: "UVM_DTOH", 13: "UVM_DTOD",
}  # fmt: skip
SYNCS = {1: "EVENT_SYNCHRONIZE", 2: "STREAM_WAIT_EVENT", 3: "STREAM_SYNCHRONIZE", 4: "CONTEXT_SYNCHRONIZE"}

_MEMORY_KINDS = {
    "PAGEABLE": MemoryKind.PAGEABLE,
    "PINNED": MemoryKind.PINNED,
    "DEVICE": MemoryKind.DEVICE,
    "DEVICE_STATIC": MemoryKind.DEVICE,
    "ARRAY": MemoryKind.ARRAY,
    "MANAGED": MemoryKind.MANAGED,
    "MANAGED_STATIC": MemoryKind.MANAGED,
}
_BY_ENDS = {"HD": OpKind.H2D, "DH": OpKind.D2H, "DD": OpKind.D2D, "PP": OpKind.P2P, "HH": OpKind.H2H}
MARKS = {
    "EVENT_SYNCHRONIZE": MarkKind.SYNC_EVENT,
    "STREAM_WAIT_EVENT": MarkKind.WAIT,
    "STREAM_SYNCHRONIZE": MarkKind.SYNC_STREAM,
    "CONTEXT_SYNCHRONIZE": MarkKind.SYNC_DEVICE,
}

_LONGEST = 1 << 55  # ns of one event: more than a year

_NO_TIME = "Left out {events}: no usable time."
_NO_LENGTH = "Took the length of {events} as zero: none is given."
_NEGATIVE = "Took the length of {events} as zero: it is negative."
_NO_DEVICE = "Left out {events}: no usable device or stream."
_DIRECTION = "Took {events} as copies inside the device: nothing says between which memories."


def timed(table: Columns, losses: Losses, *, kept: bool = False) -> Columns:
    """Leave out rows without a usable time; mend lengths that are missing or negative. *kept*: they are no work."""
    start, end = table["start"], table["end"]
    endless = end == NO_TIME
    end = np.where(endless, start, end)
    usable = (start >= -FARTHEST) & (start <= FARTHEST) & (end >= -FARTHEST) & (end <= FARTHEST)
    start = np.where(usable, start, 0)  # so that no difference overflows
    usable &= np.where(usable, end, 0) - start <= _LONGEST
    negative = end < start
    losses.add(_NO_TIME, int((~usable).sum()), kept=kept)
    losses.add(_NO_LENGTH, int((endless & usable).sum()), kept=kept)
    losses.add(_NEGATIVE, int((negative & usable).sum()), kept=kept)
    table = table | {"start": start, "end": np.maximum(start, end)}
    return table if usable.all() else take(table, usable)


def placed(table: Columns, losses: Losses) -> Columns:
    """Leave out work that names no device or stream, and settle which graph it belongs to, by the graph or the node."""
    device, stream = table["deviceId"], table["streamId"]
    usable = (device >= 0) & (device <= MOST_DEVICE) & (stream >= 0) & (stream < NOWHERE)
    losses.add(_NO_DEVICE, int((~usable).sum()))
    table = table if usable.all() else take(table, usable)
    graph, node = table.pop("graphId"), table.pop("graphNodeId")
    return table | {"graph": np.where(graph > 0, graph, np.where(node > 0, node, NONE))}


def named_copies(
    table: Columns, kinds: Mapping[int, str], memories: Mapping[int, str], strings: Numbering, losses: Losses
) -> Columns:
    """Say what copies are, by ``copyKind``, ``srcKind`` and ``dstKind``, in the names that CUPTI's tools give them."""
    from_, to = table.pop("srcDeviceId"), table.pop("dstDeviceId")
    told = [table.pop(name) for name in ("copyKind", "srcKind", "dstKind")]
    distinct, row = np.unique([*told, (from_ >= 0) & (to >= 0) & (from_ != to)], axis=1, return_inverse=True)
    found = [
        _copy(kinds.get(kind, ""), memories.get(src, ""), memories.get(dst, ""), away=bool(away))
        for kind, src, dst, away in distinct.T.tolist()
    ]
    row = row.reshape(-1)
    losses.add(_DIRECTION, int(of_each([kind is None for kind, *_ in found], row, np.bool_).sum()))
    return table | {
        "kind": of_each([OpKind.D2D if kind is None else kind for kind, *_ in found], row),
        "name": of_each(strings.of([name for _, name, _, _ in found]), row, np.int32),
        "src": of_each([src for _, _, src, _ in found], row),
        "dst": of_each([dst for *_, dst in found], row),
    }


def named_memsets(table: Columns, memories: Mapping[int, str], strings: Numbering) -> Columns:
    """Say what memsets fill, by ``memKind``."""
    distinct, row = np.unique(table.pop("memKind"), return_inverse=True)
    words = [memories.get(number, "") or "UNKNOWN" for number in distinct.tolist()]
    return table | {
        "kind": np.full(len(row), OpKind.MEMSET, np.int8),
        "name": of_each(strings.of([f"Memset ({_spelt(word)})" for word in words]), row, np.int32),
        "dst": of_each([_MEMORY_KINDS.get(word, MemoryKind.UNKNOWN) for word in words], row),
    }


def named_graphs(table: Columns, strings: Numbering) -> Columns:
    """Name launches of graphs that were recorded as a whole."""
    distinct, row = np.unique(table["graph"], return_inverse=True)
    names = ["CUDA graph" if number < 0 else f"CUDA graph {number}" for number in distinct.tolist()]
    kind = np.full(len(row), OpKind.GRAPH, np.int8)
    return table | {"kind": kind, "name": of_each(strings.of(names), row, np.int32)}


def named_host_functions(table: Columns, strings: Numbering) -> Columns:
    """Name functions of the host that streams called."""
    kind = np.full(len(table["start"]), OpKind.HOST_FUNCTION, np.int8)
    name = of_each(strings.of(["Host function"]), np.zeros(len(kind), np.int8), np.int32)
    return table | {"kind": kind, "name": name}


def marks_of_syncs(kinds: Mapping[int, str], told: NDArray[Any]) -> NDArray[np.int8]:
    """Give the MarkKind of waits of the host and of streams by their type, -1 for what is none."""
    distinct, row = np.unique(told, return_inverse=True)
    return of_each([MARKS.get(kinds.get(number, ""), NONE) for number in distinct.tolist()], row)


def shape(table: Columns, of: str) -> NDArray[np.int32]:
    """Give a grid or block, ``(n, 3)``; one that cannot be, or is told in part only, is unknown."""
    axes = np.stack([table.pop(f"{of}{axis}") for axis in "XYZ"], axis=1)
    return np.where((axes > 0).all(axis=1, keepdims=True), axes, NONE)


def shared(table: Columns) -> NDArray[Any]:
    """Give the bytes of shared memory of kernels, static and dynamic together."""
    static, dynamic = (table.pop(f"{which}SharedMemory") for which in ("static", "dynamic"))
    return np.where((static >= 0) & (dynamic >= 0), static + dynamic, NONE)


def _copy(copy: str, src: str, dst: str, *, away: bool) -> tuple[OpKind | None, str, MemoryKind, MemoryKind]:
    """Give kind (None unknown), name and memories of a copy. The name is the one that CUPTI's tools give it."""
    memories = [_MEMORY_KINDS.get(memory, MemoryKind.UNKNOWN) for memory in (src, dst)]
    ends = copy.removeprefix("UVM_").replace("TO", "to")
    sides = (ends[0] + ends[-1]).replace("A", "D") if ends else "".join(map(_side, memories))
    kind = _BY_ENDS.get(sides)
    leg = kind in (OpKind.H2D, OpKind.D2H) and memories == [MemoryKind.DEVICE] * 2  # of a copy that two devices share
    if leg or (away and kind in (OpKind.D2D, None)):
        kind = OpKind.P2P
    name = f"Memcpy {ends or '?'} ({_spelt(src or 'UNKNOWN')} -> {_spelt(dst or 'UNKNOWN')})"
    return kind, f"Unified {name}" if copy.startswith("UVM_") else name, memories[0], memories[1]


def _spelt(word: str) -> str:
    return word.replace("_", " ").title()


def _side(memory: MemoryKind) -> str:
    if memory in (MemoryKind.PAGEABLE, MemoryKind.PINNED):
        return "H"
    return "D" if memory in (MemoryKind.DEVICE, MemoryKind.ARRAY) else "?"


def of_each(values: Sequence[Any], rows: NDArray[Any], dtype: Any = np.int8) -> NDArray[Any]:
    """Give the value that each row refers to."""
    return np.array(values, dtype)[rows] if len(rows) else np.empty(0, dtype)
