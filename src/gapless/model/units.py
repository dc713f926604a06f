"""Times, sizes and fractions as people write them, read into whole picoseconds, whole bytes and exact fractions."""

from __future__ import annotations

import re
from fractions import Fraction

from .errors import GaplessError

# One time unit each, in picoseconds: ``3 * ms``.
ps = 1
ns = 1_000
us = 1_000_000
ms = 1_000_000_000
s = 1_000_000_000_000

_TIMES = {"ps": ps, "ns": ns, "us": us, "µs": us, "ms": ms, "s": s, "": ms}  # a bare number is milliseconds
_SIZES = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "": 1,
}  # fmt: skip
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?(?:/\d+)?|\.\d+)([A-Za-zµ]*)")
_LONGEST = 2**62
_MOST_DIGITS = 60  # characters; a longer number is a mistake, and some would take for ever to compute


def parse_time(text: str) -> int:
    """Read ``3``, ``0.5ms``, ``1/3us`` ... as whole picoseconds; a bare number is milliseconds.

    Raises ``GaplessError`` with what is wrong and what could stand there.
    """
    picoseconds = round(_quantity(text, _TIMES, "a time", "1.5ms, 20us, 1/3ms (ns, us, ms, s; a bare number is ms)"))
    if picoseconds < 0:
        raise GaplessError(f"a time cannot be negative: {text!r}")
    if picoseconds >= _LONGEST:
        raise GaplessError(f"{text!r} is too long: the model counts picoseconds up to about 53 days")
    return picoseconds


def parse_size(text: str) -> int:
    """Read ``64KiB``, ``1.5MB``, ``4096`` ... as whole bytes; a bare number is bytes.

    Raises ``GaplessError`` with what is wrong and what could stand there.
    """
    size = _quantity(
        text, _SIZES, "a size", "64KiB, 1.5MB, 4096B (B, KB, MB, GB, KiB, MiB, GiB; a bare number is bytes)"
    )
    if size < 0:
        raise GaplessError(f"a size cannot be negative: {text!r}")
    if size < _SIZES["KiB"] and size.denominator != 1:
        raise GaplessError(f"{text!r} is no whole number of bytes")
    return round(size)  # of a large unit's fraction (3.9MiB) the part of a byte is not meant


def parse_fraction(text: str) -> Fraction:
    """Read ``1/8``, ``0.125`` or ``3`` as an exact fraction. Raises ``GaplessError``."""
    return _quantity(text, {"": 1}, "a number", "1/8, 0.125 or 2")


def format_time(picoseconds: int) -> str:
    """Write a time so that ``parse_time`` reads the same picoseconds back: ``1.5ms``, ``20us``, ``0ms``."""
    for unit in ("s", "ms", "us", "ns"):
        if picoseconds and abs(picoseconds) >= _TIMES[unit]:
            return _decimal(picoseconds, _TIMES[unit]) + unit
    return _decimal(picoseconds, ns) + "ns" if picoseconds else "0ms"


def format_size(size: int) -> str:
    """Write a size so that ``parse_size`` reads the same bytes back: ``64KiB``, ``100B``."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % _SIZES[unit] == 0:
            return f"{size // _SIZES[unit]}{unit}"
    return f"{size}B"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(abs(value), unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{'-' if value < 0 else ''}{whole}{'.' + digits if digits else ''}"


def _quantity(text: str, units: dict[str, int], what: str, examples: str) -> Fraction:
    found = _NUMBER.fullmatch(text.strip())
    if found is None or found[2] not in units or len(found[1]) > _MOST_DIGITS:
        raise GaplessError(f"{text!r} is not {what}; write for example {examples}")
    number, _, divisor = found[1].partition("/")
    if divisor and int(divisor) == 0:
        raise GaplessError(f"{text!r} divides by zero")
    return Fraction(number) / int(divisor or 1) * units[found[2]]
