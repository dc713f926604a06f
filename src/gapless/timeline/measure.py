"""Busy, overlapped, exposed and idle time of a device's engines: unions of intervals, never sums of durations.

A set of intervals is an ``(n, 2)`` int64 array of half-open ``[start, end)`` pairs in ns, disjoint, not touching and
sorted; all functions here give such sets and, but for ``union``, expect them. Everything is exact in whole ns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model.errors import GaplessError
from gapless.model.kinds import ENGINE_OF, Engine, OpKind
from gapless.timeline.timeline import Ops, RangeKind, Timeline

Intervals: TypeAlias = NDArray[np.int64]

COPY_ENGINES = (Engine.H2D, Engine.D2H, Engine.PEER)
DEVICE_ENGINES = (Engine.H2D, Engine.SM, Engine.D2H, Engine.PEER)

_ENGINE_OF_KIND = np.array([ENGINE_OF[kind] for kind in OpKind], np.int8)


# Sets of intervals


def union(starts: NDArray[Any], ends: NDArray[Any]) -> Intervals:
    """Give the time covered by any of the intervals, which may overlap and come in any order; empty ones cover none."""
    starts, ends = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    real = ends > starts
    if not real.all():
        starts, ends = starts[real], ends[real]
    if not len(starts):
        return np.empty((0, 2), np.int64)
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    opens = np.flatnonzero(np.concatenate(([True], starts[1:] > reach[:-1])))
    closes = np.concatenate((opens[1:] - 1, [len(starts) - 1]))
    return np.stack((starts[opens], reach[closes]), axis=1)


def total(intervals: Intervals) -> int:
    """Give the covered time in ns."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Give the time covered by both."""
    first = np.searchsorted(b[:, 1], a[:, 0], side="right")
    after = np.searchsorted(b[:, 0], a[:, 1], side="left")
    partners = after - first
    of_a = np.repeat(np.arange(len(a)), partners)
    nth = np.arange(len(of_a)) - np.repeat(np.cumsum(partners) - partners, partners)
    of_b = first[of_a] + nth
    return np.stack((np.maximum(a[of_a, 0], b[of_b, 0]), np.minimum(a[of_a, 1], b[of_b, 1])), axis=1)


def clip(intervals: Intervals, start: int, end: int) -> Intervals:
    """Give the time covered inside ``[start, end)``."""
    if end <= start:
        return intervals[:0]
    inside = intervals[(intervals[:, 1] > start) & (intervals[:, 0] < end)]
    return np.clip(inside, start, end)


def complement(intervals: Intervals, start: int, end: int) -> Intervals:
    """Give the time of ``[start, end)`` that is not covered."""
    inside = clip(intervals, start, end)
    opens = np.concatenate(([start], inside[:, 1]))
    closes = np.concatenate((inside[:, 0], [end]))
    gaps = closes > opens
    return np.stack((opens[gaps], closes[gaps]), axis=1)


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """Give the time covered by *a* and not by *b*."""
    if not len(a):
        return a
    return intersect(a, complement(b, int(a[0, 0]), int(a[-1, 1])))


def time_at_depth(*sets: Intervals, start: int, end: int) -> list[int]:
    """Give for each number of sets, from 0 to all, how many ns of ``[start, end)`` exactly so many of them cover."""
    clipped = [clip(intervals, start, end) for intervals in sets]
    opens = np.concatenate([np.array([start], np.int64), *(s[:, 0] for s in clipped)])
    closes = np.concatenate([np.array([end], np.int64), *(s[:, 1] for s in clipped)])
    times = np.concatenate((opens, closes))
    change = np.concatenate((np.ones(len(opens), np.int8), np.full(len(closes), -1, np.int8)))
    order = np.argsort(times, kind="stable")  # a merge of sorted runs
    lengths = np.diff(times[order])
    depth = np.cumsum(change[order])[:-1] - 1  # the window itself counts as one
    return [int(lengths[depth == d].sum()) for d in range(len(sets) + 1)]


