"""Each cause on programs made for it: one that has it, and one that looks alike but has not."""

from __future__ import annotations

import re

import pytest

from gapless.model.kinds import StreamKind
from gapless.timeline.timeline import RangeKind

US, MS, KIB, MIB = 1_000, 1_000_000, 1 << 10, 1 << 20
N = StreamKind.NON_BLOCKING


def non_blocking(gpu, count: int = 4) -> list[int]:
    return [gpu.stream(N) for _ in range(count)]


# single-stream, too-few-buffers


@pytest.mark.parametrize("stream", ["created", "default"])
def test_one_stream_takes_turns(made, stream):
    gpu = made.Gpu()
    made.loop(gpu, streams=[0] if stream == "default" else 1)
    report = gpu.explain()
    first = report.findings[0]
    assert first.cause == "single-stream"
    assert 0.55 < made.cost_of(report, "single-stream") < 0.67  # two of three equal phases
    assert first.count == 31
    assert "the default stream" in first.title if stream == "default" else "stream 13" in first.title
    assert [f.cause for f in report.findings] == ["single-stream"]


@pytest.mark.parametrize(("up", "down"), [(True, False), (False, True)])
def test_one_stream_takes_turns_with_copies_one_way_only(made, up, down):
    gpu = made.Gpu()
    made.loop(gpu, streams=1, kernel=60 * US, up=up, down=down)
    assert gpu.explain().findings[0].cause == "single-stream"


def test_two_streams_are_too_few_for_three_phases(made):
    gpu = made.Gpu()
    made.loop(gpu, streams=2)
    report = gpu.explain()
    assert report.findings[0].cause == "too-few-buffers"
    assert 0.2 < made.cost_of(report, "too-few-buffers") < 0.35  # 1.5 N + 1 instead of N + 2
    assert "2 streams are too few" in report.findings[0].title


@pytest.mark.parametrize("streams", [3, 4, 8])
def test_enough_streams_are_no_fault(made, streams):
    gpu = made.Gpu()
    made.loop(gpu, streams=streams, chunks=64)
    report = gpu.explain()
    assert report.findings[0].cause == "copy-bound"
    assert made.faults(report) < 0.02


def test_two_streams_do_where_kernels_take_longest(made):
    gpu = made.Gpu()
    made.loop(gpu, streams=2, kernel=300 * US)
    report = gpu.explain()
    assert report.findings[0].cause == "kernel-bound"
    assert made.faults(report) < 0.02


def test_one_large_chunk_is_told_to_be_cut(made):
    gpu = made.Gpu()
    made.loop(gpu, streams=1, chunks=1, size=256 * MIB, kernel=5 * MS)
    finding = gpu.explain().findings[0]
    assert finding.cause == "single-stream"
    assert finding.repair is not None
    assert finding.repair.name == "chunks=8"


def test_what_is_set_up_before_one_large_chunk_costs_no_more_than_there_is_before_it(made):
    """The host was late with the first operation too, but that begins the window: nothing is won before it."""
    gpu = made.Gpu()
    host = gpu.host()
    host.memset(0)
    host.work(100 * US)
    host.h2d(0, 64 * MIB)
    host.kernel(0, 60 * US)
    host.d2h(0, 66 * MIB)
    host.sync()
    report = gpu.explain()
    assert report.findings[0].cause == "single-stream"
    late = [finding for finding in report.findings if finding.cause in ("host-bound", "launch-bound")]
    assert sum(finding.cost_ms for finding in late) < 0.2


def test_one_small_chunk_is_left_alone(made):
    gpu = made.Gpu()
    made.loop(gpu, streams=1, chunks=1, size=MIB, kernel=20 * US)
    assert not any(f.cause == "single-stream" for f in gpu.explain().findings)


def slots(gpu, count: int, *, told: bool) -> None:
    """Upload, compute and download streams share some sets of buffers, each guarded by events."""
    host = gpu.host()
    up, compute, down = non_blocking(gpu, 3)
    for i in range(40):
        slot = i % count
        if i >= count:
            host.wait(f"free{slot}", up, told=told)
        host.h2d(up, 4 * MIB)
        host.record(f"up{slot}", up)
        host.wait(f"up{slot}", compute, told=told)
        if i >= count:
            host.wait(f"out{slot}", compute, told=told)
        host.kernel(compute, 80 * US)
        host.record(f"free{slot}", compute)
        host.wait(f"free{slot}", down, told=told)
        host.d2h(down, 4 * MIB)
        host.record(f"out{slot}", down)
    host.sync()


