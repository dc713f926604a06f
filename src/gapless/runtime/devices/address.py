"""Where an array begins in memory.

``array.__array_interface__`` describes the whole type and takes 4 to 10 us; its C twin ``__array_struct__``, whose
layout is as fixed (the array interface protocol), takes a fraction of one.
"""

from __future__ import annotations

import ctypes
from typing import Any

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


def address(array: HostArray) -> int:
    """Give the address of an array's first element."""
    capsule = array.__array_struct__  # holds the description while it is read
    return _data_at(_pointer_of(capsule, None) + _OFFSET).value or 0
