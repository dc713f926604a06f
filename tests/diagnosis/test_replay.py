"""A program played by the model, read back and replayed unchanged, takes the time that it took."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gapless.diagnosis.explain import explain
from gapless.diagnosis.rates import pinned_rates
from gapless.diagnosis.streams import infer_kinds
from gapless.diagnosis.whatif import WhatIf
from gapless.diagnosis.work import gather
from gapless.model.kinds import MemoryKind, OpKind, StreamKind
from gapless.model.machine import Machine
from gapless.model.program import Program
from gapless.model.schedule import schedule
from gapless.model.units import ms, us
from gapless.timeline.simulated import from_schedule
from gapless.timeline.sources import load
from gapless.timeline.timeline import Timeline

LOOPS = ("balanced16M.serial1", "balanced16M.trap4", "balanced1M.pageable1", "partialgpu4M.malloc4",
         "kernelheavy16M.devsync4", "balanced1M.three")  # fmt: skip
HOPS = 12_000  # ns an operation by which the model's latencies and those read off a timeline may differ


def what_if(timeline: Timeline) -> WhatIf:
    start, end = timeline.window()
    work = gather(infer_kinds(gather(timeline, 0, start, end)), 0, start, end)
    return WhatIf(work, pinned_rates(work, timeline.devices[0]))


def played(program: Program, machine: str = "h200") -> Timeline:
    return from_schedule(schedule(program, Machine.named(machine)))


@pytest.mark.parametrize("name", LOOPS)
def test_recorded_loop_replays(measured: Path, name: str):
    assert abs(what_if(load(measured / "loop" / f"{name}.json.gz")).error) < 0.05


def steps(program: Program, kinds: list[int], work: list[tuple[int, int, int, int]]) -> None:
    """Put in each ``(what, stream, length, thread)``."""
    streams = [program.stream(kind=StreamKind(kind)) for kind in kinds]
    last = None
    for what, where, length, thread in work:
        with program.thread("main" if thread == 0 else "other"):
            stream = streams[where % len(streams)]
            if what == 0:
                stream.h2d(bytes=length << 16, cost=2 * us)
            elif what == 1:
                stream.kernel(length * 4 * us, cost=3 * us)
            elif what == 2:
                stream.d2h(bytes=length << 16, cost=2 * us)
            elif what == 3:
                stream.sync(cost=us)
            elif what == 4:
                program.sync_device(cost=us)
            elif what == 5:
                program.host(length * 3 * us)
            elif what == 6:
                last = program.event()
                stream.record(last, timed=False, cost=us)
            elif last is not None:
                stream.wait(last, cost=us)
    program.sync_device()


WORK = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(1, 60), st.integers(0, 0)), min_size=1,
                max_size=40)  # fmt: skip
KINDS = st.lists(st.sampled_from([StreamKind.NON_BLOCKING, StreamKind.BLOCKING]), min_size=1, max_size=4)


@given(kinds=KINDS, work=WORK)
@settings(max_examples=60, deadline=None)
def test_what_the_model_plays_replays(kinds: list[int], work: list[tuple[int, int, int, int]]):
    program = Program()
    steps(program, kinds, work)
    if not any(what in (0, 1, 2) for what, *_ in work):
        return
    timeline = played(program)
    found = what_if(timeline)
    start, end = timeline.window()
    assert abs(found.traced.device_wall - (end - start)) <= HOPS * len(timeline.ops)


def loop(
    streams: int, chunks: int = 16, *, hand_over: Callable[[Program, object, object], None] | None = None
) -> Program:
    """The loop over chunks; with *hand_over* kernels run in a stream of their own."""
    program = Program()
    rows = [program.stream(f"s{i}", StreamKind.NON_BLOCKING) for i in range(streams)]
    other = program.stream("kernels", StreamKind.NON_BLOCKING)
    for i in range(chunks):
        stream = rows[i % streams]
        stream.h2d(ms, bytes=50 << 20, cost=2 * us)
        if hand_over is not None:
            hand_over(program, stream, other)
        (other if hand_over else stream).kernel(ms, cost=3 * us)
        if hand_over is None:
            stream.d2h(ms, bytes=50 << 20, cost=2 * us)
    program.sync_device()
    return program


def by_event(program: Program, first, then) -> None:
    event = program.event()
    first.record(event, timed=False, cost=us)
    then.wait(event, cost=us)


def test_events_that_are_told_hold_the_replay():
    timeline = played(loop(1, hand_over=by_event))
    found = what_if(timeline)
    assert found.script.events == 16
    uploads = {act.row for act in found.script.acts if act.op == OpKind.H2D}
    assert len(uploads) == 16
    assert abs(found.error) < 0.01
    run = found.before
    kinds = [act.op for act in found.script.acts if act.works]
    ends = [int(run.schedule.end[row]) for row, kind in zip(run.acts, kinds, strict=True) if kind == OpKind.H2D]
    starts = [int(run.schedule.start[row]) for row, kind in zip(run.acts, kinds, strict=True) if kind == OpKind.KERNEL]
    assert all(start >= end for start, end in zip(starts, ends, strict=True))


def test_an_event_wait_that_is_not_told_is_seen_by_its_time():
    """Kernels that start the moment another stream's upload ends waited for it."""
    program = loop(1, hand_over=by_event)
    timeline = played(program)
    bare = Timeline(ops=timeline.ops, calls=timeline.calls, devices=timeline.devices, streams=timeline.streams,
                    threads=timeline.threads, strings=timeline.strings)  # fmt: skip
    found = what_if(bare)
    assert found.script.events >= 15
    assert abs(found.error) < 0.01


