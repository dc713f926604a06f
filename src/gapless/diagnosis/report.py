"""The Report: what an explanation says, as data. Every view draws this and computes nothing of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gapless.timeline.frames import without_arguments
from gapless.timeline.timeline import Timeline, Unknown

if TYPE_CHECKING:
    from .replay import Run
    from .work import Work

VERSION = 1  # of to_dict(); raised when a key changes its meaning or goes away

NO_SPANS: NDArray[np.int64] = np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A place in the user's program. ``file`` and ``line`` are empty and 0 where only a name is known."""

    file: str
    line: int
    function: str
    count: int = 1  # how many of the finding's events come from here

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place} {self.function}".strip()

    @property
    def brief(self) -> str:
        """The same without the file's folders and the function's arguments, for a sentence."""
        name, arrow, call = self.function.partition(" → ")
        function = without_arguments(name) + arrow + call
        return str(replace(self, file=re.split(r"[/\\]", self.file)[-1], function=function))


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A repair by the name that ``--apply`` takes, how sure it is, and what must hold before it is made."""

    name: str
    grade: str  # "sure", "likely" or "needs care"
    precondition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause of waiting, or the verdict that nothing but the work itself binds."""

    cause: str  # slug of a file in diagnosis/causes
    title: str  # one line a tired engineer understands
    cost_ms: float  # time on the critical path that would not be there without the cause
    count: int  # how many times it happened
    evidence: str  # one or a few sentences with the figures that show it
    advice: str = ""  # what to do, in one or a few sentences
    where: tuple[Where, ...] = ()
    repair: Repair | None = None
    wall_ms: float | None = None  # predicted, with the repair made
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: bool = False  # no fault: it says what binds and whether streams are the tool
    spans: NDArray[np.int64] = field(default_factory=lambda: NO_SPANS)  # (n, 2) ns: where on the timeline it costs

    def to_dict(self) -> dict[str, Any]:
        """Give the finding as plain values."""
        return {
            "cause": self.cause,
            "title": self.title,
            "cost_ms": round(self.cost_ms, 6),
            "count": self.count,
            "evidence": self.evidence,
            "advice": self.advice,
            "where": [{"file": w.file, "line": w.line, "function": w.function, "count": w.count} for w in self.where],
            "repair": None
            if self.repair is None
            else {"name": self.repair.name, "grade": self.repair.grade, "precondition": self.repair.precondition},
            "wall_ms": self.wall_ms,
            "speedup": self.speedup,
            "low": self.low,
            "high": self.high,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineUse:
    """How one engine spent the window."""

    busy: float  # fraction of the window, union of its operations
    bytes: int  # moved by copies; 0 for the SMs
    gb_per_s: float  # bytes over the time the engine was busy, 10^9 bytes a second; 0 where no bytes are known

    def to_dict(self) -> dict[str, Any]:
        """Give the use as plain values."""
        return {"busy": round(self.busy, 6), "bytes": self.bytes, "gb_per_s": round(self.gb_per_s, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The program replayed unchanged: its wall time and the signed relative difference to the measured one."""

    wall_ms: float
    error: float
    # From the first call to the return of the last, without what the profiler itself costs, where gapless can tell.
    untraced_ms: float | None = None
    taken_out: bool = True  # what the profiler costs is known

    def to_dict(self) -> dict[str, Any]:
        """Give the replay as plain values."""
        values: dict[str, Any] = {"wall_ms": round(self.wall_ms, 6), "error": round(self.error, 6)}
        return values | ({} if self.untraced_ms is None else {"untraced_ms": round(self.untraced_ms, 6)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a set of repairs together would give."""

    repairs: tuple[str, ...]
    wall_ms: float
    speedup: float
    low: float | None = None
    high: float | None = None
    idle: Mapping[str, str] = field(default_factory=dict[str, str])  # repairs that change nothing, and why
    beside: Mapping[str, str] = field(default_factory=dict[str, str])  # those that no finding proposes, and what for

    def to_dict(self) -> dict[str, Any]:
        """Give the prediction as plain values."""
        values: dict[str, Any] = {"repairs": list(self.repairs), "wall_ms": self.wall_ms, "speedup": self.speedup}
        values |= {} if self.low is None else {"low": self.low, "high": self.high}
        values |= {"beside": dict(self.beside)} if self.beside else {}
        return values | ({"idle": dict(self.idle)} if self.idle else {})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """The program with some repairs made, run by the model, and the stretch of the measured run that it stands for."""

    repairs: tuple[str, ...]
    run: Run = field(repr=False)
    window: tuple[int, int]  # ns on the measured timeline's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Wall times of the program's own steps, where it marks them."""

    count: int
    median_ms: float
    p95_ms: float
    slowest: str  # name of the slowest step
    slowest_ms: float

    def to_dict(self) -> dict[str, Any]:
        """Give the step times as plain values."""
        return {
            "count": self.count,
            "median_ms": round(self.median_ms, 6),
            "p95_ms": round(self.p95_ms, 6),
            "slowest": self.slowest,
            "slowest_ms": round(self.slowest_ms, 6),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An explanation of one timeline on one device."""

    source: str
    device: str  # its name, or "device 0" where the source has none
    wall_ms: float  # the measured window
    engines: Mapping[str, EngineUse]  # "h2d", "sm", "d2h"
    overlapped: float  # fraction of the window in which at least two engines work
    headline: str  # one or two sentences: how busy, how much overlapped, what binds
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()  # facts that are no findings: warm-up, other devices, what was left out of the window
    unknown: tuple[Unknown, ...] = ()
    lost: tuple[str, ...] = ()  # what was damaged in the source
    mended: tuple[str, ...] = ()  # those of them by which nothing is gone that the program asked of the GPU
    steps: StepTimes | None = None
    replay: Replay | None = None
    together: Prediction | None = None
    prediction: Prediction | None = None
    predicted: Timeline | None = field(default=None, repr=False)  # the program with the repairs asked for, replayed
    repaired: Run | None = field(default=None, repr=False)  # the same as a program and its schedule
    replays: tuple[Replayed, ...] = field(default=(), repr=False)  # each finding's repair, sets of them, in that order
    work: Work | None = field(default=None, repr=False)  # the device's operations with what held each
    timeline: Timeline = field(default_factory=Timeline, repr=False)  # for the views that draw it
    device_row: int = 0  # the device explained, a row of timeline.devices
    window: tuple[int, int] = (0, 0)  # ns on the timeline's clock

    def __repr__(self) -> str:
        causes = ", ".join(finding.cause for finding in self.findings) or "no finding"
        return f"<Report of {self.source}: {self.wall_ms:.4g} ms, {causes}>"

    def to_dict(self) -> dict[str, Any]:
        """Give the report as plain values: a versioned, stable form for JSON. Times in ms, rates in 10^9 bytes/s."""
        values: dict[str, Any] = {
            "version": VERSION,
            "source": self.source,
            "device": self.device,
            "wall_ms": round(self.wall_ms, 6),
            "engines": {name: use.to_dict() for name, use in self.engines.items()},
            "overlapped": round(self.overlapped, 6),
            "headline": self.headline,
            "steps": self.steps and self.steps.to_dict(),
            "replay": self.replay and self.replay.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
            "together": self.together and self.together.to_dict(),
            "notes": list(self.notes),
            "unknown": [{"what": u.what, "text": u.text, "remedy": u.remedy} for u in self.unknown],
            "lost": list(self.lost),
        }
        if self.prediction:
            values["prediction"] = self.prediction.to_dict()
        return values
