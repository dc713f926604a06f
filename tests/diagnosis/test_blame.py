"""What must hold of blame whatever the timeline: sums, and that names, clocks and the order of rows do not matter."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gapless.diagnosis.blame import blame
from gapless.diagnosis.explain import explain
from gapless.diagnosis.rates import needed, pinned_rates
from gapless.diagnosis.streams import infer_kinds
from gapless.diagnosis.waits import Reason
from gapless.diagnosis.work import gather
from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.timeline.measure import total, union
from gapless.timeline.timeline import Calls, Device, Marks, Ops, Ranges, Stream, Thread, Timeline

US, MS, KIB, MIB = 1_000, 1_000_000, 1 << 10, 1 << 20
KINDS = (StreamKind.BLOCKING, StreamKind.NON_BLOCKING, StreamKind.PER_THREAD)
DEVICE_WORK = (OpKind.KERNEL, OpKind.H2D, OpKind.D2H, OpKind.D2D, OpKind.H2H, OpKind.MEMSET)
PROGRAMS = settings(max_examples=30, deadline=None)


@st.composite
def programs(draw, made) -> Timeline:
    """Run a random program on a made device."""
    gpu = made.Gpu(tells_kinds=draw(st.booleans()))
    hosts = [gpu.host() for _ in range(draw(st.integers(1, 2)))]
    streams = [0] + [gpu.stream(draw(st.sampled_from(KINDS))) for _ in range(draw(st.integers(0, 3)))]
    acts = draw(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 3), st.integers(0, 7)), min_size=1, max_size=40))
    for what, where, much in acts:
        host, stream, size = hosts[much % len(hosts)], streams[where % len(streams)], 1 << (8 + 2 * much)
        pinned = bool(much % 2)
        if what <= 2:
            host.kernel(stream, 1 + 20 * US * much, f"k{much % 3}")
        elif what <= 4:
            host.h2d(stream, size, pinned=pinned, sync=what == 4 and where == 0)
        elif what <= 6:
            host.d2h(stream, size, pinned=pinned, sync=what == 6 and where == 0)
        elif what == 7:
            host.sync(stream if much % 2 else None)
        elif what == 8:
            host.malloc() if much % 2 else host.free()
        elif what == 9:
            host.work(30 * US * much**2)
        elif what == 10:
            host.memset(stream)
        else:
            host.record("event", stream)
            host.wait("event", streams[much % len(streams)], told=bool(where % 2))
    hosts[0].kernel(0, US)
    return gpu.timeline()


def blamed(timeline: Timeline):
    start, end = timeline.window()
    work = gather(timeline, 0, start, end)
    assume(len(work.ops))  # work that takes no time lies in no window
    work = gather(infer_kinds(work), 0, start, end)
    best = needed(work, pinned_rates(work, timeline.devices[0]))
    return work, blame(work, best), best


@PROGRAMS
@given(data=st.data())
def test_every_gap_is_charged_in_full_and_no_more(data, made):
    work, blame_, best = blamed(data.draw(programs(made)))
    waits = blame_.waits
    own = (waits.reason == Reason.SLOW_COPY) & (work.engine[waits.op] == blame_.engine) & (waits.by == waits.op)
    gaps = waits.take(~own)
    assert (waits.cost > 0).all()
    for begin, end in {(int(s), int(e)) for s, e in zip(gaps.start, gaps.end, strict=True)}:
        assert gaps.cost[(gaps.start == begin) & (gaps.end == end)].sum() == end - begin
    engine = work.engine == blame_.engine
    busy = total(union(work.ops.start[engine], work.ops.end[engine]))
    assert blame_.idle == work.end - work.start - busy
    assert gaps.cost.sum() + blame_.turnaround == blame_.idle
    assert waits.take(own).cost.sum() == (work.ops.end - work.ops.start - best)[engine].sum()


@PROGRAMS
@given(data=st.data())
def test_costs_are_sane_and_the_report_is_plain_data(data, made):
    report = explain(data.draw(programs(made)))
    text = json.dumps(report.to_dict(), allow_nan=False)
    assert "nan" not in text.lower().split()
    for finding in report.findings:
        assert 0 <= finding.cost_ms <= report.wall_ms * 1.0001
        assert finding.count >= 1
        assert all(word not in f"{finding.title} {finding.evidence}" for word in (" 0 times", " by  ", "(  )", " nan"))
    assert sum(f.cost_ms for f in report.findings if not f.verdict) <= report.wall_ms * 1.0001


@PROGRAMS
@given(data=st.data())
def test_names_clocks_and_rows_do_not_matter(data, made):
    timeline = data.draw(programs(made))
    expected = said_of(timeline)
    renamed = timeline.with_streams([replace(s, id=1000 - s.id) for s in timeline.streams])
    assert said_of(renamed) == expected
    assert said_of(shifted(timeline, 10**15)) == expected
    order = np.array(data.draw(st.permutations(range(len(timeline.ops)))))
    assert said_of(replace(timeline, ops=timeline.ops.take(order))) == expected
    assert said_of(streams_moved(timeline, data.draw(st.permutations(range(len(timeline.streams)))))) == expected


def said_of(timeline: Timeline) -> list[tuple[str, float, int]]:
    _, blame_, _ = blamed(timeline)
    costs = [(Reason(r).name, int(blame_.waits.cost[blame_.waits.reason == r].sum())) for r in Reason]
    return [(blame_.engine.name, blame_.busy, blame_.idle), *costs]


def shifted(timeline: Timeline, by: int) -> Timeline:
    def moved(table):
        return replace(table, start=table.start + by, end=table.end + by)

    return replace(timeline, ops=moved(timeline.ops), calls=moved(timeline.calls), marks=moved(timeline.marks),
                   ranges=moved(timeline.ranges))  # fmt: skip


def streams_moved(timeline: Timeline, order: list[int]) -> Timeline:
    place = np.argsort(order)
    at = np.append(place, -1)  # -1 stays unknown
    marks = replace(timeline.marks, stream=at[timeline.marks.stream], waits_on=at[timeline.marks.waits_on])
    return replace(timeline, ops=replace(timeline.ops, stream=place[timeline.ops.stream]), marks=marks,
                   streams=tuple(timeline.streams[i] for i in order))  # fmt: skip


# Timelines that no program makes


@st.composite
def odd_timelines(draw, kinds=DEVICE_WORK) -> Timeline:
    """Columns with anything in them: no time at all, overlaps on one stream, calls and kinds that fit nothing."""
    count = draw(st.integers(1, 12))
    calls = draw(st.integers(0, 6))
    times = st.integers(0, draw(st.sampled_from([3, 50 * US, 10 * MS])))
    rows = {"min_size": count, "max_size": count}
    start = np.array(draw(st.lists(times, **rows)), np.int64)
    length = np.array(draw(st.lists(times, **rows)), np.int64)
    call_start = np.sort(np.array(draw(st.lists(times, min_size=calls, max_size=calls)), np.int64))
    call_length = np.array(draw(st.lists(times, min_size=calls, max_size=calls)), np.int64)
    memory = st.sampled_from(list(MemoryKind))
    return Timeline(
        ops=Ops.build(
            kind=draw(st.lists(st.sampled_from(kinds), **rows)),
            name=draw(st.lists(st.integers(0, 1), **rows)),
            device=[0] * count,
            stream=draw(st.lists(st.integers(0, 2), **rows)),
            start=start,
            end=start + length,
            bytes=draw(st.lists(st.sampled_from([-1, 0, 4, 1 << 16, 1 << 30]), **rows)),
            src=draw(st.lists(memory, **rows)),
            dst=draw(st.lists(memory, **rows)),
            call=draw(st.lists(st.integers(-1, calls - 1), **rows)),
        ),
        calls=Calls.build(
            kind=draw(st.lists(st.sampled_from(list(CallKind)), min_size=calls, max_size=calls)),
            name=[2] * calls,
            thread=draw(st.lists(st.integers(0, 1), min_size=calls, max_size=calls)),
            start=call_start,
            end=call_start + call_length,
        ),
        devices=(Device(id=0),),
        streams=tuple(Stream(device=0, id=i, kind=draw(st.sampled_from(list(StreamKind)))) for i in range(3)),
        threads=(Thread(pid=1, tid=1), Thread(pid=2, tid=2)) if calls else (),
        strings=("kernel", "copy", "cudaSomething"),
    )


@settings(max_examples=120, deadline=None)
@given(timeline=odd_timelines(kinds=tuple(OpKind)))
def test_nothing_odd_breaks_the_sums(timeline):
    work, blame_, _ = blamed(timeline)
    assert (blame_.waits.cost > 0).all()
    assert 0 <= blame_.turnaround <= blame_.idle <= work.end - work.start


@settings(max_examples=60, deadline=None)
@given(timeline=odd_timelines())
def test_nothing_odd_breaks_it(timeline):
    report = explain(timeline)
    json.dumps(report.to_dict(), allow_nan=False)
    assert all(0 <= f.cost_ms <= report.wall_ms * 1.0001 for f in report.findings)
    assert sum(f.cost_ms for f in report.findings if not f.verdict) <= report.wall_ms * 1.0001


HOSTS = {"launch-bound", "host-bound", "host-synchronize", "synchronous-copy", "allocation-in-loop", "first-use",
         "small-copies"}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(timeline=odd_timelines())
def test_no_host_is_blamed_of_which_nothing_is_known(timeline):
    unknown = np.full(len(timeline.ops), -1, np.int32)
    silent = replace(timeline, ops=replace(timeline.ops, call=unknown), calls=Calls.build(), threads=())
    assert not HOSTS & {f.cause for f in explain(silent).findings}


@pytest.mark.parametrize("kind", DEVICE_WORK)
@pytest.mark.parametrize("length", [0, 1, MS])
def test_a_single_operation_has_no_fault(kind, length):
    timeline = Timeline(
        ops=Ops.build(kind=[kind], device=[0], stream=[0], start=[5], end=[5 + length], name=[0]),
        marks=Marks.build(),
        ranges=Ranges.build(),
        devices=(Device(id=0),),
        streams=(Stream(device=0, id=7),),
        strings=("it",),
    )
    report = explain(timeline)
    assert not [f.cause for f in report.findings if not f.verdict]
