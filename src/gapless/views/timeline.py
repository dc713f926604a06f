"""A Timeline in a terminal: what it is, its engines over time, how much of what it holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Console, ConsoleOptions
from rich.text import Text

from gapless.model.kinds import Engine
from gapless.timeline.measure import DEVICE_ENGINES, Intervals, engine_of, total, union
from gapless.timeline.timeline import Timeline
from gapless.views import wording
from gapless.views.lanes import LABELS, axis, cells
from gapless.views.page import COLORS, GUTTER, WIDEST_LANE, Page, plain

MOST_DEVICES = 8  # whose lanes are drawn
_SHARE = 7  # columns for a busy share


def to_text(timeline: Timeline, *, width: int) -> str:
    """Give the timeline as plain text, *width* columns wide."""
    return plain(lambda console, options: draw(timeline, console, options), width=width)


def draw(timeline: Timeline, console: Console, options: ConsoleOptions) -> Iterator[Text]:
    """Draw the timeline, line by line."""
    page = Page.on(console, options)
    first, *more = facts(timeline)
    yield page.title(name_of(timeline), first)
    for fact in more:
        yield page.line(fact, "dim")
    start, end = timeline.window()
    if end <= start:
        return
    room = min(WIDEST_LANE, page.width - GUTTER - _SHARE)
    devices = np.unique(timeline.ops.device).tolist()
    for number in devices[:MOST_DEVICES]:
        yield Text()
        if len(devices) > 1:
            yield page.line(_device(timeline, number), "dim")
        for engine, busy in _lanes(timeline, number).items():
            drawn = cells(busy, start, end, room, ascii_only=page.ascii_only)
            share = wording.percent(total(busy) / (end - start))
            yield page.row(LABELS[engine], COLORS[engine], drawn, f"{share:>{_SHARE}}")
    unit, ticks = axis(start, end, start, room, ascii_only=page.ascii_only)
    yield page.line(f"{unit:<{GUTTER}}{ticks}", "dim")
    if len(devices) > MOST_DEVICES:
        yield page.line(f"and {len(devices) - MOST_DEVICES} more devices", "dim")


def name_of(timeline: Timeline) -> str:
    """Say what a timeline is called."""
    return timeline.source or "timeline"


def facts(timeline: Timeline) -> list[str]:
    """Say where a timeline is from and how much is in it, a line each."""
    start, end = timeline.window()
    devices = ", ".join(dict.fromkeys(_device(timeline, n) for n in range(min(len(timeline.devices), MOST_DEVICES))))
    origin = ", ".join(filter(None, (timeline.format, devices, wording.duration((end - start) / 1e6))))
    counts = (
        (len(timeline.ops), "operation"), (len(np.unique(timeline.ops.stream)), "stream"),
        (len(timeline.calls), "call"), (len(timeline.ranges), "range"), (len(timeline.lost), "damaged part"),
    )  # fmt: skip
    said = [f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in counts if count]
    return [origin, ", ".join(said)] if said else [origin]


def _device(timeline: Timeline, number: int) -> str:
    known = timeline.devices[number]
    return known.name or f"device {known.id}"


def _lanes(timeline: Timeline, device: int) -> dict[Engine, Intervals]:
    ops = timeline.ops
    served, mine = engine_of(ops), ops.device == device
    lanes = {
        engine: union(ops.start[mine & (served == engine)], ops.end[mine & (served == engine)])
        for engine in DEVICE_ENGINES
    }
    return {engine: busy for engine, busy in lanes.items() if len(busy) or engine is not Engine.PEER}
