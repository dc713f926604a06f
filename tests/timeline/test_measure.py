"""The measures against a brute force that paints every nanosecond."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gapless.model.errors import GaplessError
from gapless.model.kinds import ENGINE_OF, CallKind, Engine, OpKind
from gapless.timeline import measure as m
from gapless.timeline.timeline import Calls, Device, Ops, RangeKind, Ranges, Stream, Thread, Timeline

SPAN = 60

pairs = st.lists(st.tuples(st.integers(0, SPAN), st.integers(0, 12)).map(lambda p: (p[0], min(p[0] + p[1], SPAN))))
windows = st.tuples(st.integers(0, SPAN), st.integers(0, SPAN)).map(sorted)


def made(intervals):
    return m.union(np.array([s for s, _ in intervals], np.int64), np.array([e for _, e in intervals], np.int64))


def painted(intervals):
    line = np.zeros(SPAN, bool)
    for start, end in intervals:
        line[start:end] = True
    return line


def window_mask(start, end):
    return painted([(start, end)])


def assert_is_set(intervals):
    assert intervals.dtype == np.int64
    assert intervals.shape[1:] == (2,)
    assert (intervals[:, 0] < intervals[:, 1]).all()
    assert (intervals[:-1, 1] < intervals[1:, 0]).all(), "disjoint, sorted and not touching"


@given(pairs)
def test_union_covers_what_any_interval_covers(a):
    got = made(a)
    assert_is_set(got)
    assert (painted(got) == painted(a)).all()
    assert m.total(got) == painted(a).sum()


@given(pairs, pairs)
def test_intersect_and_subtract(a, b):
    both, rest = m.intersect(made(a), made(b)), m.subtract(made(a), made(b))
    assert_is_set(both)
    assert_is_set(rest)
    assert (painted(both) == (painted(a) & painted(b))).all()
    assert (painted(rest) == (painted(a) & ~painted(b))).all()


@given(pairs, windows)
def test_clip_and_complement(a, window):
    inside, gaps = m.clip(made(a), *window), m.complement(made(a), *window)
    assert_is_set(inside)
    assert_is_set(gaps)
    assert (painted(inside) == (painted(a) & window_mask(*window))).all()
    assert (painted(gaps) == (~painted(a) & window_mask(*window))).all()


@given(st.lists(pairs, max_size=4), windows)
def test_time_at_depth(sets, window):
    depth = np.sum([painted(s) for s in sets], axis=0, initial=0) * np.ones(SPAN, int)
    expected = [int(((depth == d) & window_mask(*window)).sum()) for d in range(len(sets) + 1)]
    assert m.time_at_depth(*map(made, sets), start=window[0], end=window[1]) == expected


@given(pairs, st.integers(1, 10), st.integers(0, 20), st.integers(1, 4))
def test_density_is_the_covered_fraction_of_every_cell(a, cells, start, width):
    line = np.concatenate((painted(a), np.zeros(SPAN, bool)))[start : start + cells * width]
    got = m.density(made(a), start, start + cells * width, cells)
    assert got == pytest.approx(line.reshape(cells, width).mean(axis=1))


def test_density_of_nothing():
    assert m.density(made([]), 0, 10, 3).tolist() == [0, 0, 0]
    assert m.density(made([(0, 5)]), 5, 5, 2).tolist() == [0, 0]


kinds = st.sampled_from(list(OpKind))
operations = st.lists(
    st.tuples(st.integers(0, SPAN), st.integers(0, 12), kinds, st.integers(0, 1), st.integers(-1, 5)), max_size=12
)


@example([(0, 2, OpKind.KERNEL, 1, 0)], (1, 1))  # a window without length, in the midst of an operation
@given(operations, windows)
def test_measures_against_painting(rows, window):
    rows = sorted(((s, min(s + d, SPAN), kind, device, size) for s, d, kind, device, size in rows), key=lambda r: r[0])
    start, end = window
    timeline = Timeline(
        ops=Ops.build(
            **{name: [row[i] for row in rows] for i, name in enumerate(("start", "end", "kind", "device", "bytes"))}
        )
    )
    got = m.measure(timeline, device=1, start=start, end=end)
    mine = [row for row in rows if row[3] == 1]
    inside = window_mask(start, end)
    lines = {e: painted([r[:2] for r in mine if ENGINE_OF[r[2]] is e]) & inside for e in m.DEVICE_ENGINES}
    depth = sum(line.astype(int) for line in lines.values())

    assert got.wall_ns == end - start
    assert got.idle_ns == ((depth == 0) & inside).sum()
    assert got.overlapped_ns == (depth >= 2).sum()
    assert got.all_ns == (lines[Engine.H2D] & lines[Engine.SM] & lines[Engine.D2H]).sum()
    for engine, line in lines.items():
        use = got.engines[engine]
        assert (painted(use.intervals) == line).all()
        assert use.busy_ns == line.sum()
        assert use.exposed_ns == (0 if engine is Engine.SM else (line & ~lines[Engine.SM]).sum())
        served = [r for r in mine if ENGINE_OF[r[2]] is engine]
        assert use.ops == sum(
            painted([r[:2]])[start:end].any() or (r[0] == r[1] and start <= r[0] < end) for r in served
        )
        if engine in m.COPY_ENGINES:
            known = [r for r in served if r[4] >= 0]
            share = sum(r[4] * painted([r[:2]])[start:end].sum() / (r[1] - r[0]) for r in known if r[1] > r[0])
            share += sum(r[4] for r in known if r[0] == r[1] and start <= r[0] < end)
            assert use.bytes == pytest.approx(share, abs=0.5)
            busy = (painted([r[:2] for r in known]) & inside).sum()
            assert use.gb_per_s == pytest.approx(use.bytes / busy if busy else 0)
        else:
            assert (use.bytes, use.gb_per_s) == (0, 0)


def test_large_times_stay_exact():
    base = 1_700_000_000_000_000_001  # ns since 1970: no float holds these exactly
    timeline = Timeline(ops=Ops.build(kind=[OpKind.H2D], device=[0], start=[base], end=[base + 3], bytes=[6]))
    got = m.measure(timeline, device=0, start=base, end=base + 7)
    assert (got.engines[Engine.H2D].busy_ns, got.idle_ns, got.engines[Engine.H2D].gb_per_s) == (3, 4, 2.0)


def test_a_million_operations_take_no_loop_in_python():
    n = 1_000_000
    starts = np.arange(n, dtype=np.int64) * 100
    timeline = Timeline(
        ops=Ops.build(kind=np.arange(n) % 3, device=np.zeros(n), start=starts, end=starts + 150, bytes=np.full(n, 1000))
    )
    began = time.process_time()
    got = m.measure(timeline, device=0, start=0, end=n * 100)
    assert time.process_time() - began < 2  # about 0.2 s; a loop over the operations takes longer than this
    assert got.engines[Engine.SM].ops == 333_334


def program(ranges=(), ops=(), calls=(), names=()):
    """Build a timeline of one device from rows of (start, end, ...)."""
    ranges, ops, calls = sorted(ranges), sorted(ops), sorted(calls)
    return Timeline(
        ops=Ops.build(
            start=[o[0] for o in ops], end=[o[1] for o in ops], kind=[o[2] for o in ops], call=[o[3] for o in ops],
            device=[0] * len(ops), stream=[0] * len(ops),
        ),
        calls=Calls.build(
            start=[c[0] for c in calls], end=[c[1] for c in calls], thread=[0] * len(calls),
            kind=[CallKind.LAUNCH] * len(calls),
        ),
        ranges=Ranges.build(
            start=[r[0] for r in ranges], end=[r[1] for r in ranges], name=[r[2] for r in ranges],
            thread=[r[3] if len(r) > 3 else 0 for r in ranges], kind=[RangeKind.STEP] * len(ranges),
        ),
        devices=(Device(id=0),), streams=(Stream(device=0, id=7),), threads=(Thread(pid=1, tid=1),) * 2, strings=names,
    )  # fmt: skip


# Three steps on the host at 0, 100 and 200; the device lags behind: it works on step 0 from 50 to 180 and so on.
LAGGING = program(
    ranges=[(0, 90, 0), (100, 190, 1), (200, 290, 2)],
    calls=[(10, 12), (110, 112), (210, 212), (214, 216)],
    ops=[(50, 180, OpKind.KERNEL, 0), (180, 310, OpKind.KERNEL, 1), (310, 440, OpKind.KERNEL, 2),
         (440, 470, OpKind.D2H, 3)],
    names=("ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6"),
)  # fmt: skip


def test_a_step_lasts_until_its_kernels_are_done():
    steps = m.steps_of(LAGGING, 0)
    assert steps.numbers.tolist() == [4, 5, 6]
    assert steps.bounds.tolist() == [0, 180, 310, 470]
    assert steps.durations.tolist() == [180, 130, 160]


def test_time_between_ranges_belongs_to_the_later_step_only_if_the_device_was_done():
    idle_between = program(
        ranges=[(0, 50, 0), (300, 340, 1)],
        calls=[(5, 6), (305, 306)],
        ops=[(10, 40, OpKind.KERNEL, 0), (310, 330, OpKind.KERNEL, 1)],
        names=("a", "b"),
    )
    assert m.steps_of(idle_between, 0).bounds.tolist() == [0, 300, 340]


def test_a_copy_that_trails_into_the_next_steps_stretches_only_the_last():
    trailing = program(
        ranges=[(0, 50, 0), (50, 100, 1)],
        calls=[(5, 6), (7, 8), (55, 56)],
        ops=[(10, 40, OpKind.KERNEL, 0), (40, 500, OpKind.D2H, 1), (60, 90, OpKind.KERNEL, 2)],
        names=("a", "b"),
    )
    assert m.steps_of(trailing, 0).bounds.tolist() == [0, 50, 100]


def test_steps_of_the_thread_that_marks_most_and_numbers_only_where_all_have_one():
    two_threads = program(ranges=[(0, 9, 0, 1), (10, 19, 1, 1), (3, 4, 2, 0)], names=("batch 7", "batch 8", "other 1"))
    assert m.steps_of(two_threads, 0).names == ("batch 7", "batch 8")
    assert m.steps_of(two_threads, 0).numbers.tolist() == [7, 8]
    unnumbered = program(ranges=[(0, 9, 0), (10, 19, 0)], names=("iteration",))
    assert m.steps_of(unnumbered, 0).numbers.tolist() == [0, 1]
    falling = program(ranges=[(0, 9, 0), (10, 19, 1)], names=("step 2", "step 1"))
    assert m.steps_of(falling, 0).numbers.tolist() == [0, 1]


def test_no_steps():
    assert len(m.steps_of(Timeline(), 0)) == 0
    assert m.step_times(Timeline(), device=0, start=0, end=10) is None


def test_step_times_count_the_first_step_though_it_begins_before_the_device_works():
    start, end = m.window_of(LAGGING, device=0)
    got = m.step_times(LAGGING, device=0, start=start, end=end)
    assert got == m.StepSummary(count=3, median_ns=160, p95_ns=180, slowest="ProfilerStep#4", slowest_ns=180)
    only = m.step_times(LAGGING, device=0, start=180, end=310)
    assert only == m.StepSummary(count=1, median_ns=130, p95_ns=130, slowest="ProfilerStep#5", slowest_ns=130)


def test_windows():
    assert m.window_of(LAGGING, device=0) == (50, 470)
    assert m.window_of(LAGGING, device=1) == (0, 0)
    assert m.window_of(LAGGING, device=0, start_ns=100) == (100, 470)
    assert m.window_of(LAGGING, device=0, end_ns=100) == (50, 100)
    assert m.window_of(LAGGING, device=0, start_ns=100, end_ns=5000) == (100, 470)
    assert m.window_of(LAGGING, device=0, start_ns=0, end_ns=100) == (50, 100)
    assert m.window_of(LAGGING, device=0, steps=(4, 5)) == (0, 180)
    assert m.window_of(LAGGING, device=0, steps=(5, 7)) == (180, 470)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": (4, 9)}, "marks steps 4 to 6, so all of them are 4:7"),
        ({"steps": (0, 5)}, "marks steps 4 to 6"),
        ({"steps": (5, 5)}, "5:10 is 5 to 9"),
        ({"steps": (4, 5), "start_ns": 3}, "not both"),
        ({"start_ns": 50, "end_ns": 50}, "empty: 0 ms is not after 0 ms"),
        ({"start_ns": 5000}, "from 0.00495 ms on lies outside of this timeline: .* it is 0.00042 ms long"),
        ({"start_ns": 470, "end_ns": 480}, "from 0.00042 ms to 0.00043 ms lies outside"),
        ({"end_ns": 50}, "lies outside"),
    ],
)
def test_windows_that_are_none(options, words):
    with pytest.raises(GaplessError, match=words):
        m.window_of(LAGGING, device=0, **options)


def test_steps_asked_of_a_timeline_without_marks():
    with pytest.raises(GaplessError, match="marks no steps"):
        m.window_of(Timeline(), device=0, steps=(0, 1))


def test_the_busiest_device():
    timeline = Timeline(
        ops=Ops.build(kind=[0, 0, 0], device=[0, 2, -1], start=[0, 0, 0], end=[5, 9, 100], bytes=[-1, -1, -1])
    )
    assert m.busiest_device(timeline) == 2
    assert m.busiest_device(Timeline()) == 0
    still = Timeline(ops=Ops.build(kind=[0], device=[1], start=[4], end=[4]))
    assert m.busiest_device(still) == 1
