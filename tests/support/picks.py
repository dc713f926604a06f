"""Random choices for property tests that make many of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

_WORD = 3  # bytes of a number that choices are read off


def choices(words: int) -> st.SearchStrategy[bytes]:
    """Draw what ``Picks`` reads dozens of choices off: to draw each by itself takes Hypothesis longer than the test."""
    return st.binary(min_size=_WORD * words, max_size=_WORD * words)


def several_choices(most: int, words: int) -> st.SearchStrategy[list[bytes]]:
    """Draw one to *most* times so much."""
    size = _WORD * words

    def cut(drawn: bytes) -> list[bytes]:
        return [drawn[at : at + size] for at in range(0, len(drawn), size)]

    return st.integers(1, most).flatmap(lambda count: choices(words * count).map(cut))


class Picks:
    """Choices read off drawn bytes, one after the other; zeros choose what stands first."""

    def __init__(self, drawn: bytes) -> None:
        self._numbers = (int.from_bytes(drawn[at : at + _WORD], "little") for at in range(0, len(drawn), _WORD))
        self._number, self._range = 0, 0

    def __call__(self, things: Sequence[Any]) -> Any:
        if self._range < len(things):
            self._number, self._range = next(self._numbers), 1 << 8 * _WORD
        self._range //= len(things)
        self._number, at = divmod(self._number, len(things))
        return things[at]
