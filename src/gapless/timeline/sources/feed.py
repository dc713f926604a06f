"""Bytes of a file, plain or gzip, in large pieces, with what was damaged on the way."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from queue import Empty, Full, Queue
from typing import BinaryIO

from isal import isal_zlib

from gapless.model.errors import GaplessError
from gapless.timeline.sources.losses import Losses

Progress = Callable[[int, int], None]  # bytes of the file read so far, bytes of the file

PIECE = 4 << 20  # bytes given out at a time; smaller ones make the two threads wait for each other
_READ = 256 << 10
_STEP = 64  # bytes unpacked at a time near damage
_AHEAD = 3  # pieces unpacked ahead of the reader
_THREAD_FROM = 1 << 20  # a smaller file is unpacked before a thread has started
_GZIP = b"\x1f\x8b"


def head(path: Path, size: int) -> bytes:
    """Give the first bytes of the file's content, unpacked; fewer where the file is short or damaged.

    Raises GaplessError for a file that cannot be read.
    """
    with open_file(path) as file:
        try:
            raw = file.read(size)
        except OSError as problem:
            raise GaplessError(f"{path} cannot be read: {problem.strerror or problem}.") from None
        if not raw.startswith(_GZIP):
            return raw
        file.seek(0)
        got = b""
        for piece in _unpack(file, size, lambda _: None, Losses()):
            got += piece
            if len(got) >= size:
                break
        return got[:size]


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading, or say in one sentence why not."""
    try:
        if path.is_dir():
            raise GaplessError(f"{path} is a directory. Name the timeline file in it.")
        if path.exists() and not path.is_file():
            raise GaplessError(f"{path} is no regular file. Save the timeline to a file first.")
        return path.open("rb")
    except FileNotFoundError:
        raise GaplessError(f"{path}: no such file.") from None
    except (OSError, ValueError) as problem:
        if isinstance(problem, GaplessError):
            raise
        raise GaplessError(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}.") from None


def pieces(path: Path, progress: Progress | None, losses: Losses) -> Generator[bytes, None, None]:
    """Give the content in pieces of about 4 MiB, unpacked if it is gzip.

    Damage (a cut or broken gzip, bytes behind its end) is told to ``losses``; what came before it is given. Unpacking
    runs in a second thread, beside the reader since the C code lets it, and never more than a few pieces ahead.
    """
    size = path.stat().st_size
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress and count:
            progress(done, size)

    with open_file(path) as file:
        start = file.read(2)
        file.seek(0)
        if start != _GZIP:
            while piece := file.read(PIECE):
                advance(len(piece))
                yield piece
        elif size < _THREAD_FROM:
            yield from _unpack(file, PIECE, advance, losses)
        else:
            yield from _in_thread(lambda counted: _unpack(file, PIECE, counted, losses), advance)


def _unpack(file: BinaryIO, piece: int, advance: Callable[[int], None], losses: Losses) -> Iterator[bytes]:
    """Unpack one gzip member after the other; zero bytes behind a member are padding."""
    packed = file.read(_READ)
    while packed:
        if len(packed) < len(_GZIP):
            packed += file.read(_READ)
        if not packed.startswith(_GZIP):
            losses.add("Left out the bytes behind the end of the gzip data: they are not gzip.")
            return
        start, given = file.tell() - len(packed), 0
        member = isal_zlib.decompressobj(wbits=31)
        while not member.eof:
            if not packed and not (packed := file.read(_READ)):
                losses.add("The gzip data is cut short: used what comes before the cut.")
                return
            try:
                out = member.decompress(packed, piece)
            except isal_zlib.error:  # pyright: ignore[reportGeneralTypeIssues]
                losses.add("The gzip data is damaged: used what comes before the damage.")
                yield from _salvage(file, start, given)
                return
            rest = member.unused_data if member.eof else member.unconsumed_tail
            advance(len(packed) - len(rest))
            packed = rest
            given += len(out)
            if out:
                yield out
        while not (padded := packed.lstrip(b"\0")):
            advance(len(packed))
            if not (packed := file.read(_READ)):
                return
        advance(len(packed) - len(padded))
        packed = padded


def _salvage(file: BinaryIO, start: int, given: int) -> Iterator[bytes]:
    """Unpack a damaged member once more, in the smallest steps, for what lies between ``given`` and the damage."""
    file.seek(start)
    member = zlib.decompressobj(wbits=31)
    while packed := file.read(_READ):
        text = b""
        try:
            for at in range(0, len(packed), _STEP):
                text += member.decompress(packed[at : at + _STEP])
        except zlib.error:
            packed = b""
        skipped = min(given, len(text))
        given -= skipped
        if len(text) > skipped:
            yield text[skipped:]
        if not packed:
            return


def _in_thread(
    make: Callable[[Callable[[int], None]], Iterator[bytes]], advance: Callable[[int], None]
) -> Iterator[bytes]:
    """Run the generator in a second thread, a few pieces ahead. ``advance`` is called in the caller's thread."""
    queue: Queue[bytes | BaseException | None] = Queue(_AHEAD)
    counts: list[int] = []
    stop = threading.Event()

    def put(item: bytes | BaseException | None) -> None:
        while not stop.is_set():
            try:
                queue.put(item, timeout=0.1)
                break
            except Full:
                continue

    def work() -> None:
        try:
            for piece in make(counts.append):
                put(piece)
                if stop.is_set():
                    return
            put(None)
        except BaseException as problem:  # handed to the caller's thread
            put(problem)

    worker = threading.Thread(target=work, name="gapless-unpack", daemon=True)
    worker.start()
    try:
        while True:
            item = queue.get()
            while counts:
                advance(counts.pop())
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        while worker.is_alive():
            try:
                queue.get_nowait()
            except Empty:
                worker.join(0.05)
