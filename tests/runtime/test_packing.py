"""Items that are packed come back as they went, however they lie in memory."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.model.errors import GaplessError
from gapless.runtime.chunks import batches
from gapless.runtime.devices.simulated import Simulated
from gapless.runtime.pipeline import Pipeline

X = np.arange(240.0).reshape(24, 10)


def affine(a: Any) -> Any:
    return 2 * a + 1


def views() -> st.SearchStrategy[np.ndarray]:
    """Items of one or more rows out of X, with every step from row to row and every way to make a row a table."""
    start, step, count = st.integers(0, 11), st.sampled_from([-3, -1, 1, 2, 5]), st.integers(1, 3)

    def cut(start: int, step: int, count: int, how: str) -> np.ndarray:
        rows = X[start :: abs(step)][:count][:: 1 if step > 0 else -1]
        row = X[start]
        return {
            "rows": rows, "new axis": row[None], "one of a step": X[start : start + 2 : 2], "turned": rows[:1][::-1],
            "broadcast": np.broadcast_to(row, (1, 10)), "columns": X[start : start + 1, :10], "copy": rows.copy(),
        }[how]  # fmt: skip

    hows = st.sampled_from(["rows", "new axis", "one of a step", "turned", "broadcast", "columns", "copy"])
    return st.builds(cut, start, step, count, hows)


@settings(max_examples=150, deadline=None)
@given(st.lists(views(), min_size=1, max_size=12), st.sampled_from([True, 200, "1 KiB"]), st.booleans())
def test_views_of_one_array_in_any_order(items: list[np.ndarray], pack: Any, simulated: bool) -> None:
    with Pipeline(affine, device=Simulated() if simulated else "host") as pipe:
        for got, item in zip(pipe.stream(items, pack=pack), items, strict=True):
            assert np.array_equal(got, affine(item))
        (batch,) = pipe.stream([items])
        for got, item in zip(batch, items, strict=True):
            assert np.array_equal(got, affine(item))


@pytest.mark.parametrize("count", [1, 2, 7])
def test_items_of_one_row_of_an_array_that_steps_over_others(count: int) -> None:
    """Each is whole, whatever its step from row to row says, and joined by it they would be others' memory."""
    vector = np.arange(64.0)
    items = [vector[i : i + 2 : 2] for i in range(count)]
    with Pipeline(affine, device="host") as pipe:
        assert [got.tolist() for got in pipe.stream(items, pack=True)] == [[2.0 * i + 1] for i in range(count)]


def test_a_pack_may_be_larger_than_all_there_is() -> None:
    with Pipeline(affine, device="host") as pipe:
        for source in (X, list(X), iter(X)):
            assert np.array_equal(np.stack(list(pipe.stream(source, pack=1 << 80))), affine(X))
            assert pipe.report().chunks == 1


@pytest.mark.parametrize("kind", ["alike", "not alike", "tuples", "an item that is none"])
@pytest.mark.parametrize("pack", [True, 300, 80])
def test_what_goes_wrong_in_a_source_comes_after_the_items_before_it(kind: str, pack: Any) -> None:
    def source() -> Iterator[Any]:
        for row in range(7):
            yield (
                (X[row],) if kind == "tuples" else X[row : row + 2] if kind == "not alike" and row % 3 == 1 else X[row]
            )
        if kind == "an item that is none":
            yield object()
        raise OSError("on purpose")

    got: list[Any] = []
    error = GaplessError if kind == "an item that is none" else OSError
    with Pipeline(affine, device="host") as pipe, pytest.raises(error) as caught:
        got.extend(pipe.stream(source(), pack=pack))
    assert "in place of chunk" in caught.value.__notes__[0]
    assert len(got) == 7
    assert all(np.array_equal(one.reshape(-1)[:10], affine(X[row])) for row, one in enumerate(got))


def test_items_that_lie_side_by_side_in_two_arrays() -> None:
    """The array that the first is cut out of ends with it."""
    block = bytearray(np.arange(20.0).tobytes())
    one, other = np.frombuffer(block, np.float64, 10), np.frombuffer(block, np.float64, 10, 80)
    items = [one[:5], one[5:], other[:5], other[5:]]
    with Pipeline(affine, device="host") as pipe:
        got = np.concatenate(list(pipe.stream(items, pack=True)))
    assert got.tolist() == affine(np.arange(20.0)).tolist()


def test_what_items_make_up_is_for_reading() -> None:
    """They are the user's, however they are joined."""
    table = np.zeros((4, 10))
    for items in (list(table), [np.frombuffer(table, np.float64, 10, 80 * row) for row in range(4)]):
        (chunk,) = batches([items])
        (joined,) = chunk.inputs
        assert isinstance(joined, np.ndarray)
        assert joined.shape == (40,)
        assert np.shares_memory(joined, table)
        assert not joined.flags.writeable


class Shorter(list[Any]):
    """A list that says other lengths than it has, as one that another thread fills may."""

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize("simulated", [False, True])
def test_a_list_is_looked_at_once(simulated: bool) -> None:
    """What its items hold is read from memory, so that nothing may rest on a list that is someone else's."""
    items = Shorter([X[1], X[0], *X[2:-1]])
    with Pipeline(affine, device=Simulated() if simulated else "host") as pipe:
        (got,) = pipe.stream([items])
    assert np.array_equal(got, affine(np.stack(list(items))))


def test_items_stay_when_their_list_is_filled_anew() -> None:
    """Memory of files, joined where it lies, would be gone."""

    class Mapped(np.ndarray):
        """Not looked at by its words."""

    file = bytearray(X.tobytes())
    items = [Mapped(10, np.float64, file, 80 * row) for row in range(24)]
    known = [weakref.ref(item) for item in items]
    (chunk,) = batches([items])
    assert isinstance(chunk.inputs[0], np.ndarray)
    items.clear()
    assert all(item() is not None for item in known)


def test_arrays_and_tuples_do_not_share_a_pack() -> None:
    items = [(X[:1],), X[1:2], X[2:3], (X[3:4],)]
    with Pipeline(affine, device="host") as pipe:
        for got, row in zip(pipe.stream(items, pack=True), range(4), strict=True):
            assert np.array_equal(got, affine(X[row : row + 1]))
        for batch in ([X[:1], (X[1:2],)], [(X[:1],), X[1:2]], [(X[:1], X[:1]), (X[1:2],)], [()]):
            with pytest.raises(GaplessError, match="all arrays, or all tuples"):
                list(pipe.stream([batch]))
        for source in ([()], iter([(X,), ()])):
            with pytest.raises(GaplessError, match="empty tuple"):
                list(pipe.stream(source, pack=True))
            with pytest.raises(GaplessError, match="empty tuple"):
                list(pipe.stream([()]))


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_rows_of_other_kinds_of_arrays_are_items_as_iterating_gives_them() -> None:
    with Pipeline(affine, device="host") as pipe:
        matrix = np.matrix(X)
        for got, row in zip(pipe.stream(matrix, pack=True), matrix, strict=True):
            assert got.shape == row.shape == (1, 10)
            assert np.array_equal(got, affine(np.asarray(row)))
        with pytest.raises(GaplessError, match="has a mask"):
            list(pipe.stream(np.ma.masked_less(X, 3), pack=True))
        with pytest.raises(GaplessError, match="has a mask"):
            pipe(np.ma.masked_less(X, 3))
