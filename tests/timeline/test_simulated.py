"""A schedule as a timeline: nothing is lost on the way, and whatever works on timelines works on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gapless.diagnosis.explain import explain
from gapless.model.kinds import CallKind, Engine, MemoryKind, OpKind, StreamKind
from gapless.model.simulation import Simulation, simulate
from gapless.model.tape import read
from gapless.timeline.measure import engine_of, total, union
from gapless.timeline.simulated import from_schedule
from gapless.timeline.timeline import MarkKind, Timeline

TAPES = Path(__file__).resolve().parents[2] / "examples" / "tapes"

TAPE = """\
machine teaching launch_cost=1us
stream a nonblocking priority=-1
stream b blocking
h2d    x on a 1ms 4MB src -> dst pageable
record e on a
wait   e on b
kernel k on b 2ms blocks=3 block=1/4
sync event e
sync b
d2h    y 1ms 8B sync
sync device
host   1ms
"""


@pytest.fixture
def run() -> Simulation:
    return simulate(read(TAPE))


@pytest.fixture
def timeline(run) -> Timeline:
    return from_schedule(run.schedule, source="loop.tape", lines=run.lines)


def test_operations(timeline):
    ops = timeline.ops
    assert [timeline.name_of(name) for name in ops.name] == ["x", "k", "y"]
    assert ops.kind.tolist() == [OpKind.H2D, OpKind.KERNEL, OpKind.D2H]
    assert ops.start.tolist() == [0, 1_001_000, 3_001_000]
    assert ops.end.tolist() == [1_000_000, 3_001_000, 4_001_000]
    assert ops.bytes.tolist() == [4_000_000, -1, 8]
    assert ops.src.tolist() == [MemoryKind.PAGEABLE, MemoryKind.UNKNOWN, MemoryKind.DEVICE]
    assert ops.dst.tolist() == [MemoryKind.DEVICE, MemoryKind.UNKNOWN, MemoryKind.PINNED]
    assert ops.grid.tolist() == [[-1, -1, -1], [3, 1, 1], [-1, -1, -1]]
    assert [timeline.streams[stream].name for stream in ops.stream] == ["a", "b", "default"]


def test_streams_and_devices_are_known_and_nothing_is_unknown(timeline):
    assert [(s.name, s.kind, s.priority) for s in timeline.streams] == [
        ("a", StreamKind.NON_BLOCKING, -1),
        ("b", StreamKind.BLOCKING, 0),
        ("default", StreamKind.LEGACY, 0),
    ]
    assert [device.name for device in timeline.devices] == ["teaching"]
    assert (timeline.format, timeline.source, timeline.unknown) == ("simulated", "loop.tape", ())


def test_calls_issue_the_operations_and_what_a_host_does_beside_them_is_none(timeline):
    calls = timeline.calls
    assert [timeline.name_of(name) for name in calls.name] == [
        "cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cudaLaunchKernel", "cudaEventSynchronize",
        "cudaStreamSynchronize", "cudaMemcpy", "cudaDeviceSynchronize",
    ]  # fmt: skip
    assert calls.kind[timeline.ops.call].tolist() == [CallKind.COPY_ASYNC, CallKind.LAUNCH, CallKind.COPY_SYNC]
    assert (calls.correlation[timeline.ops.call] == timeline.ops.correlation).all()
    launch = int(timeline.ops.call[1])
    assert (calls.start[launch], calls.end[launch]) == (1_000_000, 1_001_000)
    assert [thread.name for thread in timeline.threads] == ["main"]


def test_marks_say_what_waits_for_what(timeline):
    marks = timeline.marks
    kinds = [MarkKind(kind) for kind in marks.kind]
    assert kinds == [MarkKind.RECORD, MarkKind.WAIT, MarkKind.SYNC_EVENT, MarkKind.SYNC_STREAM, MarkKind.SYNC_DEVICE]
    record, wait, event, stream, device = range(5)
    assert marks.stream.tolist() == [0, 1, -1, 1, -1]
    assert marks.waits_on.tolist() == [-1, 0, 0, -1, -1]
    recorded = timeline.calls.correlation[marks.call[record]]
    assert marks.record.tolist() == [-1, recorded, recorded, -1, -1]
    assert marks.event[[record, wait, event]].tolist() == [0, 0, 0]
    assert (marks.start[stream], marks.end[stream]) == (1_001_000, 3_001_000)
    assert marks.end[device] == 4_001_000


def test_calls_are_made_where_the_tape_has_them(run, timeline):
    named = [timeline.name_of(name) for name in timeline.ranges.name]
    assert named == [f"loop.tape({line}): main" for line in (4, 5, 6, 7, 8, 9, 10, 11)]
    assert len(from_schedule(run.schedule).ranges) == 0


def test_operations_of_graphs_belong_to_the_call_that_launched_them():
    text = "stream a\ncapture a\nkernel k on a 1\nh2d x on a 1\nend-capture a as G\nlaunch G on a\nlaunch G on a\n"
    run = simulate(read(text))
    timeline = from_schedule(run.schedule)
    assert [timeline.name_of(name) for name in timeline.ops.name] == ["k", "x", "k", "x"]
    assert timeline.calls.kind[timeline.ops.call].tolist() == [CallKind.GRAPH_LAUNCH] * 4
    assert (timeline.ops.graph >= 0).all()


@pytest.mark.parametrize("path", sorted(TAPES.glob("*.tape")), ids=lambda path: path.stem)
def test_engines_are_as_busy_as_in_the_schedule(path):
    run = simulate(path)
    timeline = from_schedule(run.schedule, source=path.name, lines=run.lines)
    for engine in (Engine.H2D, Engine.SM, Engine.D2H, Engine.PEER):
        mine = engine_of(timeline.ops) == engine
        busy = total(union(timeline.ops.start[mine], timeline.ops.end[mine]))
        # Engines are counted by what runs, over all devices; each end is rounded to a ns.
        assert busy == pytest.approx(run.schedule.busy(engine) / 1000, abs=2 * max(1, int(mine.sum())))
    assert (np.diff(timeline.ops.start) >= 0).all()
    assert (np.diff(timeline.calls.start) >= 0).all()


@pytest.mark.parametrize(
    ("tape", "cause", "place"),
    [
        ("01-one-stream", "single-stream", ""),
        ("20-accident-default-stream", "default-stream-barrier", "tape:8"),
        ("24-accident-pageable", "pageable-copy", "tape:5"),
        ("26-accident-allocation-in-loop", "allocation-in-loop", "tape:8"),
        ("28-accident-device-synchronise", "host-synchronize", "tape:7"),
        ("72-wrong-tool-copy-bound", "copy-bound", ""),
        ("70-wrong-tool-one-long-kernel", "kernel-bound", ""),
        ("74-wrong-tool-launch-bound", "launch-bound", "tape:6"),
    ],
)
def test_the_accidents_of_the_lesson_are_explained(tape, cause, place):
    run = simulate(TAPES / f"{tape}.tape")
    report = explain(from_schedule(run.schedule, source=f"{tape}.tape", lines=run.lines))
    assert report.findings[0].cause == cause
    assert place in " ".join(map(str, report.findings[0].where))
