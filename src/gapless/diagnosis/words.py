"""How findings say times, sizes, counts and directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import Engine, OpKind

from .work import Ints

ROUNDED = 0.005  # of a time: with three digits it is told no nearer
UNLIKE = 3  # times the mean of the others, from which the longest wait is told by itself
MISLED = 1.5  # times the median, above which a mean is that of a few
ENGINE_WORDS = {Engine.H2D: "H2D copies", Engine.D2H: "D2H copies", Engine.SM: "kernels", Engine.PEER: "peer copies"}


def ms(ns: float) -> str:
    """Give a time in ns as text with three digits and the unit that fits."""
    for unit, length in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= 0.9995 * length:
            return f"{_three_digits(ns / length)} {unit}"
    return f"{ns:.0f} ns"


def size(count: float) -> str:
    """Give a number of bytes as text, in decimal units as rates are."""
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.9995 * length:
            return f"{_three_digits(count / length)} {unit}"
    return f"{count:.0f} bytes"


def _three_digits(value: float) -> str:
    return f"{value:#.3g}".rstrip(".") if value < 999.5 else f"{value:,.0f}"


def shorten(text: str, most: int = 60) -> str:
    """Give a long name with its middle left out."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 + 1 :]}"


def plural(count: int, word: str, many: str = "") -> str:
    """Give "1 copy", "2 copies"."""
    return f"{count:,} {word if count == 1 else many or word + 's'}"


def times(count: int) -> str:
    """Give "once", "2 times"."""
    return "once" if count == 1 else f"{count:,} times"


def each_of(costs: Ints) -> str:
    """Give what each time of something cost, in ns: "3 ms", "3 ms each time, 12 ms in all", unlike ones as they are."""
    whole, count = int(costs.sum()), len(costs)
    if count == 1:
        return ms(whole)
    if not unlike(costs):
        return f"{ms(whole / count)} each time, {ms(whole)} in all"
    longest, next_ = (int(cost) for cost in np.sort(costs)[[-1, -2]])
    if longest < whole / 2:
        return f"{ms(float(np.median(costs)))} (median) to {ms(longest)} each time, {ms(whole)} in all"
    others = "the other time" if count == 2 else f"the other {count - 1:,} times"
    return f"{ms(longest)} once and {'at most ' * (count > 2)}{ms(next_)} {others}, {ms(whole)} in all"


def unlike(costs: Ints) -> bool:
    """Say whether one of several costs is so much larger than the others that their mean would mislead."""
    longest, whole = int(costs.max(initial=0)), int(costs.sum())
    if len(costs) < 2 or longest * (len(costs) - 1) <= UNLIKE * (whole - longest):
        return False
    return longest >= whole / 4 or whole / len(costs) > MISLED * float(np.median(costs))


def directions(kinds: NDArray[np.integer[Any]]) -> str:
    """Give the directions of some copies in words."""
    present = [name for name, kind in (("H2D", OpKind.H2D), ("D2H", OpKind.D2H)) if (kinds == kind).any()]
    return " and ".join(present)
