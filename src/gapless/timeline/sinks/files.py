"""Files written whole or not at all: nothing half written stays behind, and nothing of the user's is lost.

Whatever gapless makes of its input and writes goes through here (recordings do not), so that one rule holds for all:
``docs/convert.md`` tells it.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from isal import isal_zlib

from gapless.model.errors import GaplessError

MARK = "written by gapless"  # in the head of every file that gapless writes for others to show
_HEAD = 1 << 16  # bytes in which the mark stands
_MARK = MARK.encode()
# How each format's files begin, up to the mark: the same words elsewhere in a file are somebody's own.
_STARTS = tuple(
    re.compile(start)
    for start in (
        rb'\{\n  "gapless": \{"about": "%b", "streams": \[' % _MARK,
        rb'<svg xmlns="http://www\.w3\.org/2000/svg" [^<>]*>\n<title id="[^<]*</title>\n<desc id="[^<]*</desc>\n'
        rb"<!-- %b -->\n" % _MARK,
        rb"\x89PNG\r\n\x1a\n\0\0\0\rIHDR[\s\S]{17}\0\0\0\x1btEXtSoftware\0%b" % _MARK,
        rb'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><meta name="generator" content="%b">' % _MARK,
        rb'\n"P\x01h\x01\xb8\x05\x01\xe2\x03\x18\x08\0X\x03r\x12%b' % _MARK,  # a Perfetto trace's first packet
    )
)
_GZIP = 31  # zlib's number for gzip's head and tail

Replaces: TypeAlias = Callable[[Path], bool]  # tells whether a file that is there may be replaced


def write(path: str | os.PathLike[str], pieces: Iterable[bytes], *, never: Iterable[Path] = ()) -> None:
    """Write one file; see ``write_all``."""
    write_all({Path(path): pieces}, never=never)


def write_all(
    files: Mapping[Path, Iterable[bytes]], *, never: Iterable[Path] = (), replace: Replaces | None = None
) -> None:
    """Write files piece by piece under other names and give them their own at the end, all or none.

    A file that is there already is replaced as ``check`` says. A pipe or a terminal is written to directly, and so is
    what standard output goes to. Raises GaplessError where ``check`` does or a file cannot be written; then nothing of
    any is left, but what went into pipes.
    """
    beside: list[tuple[Path, Path]] = []
    path = Path()
    try:
        for path, pieces in files.items():
            target = check(path, never=never, replace=replace)
            if is_open_ended(target):
                _write_directly(target, pieces)
            else:
                beside.append((_write_beside(target, pieces), target))
        for part, target in beside:
            part.replace(target)
    except BaseException as problem:  # Ctrl-C too
        for part, _ in beside:
            with suppress(OSError):
                part.unlink()
        if isinstance(problem, GaplessError) or not isinstance(problem, OSError):
            raise
        if isinstance(problem, BrokenPipeError) and _standard(path) is not None:
            raise  # whoever read the output has had enough
        kept = "" if is_open_ended(path) else " Nothing of it was kept."
        raise GaplessError(f"{path} cannot be written: {problem.strerror or problem}.{kept}") from None


def check(path: str | os.PathLike[str], *, never: Iterable[Path] = (), replace: Replaces | None = None) -> Path:
    """Give where a file is to be written, links followed. Raises GaplessError for what must not be written to.

    A file that is there already may be replaced only where gapless wrote it, or it is empty; *replace* tells otherwise.
    It may never be one of *never*, the inputs.
    """
    try:
        if is_open_ended(path):
            return Path(path)
        target = followed(path)
        if _is_one_of(target, never):
            raise GaplessError(f"{path} is the input. Choose another name for the output.")
        if not target.exists():
            os.stat(os.path.join(target.parent, ""))  # raises where the folder is none  # noqa: PTH116, PTH118
            return target
        if target.is_dir():
            raise GaplessError(f"{path} cannot be written: Is a directory.")
        if not target.is_file():
            raise GaplessError(f"{path} cannot be written: it is neither a file nor a pipe.")
        if not (replace or is_ours)(target):
            raise GaplessError(
                f"{path} is there already, and gapless did not write it so: it is left as it is. Choose another name."
            )
    except (OSError, ValueError) as problem:
        if isinstance(problem, GaplessError):
            raise
        reason = getattr(problem, "strerror", None) or problem
        raise GaplessError(f"{path} cannot be written: {reason}. Nothing of it was kept.") from None
    return target


def followed(path: str | os.PathLike[str]) -> Path:
    """Give where a file is to be written, so that a link stays one. Raises OSError for links that go in a circle."""
    target = Path(os.path.realpath(path))  # of a circle it gives one
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def are_one(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """Tell whether two names are of one file, which need not be there: of two outputs only the last would be left."""
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    try:
        return Path(first).samefile(second)
    except OSError:
        return False


def is_open_ended(path: str | os.PathLike[str]) -> bool:
    """Tell whether this is a pipe, a terminal or the like, or what standard output goes to: not to be replaced."""
    target = Path(path)
    return target.is_fifo() or target.is_char_device() or _standard(target) is not None


def is_standard_output(path: str | os.PathLike[str]) -> bool:
    """Tell whether what is written there stands among what is printed."""
    return _standard(Path(path)) == 1


def is_ours(target: Path) -> bool:
    """Tell whether a file is empty or begins as what gapless wrote. A saved tape is none: it is there to be changed."""
    with target.open("rb") as file:
        start = file.read(_HEAD)
    if start.startswith(b"\x1f\x8b"):
        with suppress(zlib.error):
            start = zlib.decompressobj(wbits=_GZIP).decompress(start, _HEAD)
    return not start or any(known.match(start) for known in _STARTS)


def gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Give the bytes of a gzip file that holds these."""
    packer = isal_zlib.compressobj(wbits=_GZIP)
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


def _standard(target: Path) -> int | None:
    """Give the number under which this process has a file open for what it prints, if it has."""
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(target.stat(), os.fstat(number)):
                return number
    return None


def _write_directly(target: Path, pieces: Iterable[bytes]) -> None:
    number = _standard(target)
    if number is not None and sys.stdout is not None:
        sys.stdout.flush()
    with target.open("wb") if number is None else os.fdopen(os.dup(number), "wb") as file:
        for piece in pieces:
            file.write(piece)


def _write_beside(target: Path, pieces: Iterable[bytes]) -> Path:
    number, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(number, "wb") as file:
            for piece in pieces:
                file.write(piece)
            os.fchmod(file.fileno(), _mode(target))
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    return Path(name)


def _is_one_of(target: Path, inputs: Iterable[Path]) -> bool:
    return any(_is_same(target, known) for known in inputs)


def _is_same(target: Path, known: Path) -> bool:
    """Tell whether both are one file that is there. What is wrong with an input is said by who reads it."""
    try:
        return target.samefile(known)
    except (OSError, ValueError):
        return False


def _mode(target: Path) -> int:
    """Give the permissions of the file that is replaced; those of a new file where there is none."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
