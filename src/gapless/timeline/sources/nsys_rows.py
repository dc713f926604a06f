"""The tables of an Nsight Systems export, each as columns in gapless's words.

Columns that say whose a number is (``deviceId``, ``contextId``, ``streamId``, ``globalPid``, ``correlationId``) keep
the export's names until the tables meet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import MemoryKind, OpKind
from gapless.timeline.apis import call_kind
from gapless.timeline.sources.columns import Columns, Numbering, take
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.nsys_database import NO_TIME, NONE, Database, text_of
from gapless.timeline.sources.nsys_ids import MOST_DEVICE, NOWHERE
from gapless.timeline.timeline import MarkKind, RangeKind

Int64: TypeAlias = NDArray[np.int64]

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
HOST_FUNCTION = "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH"
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
CALLCHAINS = "CUDA_CALLCHAINS"
NVTX = "NVTX_EVENTS"
OVERHEAD = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
TABLES = (RUNTIME, KERNEL, MEMCPY, MEMSET, GRAPH, HOST_FUNCTION, SYNCHRONIZATION, EVENT, NVTX, CALLCHAINS, *OVERHEAD)

# What numbers mean where the export has no table of the enumeration. Memories: these are not CUPTI's numbers.
_MEMORIES = {
    0: "PAGEABLE", 1: "PINNED", 2: "DEVICE", 3: "ARRAY", 4: "MANAGED", 5: "DEVICE_STATIC", 6: "MANAGED_STATIC",
    7: "UNKNOWN",
}  # fmt: skip
_COPIES = {
    1: "HTOD", 2: "DTOH", 3: "HTOA", 4: "ATOH", 5: "ATOA", 6: "ATOD", 7: "DTOA", 8: "DTOD", 9: "HTOH", 10: "PTOP",
    11: "UVM_HTOD", 12: "UVM_DTOH", 13: "UVM_DTOD",
}  # fmt: skip
_SYNCS = {1: "EVENT_SYNCHRONIZE", 2: "STREAM_WAIT_EVENT", 3: "STREAM_SYNCHRONIZE", 4: "CONTEXT_SYNCHRONIZE"}
_NVTX = {59: "NVTXPUSHPOPRANGE", 60: "NVTXSTARTENDRANGE", 75: "NVTXDOMAINCREATE"}

_CLASSES = {67: "CUDABACKTRACE"}

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
_MARKS = {
    "EVENT_SYNCHRONIZE": MarkKind.SYNC_EVENT,
    "STREAM_WAIT_EVENT": MarkKind.WAIT,
    "STREAM_SYNCHRONIZE": MarkKind.SYNC_STREAM,
    "CONTEXT_SYNCHRONIZE": MarkKind.SYNC_DEVICE,
}

FARTHEST = 1 << 61  # ns from the session's start
_LONGEST = 1 << 55  # ns of one event: more than a year
_DRIVER = re.compile(r"cu[A-Z]")
_DEEPEST = 100  # frames kept of a stack, the innermost
_LONGEST_FRAME = 200  # characters kept of a frame

_NO_TIME = "Left out {events}: no usable time."
_NO_LENGTH = "Took the length of {events} as zero: none is given."
_NEGATIVE = "Took the length of {events} as zero: it is negative."
_NO_DEVICE = "Left out {events}: no usable device or stream."
_NO_TEXT = "Named {events} by a number: the export has no text for it."
_ENDLESS = "Left out {events}: NVTX ranges that were still open when the recording ended."
_DIRECTION = "Took {events} as copies inside the device: the export does not say between which memories."


def calls(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read calls into the runtime and the driver. ``thread`` is a global id; ``driver`` tells the driver's own API."""
    rows = export.read(RUNTIME, "start end globalTid correlationId nameId", "eventClass callchainId")
    rows = timed(_with_chains(rows, export), losses)
    name = named(export, strings, rows.pop("nameId"), losses)
    stack = _stacks(export, strings, rows.pop("callchainId"))
    apis = strings.things()
    return rows | {
        "name": name,
        "kind": of_each([call_kind(api) for api in apis], name),
        "driver": of_each([_DRIVER.match(api) is not None for api in apis], name, np.bool_),
        "thread": rows.pop("globalTid"),
        "stack": stack,
    }


