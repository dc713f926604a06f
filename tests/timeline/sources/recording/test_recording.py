"""What a recording tells, read into a Timeline."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gapless.model.errors import GaplessError
from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.timeline.sources import load, recording
from gapless.timeline.sources.recording_format import Block, Space
from gapless.timeline.timeline import MarkKind, RangeKind, Timeline, TouchKind

US = 1_000


def whats(timeline: Timeline) -> list[str]:
    return [unknown.what for unknown in timeline.unknown]


def names(timeline: Timeline, table: str) -> list[str]:
    return [timeline.name_of(row) for row in getattr(timeline, table).name.tolist()]


def test_a_whole_recording_leaves_nothing_open(made: SimpleNamespace) -> None:
    timeline = made.read(made.pipeline(3))
    assert (timeline.format, timeline.lost, timeline.unknown) == ("gapless", (), ())
    assert timeline.ops.kind.tolist() == [OpKind.H2D, OpKind.KERNEL] * 3
    assert names(timeline, "ops")[:2] == ["Memcpy HtoD (Pinned -> Device)", "scale"]
    assert names(timeline, "calls")[:5] == [
        "cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cudaLaunchKernel", "cudaStreamSynchronize",
    ]  # fmt: skip
    assert timeline.ops.call.tolist() == [0, 3, 5, 8, 10, 13]
    assert timeline.ops.start[:2].tolist() == [5_050, 32_050]  # from the first thing on, which is the NVTX range
    assert timeline.calls.result.tolist() == [0] * 15
    assert timeline.threads[0].name == "main"
    assert (timeline.threads[0].pid, timeline.threads[0].tid) == (1000, 77)


def test_a_kernel_has_its_shape(made: SimpleNamespace) -> None:
    ops = made.read(made.begun().records([made.kernel(0, 5, 1)]).end()).ops
    assert (ops.grid.tolist(), ops.block.tolist()) == ([[132, 2, 1]], [[256, 1, 1]])
    assert (ops.registers.tolist(), ops.shared.tolist(), ops.bytes.tolist()) == ([32], [1072], [-1])


@pytest.mark.parametrize(
    ("number", "kind"),
    [(0, MemoryKind.UNKNOWN), (1, MemoryKind.PAGEABLE), (2, MemoryKind.PINNED), (3, MemoryKind.DEVICE),
     (4, MemoryKind.ARRAY), (5, MemoryKind.MANAGED), (6, MemoryKind.DEVICE), (7, MemoryKind.MANAGED)],
)  # fmt: skip
def test_memory_kinds_have_cuptis_numbers(made: SimpleNamespace, number: int, kind: MemoryKind) -> None:
    timeline = made.read(made.begun().records([made.copy(0, 5, 1, (1, number, 3))]).end())
    assert timeline.ops.src.tolist() == [kind]
    assert timeline.ops.kind.tolist() == [OpKind.P2P if kind is MemoryKind.DEVICE else OpKind.H2D]  # see "legs", below


@pytest.mark.parametrize(
    ("copy", "kind"),
    [(1, OpKind.H2D), (2, OpKind.D2H), (3, OpKind.H2D), (4, OpKind.D2H), (5, OpKind.D2D), (8, OpKind.D2D),
     (9, OpKind.H2H), (10, OpKind.P2P)],
)  # fmt: skip
def test_directions_of_copies(made: SimpleNamespace, copy: int, kind: OpKind) -> None:
    assert made.read(made.begun().records([made.copy(0, 5, 1, (copy, 0, 0))]).end()).ops.kind.tolist() == [kind]


def test_a_copy_between_devices_is_a_peer_copy(made: SimpleNamespace) -> None:
    away = {"deviceId": 0, "contextId": 1, "streamId": 7, "srcDeviceId": 0, "dstDeviceId": 1, "bytes": 64}
    record = (22, away | {"copyKind": 8, "srcKind": 3, "dstKind": 3, "start": made.B, "end": made.B + 9})
    assert made.read(made.begun().records([record]).end()).ops.kind.tolist() == [OpKind.P2P]


def test_the_legs_of_a_copy_that_two_devices_share_are_one_call(made: SimpleNamespace) -> None:
    """Without peer access, CUPTI tells an upload and a download, each from device to device (driver 580)."""
    on_second = {"deviceId": 1, "contextId": 2, "streamId": 9}
    records = [
        made.call("cudaMemcpyAsync", 0, 5, 1),
        made.copy(10, 20, 1, (2, 3, 3)),
        made.copy(22, 32, 1, (1, 3, 3), **on_second),
        made.call("cudaMemcpyAsync", 40, 45, 2),
        made.copy(50, 60, 2, (1, 2, 3)),
        made.copy(50, 60, 2, (1, 2, 3), **on_second),
    ]
    timeline = made.read(made.begun().records(records).end())
    assert timeline.ops.kind.tolist() == [OpKind.P2P, OpKind.P2P, OpKind.H2D, OpKind.H2D]
    assert timeline.ops.call.tolist() == [0, 0, -1, -1]


def test_memsets_graphs_and_their_nodes(made: SimpleNamespace) -> None:
    place = {"deviceId": 0, "contextId": 1, "streamId": 7}
    records = [
        made.call("cudaGraphLaunch", 0, 3, 1),
        (2, place | {"bytes": 512, "start": made.B + 5, "end": made.B + 6, "memoryKind": 3, "correlationId": 9}),
        (51, place | {"start": made.B + 10, "end": made.B + 20, "graphId": 4, "correlationId": 1}),
        made.kernel(30, 40, 1, graphId=5, graphNodeId=50, streamId=7),
        made.kernel(40, 50, 1, graphId=5, graphNodeId=51, streamId=13),
    ]
    timeline = made.read(made.begun().records(records).end())
    assert timeline.ops.kind.tolist() == [OpKind.MEMSET, OpKind.GRAPH, OpKind.KERNEL, OpKind.KERNEL]
    assert names(timeline, "ops")[:2] == ["Memset (Device)", "CUDA graph 4"]
    assert timeline.ops.graph.tolist() == [-1, 4, 5, 5]
    assert timeline.ops.call.tolist() == [-1, 0, 0, 0]  # one launch, work on several streams
    assert "graph-nodes" in whats(timeline)


def test_a_wait_is_tied_to_its_record_by_cuptis_own_id(made: SimpleNamespace) -> None:
    records = [
        *(made.call(*told) for told in (("cudaEventRecord", 0, 2, 1), ("cudaEventRecord", 5, 7, 2))),
        *(made.call(*told) for told in (("cudaStreamWaitEvent", 9, 11, 3), ("cudaEventSynchronize", 12, 40, 4))),
        made.kernel(20, 30, 0, streamId=13), made.kernel(31, 33, 0, streamId=14),
        made.recorded(1, 5, 13, 70, 21), made.recorded(2, 5, 14, 71),
        made.sync(2, 3, stream=7, event=5, id_=70), made.sync(1, 4, event=5, id_=71, times=(12, 40)),
    ]  # fmt: skip
    timeline = made.read(made.begun().records(records).end())
    marks = timeline.marks
    waits = np.flatnonzero(np.isin(marks.kind, (MarkKind.WAIT, MarkKind.SYNC_EVENT)))
    of = {MarkKind(int(marks.kind[row])): row for row in waits.tolist()}
    stream = {timeline.streams[row].id for row in marks.waits_on[waits].tolist()}
    assert stream == {13, 14}
    assert marks.record[of[MarkKind.WAIT]] == 1
    assert timeline.streams[marks.waits_on[of[MarkKind.WAIT]]].id == 13
    assert timeline.streams[marks.stream[of[MarkKind.WAIT]]].id == 7
    assert marks.record[of[MarkKind.SYNC_EVENT]] == 2
    records_ = np.flatnonzero(marks.kind == MarkKind.RECORD)
    assert sorted(marks.start[records_].tolist()) == [5, 21]  # the device's time; without one, the call's
    assert "event-waits" not in whats(timeline)


def test_a_wait_that_cupti_did_not_time_has_the_time_of_its_call(made: SimpleNamespace) -> None:
    records = [made.kernel(0, 3, 0), made.call("cudaStreamWaitEvent", 9, 11, 3), made.sync(2, 3, stream=7, event=5)]
    marks = made.read(made.begun().records(records).end()).marks
    assert (marks.kind.tolist(), marks.start.tolist(), marks.end.tolist()) == ([MarkKind.WAIT], [9], [11])


def test_streams_have_kinds_and_priorities(made: SimpleNamespace) -> None:
    records = [made.stream(7, 3), made.stream(13, 2, -5), made.stream(14, 1, 0), made.stream(15, 0)]
    records += [made.kernel(10 * n, 10 * n + 5, n + 1, streamId=n) for n in (7, 13, 14, 15)]
    timeline = made.read(made.begun().records(records).end())
    assert [(s.id, s.kind, s.priority, s.inferred) for s in timeline.streams] == [
        (7, StreamKind.LEGACY, 0, False), (13, StreamKind.NON_BLOCKING, -5, False),
        (14, StreamKind.BLOCKING, 0, False), (15, StreamKind.UNKNOWN, 0, False),
    ]  # fmt: skip


def test_streams_older_than_the_recording_are_not_known(made: SimpleNamespace) -> None:
    recorded = made.bare().start(how="attached").records([made.kernel(0, 5, 1, streamId=9)]).end()
    timeline = made.read(recorded)
    assert [stream.kind for stream in timeline.streams] == [StreamKind.UNKNOWN]
    assert "stream-kinds" in whats(timeline)


def test_the_device_is_described(made: SimpleNamespace) -> None:
    (device,) = made.read(made.begun().records([made.kernel(0, 5, 1)]).end()).devices
    assert (device.name, device.sms, device.threads_per_sm, device.compute_capability) == (
        "NVIDIA H200",
        132,
        2048,
        (9, 0),
    )
    assert (device.memory_bytes, device.shared_per_sm, device.vendor) == (141 << 30, 233472, "nvidia")


def test_nvtx_ranges_are_paired_by_id_and_named_with_their_domain(made: SimpleNamespace) -> None:
    records = [
        made.kernel(0, 500, 1), made.marker(2, 10, 1, 0x3000), made.marker(2, 20, 2, 0x3000, 0x4000),
        made.marker(4, 30, 2), made.marker(4, 40, 1), made.marker(2, 50, 3, 0x3000), made.marker(1, 60, 4, 0x3000),
    ]  # fmt: skip
    timeline = made.read(made.begun().records(records).end())
    ranges = timeline.ranges
    assert [*zip(names(timeline, "ranges"), ranges.start.tolist(), ranges.end.tolist(), strict=True)] == [
        ("step", 10, 40), ("mine:step", 20, 30),
    ]  # fmt: skip
    assert set(ranges.kind.tolist()) == {RangeKind.NVTX}
    assert timeline.lost == ("Left out 1 event: NVTX ranges that were still open when the recording ended.",)


def test_operators_of_pytorch_lose_their_numbers(made: SimpleNamespace) -> None:
    recorded = made.begun().strings(Space.POINTER, {0x5000: "aten::mm, seq = 12, op_id = 34, sizes = [[2, 2]]"})
    timeline = made.read(
        recorded.records([made.marker(2, 1, 1, 0x5000), made.marker(4, 9, 1), made.kernel(0, 9, 1)]).end()
    )
    assert names(timeline, "ranges") == ["aten::mm"]
    assert timeline.ranges.kind.tolist() == [RangeKind.CPU_OP]


def test_what_cupti_itself_takes_is_kept_and_what_cuda_takes_is_not(made: SimpleNamespace) -> None:
    overheads = [(1 << 16, 5), (5 << 16, 20), (7 << 16, 40)]  # a flush, lazy loading, asking for a buffer
    records = [
        (17, {"overheadKind": kind, "start": made.B + at, "end": made.B + at + 3, "objectId.pt.threadId": 77})
        for kind, at in overheads
    ]
    timeline = made.read(made.begun().records([*records, made.kernel(0, 9, 1)]).end())
    assert names(timeline, "ranges") == ["CUPTI: flushing buffers", "CUPTI: asking for a buffer"]
    assert set(timeline.ranges.kind.tolist()) == {RangeKind.OVERHEAD}


def test_stacks_of_calls(made: SimpleNamespace) -> None:
    timeline = made.read(made.pipeline(1))
    told = {timeline.name_of(row) for row in timeline.calls.stack.tolist()}
    assert told == {"", "train.py(12): step;libsolver.so+0x1f2"}


def test_symbols_found_after_the_end_replace_offsets(made: SimpleNamespace) -> None:
    recorded = made.pipeline(1).strings(Space.SOURCE, {8: "solver.cu", 9: "advance;step"})
    recorded.rows(Block.STACKS, (1, 1, 8, 9, 91, 1, 0x1F2))
    timeline = made.read(recorded)
    assert "train.py(12): step;solver.cu(91): advance,step" in timeline.strings


def test_memory_that_is_touched(made: SimpleNamespace) -> None:
    recorded = made.begun().records([
        made.call("cudaMalloc", 0, 5, 1), made.memory(1, 3, 1, 0x900000), made.call("cudaMemcpyAsync", 6, 8, 2),
        made.copy(10, 20, 2), made.call("cudaLaunchKernel", 9, 11, 3), made.kernel(20, 30, 3),
        made.call("cudaFree", 40, 50, 4), made.memory(2, 3, 4, 0x900000),
    ])  # fmt: skip
    recorded.rows(
        Block.ACCESSES, (0x50000, 64, 2, 1, 0, 0, 256), (0x900000, 4096, 2, 2, 0, 0, 0), (0x900010, 0, 3, 3, 2, 0, 0),
        (0x900000, 8, 77, 1, 0, 0, 0),
    )  # fmt: skip
    touches = made.read(recorded.end()).touches
    assert touches.kind.tolist() == [
        TouchKind.ALLOCATE, TouchKind.READ, TouchKind.WRITE, TouchKind.ARGUMENT, TouchKind.FREE,
    ]  # fmt: skip
    assert touches.call.tolist() == [0, 1, 1, 2, 3]
    assert touches.address.tolist() == [0x900000, 0x50000, 0x900000, 0x900010, 0x900000]
    assert touches.bytes.tolist() == [4096, 64, 4096, -1, 4096]
    assert touches.memory.tolist() == [MemoryKind.DEVICE, MemoryKind.PINNED, MemoryKind.DEVICE, 0, MemoryKind.DEVICE]
    assert touches.gaps.tolist() == [0, 1, 0, 0, 0]
    assert touches.argument.tolist() == [-1, -1, -1, 2, -1]


def test_without_addresses_it_is_said_that_buffers_are_unknown(made: SimpleNamespace) -> None:
    timeline = made.read(made.begun().records([made.call("cudaLaunchKernel", 0, 3, 1), made.kernel(5, 9, 1)]).end())
    (gap,) = [unknown for unknown in timeline.unknown if unknown.what == "buffers"]
    assert gap.remedy == "Record with gapless record --addresses."


def test_names_of_cpp_where_the_recording_has_them_else_without_arguments(made: SimpleNamespace) -> None:
    recorded = made.begun().records([made.kernel(0, 5, 1), made.kernel(6, 9, 2, name=0x1100)])
    assert names(made.read(recorded.end()), "ops") == ["scale", "scale #2"]  # two kernels are not taken for one
    recorded.strings(Space.DEMANGLED, {1: b"_Z5scalePfPKf\0scale(float*, float const*)"})
    assert names(made.read(recorded), "ops") == ["scale(float*, float const*)", "scale"]


def test_several_processes_on_one_clock(made: SimpleNamespace) -> None:
    """Each process has its own numbers and its own CUPTI clock; what they share is the machine's."""
    first = made.begun(1000).records([made.call("cudaLaunchKernel", 0, 5, 1), made.kernel(10, 20, 1)]).end()
    second = made.begun(2000).rows(Block.CLOCK, (made.B, made.B, 10**9 + 500), (made.B, made.B, 10**9 + 500))
    second.records([made.call("cudaLaunchKernel", 0, 5, 1), made.kernel(10, 20, 1)]).end()
    first.data += second.data[32:]
    timeline = made.read(first)
    assert timeline.ops.start.tolist() == [10, 510]
    assert timeline.ops.call.tolist() == [0, 1]
    assert [thread.pid for thread in timeline.threads] == [1000, 2000]
    assert [stream.name for stream in timeline.streams] == ["process 1000", "process 2000"]
    assert len(timeline.devices) == 1


