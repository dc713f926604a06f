"""What if: repairs made on the recorded program, alone and together, and the wall time that the model gives each.

Speed-ups speak of the program without a profiler: what it costs is taken out on both sides. Every prediction has a
range: the replay error, and the noise of what it rests on (copies of pageable memory, calls of a framework, hops).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gapless.model.errors import GaplessError
from gapless.model.kinds import OpKind
from gapless.model.machine import Machine
from gapless.timeline.measure import DEVICE_ENGINES, clip, engine_of, total, union
from gapless.timeline.timeline import RangeKind

from .fit import RECORDED, TRACED, UNTRACED, machine_of, reference
from .rates import PinnedRate
from .repairs import REPAIRS, Shop, parse
from .replay import Run, run
from .report import Prediction, Replay
from .script import Script, script_of
from .work import Work, gather

LONGEST = 2_000  # operations: of a longer run a stretch from its middle stands for the whole
WORTH = 0.02  # a gain below this is not worth a change
TRUSTED = 0.05  # a replay error above this says that predictions are not to be trusted

# Half-widths of the range, relative (H200: spread of repeated runs of the recorded programs).
_NOISE, _PAGEABLE, _FRAMEWORK, _SHORT = 0.02, 0.05, 0.05, 0.03
_SHORT_OPERATION = 50_000  # ns: with shorter operations hops and calls weigh


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One set of repairs, replayed."""

    repairs: tuple[str, ...]
    script: Script
    run: Run
    idle: Mapping[str, str]  # the repairs that found nothing to change, and why

    @property
    def changed(self) -> bool:
        """Whether some repair found something to change."""
        return len(self.idle) < len(set(self.repairs))


class WhatIf:
    """One device's work, replayed and repaired. Raises GaplessError where no call is known that issued any of it."""

    def __init__(self, work: Work, rates: dict[OpKind, PinnedRate], base: Machine | None = None) -> None:
        self.base = base or reference()
        if (work.end - work.start) * 1_000 >= 2**62:
            raise GaplessError("The run is longer than the model can count (53 days).")
        self.window = work.end - work.start  # ns
        self.work = _stretch(work)
        self.is_part = self.work is not work
        self.span = int(self.work.ops.end.max()) - int(self.work.ops.start.min())  # ns, with what the window cuts
        self._share, self._aside = _place_in(work, self.span, is_part=self.is_part)
        self.elsewhere = _busiest_elsewhere(work)  # row of the device, ns; the device -1 where there is none
        # What other profilers cost was not measured: nothing is taken out.
        self._untraced = {"torch.profiler": UNTRACED, "gapless": RECORDED}.get(work.timeline.format, TRACED)
        self._shop = Shop(machine=self.base, rates=rates)
        self._tail = float(self.base.kernel_tail)
        self._known: dict[tuple[str, ...], Outcome] = {}

    @cached_property
    def traced(self) -> Run:
        """The recorded run, profiler and all, replayed unchanged."""
        return run(script_of(self.work, TRACED, self._tail), self.work, machine_of(self.work, self.base, TRACED))

    @cached_property
    def script(self) -> Script:
        """The recorded program without the profiler."""
        return script_of(self.work, self._untraced, self._tail)

    @cached_property
    def machine(self) -> Machine:
        """The machine without the profiler."""
        return machine_of(self.work, self.base, self._untraced)

    @cached_property
    def before(self) -> Run:
        """The program without the profiler, replayed unchanged."""
        return run(self.script, self.work, self.machine)

    @cached_property
    def error(self) -> float:
        """The replay error: signed, relative to the traced window."""
        return self.traced.device_wall / max(self.span, 1) - 1

    def replay(self, wall_ms: float) -> Replay:
        """Give the replay of the whole window of *wall_ms*."""
        return Replay(wall_ms=wall_ms * (1 + self.error), error=self.error, untraced_ms=self._window_ms(self.before),
                      taken_out=not self._untraced.silent)  # fmt: skip

    def outcome(self, repairs: Sequence[str]) -> Outcome:
        """Make repairs one after the other and run the result. Raises GaplessError for a repair that there is not."""
        names = tuple(repairs)
        if names not in self._known:
            script, effective, idle = self.script, list[str](), dict[str, str]()
            for name in names:
                slug, value = parse(name)
                repaired = REPAIRS[slug].apply(script, value, self._shop)
                if repaired is script:
                    idle[name] = REPAIRS[slug].IDLE
                else:
                    effective.append(name)
                script = repaired
            same = tuple(effective)  # repairs that found nothing to change need no run of their own
            if not same:
                result = self.before
            elif same in self._known:
                result = self._known[same].run
            else:
                result = run(script, self.work, self._machine_for(script))
            self._known[names] = Outcome(repairs=names, script=script, run=result, idle=idle)
        return self._known[names]

    def predict(self, repairs: Sequence[str]) -> Prediction:
        """Predict the program with these repairs made."""
        outcome = self.outcome(repairs)
        before, wall_ms = self._window_ms(self.before), self._window_ms(outcome.run)
        wall_ms = max(wall_ms, min(self.elsewhere[1] / 1e6, before))  # the other device is not replayed, and works on
        speedup = before / max(wall_ms, 1e-6)
        margin = self._margin(outcome) if outcome.changed else 0.0
        return Prediction(
            repairs=outcome.repairs, wall_ms=wall_ms, speedup=speedup, low=speedup / (1 + margin),
            high=speedup * (1 + margin), idle=outcome.idle,
        )  # fmt: skip

    def is_held(self, predicted: Prediction) -> bool:
        """Whether another device keeps a prediction from being shorter."""
        return self._window_ms(self.outcome(predicted.repairs).run) < predicted.wall_ms * (1 - WORTH)

    def _window_ms(self, run: Run) -> float:
        """How long the window lasts with this run of its work."""
        return (run.host_wall * self._share + self._aside) / 1e6

    def _machine_for(self, script: Script) -> Machine:
        if not script.graph:
            return self.machine
        # Kernels of a graph follow each other without the hop of separate launches, and take no queue entries.
        hops = {pair: list(three) for pair, three in self.machine.hops.items()}  # type: ignore[call-overload]
        return self.machine.with_knobs(hops=hops | {"sm>sm": [GRAPH_HOP] * 3}, launch_depth="none")

    def _margin(self, outcome: Outcome) -> float:
        acts = (*self.script.acts, *outcome.script.acts)
        durations = [act.duration for act in outcome.script.acts if act.op >= 0]
        margin = _NOISE + abs(self.error)
        margin += _PAGEABLE * any(act.pageable and not act.reads_back for act in acts)
        margin += _FRAMEWORK * bool((self.work.timeline.ranges.kind == RangeKind.CPU_OP).any())
        margin += _SHORT * (float(np.median(durations)) < _SHORT_OPERATION if durations else False)
        return margin