def _with_chains(rows: Columns, export: Database) -> Columns:
    """Take out the rows that are no calls but repeat one to give its call stack, and hand the stack to the call."""
    kinds = export.words("ENUM_NSYS_EVENT_CLASS", _CLASSES)
    repeats = np.isin(rows.pop("eventClass"), [number for number, word in kinds.items() if word])
    if not repeats.any():
        return rows
    _, thread = np.unique(rows["globalTid"], return_inverse=True)
    call = (thread << 32) + (rows["correlationId"] & NOWHERE)
    told, first = np.unique(call[repeats], return_index=True)
    at = np.minimum(np.searchsorted(told, call), len(told) - 1)
    lent = (told[at] == call) & (rows["callchainId"] <= 0)
    rows["callchainId"] = np.where(lent, rows["callchainId"][repeats][first[at]], rows["callchainId"])
    return take(rows, ~repeats)


def _stacks(export: Database, strings: Numbering, chains: Int64) -> NDArray[np.int32]:
    """Give the call stacks of calls as rows of ``strings``: innermost first, separated by ";"."""
    used, row = np.unique(chains, return_inverse=True)
    if not (used > 0).any() or not export.has(CALLCHAINS):
        return np.full(len(chains), NONE, np.int32)
    frames = export.read(CALLCHAINS, "id symbol stackDepth", "module unresolved")
    frames = take(frames, (frames["id"] > 0) & np.isin(frames["id"], used))
    frames = take(frames, np.lexsort((frames["stackDepth"], frames["id"])))
    texts = export.strings(np.unique(np.concatenate([frames["symbol"], frames["module"]])))
    stacks: dict[int, list[str]] = {}
    for id_, symbol, module, unresolved in zip(
        *(frames[name].tolist() for name in ("id", "symbol", "module", "unresolved")), strict=True
    ):
        text = texts.get(module, "").rpartition("/")[2] if unresolved > 0 else texts.get(symbol, "")
        stack = stacks.setdefault(id_, [])
        if text and len(stack) < _DEEPEST:
            stack.append(text[:_LONGEST_FRAME].replace(";", ","))
    found = [strings.of([";".join(stacks[id_])])[0] if stacks.get(id_) else NONE for id_ in used.tolist()]
    return of_each(found, row, np.int32)


def timed(table: Columns, losses: Losses) -> Columns:
    """Leave out rows without a usable time; mend lengths that are missing or negative."""
    start, end = table["start"], table["end"]
    endless = end == NO_TIME
    end = np.where(endless, start, end)
    usable = (start >= -FARTHEST) & (start <= FARTHEST) & (end >= -FARTHEST) & (end <= FARTHEST)
    start = np.where(usable, start, 0)  # so that no difference overflows
    usable &= np.where(usable, end, 0) - start <= _LONGEST
    negative = end < start
    losses.add(_NO_TIME, int((~usable).sum()))
    losses.add(_NO_LENGTH, int((endless & usable).sum()))
    losses.add(_NEGATIVE, int((negative & usable).sum()))
    table = table | {"start": start, "end": np.maximum(start, end)}
    return table if usable.all() else take(table, usable)


def _work(export: Database, table: str, required: str, optional: str, losses: Losses) -> Columns:
    """Read a table of work on devices. Rows that name no device or stream are left out."""
    rows = timed(
        export.read(table, f"start end deviceId streamId {required}", f"{_PLACE} graphId graphNodeId {optional}"),
        losses,
    )
    device, stream = rows["deviceId"], rows["streamId"]
    usable = (device >= 0) & (device <= MOST_DEVICE) & (stream >= 0) & (stream < NOWHERE)
    losses.add(_NO_DEVICE, int((~usable).sum()))
    rows = rows if usable.all() else take(rows, usable)
    graph, node = rows.pop("graphId"), rows.pop("graphNodeId")
    return rows | {"graph": np.where(graph > 0, graph, np.where(node > 0, node, NONE))}


_PLACE = "contextId globalPid correlationId"


