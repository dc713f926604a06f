"""The steps that all sources share, against the same said plainly."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.timeline.sources.assembly import CallsById, Places, new_groups, on_several, overlaps, repeated
from gapless.timeline.sources.columns import TRIPLE, Growing, Numbering, in_order
from gapless.timeline.sources.losses import Losses

small = st.integers(0, 6)


def table(rows: list[tuple[int, ...]], *names: str) -> dict[str, Any]:
    columns = zip(*rows, strict=True) if rows else [[] for _ in names]
    return {name: np.array(column, np.int64) for name, column in zip(names, columns, strict=True)}


@given(st.lists(st.tuples(small, small, small)))
def test_overlaps(rows: list[tuple[int, int, int]]) -> None:
    rows = sorted((stream, start, start + length) for start, length, stream in rows)
    rows.sort(key=lambda row: row[1])
    expected = sum(
        any(earlier[0] == row[0] and earlier[2] > row[1] for earlier in rows[:n]) for n, row in enumerate(rows)
    )
    columns = table(rows, "stream", "start", "end")
    assert overlaps(columns["stream"], columns["start"], columns["end"]) == expected


@given(st.lists(st.tuples(small, small, small)))
def test_repeated(rows: list[tuple[int, int, int]]) -> None:
    columns = in_order(table(rows, "start", "end", "name"))
    ordered = list(zip(*(columns[name].tolist() for name in ("start", "end", "name")), strict=True))
    expected = [row in ordered[:n] for n, row in enumerate(ordered)]
    assert repeated(columns, ("end", "name")).tolist() == expected


@given(st.lists(st.tuples(small, small)))
def test_on_several(rows: list[tuple[int, int]]) -> None:
    places: dict[int, set[int]] = defaultdict(set)
    for number, place in rows:
        places[number].add(place)
    columns = table(rows, "id", "place")
    assert on_several(columns["id"], columns["place"]).tolist() == [len(places[number]) > 1 for number, _ in rows]


@given(st.lists(st.tuples(small, small, small, st.booleans())), st.lists(st.integers(0, 8)))
def test_calls_by_id(rows: list[tuple[int, int, int, bool]], wanted: list[int]) -> None:
    spans = [(start, start + length, number, driver) for start, length, number, driver in rows]
    calls = in_order(table(spans, "start", "end", "correlation", "driver"))
    calls["driver"] = calls["driver"].astype(np.bool_)
    found, ambiguous = CallsById(calls).rows(np.array(wanted, np.int64))
    for number, row, doubt in zip(wanted, found.tolist(), ambiguous.tolist(), strict=True):
        candidates = [n for n in range(len(rows)) if calls["correlation"][n] == number and number > 0]
        if not candidates:
            assert (row, doubt) == (-1, False)
            continue
        runtime = [n for n in candidates if not calls["driver"][n]] or candidates
        assert row in runtime
        outer = [
            n for n in runtime
            if all(calls["start"][n] <= calls["start"][m] and calls["end"][n] >= calls["end"][m] for m in runtime)
        ]  # fmt: skip
        assert doubt == (not outer)
        assert doubt or row in outer


def test_places() -> None:
    device, stream = np.array([1, 0, 1, -1]), np.array([7, 7, -1, 4294967295])
    places = Places([(device, stream), (np.array([0]), np.array([20]))])
    assert places.streams == [(-1, 4294967295), (0, 7), (0, 20), (1, -1), (1, 7)]
    assert places.rows(device, stream).tolist() == [4, 1, 3, 0]
    assert places.rows(np.array([5, 0]), np.array([7, -1])).tolist() == [-1, -1]
    assert Places([]).rows(np.array([5]), np.array([7])).tolist() == [-1]


def test_new_groups() -> None:
    assert new_groups(np.array([1, 1, 2, 2]), np.array([3, 3, 3, 4])).tolist() == [True, False, True, True]
    assert new_groups(np.array([])).tolist() == []


@given(st.lists(st.tuples(small, small, small)), st.randoms(use_true_random=False))
def test_order_does_not_depend_on_how_rows_came(rows: list[tuple[int, int, int]], random: Any) -> None:
    names = ("start", "end", "name")
    rows = [(start, start + length, name) for start, length, name in rows]
    expected = sorted(rows, key=lambda row: (row[0], -row[1], row[2]))
    random.shuffle(rows)
    columns = in_order(table(rows, *names))
    assert list(zip(*(columns[name].tolist() for name in names), strict=True)) == expected


def test_order_leaves_its_input_alone() -> None:
    given_columns = table([(1, 2, 3), (1, 5, 4)], "start", "end", "name")
    in_order(given_columns)
    assert given_columns["end"].tolist() == [2, 5]


def test_numbering() -> None:
    numbers = Numbering()
    assert numbers.of(["b", "a", "b"]) == [0, 1, 0]
    assert numbers.of(["c", "a"]) == [2, 1]
    assert numbers.of([]) == []
    assert numbers.things() == ["b", "a", "c"]


def test_a_table_grows_by_batches() -> None:
    growing = Growing(name=np.int32, grid=TRIPLE)
    growing.add(name=[1, 2], grid=[(1, 2, 3), (4, 5, 6)])
    growing.add(name=[], grid=[])
    growing.add(name=[3], grid=[[7, 8, 9]])
    columns = growing.columns()
    assert columns["name"].tolist() == [1, 2, 3]
    assert columns["grid"].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    empty = Growing(name=np.int32, grid=TRIPLE).columns()
    assert (empty["name"].shape, empty["grid"].shape) == ((0,), (0, 3))


def test_losses_are_one_sentence_a_kind() -> None:
    losses = Losses()
    assert (losses.count, losses.sentences()) == (0, ())
    for _ in range(3):
        losses.add("Left out {events}: odd {braces}.")
    losses.add("Left out {events}: other.", 1)
    losses.add("Never.", 0)
    losses.add("As it is.", 1234)
    assert losses.sentences() == ("Left out 3 events: odd {braces}.", "Left out 1 event: other.", "As it is.")
    assert losses.count == 1238


def test_a_growing_table_refuses_batches_of_odd_columns() -> None:
    with pytest.raises(KeyError):
        Growing(name=np.int32, other=np.int32).add(name=[1])
