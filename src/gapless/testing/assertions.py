"""Assertions about programs and runs that say what happened and what to do about it.

A *run* may be a ``Schedule``, a ``Simulation``, a measured or simulated ``Timeline``, or a program that is played
here: a ``Program``, a ``Tape``, the file of one, or its text (several lines). A *program* may be any of these but a
Timeline: what has to be in order is a matter of the program, whatever a run looked like.

>>> loop = '''
... stream a b nonblocking
... h2d in on a 1ms p -> X
... kernel k on b 1ms reads X
... '''
>>> assert_overlaps(loop, "in", "k")
>>> assert_race_free(loop)
Traceback (most recent call last):
    ...
AssertionError: 1 race:
  error: in writes X and k reads it, with no order between them. To repair: record e on a after in; wait e on b before k
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from gapless.model.errors import GaplessError
from gapless.model.explore import explore
from gapless.model.happens_before import Moment, happened_in
from gapless.model.happens_before import order as order_of
from gapless.model.kinds import Bound, Engine
from gapless.model.machine import Machine
from gapless.model.program import Program
from gapless.model.repairs import to_order
from gapless.model.schedule import Schedule
from gapless.model.simulation import Simulation, simulate
from gapless.model.tape import Tape, read
from gapless.model.units import format_time, ns
from gapless.timeline.measure import engine_of, intersect, total, union
from gapless.timeline.timeline import Timeline

Source = Program | Tape | Simulation | Schedule | str | PathLike[str]
Run = Source | Timeline

_ENGINES = {"h2d": Engine.H2D, "sm": Engine.SM, "d2h": Engine.D2H, "peer": Engine.PEER}
_SHOWN = 5

# What to do about an operation that was held up by this.
_REMEDIES: dict[int, str] = {
    Bound.STREAM: "Put the two into different streams",
    Bound.FENCE: "Make the streams non-blocking, or keep the default stream out of it",
    Bound.EVENT: "Drop the wait if nothing needs it, or record the event earlier",
    Bound.COPY_ENGINE: "Copies of one direction take turns on their engine, whatever the streams",
    Bound.SM: "The kernels before leave no room on the GPU",
    Bound.QUEUE: "Use fewer streams, or more connections (CUDA_DEVICE_MAX_CONNECTIONS)",
    Bound.HOST: "Issue it earlier: look at what the host thread did before",
    Bound.FIRST_USE: "Launch the kernel once before the loop",
}


def assert_overlaps(run: Run, a: str, b: str) -> None:
    """Two operations run at the same time for a while.

    In a Timeline several operations may have the same name: then some *a* overlaps some *b*.

    >>> assert_overlaps('''
    ... stream s nonblocking
    ... h2d h on s 1ms
    ... kernel k on s 1ms
    ... ''', "h", "k")
    Traceback (most recent call last):
        ...
    AssertionError: h and k do not overlap: h runs from 0ms to 1ms, k from 1ms to 2ms.
    k waited for stream order: h2d h on s. Put the two into different streams.
    """
    found = _Intervals(run)
    if not found.shared(a, b):
        raise AssertionError(f"{a} and {b} do not overlap: {found.told(a, b)}.{found.reason(a, b)}")


def assert_no_overlap(run: Run, a: str, b: str) -> None:
    """Two operations never run at the same time. In a Timeline: none called *a* with any called *b*.

    >>> assert_no_overlap('''
    ... stream a b nonblocking
    ... h2d h on a 2ms
    ... kernel k on b 1ms
    ... ''', "h", "k")
    Traceback (most recent call last):
        ...
    AssertionError: h and k overlap for 1ms: h runs from 0ms to 2ms, k from 0ms to 1ms
    """
    found = _Intervals(run)
    if shared := found.shared(a, b):
        raise AssertionError(f"{a} and {b} overlap for {found.text(shared)}: {found.told(a, b)}")


def assert_busy(run: Run, engine: str, at_least: float) -> None:
    """An engine (``h2d``, ``sm``, ``d2h``, ``peer``) has something to do for a fraction of the run.

    >>> assert_busy('''
    ... stream s nonblocking
    ... h2d h on s 1ms
    ... kernel k on s 3ms
    ... ''', "sm", at_least=0.9)
    Traceback (most recent call last):
        ...
    AssertionError: sm is busy for 75.0% of the run, not for 90.0%
    """
    if engine not in _ENGINES:
        raise GaplessError(f"no engine is called {engine!r}; there are {', '.join(_ENGINES)}")
    busy = _busy(run, _ENGINES[engine])
    if busy < at_least:
        raise AssertionError(f"{engine} is busy for {busy:.1%} of the run, not for {at_least:.1%}")


def assert_ordered(program: Source, first: str, then: str) -> None:
    """One operation or call is over before another starts, by the documented rules, in every run.

    >>> assert_ordered('''
    ... stream a b nonblocking
    ... kernel x on a 1ms
    ... kernel y on b 1ms
    ... ''', "x", "y")
    Traceback (most recent call last):
        ...
    AssertionError: nothing orders x before y. To order them: record e on a after x; wait e on b before y
    """
    played = _simulation(program).schedule
    x, y = _moment(played.program, first), _moment(played.program, then)
    happened = happened_in(played)
    order = order_of(played.program, happened)
    if order.before(x, y):
        return
    if order.before(y, x):
        raise AssertionError(f"{first} comes after {then}: {then} is over before {first} starts")
    raise AssertionError(
        f"nothing orders {first} before {then}. To order them: {to_order(played.program, x, y, happened)}"
    )


def assert_unordered(program: Source, a: str, b: str) -> None:
    """Neither of two operations or calls has to wait for the other, by the documented rules.

    >>> assert_unordered('''
    ... stream a blocking
    ... kernel x on a 1ms
    ... kernel y on default 1ms
    ... ''', "x", "y")
    Traceback (most recent call last):
        ...
    AssertionError: x is ordered before y: they share a stream, an event, a fence or the host
    """
    played = _simulation(program).schedule
    x, y = _moment(played.program, a), _moment(played.program, b)
    order = order_of(played.program, happened_in(played))
    for first, then, before in ((a, b, order.before(x, y)), (b, a, order.before(y, x))):
        if before:
            raise AssertionError(
                f"{first} is ordered before {then}: they share a stream, an event, a fence or the host"
            )


def assert_race_free(program: Source, *, runs: int = 1, machine: Machine | None = None) -> None:
    """No two accesses race, and nothing is used outside its allocation.

    With *runs* the program is also run in so many other ways that the rules leave open (``explore``). Warnings, which
    today's drivers hide, and what host threads leave to chance are no failures.

    >>> assert_race_free('''
    ... stream a nonblocking
    ... d2h d on a 1ms X -> p
    ... host 5ms
    ... query a
    ... read p as r
    ... ''', runs=50)
    Traceback (most recent call last):
        ...
    AssertionError: 1 race in 50 runs:
      t3: error: d writes p, r reads it, and nothing orders the two
    To look at the first: replay(program, "t3")
    """
    played = _simulation(program, machine)
    errors = [str(race) for race in played.races.errors]
    if errors:
        raise AssertionError(_listed(errors, f"{len(errors)} race{'s' * (len(errors) > 1)}:"))
    if runs > 1:
        found = explore(played.schedule.program, played.schedule.machine, runs)
        if found.failures:
            many = f"{len(found.failures)} race{'s' * (len(found.failures) > 1)} in {runs} runs:"
            first = f'To look at the first: replay(program, "{found.failures[0].choice}")'
            raise AssertionError(_listed([str(failure) for failure in found.failures], many) + "\n" + first)


def assert_holds(tape: Tape | str | PathLike[str], *, machine: Machine | None = None) -> None:
    """A tape (as read, its file, or its text) holds what it expects.

    >>> assert_holds('''
    ... stream s nonblocking
    ... kernel k on s 1ms
    ... expect makespan 2ms
    ... ''')
    Traceback (most recent call last):
        ...
    AssertionError: 1 of 1 expectations does not hold:
      line 4: expect makespan 2ms: 1ms
    """
    played = _simulation(tape, machine)
    if not played.expectations:
        raise GaplessError(f"{played.name} expects nothing: add lines such as: expect makespan 6ms")
    broken = [
        f"line {expectation.line}: {expectation}: {outcome.got}"
        for expectation, outcome in zip(played.expectations, played.outcomes, strict=True)
        if not outcome.holds
    ]
    if broken:
        do = "does" if len(broken) == 1 else "do"
        raise AssertionError(
            _listed(broken, f"{len(broken)} of {len(played.expectations)} expectations {do} not hold:")
        )


# ------------------------------------------------------------------------------------------------------------ inside


def _simulation(source: Source, machine: Machine | None = None) -> Simulation:
    """Play whatever can be played; a text of several lines is a tape."""
    if isinstance(source, Simulation):
        return source
    if isinstance(source, Schedule):
        return Simulation("schedule", source, (), np.empty(0, np.int32))
    if isinstance(source, str) and "\n" in source:
        source = read(source)
    return simulate(Path(source) if isinstance(source, str) else source, machine=machine)


def _moment(program: Program, name: str) -> Moment:
    """Give the row of a name, with the number of the run for ``x.2``."""
    try:
        return program.find(name)
    except GaplessError:
        whole, _, number = name.rpartition(".")
        if not whole or not number.isdecimal():
            raise
        return program.find(whole), int(number)


class _Intervals:
    """When operations of a run were busy: ps of a schedule, ns of a timeline."""

    def __init__(self, run: Run) -> None:
        self.timeline = run if isinstance(run, Timeline) else None
        self.schedule = None if isinstance(run, Timeline) else _simulation(run).schedule

    def of(self, name: str) -> np.ndarray:
        """Give the intervals of all operations of a name, disjoint and sorted."""
        if self.schedule is not None:
            op = self.schedule.op(name)
            return union(self.schedule.start[[op]], self.schedule.end[[op]])
        assert self.timeline is not None
        numbers = [number for number, text in enumerate(self.timeline.strings) if text == name]
        rows = np.isin(self.timeline.ops.name, numbers)
        if not rows.any():
            raise GaplessError(f"no operation of the timeline is called {name!r}")
        return union(self.timeline.ops.start[rows], self.timeline.ops.end[rows])

    def shared(self, a: str, b: str) -> int:
        """Give for how long both run."""
        return total(intersect(self.of(a), self.of(b)))

    def text(self, time: int) -> str:
        return format_time(time if self.schedule is not None else time * ns)

    def told(self, a: str, b: str) -> str:
        """Say when both run; of several intervals those that come closest to each other."""
        x, y = self.of(a), self.of(b)
        gaps = np.maximum(x[:, None, 0], y[None, :, 0]) - np.minimum(x[:, None, 1], y[None, :, 1])
        i, j = np.unravel_index(int(gaps.argmin()), gaps.shape)
        (a0, a1), (b0, b1) = x[i].tolist(), y[j].tolist()
        several = " (the closest of several)" if gaps.size > 1 else ""
        return f"{a} runs from {self.text(a0)} to {self.text(a1)}, {b} from {self.text(b0)} to {self.text(b1)}{several}"

    def reason(self, a: str, b: str) -> str:
        """Say what held the later one, and what to do about it."""
        run = self.schedule
        if run is None:
            return ""
        name = a if run.start[run.op(a)] > run.start[run.op(b)] else b
        op = run.op(name)
        bound = int(run.bound[op])
        remedy = f" {_REMEDIES[bound]}." if bound in _REMEDIES else ""
        return f"\n{name} waited for {run.bound_by_text(op).partition(' (call ')[0]}.{remedy}"


def _busy(run: Run, engine: Engine) -> float:
    if isinstance(run, Timeline):
        start, end = run.window()
        rows = engine_of(run.ops) == engine
        return total(union(run.ops.start[rows], run.ops.end[rows])) / (end - start) if end > start else 0.0
    schedule = _simulation(run).schedule
    return schedule.busy(engine) / schedule.makespan if schedule.makespan else 0.0


def _listed(lines: list[str], head: str) -> str:
    shown = [f"  {line}" for line in lines[:_SHOWN]]
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([head, *shown, *more])
