"""Files written whole or not at all: nothing half written stays behind, and nothing of the user's is lost."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from isal import isal_zlib

from gapless.model.errors import GaplessError

MARK = "written by gapless"  # near the head of every file that gapless writes for others to show
_HEAD = 1 << 12  # bytes in which the mark stands
_GZIP = 31  # zlib's number for gzip's head and tail


def write(path: str | os.PathLike[str], pieces: Iterable[bytes], *, never: Iterable[Path] = ()) -> None:
    """Write a file piece by piece under another name and give it its own at the end.

    A file that is there already is replaced only where gapless wrote it, and never where it is one of *never*, the
    inputs. What is no regular file (a pipe, a terminal) is written to directly. Raises ``GaplessError`` where that is
    refused or the file cannot be written; then nothing of it is left.
    """
    target = Path(path)
    try:
        target = target.resolve()  # a link stays a link, to what was written
        if _is_one_of(target, never):
            raise GaplessError(f"{path} is the input. Choose another name for the output.")
        if target.exists() and not target.is_file():
            _write_directly(target, pieces)
            return
        if target.exists() and not _ours(target):
            raise GaplessError(
                f"{path} is there already, and gapless did not write it: it is left as it is. Choose another name."
            )
        _write_beside(target, pieces)
    except (OSError, ValueError) as problem:
        if isinstance(problem, GaplessError):
            raise
        reason = getattr(problem, "strerror", None) or problem
        raise GaplessError(f"{path} cannot be written: {reason}. Nothing of it was kept.") from None


def gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Give the bytes of a gzip file that holds these."""
    packer = isal_zlib.compressobj(wbits=_GZIP)
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


def _write_directly(target: Path, pieces: Iterable[bytes]) -> None:
    with target.open("wb") as file:
        for piece in pieces:
            file.write(piece)


def _write_beside(target: Path, pieces: Iterable[bytes]) -> None:
    number, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(number, "wb") as file:
            for piece in pieces:
                file.write(piece)
            os.fchmod(file.fileno(), _mode(target))
        Path(name).replace(target)
    except BaseException:  # Ctrl-C too
        with suppress(OSError):
            Path(name).unlink()
        raise


def _is_one_of(target: Path, inputs: Iterable[Path]) -> bool:
    return any(target.exists() and known.exists() and target.samefile(known) for known in inputs)


def _ours(target: Path) -> bool:
    with target.open("rb") as file:
        start = file.read(_HEAD)
    if start.startswith(b"\x1f\x8b"):
        with suppress(zlib.error):
            start = zlib.decompressobj(wbits=_GZIP).decompress(start, _HEAD)
    return not start or MARK.encode() in start


def _mode(target: Path) -> int:
    """Give the permissions of the file that is replaced; those of a new file where there is none."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
