"""CUPTI's activity records as a recording holds them, cut into columns by the layout that the recording tells.

A layout says for each kind of record how long it is and where its fields are, so records of any CUPTI are read alike,
and none is walked: the kinds stand in a row behind the records, and their lengths say where each begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gapless.timeline.sources.columns import Columns
from gapless.timeline.sources.cupti import NO_TIME, NONE
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.recording_format import RECORDS_HEAD


class Kind(IntEnum):
    """The kinds of records that are read, in CUPTI's numbers."""

    MEMCPY = 1
    MEMSET = 2
    DRIVER = 4
    RUNTIME = 5
    DEVICE = 8
    CONTEXT = 9
    KERNEL = 10
    MARKER = 12
    OVERHEAD = 17
    MEMCPY2 = 22
    CUDA_EVENT = 36
    STREAM = 37
    SYNCHRONIZATION = 38
    MEMORY2 = 49
    GRAPH_TRACE = 51
    HOST_LAUNCH = 58


_WORK = "start end deviceId contextId streamId correlationId graphNodeId graphId"
_CALL = "cbid start end threadId correlationId returnValue"
_COPY = f"{_WORK} copyKind srcKind dstKind bytes"
FIELDS: Mapping[int, tuple[str, ...]] = {
    kind: tuple(names.split())
    for kind, names in {
        Kind.MEMCPY: _COPY,
        Kind.MEMCPY2: f"{_COPY} srcDeviceId dstDeviceId",
        Kind.MEMSET: f"{_WORK} bytes memoryKind",
        Kind.DRIVER: _CALL,
        Kind.RUNTIME: _CALL,
        Kind.DEVICE: "id name globalMemorySize numMultiprocessors maxWarpsPerMultiprocessor numThreadsPerWarp "
        "maxRegistersPerMultiprocessor maxSharedMemoryPerMultiprocessor computeCapabilityMajor computeCapabilityMinor "
        "uuid.0 uuid.1",
        Kind.CONTEXT: "contextId deviceId nullStreamId",
        Kind.KERNEL: f"{_WORK} name registersPerThread staticSharedMemory dynamicSharedMemory "
        "gridX gridY gridZ blockX blockY blockZ",
        Kind.MARKER: "flags timestamp id objectId.pt.threadId name domain",
        Kind.OVERHEAD: "overheadKind objectId.pt.threadId start end",
        Kind.CUDA_EVENT: "correlationId contextId streamId eventId deviceId deviceTimestamp cudaEventSyncId",
        Kind.STREAM: "contextId streamId priority flag correlationId",
        Kind.SYNCHRONIZATION: "type start end correlationId contextId streamId cudaEventId cudaEventSyncId",
        Kind.MEMORY2: "memoryOperationType memoryKind correlationId address bytes deviceId contextId streamId",
        Kind.GRAPH_TRACE: "start end deviceId graphId contextId streamId correlationId",
        Kind.HOST_LAUNCH: "start end deviceId contextId streamId correlationId",
    }.items()
}
_TIMES = frozenset({"start", "end", "timestamp", "deviceTimestamp"})
_SMALL = frozenset({
    "copyKind", "srcKind", "dstKind", "memoryKind", "cbid", "returnValue", "numMultiprocessors", "flags", "flag",
    "maxWarpsPerMultiprocessor", "numThreadsPerWarp", "maxRegistersPerMultiprocessor", "type", "memoryOperationType",
    "maxSharedMemoryPerMultiprocessor", "computeCapabilityMajor", "computeCapabilityMinor", "registersPerThread",
    "staticSharedMemory", "dynamicSharedMemory", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
    "overheadKind", "deviceId", "srcDeviceId", "dstDeviceId",
})  # fmt: skip

_LARGEST = 1 << 16  # bytes of one record, beyond which a layout is damage
_MOST_FIELDS = 1000
_FORMAT = re.compile(r"[<|=]?(?:[iu][1248]|f[48]|[SV]\d{1,4}|b1)")

_SHORT = "Left out {events}: their block of records ends too early."
_UNREADABLE = "Left out records whose layout the recording does not tell, and what stands behind them in their block."
_MISMATCH = "Left out records of a damaged block: they are not of the kinds that stand beside them."


def layouts(told: Any, losses: Losses) -> dict[int, np.dtype[Any]]:
    """Give the dtype of each kind of record from what a LAYOUT block tells; what makes no sense is left out."""
    kinds = told.get("kinds") if isinstance(told, dict) else None
    found: dict[int, np.dtype[Any]] = {}
    for kind, layout in (kinds if isinstance(kinds, dict) else {}).items():
        number = int(kind) if isinstance(kind, str) and re.fullmatch(r"\d{1,3}", kind) else -1
        dtype = _dtype(layout)
        if dtype is None or not 0 <= number < 256:
            losses.add("Left out layouts of records that make no sense.")
        else:
            found[number] = dtype
    return found


class _Layout(msgspec.Struct):
    """What a LAYOUT block tells of one kind of record."""

    itemsize: int
    names: list[str]
    formats: list[str]
    offsets: list[int]


