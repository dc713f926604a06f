"""The blocks of a `.gapless` file, one after the other, over whatever damage lies between them.

A file is a log that several processes append to, and any of them may be killed in the middle of a write. So a block may
be torn, with a whole one right behind the tear; and a file may have been cut or changed since.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from gapless.model.errors import GaplessError
from gapless.timeline.sources.feed import Progress
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.recording_format import BLOCK_HEADER, FILE_HEADER, MAGIC, MARK, VERSION

_PIECE = 1 << 20  # bytes looked at in one go for the next mark
_MOST_TYPE = 255  # a greater type is no type but damage

_STARTS = re.compile(re.escape(MARK) + b"|" + re.escape(MAGIC))

_CUT = "The recording ends in the middle of a block: used what comes before the cut."
_TORN = "A block was torn when its process was killed, or damaged since: used its beginning."
_SECOND = "Another recording stands behind the first in this file: used the first alone."
_GARBAGE = "Skipped bytes that are no block: the file is damaged there."


@dataclass(frozen=True, slots=True)
class Block:
    """One block. ``whole``: its payload has the length that its header tells."""

    type: int
    process: int
    payload: bytes
    whole: bool


def file_header(start: bytes, source: str) -> int:
    """Check the file's header; give where the first block starts. Raises ``GaplessError`` for what cannot be read."""
    if len(start) < FILE_HEADER.itemsize:
        raise GaplessError(f"{source} is a recording, but cut off after {len(start)} bytes: nothing of use is in it.")
    header = np.frombuffer(start, FILE_HEADER, 1)[0]
    version, length = int(header["version"]), int(header["bytes"])
    if version > VERSION:
        raise GaplessError(
            f"{source} is a recording of version {version}; this gapless reads up to version {VERSION}. "
            "Read it with the gapless that recorded it, or a newer one."
        )
    return max(length, FILE_HEADER.itemsize)


def blocks(file: BinaryIO, size: int, source: str, losses: Losses, progress: Progress | None) -> Iterator[Block]:
    """Give the blocks of a file of *size* bytes. What was damaged on the way is told to *losses*."""
    file.seek(0)
    start = file.read(FILE_HEADER.itemsize)
    if not start.startswith(MAGIC):
        raise GaplessError(f"{source} is no recording of gapless.")
    at = file_header(start, source)
    while at < size:
        file.seek(at)
        raw = file.read(BLOCK_HEADER.itemsize)
        if raw.startswith(MAGIC):  # files put behind each other: what both number alike would be taken for one thing
            losses.add(_SECOND)
            return
        if not _is_header(raw):
            following = _next_mark(file, at + 1, size)
            losses.add(_CUT if following == size and MARK.startswith(raw[:4]) else _GARBAGE)
            at = following
            continue
        header = np.frombuffer(raw, BLOCK_HEADER, 1)[0]
        begin = at + BLOCK_HEADER.itemsize
        end = begin + int(header["length"])
        whole = end == size or (end < size and _may_start(file, end))
        following = end
        if not whole:
            following = _next_mark(file, begin, min(end, size))
            losses.add(_CUT if following == size else _TORN if following < end else _GARBAGE)
        file.seek(begin)
        yield Block(int(header["type"]), int(header["process"]), file.read(following - begin), following == end)
        if not whole and following == end < size:
            following = _next_mark(file, end, size)
        at = following
        if progress:
            progress(min(at, size), size)


def _is_header(raw: bytes) -> bool:
    if len(raw) < BLOCK_HEADER.itemsize or not raw.startswith(MARK):
        return False
    header = np.frombuffer(raw, BLOCK_HEADER, 1)[0]
    return int(header["flags"]) == 0 and 0 < int(header["type"]) <= _MOST_TYPE


def _may_start(file: BinaryIO, at: int) -> bool:
    """Tell whether a block, the beginning of one at the end of the file, or another recording starts here."""
    file.seek(at)
    raw = file.read(BLOCK_HEADER.itemsize)
    if raw.startswith(MAGIC):
        return True
    return _is_header(raw) if len(raw) == BLOCK_HEADER.itemsize else MARK.startswith(raw[:4])


def _next_mark(file: BinaryIO, start: int, end: int) -> int:
    """Give where the next block, or another recording, starts in ``[start, end)``; *end* where none does."""
    for at in range(start, end, _PIECE):
        file.seek(at)
        length = min(_PIECE, end - at)
        piece = file.read(length + len(MAGIC) - 1)  # what starts in the piece may end behind it
        for found in _STARTS.finditer(piece):
            if found.start() < length and _may_start(file, at + found.start()):
                return at + found.start()
    return end
