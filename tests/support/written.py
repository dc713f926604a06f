"""Writes `.gapless` files from plain Python, for tests: what the recorder would have written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from gapless.timeline.sources.recording_format import (
    ACCESS_ROW,
    BLOCK_HEADER,
    CALLSITE_ROW,
    CLOCK_ROW,
    DROPPED_ROW,
    FILE_HEADER,
    MAGIC,
    MARK,
    RECORDS_HEAD,
    STACK_ROW,
    STRING_ENTRY,
    VERSION,
    Block,
    Space,
)

_ROWS = {
    Block.CLOCK: CLOCK_ROW, Block.STACKS: STACK_ROW, Block.CALLSITES: CALLSITE_ROW, Block.ACCESSES: ACCESS_ROW,
    Block.DROPPED: DROPPED_ROW,
}  # fmt: skip

# Small layouts of a CUPTI that never was: every field that a test may want, packed in this order.
FIELDS: Mapping[int, tuple[str, str]] = {
    1: ("MEMCPY", "kind:u4 copyKind:u1 srcKind:u1 dstKind:u1 flags:u1 bytes:u8 start:u8 end:u8 deviceId:u4 "
        "contextId:u4 streamId:u4 correlationId:u4 graphNodeId:u8 graphId:u4 channelID:u4"),
    2: ("MEMSET", "kind:u4 value:u4 bytes:u8 start:u8 end:u8 deviceId:u4 contextId:u4 streamId:u4 correlationId:u4 "
        "flags:u2 memoryKind:u2 graphId:u4 graphNodeId:u8"),
    4: ("DRIVER", "kind:u4 cbid:u4 start:u8 end:u8 processId:u4 threadId:u4 correlationId:u4 returnValue:u4"),
    5: ("RUNTIME", "kind:u4 cbid:u4 start:u8 end:u8 processId:u4 threadId:u4 correlationId:u4 returnValue:u4"),
    8: ("DEVICE", "kind:u4 id:u4 name:u8 globalMemorySize:u8 numMultiprocessors:u4 maxWarpsPerMultiprocessor:u4 "
        "numThreadsPerWarp:u4 numMemcpyEngines:u4 computeCapabilityMajor:u4 computeCapabilityMinor:u4 "
        "maxRegistersPerMultiprocessor:u4 maxSharedMemoryPerMultiprocessor:u4"),
    9: ("CONTEXT", "kind:u4 contextId:u4 deviceId:u4 computeApiKind:u2 nullStreamId:u2"),
    10: ("CONCURRENT_KERNEL", "kind:u4 registersPerThread:u4 start:u8 end:u8 deviceId:u4 contextId:u4 streamId:u4 "
         "gridX:i4 gridY:i4 gridZ:i4 blockX:i4 blockY:i4 blockZ:i4 staticSharedMemory:i4 dynamicSharedMemory:i4 "
         "correlationId:u4 name:u8 graphNodeId:u8 graphId:u4 channelID:u4"),
    12: ("MARKER", "kind:u4 flags:u4 timestamp:u8 id:u4 objectKind:u4 objectId.pt.processId:u4 objectId.pt.threadId:u4 "
         "name:u8 domain:u8"),
    17: ("OVERHEAD", "kind:u4 overheadKind:u4 objectKind:u4 objectId.pt.processId:u4 start:u8 end:u8 "
         "objectId.pt.threadId:u4 correlationId:u4"),
    22: ("MEMCPY2", "kind:u4 copyKind:u1 srcKind:u1 dstKind:u1 flags:u1 bytes:u8 start:u8 end:u8 deviceId:u4 "
         "contextId:u4 streamId:u4 srcDeviceId:u4 srcContextId:u4 dstDeviceId:u4 dstContextId:u4 correlationId:u4 "
         "graphId:u4 pad:u4 graphNodeId:u8"),
    36: ("CUDA_EVENT", "kind:u4 correlationId:u4 contextId:u4 streamId:u4 eventId:u4 deviceId:u4 deviceTimestamp:u8 "
         "cudaEventSyncId:u8"),
    37: ("STREAM", "kind:u4 contextId:u4 streamId:u4 priority:u4 flag:u4 correlationId:u4"),
    38: ("SYNCHRONIZATION", "kind:u4 type:u4 start:u8 end:u8 correlationId:u4 contextId:u4 streamId:u4 cudaEventId:u4 "
         "cudaEventSyncId:u8 returnValue:u4 pad:u4"),
    49: ("MEMORY2", "kind:u4 memoryOperationType:u4 memoryKind:u4 correlationId:u4 address:u8 bytes:u8 timestamp:u8 "
         "processId:u4 deviceId:u4 contextId:u4 streamId:u4 name:u8 isAsync:u4 pad:u4"),
    51: ("GRAPH_TRACE", "kind:u4 correlationId:u4 start:u8 end:u8 deviceId:u4 graphId:u4 contextId:u4 streamId:u4"),
}  # fmt: skip
DTYPES = {
    kind: np.dtype([(name, "<" + code) for name, code in (word.split(":") for word in words.split())])
    for kind, (_, words) in FIELDS.items()
}


class Recording:
    """A recording being written, block by block; every method adds one block, ``data`` holds the bytes so far."""

    def __init__(self, process: int = 1000, version: int = VERSION) -> None:
        self.process = process
        self.data = bytearray(np.array([(MAGIC, version, FILE_HEADER.itemsize, 10**18, 0)], FILE_HEADER).tobytes())

    def block(self, kind: int, payload: bytes, *, process: int | None = None, thread: int = 1) -> Recording:
        owner = self.process if process is None else process
        self.data += np.array([(MARK, kind, 0, owner, thread, len(payload), 10**18)], BLOCK_HEADER).tobytes() + payload
        return self

    def json(self, kind: Block, *, process: int | None = None, **members: object) -> Recording:
        return self.block(kind, json.dumps(members).encode(), process=process)

    def rows(self, kind: Block, *rows: tuple[int, ...]) -> Recording:
        return self.block(kind, np.array(list(rows), _ROWS[kind]).tobytes())

    def start(self, **members: object) -> Recording:
        """PROCESS, LAYOUT and a CLOCK row in which all clocks agree."""
        known = {"pid": self.process, "parent": 1, "command": ["./program"], "cupti": 130001, "how": "injected"}
        self.json(Block.PROCESS, **(known | members))
        self.json(Block.LAYOUT, kinds={str(kind): layout(kind) for kind in FIELDS})
        return self.rows(Block.CLOCK, (10**18, 10**18, 10**9))

    def strings(self, space: Space, texts: Mapping[int, str | bytes]) -> Recording:
        payload = bytearray()
        for key, text in texts.items():
            raw = text if isinstance(text, bytes) else text.encode()
            payload += np.array([(key, space, len(raw))], STRING_ENTRY).tobytes() + raw + bytes(-len(raw) % 8)
        return self.block(Block.STRINGS, bytes(payload))

    def records(self, records: Iterable[tuple[int, Mapping[str, int]]]) -> Recording:
        """One buffer of records, each its kind and its fields; fields left out are 0."""
        raw, kinds = bytearray(), bytearray()
        for kind, fields in records:
            row = np.zeros(1, DTYPES[kind])
            row["kind"] = kind
            for name, value in fields.items():
                row[name] = value
            raw += row.tobytes()
            kinds.append(kind)
        head = np.array([(len(raw), len(kinds), 0)], RECORDS_HEAD).tobytes()
        return self.block(Block.RECORDS, head + bytes(raw) + bytes(kinds))

    def end(self, reason: str = "exit", **members: object) -> Recording:
        return self.json(Block.END, reason=reason, **members)

    def save(self, path: Path) -> Path:
        path.write_bytes(self.data)
        return path


def layout(kind: int) -> dict[str, object]:
    """One kind's entry of a LAYOUT block."""
    name, _ = FIELDS[kind]
    dtype = DTYPES[kind]
    columns = [(field, *dtype.fields[field][:2]) for field in dtype.names or ()] if dtype.fields else []
    return {
        "name": name,
        "itemsize": dtype.itemsize,
        "names": [column[0] for column in columns],
        "formats": [column[1].str for column in columns],
        "offsets": [column[2] for column in columns],
    }
