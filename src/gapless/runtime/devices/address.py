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


# Words of 8 bytes of an array object, from its head on, and what they hold.
TYPE = 1
DATA, DIMENSIONS, DESCRIPTION = 2, 4, 7
COUNT, FLAGS = 3, 8  # in their lower half
ITEMS = 3  # of a list: where the addresses of its items are
FIRST_PAGE = 4096  # where nothing ever is
LOWER, ALL = 0xFFFFFFFF, -1
CONTIGUOUS = 1  # NPY_ARRAY_C_CONTIGUOUS
_FIELDS = np.array([[DATA], [DIMENSIONS], [COUNT], [FLAGS], [DESCRIPTION]])
_ALIKE = np.array([[LOWER], [CONTIGUOUS], [ALL]])  # the bits of the last three that arrays which are alike share


class Alike(list[HostArray]):
    """Arrays that are whole and all of one shape and type, with the addresses that ``addresses_if_alike`` gives."""

    def __init__(self, arrays: Sequence[HostArray], places: NDArray[np.int64]) -> None:
        super().__init__(arrays)
        self.places = places


def addresses_if_alike(arrays: Sequence[HostArray]) -> NDArray[np.int64] | None:
    """Give the addresses of arrays that are whole (C-contiguous) and all of one shape and type; else None."""
    if _WORDS is None:
        return _alike(arrays)
    listed = arrays if isinstance(arrays, list) else list(arrays)
    items = _word_at(id(listed) + 8 * ITEMS).value
    if not _in_c:
        return _words_alike(_WORDS, items, len(listed))
    places = np.empty(len(listed), np.int64)
    return places if _in_c[0](items, len(listed), address(_LAYOUT), address(places)) else None


_LAYOUT = np.array([TYPE, id(np.ndarray), DATA, COUNT, DIMENSIONS, DESCRIPTION, FLAGS, CONTIGUOUS])  # as C takes it
_in_c: list[Callable[[int, int, int, int], int]] = []  # what looks at arrays in C, where it has been loaded


def look_by(function: Callable[[int, int, int, int], int]) -> None:
    """Look at arrays by ``gapless_alike`` of crew.c, in a fifth of the time."""
    _in_c[:] = [function]


def _words_alike(words: NDArray[np.int64], items: int, count: int) -> NDArray[np.int64] | None:
    objects = (words[_word(items) : _word(items) + count] - FIRST_PAGE) >> 3
    if (words.take(objects + TYPE) != id(np.ndarray)).any():  # what is no array may be shorter than one
        return None
    fields = words.take(objects + _FIELDS)
    same = fields[2:] & _ALIKE
    if not same[1, 0] or (same != same[:, :1]).any():
        return None
    places = (fields[1] - FIRST_PAGE) >> 3
    for dimension in range(int(same[0, 0])):
        lengths = words.take(places + dimension)
        if (lengths != lengths[0]).any():
            return None
    return fields[0]


def _word(place: int) -> int:
    """Give which of all words is at an address."""
    return (place - FIRST_PAGE) >> 3


def _alike(arrays: Sequence[HostArray]) -> NDArray[np.int64] | None:
    if any(type(array) is not np.ndarray for array in arrays):
        return None
    shape, dtype = arrays[0].shape, arrays[0].dtype
    if all(array.shape == shape and array.dtype == dtype and array.flags.c_contiguous for array in arrays):
        return np.fromiter(map(address, arrays), np.int64, len(arrays))
    return None


def _all_words() -> NDArray[np.int64] | None:
    """Look at memory as words of 8 bytes from the second page on; None where objects are not laid out as said above."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or address is by_interface or _HEAD != 8 * DATA:
        return None
    words = np.ctypeslib.as_array((ctypes.c_int64 * ((1 << 47) // 8 - FIRST_PAGE // 8)).from_address(FIRST_PAGE))
    base = np.zeros((3, 5), np.int16)
    tried = [base, np.ones((3, 5), np.int16), base.T, base[1:], base[:, :1], base.view("u2"), np.zeros(0), np.array(1)]
    items = int(words[_word(id(tried)) + ITEMS])
    if items % 8 or not FIRST_PAGE <= items < 1 << 47:
        return None
    objects = words[_word(items) : _word(items) + len(tried)].tolist()
    return words if objects == list(map(id, tried)) and all(_is_as_said(words, array) for array in tried) else None


def _is_as_said(words: NDArray[np.int64], array: HostArray) -> bool:
    """Tell whether the words of an array are what they are taken for."""
    object_ = _word(id(array))
    count = int(words[object_ + COUNT]) & LOWER
    if count != array.ndim or int(words[object_ + TYPE]) != id(np.ndarray):
        return False
    lengths = _word(int(words[object_ + DIMENSIONS]))
    found = (
        int(words[object_ + DATA]), tuple(words[lengths : lengths + count].tolist()) if count else (),
        int(words[object_ + DESCRIPTION]), bool(words[object_ + FLAGS] & CONTIGUOUS),
    )  # fmt: skip
    return found == (by_interface(array), array.shape, id(array.dtype), array.flags.c_contiguous)


_WORDS = _all_words()
