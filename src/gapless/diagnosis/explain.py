"""Explain a timeline: measure, find who made the binding engine wait, and say it as findings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gapless.model.errors import GaplessError
from gapless.model.kinds import Engine, StreamKind
from gapless.model.machine import Machine
from gapless.timeline.measure import (
    Measures,
    StepSummary,
    busiest_device,
    device_window,
    measure,
    step_times,
    window_of,
)
from gapless.timeline.simulated import from_schedule
from gapless.timeline.timeline import Device, Timeline, Unknown

from .blame import blame
from .case import LEAST, PAYS, Case
from .causes import CAUSES
from .gains import Gains, gains
from .rates import needed, pinned_rates
from .report import EngineUse, Finding, Report, StepTimes
from .streams import infer_kinds
from .waits import Reason
from .whatif import TRUSTED, WORTH
from .words import ROUNDED, ms, plural
from .work import Work, gather

MINOR = 0.25  # of the window: communication that shows for less does not bind
_COUNTED = re.compile(r"For (?=\d)|The (?=.*\d)|(?=\d)")  # what the source cannot tell is counted in all of it
ENGINES = {"h2d": Engine.H2D, "sm": Engine.SM, "d2h": Engine.D2H}


def explain(
    timeline: Timeline,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    steps: tuple[int, int] | None = None,
    device: int | None = None,
    apply: Sequence[str] = (),
    machine: Machine | None = None,
) -> Report:
    """Explain why the engines of one device waited, and predict what repairs would gain.

    The window is ``[start_ns, end_ns]`` on the timeline's clock or the steps ``(first, after)``; by default from the
    first to the last work on the device, beyond which no window goes. *device* is an id as in ``timeline.devices``,
    by default that of the busiest. *apply* names repairs (``"pin"``, ``"streams=4"``) to predict together; *machine* is
    the profile that gives what the timeline has no sample of (default: the measured H200). Raises GaplessError for a
    window or device that the timeline does not have, and for a repair that there is not.
    """
    row = busiest_device(timeline) if device is None else _device_row(timeline, device)
    if not (timeline.ops.device == row).any():
        return _nothing(timeline, row)
    start, end = window_of(timeline, device=row, start_ns=start_ns, end_ns=end_ns, steps=steps)
    if row < len(timeline.devices) and timeline.devices[row].is_host:
        return _on_host(timeline, row, start, end, apply)
    work = gather(timeline, row, start, end)
    if not len(work.ops):
        return replace(_nothing(timeline, row), wall_ms=(end - start) / 1e6, window=(start, end))
    known = infer_kinds(work)
    if known is not timeline:
        work = gather(known, row, start, end)
    measures = measure(known, device=row, start=start, end=end)
    case = _case(work, measures)
    predicted = gains(case, _findings(case), apply, machine)
    findings = _ranked(case, predicted)
    started = None if steps else case.start_up
    notes = _notes(case, findings, "" if started is None or started.dominates else started.text)
    if cut := _cut(case, start_ns, end_ns):
        notes = (cut, *notes)
    return Report(
        source=timeline.source,
        device=_device_name(case.device),
        wall_ms=case.wall / 1e6,
        engines={name: _use(measures, engine) for name, engine in ENGINES.items()},
        overlapped=measures.overlapped_ns / max(case.wall, 1),
        headline=_headline(case, findings, started.text if started and started.dominates else ""),
        findings=findings,
        notes=(*notes, *predicted.notes),
        unknown=_unknown(case),
        lost=timeline.lost,
        mended=timeline.mended,
        steps=_step_times(step_times(known, device=row, start=start, end=end)),
        replay=predicted.replay,
        together=predicted.together,
        prediction=predicted.prediction,
        predicted=None if predicted.repaired is None else from_schedule(predicted.repaired.schedule),
        repaired=predicted.repaired,
        replays=predicted.replays,
        work=work,
        timeline=known,
        device_row=row,
        window=(start, end),
    )


def _case(work: Work, measures: Measures) -> Case:
    devices = work.timeline.devices
    device = devices[work.device] if work.device < len(devices) else Device(id=work.device)
    rates = pinned_rates(work, device)
    best = needed(work, rates)
    return Case(work=work, blame=blame(work, best), measures=measures, device=device, rates=rates, needed=best)


def _findings(case: Case) -> list[Finding]:
    """Ask every cause in turn; a wait is claimed once."""
    free = np.ones(len(case.waits), bool)
    found: list[Finding] = []
    for cause in CAUSES.values():
        claimed = cause.claims(case)
        mine = np.zeros(len(free), bool) if claimed is None else claimed & free
        free &= ~mine
        finding = cause.finding(case, case.waits.take(mine))
        if finding is not None and (finding.verdict or finding.count > 1 or finding.cost_ms * 1e6 >= LEAST * case.wall):
            found.append(finding)
    return found


def _ranked(case: Case, predicted: Gains) -> tuple[Finding, ...]:
    """Faults by gain, those whose repair alone wins nothing last; the verdict first where no repair is worth it.

    A repair is credited with no more than its fault costs, and where the replay cannot be trusted, with just that.
    """
    wall = case.wall / 1e6
    trusted = predicted.replay is not None and abs(predicted.replay.error) <= TRUSTED

    def gain(finding: Finding) -> float:
        of_cost = wall / max(wall - finding.cost_ms, 1e-9)
        return min(finding.speedup, of_cost) if trusted and finding.speedup else of_cost

    faults = [f for f in predicted.findings if not f.verdict]
    faults.sort(key=lambda f: (-gain(f) if gain(f) >= 1 + WORTH else -1.0, -f.cost_ms))
    # What binds is said before communication that takes a small part; processes that take turns come first.
    minor = {f.cause for f in predicted.findings if f.cause == "several-devices" and f.cost_ms < MINOR * wall}
    verdicts = sorted((f for f in predicted.findings if f.verdict), key=lambda f: f.cause in minor)
    best = max(map(gain, faults), default=1.0)
    if trusted and predicted.together:
        all_costs = sum(f.cost_ms for f in faults)
        best = max(best, min(predicted.together.speedup, wall / max(wall - all_costs, 1e-9)))
    return tuple(faults + verdicts if best > 1 + PAYS else verdicts + faults)


def _headline(case: Case, findings: tuple[Finding, ...], started: str) -> str:
    wall = case.wall
    busy = {name: case.measures.engines[engine].busy_ns / max(wall, 1) for name, engine in ENGINES.items()}
    words = {"h2d": "H2D copies", "sm": "kernels", "d2h": "D2H copies"}
    working = ", ".join(f"{word} {busy[name]:.0%}" for name, word in words.items() if busy[name] > 0)
    overlapped = case.measures.overlapped_ns / max(wall, 1)
    first = f"Of {ms(wall)}: {working or 'nothing of any length'}; at least two engines at once {overlapped:.0%}."
    first += f" {started}" * bool(started)
    if not findings:
        return f"{first} {_unexplained_words(case)}"
    top = findings[0]
    if top.verdict:
        return f"{first} {top.title}."
    return f"{first} {top.title}: {top.cost_ms / (wall / 1e6):.0%} of the time."


def _unexplained_words(case: Case) -> str:
    idle = case.blame.idle / max(case.wall, 1)
    if idle < PAYS:
        return "Nothing holds the engines up."
    filling = int(case.waits.cost[case.waits.reason == Reason.PIPELINE].sum()) + case.blame.turnaround
    if filling > case.blame.idle / 2:
        return (
            f"The {case.engine_words} wait {idle:.0%} of the time: for input, between one and the next, and at the end."
        )
    return f"The {case.engine_words} wait {idle:.0%} of the time, for no reason that this timeline shows."


def _notes(case: Case, findings: tuple[Finding, ...], started: str) -> tuple[str, ...]:
    notes = [started] * bool(started)
    unexplained = int(case.waits.cost[case.waits.reason == Reason.UNEXPLAINED].sum())
    if unexplained >= LEAST * case.wall and all(f.cause != "hardware-queue" for f in findings):
        notes.append(
            f"For {ms(unexplained)} the {case.engine_words} waited although all that this timeline shows had let them "
            "start; an event wait that it does not show is the usual reason."
        )
    ops = case.work.timeline.ops
    others = sorted(set(np.unique(ops.device).tolist()) - {case.work.device})
    if others:
        names = ", ".join(str(case.work.timeline.devices[d].id) for d in others)
        notes.append(
            f"This explains device {case.device.id}; device{'s' * (len(others) > 1)} {names} worked too (--device N)."
        )
    return tuple(notes)


def _cut(case: Case, start_ns: int | None, end_ns: int | None) -> str:
    """Say how far the window asked for goes beyond the device's work; empty where no further than figures round."""
    start, end = case.work.start, case.work.end
    first = device_window(case.work.timeline, case.work.device)[0]
    early = 0 if start_ns is None else start - start_ns
    late = 0 if end_ns is None else end_ns - end
    beyond = [f"{said} the {which} work on the device" for by, said, which in (
        (early, f"begins {ms(early)} before", "first"), (late, f"ends {ms(late)} after", "last"),
    ) if by > ROUNDED * case.wall]  # fmt: skip
    if not beyond:
        return ""
    return (
        f"The window asked for {' and '.join(beyond)}. That is left out: explained is the timeline from "
        f"{(start - first) / 1e6:.6g} ms to {(end - first) / 1e6:.6g} ms."
    )