def density(intervals: Intervals, start: int, end: int, cells: int) -> NDArray[np.float64]:
    """Give the covered fraction of each of *cells* equal slices of ``[start, end)``."""
    inside = clip(intervals, start, end)
    if not len(inside) or end <= start:
        return np.zeros(cells)
    lengths = inside[:, 1] - inside[:, 0]
    covered = np.cumsum(lengths)
    knots = (inside - start).ravel().astype(np.float64)
    covered_at = np.stack((covered - lengths, covered), axis=1).ravel().astype(np.float64)
    edges = np.arange(cells + 1) * ((end - start) / cells)
    return np.clip(np.diff(np.interp(edges, knots, covered_at)) * (cells / (end - start)), 0.0, 1.0)


# Engines


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineTime:
    """How one engine spent a window."""

    intervals: Intervals  # busy, clipped to the window
    busy_ns: int
    ops: int  # operations that touch the window
    bytes: int  # moved inside the window by copies of known size; a copy across an edge counts by its part inside
    gb_per_s: float  # those bytes over the busy time of those copies, 10^9 bytes a second; 0 where none are known
    exposed_ns: int  # busy while nothing runs on the SMs; 0 for the SMs themselves


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measures:
    """How the engines of one device spent the window ``[start, end)`` in ns."""

    start: int
    end: int
    engines: Mapping[Engine, EngineTime]  # H2D, SM, D2H and PEER
    overlapped_ns: int  # at least two of the engines busy
    all_ns: int  # H2D, SM and D2H busy at once
    idle_ns: int  # no engine busy

    @property
    def wall_ns(self) -> int:
        """Give the length of the window."""
        return self.end - self.start


def engine_of(ops: Ops) -> NDArray[np.int8]:
    """Give the Engine of every operation."""
    return _ENGINE_OF_KIND[ops.kind]


def measure(timeline: Timeline, *, device: int, start: int, end: int) -> Measures:
    """Measure the engines of a device (a row of ``timeline.devices``) over ``[start, end)`` ns.

    Work of the host (host functions, copies inside host memory) and event records and waits occupy no engine.
    """
    ops = timeline.ops
    at_start = ops.start == start  # an operation without length counts where it stands
    inside = (ops.start < end) & ((ops.end > start) | at_start) & (start < end)  # in a window without length, nothing
    here = (ops.device == device) & inside
    served_by = np.where(here, engine_of(ops), Engine.NONE)
    rows = {engine: np.flatnonzero(served_by == engine) for engine in DEVICE_ENGINES}
    busy = {engine: clip(union(ops.start[mine], ops.end[mine]), start, end) for engine, mine in rows.items()}
    depths = time_at_depth(*busy.values(), start=start, end=end)
    return Measures(
        start=start,
        end=end,
        engines={engine: _engine_time(ops, mine, engine, busy, start, end) for engine, mine in rows.items()},
        overlapped_ns=sum(depths[2:]),
        all_ns=total(intersect(intersect(busy[Engine.H2D], busy[Engine.D2H]), busy[Engine.SM])),
        idle_ns=depths[0],
    )


def _engine_time(
    ops: Ops, rows: NDArray[np.intp], engine: Engine, busy: Mapping[Engine, Intervals], start: int, end: int
) -> EngineTime:
    moved, rate = _moved(ops, rows, start, end) if engine in COPY_ENGINES else (0, 0.0)
    return EngineTime(
        intervals=busy[engine],
        busy_ns=total(busy[engine]),
        ops=len(rows),
        bytes=moved,
        gb_per_s=rate,
        exposed_ns=0 if engine is Engine.SM else total(subtract(busy[engine], busy[Engine.SM])),
    )


