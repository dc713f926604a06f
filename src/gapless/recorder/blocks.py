"""What the command itself does with a recording: make the file, add blocks, look over what came into it."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from gapless.model.errors import GaplessError
from gapless.timeline.sinks.files import followed, is_open_ended
from gapless.timeline.sources.recording_format import (
    BLOCK_HEADER,
    DROPPED_ROW,
    FILE_HEADER,
    MAGIC,
    MARK,
    RECORDS_HEAD,
    VERSION,
    Block,
)


@dataclass(slots=True)
class Made:
    """A recording that was made, and the older one in whose place it stands, if any."""

    place: Path
    header: bytes  # of no other recording: the time is in it
    older: Path | None = None

    def is_there(self) -> bool:
        """Tell whether it, and nothing else, stands in its place: the program that runs may put there what it likes.

        Raises OSError where nothing can be read there.
        """
        try:
            with opened(self.place) as file:
                return file.read(len(self.header)) == self.header
        except NotRecordingError:
            return False

    def keep(self) -> None:
        """Let the older one go, where the new one is there. Raises OSError as ``is_there``."""
        if self.older is not None and self.is_there():
            self.older.unlink()
            self.older = None

    def drop(self) -> None:
        """Take the new one back; the older one stands there again. What else stands there by now is left alone."""
        try:
            if not self.is_there():
                return
            self.place.unlink()
        except FileNotFoundError:
            pass
        if self.older is not None:
            self.older.replace(self.place)
            self.older = None


@contextmanager
def made(path: Path, *, force: bool, settles: bool = True) -> Iterator[Made]:
    """Make an empty recording, and take it back where what is done with it in the block fails.

    With *force* an older recording gives way, but comes back then. *settles*: that the block ends well decides that the
    new one is kept; else whoever has it decides later. A link stays a link, to the recording. Raises GaplessError where
    the file cannot be made, is there without *force*, or is no recording.
    """
    place = _place(path)
    header = np.array([(MAGIC, VERSION, FILE_HEADER.itemsize, time.time_ns(), 0)], FILE_HEADER).tobytes()
    made_ = Made(place, header, _set_aside(path, place) if force else None)
    ours = False
    try:
        try:
            with place.open("xb") as file:
                ours = True
                file.write(header)
        except FileExistsError:
            raise GaplessError(f"{path} is there already: choose another name with -o, or give --force.") from None
        except OSError as problem:
            raise GaplessError(f"{path} cannot be written: {problem.strerror}") from None
        yield made_
    except BaseException:
        if ours:
            made_.drop()
        elif made_.older is not None:
            made_.older.replace(place)
        raise
    if settles:
        made_.keep()


def _place(path: Path) -> Path:
    """Give where the recording is to stand, links followed. Raises GaplessError for what is there and is no file."""
    try:
        place = followed(path)
        if is_open_ended(path) or (place.exists() and not place.is_file()):
            raise GaplessError(
                f"{path} is not a file of its own, which a recording needs: choose another name with -o."
            )
    except OSError as problem:
        raise GaplessError(f"{path} cannot be written: {problem.strerror}") from None
    return place


def _set_aside(path: Path, place: Path) -> Path | None:
    """Move an older recording to a name beside it; *path* is what the user calls it. Raises GaplessError for others."""
    try:
        if not place.exists():
            return None
        with place.open("rb") as file:
            if place.stat().st_size and file.read(len(MAGIC)) != MAGIC:
                raise GaplessError(f"{path} is no recording and is left as it is: choose another name with -o.")
        older = place.with_name(f".{place.name}.{os.getpid()}")
        place.replace(older)
    except OSError as problem:
        raise GaplessError(f"{path} cannot be written: {problem.strerror}") from None
    return older


class NotRecordingError(OSError):
    """What stands where a recording was is none."""


def opened(path: Path, flags: int = os.O_RDONLY) -> BinaryIO:
    """Open a recording that is there, at its start: to read, or with flags that say more.

    Raises OSError where there is none, NotRecordingError where something else stands there by now.
    """
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its other end
    if not stat.S_ISREG(os.fstat(handle).st_mode) or os.pread(handle, len(MAGIC), 0) != MAGIC:
        os.close(handle)
        raise NotRecordingError(errno.EINVAL, "this is no recording", str(path))
    return os.fdopen(handle, "rb" if flags == os.O_RDONLY else "r+b", buffering=0)


def append(path: Path, kind: Block, payload: bytes, *, process: int = 0) -> None:
    """Add one block to a recording. Raises OSError where there is none any more, or it cannot grow."""
    header = np.array([(MARK, kind, 0, process, os.getpid(), len(payload), time.time_ns())], BLOCK_HEADER)
    with opened(path, os.O_RDWR | os.O_APPEND) as file:  # never made anew: it may have been removed
        file.write(header.tobytes() + payload)


def append_json(path: Path, kind: Block, members: Mapping[str, object], *, process: int = 0) -> None:
    """Add one block that holds a JSON object."""
    append(path, kind, json.dumps(members).encode(), process=process)


def walk(path: Path) -> Iterator[tuple[int, int, int, int]]:
    """Give (type, process, where the payload starts, its length) of the blocks of an undamaged recording.

    Ends at the first block that is not whole: what is behind it is for the reader to find.
    """
    at = FILE_HEADER.itemsize
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        while at + BLOCK_HEADER.itemsize <= size:
            file.seek(at)
            header = np.frombuffer(file.read(BLOCK_HEADER.itemsize), BLOCK_HEADER)[0]
            begin, length = at + BLOCK_HEADER.itemsize, int(header["length"])
            if header["mark"] != MARK or begin + length > size:
                return
            yield int(header["type"]), int(header["process"]), begin, length
            at = begin + length


@dataclass(slots=True)
class Content:
    """What is in a recording, counted."""

    records: int = 0
    dropped: int = 0
    started: list[int] = field(default_factory=list[int])  # processes
    ended: dict[int, str] = field(default_factory=dict[int, str])  # process: why its recording ended
    notes: list[str] = field(default_factory=list[str])


def content(path: Path) -> Content:
    """Count what is in a recording."""
    found = Content()
    with opened(path) as file:
        for kind, process, begin, length in walk(path):
            file.seek(begin)
            if kind == Block.RECORDS and length >= RECORDS_HEAD.itemsize:
                found.records += int(np.frombuffer(file.read(RECORDS_HEAD.itemsize), RECORDS_HEAD)[0]["count"])
            elif kind == Block.PROCESS:
                found.started.append(process)
            elif kind == Block.DROPPED and length == DROPPED_ROW.itemsize:
                found.dropped += int(np.frombuffer(file.read(length), DROPPED_ROW)[0]["count"])
            elif kind in (Block.NOTE, Block.END):
                members = _object(file.read(length))
                if kind == Block.NOTE:
                    found.notes.append(str(members.get("text", "")))
                elif process:
                    found.ended[process] = str(members.get("reason", ""))
    return found


def _object(payload: bytes) -> dict[str, object]:
    try:
        members = json.loads(payload.decode("utf-8", "replace"))
    except ValueError:
        return {}
    return members if isinstance(members, dict) else {}