def test_a_process_number_used_again_is_another_process(made: SimpleNamespace) -> None:
    recorded = made.begun(1000).records([made.call("cudaLaunchKernel", 0, 5, 1), made.kernel(10, 20, 1)]).end()
    recorded.start()
    recorded.strings(Space.RUNTIME, {1: "cudaMemcpy_v3020"})
    recorded.records([made.call("cudaLaunchKernel", 30, 35, 1), made.kernel(40, 50, 1)]).end()
    timeline = made.read(recorded)
    assert names(timeline, "calls") == ["cudaLaunchKernel", "cudaMemcpy"]
    assert names(timeline, "ops") == ["scale", "kernel 4096"]  # the text behind the pointer was the old process's
    assert timeline.ops.call.tolist() == [0, 1]


def test_devices_are_told_apart_by_uuid(made: SimpleNamespace, written: SimpleNamespace) -> None:
    """Two processes that each see one GPU call it 0."""
    layout = written.layout(8)
    layout |= {
        "names": [*layout["names"], "uuid.0", "uuid.1"], "formats": [*layout["formats"], "<u8", "<u8"],
        "offsets": [*layout["offsets"], 56, 64], "itemsize": 72,
    }  # fmt: skip
    dtype = np.dtype({name: layout[name] for name in ("names", "formats", "offsets", "itemsize")})
    data = bytearray()
    for process, uuid in ((1000, 5), (2000, 6), (3000, 5)):
        recorded = made.bare(process).start().json(Block.LAYOUT, kinds={"8": layout})
        row = np.zeros(1, dtype)
        row["kind"], row["uuid.0"] = 8, uuid
        head = np.array([(72, 1, 0)], written.RECORDS_HEAD).tobytes()
        recorded.block(Block.RECORDS, head + row.tobytes() + b"\x08").records([made.kernel(0, 5, 1)]).end()
        data += recorded.data if not data else recorded.data[32:]
    timeline = made.read(SimpleNamespace(save=lambda path: (path.write_bytes(data), path)[1]))
    assert sorted(timeline.ops.device.tolist()) == [0, 0, 1]
    assert [device.id for device in timeline.devices] == [0, 1]


