"""The repairs: one file each, an edit of the Script. A new repair is a new file here and one line in ``_SLUGS``.

Each file's text says what the repair does, when it is safe, and what its prediction leaves out. It offers
``apply(script, value, shop)``; a script that the repair does not change is given back as it is.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol, cast

import numpy as np

from gapless.model.errors import GaplessError
from gapless.model.kinds import OpKind
from gapless.model.machine import Machine

from ..rates import PinnedRate
from ..script import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What repairs need to know of the machine: what a pinned copy takes, and what a call of one costs."""

    machine: Machine  # whose curves give the shape of copy times by size
    rates: Mapping[OpKind, PinnedRate]

    def copy_time(self, kind: OpKind, size: int) -> float:
        """Give the ns that a pinned copy takes on its engine.

        The curve of the machine gives the latency and how it grows; the rate of this timeline's link scales the rest.
        """
        name = "h2d_curve" if kind is OpKind.H2D else "d2h_curve"
        curve = getattr(self.machine, name)
        if not curve:
            return size / self.rates[kind].gb_per_s
        taken = float(self.machine.time_of(name, np.array([size]))[0]) / 1000 - ENGINE_LATENCY
        largest, time = curve[-1]
        link = largest / time  # GB/s
        return max(taken * link / self.rates[kind].gb_per_s, 500.0)


ENGINE_LATENCY = 300  # ns of a lone copy's time that lie outside its own interval in a timeline (H200)


class Repair(Protocol):
    """What a file in this folder offers."""

    __doc__: str | None
    TAKES_VALUE: bool
    IDLE: str  # why it changes nothing, where it gives a script back as it is

    def apply(self, script: Script, value: int, shop: Shop) -> Script:
        """Give the script with the repair made."""
        ...


_SLUGS = (
    "pin", "off-default-stream", "streams", "chunks", "no-sync", "prefetch", "pool", "graph", "batch-copies", "warm-up",
    "connections", "priority",
)  # fmt: skip

REPAIRS: Mapping[str, Repair] = {
    slug: cast(Repair, importlib.import_module(f".{slug.replace('-', '_')}", __name__)) for slug in _SLUGS
}
DEFAULTS: Mapping[str, int] = {"streams": 4, "chunks": 8, "prefetch": 1, "connections": 32}


def parse(text: str) -> tuple[str, int]:
    """Read ``REPAIR`` or ``REPAIR=VALUE``. Raises GaplessError that says what could stand there."""
    slug, has_value, number = text.partition("=")
    if slug not in REPAIRS:
        close = get_close_matches(slug, _SLUGS, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise GaplessError(f"There is no repair {slug!r}.{meant} The repairs are: {', '.join(_SLUGS)}.")
    if has_value and not REPAIRS[slug].TAKES_VALUE:
        raise GaplessError(f"The repair {slug} takes no value; {text!r} gives one.")
    if not has_value:
        return slug, DEFAULTS.get(slug, 0)
    if not number.isdecimal() or not 1 <= int(number) <= 1024:
        raise GaplessError(
            f"{text!r}: the value of {slug} is a whole number from 1 to 1024, such as {slug}={DEFAULTS[slug]}."
        )
    return slug, int(number)