@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
def test_one_set_of_buffers_guarded_by_events(made, told):
    gpu = made.Gpu()
    slots(gpu, 1, told=told)
    report = gpu.explain()
    assert report.findings[0].cause == "too-few-buffers"
    assert "buffer" in report.findings[0].title
    assert 0.4 < made.cost_of(report, "too-few-buffers") < 0.5


@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
def test_two_sets_of_buffers_guarded_by_events_are_no_fault(made, told):
    gpu = made.Gpu()
    slots(gpu, 2, told=told)
    report = gpu.explain()
    assert report.findings[0].cause == "copy-bound"
    assert made.faults(report) < 0.02


# default-stream-barrier


def trap(kind: str):
    return {
        "copy": lambda host, stream, i: host.h2d(0, 4, pinned=False, sync=True),
        "kernel": lambda host, stream, i: host.kernel(0, 2 * US, "tiny"),
        "memset": lambda host, stream, i: host.memset(0),
    }[kind]


@pytest.mark.parametrize("tells", [True, False], ids=["kinds told", "kinds inferred"])
@pytest.mark.parametrize("kind", ["copy", "kernel", "memset"])
def test_a_forgotten_operation_on_the_default_stream(made, kind, tells):
    gpu = made.Gpu(tells_kinds=tells)
    made.loop(gpu, each=trap(kind))
    report = gpu.explain()
    first = report.findings[0]
    assert first.cause == "default-stream-barrier"
    assert made.cost_of(report, "default-stream-barrier") > 0.6
    assert first.count in (31, 32)  # the last one holds nothing up
    assert "4 other streams" in first.title
    assert ("by the fencing seen" in first.evidence) is not tells
    innocent = {"single-stream", "too-few-buffers", "host-synchronize", "synchronous-copy", "pageable-copy"}
    assert all(made.cost_of(report, cause) < 0.02 for cause in innocent)


@pytest.mark.parametrize("tells", [True, False], ids=["kinds told", "kinds inferred"])
@pytest.mark.parametrize("kind", ["copy", "kernel", "memset"])
def test_non_blocking_streams_do_not_mind_the_default_stream(made, kind, tells):
    gpu = made.Gpu(tells_kinds=tells)
    made.loop(gpu, streams=non_blocking(gpu), each=trap(kind))
    report = gpu.explain()
    assert report.findings[0].cause == "copy-bound"
    assert made.cost_of(report, "default-stream-barrier") == 0
    assert made.faults(report) < 0.04


def test_default_streams_of_threads_do_not_fence_each_other(made):
    gpu = made.Gpu()
    hosts = [gpu.host() for _ in range(4)]
    streams = [gpu.stream(StreamKind.PER_THREAD) for _ in hosts]
    for _ in range(20):
        for host, stream in zip(hosts, streams, strict=True):
            host.h2d(stream, 4 * MIB)
            host.kernel(stream, 80 * US)
            host.d2h(stream, 4 * MIB)
    assert gpu.explain().findings[0].cause == "copy-bound"


# pageable-copy


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize(("size", "kernel"), [(4 * MIB, 80 * US), (MIB, 20 * US), (64 * KIB, 3 * US)])
def test_pageable_memory(made, streams, size, kernel):
    gpu = made.Gpu()
    made.loop(gpu, streams=streams, size=size, kernel=kernel, pinned=False, chunks=64)
    report = gpu.explain()
    first = report.findings[0]
    assert first.cause == "pageable-copy"
    assert made.cost_of(report, "pageable-copy") > 0.7
    assert first.count == 128
    assert "assumed for this GPU's link" in first.evidence or size == 64 * KIB  # so little is not slow on the engine
    assert made.cost_of(report, "small-copies") == 0


def test_the_rate_of_pinned_copies_is_taken_from_the_timeline_itself(made):
    gpu = made.Gpu()
    host = gpu.host()
    stream = gpu.stream()
    for i in range(40):
        host.h2d(stream, 8 * MIB, pinned=i % 4 == 0)
        host.kernel(stream, 50 * US)
    evidence = made.finding(gpu.explain(), "pageable-copy").evidence
    assert "50 GB/s, in this timeline" in evidence or "49.7 GB/s, in this timeline" in evidence