def test_calls_that_failed_tell_so(made: SimpleNamespace) -> None:
    records = [made.call("cudaEventQuery", 0, 5, 1, returnValue=600), made.kernel(0, 5, 2)]
    timeline = made.read(made.begun().records(records).end())
    assert timeline.calls.result.tolist() == [600]
    assert timeline.calls.kind.tolist() == [CallKind.QUERY]


def test_facts_of_the_run(made: SimpleNamespace) -> None:
    facts = {"command": ["python", "train.py"], "environment": {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}, "driver": 13000}
    info = made.read(made.begun(**facts).records([made.kernel(0, 5, 1)]).end()).info
    assert info["command"] == "python train.py"
    assert info["environment.CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    assert (info["driver"], info["cupti"], info["how"]) == (13000, 130001, "injected")


def test_what_began_after_the_part_that_was_asked_for_is_left_out(made: SimpleNamespace) -> None:
    records = [
        made.call("cudaLaunchKernel", 0, 5, 1), made.kernel(40, 50, 1), made.call("cudaLaunchKernel", 20, 25, 2),
        made.kernel(50, 60, 2), made.call("cudaStreamSynchronize", 26, 60, 3),
        made.sync(3, 3, stream=7, times=(26, 60)),
    ]  # fmt: skip
    timeline = made.read(made.begun().records(records).end("for", until=made.B + 20))
    assert timeline.ops.start.tolist() == [40]  # launched before, although it ran after
    assert (len(timeline.calls), len(timeline.marks)) == (1, 0)
    assert len(made.read(made.begun().records(records).end("for", until="soon")).ops) == 2


def test_the_wall_clock(made: SimpleNamespace) -> None:
    timeline = made.read(made.begun().records([made.kernel(7, 9, 1)]).end())
    assert timeline.clock_ns == 10**18 + 7


def test_dropped_records_unfinished_processes_and_notes_are_said(made: SimpleNamespace) -> None:
    recorded = made.begun().records([made.kernel(0, 5, 1)]).rows(Block.DROPPED, (12, 1, 7), (3, made.NOWHERE, 0))
    recorded.json(Block.NOTE, what="kind-refused", text="CUPTI would not record markers.")
    timeline = made.read(recorded)
    said = {unknown.what: unknown.text for unknown in timeline.unknown}
    assert said["records-dropped"].startswith(
        "Records are missing: CUPTI dropped 12 and the recorder had no room for 3."
    )
    assert said["unfinished"].startswith("Process 1000 did not close the recording")
    assert said["kind-refused"] == "CUPTI would not record markers."


@pytest.mark.parametrize(("asked", "reason", "told"), [(9, "exit", "6"), (9, "max-size", ""), (7, "stop", "")])
def test_calls_that_left_no_record_are_said(made: SimpleNamespace, asked: int, reason: str, told: str) -> None:
    """Few of them: they had not returned at the end. After a limit the rest is missing anyway."""
    recorded = made.begun().records([made.call("cudaLaunchKernel", 10 * n, 10 * n + 5, n) for n in range(1, 4)])
    recorded.rows(Block.CALLSITES, *((n, 1) for n in range(1, asked + 1))).end(reason)
    said = {unknown.what: unknown.text for unknown in made.read(recorded).unknown}
    assert said.get("calls-missing", "").partition(" ")[0] == told


def test_a_recording_of_a_program_that_used_no_cuda_says_so(made: SimpleNamespace) -> None:
    with pytest.raises(GaplessError, match=r"run\.gapless is a recording without any CUDA activity"):
        made.read(made.bare())
    noted = made.bare().json(Block.NOTE, process=0, what="cupti-busy", text="Another profiler holds CUPTI.")
    with pytest.raises(GaplessError, match="Another profiler holds CUPTI"):
        made.read(noted)


def test_a_newer_version_is_refused(made: SimpleNamespace) -> None:
    with pytest.raises(GaplessError, match="recording of version 2; this gapless reads up to version 1"):
        made.read(made.bare(version=2).start().records([made.kernel(0, 5, 1)]))


def test_fields_that_a_cupti_lacks_are_unknown_and_those_it_adds_are_ignored(
    made: SimpleNamespace, written: SimpleNamespace
) -> None:
    dtype = np.dtype([("kind", "<u4"), ("more", "<u4"), ("start", "<u8"), ("end", "<u8"), ("deviceId", "<u4"),
                      ("contextId", "<u4"), ("streamId", "<u4"), ("pad", "<u4")])  # fmt: skip
    fields = dtype.fields
    assert fields
    layout = {
        "name": "CONCURRENT_KERNEL", "itemsize": dtype.itemsize, "names": list(dtype.names or ()),
        "formats": [fields[name][0].str for name in dtype.names or ()],
        "offsets": [fields[name][1] for name in dtype.names or ()],
    }  # fmt: skip
    row = np.array([(10, 1, made.B, made.B + 9, 0, 1, 7, 0)], dtype)
    recorded = made.begun().json(Block.LAYOUT, kinds={"10": layout})
    head = np.array([(dtype.itemsize, 1, 0)], written.RECORDS_HEAD).tobytes()
    timeline = made.read(recorded.block(Block.RECORDS, head + row.tobytes() + b"\x0a").end())
    assert timeline.ops.kind.tolist() == [OpKind.KERNEL]
    assert (timeline.ops.grid.tolist(), timeline.ops.registers.tolist()) == ([[-1, -1, -1]], [-1])


def test_blocks_and_members_that_are_not_known_are_skipped(made: SimpleNamespace) -> None:
    plain = made.contents(made.read(made.pipeline(2)))
    newer = made.pipeline(2)
    newer.block(99, b"something new").json(Block.NOTE, process=0, unheard="of")
    assert made.contents(made.read(newer)) == plain


def test_gzip_and_progress(made: SimpleNamespace, tmp_path: Path) -> None:
    path = made.pipeline(3).save(tmp_path / "run.gapless")
    seen: list[tuple[int, int]] = []
    plain = made.contents(recording.read(path, lambda done, total: seen.append((done, total))))
    assert seen == sorted(seen)
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert made.contents(load(packed)) == plain
    assert load(path).format == "gapless"


def test_the_frozen_file_of_version_1_stays_readable(made: SimpleNamespace) -> None:
    """Written once by the writer for tests, as `pipeline(3)`; never written again."""
    timeline = load(Path(__file__).parent / "frozen" / "version1.gapless")
    assert (len(timeline.ops), len(timeline.calls), len(timeline.marks), len(timeline.touches)) == (6, 15, 9, 9)
    assert (timeline.lost, timeline.unknown) == ((), ())
    assert made.contents(timeline) == made.contents(made.read(made.pipeline(3)))


def test_a_synchronise_says_which_device_it_waits_for(made: SimpleNamespace) -> None:
    second = (8, {**made.device[1], "id": 1}), (9, {"contextId": 2, "deviceId": 1, "nullStreamId": 27})
    records = [*second]
    for id_, context in ((1, 1), (2, 2), (3, 9)):
        kind, fields = made.sync(4, id_, times=(10 * id_, 10 * id_ + 5))
        records += [
            made.call("cudaDeviceSynchronize", 10 * id_, 10 * id_ + 5, id_),
            (kind, fields | {"contextId": context}),
        ]
    marks = made.read(made.begun().records(records).end()).marks
    assert marks.device.tolist() == [0, 1, -1]


def test_a_process_without_a_clock_is_put_on_that_of_another(made: SimpleNamespace) -> None:
    """Where its rows are damaged its times would else lie years from those of the others."""
    first = made.begun().records([made.kernel(0, 500, 1)])
    second = made.begun(2000).records([made.kernel(2_000, 2_500, 1)])
    first.data += second.data[32:].replace(bytes.fromhex(f"{made.B:016x}")[::-1] * 2, bytes(16))
    timeline = made.read(first)
    assert (timeline.ops.start.tolist(), timeline.ops.end.tolist()) == ([0, 2_000], [500, 2_500])
    assert timeline.lost == ("Put a process whose clock was not recorded on the clock of another.",)
