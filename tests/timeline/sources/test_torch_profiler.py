"""What each row of a Kineto trace becomes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.timeline.timeline import MarkKind, RangeKind, Stream, Thread

DEVICE = {
    "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0,
    "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32, "numSms": 132,
    "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 233472,
}  # fmt: skip


@pytest.mark.parametrize("layout", ["kineto", "apart", "windows", "one line", "indented", "list"])
def test_a_launch_and_its_kernel(kineto: SimpleNamespace, layout: str) -> None:
    events = [
        kineto.call("cudaLaunchKernel", 10.5, 3.25, 11),
        kineto.flow("s", 11),
        kineto.kernel("work(float*)", 20.125, 7.001, 11),
        kineto.flow("f", 11),
    ]
    timeline = kineto.read(events, layout)
    ops, calls = timeline.ops, timeline.calls
    assert (ops.start.tolist(), ops.end.tolist()) == ([9625], [16626])
    assert (calls.start.tolist(), calls.end.tolist()) == ([0], [3250])
    assert ops.kind.tolist() == [OpKind.KERNEL]
    assert calls.kind.tolist() == [CallKind.LAUNCH]
    assert timeline.name_of(int(ops.name[0])) == "work(float*)"
    assert timeline.name_of(int(calls.name[0])) == "cudaLaunchKernel"
    assert (ops.grid.tolist(), ops.block.tolist()) == ([[1056, 2, 1]], [[256, 1, 1]])
    assert (ops.registers.tolist(), ops.shared.tolist(), ops.occupancy.tolist()) == ([16], [256], [0.5])
    assert (ops.correlation.tolist(), ops.call.tolist(), ops.graph.tolist(), ops.bytes.tolist()) == (
        [11],
        [0],
        [-1],
        [-1],
    )
    assert timeline.threads == (Thread(pid=100, tid=200),)
    assert timeline.lost == ()
    assert timeline.format == "torch.profiler"


def test_every_layout_says_the_same(kineto: SimpleNamespace) -> None:
    events = [
        kineto.host("cpu_op", "aten::copy_", 5, 30),
        kineto.call("cudaMemcpyAsync", 10.5, 3.25, 11),
        kineto.copy("Memcpy HtoD (Pinned -> Device)", 20.125, 7.001, 11, stream=20),
        {"name": "thread_name", "ph": "M", "ts": 1, "pid": 100, "tid": 200, "args": {"name": "thread 200 (python)"}},
        {"name": "[memory]", "ph": "i", "s": "t", "pid": 100, "tid": 200, "ts": 3, "args": {"Bytes": 4}},
    ]
    facts = {"head": {"schemaVersion": 1, "deviceProperties": [DEVICE]}, "tail": {"traceName": "x.json"}}
    told = [kineto.contents(kineto.read(events, layout, **facts)) for layout in kineto.layouts if layout != "list"]
    assert all(other == told[0] for other in told[1:])
    assert told[0]["info"] == {"schemaVersion": 1, "traceName": "x.json", "overlaps": 0}


@pytest.mark.parametrize(
    ("name", "kind", "src", "dst"),
    [
        ("Memcpy HtoD (Pageable -> Device)", OpKind.H2D, MemoryKind.PAGEABLE, MemoryKind.DEVICE),
        ("Memcpy HtoD (Pinned -> Device)", OpKind.H2D, MemoryKind.PINNED, MemoryKind.DEVICE),
        ("Memcpy DtoH (Device -> Pinned)", OpKind.D2H, MemoryKind.DEVICE, MemoryKind.PINNED),
        ("Memcpy DtoH (Device -> Pageable)", OpKind.D2H, MemoryKind.DEVICE, MemoryKind.PAGEABLE),
        ("Memcpy DtoD (Device -> Device)", OpKind.D2D, MemoryKind.DEVICE, MemoryKind.DEVICE),
        ("Memcpy PtoP (Device -> Device)", OpKind.P2P, MemoryKind.DEVICE, MemoryKind.DEVICE),
        ("Memcpy HtoH (Pinned -> Pageable)", OpKind.H2H, MemoryKind.PINNED, MemoryKind.PAGEABLE),
        ("Memcpy HtoA (Pageable -> Array)", OpKind.H2D, MemoryKind.PAGEABLE, MemoryKind.ARRAY),
        ("Memcpy AtoH (Array -> Pageable)", OpKind.D2H, MemoryKind.ARRAY, MemoryKind.PAGEABLE),
        ("Memcpy DtoA (Device -> Array)", OpKind.D2D, MemoryKind.DEVICE, MemoryKind.ARRAY),
        ("Memcpy HtoD (Managed -> Device)", OpKind.H2D, MemoryKind.MANAGED, MemoryKind.DEVICE),
        ("Memcpy HtoD (Pinned -> Device Static)", OpKind.H2D, MemoryKind.PINNED, MemoryKind.DEVICE),
        ("Memcpy HtoD (Unknown -> Device)", OpKind.H2D, MemoryKind.UNKNOWN, MemoryKind.DEVICE),
        ("Memcpy HtoD (Host -> Device)", OpKind.H2D, MemoryKind.UNKNOWN, MemoryKind.DEVICE),
        ("CopyHostToDevice", OpKind.H2D, MemoryKind.UNKNOWN, MemoryKind.UNKNOWN),
        ("CopyDeviceToHost", OpKind.D2H, MemoryKind.UNKNOWN, MemoryKind.UNKNOWN),
        ("Memcpy <unknown> (Pinned -> Device)", OpKind.H2D, MemoryKind.PINNED, MemoryKind.DEVICE),
        ("Memcpy DtoH (Device -> Device)", OpKind.P2P, MemoryKind.DEVICE, MemoryKind.DEVICE),
        ("Memcpy HtoD (Device -> Device)", OpKind.P2P, MemoryKind.DEVICE, MemoryKind.DEVICE),
    ],
)
def test_a_copy_says_its_direction_and_memories(
    kineto: SimpleNamespace, name: str, kind: OpKind, src: MemoryKind, dst: MemoryKind
) -> None:
    timeline = kineto.read([kineto.copy(name, 1, 2, 5)])
    ops = timeline.ops
    assert (ops.kind.tolist(), ops.src.tolist(), ops.dst.tolist(), ops.bytes.tolist()) == ([kind], [src], [dst], [4096])
    assert timeline.lost == ()


def test_a_copy_of_unknown_direction_is_counted(kineto: SimpleNamespace) -> None:
    timeline = kineto.read([kineto.copy("Memcpy <unknown> (? -> ?)", 1, 2, 5)])
    assert timeline.ops.kind.tolist() == [OpKind.D2D]
    assert timeline.lost == (
        "Took 1 event as copies inside the device: the trace does not say between which memories.",
    )


def test_a_peer_copy_has_its_own_words_for_the_device(kineto: SimpleNamespace) -> None:
    event = kineto.copy("Memcpy DtoD (Device -> Device)", 1, 2, 5)
    event["args"] = {"fromDevice": 1, "inDevice": 1, "toDevice": 3, "stream": 13, "correlation": 5, "bytes": 64}
    timeline = kineto.read([event])
    assert timeline.ops.kind.tolist() == [OpKind.P2P]
    assert timeline.devices[timeline.ops.device[0]].id == 1


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("Memset (Device)", MemoryKind.DEVICE),
        ("Memset (Pinned)", MemoryKind.PINNED),
        ("Memset (Managed)", MemoryKind.MANAGED),
    ],
)
def test_a_memset_says_what_it_fills(kineto: SimpleNamespace, name: str, memory: MemoryKind) -> None:
    ops = kineto.read([kineto.copy(name, 1, 2, 5, cat="gpu_memset")]).ops
    assert (ops.kind.tolist(), ops.src.tolist(), ops.dst.tolist()) == ([OpKind.MEMSET], [MemoryKind.UNKNOWN], [memory])


def test_old_files_spell_it_otherwise(kineto: SimpleNamespace) -> None:
    """2021: other categories, "stream 7", thread ids as text, whole microseconds since 1970."""
    base = 1623142623460000
    launch = kineto.call("cudaLaunchKernel", base + 10, 4, 11, cat="Runtime", tid="25738")
    launch["args"] = {"cbid": 211, "correlation": 11, "external id": 2, "external ts": base}
    kernel = kineto.kernel("k", base + 20, 7, 11, cat="Kernel", tid="stream 7")
    memcpy = kineto.copy("Memcpy HtoD (Pageable -> Device)", base + 30, 5, 12, cat="Memcpy", tid="stream 20")
    del kernel["args"]["stream"], memcpy["args"]["stream"]
    memset = kineto.copy("Memset (Device)", base + 40, 5, 13, cat="Memset", tid="stream 7")
    operator = kineto.host("Operator", "aten::mm", base, 60, tid="25738")
    operator["args"] = {"External id": 2, "Call stack": "model.py(12): forward;train.py(3): <module>"}
    number = {"name": "thread_name", "ph": "M", "pid": 100, "tid": "25738", "args": {"name": "thread 25738 (python)"}}
    timeline = kineto.read([operator, launch, kernel, memcpy, memset, number])
    assert timeline.ops.kind.tolist() == [OpKind.KERNEL, OpKind.H2D, OpKind.MEMSET]
    assert [timeline.streams[row].id for row in timeline.ops.stream] == [7, 20, 7]
    assert timeline.clock_ns == base * 1000
    assert timeline.ops.start.tolist() == [20_000, 30_000, 40_000]
    assert timeline.threads == (Thread(pid=100, tid=25738, name="thread 25738 (python)"),)
    assert timeline.ranges.kind.tolist() == [RangeKind.CPU_OP]
    assert timeline.name_of(int(timeline.ranges.stack[0])) == "model.py(12): forward;train.py(3): <module>"
    assert "source-lines" not in {unknown.what for unknown in timeline.unknown}


def test_thread_ids_as_text_and_as_numbers_are_one_thread(kineto: SimpleNamespace) -> None:
    timeline = kineto.read([kineto.host("cpu_op", "a", 1, 2, tid="200"), kineto.host("cpu_op", "b", 4, 2, tid=200)])
    assert timeline.threads == (Thread(pid=100, tid=200),)
    assert timeline.ranges.thread.tolist() == [0, 0]


def test_ranges_of_every_kind(kineto: SimpleNamespace) -> None:
    events = [
        kineto.host("python_function", "train.py(12): step", 1, 90),
        kineto.host("user_annotation", "ProfilerStep#3", 2, 80),
        kineto.host("user_annotation", "Optimizer.step#SGD.step", 3, 20),
        kineto.host("cpu_op", "aten::mm", 4, 10),
        kineto.host("overhead", "Activity Buffer Request", 5, 3, pid=-1, tid=0),
        kineto.host("gpu_user_annotation", "ProfilerStep#3", 6, 70, pid=0, tid=7),
        kineto.host("Trace", "PyTorch Profiler (0)", 0, 100, pid="Spans", tid="PyTorch Profiler"),
    ]
    timeline = kineto.read(events)
    names = [timeline.name_of(row) for row in timeline.ranges.name.tolist()]
    assert list(zip(names, timeline.ranges.kind.tolist(), strict=True)) == [
        ("train.py(12): step", RangeKind.PYTHON),
        ("ProfilerStep#3", RangeKind.STEP),
        ("Optimizer.step#SGD.step", RangeKind.ANNOTATION),
        ("aten::mm", RangeKind.CPU_OP),
        ("Activity Buffer Request", RangeKind.OVERHEAD),
    ]
    assert len(timeline.ops) == 0
    assert timeline.unknown == ()


def test_operators_within_operators_come_outer_first(kineto: SimpleNamespace) -> None:
    events = [kineto.host("cpu_op", name, 5, length) for name, length in (("inner", 1), ("outer", 9), ("middle", 4))]
    timeline = kineto.read(events)
    assert [timeline.name_of(row) for row in timeline.ranges.name.tolist()] == ["outer", "middle", "inner"]


def test_devices_are_described(kineto: SimpleNamespace) -> None:
    timeline = kineto.read(
        [kineto.kernel("k", 1, 2, 5)], head={"deviceProperties": [DEVICE, {"id": 1}, {"id": "x"}, 3]}
    )
    device = timeline.devices[0]
    assert (device.name, device.vendor, device.sms, device.compute_capability) == ("NVIDIA H200", "nvidia", 132, (9, 0))
    assert (device.memory_bytes, device.threads_per_sm) == (150109880320, 2048)
    assert (device.registers_per_sm, device.shared_per_sm) == (65536, 233472)
    assert [device.id for device in timeline.devices] == [0, 1]


def test_a_device_that_is_not_described_is_there_all_the_same(kineto: SimpleNamespace) -> None:
    event = kineto.kernel("k", 1, 2, 5)
    event["args"]["device"] = 3
    timeline = kineto.read([event], head={"deviceProperties": [DEVICE]})
    assert [device.id for device in timeline.devices] == [0, 3]
    assert timeline.ops.device.tolist() == [1]


def test_the_default_stream_is_cuptis_seven(kineto: SimpleNamespace) -> None:
    name = {"name": "thread_name", "ph": "M", "pid": 0, "tid": 7, "args": {"name": "stream 7 "}}
    timeline = kineto.read(
        [kineto.call("cudaLaunchKernel", 0, 1, 5), kineto.kernel("k", 1, 2, 5), kineto.kernel("k", 4, 2, 6, 20), name]
    )
    assert timeline.streams == (
        Stream(device=0, id=7, kind=StreamKind.LEGACY, inferred=True, name="stream 7"),
        Stream(device=0, id=20),
    )


def test_streams_have_the_priority_of_their_kernels(kineto: SimpleNamespace) -> None:
    event = kineto.kernel("k", 1, 2, 5, stream=20)
    event["args"]["priority"] = -5
    assert [stream.priority for stream in kineto.read([event]).streams] == [-5]


def test_an_op_without_args_is_placed_by_where_it_is_drawn(kineto: SimpleNamespace) -> None:
    event = kineto.kernel("k", 1, 2, 5)
    del event["args"]
    timeline = kineto.read([event | {"pid": 1, "tid": 9}])
    assert [(stream.device, stream.id) for stream in timeline.streams] == [(0, 9)]
    assert [device.id for device in timeline.devices] == [1]
    ops = timeline.ops
    assert (ops.correlation.tolist(), ops.grid.tolist(), ops.registers.tolist()) == ([0], [[-1, -1, -1]], [-1])
    assert math.isnan(ops.occupancy[0])


def test_an_op_of_no_known_place_is_kept_apart(kineto: SimpleNamespace) -> None:
    event = kineto.kernel("k", 1, 2, 5)
    del event["args"]
    timeline = kineto.read([event | {"pid": "?", "tid": "?"}])
    assert [(stream.device, stream.id) for stream in timeline.streams] == [(0, -1)]
    assert [device.id for device in timeline.devices] == [-1]


@pytest.mark.parametrize(
    ("told", "graph"),
    [({"graph id": 4, "graph node id": 17}, 4), ({"graph node id": 17}, 17), ({"graph id": 0, "graph node id": 0}, -1)],
)
def test_kernels_know_their_graph(kineto: SimpleNamespace, told: dict[str, int], graph: int) -> None:
    event = kineto.kernel("k", 1, 2, 5)
    event["args"] |= told
    assert kineto.read([event]).ops.graph.tolist() == [graph]


class TestLinks:
    def test_the_runtime_call_stands_for_the_driver_call_in_it(self, kineto: SimpleNamespace) -> None:
        driver = kineto.call("cuLaunchKernel", 11, 2, 5, cat="cuda_driver")
        timeline = kineto.read([driver, kineto.call("cudaLaunchKernel", 10, 4, 5), kineto.kernel("k", 20, 1, 5)])
        assert timeline.name_of(int(timeline.calls.name[timeline.ops.call[0]])) == "cudaLaunchKernel"
        assert timeline.lost == ()

    def test_a_driver_call_alone_will_do(self, kineto: SimpleNamespace) -> None:
        timeline = kineto.read(
            [kineto.call("cuLaunchKernelEx", 11, 2, 5, cat="cuda_driver"), kineto.kernel("k", 20, 1, 5)]
        )
        assert timeline.ops.call.tolist() == [0]
        assert timeline.calls.kind.tolist() == [CallKind.LAUNCH]

    def test_of_nested_calls_the_outer_one(self, kineto: SimpleNamespace) -> None:
        timeline = kineto.read(
            [
                kineto.call("cudaInner", 11, 2, 5),
                kineto.call("cudaLaunchKernel", 10, 4, 5),
                kineto.kernel("k", 20, 1, 5),
            ]
        )
        assert timeline.name_of(int(timeline.calls.name[timeline.ops.call[0]])) == "cudaLaunchKernel"

    def test_zero_is_no_id(self, kineto: SimpleNamespace) -> None:
        events = [kineto.call("cudaLaunchKernel", 10, 4, 0)] + [kineto.kernel("k", 20 + n, 1, 0) for n in range(5)]
        timeline = kineto.read(events)
        assert timeline.ops.call.tolist() == [-1] * 5
        assert len(timeline.ops) == 5
        assert "host-calls" in {unknown.what for unknown in timeline.unknown}

    def test_one_id_on_several_streams_is_ambiguous(self, kineto: SimpleNamespace) -> None:
        copies = [kineto.copy("Memcpy HtoD (Pinned -> Device)", 20 + n, 1, 17, stream=20 + n) for n in range(4)]
        timeline = kineto.read([kineto.call("cudaMemcpyAsync", 10, 4, 17), *copies])
        assert timeline.ops.call.tolist() == [-1] * 4
        assert timeline.lost == (
            "Could not tell which call issued 4 events: several calls or streams share the correlation id.",
        )

    def test_one_id_on_one_stream_is_one_call_in_parts(self, kineto: SimpleNamespace) -> None:
        copies = [kineto.copy("Memcpy HtoD (Pageable -> Device)", 20 + n, 1, 17) for n in range(4)]
        assert kineto.read([kineto.call("cudaMemcpyAsync", 10, 4, 17), *copies]).ops.call.tolist() == [0] * 4

    def test_a_graph_launches_many_kernels_on_many_streams(self, kineto: SimpleNamespace) -> None:
        kernels = [kineto.kernel("k", 20 + n, 0.5, 17, stream=7 + n % 3) for n in range(30)]
        timeline = kineto.read([kineto.call("cudaGraphLaunch", 10, 4, 17), *kernels])
        assert timeline.ops.call.tolist() == [0] * 30
        assert timeline.lost == ()

    def test_two_calls_of_one_id_that_do_not_nest_are_ambiguous(self, kineto: SimpleNamespace) -> None:
        calls = [kineto.call("cudaLaunchKernel", start, 4, 5) for start in (10, 30)]
        timeline = kineto.read([*calls, kineto.kernel("k", 20, 1, 5)])
        assert timeline.ops.call.tolist() == [-1]
        assert len(timeline.lost) == 1

    def test_a_kernel_of_a_call_outside_the_trace(self, kineto: SimpleNamespace) -> None:
        timeline = kineto.read([kineto.call("cudaLaunchKernel", 10, 4, 5), kineto.kernel("k", 1, 1, 4)])
        assert timeline.ops.call.tolist() == [-1]
        text = {unknown.what: unknown.text for unknown in timeline.unknown}["host-calls"]
        assert text == "The trace does not say which call issued 1 of 1 operations."


def waiting(stream: int, record: int, event: int) -> dict[str, int]:
    """The args that say for what a row of cuda_sync waits."""
    return {"wait_on_stream": stream, "wait_on_cuda_event_record_corr_id": record, "wait_on_cuda_event_id": event}


class TestMarks:
    @staticmethod
    def rows(timeline: Any) -> list[tuple[Any, ...]]:
        def stream(row: int) -> int:
            return timeline.streams[row].id if row >= 0 else -1

        marks = timeline.marks
        return [
            (MarkKind(kind), stream(on), start, event, stream(waits_on), record, call)
            for kind, on, start, event, waits_on, record, call in zip(
                *(column.tolist() for column in (
                    marks.kind, marks.stream, marks.start, marks.event, marks.waits_on, marks.record, marks.call
                )),
                strict=True,
            )
        ]  # fmt: skip

    def test_rows_of_cuda_sync(self, kineto: SimpleNamespace) -> None:
        """The record comes later in the file than the wait for it."""
        events = [
            kineto.sync("Stream Wait Event", 30, 1, 13, stream=20, **waiting(7, 12, 9)),
            kineto.sync("Event Sync", 40, 5, 14, stream=-1, **waiting(20, -1, 3)),
            kineto.sync("Stream Sync", 50, 5, 15, stream=20),
            kineto.sync("Context Sync", 60, 5, 16, stream=4294967295),
            kineto.sync("Something New", 70, 5, 17, stream=7),
            kineto.call("cudaStreamWaitEvent", 29, 1, 13),
            kineto.call("cudaEventSynchronize", 39, 7, 14),
            kineto.call("cudaStreamSynchronize", 49, 7, 15),
            kineto.call("cudaDeviceSynchronize", 59, 7, 16),
            kineto.call("cudaEventRecord", 10, 1, 12),
            kineto.kernel("k", 0, 1, 2),
        ]  # fmt: skip
        timeline = kineto.read(events)
        assert self.rows(timeline) == [
            (MarkKind.RECORD, 7, 10_000, 9, -1, -1, 0),
            (MarkKind.WAIT, 20, 30_000, 9, 7, 12, 1),
            (MarkKind.SYNC_EVENT, -1, 40_000, 3, 20, -1, 2),
            (MarkKind.SYNC_STREAM, 20, 50_000, -1, -1, -1, 3),
            (MarkKind.SYNC_DEVICE, -1, 60_000, -1, -1, -1, 4),
        ]
        assert {unknown.what for unknown in timeline.unknown} == {
            "stream-kinds",
            "buffers",
            "source-lines",
            "host-calls",
        }

    def test_minus_one_is_unknown_and_no_stream(self, kineto: SimpleNamespace) -> None:
        wait = kineto.sync("Stream Wait Event", 30, 1, 13, stream=20, **waiting(-1, -1, 9))
        timeline = kineto.read([wait, kineto.call("cudaStreamWaitEvent", 29, 1, 13), kineto.kernel("k", 0, 1, 2)])
        assert self.rows(timeline) == [(MarkKind.WAIT, 20, 30_000, 9, -1, -1, 0)]
        assert [stream.id for stream in timeline.streams] == [7, 20]
        text = {unknown.what: unknown.text for unknown in timeline.unknown}["event-waits"]
        assert text.startswith("For 1 of 1 waits of streams for events")

    def test_where_only_the_calls_tell(self, kineto: SimpleNamespace) -> None:
        events = [
            kineto.call("cudaEventRecord", 10, 1, 12),
            kineto.call("cudaStreamWaitEvent", 29, 1, 13),
            kineto.call("cudaStreamSynchronize", 49, 7, 15),
            kineto.kernel("k", 0, 1, 2),
        ]
        timeline = kineto.read(events)
        assert self.rows(timeline) == [
            (MarkKind.RECORD, -1, 10_000, -1, -1, -1, 0),
            (MarkKind.WAIT, -1, 29_000, -1, -1, -1, 1),
        ]
        remedies = {unknown.what: unknown.remedy for unknown in timeline.unknown}
        assert "enable_cuda_sync_events=True" in remedies["event-waits"]
        assert "enable_cuda_sync_events=True" in remedies["sync-targets"]

    def test_recorded_events_that_the_device_timed(self, kineto: SimpleNamespace) -> None:
        record = {"ph": "X", "cat": "cuda_event", "name": "cudaEvent", "pid": 0, "tid": 7, "ts": 15, "dur": 0.001}
        record["args"] = {"event_id": 9, "stream": 20, "correlation": 12, "device": 0, "context": 1}
        timeline = kineto.read([record, kineto.call("cudaEventRecord", 10, 1, 12)])
        assert self.rows(timeline) == [(MarkKind.RECORD, 20, 5_000, 9, -1, -1, 0)]

    def test_recorded_events_that_the_device_did_not_time(self, kineto: SimpleNamespace) -> None:
        record = {"ph": "X", "cat": "cuda_event", "name": "cudaEvent", "pid": 0, "tid": 7, "ts": 0.0, "dur": 0.001}
        record["args"] = {"event_id": 9, "stream": 20, "correlation": 12, "device": 0, "context": 1}
        lone = record | {"args": record["args"] | {"correlation": 99}}
        timeline = kineto.read([record, lone, kineto.call("cudaEventRecord", 10, 1, 12)])
        assert self.rows(timeline) == [(MarkKind.RECORD, 20, 0, 9, -1, -1, 0)]
        assert timeline.marks.end.tolist() == [1000]


class TestRocm:
    def test_calls_tell_what_device_rows_leave_out(self, kineto: SimpleNamespace) -> None:
        launch = kineto.call("hipExtModuleLaunchKernel", 10, 4, 11)
        launch["args"] = {
            "kernel": "Cijk", "cid": 107, "correlation": 11, "stream": "0x0", "grid": [256, 1, 1], "block": [64, 2, 1],
            "shared memory": 512,
        }  # fmt: skip
        memcpy = kineto.call("hipMemcpyWithStream", 20, 9, 12)
        memcpy["args"] = {
            "stream": "0x0",
            "cid": 153,
            "correlation": 12,
            "src": "0x5",
            "dst": "0x7",
            "size": "2560",
            "kind": "1",
        }
        kernel = kineto.kernel("Cijk", 15, 3, 11, stream=0)
        kernel["args"] = {"External id": 8, "device": 2, "stream": 0, "correlation": 11, "kind": "Dispatch Kernel"}
        copy = kineto.copy("Memcpy HtoD (Host -> Device)", 22, 5, 12, stream=0)
        copy["args"] = {"External id": 8, "device": 2, "stream": 0, "correlation": 12, "kind": "HtoD"}
        timeline = kineto.read([launch, memcpy, kernel, copy])
        ops = timeline.ops
        assert ops.kind.tolist() == [OpKind.KERNEL, OpKind.H2D]
        assert (ops.grid[0].tolist(), ops.block[0].tolist(), ops.shared.tolist()) == (
            [256, 1, 1],
            [64, 2, 1],
            [512, -1],
        )
        assert ops.bytes.tolist() == [-1, 2560]
        assert timeline.calls.kind.tolist() == [CallKind.LAUNCH, CallKind.COPY_SYNC]
        assert timeline.streams == (Stream(device=0, id=0, kind=StreamKind.LEGACY, inferred=True),)
        assert timeline.devices[0].vendor == "amd"
        unknown = {unknown.what: unknown for unknown in timeline.unknown}
        assert unknown["memory-kinds"].text.startswith("For 1 of 1 copies")
        assert set(unknown) == {"stream-kinds", "buffers", "source-lines", "memory-kinds"}

    def test_an_id_that_all_copies_share_tells_no_size(self, kineto: SimpleNamespace) -> None:
        calls = [
            kineto.call("hipMemcpyAsync", n, 1, 12) | {"args": {"correlation": 12, "size": str(n)}} for n in (10, 20)
        ]
        copy = kineto.copy("Memcpy HtoD (Host -> Device)", 30, 5, 12, stream=0)
        del copy["args"]["bytes"]
        assert kineto.read([*calls, copy]).ops.bytes.tolist() == [-1]


class TestClock:
    def test_a_base_at_the_head_or_at_the_tail(self, kineto: SimpleNamespace) -> None:
        base = {"baseTimeNanoseconds": 1790857026000000000, "displayTimeUnit": "ns"}
        events = [kineto.kernel("k", kineto.literal("5168870776426.096"), kineto.literal("3.296"), 5)]
        for where in ("head", "tail"):
            for layout in ("kineto", "one line"):
                timeline = kineto.read(events, layout, **{where: base})
                assert timeline.clock_ns == 1790857026000000000 + 5168870776426096
                assert (timeline.ops.start.tolist(), timeline.ops.end.tolist()) == ([0], [3296])

    def test_absolute_times_keep_their_nanoseconds(self, kineto: SimpleNamespace) -> None:
        """Read as doubles these two kernels would overlap."""
        starts = ("1714176000123456.789", "1714176000123456.989")
        events = [
            kineto.kernel("k", kineto.literal(start), kineto.literal("0.200"), n) for n, start in enumerate(starts, 5)
        ]
        timeline = kineto.read(events)
        assert (timeline.ops.start.tolist(), timeline.ops.end.tolist()) == ([0, 200], [200, 400])
        assert timeline.clock_ns == 1714176000123456789
        assert timeline.info["overlaps"] == 0

    def test_times_as_text(self, kineto: SimpleNamespace) -> None:
        timeline = kineto.read(
            [
                kineto.kernel("k", "4203669604595.407", "3.5", "11"),
                kineto.call("cudaLaunchKernel", "4203669604590.407", "1", 11),
            ]
        )
        assert timeline.ops.start.tolist() == [5000]
        assert timeline.ops.end.tolist() == [8500]
        assert timeline.ops.call.tolist() == [0]

    def test_the_display_unit_never_changes_the_unit(self, kineto: SimpleNamespace) -> None:
        for unit in ("ms", "ns"):
            timeline = kineto.read(
                [kineto.kernel("k", 1, 2, 5), kineto.kernel("k", 7, 2, 6)], head={"displayTimeUnit": unit}
            )
            assert timeline.ops.start.tolist() == [0, 6000]

    def test_without_a_base_small_times_have_no_wall_clock(self, kineto: SimpleNamespace) -> None:
        assert kineto.read([kineto.kernel("k", 1, 2, 5)]).clock_ns is None


class TestRepeats:
    def test_exact_repeats_are_left_out_and_counted(self, kineto: SimpleNamespace) -> None:
        events = [
            kineto.host("cpu_op", "aten::mm", 1.5, 20),
            kineto.call("cudaLaunchKernel", 2.5, 4, 11),
            kineto.kernel("k", 9.5, 7, 11),
        ]
        timeline = kineto.read(events + events)
        assert (len(timeline.ops), len(timeline.calls), len(timeline.ranges)) == (1, 1, 1)
        assert timeline.ops.call.tolist() == [0]
        assert timeline.lost == ("Left out 3 events: exact repeats of another.",)

    def test_a_graphs_kernels_within_one_microsecond_are_no_repeats(self, kineto: SimpleNamespace) -> None:
        kernels = [kineto.kernel("k", 20, 1, 17) for _ in range(3)]
        timeline = kineto.read([kineto.call("cudaGraphLaunch", 10, 4, 17), *kernels])
        assert len(timeline.ops) == 3
        assert timeline.lost == ()

    def test_kernels_that_differ_in_the_least_are_no_repeats(self, kineto: SimpleNamespace) -> None:
        events = [
            kineto.kernel("k", 9.5, 7, 11),
            kineto.kernel("k", 9.5, 7, 12),
            kineto.kernel("k", 9.5, 7.001, 11),
            kineto.kernel("j", 9.5, 7, 11),
        ]
        assert len(kineto.read(events).ops) == 4

    def test_work_that_overlaps_on_its_stream_is_kept_and_counted(self, kineto: SimpleNamespace) -> None:
        events = [
            kineto.kernel("k", 0.5, 10, 1),
            kineto.kernel("k", 5.5, 1, 2),
            kineto.kernel("k", 6.5, 9, 3),
            kineto.kernel("k", 5.5, 1, 4, 20),
        ]
        timeline = kineto.read(events)
        assert len(timeline.ops) == 4
        assert timeline.info["overlaps"] == 2


def test_facts_of_the_run(kineto: SimpleNamespace) -> None:
    head = {
        "schemaVersion": 1, "with_stack": 1, "cuda_runtime_version": 13000, "flag": True, "ratio": 0.5,
        "INFO": ["a", "b"],
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
    }  # fmt: skip
    timeline = kineto.read([kineto.kernel("k", 1, 2, 5)], head=head)
    assert timeline.info == {
        "schemaVersion": 1, "with_stack": 1, "cuda_runtime_version": 13000, "backend": "nccl", "rank": 3,
        "world_size": 8, "traceName": "trace.json", "overlaps": 0,
    }  # fmt: skip


def test_a_trace_of_the_host_alone_is_a_timeline_without_ops(kineto: SimpleNamespace) -> None:
    timeline = kineto.read([kineto.host("cpu_op", "aten::mm", 1, 20)])
    assert len(timeline.ops) == 0
    assert timeline.window() == (0, 0)
    assert timeline.lost == ()


def test_no_events_at_all(kineto: SimpleNamespace) -> None:
    for layout in ("kineto", "one line"):
        timeline = kineto.read([], layout)
        assert (len(timeline.ops), len(timeline.ranges), timeline.lost) == (0, 0, ())
