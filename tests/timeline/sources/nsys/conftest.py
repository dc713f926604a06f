"""Small exports of Nsight Systems, built table by table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gapless.timeline.sources import nsys
from gapless.timeline.timeline import Table, Timeline

Row = Mapping[str, Any]

PLACE = "deviceId contextId streamId correlationId globalPid"
COLUMNS = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"start end {PLACE} demangledName shortName mangledName registersPerThread "
    "gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory graphNodeId graphId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"start end {PLACE} bytes copyKind srcKind dstKind srcDeviceId "
    "dstDeviceId graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"start end {PLACE} value bytes graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"start end {PLACE} graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH": f"start end {PLACE} graphNodeId graphId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"start end {PLACE} deprecatedSyncType syncType eventId eventSyncId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": f"timestamp {PLACE} eventId eventSyncId",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "start end eventClass globalTid correlationId nameId overheadType",
    "PROFILER_OVERHEAD": "start end globalTid nameId overheadType",
    "NVTX_EVENTS": "start end eventType rangeId category color text globalTid endGlobalTid textId domainId",
    "CUDA_CALLCHAINS": "id symbol module unresolved originalIP stackDepth",
    "StringIds": "id value",
    "ThreadNames": "nameId priority globalTid",
    "META_DATA_EXPORT": "name value",
    "TARGET_INFO_GPU": "vmId id name smCount totalMemory computeMajor computeMinor maxWarpsPerSm threadsPerWarp "
    "maxRegistersPerSm maxShmemPerSm",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid uuid numMultiprocessors",
    "TARGET_INFO_CUDA_CONTEXT_INFO": "nullStreamId hwId vmId processId deviceId contextId",
    "TARGET_INFO_CUDA_STREAM": "streamId hwId vmId processId contextId priority flag",
    "TARGET_INFO_NVTX_CUDA_STREAM": "name hwId vmId processId deviceId contextId streamId",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
}
TEXTS = frozenset({"text", "value", "name", "uuid", "utcTime", "localTime"})

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"

NAMES = {
    1: "cudaLaunchKernel_v7000",
    2: "cudaMemcpyAsync_v3020",
    3: "cudaStreamSynchronize_v3020",
    4: "cudaEventRecord_v3020",
    5: "cudaStreamWaitEvent_v3020",
    7: "cuLaunchKernel",
    8: "cudaGraphLaunch_v10000",
    20: "void scale<float>(float*)",
    21: "scale",
}


def global_id(pid: int, tid: int = 0, vm: int = 1) -> int:
    return vm << 48 | pid << 24 | tid


def call(name: int, start: int, end: int, correlation: Any, *, pid: int = 100, tid: int = 101, **more: Any) -> Row:
    return {
        "start": start, "end": end, "eventClass": 0, "globalTid": global_id(pid, tid), "correlationId": correlation,
        "nameId": name, "returnValue": 0,
    } | more  # fmt: skip


def at(start: int, end: int, correlation: Any, *, pid: int = 100, stream: int = 7, device: int = 0) -> dict[str, Any]:
    return {
        "start": start, "end": end, "correlationId": correlation, "globalPid": global_id(pid), "streamId": stream,
        "deviceId": device, "contextId": device + 1,
    }  # fmt: skip


def kernel(start: int, end: int, correlation: Any, **more: Any) -> Row:
    place = {name: more.pop(name) for name in ("pid", "stream", "device") if name in more}
    shape = {"gridX": 132, "gridY": 2, "gridZ": 1, "blockX": 256, "blockY": 1, "blockZ": 1}
    memory = {"registersPerThread": 32, "staticSharedMemory": 1024, "dynamicSharedMemory": 48}
    return at(start, end, correlation, **place) | {"demangledName": 20, "shortName": 21} | shape | memory | more


def copy(start: int, end: int, correlation: Any, kind: int = 1, src: Any = 1, dst: Any = 2, **more: Any) -> Row:
    place = {name: more.pop(name) for name in ("pid", "stream", "device") if name in more}
    told = {"bytes": 4096, "copyKind": kind, "srcKind": src, "dstKind": dst}
    return at(start, end, correlation, **place) | told | more


def write(path: Path, tables: Mapping[str, Sequence[Row]], columns: Mapping[str, str] = COLUMNS) -> Path:
    """Write a database with these tables, each with the columns that such tables have."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        for table, rows in tables.items():
            names = (
                columns[table].split() if table in columns else list(dict.fromkeys(key for row in rows for key in row))
            )
            types = ", ".join(f'"{name}" {"TEXT" if name in TEXTS else "INTEGER"}' for name in names)
            key = ", PRIMARY KEY (id)" if table == "StringIds" else ""
            connection.execute(f'CREATE TABLE "{table}" ({types}{key})')
            marks = ", ".join("?" * len(names))
            connection.executemany(
                f'INSERT INTO "{table}" VALUES ({marks})', [[row.get(n) for n in names] for row in rows]
            )
    connection.close()
    return path