def test_pageable_copies_behind_longer_kernels_cost_nothing_and_are_named(made):
    gpu = made.Gpu()
    host = gpu.host()
    up, compute = non_blocking(gpu, 2)
    host.kernel(compute, 2 * MS)
    for _ in range(30):
        host.kernel(compute, 2 * MS)
        host.h2d(up, MIB, pinned=False)
    host.sync()
    report = gpu.explain()
    assert report.findings[0].cause == "kernel-bound"
    assert made.finding(report, "pageable-copy").cost_ms < 0.01 * report.wall_ms


# host-synchronize, synchronous-copy


@pytest.mark.parametrize("what", ["device", "stream", "event"])
def test_a_wait_of_the_host_for_each_chunk(made, what):
    def each(host, stream, i):
        if what == "event":
            host.record("done", stream)
            host.sync_event("done")
        else:
            host.sync(stream if what == "stream" else None)

    gpu = made.Gpu()
    made.loop(gpu, each=each)
    report = gpu.explain()
    assert report.findings[0].cause == "host-synchronize"
    assert made.cost_of(report, "host-synchronize") > 0.55
    assert report.findings[0].count == 31  # the one after the last chunk waits for nothing that comes


def test_a_wait_for_an_older_chunk_while_the_device_has_work_is_harmless(made):
    def each(host, stream, i):
        host.record(f"done{i}", stream)
        if i >= 3:
            host.sync_event(f"done{i - 3}")

    gpu = made.Gpu()
    made.loop(gpu, each=each, chunks=64)
    report = gpu.explain()
    assert report.findings[0].cause == "copy-bound"
    assert made.faults(report) < 0.02
    assert "costs the device nothing" in made.finding(report, "host-synchronize").evidence


def test_a_wait_with_nothing_to_wait_for_is_harmless(made):
    gpu = made.Gpu()
    idle = gpu.stream()
    made.loop(gpu, each=lambda host, stream, i: host.sync(idle))
    report = gpu.explain()
    assert report.findings[0].cause == "copy-bound"
    assert made.cost_of(report, "host-synchronize") < 0.02


def test_values_fetched_in_each_step(made):
    gpu = made.Gpu()
    host = gpu.host()
    for _ in range(50):
        host.kernel(0, 300 * US)
        host.d2h(0, 4, pinned=False)
        host.work(150 * US)
    finding = gpu.explain().findings[0]
    assert finding.cause == "host-synchronize"
    assert "values fetched from the device" in finding.evidence
    assert "Fetch values later" in finding.advice


def test_two_threads_that_wait_for_their_own_streams(made):
    gpu = made.Gpu()
    hosts = [gpu.host() for _ in range(2)]
    streams = non_blocking(gpu, 2)
    for _ in range(40):
        for host, stream in zip(hosts, streams, strict=True):
            host.h2d(stream, 4 * MIB)
            host.kernel(stream, 80 * US)
            host.d2h(stream, 4 * MIB)
        for host, stream in zip(hosts, streams, strict=True):
            host.sync(stream)
    assert gpu.explain().findings[0].cause == "host-synchronize"


def test_two_threads_with_streams_of_their_own_are_no_fault(made):
    gpu = made.Gpu()
    hosts = [gpu.host() for _ in range(2)]
    streams = [non_blocking(gpu, 2) for _ in hosts]
    for i in range(40):
        for host, own in zip(hosts, streams, strict=True):
            host.h2d(own[i % 2], 4 * MIB)
            host.kernel(own[i % 2], 80 * US)
            host.d2h(own[i % 2], 4 * MIB)
    report = gpu.explain()
    assert report.findings[0].cause == "copy-bound"
    assert made.faults(report) < 0.02


def test_synchronous_copies_of_pinned_memory(made):
    gpu = made.Gpu()
    host = gpu.host()
    for _ in range(32):
        host.h2d(0, 4 * MIB, sync=True)
        host.kernel(0, 80 * US)
        host.d2h(0, 4 * MIB, sync=True)
    report = gpu.explain()
    assert report.findings[0].cause == "synchronous-copy"
    assert "H2D and D2H" in report.findings[0].title
    assert made.cost_of(report, "pageable-copy") == 0