def _unknown(case: Case) -> tuple[Unknown, ...]:
    """What the source cannot tell, with what was inferred instead."""
    streams = [s for s in case.work.timeline.streams if s.device == case.work.device]
    words: list[str] = []
    for kind, name in ((StreamKind.BLOCKING, "blocking"), (StreamKind.NON_BLOCKING, "non-blocking")):
        ids = [str(s.id) for s in streams if s.inferred and s.kind is kind]
        if ids:
            words.append(f"{plural(len(ids), 'stream')} ({_listed(ids)}) inferred to be {name}")
    found: list[Unknown] = []
    used = case.streams_of(np.arange(len(case.work.ops)))
    told = all(case.work.timeline.streams[row].kind is StreamKind.LEGACY for row in used)
    is_part = (case.work.start, case.work.end) != device_window(case.work.timeline, case.work.device)
    for unknown in case.work.timeline.unknown:
        if unknown.what == "stream-kinds" and told:
            continue  # one default stream: there is nothing to tell apart
        if is_part and (counted := _COUNTED.match(unknown.text)):
            text = f"In the whole timeline, {counted[0].lower()}{unknown.text[counted.end() :]}"
            unknown = replace(unknown, text=text)
        if unknown.what == "stream-kinds" and words:
            unknown = replace(unknown, text=f"{unknown.text} By the fencing seen: {' and '.join(words)}.")
        found.append(unknown)
    return tuple(found)


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])}, … {names[-1]}"


