"""What an explanation adds to a timeline that is written for another tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gapless.timeline.measure import Intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something found in a timeline: what it is called, where it shows, and what is to be said of it by name."""

    name: str
    spans: Intervals  # (n, 2) ns on the timeline's clock
    facts: Mapping[str, str | int | float] = field(default_factory=dict[str, "str | int | float"])