def test_a_stretch_begins_when_the_device_is_free():
    """Work that the host had issued long before the stretch does not start earlier than it could."""
    program = Program()
    stream = program.stream(kind=StreamKind.NON_BLOCKING)
    for _ in range(400):
        stream.kernel(50 * us, cost=3 * us)
    program.sync_device()
    timeline = played(program)
    start, end = timeline.window()
    work = gather(timeline, 0, start + (end - start) // 2, end)
    found = WhatIf(work, pinned_rates(work, timeline.devices[0]))
    assert found.script.held > 5_000_000
    assert abs(found.error) < 0.01
    assert found.before.host_wall == pytest.approx((end - start) / 2, rel=0.02)


def test_a_thread_that_feeds_another_device_does_not_hold_this_one(made):
    gpu = made.Gpu(devices=2)
    mine, other = gpu.host(), gpu.host()
    here, there = gpu.stream(device=0), gpu.stream(device=1)
    for _ in range(20):
        other.kernel(there, 3_000_000)
    other.sync(there)
    for _ in range(40):
        mine.kernel(here, 500_000)
    mine.sync(here)
    report = gpu.explain(device=0)
    assert report.replay is not None
    assert abs(report.replay.error) < 0.02


OPS = st.tuples(
    st.sampled_from([OpKind.KERNEL, OpKind.H2D, OpKind.D2H, OpKind.D2D, OpKind.MEMSET, OpKind.P2P]),
    st.integers(0, 3), st.integers(0, 5_000), st.integers(0, 400_000), st.integers(-1, 1 << 24), st.integers(-1, 40),
    st.sampled_from(list(MemoryKind)),
)  # fmt: skip
CALLS = st.tuples(st.integers(0, 31), st.integers(0, 2), st.integers(0, 2_000_000), st.integers(0, 300_000))


@given(
    ops=st.lists(OPS, min_size=1, max_size=25),
    calls=st.lists(CALLS, max_size=41),
    kinds=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    data=st.data(),
)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_timeline_is_too_odd(ops, calls, kinds, data, made_timeline):
    """Whatever stands in a timeline, explaining it gives a report, with or without gains."""
    timeline = made_timeline(
        ops,
        calls,
        kinds,
        data.draw(
            st.lists(
                st.tuples(
                    st.integers(0, 4), st.integers(-1, 3), st.integers(-1, 45), st.integers(-1, 3), st.integers(-1, 45)
                ),
                max_size=12,
            )
        ),
    )
    report = explain(timeline)
    values = report.to_dict()
    for finding in values["findings"]:
        if finding["speedup"] is not None:
            assert 0 < finding["low"] <= finding["speedup"] <= finding["high"]
            assert np.isfinite(finding["high"])


@pytest.fixture(scope="module")
def made_timeline():
    from gapless.timeline.timeline import Calls, Device, Marks, Ops, Stream, Thread

    def make(ops, calls, kinds, marks) -> Timeline:
        calls = sorted(calls, key=lambda call: call[2])
        start = 0
        rows = []
        for kind, stream, gap, length, size, call, memory in ops:
            start += gap
            rows.append((kind, stream, start, start + length, size, call if call < len(calls) else -1, memory))
        return Timeline(
            ops=Ops.build(
                kind=[r[0] for r in rows], stream=[r[1] for r in rows], start=[r[2] for r in rows],
                end=[r[3] for r in rows], bytes=[r[4] for r in rows], call=[r[5] for r in rows],
                src=[r[6] for r in rows], dst=[r[6] for r in rows], device=[0] * len(rows), name=[0] * len(rows),
            ),
            calls=Calls.build(
                kind=[c[0] for c in calls], thread=[c[1] for c in calls], start=[c[2] for c in calls],
                end=[c[2] + c[3] for c in calls], correlation=range(1, len(calls) + 1), name=[0] * len(calls),
            ),
            marks=Marks.build(
                kind=[m[0] for m in marks], stream=[m[1] for m in marks],
                call=[m[2] if m[2] < len(calls) else -1 for m in marks], waits_on=[m[3] for m in marks],
                record=[m[4] for m in marks], start=[0] * len(marks), end=[0] * len(marks),
            ),
            devices=(Device(id=0, name="NVIDIA H200", sms=132),),
            streams=tuple(Stream(device=0, id=i, kind=StreamKind(k)) for i, k in enumerate(kinds)),
            threads=tuple(Thread(pid=1, tid=i) for i in range(3)), strings=("work",), source="made.json",
        )  # fmt: skip

    return make
