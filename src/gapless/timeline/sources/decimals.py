"""Decimal microseconds, as text, to whole nanoseconds without ever being a float.

A time such as ``1714176000123456.789`` has more digits than a double holds; read as one, kernels that touch seem to
overlap.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation

import numpy as np
from numpy.typing import NDArray

UNREADABLE = -(1 << 63)  # stands where a text is no time
LIMIT = 1 << 62  # ns: times and lengths beyond are unreadable, so that start + length always fits

_BATCH = 1 << 16  # texts parsed at a time
_LONGEST = 64  # characters; no time needs more
_COMMA, _DOT, _ZERO = b",.0"
_POWERS = 10 ** np.arange(18, -1, -1, dtype=np.int64)  # _POWERS[-n:] weighs n digits
_EXACT = Context(prec=2 * _LONGEST, rounding=ROUND_HALF_EVEN)


class Microseconds:
    """A growing column of times, fed with texts as they stand in the file."""

    def __init__(self) -> None:
        self._joined: list[bytes] = []
        self._waiting = 0
        self._parsed: list[NDArray[np.int64]] = []

    def add(self, texts: list[bytes]) -> None:
        """Append texts (any bytes-like objects); an empty one is unreadable."""
        joined = b",".join(texts)
        if joined.count(b",") >= len(texts):  # no number has a comma
            joined = b",".join(b"" if b"," in bytes(text) else text for text in texts)
        self._joined.append(joined)
        self._waiting += len(texts)
        if self._waiting >= _BATCH:
            self._parse()

    def column(self) -> NDArray[np.int64]:
        """Give all of them in ns."""
        self._parse()
        return np.concatenate(self._parsed) if self._parsed else np.empty(0, np.int64)

    def _parse(self) -> None:
        if self._waiting:
            self._parsed.append(nanoseconds(b",".join(self._joined)))
        self._joined, self._waiting = [], 0


def nanoseconds(joined: bytes) -> NDArray[np.int64]:
    """Give the ns of decimal numbers of µs, separated by commas; quotes around them are allowed.

    More than three decimals are rounded half to even. What is no number, or beyond 2^62 ns, gives ``UNREADABLE``.
    """
    text = np.frombuffer(joined.replace(b'"', b"") + b",", np.uint8)
    ends = np.flatnonzero(text == _COMMA)
    count = len(ends)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts
    values = np.full(count, UNREADABLE, np.int64)
    for length in _values(lengths, _LONGEST):
        rows = np.flatnonzero(lengths == length)
        if len(rows) == count:
            characters = text.reshape(count, length + 1)[:, :length]
        else:
            characters = text[starts[rows, None] + np.arange(length)]
        values[rows] = _same_length(characters)
    return values


def _same_length(characters: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Parse texts of one length, (n, length) characters."""
    n, length = characters.shape
    if length > 4 and (characters[:, length - 4] == _DOT).all():  # three decimals, as Kineto writes
        dots = np.full(n, length - 4)
    else:
        is_dot = characters == _DOT
        dots = np.where(is_dot.any(axis=1), is_dot.argmax(axis=1), length)
    values = np.empty(n, np.int64)
    for dot in _values(dots + 1, _LONGEST + 1) - 1:
        rows = dots == dot
        values[rows] = _same_layout(characters if rows.all() else characters[rows], int(dot))
    return values


def _same_layout(characters: NDArray[np.uint8], dot: int) -> NDArray[np.int64]:
    """Parse texts whose dot stands at one place (behind the end: no dot)."""
    n, length = characters.shape
    digits = characters - np.uint8(_ZERO)
    whole, decimals = digits[:, :dot], digits[:, dot + 1 :]
    shown = decimals[:, :3]
    rest = decimals[:, 3:]
    plain = np.ones(n, np.bool_)
    if not ((whole <= 9).all() and (decimals <= 9).all()):
        plain = (whole <= 9).all(axis=1) & (decimals <= 9).all(axis=1)
    if dot == 0 or dot > 16 or rest.shape[1] > 18 or dot == length - 1:
        plain = np.zeros(n, np.bool_)  # ".5", "5." and what does not fit an int64: the exact way
    values = np.empty(n, np.int64)
    if plain.any():
        values[:] = _weigh(whole) * 1000 + _weigh(shown) * 10 ** (3 - shown.shape[1])
        if rest.shape[1]:
            half = 5 * 10 ** (rest.shape[1] - 1)
            over = _weigh(rest)
            values += (over > half) | ((over == half) & (values % 2 == 1))
        values[plain & ((values >= LIMIT) | (values < 0))] = UNREADABLE  # below 0: sixteen digits ran over
    if not plain.all():
        values[~plain] = _one_by_one([row.tobytes() for row in characters[~plain]])
    return values


def _values(numbers: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Give the distinct numbers from 1 to ``most``."""
    return np.flatnonzero(np.bincount(np.minimum(numbers, most + 1), minlength=1)[1 : most + 1]) + 1


def _weigh(digits: NDArray[np.uint8]) -> NDArray[np.int64]:
    places = digits.shape[1]
    return digits.astype(np.int64) @ _POWERS[-places:] if places else np.zeros(len(digits), np.int64)


def _one_by_one(texts: Iterable[bytes]) -> NDArray[np.int64]:
    return np.array([_exact(text) for text in texts], np.int64)


def _exact(text: bytes) -> int:
    """Parse one number of any spelling: signs, exponents."""
    if not 0 < len(text) <= _LONGEST or b"_" in text:
        return UNREADABLE
    try:
        value = Decimal(text.decode("ascii", "replace"))
    except InvalidOperation:
        return UNREADABLE
    if not value.is_finite() or value.adjusted() > 18:
        return UNREADABLE
    if value.adjusted() < -9:
        return 0
    ns = int(_EXACT.to_integral_value(_EXACT.scaleb(value, 3)))
    return ns if abs(ns) < LIMIT else UNREADABLE
