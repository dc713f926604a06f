"""Names of kernels as C++ has them, looked up when the program has ended.

The C++ library of the system knows how (``__cxa_demangle``); where there is none, names stay as the compiler made them.
It only sees names of kernels that ran on this machine just now, never those of a file from elsewhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path

import numpy as np

from gapless.recorder import blocks
from gapless.timeline.sources.recording_format import STRING_ENTRY, Block, Space

_LONGEST = 16 << 10  # bytes of a mangled name


def demangle(path: Path) -> None:
    """Add to a recording what the mangled names in it mean."""
    names = sorted(set(_mangled(path)))
    meanings = list(_demangled(names)) if names else []
    payload = bytearray()
    for number, text in enumerate(meanings):
        payload += (
            np.array([(number, Space.DEMANGLED, len(text))], STRING_ENTRY).tobytes() + text + bytes(-len(text) % 8)
        )
    if payload:
        blocks.append(path, Block.STRINGS, bytes(payload))


def _mangled(path: Path) -> Iterator[bytes]:
    with blocks.opened(path) as file:
        for kind, _, begin, length in blocks.walk(path):
            if kind != Block.STRINGS:
                continue
            file.seek(begin)
            payload, at = file.read(length), 0
            while at + STRING_ENTRY.itemsize <= length:
                entry = np.frombuffer(payload, STRING_ENTRY, 1, at)[0]
                at += STRING_ENTRY.itemsize
                size = int(entry["bytes"])
                text = payload[at : at + size]
                if int(entry["space"]) == Space.POINTER and text.startswith(b"_Z") and size <= _LONGEST:
                    yield text
                at += size + -size % 8


def _demangled(names: list[bytes]) -> Iterator[bytes]:
    """Give for each name that means something the name, a zero byte, and what it means."""
    try:
        library = ctypes.CDLL(find_library("stdc++") or "libstdc++.so.6")
        work, free = library.__cxa_demangle, ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return
    work.restype, work.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    status = ctypes.c_int()
    for name in names:
        found = work(name, None, None, ctypes.byref(status))
        if found:
            if status.value == 0:
                yield name + b"\0" + (ctypes.cast(found, ctypes.c_char_p).value or b"")
            free(found)
