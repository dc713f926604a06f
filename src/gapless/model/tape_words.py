"""The words of a tape that mean the same everywhere: times, sizes, fractions, whole numbers and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

from . import units
from .errors import GaplessError
from .kinds import CaptureMode, Condition, MemoryKind, SourceOrder, StreamKind
from .tape_line import Line, alternatives, is_name

STREAM_KINDS = {
    "blocking": StreamKind.BLOCKING, "nonblocking": StreamKind.NON_BLOCKING, "per-thread": StreamKind.PER_THREAD,
}  # fmt: skip
BUFFER_KINDS = {
    "device": MemoryKind.DEVICE, "pinned": MemoryKind.PINNED, "pageable": MemoryKind.PAGEABLE,
    "managed": MemoryKind.MANAGED,
}  # fmt: skip
CAPTURE_MODES = {
    "global": CaptureMode.GLOBAL, "thread": CaptureMode.THREAD_LOCAL, "relaxed": CaptureMode.RELAXED,
}  # fmt: skip
CONDITIONS = {">=": Condition.GEQ, "=": Condition.EQ, "&": Condition.AND, "nor": Condition.NOR}
SOURCE_ORDERS = {"during-call": SourceOrder.DURING_CALL, "any-time": SourceOrder.ANY_TIME}

A_TIME = "a time (1.5ms, 20us, 1/3ms; a bare number is ms)"
A_SIZE = "a size (64KiB, 1.5MB, 4096B; a bare number is bytes)"
A_FRACTION = "a fraction (1/8 or 0.125)"

_QUANTITY = re.compile(r"(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:/\d{1,18})?([A-Za-zµ]*)", re.ASCII)
_WHOLE = re.compile(r"-?\d{1,12}", re.ASCII)
_TIME_UNITS = frozenset(("ns", "us", "µs", "ms", "s"))
_SIZE_UNITS = frozenset(("B", "KB", "MB", "GB", "KiB", "MiB", "GiB"))
_LARGEST = 2**62

Number = TypeVar("Number", int, Fraction)

# The lines of a long tape repeat a few numbers.
_parse_time = lru_cache(1024)(units.parse_time)
_parse_size = lru_cache(1024)(units.parse_size)
_parse_fraction = lru_cache(1024)(units.parse_fraction)


def looks_like_number(word: str) -> bool:
    """Tell whether a word can only be meant as a time, a size or a number."""
    return word[:1] in "0123456789.+-" and word != "->" and word != ""


def is_size(word: str) -> bool:
    """Tell whether a word is a number with a unit of size."""
    found = _QUANTITY.fullmatch(word)
    return found is not None and found[1] in _SIZE_UNITS


def is_time(word: str) -> bool:
    """Tell whether a word is a number with a unit of time."""
    found = _QUANTITY.fullmatch(word)
    return found is not None and found[1] in _TIME_UNITS


def time(line: Line) -> int:
    """Take a time, in picoseconds."""
    return _quantity(line, A_TIME, _TIME_UNITS, _parse_time)


def size(line: Line) -> int:
    """Take a size, in bytes."""
    return _quantity(line, A_SIZE, _SIZE_UNITS, _parse_size)


def fraction(line: Line) -> Fraction:
    """Take a fraction."""
    return _quantity(line, A_FRACTION, frozenset(), _parse_fraction)


def whole(line: Line, text: str, what: str, low: int, high: int) -> int:
    """Read a whole number out of the word taken last; *text* is the part of the word that holds it."""
    offset = len(line.words[line.at - 1]) - len(text)
    if _WHOLE.fullmatch(text) is None or not low <= int(text) <= high:
        line.fail(line.at - 1, f"{what}, a whole number from {low} to {high}", f"found {text!r}", offset=offset)
    return int(text)


def share(line: Line, text: str) -> Fraction:
    """Read a share of the GPU out of the word taken last; *text* is the part of the word that holds it."""
    expected = "a share of the GPU, over 0 and at most 1 (1/8 or 0.125)"
    offset = len(line.words[line.at - 1]) - len(text)
    found = _QUANTITY.fullmatch(text)
    if found is None or found[1]:
        line.fail(line.at - 1, expected, f"found {text!r}", offset=offset)
    value = _parsed(line, _parse_fraction, text, expected)
    if not 0 < value <= 1:
        line.fail(line.at - 1, expected, f"found {text!r}", offset=offset)
    return value


def choice(line: Line, known: Iterable[str]) -> str:
    """Take one of a few words."""
    word = line.next(alternatives(known))
    if word not in known:
        line.fail(line.at - 1, alternatives(known), known=known)
    return word


def name(line: Line, what: str) -> str:
    """Take a name; *what* says of what."""
    word = line.next(what)
    if not is_name(word):
        line.fail(line.at - 1, f"{what} (letters, digits and _ . -, a letter first)")
    return word


def _quantity(line: Line, expected: str, units: frozenset[str], parse: Callable[[str], Number]) -> Number:
    word = line.next(expected)
    if not _is_quantity(word, units):
        line.fail(line.at - 1, expected)
    return _parsed(line, parse, word, expected)


@lru_cache(1024)
def _is_quantity(word: str, units: frozenset[str]) -> bool:
    found = _QUANTITY.fullmatch(word)
    return found is not None and (not found[1] or found[1] in units)


def _parsed(line: Line, parse: Callable[[str], Number], text: str, expected: str) -> Number:
    try:
        value = parse(text)
    except GaplessError as error:
        line.fail(line.at - 1, expected, str(error))
    if value >= _LARGEST:
        line.fail(line.at - 1, expected, f"{text!r} is more than the model can hold")
    return value