def test_one_synchronous_copy_at_the_end_is_no_fault(made):
    gpu = made.Gpu()
    host = made.loop(gpu, streams=non_blocking(gpu), chunks=64)
    host.d2h(0, MIB, sync=True)
    report = gpu.explain()
    assert report.findings[0].cause == "copy-bound"
    assert made.cost_of(report, "synchronous-copy") < 0.01


# allocation-in-loop


def test_allocations_in_the_loop(made):
    def each(host, stream, i):
        host.malloc()
        host.free()

    gpu = made.Gpu()
    made.loop(gpu, each=each)
    report = gpu.explain()
    assert report.findings[0].cause == "allocation-in-loop"
    assert made.cost_of(report, "allocation-in-loop") > 0.6
    assert "31 cudaFree" in report.findings[0].evidence


def test_allocations_before_the_loop_are_no_fault(made):
    gpu = made.Gpu()
    host = gpu.host()
    for _ in range(8):
        host.malloc(400 * US)
    streams = non_blocking(gpu)
    for i in range(64):
        host.h2d(streams[i % 4], 4 * MIB)
        host.kernel(streams[i % 4], 80 * US)
        host.d2h(streams[i % 4], 4 * MIB)
    report = gpu.explain()
    assert report.findings[0].cause == "copy-bound"
    assert not any(f.cause == "allocation-in-loop" for f in report.findings)


def test_a_pool_is_no_fault(made):
    def each(host, stream, i):
        host.malloc_async(stream)
        host.free_async(stream)

    gpu = made.Gpu()
    made.loop(gpu, each=each)
    report = gpu.explain()
    assert report.findings[0].cause == "copy-bound"
    assert not any(f.cause == "allocation-in-loop" for f in report.findings)


# launch-bound, host-bound, small-copies, first-use


def test_kernels_shorter_than_their_launches(made):
    gpu = made.Gpu(call=6 * US)
    host = gpu.host()
    for _ in range(500):
        host.kernel(0, 2 * US)
        host.work(20 * US)
    report = gpu.explain()
    assert report.findings[0].cause == "launch-bound"
    assert made.cost_of(report, "launch-bound") > 0.8
    assert report.findings[0].repair is not None
    assert report.findings[0].repair.name == "graph"


def test_chunks_too_small_to_be_issued_in_time(made):
    gpu = made.Gpu()
    made.loop(gpu, size=64 * KIB, kernel=2 * US, chunks=200)
    report = gpu.explain()
    assert report.findings[0].cause == "launch-bound"
    assert made.cost_of(report, "small-copies") == 0  # each has its kernel: there is nothing to gather


def test_graphs_of_short_kernels_are_no_fault(made):
    gpu = made.Gpu()
    host = gpu.host()
    for _ in range(50):
        host.graph(0, [3 * US] * 40)
    report = gpu.explain()
    assert report.findings[0].cause == "kernel-bound"
    assert made.faults(report) < 0.02


@pytest.mark.parametrize("size", [4 * MIB, 64 * KIB])
def test_a_host_with_work_of_its_own(made, size):
    gpu = made.Gpu()
    made.loop(gpu, size=size, kernel=50 * US, each=lambda host, stream, i: host.work(2 * MS))
    report = gpu.explain()
    assert report.findings[0].cause == "host-bound"
    assert report.findings[0].repair is None
    assert made.cost_of(report, "host-bound") > 0.9
    assert made.cost_of(report, "launch-bound") < 0.02


def test_host_work_beside_a_busy_device_is_no_fault(made):
    gpu = made.Gpu()
    made.loop(gpu, kernel=500 * US, each=lambda host, stream, i: host.work(300 * US))
    report = gpu.explain()
    assert report.findings[0].cause == "kernel-bound"
    assert made.faults(report) < 0.02


def test_a_loader_that_keeps_the_device_waiting_is_named(made):
    gpu = made.Gpu()
    host = gpu.host()
    for _ in range(20):
        with host.inside("train.py(10): main"):
            with host.inside("data.py(33): __getitem__"):
                host.work(8 * MS)
            host.h2d(0, 2 * MIB, pinned=False)
            host.sync(0)
            for _ in range(30):
                host.kernel(0, 40 * US)
                host.work(8 * US)
    finding = gpu.explain().findings[0]
    assert finding.cause == "host-bound"
    assert "data.py(33): __getitem__" in finding.evidence
    assert (finding.where[0].file, finding.where[0].line) == ("data.py", 33)


