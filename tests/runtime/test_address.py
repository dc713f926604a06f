"""The address of an array, whatever its kind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapless.runtime.devices import address as module
from gapless.runtime.devices.address import address, addresses_if_alike, by_interface
from staged_host import library


def test_it_is_the_one_of_the_array_interface(tmp_path: Path) -> None:
    base = np.zeros((5, 7), np.complex128)
    frozen = base[1:]
    frozen.flags.writeable = False
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(9,))
    fields = np.zeros(3, [("a", "i4"), ("b", "f8")])
    kinds = (base, base[3:, 2::3], base[::-1], frozen, np.zeros(0), np.array(1, np.float32), base.view("u1"),
             mapped[2:], np.frombuffer(b"12345678", np.int32), fields["b"])  # fmt: skip
    for array in kinds:
        assert address(array) == by_interface(array) == array.__array_interface__["data"][0]


ARRAYS = np.arange(60, dtype=np.float32).reshape(5, 12)


@pytest.mark.parametrize("by", ["c", "words", "attributes"])
@pytest.mark.parametrize(
    ("arrays", "are_alike"),
    [
        (list(ARRAYS), True),
        ([ARRAYS[3], ARRAYS[0], ARRAYS[0]], True),
        ([ARRAYS[0]], True),
        ([np.zeros(0), np.zeros(0)], True),
        ([np.array(1), np.array(2)], True),
        ([ARRAYS[0], ARRAYS[1, :11]], False),
        ([ARRAYS[0], ARRAYS[1].view(np.int32)], False),
        ([ARRAYS[0], ARRAYS[1].reshape(3, 4)], False),
        ([ARRAYS[0].reshape(3, 4), ARRAYS[1].reshape(4, 3)], False),
        ([ARRAYS[:, 0], ARRAYS[:, 1]], False),
        ([ARRAYS[0], ARRAYS[1][::-1]], False),
        ([ARRAYS[0], ARRAYS[1].view(np.recarray)], False),
        ([ARRAYS[0], 7.0], False),
        ([ARRAYS[0], ARRAYS[1].astype(">f4")], False),
    ],
)
def test_addresses_of_many_that_are_whole_and_alike(
    by: str, arrays: list[Any], are_alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "c":
        library()  # which has what looks at them in C; skips where there is none
    else:
        monkeypatch.setattr(module, "_in_c", [])
    if by == "attributes":
        monkeypatch.setattr(module, "_WORDS", None)
    places = addresses_if_alike(arrays)
    assert (places is not None) == are_alike
    if places is not None:
        assert places.tolist() == [array.__array_interface__["data"][0] for array in arrays]


def test_this_numpy_is_read_by_words() -> None:
    """Else packing is right, but slow: look at what has changed in ``PyArrayObject``."""
    assert (module._WORDS is not None) == (sys.implementation.name == "cpython" and sys.maxsize > 1 << 32)