def _dtype(told: Any) -> np.dtype[Any] | None:
    """Make a dtype; None for a layout that is none. Only plain numbers and bytes: never Python objects."""
    try:
        layout = msgspec.convert(told, _Layout)
    except msgspec.ValidationError:
        return None
    sound = 4 <= layout.itemsize <= _LARGEST and len(layout.names) <= _MOST_FIELDS and all(layout.names)
    sound &= all(_FORMAT.fullmatch(form) for form in layout.formats)
    if not sound or not all(0 <= offset < layout.itemsize for offset in layout.offsets):
        return None
    columns: Any = {
        "names": layout.names, "formats": layout.formats, "offsets": layout.offsets, "itemsize": layout.itemsize,
    }  # fmt: skip
    try:
        return np.dtype(columns)
    except (TypeError, ValueError):
        return None


def columns_of(payload: bytes, dtypes: Mapping[int, np.dtype[Any]], losses: Losses) -> dict[int, Columns]:
    """Read a RECORDS block: for each kind that is read and told of, its fields as columns.

    A block that is cut short gives the records that are whole; one that contradicts itself those before it does.
    """
    if len(payload) < RECORDS_HEAD.itemsize:
        losses.add("Left out a block of records that is cut off at its start.")
        return {}
    head = np.frombuffer(payload, RECORDS_HEAD, 1)[0]
    length, count = int(head["raw"]), int(head["count"])
    begin = RECORDS_HEAD.itemsize
    sizes = np.zeros(256, np.int64)
    for kind, dtype in dtypes.items():
        sizes[kind] = dtype.itemsize
    raw = np.frombuffer(payload, np.uint8, min(length, len(payload) - begin), begin)
    if begin + length + count <= len(payload):
        kinds = np.frombuffer(payload, np.uint8, count, begin + length)
        offsets = np.cumsum(sizes[kinds]) - sizes[kinds]
        if int(sizes[kinds].sum()) < len(raw) and (sizes[kinds] > 0).all():
            losses.add("A block of records holds bytes that belong to no record.")
    else:
        kinds, offsets = _walk(raw, sizes)
        losses.add(_SHORT, max(count - len(kinds), 1) if count < length else 1)
    sound = _sound(raw, kinds, offsets, sizes, losses)
    kinds, offsets = kinds[:sound], offsets[:sound]
    found: dict[int, Columns] = {}
    for kind in np.unique(kinds).tolist():
        if kind in FIELDS:
            found[kind] = _columns(rows_at(raw, offsets[kinds == kind], dtypes[kind]), FIELDS[kind])
    return found


def _walk(raw: NDArray[np.uint8], sizes: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Go from record to record by their kinds, as far as they are whole."""
    words = raw[: len(raw) // 4 * 4].view("<u4")
    steps = sizes.tolist()
    kinds: list[int] = []
    offsets: list[int] = []
    at = 0
    while at + 4 <= len(raw) and not at % 4:
        kind = int(words[at // 4])
        step = steps[kind] if kind < 256 else 0
        if not step or at + step > len(raw):
            break
        kinds.append(kind)
        offsets.append(at)
        at += step
    return np.array(kinds, np.uint8), np.array(offsets, np.int64)


def _sound(
    raw: NDArray[np.uint8], kinds: NDArray[np.uint8], offsets: NDArray[np.int64], sizes: NDArray[np.int64],
    losses: Losses,
) -> int:  # fmt: skip
    """Give how many records, from the first, are what they should be."""
    size = sizes[kinds]
    unreadable = np.flatnonzero(size == 0)
    count = int(unreadable[0]) if len(unreadable) else len(kinds)
    inside = np.flatnonzero(offsets[:count] + size[:count] > len(raw))
    whole = int(inside[0]) if len(inside) else count
    told = rows_at(raw, offsets[:whole], np.dtype("<u4"))
    wrong = np.flatnonzero(told != kinds[:whole])
    sound = int(wrong[0]) if len(wrong) else whole
    if sound < whole or whole < count:
        losses.add(_MISMATCH)
    elif count < len(kinds):
        losses.add(_UNREADABLE)
    return sound


def rows_at(raw: NDArray[np.uint8], offsets: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Give what stands at these offsets as an array of *dtype*."""
    size, count = dtype.itemsize, len(offsets)
    if not count:
        return np.empty(0, dtype)
    first = int(offsets[0])
    if int(offsets[-1]) - first == (count - 1) * size:
        return raw[first : first + count * size].view(dtype)
    step = next(step for step in (8, 4, 1) if not size % step and not (offsets % step).any())
    words = raw[: len(raw) // step * step].view(f"<u{step}")
    return words[(offsets // step)[:, None] + np.arange(size // step)].view(dtype)[:, 0]


def _columns(rows: NDArray[Any], names: tuple[str, ...]) -> Columns:
    """Give fields as columns of 64 or 32 bits; one that the records lack is unknown in every row."""
    fields: Any = rows.dtype.fields or {}
    found: Columns = {}
    for name in names:
        wide = np.int32 if name in _SMALL else np.int64
        if name in fields and fields[name][0].kind in "iub":
            found[name] = rows[name].astype(wide)
        else:
            found[name] = np.full(len(rows), NO_TIME if name in _TIMES else NONE, wide)
    return found


def empty(kind: int) -> Columns:
    """Give the columns of a kind of which there is no record."""
    return {name: np.empty(0, np.int32 if name in _SMALL else np.int64) for name in FIELDS[kind]}
