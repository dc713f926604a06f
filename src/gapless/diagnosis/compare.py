"""Compare: what changed between two timelines of a program, and does that meet what the program must hold?

Wall times of timelines contain what the profiler costs, on both sides. Predictions speak of the program without it, so
a prediction made from ``before`` is held against the ratio of both programs replayed without the profiler.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gapless.model.errors import GaplessError
from gapless.timeline.timeline import missing

from .case import LEAST
from .causes import CAUSES
from .report import Finding, Prediction, Report

VERSION = 1
CLOSE = 0.03  # a prediction this near to what came is right


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A condition on a report, whether it holds, and what stands there instead."""

    gate: str
    holds: bool
    got: float | str | None  # the value compared; of "no CAUSE" what is there; None where the report has no such value

    @property
    def reason(self) -> str:
        """Say in one line why it fails, or that it holds."""
        got = (
            f"{self.got:.4g}"
            if isinstance(self.got, float)
            else "there is no such value"
            if self.got is None
            else self.got
        )
        return f"{self.gate}: {'holds' if self.holds else 'fails'}, {got}"

    def to_dict(self) -> dict[str, Any]:
        """Give the gate as plain values."""
        return {"gate": self.gate, "holds": self.holds, "got": self.got}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A cause in both reports: what it cost before and costs now, in ms and as part of the window."""

    cause: str
    before_ms: float
    after_ms: float
    before_share: float
    after_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two reports and what lies between them."""

    before: Report
    after: Report
    speedup: float  # of the measured windows, profiler and all
    untraced: float | None  # the same of both replayed without the profiler
    went: tuple[Finding, ...]  # causes of before that are not in after: faults of at least 1 % of the time, verdicts
    came: tuple[Finding, ...]  # the other way round
    stayed: tuple[Change, ...]
    prediction: Prediction | None  # made from before: the repairs that explain the change best
    gates: tuple[Gate, ...] = ()

    def __repr__(self) -> str:
        return f"<Comparison of {self.before.source} and {self.after.source}: {self.speedup:.3g} times as fast>"

    @property
    def ok(self) -> bool:
        """Whether all gates hold."""
        return all(gate.holds for gate in self.gates)

    @property
    def verdict(self) -> str:
        """Say in a sentence how the prediction made from before compares with what came; empty without one."""
        if (
            self.prediction is None
            or self.untraced is None
            or len(self.prediction.idle) == len(self.prediction.repairs)
        ):
            return ""
        made = " and ".join(name for name in self.prediction.repairs if name not in self.prediction.idle)
        low, high = self.prediction.low or self.prediction.speedup, self.prediction.high or self.prediction.speedup
        said = f"From before, {made} was predicted to make it {self.prediction.speedup:.3g} times as fast"
        said += f" ({low:.3g} to {high:.3g})"
        came = f"both replayed without the profiler, it became {self.untraced:.3g} times as fast"
        if low <= self.untraced <= high or abs(self.prediction.speedup / self.untraced - 1) <= CLOSE:
            return f"{said}; {came}."
        more = "more" if self.untraced > high else "less"
        return f"{said}; {came}: {more} than that, so something else changed too, or the prediction was wrong."

    def to_dict(self) -> dict[str, Any]:
        """Give the comparison as plain values: a versioned, stable form for JSON."""
        return {
            "version": VERSION,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "went": [finding.cause for finding in self.went],
            "came": [finding.cause for finding in self.came],
            "stayed": [change.cause for change in self.stayed],
            "speedup": self.speedup,
            "untraced_speedup": self.untraced,
            "prediction": self.prediction and self.prediction.to_dict(),
            "gates": [gate.to_dict() for gate in self.gates],
        }


def compare(before: Report, after: Report, gates: Sequence[str] = ()) -> Comparison:
    """Compare two reports of one program, and hold *gates* against the second.

    Raises GaplessError for a gate that cannot be read, and where one of the two has no work of a GPU.
    """
    read = [read_gate(text, speedup=True) for text in gates]
    for report in (before, after):
        if not report.wall_ms or not has_work(report):
            raise GaplessError(f"{report.source}: nothing to compare. {report.headline}")
    old, new = _causes(before), _causes(after)
    speedup = before.wall_ms / after.wall_ms
    return Comparison(
        before=before, after=after, speedup=speedup, untraced=_untraced(before, after),
        went=tuple(finding for cause, finding in old.items() if cause not in new),
        came=tuple(finding for cause, finding in new.items() if cause not in old),
        stayed=tuple(_change(finding, new[cause], before, after) for cause, finding in old.items() if cause in new),
        prediction=_explaining(before, after, old, new),
        gates=_unjudged(gates, before, after) or tuple(gate(after, speedup) for gate in read),
    )  # fmt: skip


