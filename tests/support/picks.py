"""Random choices for property tests that make many of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

# Drawing a value takes Hypothesis longer than all that is done with it here, so many choices are read off one number.
NUMBERS = st.integers(0, 2**24 - 1)


class Picks:
    """Choices read off drawn numbers, one after the other; zeros choose what stands first."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = iter(numbers)
        self._number, self._range = 0, 0

    def __call__(self, things: Sequence[Any]) -> Any:
        if self._range < len(things):
            self._number, self._range = next(self._numbers), 2**24
        self._range //= len(things)
        self._number, at = divmod(self._number, len(things))
        return things[at]