@pytest.mark.parametrize("pinned", [True, False])
def test_many_small_copies_in_a_row(made, pinned):
    gpu = made.Gpu(call=12 * US)
    host = gpu.host()
    stream = gpu.stream()
    for _ in range(300):
        host.h2d(stream, 256, pinned=pinned)
        if not pinned:
            host.sync(stream)
    report = gpu.explain()
    assert re.search(r"On average each costs [0-9.]+ .s of issuing and waiting, ", report.findings[0].evidence)
    assert report.findings[0].cause == "small-copies"
    assert report.findings[0].count == 300
    assert "256 bytes on average" in report.findings[0].title
    assert made.cost_of(report, "host-synchronize") < 0.01


def test_small_copies_that_come_back_one_after_another(made):
    gpu = made.Gpu()
    host = gpu.host()
    for _ in range(300):
        host.d2h(0, 512, pinned=False)
    assert gpu.explain().findings[0].cause == "small-copies"


def test_kernels_used_for_the_first_time(made):
    gpu = made.Gpu()
    host = gpu.host()
    for i in range(40):
        host.kernel(0, 100 * US, f"kernel{i % 4}", first=5 * MS if i < 4 else 0)
    report = gpu.explain()
    assert report.findings[0].cause == "first-use"
    assert made.cost_of(report, "first-use") > 0.7


@pytest.mark.parametrize(("kind", "cause"), [(RangeKind.CPU_OP, "first-use"), (RangeKind.ANNOTATION, "host-bound")])
def test_an_operator_that_compiles_is_a_first_use_and_a_pause_elsewhere_is_the_hosts(made, kind, cause):
    gpu = made.Gpu()
    host = gpu.host()
    for i in range(20):
        with host.inside("aten::i0" if kind is RangeKind.CPU_OP else "load", kind):
            if i in (3, 4):
                host.work(20 * MS)
            host.kernel(0, 100 * US, "i0" if i == 3 else f"other{i == 4}" if i > 3 else "before")
    assert gpu.explain().findings[0].cause == cause


@pytest.mark.parametrize(("loading", "cause"), [(RangeKind.LOADING, "first-use"), (RangeKind.OVERHEAD, None)])
def test_launches_that_load_code_are_first_uses_though_all_are_as_long(made, loading, cause):
    gpu = made.Gpu()
    host = gpu.host()
    for i in range(3):  # none is long beside the others
        with host.inside("Runtime Triggered Module Loading", loading):
            host.kernel(0, 100 * US, f"kernel{i}", first=5 * MS)
    report = gpu.explain()
    found = [f for f in report.findings if f.cause == "first-use"]
    assert bool(found) is (cause is not None)
    if found:
        assert report.findings[0] is found[0]
        assert found[0].count == 2  # the window begins with the first kernel
        assert found[0].wall_ms < 0.5


def test_a_pool_does_not_save_what_the_first_allocation_set_up(made):
    gpu = made.Gpu()
    host = gpu.host()
    host.kernel(0, 100 * US)
    for i in range(20):
        host.malloc(50 * MS if i == 0 else 300 * US)
        host.kernel(0, 100 * US)
    report = gpu.explain()
    pool = made.finding(report, "allocation-in-loop")
    first = made.finding(report, "first-use")
    assert pool.wall_ms == pytest.approx(report.wall_ms - 19 * 0.2, rel=0.05)  # 300 us for a 100 us kernel
    assert first.wall_ms == pytest.approx(report.wall_ms - 50, rel=0.15)
    assert report.together.wall_ms < 3


# hardware-queue, priority-inversion


def crowd(gpu, count: int) -> None:
    """Many streams whose kernels start late for no reason that is told."""
    host = gpu.host()
    streams = non_blocking(gpu, count)
    for _ in range(20):
        for stream in streams:
            host.kernel(stream, 50 * US)
        for engine in gpu.engine_free:
            gpu.engine_free[engine] += 400 * US  # something that the timeline does not show


@pytest.mark.parametrize(("count", "found"), [(12, True), (4, False)])
def test_more_streams_than_queues(made, count, found):
    gpu = made.Gpu()
    crowd(gpu, count)
    report = gpu.explain()
    assert any(f.cause == "hardware-queue" for f in report.findings) is found
    if not found:
        assert any("event wait that it does not show" in note for note in report.notes)