def has_work(report: Report) -> bool:
    """Tell whether the GPU did anything in what a report explains: of nothing, no gate holds."""
    return report.work is not None


def hold(report: Report, gates: Sequence[str]) -> tuple[Gate, ...]:
    """Hold gates against one report; where nothing worked on the GPU or part of it is missing, none holds.

    Raises GaplessError for one that cannot be read.
    """
    read = [read_gate(text, speedup=False) for text in gates]
    if not has_work(report):
        return tuple(Gate(gate=text, holds=False, got="nothing worked on the GPU") for text in gates)
    return _unjudged(gates, report) or tuple(gate(report, None) for gate in read)


def _unjudged(gates: Sequence[str], *reports: Report) -> tuple[Gate, ...]:
    """Give gates that do not hold where part of a timeline is missing: of the rest nobody knows what it stands for."""
    cut = [report for report in reports if missing(report)]
    return tuple(Gate(gate=text, holds=False, got=f"part of {cut[0].source} is missing") for text in gates if cut)


# What changed


def _causes(report: Report) -> dict[str, Finding]:
    """The findings of a report that are worth a word, by cause; of one named twice the costlier."""
    found: dict[str, Finding] = {}
    for finding in report.findings:
        known = found.get(finding.cause)
        worth = finding.verdict or _share(finding, report) >= LEAST
        if worth and (known is None or finding.cost_ms > known.cost_ms):
            found[finding.cause] = finding
    return found


def _share(finding: Finding, report: Report) -> float:
    return finding.cost_ms / report.wall_ms if report.wall_ms else 0.0


def _change(old: Finding, new: Finding, before: Report, after: Report) -> Change:
    return Change(cause=old.cause, before_ms=old.cost_ms, after_ms=new.cost_ms, before_share=_share(old, before),
                  after_share=_share(new, after))  # fmt: skip


def _untraced(before: Report, after: Report) -> float | None:
    """How many times as fast it became, both programs replayed without the profiler."""
    if before.replay is None or after.replay is None or not before.replay.untraced_ms or not after.replay.untraced_ms:
        return None
    return before.replay.untraced_ms / after.replay.untraced_ms


def _explaining(
    before: Report, after: Report, old: Mapping[str, Finding], new: Mapping[str, Finding]
) -> Prediction | None:
    """Of the predictions for repairs whose causes went or shrank, give the one nearest to what came."""
    came = _untraced(before, after)
    if came is None:
        return None
    gone = [
        finding for cause, finding in old.items()
        if cause not in new or _share(new[cause], after) * after.wall_ms < _share(finding, before) * before.wall_ms / 2
    ]  # fmt: skip
    repairs = {finding.repair.name: finding for finding in gone if finding.repair and finding.speedup}
    candidates = [
        Prediction(repairs=(name,), wall_ms=f.wall_ms or 0.0, speedup=f.speedup or 1.0, low=f.low, high=f.high)
        for name, f in repairs.items()
    ]
    if before.together and repairs.keys() & set(before.together.repairs):
        candidates.append(before.together)
    if before.prediction:
        candidates.append(before.prediction)
    return min(candidates, key=lambda p: abs(p.speedup / came - 1), default=None)


# Gates

