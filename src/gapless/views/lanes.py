"""Engine lanes drawn to time in characters: how full each slice of time is, where the costliest cause shows, axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.diagnosis.report import Finding, Report
from gapless.model.kinds import Engine
from gapless.timeline.measure import Intervals, clip, density, device_window, engine_of, total, union

BLOCKS = " ▁▂▃▄▅▆▇█"
BLOCKS_ASCII = " .:-=+*%@"

LABELS = {Engine.H2D: "H2D", Engine.SM: "SM", Engine.D2H: "D2H", Engine.PEER: "P2P"}

FEW = 24  # operations of the busiest engine that a drawing of the whole window still tells apart
SHOWN = 12  # operations of the busiest engine that a close-up shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """What the lanes of one report are drawn from."""

    busy: dict[Engine, Intervals]  # of the operations that touch the window
    origin: int  # ns: where the axis has its 0, the first work on the device
    window: tuple[int, int]  # ns
    close_up: tuple[int, int] | None  # ns: a stretch worth a closer look
    marked: tuple[int, Finding] | None  # the finding that the close-up shows, with its number


def lanes_of(report: Report) -> Lanes | None:
    """Prepare the lanes of a report; None where its device did nothing in the window."""
    ops, (start, end) = report.timeline.ops, report.window
    rows = np.flatnonzero((ops.device == report.device_row) & (ops.end > start) & (ops.start < end))
    served_by = engine_of(ops)[rows]
    of_engine = {engine: rows[served_by == engine] for engine in LABELS}
    if not any(map(len, of_engine.values())):
        return None
    busy = {engine: union(ops.start[mine], ops.end[mine]) for engine, mine in of_engine.items()}
    shown = of_engine[max(busy, key=lambda engine: total(busy[engine]))]
    marked = _costliest(report)
    if not len(of_engine[Engine.PEER]):
        del busy[Engine.PEER]
    return Lanes(
        busy=busy,
        origin=device_window(report.timeline, report.device_row)[0],
        window=(start, end),
        close_up=_close_up(ops.start[shown], ops.end[shown], marked and marked[1].spans, start, end),
        marked=marked,
    )


def predicted_lanes(report: Report) -> Lanes | None:
    """Prepare the lanes of the program with the repairs asked for, to the same scale as the measured ones.

    None where none were asked for. Where the prediction is made from a stretch of the run, the scale is the stretch's.
    """
    timeline = report.predicted
    if timeline is None or report.prediction is None or not len(timeline.ops):
        return None
    start, end = timeline.window()
    served_by = engine_of(timeline.ops)
    ops = timeline.ops
    busy = {engine: union(ops.start[served_by == engine], ops.end[served_by == engine]) for engine in LABELS}
    if not len(busy[Engine.PEER]):
        del busy[Engine.PEER]
    whole = end - start > report.prediction.wall_ms * 1e6 / 2
    length = max(end - start, report.window[1] - report.window[0]) if whole else end - start
    return Lanes(busy=busy, origin=start, window=(start, start + length), close_up=None, marked=None)


def _costliest(report: Report) -> tuple[int, Finding] | None:
    """Give the first fault that says where it costs, else the first verdict that does."""
    placed = [(i, finding) for i, finding in enumerate(report.findings, 1) if len(finding.spans)]
    return min(placed, key=lambda entry: (entry[1].verdict, entry[0]), default=None)


def _close_up(
    starts: NDArray[np.int64], ends: NDArray[np.int64], spans: Intervals | None, start: int, end: int
) -> tuple[int, int] | None:
    """Choose a stretch of SHOWN operations around a typical span; None where the whole window is as good."""
    if len(starts) <= FEW:
        return None
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    around = _typical(spans) if spans is not None else ((start + end) // 2,) * 2
    middle = int(np.searchsorted(starts, (around[0] + around[1]) // 2))
    first = max(0, min(middle - SHOWN // 2, len(starts) - SHOWN))
    margin = (around[1] - around[0]) // 6
    left = max(start, min(int(starts[first]), around[0] - margin))
    right = min(end, max(int(ends[first : first + SHOWN].max()), around[1] + margin))
    return (left, right) if 0 < (right - left) * 3 < end - start else None


def _typical(spans: Intervals) -> tuple[int, int]:
    """Give a span from the middle of the run, of a length that half of the spans' whole time is spent in or above."""
    lengths = spans[:, 1] - spans[:, 0]
    by_length = np.sort(lengths)[::-1]
    least = by_length[np.searchsorted(np.cumsum(by_length), by_length.sum() / 2)]
    usual = np.flatnonzero(lengths >= least)
    chosen = spans[usual[len(usual) // 2]]
    return int(chosen[0]), int(chosen[1])


def cells(intervals: Intervals, start: int, end: int, width: int, *, ascii_only: bool) -> str:
    """Draw how full each of *width* slices of ``[start, end)`` is; what is there at all shows."""
    blocks = BLOCKS_ASCII if ascii_only else BLOCKS
    full = density(intervals, start, end, width)
    heights = np.where(full > 0, np.clip(np.rint(full * 8), 1, 8), 0).astype(int)
    return "".join(blocks[height] for height in heights)


def marks(spans: Intervals, start: int, end: int, width: int, *, ascii_only: bool) -> str:
    """Draw a line under every slice of time that a span touches."""
    merged = clip(union(spans[:, 0], spans[:, 1]), start, end)
    touched = density(merged, start, end, width) > 0
    return "".join(("^" if ascii_only else "▔") if hit else " " for hit in touched)


_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1))
_ROOM = 11  # characters at least from one tick to the next


