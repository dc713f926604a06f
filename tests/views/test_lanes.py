from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.model.kinds import Engine, OpKind
from gapless.timeline.measure import union
from gapless.timeline.timeline import Ops, Timeline
from gapless.views import lanes as ln


def spans(*pairs):
    return np.array(pairs, np.int64).reshape(-1, 2)


def test_cells_show_how_full_a_slice_is():
    busy = spans((0, 10), (15, 20), (30, 31))
    assert ln.cells(busy, 0, 40, 4, ascii_only=False) == "█▄ ▁"
    assert ln.cells(busy, 0, 40, 4, ascii_only=True) == "@= ."


def test_the_smallest_work_shows():
    assert ln.cells(spans((500_000, 500_001)), 0, 1_000_000, 10, ascii_only=False) == "     ▁    "


def test_marks_show_every_slice_that_a_span_touches():
    assert ln.marks(spans((19, 21), (0, 1), (0, 3), (90, 200)), 0, 100, 10, ascii_only=True) == "^^^      ^"


@pytest.mark.parametrize(
    ("start", "end", "origin", "width", "unit", "ticks"),
    [
        (0, 63_300_000, 0, 50, "ms", "╵0             ╵20             ╵40             ╵60"),
        (31_200_000, 31_900_000, 0, 60, "ms", "╵31.2            ╵31.4            ╵31.6            ╵31.8"),
        (1_000, 1_050, 1_000, 40, "ns", "╵0              ╵20             ╵40"),
        (5_000_000, 9_000_000, 5_000_000, 30, "ms", "╵0             ╵2"),
        (0, 3_000_000_000, 0, 36, "s", "╵0          ╵1          ╵2"),
    ],
)
def test_axis(start, end, origin, width, unit, ticks):
    assert ln.axis(start, end, origin, width, ascii_only=False) == (unit, ticks)


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**13), st.integers(12, 160))
def test_an_axis_fits_and_its_ticks_do_not_touch(start, length, width):
    _, ticks = ln.axis(start, start + length, 0, width, ascii_only=True)
    assert len(ticks) <= width
    assert "" not in ticks.split("|")[1:]


def test_a_name_one_column_too_long_keeps_its_ends():
    starts, ends = spans((0, 50), (50, 90), (90, 120))[:, 0], spans((0, 50), (50, 90), (90, 120))[:, 1]
    names = [["out0"], ["out1"], ["out2"]]
    drawn = ln.named(starts, ends, names, 0, 120, 12, ascii_only=False)
    assert [words for _, words, _ in drawn] == ["▐out0", "▐o…1", "▐━━"]
    assert [words for _, words, _ in ln.named(starts, ends, names, 0, 120, 12, ascii_only=True)] == [
        "|out0", "|o~1", "|--"
    ]  # fmt: skip


def test_a_short_window_needs_no_close_up(short):
    lanes = ln.lanes_of(short)
    assert lanes.close_up is None
    assert lanes.marked == (1, short.findings[0])
    assert list(lanes.busy) == [Engine.H2D, Engine.SM, Engine.D2H]


def test_a_close_up_shows_some_operations_around_a_span_of_the_costliest_finding(long):
    lanes = ln.lanes_of(long)
    left, right = lanes.close_up
    starts = long.timeline.ops.start[::3]
    assert 10 <= ((starts >= left) & (starts < right)).sum() <= 20
    costly = long.findings[0].spans
    assert ((costly[:, 0] >= left) & (costly[:, 1] <= right)).any()
    assert long.window[0] <= left < right <= long.window[1]


def test_a_close_up_without_spans_shows_the_middle(long):
    report = replace(long, findings=())
    left, right = ln.lanes_of(report).close_up
    middle = sum(long.window) // 2
    assert left < middle < right
    assert ln.lanes_of(report).marked is None


def test_a_span_longer_than_some_operations_is_shown_whole(long):
    around = (100_000_000, 200_000_000)
    finding = replace(long.findings[0], spans=spans(around))
    left, right = ln.lanes_of(replace(long, findings=(finding,))).close_up
    assert left < around[0]
    assert right > around[1]


def test_the_span_enlarged_is_one_of_those_that_cost_most():
    many_short = [(i * 100, i * 100 + 1) for i in range(50)]
    few_long = [(6000, 6400), (7000, 7401), (8000, 8402)]
    assert ln._typical(spans(*many_short, *few_long)) == (8000, 8402)
    assert ln._typical(spans(*many_short)) == many_short[25]


def test_a_fault_is_marked_before_a_verdict_that_stands_above_it(long):
    verdict = replace(long.findings[1], spans=spans((0, 5)))
    report = replace(long, findings=(verdict, long.findings[0]))
    assert ln.lanes_of(report).marked == (2, long.findings[0])


def test_lanes_of_nothing(short):
    assert ln.lanes_of(replace(short, timeline=Timeline(), window=(0, 0))) is None
    assert ln.lanes_of(replace(short, device_row=1)) is None


def test_peer_copies_have_a_lane_where_there_are_any(short):
    ops = Ops.build(kind=[OpKind.P2P, OpKind.KERNEL], device=[0, 0], start=[0, 5], end=[4, 9])
    lanes = ln.lanes_of(replace(short, timeline=Timeline(ops=ops), window=(0, 9)))
    assert list(lanes.busy) == [Engine.H2D, Engine.SM, Engine.D2H, Engine.PEER]
    assert lanes.busy[Engine.PEER].tolist() == [[0, 4]]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 9)), min_size=30, max_size=60), st.integers(0, 320))
def test_a_close_up_lies_in_the_window_and_is_much_shorter(rows, at):
    rows = sorted((s, s + d) for s, d in rows)
    starts, ends = np.array(rows).T
    start, end = int(starts.min()), int(ends.max())
    got = ln._close_up(starts, ends, union(np.array([at]), np.array([at + 3])), start, end)
    assert got is None or (start <= got[0] < got[1] <= end and (got[1] - got[0]) * 3 < end - start)
