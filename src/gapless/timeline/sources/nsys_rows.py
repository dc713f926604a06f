"""The tables of an Nsight Systems export, each as columns in gapless's words.

Columns that say whose a number is (``deviceId``, ``contextId``, ``streamId``, ``globalPid``, ``correlationId``) keep
the export's names until the tables meet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import OpKind
from gapless.timeline.apis import call_kind, is_loading
from gapless.timeline.sources.columns import Columns, Numbering, take
from gapless.timeline.sources.cupti import NO_TIME, NONE, NOWHERE
from gapless.timeline.sources.cupti_rows import (
    COPIES,
    SYNCS,
    marks_of_syncs,
    named_copies,
    named_graphs,
    named_host_functions,
    named_memsets,
    of_each,
    placed,
    shape,
    shared,
    timed,
)
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.nsys_database import Database, text_of
from gapless.timeline.timeline import RangeKind

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
_NVTX = {59: "NVTXPUSHPOPRANGE", 60: "NVTXSTARTENDRANGE", 75: "NVTXDOMAINCREATE"}

_CLASSES = {67: "CUDABACKTRACE"}

_DRIVER = re.compile(r"cu[A-Z]")
_DEEPEST = 100  # frames kept of a stack, the innermost
_LONGEST_FRAME = 200  # characters kept of a frame

_NO_TEXT = "Named {events} by a number: the export has no text for it."
_ENDLESS = "Left out {events}: NVTX ranges that were still open when the recording ended."


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


def _work(export: Database, table: str, required: str, optional: str, losses: Losses) -> Columns:
    """Read a table of work on devices. Rows that name no device or stream are left out."""
    rows = export.read(table, f"start end deviceId streamId {required}", f"{_PLACE} graphId graphNodeId {optional}")
    return placed(timed(rows, losses), losses)


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
    return table | {
        "name": name,
        "kind": np.full(len(name), OpKind.KERNEL, np.int8),
        "registers": table.pop("registersPerThread"),
        "shared": shared(table),
        "grid": shape(table, "grid"),
        "block": shape(table, "block"),
    }


def copies(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read copies, named as CUPTI's tools name them."""
    table = _work(export, MEMCPY, "bytes copyKind", "srcKind dstKind srcDeviceId dstDeviceId", losses)
    kinds = export.words("ENUM_CUDA_MEMCPY_OPER", COPIES)
    return named_copies(table, kinds, export.words("ENUM_CUDA_MEM_KIND", _MEMORIES), strings, losses)


def memsets(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read memsets."""
    table = _work(export, MEMSET, "", "bytes memKind", losses)
    return named_memsets(table, export.words("ENUM_CUDA_MEM_KIND", _MEMORIES), strings)


def graphs(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read launches of graphs that were recorded as a whole."""
    return named_graphs(_work(export, GRAPH, "", "", losses), strings)


def host_functions(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read functions of the host that streams called."""
    return named_host_functions(_work(export, HOST_FUNCTION, "", "", losses), strings)


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
    told, old = rows.pop("syncType"), rows.pop("deprecatedSyncType")
    kinds = export.words("ENUM_CUPTI_SYNC_TYPE", SYNCS)
    return rows | {"kind": marks_of_syncs(kinds, np.where(told > 0, told, old))}


def records(export: Database) -> Columns:
    """Read records of events. ``timestamp`` is when the device got there; ``NO_TIME`` or 0 where it was not asked."""
    return export.read(EVENT, "streamId eventId", f"timestamp deviceId {_PLACE} eventSyncId")


def ranges(export: Database, strings: Numbering, losses: Losses) -> Columns:
    """Read NVTX ranges and the profiler's own work as columns of ``Ranges``; ``thread`` is the export's global id."""
    parts = [_nvtx(export, strings, losses)]
    for table in OVERHEAD:
        rows = timed(export.read(table, "start end", "globalTid nameId"), losses, kept=True)
        name = named(export, strings, rows["nameId"], losses)
        texts = strings.things() if len(name) else []
        loading = np.array([is_loading(texts[number]) for number in name.tolist()], np.bool_)
        parts.append(_range(np.where(loading, RangeKind.LOADING, RangeKind.OVERHEAD).astype(np.int8), rows, name))
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
    losses.add(_ENDLESS, int(endless.sum()), kept=True)
    rows = timed(take(rows, ~endless), losses, kept=True)

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
    losses.add(
        _NO_TEXT, int(of_each([number not in texts for number in distinct.tolist()], row, np.bool_).sum()), kept=True
    )
    return of_each(strings.of(names), row, np.int32)