def kernels(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read kernels, with their full names where the export has them."""
    names = ("demangledName", "shortName", "mangledName")
    first, *others = [name for name in names if export.knows(KERNEL, name)] or names[:1]
    table = _work(
        export,
        KERNEL,
        first,
        f"{' '.join(others)} registersPerThread staticSharedMemory dynamicSharedMemory "
        "gridX gridY gridZ blockX blockY blockZ",
        losses,
    )
    name = named(export, strings, table.pop(first), losses, [table.pop(name) for name in others])
    static, dynamic = (table.pop(f"{which}SharedMemory") for which in ("static", "dynamic"))
    return table | {
        "name": name,
        "kind": np.full(len(name), OpKind.KERNEL, np.int8),
        "registers": table.pop("registersPerThread"),
        "shared": np.where((static >= 0) & (dynamic >= 0), static + dynamic, NONE),
        "grid": _shape(table, "grid"),
        "block": _shape(table, "block"),
    }


def _shape(table: Columns, of: str) -> NDArray[np.int32]:
    """Give a grid or block, ``(n, 3)``; one that cannot be, or is told in part only, is unknown."""
    shape = np.stack([table.pop(f"{of}{axis}") for axis in "XYZ"], axis=1)
    return np.where((shape > 0).all(axis=1, keepdims=True), shape, NONE)


def copies(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read copies, named as CUPTI's tools name them."""
    table = _work(export, MEMCPY, "bytes copyKind", "srcKind dstKind srcDeviceId dstDeviceId", losses)
    kinds = export.words("ENUM_CUDA_MEMCPY_OPER", _COPIES)
    memories = export.words("ENUM_CUDA_MEM_KIND", _MEMORIES)
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


def _copy(copy: str, src: str, dst: str, *, away: bool) -> tuple[OpKind | None, str, MemoryKind, MemoryKind]:
    """Give kind (None unknown), name and memories of a copy. The name is the one that CUPTI's tools give it."""
    memories = [_MEMORY_KINDS.get(memory, MemoryKind.UNKNOWN) for memory in (src, dst)]
    ends = copy.removeprefix("UVM_").replace("TO", "to")
    sides = (ends[0] + ends[-1]).replace("A", "D") if ends else "".join(map(_side, memories))
    kind = _BY_ENDS.get(sides)
    if away and kind in (OpKind.D2D, None):
        kind = OpKind.P2P
    name = f"Memcpy {ends or '?'} ({_spelt(src or 'UNKNOWN')} -> {_spelt(dst or 'UNKNOWN')})"
    return kind, f"Unified {name}" if copy.startswith("UVM_") else name, memories[0], memories[1]


def _spelt(word: str) -> str:
    return word.replace("_", " ").title()


def _side(memory: MemoryKind) -> str:
    if memory in (MemoryKind.PAGEABLE, MemoryKind.PINNED):
        return "H"
    return "D" if memory in (MemoryKind.DEVICE, MemoryKind.ARRAY) else "?"


def memsets(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read memsets."""
    table = _work(export, MEMSET, "", "bytes memKind", losses)
    memories = export.words("ENUM_CUDA_MEM_KIND", _MEMORIES)
    distinct, row = np.unique(table.pop("memKind"), return_inverse=True)
    words = [memories.get(number, "") or "UNKNOWN" for number in distinct.tolist()]
    return table | {
        "kind": np.full(len(row), OpKind.MEMSET, np.int8),
        "name": of_each(strings.of([f"Memset ({_spelt(word)})" for word in words]), row, np.int32),
        "dst": of_each([_MEMORY_KINDS.get(word, MemoryKind.UNKNOWN) for word in words], row),
    }


def graphs(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read launches of graphs that were recorded as a whole."""
    table = _work(export, GRAPH, "", "", losses)
    distinct, row = np.unique(table["graph"], return_inverse=True)
    names = ["CUDA graph" if number < 0 else f"CUDA graph {number}" for number in distinct.tolist()]
    kind = np.full(len(row), OpKind.GRAPH, np.int8)
    return table | {"kind": kind, "name": of_each(strings.of(names), row, np.int32)}


def host_functions(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read functions of the host that streams called."""
    table = _work(export, HOST_FUNCTION, "", "", losses)
    kind = np.full(len(table["start"]), OpKind.HOST_FUNCTION, np.int8)
    return table | {
        "kind": kind,
        "name": of_each(strings.of(["Host function"]), np.zeros(len(kind), np.int8), np.int32),
    }


def syncs(export: Database, losses: Losses) -> Columns:
    """Read waits of the host and of streams. ``kind`` is a MarkKind, -1 for one that is none."""
    rows = timed(
        export.read(
            SYNCHRONIZATION,
            "start end",
            f"syncType deprecatedSyncType deviceId streamId {_PLACE} eventId eventSyncId",
        ),
        losses,
    )
    kinds = {number: _MARKS.get(word, NONE) for number, word in export.words("ENUM_CUPTI_SYNC_TYPE", _SYNCS).items()}
    told, old = rows.pop("syncType"), rows.pop("deprecatedSyncType")
    distinct, row = np.unique(np.where(told > 0, told, old), return_inverse=True)
    return rows | {"kind": of_each([kinds.get(number, NONE) for number in distinct.tolist()], row)}


def records(export: Database) -> Columns:
    """Read records of events. ``timestamp`` is when the device got there; ``NO_TIME`` or 0 where it was not asked."""
    return export.read(EVENT, "streamId eventId", f"timestamp deviceId {_PLACE} eventSyncId")


def ranges(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read NVTX ranges and the profiler's own work as columns of ``Ranges``; ``thread`` is the export's global id."""
    parts = [_nvtx(export, strings, losses)]
    for table in OVERHEAD:
        rows = timed(export.read(table, "start end", "globalTid nameId"), losses)
        name = named(export, strings, rows["nameId"], losses)
        parts.append(_range(np.full(len(name), RangeKind.OVERHEAD, np.int8), rows, name))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _nvtx(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read NVTX ranges, named ``domain:text``, or by the text alone in the default domain."""
    cells = Numbering()
    rows = export.read(
        NVTX, "start end eventType globalTid", "textId domainId", texts=lambda batch: cells.of(list(map(_told, batch)))
    )
    types = export.words("ENUM_NSYS_EVENT_TYPE", _NVTX)
    created = take(rows, np.isin(rows["eventType"], [number for number, word in types.items() if "DOMAIN" in word]))
    rows = take(rows, np.isin(rows["eventType"], [number for number, word in types.items() if "RANGE" in word]))
    endless = rows["end"] == NO_TIME
    losses.add(_ENDLESS, int(endless.sum()))
    rows = timed(take(rows, ~endless), losses)

    texts = Numbering()
    written = [texts.of([text_of(cell)])[0] if cell else NONE for cell, _ in cells.things()]
    text, domain_text = (_texts(export, texts, [*written, NONE], table, losses) for table in (rows, created))
    things = texts.things()
    domains = {
        domain: f"{things[row][:_LONGEST_FRAME]}:"
        for domain, row in zip(created["domainId"].tolist(), domain_text.tolist(), strict=True)
        if things[row] and domain != NONE
    }
    operator = of_each([*(told for _, told in cells.things()), False], rows["text"], np.bool_)
    domain = np.where(operator, NONE, rows["domainId"]).astype(np.int64)
    both, row = np.unique((domain << 32) + text, return_inverse=True)
    names = [domains.get(pair >> 32, "") + things[pair & 0xFFFFFFFF] for pair in both.tolist()]
    kind = np.where(operator, RangeKind.CPU_OP, RangeKind.NVTX).astype(np.int8)
    return _range(kind, rows, of_each(strings.of(names), row, np.int32))


def _told(cell: bytes | None) -> tuple[bytes | None, bool]:
    """Give a text, and whether it is an operator as PyTorch names it: ``aten::mm, seq = 12, op_id = 34, sizes = []``.

    Operators lose what makes each name different from the next.
    """
    if cell is None or (at := cell.find(b", op_id = ")) < 0 or not cell[at + 10 : at + 11].isdigit():
        return cell, False
    return cell[:at].partition(b", seq = ")[0], True


def _texts(
    export: Database, texts: Numbering, written: Sequence[int], table: Columns, losses: Losses
) -> NDArray[np.int32]:
    """Give the texts of NVTX rows as rows of ``texts``: as they are written, else registered and named by an id."""
    text = of_each(written, table["text"], np.int32)
    registered = text == NONE
    text[registered] = named(export, texts, table["textId"][registered], losses)
    return text


def _range(kind: NDArray[np.int8], rows: Columns, name: NDArray[np.int32]) -> Columns:
    return {"kind": kind, "name": name, "thread": rows["globalTid"], "start": rows["start"], "end": rows["end"]}


def named(
    export: Database, strings: Numbering, ids: Int64, losses: Losses, others: Sequence[Int64] = ()
) -> NDArray[np.int32]:
    """Give the texts of string ids as rows of ``strings``. An id without text is replaced by that in ``others``."""
    texts = export.strings(np.unique(np.concatenate([ids, *others])))
    distinct, row = np.unique(ids, return_inverse=True)
    for other in others:
        bad = of_each([number not in texts for number in distinct.tolist()], row, np.bool_)
        if not bad.any():
            break
        ids = np.where(bad & np.isin(other, list(texts)), other, ids)
        distinct, row = np.unique(ids, return_inverse=True)
    names = [texts.get(number, "unnamed" if number == NONE else f"#{number}") for number in distinct.tolist()]
    losses.add(_NO_TEXT, int(of_each([number not in texts for number in distinct.tolist()], row, np.bool_).sum()))
    return of_each(strings.of(names), row, np.int32)


def of_each(values: Sequence[Any], rows: NDArray[Any], dtype: Any = np.int8) -> NDArray[Any]:
    """Give the value that each row refers to."""
    return np.array(values, dtype)[rows] if len(rows) else np.empty(0, dtype)
