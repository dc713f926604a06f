"""Blocking or not: what the fencing that a timeline shows says of streams, and when it says nothing."""

from __future__ import annotations

import pytest

from gapless.diagnosis.streams import infer_kinds
from gapless.diagnosis.work import gather
from gapless.model.kinds import StreamKind
from gapless.timeline.timeline import Timeline

US, MS, MIB = 1_000, 1_000_000, 1 << 20
N, B, UNKNOWN = StreamKind.NON_BLOCKING, StreamKind.BLOCKING, StreamKind.UNKNOWN


def kinds_in(timeline: Timeline) -> list[StreamKind]:
    """Give the kinds of all streams but the default one, after inference."""
    known = infer_kinds(gather(timeline, 0, *timeline.window()))
    assert all(s.inferred for s in known.streams[1:] if s.kind is not UNKNOWN)
    return [s.kind for s in known.streams[1:]]


@pytest.mark.parametrize(("kind", "chunks"), [(B, 16), (B, 64), (N, 16), (N, 64)])
def test_a_default_stream_copy_in_each_chunk_tells(made, kind, chunks):
    gpu = made.Gpu(tells_kinds=False)
    streams = [gpu.stream(kind) for _ in range(4)]
    made.loop(gpu, streams=streams, chunks=chunks, each=lambda host, stream, i: host.h2d(0, 4, pinned=False, sync=True))
    assert kinds_in(gpu.timeline()) == [kind] * 4


def test_streams_of_both_kinds_are_told_apart(made):
    gpu = made.Gpu(tells_kinds=False)
    made.loop(gpu, streams=[gpu.stream(B), gpu.stream(N)], each=lambda host, stream, i: host.kernel(0, 2 * US))
    assert kinds_in(gpu.timeline()) == [B, N]


def test_without_work_on_the_default_stream_nothing_is_known(made):
    gpu = made.Gpu(tells_kinds=False)
    made.loop(gpu, streams=[gpu.stream(B), gpu.stream(N)])
    assert kinds_in(gpu.timeline()) == [UNKNOWN, UNKNOWN]


def test_one_start_at_the_end_of_another_is_no_proof(made):
    gpu = made.Gpu(tells_kinds=False)
    host = gpu.host()
    stream = gpu.stream(B)
    host.kernel(stream, MS)
    host.d2h(0, MIB)
    host.sync()
    assert kinds_in(gpu.timeline()) == [UNKNOWN]


def test_a_host_that_waits_in_between_is_no_proof(made):
    gpu = made.Gpu(tells_kinds=False)
    host = gpu.host()
    stream = gpu.stream(B)
    for _ in range(30):
        host.kernel(stream, 100 * US)
        host.sync(stream)
        host.h2d(0, MIB)
        host.sync(0)
    assert kinds_in(gpu.timeline()) == [UNKNOWN]


@pytest.mark.parametrize("copies", [1, 6])
def test_a_side_stream_joined_by_events_is_not_called_blocking(made, copies):
    """What PyTorch's ``wait_stream`` does: the side stream waits for the default one, and the other way round."""
    gpu = made.Gpu(tells_kinds=False)
    host = gpu.host()
    side = gpu.stream(N)
    for _ in range(30):
        host.record("ready", 0)
        host.wait("ready", side, told=False)
        for _ in range(copies):
            host.h2d(side, MIB // 8)
        host.record("copied", side)
        host.wait("copied", 0, told=False)
        for _ in range(4):
            host.kernel(0, 100 * US)
    assert kinds_in(gpu.timeline()) == [UNKNOWN]


def test_what_the_source_tells_is_left_alone(made):
    gpu = made.Gpu()
    made.loop(gpu, streams=[gpu.stream(B), gpu.stream(N)], each=lambda host, stream, i: host.kernel(0, 2 * US))
    timeline = gpu.timeline()
    assert infer_kinds(gather(timeline, 0, *timeline.window())).streams == timeline.streams


def test_the_report_says_what_was_inferred(made):
    gpu = made.Gpu(tells_kinds=False)
    made.loop(gpu, each=lambda host, stream, i: host.kernel(0, 2 * US))
    report = gpu.explain()
    assert [s.inferred for s in report.timeline.streams] == [False, True, True, True, True]