def axis(start: int, end: int, origin: int, width: int, *, ascii_only: bool) -> tuple[str, str]:
    """Draw the time axis of ``[start, end)``: its unit, and ticks with the time since *origin* at round values."""
    step = tick_step(max(1, (end - start) * _ROOM // width))
    furthest = max(abs(start - origin), abs(end - origin))
    unit, ns, digits = next(scale for scale in scales(step) if furthest >= scale[1] and scale[2] <= 3)
    line = [" "] * width
    free = 0
    for tick in range(-(-(start - origin) // step) * step, end - origin, step):
        at = (tick + origin - start) * width // (end - start)
        label = ("|" if ascii_only else "╵") + f"{tick / ns:.{digits}f}"
        if at >= free and at + len(label) <= width:
            line[at : at + len(label)] = label
            free = at + len(label) + 1
    return unit, "".join(line).rstrip()


def scales(step: int) -> Iterator[tuple[str, int, int]]:
    """Give each unit, the largest first, with its ns and the digits that a multiple of *step* takes in it."""
    for unit, ns in _UNITS:
        yield unit, ns, next(digits for digits in range(10) if step * 10**digits % ns == 0)


def tick_step(least: int) -> int:
    """Give the smallest of 1, 2, 5, 10, 20, 50, ... that is not below *least*."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least:
                return factor * power
        power *= 10


def named(
    starts: NDArray[np.int64], ends: NDArray[np.int64], names: Sequence[Iterable[str]], start: int, end: int,
    width: int, *, ascii_only: bool,
) -> list[tuple[int, str, int]] | None:  # fmt: skip
    """Draw operations one by one, each with the first of its names that fits: ``(column, what to draw, operation)``.

    A name that is one column too long stands with a mark in its middle. None where they are too small to be told apart:
    then ``cells`` is the drawing to take. No names at all where most do not fit.
    """
    bar, line, cut = ("|", "-", "~") if ascii_only else ("▐", "━", "…")
    first = ((starts - start) * width // (end - start)).tolist()
    last = ((ends - start) * width // (end - start)).tolist()
    placed: list[tuple[int, int, str, int]] = []
    free = left_out = 0
    for i in np.argsort(starts, kind="stable").tolist():
        at = max(first[i], free)
        after = max(last[i], first[i] + 1)
        if after <= at:
            left_out += int(ends[i] - starts[i])
            continue
        free = after
        room = after - at - 1
        fitting = [name for name in names[i] if len(name) <= room]
        fitting += [name[: room // 2] + cut + name[room // 2 + 2 :] for name in names[i] if len(name) == room + 1 > 3]
        placed.append((at, room, fitting[0] if fitting else "", i))
    if left_out * 20 > int((ends - starts).sum()):
        return None
    shown = 2 * sum(bool(name) for *_, name, _ in placed) >= len(placed)
    return [
        (column, bar + (name + line * (room - len(name)) if shown else line * room), i)
        for column, room, name, i in placed
    ]
