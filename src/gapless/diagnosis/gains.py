"""What each finding's repair would gain, and several of them together: predictions put beside the findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gapless.model.errors import GaplessError
from gapless.model.kinds import OpKind
from gapless.model.machine import Machine

from .case import Case
from .repairs import parse
from .replay import Run
from .report import Finding, Prediction, Replay, Replayed
from .whatif import TRUSTED, WORTH, WhatIf, together
from .words import ROUNDED, ms

# What often has to come with a repair before it pays: pinned copies need a stream of their own and a host that runs on.
_WITH = {
    "pin": ("no-sync", "streams=4", "prefetch=1"),
    "no-sync": ("prefetch=1", "streams=4"),
    "off-default-stream": ("no-sync",),
}
# What each of those does beside others, where no finding proposes it.
_BESIDE = {
    "no-sync": "the host issues the next work instead of waiting for the last",
    "streams=4": "copies of one chunk run beside the kernels of others",
    "prefetch=1": "the next input is copied in a stream of its own while the kernels work on this one",
}
_SAME = 0.001  # relative: times nearer to each other are the same
_LEAST = 0.01  # of the window: a repair whose cause costs less is not tried in sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """The findings with their gains, and the rest of what replaying says."""

    findings: tuple[Finding, ...]
    replay: Replay | None = None
    together: Prediction | None = None
    prediction: Prediction | None = None
    repaired: Run | None = None  # the program with the repairs asked for, replayed
    replays: tuple[Replayed, ...] = ()
    notes: tuple[str, ...] = ()


def gains(case: Case, findings: Sequence[Finding], repairs: Sequence[str], machine: Machine | None) -> Gains:
    """Predict what every finding's repair gains, and what *repairs*, asked for by name, give.

    Raises GaplessError for a repair that there is not or that is named twice, and where repairs are asked of a run that
    cannot be replayed.
    """
    asked: dict[str, str] = {}
    for name in repairs:
        slug, _ = parse(name)
        if slug in asked:
            raise GaplessError(f"{slug} is asked for twice, as {asked[slug]} and as {name}. Name it once.")
        asked[slug] = name
    try:
        what_if = WhatIf(case.work, case.rates, machine)
        replayed = what_if.replay(case.wall / 1e6)
    except GaplessError as problem:
        if repairs:
            raise
        return Gains(findings=tuple(findings), notes=(f"Nothing is predicted: {problem}",))
    with_gain = tuple(_with_gain(finding, what_if) for finding in findings)
    best = together(what_if, _candidates(case, with_gain, what_if))
    proposed = {f.repair.name for f in with_gain if f.repair is not None}
    sets = [f.repair.name for f in with_gain if f.repair is not None and f.speedup is not None]
    shown = [*((name,) for name in sets), *((best.repairs,) if best else ()), *((tuple(repairs),) if repairs else ())]
    return Gains(
        findings=with_gain,
        replay=replayed,
        together=best and replace(best, beside={n: _BESIDE[n] for n in best.repairs if n not in proposed}),
        prediction=_asked(what_if, repairs) if repairs else None,
        repaired=what_if.outcome(repairs).run if repairs else None,
        replays=tuple(
            Replayed(repairs=names, run=what_if.outcome(names).run, window=(what_if.work.start, what_if.work.end))
            for names in dict.fromkeys(shown)
        ),
        notes=(*_notes(what_if), *_held(what_if, [(name,) for name in sets])),
    )


def _with_gain(finding: Finding, what_if: WhatIf) -> Finding:
    if finding.verdict or finding.repair is None:
        return finding
    predicted = what_if.predict([finding.repair.name])
    return replace(finding, wall_ms=predicted.wall_ms, speedup=predicted.speedup, low=predicted.low,
                   high=predicted.high)  # fmt: skip


def _asked(what_if: WhatIf, repairs: Sequence[str]) -> Prediction:
    """Predict the repairs asked for, and say which of them add nothing to the others."""
    predicted = what_if.predict(repairs)
    kept, idle = [name for name in repairs if name not in predicted.idle], dict(predicted.idle)
    for name in reversed(kept):
        others = [other for other in kept if other != name]
        if others and abs(what_if.predict(others).wall_ms / predicted.wall_ms - 1) < _SAME:
            kept, idle[name] = others, f"the time is the same with {', '.join(others)} alone"
    return replace(predicted, idle=idle)


def _candidates(case: Case, findings: Sequence[Finding], what_if: WhatIf) -> list[str]:
    """The repairs to try in sets: those of faults that cost something, and what they often need beside them."""
    names = [f.repair.name for f in findings
             if f.repair is not None and not f.verdict and f.cost_ms * 1e6 >= _LEAST * case.wall]  # fmt: skip
    returns = (case.work.ops.kind == OpKind.D2H) & (case.work.ops.bytes > 1024)
    for name in tuple(names):
        for other in _WITH.get(name, ()):
            # Steps that send nothing back may build on each other (a training loop): prefetch, do not deal them out.
            if other == ("prefetch=1" if np.any(returns) else "streams=4"):
                continue
            names.append(other)
    unique = list(dict.fromkeys(names))
    return [name for name in unique if what_if.outcome([name]).changed or name in names[:1]]


def _notes(what_if: WhatIf) -> tuple[str, ...]:
    notes: list[str] = []
    if abs(what_if.error) > TRUSTED:
        off = f"{abs(what_if.error):.0%} {'more' if what_if.error > 0 else 'less'}"
        notes.append(
            f"Replaying this run unchanged takes {off} than was measured: something that this timeline does not show, "
            "such as event waits, other devices or what host threads wait for, matters here. Do not trust the "
            "predicted gains."
        )
    if what_if.is_part:
        count = len(what_if.work.ops)
        notes.append(f"Gains are predicted from a stretch of {count:,} operations in the middle of the run.")
    elif what_if.span > (1 + ROUNDED) * what_if.window:
        notes.append(
            f"The window cuts operations: they are replayed whole, {ms(what_if.span)} in all, and gains told for the "
            f"{ms(what_if.window)} of the window."
        )
    return tuple(notes)


def _held(what_if: WhatIf, repairs: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Say which other device keeps repairs from gaining more."""
    if not any(what_if.is_held(what_if.predict(names)) for names in repairs):
        return ()
    row, busy = what_if.elsewhere
    other = what_if.work.timeline.devices[row].id
    return (
        f"Device {other} works for {ms(busy)} of this time, and the same host thread has its work to wait for: no "
        f"repair here makes the program quicker than that (--device {other}).",
    )


__all__ = ["WORTH", "Gains", "gains"]