_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_VALUES: Mapping[str, tuple[str, Callable[[Report], float | None]]] = {
    "wall_ms": ("length of what is explained, in ms", lambda report: report.wall_ms),
    "overlapped": ("part of it in which at least two engines work", lambda report: report.overlapped),
    **{
        f"busy.{engine}": (f"part of it in which {what}", lambda report, engine=engine: report.engines[engine].busy)
        for engine, what in (
            ("h2d", "copies to the device run"), ("sm", "kernels run"), ("d2h", "copies to the host run"),
        )
    },
    **{
        f"gb_per_s.{engine}": (
            f"10^9 bytes a second of copies to the {where}, while they run",
            lambda report, engine=engine: report.engines[engine].gb_per_s,
        )
        for engine, where in (("h2d", "device"), ("d2h", "host"))
    },
    "step_ms": ("median of the program's own steps, in ms", lambda report: report.steps and report.steps.median_ms),
    "slowest_step_ms": ("the slowest of them, in ms", lambda report: report.steps and report.steps.slowest_ms),
    "untraced_ms": (
        "predicted length without the profiler's own cost, in ms",
        lambda report: report.replay and report.replay.untraced_ms,
    ),
    "replay_error": (
        "part by which the replay misses what was measured",
        lambda report: abs(report.replay.error) if report.replay else None,
    ),
}  # fmt: skip
_SPEEDUP = "how many times as fast AFTER is as BEFORE, as traced"


def gate_names(*, speedup: bool) -> list[tuple[str, str]]:
    """Give what a gate may name, and what each means. *speedup* says that two timelines are compared."""
    named = [(name, what) for name, (what, _) in _VALUES.items()]
    return [
        *named,
        *[("speedup", _SPEEDUP)] * speedup,
        ("no CAUSE", f"that cause costs less than {LEAST:.0%} of the time"),
    ]


_PERCENT = re.compile(r"([0-9.]+)\s*%")


def read_gate(text: str, *, speedup: bool) -> Callable[[Report, float | None], Gate]:
    """Read a gate: ``NAME>=NUMBER`` (also ``<=``, ``>``, ``<``; ``60%`` is 0.6) or ``no CAUSE``.

    ``no CAUSE`` holds where that cause costs less than 1 % of the time. *speedup* says that the name ``speedup`` is
    known too. Raises GaplessError that says what could stand there.
    """
    words = text.split()
    if words[:1] == ["no"] and len(words) == 2:
        return _no(text, words[1])
    match = re.fullmatch(r"\s*([A-Za-z0-9_.]+)\s*(>=|<=|>|<)\s*(\S+|[0-9.]+\s*%)\s*", text)
    names = [*_VALUES, *["speedup"] * speedup]
    if match is None:
        raise GaplessError(
            f"The gate {text!r} cannot be read. Write NAME>=NUMBER, NAME<=NUMBER or no CAUSE, such as "
            f"'overlapped>=0.6' or 'no pageable-copy'. The names are: {', '.join(names)}."
        )
    name, sign, number = match.groups()
    if name not in names:
        near = get_close_matches(name, names, 1)
        meant = f" Did you mean {near[0]}?" if near else ""
        raise GaplessError(f"The gate {text!r}: a report has no {name!r}.{meant} The names are: {', '.join(names)}.")
    return _compared(text, name, _SIGNS[sign], _number(text, number))


def _number(gate: str, text: str) -> float:
    percent = _PERCENT.fullmatch(text)
    try:
        value = float(percent[1]) / 100 if percent else float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise GaplessError(f"The gate {gate!r}: {text!r} is no number. Write one such as 0.6, 60% or 30.")
    return value


def _compared(
    text: str, name: str, sign: Callable[[float, float], bool], limit: float
) -> Callable[[Report, float | None], Gate]:
    def gate(report: Report, speedup: float | None) -> Gate:
        got = speedup if name == "speedup" else _VALUES[name][1](report)
        return Gate(gate=text, holds=got is not None and sign(got, limit), got=got if got is None else float(got))

    return gate


def _no(text: str, cause: str) -> Callable[[Report, float | None], Gate]:
    if cause not in CAUSES:
        near = get_close_matches(cause, CAUSES, 1)
        meant = f" Did you mean {near[0]}?" if near else ""
        raise GaplessError(
            f"The gate {text!r}: there is no cause {cause!r}.{meant} The causes are: {', '.join(CAUSES)}."
        )

    def gate(report: Report, speedup: float | None) -> Gate:
        there = [finding for finding in report.findings if finding.cause == cause]
        costly = [finding for finding in there if finding.verdict or _share(finding, report) >= LEAST]
        got = "; ".join(f"{f.title} ({_share(f, report):.1%} of the time)" for f in costly or there) or "not found"
        return Gate(gate=text, holds=not costly, got=got)

    return gate


__all__ = ["Change", "Comparison", "Gate", "compare", "gate_names", "has_work", "hold", "read_gate"]
