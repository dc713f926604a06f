"""What a report says, in the words that all its views share: worth of a finding, times with a repair made, figures."""

from __future__ import annotations

from gapless.diagnosis.report import Finding, Prediction, Report, StepTimes
from gapless.diagnosis.words import ROUNDED
from gapless.model.kinds import Engine
from gapless.views import wording
from gapless.views.lanes import Lanes

NEGLIGIBLE = 0.005  # of the window: a fault that costs less is told in one line
NO_GAIN = 1.005  # a smaller speed-up is none
WORTH = 1.02  # gain below which a repair is not worth a change

_KEYS = {Engine.H2D: "h2d", Engine.SM: "sm", Engine.D2H: "d2h"}


def step_times(steps: StepTimes) -> str:
    """Say how long the program's own steps take."""
    slowest = f"{steps.slowest} {wording.duration(steps.slowest_ms)}"
    if steps.count == 1:
        return f"One step: {slowest}."
    most = f", 19 of 20 within {wording.duration(steps.p95_ms)}" if steps.count >= 20 else ""
    return f"{steps.count:,} steps: median {wording.duration(steps.median_ms)}{most}, slowest {slowest}."


def figures(report: Report, lanes: Lanes) -> dict[Engine | None, tuple[str, ...]]:
    """Give the cells beside each lane, and under None their headings."""
    rows: dict[Engine | None, tuple[str, ...]] = {None: ("busy", "moved", "rate")}
    for engine in lanes.busy:
        use = report.engines.get(_KEYS.get(engine, ""))
        moved = use is not None and use.bytes > 0
        rows[engine] = (
            wording.percent(use.busy) if use else "",
            wording.size(use.bytes) if use and moved else "",
            f"{wording.size(use.gb_per_s * 1e9)}/s" if use and moved else "",
        )
    return rows


def negligible(finding: Finding, wall_ms: float) -> bool:
    """Say whether a fault costs too little for more than a line."""
    return not finding.verdict and not finding.speedup and finding.cost_ms < NEGLIGIBLE * wall_ms


def worth(finding: Finding, wall_ms: float) -> str:
    """Say what the finding's repair gains, else what the finding costs."""
    if finding.speedup:
        return gain(finding.speedup, finding.low, finding.high)
    if not finding.cost_ms:
        return "" if finding.verdict else "costs nothing"
    share = f" ({wording.percent(finding.cost_ms / wall_ms)})" if wall_ms else ""
    return f"{'binds' if finding.verdict else 'costs'} {wording.duration(finding.cost_ms)}{share}"


def gains_nothing(finding: Finding, report: Report) -> bool:
    """Say whether a repair gains nothing alone and is no part of a set that gains."""
    if finding.repair is None or finding.speedup is None or finding.speedup >= NO_GAIN:
        return False
    return report.together is None or finding.repair.name not in report.together.repairs


def counted_from(report: Report) -> str:
    """Give the time that gains are counted from, where figures tell it from the measured one: that of the replay from
    the first call to the return of the last, without the profiler's own cost.
    """
    counted = report.replay.untraced_ms if report.replay else None
    return wording.duration(counted) if counted and abs(counted / report.wall_ms - 1) > ROUNDED else ""


def without_profiler(report: Report) -> bool:
    """Say whether the time that gains are counted from is less than the measured one for want of the profiler."""
    replay = report.replay
    return replay is not None and replay.taken_out and (replay.untraced_ms or report.wall_ms) < report.wall_ms


def off(error: float) -> str:
    """Say how far a replayed time is from the measured one."""
    share = f"{abs(error):.1%}"
    if share == "0.0%":
        return "as was measured"
    return f"{share} {'more' if error > 0 else 'less'} than was measured"


def gain(speedup: float, low: float | None, high: float | None) -> str:
    """Say what a speed-up is worth."""
    if speedup < NO_GAIN:
        return f"no gain ({wording.times(speedup)})"
    if speedup < WORTH:
        return f"not worth it ({wording.times(speedup)})"
    interval = f" ({wording.figure(low)} to {wording.figure(high)})" if low and high else ""
    return f"{wording.times(speedup)} faster{interval}"


def made(prediction: Prediction) -> tuple[str, ...]:
    """Give those of a set of repairs that change something."""
    return tuple(name for name in prediction.repairs if name not in prediction.idle)


def predicted(prediction: Prediction) -> str:
    """Say what a set of repairs gives, and which of them have nothing to change."""
    parts = [f"{name} changes nothing: {why}" for name, why in prediction.idle.items()]
    if repairs := made(prediction):
        change = gain(prediction.speedup, prediction.low, prediction.high)
        parts.insert(0, f"{', '.join(repairs)}: {wording.duration(prediction.wall_ms)}, {change}")
    parts += [
        f"No finding proposes {name}; beside the others it pays: {why}" for name, why in prediction.beside.items()
    ]
    return ". ".join(parts)


def then(finding: Finding, report: Report) -> str:
    """Say what the program would take with the finding's repair made; empty where that is not known."""
    if finding.wall_ms is None:
        return ""
    change = f"{wording.duration(finding.wall_ms)} instead of "
    if counted := counted_from(report):
        return f"{change}{counted}, {'without the profiler' if without_profiler(report) else 'replayed unchanged'}"
    return change + wording.duration(report.wall_ms)


def predictions(report: Report) -> list[str]:
    """Say what repairs together give, and how far to trust predictions."""
    lines: list[str] = []
    for what, prediction in (("Asked for", report.prediction), ("All together", report.together)):
        if prediction:
            words = predicted(prediction)
            lines.append(f"{what}: {words}{'.' * (len(prediction.repairs) > 1 and '. ' in words)}")
    if report.replay:
        replayed = wording.duration(report.replay.wall_ms)
        line = f"Replayed unchanged, the device's work takes {replayed}, {off(report.replay.error)}."
        if lines or any(finding.speedup for finding in report.findings):
            line += " A prediction is less sure than that; its range says by how much."
        lines.append(line)
        if counted := counted_from(report):
            without = ", without the profiler's own cost" if without_profiler(report) else ""
            lines.append(
                f"Gains are counted from {counted}: the replay from the first call to the return of the last{without}."
            )
    return lines
