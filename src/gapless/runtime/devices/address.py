"""Where an array begins in memory.

``array.__array_interface__`` describes the whole type and takes 4 to 10 us; its C twin ``__array_struct__`` takes one.
An array object itself holds the address right after its head (``PyArrayObject``, part of NumPy's binary interface).
Read there, it takes a fifth of that, which counts where many small items are packed. Of many arrays it is read without
a line of Python for each: all memory is looked at as one array of words. That this is right here is checked once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import HostArray


class _Interface(ctypes.Structure):
    _fields_ = (
        ("two", ctypes.c_int), ("nd", ctypes.c_int), ("typekind", ctypes.c_char), ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_int), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("data", ctypes.c_void_p),
        ("descr", ctypes.c_void_p),
    )  # fmt: skip


_pointer_of: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_data_at = ctypes.c_void_p.from_address
_OFFSET = _Interface.data.offset
_word_at = ctypes.c_size_t.from_address
_HEAD = object.__basicsize__


def by_interface(array: HostArray) -> int:
    """Give the address of an array's first element, as the array interface protocol says it."""
    capsule = array.__array_struct__  # holds the description while it is read
    return _data_at(_pointer_of(capsule, None) + _OFFSET).value or 0


def by_object(array: HostArray) -> int:
    """Give the address of an array's first element, read from the object."""
    return _word_at(id(array) + _HEAD).value


def _choose() -> Callable[[HostArray], int]:
    base = np.zeros((3, 5), np.int16)
    for array in (base, base[1:], base[::-1, 2:], np.zeros(0), base.view("u1")):
        if type(array).__basicsize__ < _HEAD + 8 or by_object(array) != by_interface(array):
            return by_interface
    return by_object


address: Callable[[HostArray], int] = _choose()


# Words of 8 bytes after an array object's head, and what they hold.
DATA, DIMENSIONS, DESCRIPTION = 0, 2, 5
COUNT, FLAGS = 1, 6  # in their lower half
FIRST_PAGE = 4096  # where nothing ever is
CONTIGUOUS = 1  # NPY_ARRAY_C_CONTIGUOUS


class Alike(list[HostArray]):
    """Arrays that are whole and all of one shape and type, with the addresses that ``addresses_if_alike`` gives."""

    def __init__(self, arrays: Sequence[HostArray], places: NDArray[np.int64]) -> None:
        super().__init__(arrays)
        self.places = places


def addresses_if_alike(arrays: Sequence[HostArray]) -> NDArray[np.int64] | None:
    """Give the addresses of arrays that are whole (C-contiguous) and all of one shape and type; else None."""
    if list(map(type, arrays)).count(np.ndarray) != len(arrays):
        return None
    return _words_alike(arrays) if _WORDS is not None else _alike(arrays)


def _words_alike(arrays: Sequence[HostArray]) -> NDArray[np.int64] | None:
    words: Any = _WORDS
    heads = (np.fromiter(map(id, arrays), np.int64, len(arrays)) + (_HEAD - FIRST_PAGE)) >> 3
    kinds, counts = words[heads + DESCRIPTION], words[heads + COUNT] & 0xFFFFFFFF
    if (kinds != kinds[0]).any() or (counts != counts[0]).any() or not (words[heads + FLAGS] & CONTIGUOUS).all():
        return None
    places = (words[heads + DIMENSIONS] - FIRST_PAGE) >> 3
    for dimension in range(int(counts[0])):
        lengths = words[places + dimension]
        if (lengths != lengths[0]).any():
            return None
    return words[heads + DATA]


def _alike(arrays: Sequence[HostArray]) -> NDArray[np.int64] | None:
    shape, dtype = arrays[0].shape, arrays[0].dtype
    if all(array.shape == shape and array.dtype == dtype and array.flags.c_contiguous for array in arrays):
        return np.fromiter(map(address, arrays), np.int64, len(arrays))
    return None


def _all_words() -> Any:
    """Look at memory as words of 8 bytes from the second page on; None where that is not possible."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or address is by_interface or _HEAD % 8:
        return None
    words = np.ctypeslib.as_array((ctypes.c_int64 * ((1 << 47) // 8 - FIRST_PAGE // 8)).from_address(FIRST_PAGE))
    base = np.zeros((3, 5), np.int16)
    for arrays in ([base, np.ones((3, 5), np.int16)], [base, base.T], [base, base[1:]], [base, base[:, :1]],
                   [base, base.view("u2")], [np.zeros(0), np.zeros(0)]):  # fmt: skip
        told, wanted = _read(words, arrays), [_fields(array) for array in arrays]
        if told != wanted:
            return None
    return words


def _read(words: Any, arrays: Sequence[HostArray]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for array in arrays:
        head = (id(array) + _HEAD - FIRST_PAGE) >> 3
        count = int(words[head + COUNT]) & 0xFFFFFFFF
        if count != array.ndim:  # what else is there is not what it is taken for
            return []
        place = (int(words[head + DIMENSIONS]) - FIRST_PAGE) >> 3
        lengths = tuple(int(words[place + dimension]) for dimension in range(count))
        whole = bool(words[head + FLAGS] & CONTIGUOUS)
        found.append((int(words[head + DATA]), lengths, int(words[head + DESCRIPTION]), whole))
    return found


def _fields(array: HostArray) -> tuple[Any, ...]:
    return by_interface(array), array.shape, id(array.dtype), array.flags.c_contiguous


_WORDS = _all_words()