def contents(timeline: Timeline) -> dict[str, Any]:
    """Give all that a timeline says, in plain values that compare."""
    tables: dict[str, Any] = {}
    for name in ("ops", "calls", "marks", "ranges"):
        table: Table = getattr(timeline, name)
        tables[name] = {column: repr(table.column(column).tolist()) for column in type(table).__slots__}
    fields = ("devices", "streams", "threads", "strings", "clock_ns", "info", "unknown", "lost")
    return tables | {name: getattr(timeline, name) for name in fields}


def check(timeline: Timeline) -> None:
    """Check that a timeline is whole: in order, and every number refers to something."""
    bounds = {
        "name": len(timeline.strings), "stack": len(timeline.strings), "thread": len(timeline.threads),
        "stream": len(timeline.streams), "waits_on": len(timeline.streams), "call": len(timeline.calls),
        "device": len(timeline.devices),
    }  # fmt: skip
    for table in (timeline.ops, timeline.calls, timeline.marks, timeline.ranges):
        assert (table.column("end") >= table.column("start")).all()
        assert (table.column("start")[1:] >= table.column("start")[:-1]).all()
        if len(table):
            assert table.column("start")[0] >= 0
        for name, bound in bounds.items():
            if name in type(table).__slots__:
                assert ((table.column(name) >= -1) & (table.column(name) < bound)).all(), name
    ops, calls = timeline.ops, timeline.calls
    for column in (ops.name, ops.stream, ops.device, calls.name, calls.thread, timeline.ranges.name):
        assert (column >= 0).all()
    assert all(0 <= stream.device < len(timeline.devices) for stream in timeline.streams)
    assert all(isinstance(text, str) and text for text in (*timeline.lost, *(gap.text for gap in timeline.unknown)))


@pytest.fixture
def export(tmp_path: Path) -> SimpleNamespace:
    """Give functions that write exports and read them."""
    count = 0

    def save(tables: Mapping[str, Sequence[Row]], **more: Any) -> Path:
        nonlocal count
        count += 1
        strings = [{"id": id_, "value": name} for id_, name in NAMES.items()]
        return write(tmp_path / f"export{count}.sqlite", {"StringIds": strings, **tables}, **more)

    def read(tables: Mapping[str, Sequence[Row]], **more: Any) -> Timeline:
        timeline = nsys.read(save(tables, **more))
        check(timeline)
        return timeline

    def reopen(path: Path, statement: str) -> Timeline:
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(statement)
        connection.close()
        return nsys.read(path)

    functions: dict[str, Callable[..., Any]] = {
        "save": save, "read": read, "reopen": reopen, "write": write, "check": check, "contents": contents,
        "call": call, "kernel": kernel, "copy": copy, "at": at, "global_id": global_id,
    }  # fmt: skip
    return SimpleNamespace(columns=COLUMNS, names=NAMES, **functions)