def _use(measures: Measures, engine: Engine) -> EngineUse:
    time = measures.engines[engine]
    return EngineUse(busy=time.busy_ns / max(measures.wall_ns, 1), bytes=time.bytes, gb_per_s=time.gb_per_s)


def _step_times(summary: StepSummary | None) -> StepTimes | None:
    if summary is None:
        return None
    return StepTimes(count=summary.count, median_ms=summary.median_ns / 1e6, p95_ms=summary.p95_ns / 1e6,
                     slowest=summary.slowest, slowest_ms=summary.slowest_ns / 1e6)  # fmt: skip


def _device_row(timeline: Timeline, device: int) -> int:
    for row, known in enumerate(timeline.devices):
        if known.id == device:
            return row
    known = ", ".join(str(d.id) for d in timeline.devices) or "none"
    raise GaplessError(f"There is no device {device} in this timeline; it has: {known}.")


def _device_name(device: Device) -> str:
    return device.name or f"device {device.id}"


def _on_host(timeline: Timeline, row: int, start: int, end: int, apply: Sequence[str]) -> Report:
    """The report of a pipeline on threads of a host: facts, and where to look. Nothing here waits by a rule of CUDA."""
    if apply:
        raise GaplessError(
            f"There is nothing to repair with {apply[0]}: this pipeline ran on threads of the host, without a GPU."
        )
    measures = measure(timeline, device=row, start=start, end=end)
    stages = ((Engine.H2D, "copies in"), (Engine.SM, "kernels"), (Engine.D2H, "copies out"))
    wall = max(measures.wall_ns, 1)
    busy = ", ".join(f"{words} {measures.engines[engine].busy_ns / wall:.0%}" for engine, words in stages)
    return replace(
        _nothing(timeline, row),
        wall_ms=measures.wall_ns / 1e6,
        engines={name: _use(measures, engine) for name, engine in ENGINES.items()},
        overlapped=measures.overlapped_ns / wall,
        headline="This pipeline ran on threads of the host. Here is no GPU, no link and no CUDA call that anything "
        f"waited for, so there is nothing to explain. Of {ms(wall)}, its stages were at work: {busy}. Its own report, "
        "pipe.report(), says which of them binds.",
        unknown=(),
    )


def _nothing(timeline: Timeline, row: int) -> Report:
    """The report where a device has no work: a fact, and no verdict."""
    device = timeline.devices[row] if timeline.devices else Device(id=0)
    busy = np.unique(timeline.ops.device).tolist()
    if not busy:
        headline = "No GPU activity in this timeline. Was CUDA activity switched on when it was recorded "
        headline += "(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])?"
        if timeline.format == "gapless":
            headline = "No GPU activity in this recording: no kernel, copy or memset ended while it ran."
    elif row in busy:
        headline = "No GPU activity in this window."
    else:
        names = ", ".join(str(timeline.devices[other].id) for other in busy)
        headline = f"No activity on device {device.id}: what worked in this timeline is device {names}."
    return Report(
        source=timeline.source,
        device=_device_name(device),
        wall_ms=0.0,
        engines={name: EngineUse(busy=0.0, bytes=0, gb_per_s=0.0) for name in ENGINES},
        overlapped=0.0,
        headline=headline,
        unknown=timeline.unknown,
        lost=timeline.lost,
        mended=timeline.mended,
        timeline=timeline,
        device_row=row,
    )
