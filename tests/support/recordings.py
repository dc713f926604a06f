"""Small recordings, built record by record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.timeline.sources.recording_format import Block, Space
from gapless.timeline.timeline import Timeline
from written import Recording

Record = tuple[int, Mapping[str, int]]

B = 10**18  # CUPTI's time at which the programs here begin
NOWHERE = 0xFFFFFFFF
RUNTIME = {
    1: "cudaLaunchKernel_v7000", 2: "cudaMemcpyAsync_v3020", 3: "cudaStreamSynchronize_v3020",
    4: "cudaEventRecord_v3020", 5: "cudaStreamWaitEvent_v3020", 6: "cudaEventSynchronize_v3020", 7: "cudaMalloc_v3020",
    8: "cudaFree_v3020", 9: "cudaGraphLaunch_v10000", 10: "cudaDeviceSynchronize_v3020",
    11: "cudaMemsetAsync_v3020", 12: "cudaMemcpy_v3020", 13: "cudaHostAlloc_v3020", 14: "cudaFreeHost_v3020",
    15: "cudaEventQuery_v3020", 16: "cudaMallocAsync_v11020", 17: "cudaFreeAsync_v11020",
}  # fmt: skip
CBID = {name.partition("_")[0]: cbid for cbid, name in RUNTIME.items()}
POINTERS = {0x1000: "_Z5scalePfPKf", 0x2000: "NVIDIA H200", 0x3000: "step", 0x4000: "mine", 0x1100: "_Z5scalePdPKd"}
PLACE = {"deviceId": 0, "contextId": 1, "streamId": 7}
H2D, D2H, D2D = (1, 2, 3), (2, 3, 2), (8, 3, 3)  # copyKind and, in CUPTI's numbers, the memories of pinned copies


def call(name: str, start: int, end: int, correlation: int, *, thread: int = 77, **more: int) -> Record:
    times = {"start": B + start, "end": B + end}
    return 5, {"cbid": CBID[name], "threadId": thread, "correlationId": correlation, **times, **more}


def kernel(start: int, end: int, correlation: int, **more: int) -> Record:
    shape = {"gridX": 132, "gridY": 2, "gridZ": 1, "blockX": 256, "blockY": 1, "blockZ": 1}
    memory = {"registersPerThread": 32, "staticSharedMemory": 1024, "dynamicSharedMemory": 48, "name": 0x1000}
    times = {"start": B + start, "end": B + end, "correlationId": correlation}
    return 10, PLACE | shape | memory | times | more


def copy(start: int, end: int, correlation: int, what: tuple[int, int, int] = H2D, **more: int) -> Record:
    kind, src, dst = what
    told = {"bytes": 4096, "copyKind": kind, "srcKind": src, "dstKind": dst, "flags": 1}
    return 1, PLACE | told | {"start": B + start, "end": B + end, "correlationId": correlation} | more


def recorded(correlation: int, event: int, stream: int, sync: int = 0, at: int = 0) -> Record:
    time = {"deviceTimestamp": B + at if at else 0, "cudaEventSyncId": sync}
    return 36, {"correlationId": correlation, "contextId": 1, "streamId": stream, "eventId": event, **time}


def sync(type_: int, correlation: int, *, stream: int = NOWHERE, event: int = NOWHERE, id_: int = 0,
         times: tuple[int, int] | None = None) -> Record:  # fmt: skip
    told = {"type": type_, "correlationId": correlation, "contextId": 1, "streamId": stream, "cudaEventId": event}
    start, end = times or (-B, -B)
    return 38, told | {"cudaEventSyncId": id_, "start": B + start, "end": B + end}


def memory(operation: int, kind: int, correlation: int, address: int, size: int = 4096) -> Record:
    told = {"memoryOperationType": operation, "memoryKind": kind, "correlationId": correlation}
    return 49, told | {"address": address, "bytes": size, "contextId": 1}


def marker(flags: int, at: int, id_: int, name: int = 0, domain: int = 0, thread: int = 77) -> Record:
    told = {"flags": flags, "timestamp": B + at, "id": id_, "name": name, "domain": domain}
    return 12, told | {"objectId.pt.threadId": thread}


def stream(number: int, flag: int, priority: int = 0, context: int = 1) -> Record:
    return 37, {"contextId": context, "streamId": number, "flag": flag, "priority": priority & NOWHERE}


DEVICE: Record = (
    8,
    {"id": 0, "name": 0x2000, "globalMemorySize": 141 << 30, "numMultiprocessors": 132, "maxWarpsPerMultiprocessor": 64,
     "numThreadsPerWarp": 32, "computeCapabilityMajor": 9, "maxRegistersPerMultiprocessor": 65536,
     "maxSharedMemoryPerMultiprocessor": 233472},
)  # fmt: skip
CONTEXT: Record = (9, {"contextId": 1, "deviceId": 0, "nullStreamId": 7})


def begun(process: int = 1000, **facts: object) -> Recording:
    """Start a recording with all the texts above and one device."""
    made = Recording(process).start(**facts)
    made.strings(Space.RUNTIME, RUNTIME).strings(Space.POINTER, POINTERS)
    return made.records([DEVICE, CONTEXT])


def pipeline(chunks: int = 4) -> Recording:
    """A whole recording: chunks over two streams, with an event, an allocation, NVTX, stacks and accesses."""
    made = begun()
    made.records([stream(7, 3), stream(13, 2, -5), stream(14, 1)])
    made.strings(Space.SOURCE, {1: "train.py", 2: "step", 3: "/lib/libsolver.so"}).strings(Space.THREAD, {77: "main"})
    made.rows(Block.STACKS, (1, 0, 1, 2, 12, 0, 0), (1, 1, 3, 0, -1, 1, 0x1F2))
    for n in range(chunks):
        at, id_ = 100_000 * (n + 1), 100 * (n + 1)
        made.records([
            call("cudaMemcpyAsync", at, at + 2_000, id_), call("cudaEventRecord", at + 2_500, at + 3_000, id_ + 1),
            call("cudaStreamWaitEvent", at + 3_500, at + 4_000, id_ + 2),
            call("cudaLaunchKernel", at + 4_500, at + 7_000, id_ + 3),
            call("cudaStreamSynchronize", at + 8_000, at + 90_000, id_ + 4), marker(2, at - 50, n + 1, 0x3000, 0x4000),
        ])  # fmt: skip
        made.records([
            copy(at + 5_000, at + 30_000, id_, streamId=13, bytes=1 << 20),
            kernel(at + 32_000, at + 88_000, id_ + 3, streamId=14), recorded(id_ + 1, 5, 13, n + 1, at + 30_100),
            sync(2, id_ + 2, stream=14, event=5, id_=n + 1),
            sync(3, id_ + 4, stream=14, times=(at + 8_100, at + 89_000)), marker(4, at + 91_000, n + 1),
        ])  # fmt: skip
        made.rows(Block.CALLSITES, (id_, 1), (id_ + 3, 1))
        made.rows(Block.ACCESSES, (0x50000, 1 << 20, id_, 1, 0, 0, 0), (0x900000, 1 << 20, id_, 2, 0, 0, 0),
                  (0x900000, 0, id_ + 3, 3, 1, 0, 0))  # fmt: skip
    return made.rows(Block.CLOCK, (B + 10**9, B + 10**9 + 5, 2 * 10**9)).end(records=10, dropped=0)


def contents(timeline: Timeline) -> dict[str, Any]:
    """Give all that a timeline says but where it came from, in plain values that compare."""
    tables: dict[str, Any] = {}
    for name in ("ops", "calls", "marks", "ranges", "touches"):
        table = getattr(timeline, name)
        tables[name] = {column: repr(table.column(column).tolist()) for column in type(table).__slots__}
    fields = ("devices", "streams", "threads", "strings", "clock_ns", "info", "unknown", "lost")
    return tables | {name: getattr(timeline, name) for name in fields}
