"""The constants of a `.gapless` file: what ``docs/recording-format.md`` says, as NumPy dtypes and numbers.

The recorder writes such files, ``timeline/sources/recording.py`` reads them.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

MAGIC = b"\x93GAPLESS"
VERSION = 1
MARK = b"GBLK"

FILE_HEADER = np.dtype([("magic", "S8"), ("version", "<u4"), ("bytes", "<u4"), ("realtime", "<u8"), ("zero", "<u8")])
BLOCK_HEADER = np.dtype(
    [("mark", "S4"), ("type", "<u2"), ("flags", "<u2"), ("process", "<u4"), ("thread", "<u4"), ("length", "<u8"),
     ("realtime", "<u8")]
)  # fmt: skip


class Block(IntEnum):
    """What a block holds."""

    PROCESS = 1
    LAYOUT = 2
    STRINGS = 3
    RECORDS = 4
    CLOCK = 5
    STACKS = 6
    CALLSITES = 7
    ACCESSES = 8
    DROPPED = 9
    NOTE = 10
    END = 11


class Space(IntEnum):
    """What the key of an entry of a STRINGS block is."""

    POINTER = 0  # a pointer found in a record
    RUNTIME = 1  # a cbid of the runtime API
    DRIVER = 2  # a cbid of the driver API
    SOURCE = 3  # a number used in STACKS
    THREAD = 4  # a thread's number
    DEMANGLED = 5  # any number; the text is a mangled name, a zero byte, and the name as C++ has it


class Access(IntEnum):
    """How a call touches memory, in ACCESSES."""

    READ = 1
    WRITE = 2
    ARGUMENT = 3  # a pointer among a kernel's arguments: how much of what it points to is touched is not known
    HOST_READ = 4
    HOST_WRITE = 5


STRING_ENTRY = np.dtype([("key", "<u8"), ("space", "<u4"), ("bytes", "<u4")])
RECORDS_HEAD = np.dtype([("raw", "<u8"), ("count", "<u4"), ("zero", "<u4")])
CLOCK_ROW = np.dtype([("cupti", "<u8"), ("realtime", "<u8"), ("monotonic", "<u8")])
STACK_ROW = np.dtype(
    [("stack", "<u4"), ("depth", "<u4"), ("file", "<u4"), ("function", "<u4"), ("line", "<i4"), ("what", "<u4"),
     ("address", "<u8")]
)  # fmt: skip
CALLSITE_ROW = np.dtype([("correlation", "<u4"), ("stack", "<u4")])
ACCESS_ROW = np.dtype(
    [("address", "<u8"), ("bytes", "<u8"), ("correlation", "<u4"), ("how", "<u4"), ("index", "<u4"), ("zero", "<u4"),
     ("pitch", "<u8")]
)  # fmt: skip
DROPPED_ROW = np.dtype([("count", "<u8"), ("context", "<u4"), ("stream", "<u4")])

OWN_LOSS = 0xFFFFFFFF  # "context" of a DROPPED row that the recorder counted itself
