"""Recordings of real programs on an H200, some under several versions of CUPTI."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.timeline.frames import user_place
from gapless.timeline.sources import load
from gapless.timeline.timeline import MarkKind, RangeKind, Timeline, TouchKind

FOLDER = Path(__file__).resolve().parents[3] / "recorder" / "recordings"
EVERY = sorted(path.name.removesuffix(".gapless.gz") for path in FOLDER.glob("*.gapless.gz"))


def recording(name: str) -> Timeline:
    return load(FOLDER / f"{name}.gapless.gz")


def test_there_are_recordings() -> None:
    assert len(EVERY) >= 20


@pytest.mark.parametrize("name", EVERY)
def test_nothing_is_lost_and_all_work_has_its_call(name: str) -> None:
    timeline = recording(name)
    assert timeline.lost == ()
    assert len(timeline.ops) > 0
    assert timeline.clock_ns is not None
    assert timeline.info["overlaps"] == 0
    earlier = {unknown.what for unknown in timeline.unknown} & {"host-calls"}  # attached in the middle of a run
    assert earlier or (timeline.ops.call >= 0).all()
    linked = timeline.ops.call >= 0
    begun = timeline.calls.start[timeline.ops.call[linked]]
    assert (timeline.ops.start[linked] >= begun - 2_000).all()  # nothing starts before it was asked for


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("serial", {StreamKind.NON_BLOCKING: 1}), ("streams4", {StreamKind.NON_BLOCKING: 4}),
        ("trap", {StreamKind.LEGACY: 1, StreamKind.BLOCKING: 4}),
        ("trap_nb", {StreamKind.LEGACY: 1, StreamKind.NON_BLOCKING: 4}), ("legacy", {StreamKind.LEGACY: 1}),
    ],
)  # fmt: skip
def test_kinds_of_streams_are_told(name: str, kinds: dict[StreamKind, int]) -> None:
    streams = recording(name).streams
    assert Counter(stream.kind for stream in streams) == kinds
    assert not any(stream.inferred for stream in streams)


@pytest.mark.parametrize("name", [name for name in EVERY if name.startswith("eventsync_13")])
def test_the_same_loop_reads_alike_under_every_cupti(name: str) -> None:
    timeline, other = recording(name), recording("eventsync_13.1.115")
    for table, column in (("ops", "kind"), ("ops", "bytes"), ("ops", "grid"), ("calls", "kind"), ("touches", "kind")):
        mine, theirs = (getattr(getattr(t, table), column).tolist() for t in (timeline, other))
        assert mine == theirs, (table, column)
    assert Counter(timeline.marks.kind.tolist()) == Counter(other.marks.kind.tolist())


def test_synchronises_with_events_name_the_record_they_wait_for() -> None:
    timeline = recording("eventsync")
    marks = timeline.marks
    syncs = np.flatnonzero(marks.kind == MarkKind.SYNC_EVENT)
    assert len(syncs) == int((timeline.calls.kind == CallKind.SYNC_EVENT).sum()) == 32
    assert (marks.record[syncs] > 0).all()
    assert (marks.waits_on[syncs] >= 0).all()


def test_pageable_memory_and_pinned_memory() -> None:
    for name, kind in (("pageable", MemoryKind.PAGEABLE), ("streams4", MemoryKind.PINNED)):
        ops = recording(name).ops
        uploads, downloads = ops.kind == OpKind.H2D, ops.kind == OpKind.D2H
        assert set(ops.src[uploads].tolist()) == set(ops.dst[downloads].tolist()) == {kind}


def test_allocations_are_told() -> None:
    timeline = recording("malloc")
    kinds = Counter(TouchKind(kind).name for kind in timeline.touches.kind.tolist())
    assert kinds["ALLOCATE"] >= kinds["FREE"] > 30
    assert (timeline.touches.bytes[timeline.touches.kind == TouchKind.ALLOCATE] > 0).all()


def test_python_programs_have_the_lines_of_their_calls() -> None:
    timeline = recording("cupy")
    copies = np.isin(timeline.calls.kind, (CallKind.COPY_ASYNC, CallKind.LAUNCH))
    stacks = [timeline.name_of(row) for row in timeline.calls.stack[copies].tolist()]
    assert all("cupy_prog.py(" in stack for stack in stacks)


def test_a_pytorch_program() -> None:
    timeline = recording("torch")
    assert Counter(OpKind(kind).name for kind in timeline.ops.kind.tolist())["KERNEL"] > 300
    assert {"NVTX", "OVERHEAD"} >= {RangeKind(kind).name for kind in timeline.ranges.kind.tolist()}
    assert "at::native::reduce_kernel" in {timeline.name_of(row) for row in timeline.ops.name.tolist()}
    waits = timeline.marks.kind == MarkKind.WAIT
    assert int(waits.sum()) == int((timeline.calls.kind == CallKind.WAIT_EVENT).sum())
    assert "event-waits" not in {unknown.what for unknown in timeline.unknown}


def test_a_recording_begun_in_the_middle_does_not_guess_the_kinds_of_older_streams() -> None:
    """One of a recorder that did not ask the driver."""
    timeline = recording("range")
    told = {stream.id: stream.kind for stream in timeline.streams}
    assert told.pop(7) is StreamKind.LEGACY
    assert set(told.values()) == {StreamKind.UNKNOWN}
    assert "stream-kinds" in {unknown.what for unknown in timeline.unknown}


def test_a_recording_from_within_tells_of_what_is_older() -> None:
    timeline = recording("within")
    (device,) = timeline.devices
    assert (device.name, device.sms) == ("NVIDIA H200", 132)
    used = {timeline.streams[row].kind for row in timeline.ops.stream.tolist()}
    assert used == {StreamKind.BLOCKING, StreamKind.NON_BLOCKING}
    assert {TouchKind.READ, TouchKind.WRITE, TouchKind.ARGUMENT} <= set(timeline.touches.kind.tolist())
    assert not timeline.unknown


def test_a_range_of_a_domain_has_its_device_and_streams() -> None:
    timeline = recording("range_domain")
    assert timeline.ops.kind.tolist() == [OpKind.KERNEL] * 5
    assert timeline.devices[0].sms == 132
    assert [(stream.kind, stream.inferred) for stream in timeline.streams] == [(StreamKind.LEGACY, False)]


def test_what_autograd_issues_has_the_line_that_waits_for_it() -> None:
    timeline = recording("autograd")
    engine = [row for row, thread in enumerate(timeline.threads) if thread.name.startswith("pt_autograd")]
    mine = np.isin(timeline.calls.thread, engine)
    assert mine.sum() > 20
    stacks = {timeline.name_of(row) for row in timeline.calls.stack[mine].tolist() if row >= 0}
    assert stacks
    assert all(stack.count("(autograd)") == stack.count(";") + 1 for stack in stacks)
    places = {user_place(stack) for stack in stacks}
    assert {(Path(file).name, line, function) for file, line, function in places} == {
        ("training.py", 15, "step (autograd)")
    }


def test_records_that_another_tool_took_are_missed() -> None:
    timeline = recording("other_tool")
    assert {"calls-missing", "records-taken"} <= {unknown.what for unknown in timeline.unknown}
