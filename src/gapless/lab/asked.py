"""What the page may ask for: a chunk loop or a tape, within bounds. What asks may be an older page, or none of ours."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gapless.model.chunk_loop import ChunkLoop
from gapless.model.errors import GaplessError
from gapless.model.machine import PROFILES
from gapless.model.tape import Tape, read

LONGEST = 256 << 10  # characters of a tape
MOST = 20_000  # lines of an unrolled tape, and operations: what is worked out while one types
MOST_CHUNKS, MOST_STREAMS = 64, 32  # of a loop
NAME = "tape"  # what error messages call a tape that is no file


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """One request to play something: exactly one of the two."""

    loop: dict[str, Any] | None = None  # options of ChunkLoop
    tape: str | None = None


class NoRequestError(GaplessError):
    """What came is none of the page's requests."""


def understand(body: bytes) -> Asked:
    """Read a request. Raises ``GaplessError`` for anything else."""
    try:
        asked = msgspec.json.decode(body.decode(), type=Asked)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise NoRequestError(f"this is no request of the lab's page: {_why(problem, body)}") from None
    if (asked.loop is None) == (asked.tape is None):
        raise NoRequestError("this is no request of the lab's page: it has a loop or a tape, not both and not none")
    if asked.tape is not None and len(asked.tape) > LONGEST:
        raise GaplessError(
            f"the tape is longer than {LONGEST >> 10} Ki characters; the lab plays shorter ones. "
            "Play it on the command line: gapless simulate TAPE"
        )
    return asked


def _why(problem: Exception, body: bytes) -> str:
    """Say why a request cannot be read."""
    if isinstance(problem, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(problem, RecursionError):
        return "it is nested too deeply"
    # msgspec may call half of a surrogate pair truncated input; the standard library reads it, but cannot write it
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "its text is not valid Unicode (half of a surrogate pair stands alone)"
    except (ValueError, RecursionError):
        pass
    return str(problem)


def loop_of(options: dict[str, Any]) -> ChunkLoop:
    """Make the loop of some options. Raises ``GaplessError``."""
    try:
        loop = msgspec.convert(options, ChunkLoop, strict=True)
    except msgspec.ValidationError as problem:
        raise GaplessError(str(problem)) from None
    unknown = set(options) - set(ChunkLoop.__dataclass_fields__)
    if unknown:
        raise GaplessError(f"a loop has no {min(unknown)!r}")
    if loop.chunks > MOST_CHUNKS or loop.streams > MOST_STREAMS:
        raise GaplessError(f"the lab plays loops of up to {MOST_CHUNKS} chunks and {MOST_STREAMS} streams")
    if loop.machine not in ("", *PROFILES):
        raise GaplessError(f"a loop of the lab runs on {', '.join(PROFILES)}")
    return loop


def tape_of(text: str) -> Tape:
    """Read a tape that anybody may have written: it names no files and stays small. Raises ``TapeError``."""
    return read(text, name=NAME, folder=None, most=MOST)