def _moved(ops: Ops, rows: NDArray[np.intp], start: int, end: int) -> tuple[int, float]:
    """Give the bytes that copies of known size moved inside the window, and the rate in 10^9 bytes a second."""
    known = rows[ops.bytes[rows] >= 0]
    starts, ends, sizes = ops.start[known], ops.end[known], ops.bytes[known]
    lasted, inside = ends - starts, np.minimum(ends, end) - np.maximum(starts, start)
    cut = inside < lasted
    moved = int(sizes[~cut].sum()) + round(float((sizes[cut] * (inside[cut] / lasted[cut])).sum()))
    busy_ns = total(clip(union(starts, ends), start, end))
    return moved, moved / busy_ns if busy_ns else 0.0


# Windows


def device_window(timeline: Timeline, device: int) -> tuple[int, int]:
    """Give the first start and the last end of work on a device in ns; ``(0, 0)`` where it has none."""
    here = timeline.ops.device == device
    if not here.any():
        return 0, 0
    return int(timeline.ops.start[here].min()), int(timeline.ops.end[here].max())


def busiest_device(timeline: Timeline) -> int:
    """Give the row of the device that worked longest (its operations' durations added up), 0 where none worked."""
    ops = timeline.ops
    here = ops.device >= 0
    if not here.any():
        return 0
    worked = np.bincount(ops.device[here], weights=(ops.end - ops.start)[here])
    return int(worked.argmax()) if worked.any() else int(ops.device[here][0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """The program's own steps on one device, in order. Step *i* fills ``[bounds[i], bounds[i + 1])``.

    A step ends when its host range has ended and the last work that it launched on the SMs is done; the next one begins
    there, or at its host range where that comes later. So the steps' times add up to the whole, a host that runs ahead
    of the device does not make its steps look short, time between two ranges belongs to the later one, and a copy
    that trails into the next steps, such as a checkpoint, does not stretch its own. The last step lasts until all its
    work is done.
    """

    names: tuple[str, ...]
    numbers: NDArray[np.int64]  # as in the marker (ProfilerStep#5), else 0, 1, 2, ...
    bounds: NDArray[np.int64]  # (n + 1,) ns

    def __len__(self) -> int:
        return len(self.names)

    @property
    def durations(self) -> NDArray[np.int64]:
        """Give how long each step took in ns."""
        return np.diff(self.bounds)


def steps_of(timeline: Timeline, device: int) -> Steps:
    """Find the steps that the program marks. Where several threads mark steps, those of the one with most are taken."""
    ranges = timeline.ranges.take(timeline.ranges.kind == RangeKind.STEP)
    if not len(ranges):
        return Steps(names=(), numbers=np.empty(0, np.int64), bounds=np.zeros(1, np.int64))
    threads, marks = np.unique(ranges.thread, return_counts=True)
    ranges = ranges.take(ranges.thread == threads[marks.argmax()])
    ranges = ranges.take(np.argsort(ranges.start, kind="stable"))
    names = tuple(timeline.name_of(int(name)) for name in ranges.name)
    return Steps(names=names, numbers=_numbers(names), bounds=_bounds(timeline, device, ranges.start, ranges.end))


def _numbers(names: tuple[str, ...]) -> NDArray[np.int64]:
    """Give the number at the end of every name; plain positions unless all have one and they rise."""
    found = [re.search(r"(\d{1,18})\D*$", name) for name in names]
    numbers = np.array([int(match[1]) if match else -1 for match in found], np.int64)
    told = bool((numbers >= 0).all()) and bool((np.diff(numbers) > 0).all())
    return numbers if told else np.arange(len(names), dtype=np.int64)


def _bounds(timeline: Timeline, device: int, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    ops = timeline.ops.take(timeline.ops.device == device)
    issued = np.where(ops.call >= 0, timeline.calls.start[ops.call], ops.start) if len(timeline.calls) else ops.start
    step = np.searchsorted(begins, issued, side="right") - 1
    counts = (step >= 0) & ((engine_of(ops) == Engine.SM) | (step == len(begins) - 1))
    done = ends.copy()
    np.maximum.at(done, step[counts], ops.end[counts])
    done = np.maximum.accumulate(done)
    return np.concatenate((begins[:1], np.maximum(done[:-1], begins[1:]), done[-1:]))


def window_of(
    timeline: Timeline,
    *,
    device: int,
    start_ns: int | None = None,
    end_ns: int | None = None,
    steps: tuple[int, int] | None = None,
) -> tuple[int, int]:
    """Give the window to explain in ns on the timeline's clock: all work of the device, part of it, or some steps.

    *start_ns* and *end_ns* are on the timeline's clock too; each left out is the first start or the last end of work on
    the device, and what lies outside of that work is cut off: there the device had ended or not begun. *steps* ``(a,
    b)`` are the steps a to b - 1 by the number in their marker, by position from 0 where markers carry none; see
    ``Steps`` for where a step begins and ends. Raises GaplessError for steps that the timeline does not have, for a
    window without length and for one that lies outside of the work as a whole.
    """
    if steps is not None:
        if start_ns is not None or end_ns is not None:
            raise GaplessError("A window is either some steps or a stretch of time, not both.")
        return _step_window(steps_of(timeline, device), *steps)
    first, last = device_window(timeline, device)
    start, end = first if start_ns is None else start_ns, last if end_ns is None else end_ns
    if start_ns is None is end_ns:
        return first, last
    if start_ns is not None and end_ns is not None and end <= start:
        raise GaplessError(f"The window is empty: {_ms(end - first)} is not after {_ms(start - first)}.")
    if start >= last or end <= first:
        asked = f"from {_ms(start - first)} {'on' if end_ns is None else f'to {_ms(end - first)}'}"
        raise GaplessError(
            f"The window {asked} lies outside of this timeline: from the first to the last work on the device it is "
            f"{_ms(last - first)} long. Ask for a part of that."
        )
    return max(start, first), min(end, last)


def _step_window(steps: Steps, first: int, after: int) -> tuple[int, int]:
    asked = f"{first}:{after}"
    if not len(steps):
        raise GaplessError(
            f"Steps {asked} were asked for, but this timeline marks no steps. Call the profiler's step() once an "
            "iteration, or put each iteration into an NVTX range named after it, and record again; or give a stretch "
            "of time instead."
        )
    if after <= first:
        raise GaplessError(f"Steps {asked} are none: the second number is the first step left out, so 5:10 is 5 to 9.")
    chosen = np.flatnonzero((steps.numbers >= first) & (steps.numbers < after))
    if not len(chosen) or first < steps.numbers[0] or after > steps.numbers[-1] + 1:
        raise GaplessError(
            f"Steps {asked} are not all in this timeline: it marks steps {steps.numbers[0]} to {steps.numbers[-1]}, "
            f"so all of them are {steps.numbers[0]}:{steps.numbers[-1] + 1}."
        )
    return int(steps.bounds[chosen[0]]), int(steps.bounds[chosen[-1] + 1])


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.6g} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """The times of the program's own steps, in ns."""

    count: int
    median_ns: int
    p95_ns: int  # no more than one step in twenty takes longer
    slowest: str  # name of the slowest step
    slowest_ns: int


def step_times(timeline: Timeline, *, device: int, start: int, end: int) -> StepSummary | None:
    """Sum up the steps whose middle lies in ``[start, end)``; None where there is none. ``Steps`` says what a step is.

    The middle, because the first step begins on the host before the device has work, and the last may end there later.
    """
    steps = steps_of(timeline, device)
    middles = (steps.bounds[:-1] + steps.bounds[1:]) // 2
    inside = np.flatnonzero((middles >= start) & (middles < end))
    if not len(inside):
        return None
    durations = steps.durations[inside]
    slowest = int(durations.argmax())
    return StepSummary(
        count=len(durations),
        median_ns=int(np.median(durations)),
        p95_ns=int(np.quantile(durations, 0.95, method="higher")),
        slowest=steps.names[int(inside[slowest])],
        slowest_ns=int(durations[slowest]),
    )