GRAPH_HOP = 350.0  # ns between dependent kernels of a graph (H200: 0.68 us a node of 0.3 us)


def together(what_if: WhatIf, candidates: Sequence[str]) -> Prediction | None:
    """Find the set of repairs with the shortest wall time: pairs first, then one more as long as it pays.

    None where no set beats the best single repair by what makes a change worth while.
    """
    singles = {name: what_if.predict([name]).speedup for name in candidates}
    if len(singles) < 2:
        return None
    names = sorted(singles, key=lambda name: -singles[name])
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    best: tuple[str, ...] = max(pairs, key=lambda pair: what_if.predict(pair).speedup)
    best_speedup = what_if.predict(best).speedup
    while rest := [name for name in names if name not in best]:
        more = max((what_if.predict((*best, name)) for name in rest), key=lambda p: p.speedup)
        if more.speedup < best_speedup * (1 + WORTH):
            break
        best, best_speedup = more.repairs, more.speedup
    if best_speedup < max(singles.values()) * (1 + WORTH):
        return None
    return what_if.predict(best)


def _stretch(work: Work) -> Work:
    """Give the work itself, or a stretch from its middle."""
    if not (work.ops.call >= 0).any():
        raise GaplessError("The timeline does not say which calls issued the work, so it cannot be replayed.")
    count = len(work.ops)
    if count <= LONGEST:
        return work
    first = (count - LONGEST) // 2
    start, end = int(work.ops.start[first]), int(work.ops.end[first : first + LONGEST].max())
    return gather(work.timeline, work.device, start, end)


def _place_in(work: Work, span: int, *, is_part: bool) -> tuple[float, int]:
    """Give by what to multiply the time of the replayed work, *span* ns long, and how many ns to add, for the window.

    An operation that the window cuts is replayed whole, as no part of one could be repaired by itself; the window has
    its share. Before the first and behind the last operation no repair changes anything.
    """
    if is_part:
        return (work.end - work.start) / max(span, 1), 0
    inside = min(int(work.ops.end.max()), work.end) - max(int(work.ops.start.min()), work.start)
    return inside / max(span, 1), work.end - work.start - inside


def _busiest_elsewhere(work: Work) -> tuple[int, int]:
    """Give the other device that the same threads keep busy longest in the window, and for how many ns on one engine.

    Whatever is repaired here, these threads still have that work to wait for.
    """
    every, thread = work.timeline.ops, work.calls.thread
    issued = np.flatnonzero((every.call >= 0) & (every.start < work.end) & (every.end > work.start))
    ours = np.isin(thread[every.call[issued]], thread[work.ops.call[work.ops.call >= 0]])
    rows = issued[ours & (every.device[issued] != work.device)]
    engine = engine_of(every.take(rows))
    busy = {
        (device, kind): total(clip(union(every.start[mine], every.end[mine]), work.start, work.end))
        for device in np.unique(every.device[rows]).tolist()
        for kind in DEVICE_ENGINES
        for mine in [rows[(every.device[rows] == device) & (engine == kind)]]
    }
    (device, _), longest = max(busy.items(), key=lambda item: item[1], default=((-1, -1), 0))
    return device, longest
