"""Which fields of which CUPTI records are told to readers, found in the headers of whatever CUPTI is there.

CUPTI renames a record's struct with each change (``CUpti_ActivityKernel9``, ``...Kernel10``); a libcupti writes the
newest struct of its own headers. So the newest is looked up, and the C compiler says where its fields are.

Changes only ever added fields at the end: from CUPTI 12.0 to 13.5 every field below stayed in its place. So a library
that was compiled with one version's headers records with the libcupti of another: only sizes differ, and those it
measures.
"""

from __future__ import annotations

import re

from gapless.model.errors import GaplessError

_COPY = (
    "copyKind srcKind dstKind flags bytes start end deviceId contextId streamId correlationId graphNodeId graphId "
    "channelID channelType"
)
_CALL = "cbid start end processId threadId correlationId returnValue"
_THREAD = "objectKind objectId.pt.processId objectId.pt.threadId"

# Kind: the number and name in CUPTI, its struct without the version, the fields that readers use.
KINDS: dict[int, tuple[str, str, str]] = {
    1: ("MEMCPY", "Memcpy", f"{_COPY} copyCount"),
    2: ("MEMSET", "Memset", "value bytes start end deviceId contextId streamId correlationId flags memoryKind "
        "graphNodeId graphId channelID channelType"),
    4: ("DRIVER", "API", _CALL),
    5: ("RUNTIME", "API", _CALL),
    8: ("DEVICE", "Device", "id name globalMemorySize globalMemoryBandwidth numMemcpyEngines numMultiprocessors "
        "maxWarpsPerMultiprocessor maxBlocksPerMultiprocessor maxSharedMemoryPerMultiprocessor "
        "maxRegistersPerMultiprocessor numThreadsPerWarp computeCapabilityMajor computeCapabilityMinor coreClockRate "
        "l2CacheSize"),
    9: ("CONTEXT", "Context", "contextId deviceId computeApiKind nullStreamId"),
    10: ("CONCURRENT_KERNEL", "Kernel", "start end deviceId contextId streamId gridX gridY gridZ blockX blockY blockZ "
         "staticSharedMemory dynamicSharedMemory sharedMemoryExecuted registersPerThread localMemoryPerThread "
         "correlationId gridId name graphNodeId graphId channelID channelType launchType clusterX clusterY clusterZ"),
    12: ("MARKER", "Marker", f"flags timestamp id {_THREAD} name domain"),
    17: ("OVERHEAD", "Overhead", f"overheadKind {_THREAD} start end correlationId"),
    22: ("MEMCPY2", "MemcpyPtoP", f"{_COPY} srcDeviceId srcContextId dstDeviceId dstContextId"),
    36: ("CUDA_EVENT", "CudaEvent", "correlationId contextId streamId eventId deviceId deviceTimestamp "
         "cudaEventSyncId"),
    37: ("STREAM", "Stream", "contextId streamId priority flag correlationId"),
    38: ("SYNCHRONIZATION", "Synchronization", "type start end correlationId contextId streamId cudaEventId "
         "cudaEventSyncId returnValue"),
    49: ("MEMORY2", "Memory", "memoryOperationType memoryKind correlationId address bytes timestamp processId deviceId "
         "contextId streamId name isAsync memoryPoolConfig.memoryPoolType memoryPoolConfig.address"),
    50: ("MEMORY_POOL", "MemoryPool", "memoryPoolOperationType memoryPoolType correlationId processId deviceId address "
         "size releaseThreshold timestamp utilizedSize"),
    51: ("GRAPH_TRACE", "GraphTrace", "correlationId start end deviceId graphId contextId streamId"),
}  # fmt: skip

_STRUCT = re.compile(
    r"typedef struct[^{;]*\{((?:(?!typedef struct).)*?)\}\s*CUpti_Activity([A-Za-z]+)(\d*);", re.DOTALL
)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def layout_source(header: str) -> str:
    """Give the C table of layouts for the text of a ``cupti_activity.h``.

    Raises GaplessError where that is no header of CUPTI: a struct is missing.
    """
    newest: dict[str, tuple[int, str]] = {}
    for body, name, version in _STRUCT.findall(_COMMENT.sub("", header)):
        newest[name] = max(newest.get(name, (-1, "")), (int(version or 0), body))
    lines = ["/* Written by gapless/recorder/layouts.py from CUPTI's headers. */"]
    for kind, (label, struct, fields) in KINDS.items():
        version, body = newest.get(struct, (0, ""))
        name = f"CUpti_Activity{struct}{version or ''}"
        words = set(re.findall(r"\w+", body))
        if not words:
            raise GaplessError(
                f"CUPTI's header cupti_activity.h declares no {name}: it is no version that gapless knows."
            )
        lines.append(f'KIND({kind}, "{label}", {name})')
        lines.append(f"FIELD({kind}, {name}, kind)")
        # a member of a member belongs to a type of its own or is written out in the body: its first word decides
        lines += [f"FIELD({kind}, {name}, {field})" for field in fields.split() if field.split(".")[0] in words]
        if kind in _UUIDS and "uuid" in words:
            lines += [f'PART({kind}, {name}, uuid, "uuid.{half}", {half * 8})' for half in (0, 1)]
        if kind in _NAMES:
            lines += [f"TEXT({kind}, {name}, {field})" for field in _NAMES[kind]]
    return "\n".join(lines) + "\n"


# Kinds with a UUID of 16 bytes, which is told as two numbers.
_UUIDS = {8}
# Fields that point to text.
_NAMES = {8: ("name",), 10: ("name",), 12: ("name", "domain"), 49: ("name",)}
