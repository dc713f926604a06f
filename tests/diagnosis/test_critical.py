"""The critical path of made runs: it leads along what bound, and its time adds up to the run's."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.diagnosis.critical import Held, critical_path, held_by, path_times
from gapless.diagnosis.work import Work, gather
from gapless.model.kinds import Engine, OpKind, StreamKind

US, MIB = 1_000, 1 << 20


def work_of(gpu) -> Work:
    timeline = gpu.timeline()
    return gather(timeline, 0, *timeline.window())


def named(work: Work, path) -> list[str]:
    """Name what a path leads along: kinds of operations, names of calls."""
    calls = work.calls
    return [
        OpKind(work.ops.kind[row]).name if row >= 0 else work.timeline.name_of(calls.name[-1 - row])
        for row in path.tolist()
    ]


def test_a_stream_in_order_is_its_own_path(made):
    gpu = made.Gpu()
    host = gpu.host()
    stream = gpu.stream()
    for _ in range(2):
        host.h2d(stream, 16 * MIB)
        host.kernel(stream, 400 * US)
        host.d2h(stream, 16 * MIB)
    host.sync()
    work = work_of(gpu)
    held, by = held_by(work)
    assert held.tolist()[1:] == [Held.STREAM] * 5
    assert by.tolist()[1:] == [0, 1, 2, 3, 4]
    path = critical_path(work)
    assert named(work, path) == ["cudaMemcpyAsync"] + ["H2D", "KERNEL", "D2H"] * 2
    on_engines, host_time, between = path_times(work, path)
    assert on_engines[Engine.SM] == 800 * US
    assert host_time < 20 * US
    assert between >= 0
    last = int(work.ops.end.max())
    assert sum(on_engines.values()) + host_time + between == last - int(work.calls.start[0])


def test_an_engine_that_is_always_busy_is_the_path(made):
    gpu = made.Gpu()
    made.loop(gpu, streams=4, chunks=16, kernel=50 * US)
    work = work_of(gpu)
    path = critical_path(work)
    kinds = [OpKind(work.ops.kind[row]) for row in path.tolist() if row >= 0]
    uploads = kinds.count(OpKind.H2D) + kinds.count(OpKind.D2H)
    assert uploads >= 15


def test_a_slow_host_is_the_path(made):
    gpu = made.Gpu()
    host = gpu.host()
    stream = gpu.stream()
    for _ in range(20):
        host.work(100 * US)
        host.kernel(stream, 10 * US)
    work = work_of(gpu)
    held, _ = held_by(work)
    assert set(held.tolist()[1:]) == {Held.HOST}
    path = critical_path(work)
    assert named(work, path) == ["cudaLaunchKernel"] * 20 + ["KERNEL"]
    on_engines, host_time, _ = path_times(work, path)
    assert on_engines == {Engine.SM: 10 * US}
    assert host_time >= 19 * 100 * US


def test_a_synchronise_leads_from_the_host_back_to_the_device(made):
    gpu = made.Gpu()
    host = gpu.host()
    stream = gpu.stream()
    host.kernel(stream, 500 * US)
    host.sync()
    host.work(50 * US)
    host.kernel(stream, 500 * US)
    work = work_of(gpu)
    path = critical_path(work)
    assert named(work, path) == [
        "cudaLaunchKernel", "KERNEL", "cudaDeviceSynchronize", "cudaLaunchKernel", "KERNEL",
    ]  # fmt: skip


def test_fences_and_events_are_told_apart(made):
    gpu = made.Gpu()
    host = gpu.host()
    copies, kernels = gpu.stream(), gpu.stream()
    host.kernel(copies, 300 * US)
    host.h2d(0, 16 * MIB)  # on the default stream: a fence before it, and one behind it
    host.kernel(kernels, 100 * US)
    held, by = held_by(work_of(gpu))
    assert held.tolist() == [Held.HOST, Held.FENCE, Held.FENCE]
    assert by.tolist()[1:] == [0, 1]

    gpu = made.Gpu()
    host = gpu.host()
    first, second = (gpu.stream(StreamKind.NON_BLOCKING) for _ in range(2))
    host.h2d(first, 16 * MIB)
    host.record("there", first)
    host.wait("there", second)
    host.kernel(second, 100 * US)
    held, by = held_by(work_of(gpu))
    assert held.tolist()[1] == Held.EVENT
    assert by.tolist()[1] == 0


def test_without_work_there_is_no_path(made):
    gpu = made.Gpu()
    gpu.host().work(5)
    work = gather(gpu.timeline(), 0, 0, 1)
    assert critical_path(work).tolist() == []
    assert path_times(work, np.zeros(0, np.int64)) == ({}, 0, 0)


@pytest.mark.parametrize("calls_known", [True, False])
def test_a_path_goes_back_in_time(made, calls_known):
    gpu = made.Gpu()
    made.loop(gpu, streams=3, chunks=24)
    if not calls_known:
        gpu.calls.clear()
    work = work_of(gpu)
    path = critical_path(work)
    ends = [int(work.ops.end[row]) for row in path.tolist() if row >= 0]
    assert ends == sorted(ends)
    assert ends[-1] == int(work.ops.end.max())
