"""Memory of results that is used again, and only when nobody has it any more."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from gapless.runtime.pipeline import Pipeline
from gapless.runtime.stock import LEAST, Stock

ROWS = LEAST // 4


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_a_result_that_is_let_go_of_is_used_again() -> None:
    x = np.arange(ROWS, dtype=np.float32)
    seen: list[int] = []
    with Pipeline(lambda a: a + 1, device="host") as pipe:
        for number in range(6):
            y = pipe(x + number)  # the last result is still held meanwhile
            assert np.array_equal(y, x + number + 1)
            seen.append(address(y))
    assert len(set(seen)) == 2


def test_results_that_are_kept_keep_their_values() -> None:
    x = np.arange(ROWS, dtype=np.float32)
    with Pipeline(lambda a: a + 1, device="host") as pipe:
        kept = [pipe(x + number) for number in range(5)]
        part = pipe(x)[3:7]  # a part is enough to hold it
        kept += [pipe(x + number) for number in range(5, 8)]
    assert all(np.array_equal(y, x + number + 1) for number, y in enumerate(kept))
    assert part.tolist() == [4, 5, 6, 7]
    assert len({address(y) for y in kept}) == 8


def test_no_more_than_two_results_are_known() -> None:
    stock = Stock()
    dead: list[weakref.ref[np.ndarray]] = []
    for _ in range(6):
        array = stock.take((ROWS,), np.dtype(np.float32))
        assert isinstance(array.base, np.ndarray)
        dead.append(weakref.ref(array.base))
        stock.take((ROWS * 2,), np.dtype(np.float32))  # of another size: it takes the place of the first
    del array
    gc.collect()
    assert sum(ref() is not None for ref in dead) <= 2
    stock.clear()
    assert all(ref() is None for ref in dead)


def test_small_results_are_plain_arrays() -> None:
    assert Stock().take((10,), np.dtype(np.int8)).base is None
