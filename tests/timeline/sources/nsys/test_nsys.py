"""The reader of Nsight Systems exports: columns, links, streams, events, ranges, and what is not told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gapless.model.errors import GaplessError
from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.timeline.timeline import Device, MarkKind, RangeKind, Timeline

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
HOST_FUNCTION = "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
STREAM = "TARGET_INFO_CUDA_STREAM"
NOWHERE = 0xFFFFFFFF


def names(timeline: Timeline) -> list[str]:
    return [timeline.name_of(row) for row in timeline.ops.name.tolist()]


def unknown(timeline: Timeline) -> set[str]:
    return {gap.what for gap in timeline.unknown}


# Work and the calls that issue it


def test_a_kernel_has_all_its_columns(export: SimpleNamespace) -> None:
    timeline = export.read(
        {RUNTIME: [export.call(1, 1000, 2000, 5)], KERNEL: [export.kernel(3000, 9000, 5, graphNodeId=3)]}
    )
    ops = timeline.ops
    assert names(timeline) == ["void scale<float>(float*)"]
    assert (ops.kind[0], ops.start[0], ops.end[0]) == (OpKind.KERNEL, 2000, 8000)  # ns after the first event
    assert ops.grid.tolist() == [[132, 2, 1]]
    assert ops.block.tolist() == [[256, 1, 1]]
    assert (ops.registers[0], ops.shared[0], ops.correlation[0], ops.graph[0]) == (32, 1072, 5, 3)
    assert (ops.bytes[0], ops.call[0]) == (-1, 0)
    calls = timeline.calls
    assert timeline.name_of(int(calls.name[0])) == "cudaLaunchKernel_v7000"
    assert (calls.kind[0], calls.start[0], calls.end[0], calls.correlation[0]) == (CallKind.LAUNCH, 0, 1000, 5)
    assert [(thread.pid, thread.tid) for thread in timeline.threads] == [(100, 101)]
    assert timeline.format == "nsys"
    assert timeline.lost == ()


@pytest.mark.parametrize(
    ("copy", "kind", "name"),
    [
        ((1, 0, 2), (OpKind.H2D, MemoryKind.PAGEABLE, MemoryKind.DEVICE), "Memcpy HtoD (Pageable -> Device)"),
        ((1, 1, 2), (OpKind.H2D, MemoryKind.PINNED, MemoryKind.DEVICE), "Memcpy HtoD (Pinned -> Device)"),
        ((2, 2, 1), (OpKind.D2H, MemoryKind.DEVICE, MemoryKind.PINNED), "Memcpy DtoH (Device -> Pinned)"),
        ((3, 0, 3), (OpKind.H2D, MemoryKind.PAGEABLE, MemoryKind.ARRAY), "Memcpy HtoA (Pageable -> Array)"),
        ((8, 5, 2), (OpKind.D2D, MemoryKind.DEVICE, MemoryKind.DEVICE), "Memcpy DtoD (Device Static -> Device)"),
        ((9, 0, 1), (OpKind.H2H, MemoryKind.PAGEABLE, MemoryKind.PINNED), "Memcpy HtoH (Pageable -> Pinned)"),
        ((10, 2, 2), (OpKind.P2P, MemoryKind.DEVICE, MemoryKind.DEVICE), "Memcpy PtoP (Device -> Device)"),
        ((11, 4, 4), (OpKind.H2D, MemoryKind.MANAGED, MemoryKind.MANAGED), "Unified Memcpy HtoD (Managed -> Managed)"),
        ((1, 7, None), (OpKind.H2D, MemoryKind.UNKNOWN, MemoryKind.UNKNOWN), "Memcpy HtoD (Unknown -> Unknown)"),
        ((0, 1, 2), (OpKind.H2D, MemoryKind.PINNED, MemoryKind.DEVICE), "Memcpy ? (Pinned -> Device)"),
    ],
)
def test_copies_are_told_apart_by_nsights_own_numbers(
    export: SimpleNamespace, copy: tuple[Any, ...], kind: tuple[int, ...], name: str
) -> None:
    timeline = export.read({MEMCPY: [export.copy(0, 10, 1, *copy)]})
    assert (timeline.ops.kind[0], timeline.ops.src[0], timeline.ops.dst[0]) == kind
    assert names(timeline) == [name]
    assert timeline.ops.bytes.tolist() == [4096]
    assert timeline.lost == ()


def test_a_copy_between_two_devices_is_a_peer_copy(export: SimpleNamespace) -> None:
    rows = [export.copy(0, 10, 1, 8, 2, 2, srcDeviceId=0, dstDeviceId=to) for to in (0, 1)]
    assert export.read({MEMCPY: rows}).ops.kind.tolist() == [OpKind.D2D, OpKind.P2P]


def test_the_exports_own_enumerations_decide(export: SimpleNamespace) -> None:
    memories = [{"id": 0, "name": "KIND_PINNED"}, {"id": 1, "name": "KIND_PAGEABLE"}, {"id": 2, "name": "KIND_DEVICE"}]
    copies = [{"id": 1, "name": "CUDA_MEMCPY_KIND_DTOH"}, {"id": 2, "name": "CUDA_MEMCPY_KIND_HTOD"}]
    tables = {"ENUM_CUDA_MEM_KIND": memories, "ENUM_CUDA_MEMCPY_OPER": copies, MEMCPY: [export.copy(0, 10, 1, 2, 1, 2)]}
    ops = export.read(tables).ops
    assert (ops.kind[0], ops.src[0], ops.dst[0]) == (OpKind.H2D, MemoryKind.PAGEABLE, MemoryKind.DEVICE)


def test_a_copy_of_unknown_direction_is_not_taken_for_an_upload(export: SimpleNamespace) -> None:
    timeline = export.read({MEMCPY: [export.copy(0, 10, 1, 99, None, None)]})
    assert timeline.ops.kind.tolist() == [OpKind.D2D]
    assert timeline.lost == ("Took 1 event as copies inside the device: nothing says between which memories.",)


def test_memsets_graphs_and_host_functions_are_work(export: SimpleNamespace) -> None:
    tables = {
        MEMSET: [export.at(0, 10, 1) | {"bytes": 64, "memKind": 2}],
        GRAPH: [export.at(20, 90, 2) | {"graphId": 6, "graphExecId": 9}],
        HOST_FUNCTION: [export.at(95, 99, 3) | {"graphId": 6}],
    }
    timeline = export.read(tables)
    assert timeline.ops.kind.tolist() == [OpKind.MEMSET, OpKind.GRAPH, OpKind.HOST_FUNCTION]
    assert names(timeline) == ["Memset (Device)", "CUDA graph 6", "Host function"]
    assert timeline.ops.dst[0] == MemoryKind.DEVICE
    assert timeline.ops.graph.tolist() == [-1, 6, 6]
    assert "graph-nodes" in unknown(timeline)


def test_one_graph_launch_issues_all_kernels_of_the_graph(export: SimpleNamespace) -> None:
    kernels = [export.kernel(start, start + 5, 4, stream=7 + start % 3, graphNodeId=start) for start in (10, 20, 31)]
    timeline = export.read({RUNTIME: [export.call(8, 0, 5, 4)], KERNEL: kernels})
    assert timeline.ops.call.tolist() == [0, 0, 0]
    assert timeline.lost == ()


def test_work_of_one_id_on_several_streams_is_linked_to_no_call(export: SimpleNamespace) -> None:
    copies = [export.copy(10 * stream, 10 * stream + 5, 17, stream=stream) for stream in (7, 13, 14, 15)]
    timeline = export.read({RUNTIME: [export.call(2, 0, 5, 17)], MEMCPY: copies})
    assert timeline.ops.call.tolist() == [-1, -1, -1, -1]
    assert "4 events" in timeline.lost[0]
    assert "host-calls" in unknown(timeline)


@pytest.mark.parametrize("correlation", [0, None, -3, 1 << 40])
def test_no_id_links_nothing(export: SimpleNamespace, correlation: int | None) -> None:
    calls = [export.call(1, 0, 5, correlation), export.call(1, 10, 15, correlation)]
    timeline = export.read(
        {RUNTIME: calls, KERNEL: [export.kernel(20, 30, correlation), export.kernel(40, 50, correlation)]}
    )
    assert timeline.ops.call.tolist() == [-1, -1]
    assert timeline.ops.correlation.tolist() == [0, 0]


def test_the_runtime_call_stands_for_the_drivers(export: SimpleNamespace) -> None:
    calls = [export.call(7, 2, 4, 5, eventClass=1), export.call(1, 0, 5, 5)]
    timeline = export.read({RUNTIME: calls, KERNEL: [export.kernel(6, 9, 5)]})
    assert timeline.name_of(int(timeline.calls.name[timeline.ops.call[0]])) == "cudaLaunchKernel_v7000"


# Names


def test_a_name_without_text_is_kept_as_its_number(export: SimpleNamespace) -> None:
    rows = [export.kernel(0, 1, 1, demangledName=900, shortName=901), export.kernel(2, 3, 1, demangledName=900)]
    timeline = export.read({KERNEL: rows})
    assert names(timeline) == ["#900", "scale"]
    assert timeline.lost == ("Named 1 event by a number: the export has no text for it.",)


def test_kernels_of_old_exports_have_short_names_only(export: SimpleNamespace) -> None:
    short = export.columns | {KERNEL: "start end deviceId streamId correlationId shortName"}
    timeline = export.read({KERNEL: [export.kernel(0, 1, 1)]}, columns=short)
    assert names(timeline) == ["scale"]
    assert timeline.ops.grid.tolist() == [[-1, -1, -1]]
    assert (timeline.ops.registers[0], timeline.ops.shared[0]) == (-1, -1)


def test_strings_are_found_without_an_index_too(export: SimpleNamespace, tmp_path: Any) -> None:
    strings = [{"id": "20", "value": "text"}, {"id": 20, "value": "number"}, {"id": 21, "value": None}]
    path = export.write(tmp_path / "loose.sqlite", {"Strings": strings, KERNEL: [export.kernel(0, 1, 1)]})
    assert names(export.reopen(path, "ALTER TABLE Strings RENAME TO StringIds")) == ["number"]


# Devices, processes, streams


def test_devices_are_described(export: SimpleNamespace) -> None:
    gpu = {
        "id": 0, "name": "NVIDIA H200", "smCount": 132, "computeMajor": 9, "computeMinor": 0, "totalMemory": 150 << 30,
        "maxWarpsPerSm": 64, "threadsPerWarp": 32, "maxRegistersPerSm": 65536, "maxShmemPerSm": 233472,
    }  # fmt: skip
    timeline = export.read(
        {"TARGET_INFO_GPU": [gpu], KERNEL: [export.kernel(0, 1, 1), export.kernel(2, 3, 2, device=3)]}
    )
    assert timeline.devices == (
        Device(
            id=0, name="NVIDIA H200", vendor="nvidia", sms=132, compute_capability=(9, 0), memory_bytes=150 << 30,
            threads_per_sm=2048, registers_per_sm=65536, shared_per_sm=233472,
        ),
        Device(id=3, vendor="nvidia"),
    )  # fmt: skip
    assert timeline.ops.device.tolist() == [0, 1]


def test_processes_on_one_device_are_kept_apart(export: SimpleNamespace) -> None:
    calls = [export.call(1, start, start + 5, 5, pid=pid, tid=pid) for start, pid in ((0, 100), (1, 200))]
    kernels = [export.kernel(10, 20, 5, pid=200), export.kernel(30, 40, 5, pid=100)]
    timeline = export.read({RUNTIME: calls, KERNEL: kernels})
    owner = [timeline.threads[timeline.calls.thread[call]].pid for call in timeline.ops.call.tolist()]
    assert owner == [200, 100]
    assert [(stream.id, stream.name) for stream in timeline.streams] == [(7, "process 100"), (7, "process 200")]
    assert timeline.ops.stream.tolist() == [1, 0]
    assert len(timeline.devices) == 1
    assert len(set(timeline.calls.correlation.tolist())) == 2
    assert timeline.ops.correlation.tolist() == timeline.calls.correlation[timeline.ops.call].tolist()


def test_ids_of_one_process_never_become_those_of_another(export: SimpleNamespace) -> None:
    calls = [export.call(1, 0, 5, 5 + (1 << 31)), export.call(1, 1, 6, 5, pid=200)]
    timeline = export.read({RUNTIME: calls, KERNEL: [export.kernel(10, 20, 5, pid=200)]})
    assert timeline.threads[timeline.calls.thread[timeline.ops.call[0]]].pid == 200
    assert len(set(timeline.calls.correlation.tolist())) == 2


def test_processes_number_devices_in_their_own_way(export: SimpleNamespace) -> None:
    gpus = [{"gpuId": gpu, "cudaId": 0, "pid": pid} for gpu, pid in ((2, 100), (1, 200))]
    kernels = [export.kernel(0, 1, 1, pid=100), export.kernel(2, 3, 1, pid=200)]
    timeline = export.read({"TARGET_INFO_CUDA_DEVICE": gpus, KERNEL: kernels})
    assert [device.id for device in timeline.devices] == [1, 2]
    assert timeline.ops.device.tolist() == [1, 0]
    assert [stream.name for stream in timeline.streams] == ["", ""]


def test_work_without_a_process_is_linked_where_there_is_only_one(export: SimpleNamespace) -> None:
    one, two = export.call(1, 0, 5, 5), export.call(1, 0, 5, 5, pid=200)
    kernel = dict(export.kernel(10, 20, 5)) | {"globalPid": None}
    assert export.read({RUNTIME: [one], KERNEL: [kernel]}).ops.call.tolist() == [0]
    assert export.read({RUNTIME: [one, two], KERNEL: [kernel]}).ops.call.tolist() == [-1]


def test_streams_are_of_the_kind_that_their_flag_says(export: SimpleNamespace) -> None:
    told = [(7, 3, 0), (13, 1, 0), (14, 2, 4294967291), (15, 0, 0)]
    streams = [
        {"streamId": id_, "processId": 100, "contextId": 1, "flag": flag, "priority": priority}
        for id_, flag, priority in told
    ]
    kernels = [export.kernel(10 * id_, 10 * id_ + 5, 1, stream=id_) for id_, *_ in told]
    name = {"name": "copies", "processId": 100, "streamId": 14}
    timeline = export.read({STREAM: streams, KERNEL: kernels, "TARGET_INFO_NVTX_CUDA_STREAM": [name]})
    assert [(s.id, s.kind, s.inferred, s.priority, s.name) for s in timeline.streams] == [
        (7, StreamKind.LEGACY, False, 0, ""),
        (13, StreamKind.BLOCKING, False, 0, ""),
        (14, StreamKind.NON_BLOCKING, False, -5, "copies"),
        (15, StreamKind.UNKNOWN, False, 0, ""),
    ]
    assert "stream-kinds" in unknown(timeline)
    assert "stream-kinds" not in unknown(export.read({STREAM: streams, KERNEL: kernels[:3]}))


def test_the_contexts_null_stream_is_the_default_one(export: SimpleNamespace) -> None:
    context = {"nullStreamId": 20, "processId": 100, "deviceId": 0, "contextId": 1}
    timeline = export.read({"TARGET_INFO_CUDA_CONTEXT_INFO": [context], KERNEL: [export.kernel(0, 1, 1, stream=20)]})
    assert [(s.kind, s.inferred) for s in timeline.streams] == [(StreamKind.LEGACY, False)]


def test_the_default_stream_is_inferred_by_its_number(export: SimpleNamespace) -> None:
    created = [{"streamId": 22, "processId": 100, "contextId": 2, "flag": 2, "priority": 0}]
    kernels = [
        export.kernel(start, start + 1, 1, stream=stream, device=device)
        for start, stream, device in ((0, 7, 0), (2, 13, 0), (4, 15, 1), (6, 22, 1), (8, 30, 1))
    ]
    timeline = export.read({STREAM: created, KERNEL: kernels})
    assert [(s.id, s.kind, s.inferred) for s in timeline.streams] == [
        (7, StreamKind.LEGACY, True),
        (13, StreamKind.UNKNOWN, False),
        (15, StreamKind.LEGACY, True),
        (22, StreamKind.NON_BLOCKING, False),
        (30, StreamKind.UNKNOWN, False),
    ]


# Events and synchronisation


def wait(
    export: SimpleNamespace, start: int, kind: int, correlation: int, stream: int = 13, **more: Any
) -> dict[str, Any]:
    row = export.at(start, start + 1, correlation, stream=stream)
    return row | {"syncType": kind, "eventId": NOWHERE, "eventSyncId": 0} | more


def test_waits_of_the_host_name_streams(export: SimpleNamespace) -> None:
    calls = [export.call(1, 0, 5, 1), export.call(3, 20, 30, 2)]
    syncs = [wait(export, 21, 3, 2, stream=7), wait(export, 40, 4, 9, stream=NOWHERE)]
    timeline = export.read({RUNTIME: calls, KERNEL: [export.kernel(6, 29, 1)], SYNC: syncs})
    marks = timeline.marks
    assert marks.kind.tolist() == [MarkKind.SYNC_STREAM, MarkKind.SYNC_DEVICE]
    assert marks.stream.tolist() == [0, -1]
    assert marks.device.tolist() == [0, 0]
    assert marks.call.tolist() == [1, -1]
    assert "sync-targets" not in unknown(timeline)


def test_the_call_says_what_a_wait_is_where_the_number_is_one_off(export: SimpleNamespace) -> None:
    timeline = export.read({RUNTIME: [export.call(3, 20, 30, 2)], SYNC: [wait(export, 21, 2, 2, stream=7)]})
    assert timeline.marks.kind.tolist() == [MarkKind.SYNC_STREAM]


def test_a_wait_for_no_event_is_left_out(export: SimpleNamespace) -> None:
    assert len(export.read({SYNC: [wait(export, 21, 2, 2)]}).marks) == 0


def event_tables(export: SimpleNamespace, **records: Any) -> dict[str, Any]:
    calls = [
        export.call(1, 0, 5, 1), export.call(4, 10, 12, 2), export.call(4, 20, 22, 3), export.call(5, 30, 31, 4),
        export.call(1, 40, 45, 5),
    ]  # fmt: skip
    kernels = [export.kernel(6, 100, 1, stream=7), export.kernel(110, 120, 5, stream=13)]
    rows = [
        export.at(0, 0, 2, stream=7) | {"timestamp": 101, "eventId": 50, "eventSyncId": 1} | records,
        export.at(0, 0, 3, stream=14) | {"timestamp": 0, "eventId": 50, "eventSyncId": 2} | records,
    ]
    return {RUNTIME: calls, KERNEL: kernels, EVENT: rows, SYNC: [wait(export, 30, 2, 4, eventId=50, eventSyncId=1)]}


def test_a_wait_is_tied_to_its_record(export: SimpleNamespace) -> None:
    timeline = export.read(event_tables(export))
    marks = timeline.marks
    assert marks.kind.tolist() == [MarkKind.RECORD, MarkKind.WAIT, MarkKind.RECORD]
    stream = [timeline.streams[row].id for row in marks.stream.tolist()]
    assert stream == [14, 13, 7]
    assert marks.start.tolist() == [20, 30, 101]  # the first was not timed by the device: the time of its call
    assert marks.event.tolist() == [50, 50, 50]
    assert timeline.streams[marks.waits_on[1]].id == 7
    assert marks.record.tolist() == [-1, 2, -1]
    assert marks.call.tolist() == [2, 3, 1]
    assert "event-waits" not in unknown(timeline)


def test_without_ids_of_records_the_last_record_before_the_wait_counts(export: SimpleNamespace) -> None:
    tables = event_tables(export, eventSyncId=None)
    tables[SYNC][0]["eventSyncId"] = None
    timeline = export.read(tables)
    row = timeline.marks.kind.tolist().index(MarkKind.WAIT)
    assert timeline.marks.record[row] == 3
    assert timeline.streams[timeline.marks.waits_on[row]].id == 14


def test_an_event_recorded_after_the_wait_or_never_is_not_waited_for(export: SimpleNamespace) -> None:
    tables = event_tables(export, eventSyncId=None)
    first, second = tables[EVENT]
    later = export.at(0, 0, 6, stream=15) | {"timestamp": 0, "eventId": 50}
    tables[EVENT] = [later, second, first]  # rows need not be in order
    tables[RUNTIME].append(export.call(4, 50, 52, 6))
    tables[SYNC] = [wait(export, 30, 2, 4, eventId=50), wait(export, 60, 2, 7, eventId=60)]
    tables[RUNTIME].append(export.call(5, 60, 61, 7))
    marks = export.read(tables).marks
    waits = marks.take(marks.kind == MarkKind.WAIT)
    assert waits.event.tolist() == [50, 60]
    assert waits.record.tolist() == [3, -1]
    assert waits.waits_on[1] == -1


def test_a_record_that_two_rows_claim_is_tied_to_nothing(export: SimpleNamespace) -> None:
    marks = export.read(event_tables(export, eventSyncId=1)).marks
    waits = marks.take(marks.kind == MarkKind.WAIT)
    assert (waits.record[0], waits.waits_on[0]) == (-1, -1)


def test_waits_without_records_are_said_to_be_unknown(export: SimpleNamespace) -> None:
    tables = event_tables(export)
    del tables[EVENT]
    timeline = export.read(tables)
    assert timeline.marks.kind.tolist() == [MarkKind.RECORD, MarkKind.RECORD, MarkKind.WAIT]
    assert timeline.marks.waits_on.tolist() == [-1, -1, -1]
    gap = next(gap for gap in timeline.unknown if gap.what == "event-waits")
    assert gap.text.startswith("For 1 of 1 waits")
    assert "--cuda-event-trace=true" in gap.remedy


def test_events_of_two_processes_are_kept_apart(export: SimpleNamespace) -> None:
    tables = event_tables(export)
    other = export.at(0, 0, 2, stream=30, pid=50) | {"timestamp": 500, "eventId": 50, "eventSyncId": 1}
    tables[EVENT] = [other, *tables[EVENT]]
    timeline = export.read(tables)
    row = timeline.marks.kind.tolist().index(MarkKind.WAIT)
    assert timeline.streams[timeline.marks.waits_on[row]].id == 7


def test_marks_are_on_the_device_of_their_context(export: SimpleNamespace) -> None:
    sync = wait(export, 21, 3, 2, stream=15) | {"deviceId": 0, "contextId": 2}
    timeline = export.read({KERNEL: [export.kernel(0, 1, 1, stream=15, device=1)], SYNC: [sync]})
    assert [(stream.id, timeline.devices[stream.device].id) for stream in timeline.streams] == [(15, 1)]
    assert timeline.marks.stream.tolist() == [0]


# Ranges, threads, facts


def nvtx(export: SimpleNamespace, start: int, end: int | None, kind: int = 59, **more: Any) -> dict[str, Any]:
    return {
        "start": start,
        "end": end,
        "eventType": kind,
        "globalTid": export.global_id(100, 101),
        "domainId": 0,
    } | more


def ranges(timeline: Timeline) -> list[tuple[int, str, int, int]]:
    columns = (timeline.ranges.kind, timeline.ranges.name, timeline.ranges.start, timeline.ranges.end)
    return [(k, timeline.name_of(n), s, e) for k, n, s, e in zip(*(c.tolist() for c in columns), strict=True)]


def test_nvtx_ranges_have_their_texts_and_domains(export: SimpleNamespace) -> None:
    rows = [
        nvtx(export, 0, 0, 75, text="NCCL", domainId=3),
        nvtx(export, 0, 90, text="step 1"),
        nvtx(export, 10, 20, 60, textId=21, domainId=3),
        nvtx(export, 30, 40, text="own domain", domainId=9),
        nvtx(export, 50, None, 34, text="a mark"),
        nvtx(export, 60, None, text="never ended"),
        nvtx(export, 70, 80, textId=999),
        nvtx(export, 70, 80),
    ]
    timeline = export.read({"NVTX_EVENTS": rows})
    assert ranges(timeline) == [
        (RangeKind.NVTX, "step 1", 0, 90),
        (RangeKind.NVTX, "NCCL:scale", 10, 20),
        (RangeKind.NVTX, "own domain", 30, 40),
        (RangeKind.NVTX, "unnamed", 70, 80),
        (RangeKind.NVTX, "#999", 70, 80),
    ]
    assert timeline.lost == (
        "Left out 1 event: NVTX ranges that were still open when the recording ended.",
        "Named 2 events by a number: the export has no text for it.",
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("aten::mm, seq = 12, op_id = 34, sizes = [[2, 3], [3, 4]]", "aten::mm"),
        ("aten::empty, op_id = 990346", "aten::empty"),
        ("FSDP::pre_forward (a, b), op_id = 7", "FSDP::pre_forward (a, b)"),
    ],
)
def test_operators_of_pytorch_are_known_by_their_names(export: SimpleNamespace, text: str, name: str) -> None:
    assert ranges(export.read({"NVTX_EVENTS": [nvtx(export, 0, 9, text=text)]})) == [(RangeKind.CPU_OP, name, 0, 9)]


def test_the_profilers_own_work_is_told_apart(export: SimpleNamespace) -> None:
    overhead = {"start": 5, "end": 9, "globalTid": export.global_id(100, 102), "nameId": 30}
    tables = {
        "StringIds": [{"id": 30, "value": "CUPTI Buffer flush"}, {"id": 31, "value": "feeder"}],
        "PROFILER_OVERHEAD": [overhead],
        "CUPTI_ACTIVITY_KIND_OVERHEAD": [overhead | {"start": 0}],
        "ThreadNames": [{"nameId": 31, "globalTid": export.global_id(100, 102)}],
    }
    timeline = export.read(tables)
    assert ranges(timeline) == [
        (RangeKind.OVERHEAD, "CUPTI Buffer flush", 0, 9),
        (RangeKind.OVERHEAD, "CUPTI Buffer flush", 5, 9),
    ]
    assert [(thread.tid, thread.name) for thread in timeline.threads] == [(102, "feeder")]


def test_calls_have_their_stacks(export: SimpleNamespace) -> None:
    calls = [
        export.call(1, 10 * n, 10 * n + 5, n, callchainId=chain)
        for n, chain in ((1, 1), (2, 0), (3, 1), (4, 2), (5, 9))
    ]
    chains = [
        {"id": 1, "symbol": 42, "stackDepth": 2}, {"id": 1, "symbol": 40, "stackDepth": 0},
        {"id": 1, "symbol": 41, "stackDepth": 1},
        {"id": 2, "symbol": 43, "module": 44, "unresolved": 1, "stackDepth": 0},
    ]  # fmt: skip
    texts = {
        40: "launch",
        41: "step(int; float)",
        42: "main",
        43: "0x7f00",
        44: "/usr/lib/libfoo.so",
        1: "cudaLaunchKernel",
    }
    strings = [{"id": id_, "value": value} for id_, value in texts.items()]
    timeline = export.read({RUNTIME: calls, "CUDA_CALLCHAINS": chains, "StringIds": strings})
    stacks = [timeline.name_of(row) for row in timeline.calls.stack.tolist()]
    assert stacks == ["launch;step(int, float);main", "", "launch;step(int, float);main", "libfoo.so", ""]


def test_rows_that_only_give_a_calls_stack_are_no_calls(export: SimpleNamespace) -> None:
    calls = [
        export.call(6, 124, 131, 17, eventClass=67, callchainId=5),
        export.call(3, 125, 130, 17),
        export.call(3, 125, 130, 17, tid=102),
        export.call(1, 140, 150, 18),
    ]
    chains = [{"id": 5, "symbol": 20, "stackDepth": 0}]
    timeline = export.read({RUNTIME: calls, "CUDA_CALLCHAINS": chains})
    assert timeline.calls.kind.tolist() == [CallKind.SYNC_STREAM, CallKind.SYNC_STREAM, CallKind.LAUNCH]
    stacks = {
        (timeline.threads[thread].tid, start): timeline.name_of(stack)
        for thread, start, stack in zip(timeline.calls.thread, timeline.calls.start, timeline.calls.stack, strict=True)
    }
    assert stacks == {(101, 0): "void scale<float>(float*)", (102, 0): "", (101, 15): ""}


def test_the_wall_clock_and_the_exports_facts_are_kept(export: SimpleNamespace) -> None:
    tables = {
        KERNEL: [export.kernel(500, 600, 1)],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_000}],
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.24.14"}],
    }
    timeline = export.read(tables)
    assert timeline.clock_ns == 1_700_000_000_000_000_500
    assert timeline.info == {"EXPORT_SCHEMA_VERSION": "3.24.14", "session_ns": 500, "overlaps": 0}


def test_what_nsight_says_it_lost_is_passed_on(export: SimpleNamespace) -> None:
    said = [
        (2, "Not all CUDA events might have been collected."), (2, "Not all CUDA events might have been collected."),
        (1, "Number of CUDA events collected: 6,682."), (2, "CPU context switches are not all traced."),
    ]  # fmt: skip
    rows = [{"severity": severity, "text": text} for severity, text in said]
    timeline = export.read({KERNEL: [export.kernel(0, 1, 1)], "DIAGNOSTIC_EVENT": rows})
    assert timeline.lost == ("Nsight Systems says: Not all CUDA events might have been collected.",)


# Schemas


def test_tables_that_are_not_there_are_empty(export: SimpleNamespace) -> None:
    timeline = export.read({KERNEL: [export.kernel(0, 1, 1)]})
    assert (len(timeline.ops), len(timeline.calls), len(timeline.marks), len(timeline.ranges)) == (1, 0, 0, 0)
    assert unknown(timeline) == {"host-calls", "event-waits", "buffers", "source-lines"}
    nothing = export.read({})
    assert (len(nothing.ops), nothing.unknown, nothing.lost) == (0, (), ())


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (KERNEL, "end"),
        (KERNEL, "deviceId"),
        (KERNEL, "streamId"),
        (MEMCPY, "copyKind"),
        (RUNTIME, "globalTid"),
        (SYNC, "start"),
    ],
)
def test_a_required_column_that_is_missing_is_named(export: SimpleNamespace, table: str, column: str) -> None:
    kept = " ".join(name for name in export.columns[table].split() if name != column)
    rows = {
        KERNEL: export.kernel(0, 1, 1),
        MEMCPY: export.copy(0, 1, 1),
        RUNTIME: export.call(1, 0, 1, 1),
        SYNC: {"start": 1},
    }
    facts = {"META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.30.0"}]}
    with pytest.raises(GaplessError, match=rf"{table}\.{column} is missing \(schema version 3\.30\.0\)"):
        export.read({table: [rows[table]], **facts}, columns=export.columns | {table: kept})
    assert len(export.read({table: []}, columns=export.columns | {table: kept}).ops) == 0


def test_kernels_without_any_name_are_refused(export: SimpleNamespace) -> None:
    columns = export.columns | {KERNEL: "start end deviceId streamId correlationId"}
    with pytest.raises(GaplessError, match=r"KERNEL\.demangledName is missing \(the schema version is not named\)"):
        export.read({KERNEL: [export.kernel(0, 1, 1)]}, columns=columns)


@pytest.mark.parametrize("table", ["META_DATA_EXPORT", "EXPORT_META_DATA"])
def test_an_unknown_version_is_said_and_read(export: SimpleNamespace, table: str) -> None:
    facts = {table: [{"name": "EXPORT_SCHEMA_VERSION", "value": "9.1.0"}]}
    timeline = export.read({KERNEL: [export.kernel(0, 1, 1)], **facts})
    assert len(timeline.ops) == 1
    assert timeline.lost[0].startswith(
        "The export has schema version 9.1.0, which this version of gapless does not know"
    )


def test_names_of_tables_and_columns_in_any_case_are_found(export: SimpleNamespace) -> None:
    rows = [{"START": 0, "End": 5, "deviceid": 0, "STREAMID": 7, "shortname": 21}]
    assert names(export.read({KERNEL.lower(): rows})) == ["scale"]