@pytest.mark.parametrize("urgent", [-5, 0])
def test_urgent_work_behind_bulk_work(made, urgent):
    gpu = made.Gpu()
    host = gpu.host()
    bulk, quick = gpu.stream(N, priority=0), gpu.stream(N, priority=urgent)
    for _ in range(20):
        host.kernel(bulk, MS, "bulk")
        host.kernel(quick, 50 * US, "urgent")
    report = gpu.explain()
    assert report.findings[0].cause == "kernel-bound"
    assert any(f.cause == "priority-inversion" for f in report.findings) is (urgent < 0)


# Verdicts


def test_long_kernels_one_after_another(made):
    gpu = made.Gpu()
    host = gpu.host()
    for _ in range(30):
        host.kernel(0, 3 * MS)
    report = gpu.explain()
    assert [f.cause for f in report.findings] == ["kernel-bound"]
    assert report.findings[0].repair is None


@pytest.mark.parametrize(("up", "down"), [(True, False), (False, True), (True, True)])
def test_the_link_is_the_limit(made, up, down):
    gpu = made.Gpu()
    made.loop(gpu, kernel=20 * US, up=up, down=down, chunks=64)
    report = gpu.explain()
    assert report.findings[0].cause == "copy-bound"
    assert made.faults(report) < 0.02


def test_two_processes(made):
    gpu = made.Gpu()
    hosts = [gpu.host(pid=1), gpu.host(pid=2)]
    streams = non_blocking(gpu, 2)
    for _ in range(20):
        for host, stream in zip(hosts, streams, strict=True):
            host.kernel(stream, MS)
    report = gpu.explain()
    assert report.findings[0].cause == "several-processes"
    assert "MPS" in report.findings[0].advice


def test_two_threads_of_one_process_are_one_process(made):
    gpu = made.Gpu()
    hosts = [gpu.host(), gpu.host()]
    for _ in range(20):
        for host, stream in zip(hosts, non_blocking(gpu, 2), strict=True):
            host.kernel(stream, MS)
    assert not any(f.cause == "several-processes" for f in gpu.explain().findings)


@pytest.mark.parametrize(("name", "found"), [("ncclDevKernel_AllReduce_Sum_f32_RING_LL", True), ("gemm", False)])
def test_communication_that_nothing_hides(made, name, found):
    gpu = made.Gpu()
    host = gpu.host()
    for _ in range(20):
        host.kernel(0, MS, "gemm")
        host.kernel(0, 500 * US, name)
    assert any(f.cause == "several-devices" for f in gpu.explain().findings) is found


def test_each_device_is_explained_for_itself(made):
    gpu = made.Gpu(devices=2)
    made.loop(gpu, streams=[gpu.stream(N, device=0)])
    made.loop(gpu, streams=[gpu.stream(N, device=1) for _ in range(4)], chunks=64)
    assert gpu.explain(device=0).findings[0].cause == "single-stream"
    assert gpu.explain(device=1).findings[0].cause == "copy-bound"
    assert "device 1 worked too" in " ".join(gpu.explain(device=0).notes)


# Steps


def test_inputs_copied_in_the_stream_of_the_kernels(made):
    gpu = made.Gpu()
    host = gpu.host()
    for _ in range(30):
        host.h2d(0, 16 * MIB)
        for _ in range(10):
            host.kernel(0, 60 * US)
    finding = gpu.explain().findings[0]
    assert finding.cause == "single-stream"
    assert finding.repair is not None
    assert finding.repair.name == "prefetch=1"  # steps may build on one another: they are not dealt to streams


def test_inputs_copied_ahead_in_a_stream_of_their_own_are_no_fault(made):
    gpu = made.Gpu()
    host = gpu.host()
    copies = gpu.stream(N)
    host.h2d(copies, 8 * MIB)
    host.record("input", copies)
    for _ in range(30):
        host.wait("input", 0)
        host.h2d(copies, 8 * MIB)
        host.record("input", copies)
        for _ in range(10):
            host.kernel(0, 100 * US)
    report = gpu.explain()
    assert report.findings[0].cause == "kernel-bound"
    assert made.faults(report) < 0.02
