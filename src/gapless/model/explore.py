"""Exploration: one program run in many of the ways that the rules leave open, to find the run that goes wrong.

::

    found = explore(program, n=500)
    print(found)                              # h17: error: x writes X and y reads it ...
    run = replay(program, "h17")              # exactly that run, to look at

What no rule fixes is varied: how host threads come to their calls, how long operations take, and what this or that
driver and GPU do where the documentation promises nothing. A run is a short text, ``h17``: what is varied (``h`` host
threads, ``t`` times, ``m`` the machine, several as ``htm17``) and the seed. ``plain`` is the program as it stands. The
same text gives the same run, as long as program and machine stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

import numpy as np
from numpy.typing import NDArray

from .errors import DeadlockError, GaplessError
from .expectations import Expectation, error_name, evaluate
from .happens_before import happened_in
from .kinds import CallKind, CudaError
from .machine import Machine
from .plan import plan
from .program import Program
from .races import Race, find_races
from .schedule import Schedule, schedule
from .units import us

LETTERS = "htm"
# What an expectation says that must hold in every run; times and answers of queries belong to one.
IN_EVERY_RUN = ("order", "unordered", "race", "no race", "warning", "nondeterminism", "error")

_TEXT = re.compile(r"(h?t?m?)(\d{1,18})", re.ASCII)

# What the documentation leaves to driver and GPU (sections 3, 4 and 6), by knob. `launch_blocking` and `sync_memops`
# are not here: they are promises.
_OPEN: dict[str, tuple[str, ...]] = {
    "copy_arbitration": ("ready", "drain_channel"),
    "shared_copy_engine": ("no", "yes"),
    "kernels": ("leftover", "exclusive"),
    "queues": ("ideal", "1", "2", "8"),  # with the policy below
    "copy_queues": ("same", "ideal", "1", "4"),
    "launch_depth": ("none", "1", "4"),
    "d2d_engine": ("sm", "ce"),
    "memset_engine": ("sm", "ce"),
    "pageable": ("blocks", "staged"),
    "peer_barrier_all": ("no", "yes"),
    "legacy_noop_barrier": ("yes", "listed", "no"),
    "malloc_sync": ("no", "yes"),
    "free_sync": ("yes", "no"),
    "hostfree_sync": ("yes", "no"),
    "hostunregister_sync": ("yes", "no"),
    "first_launch_barrier": ("no", "yes"),
    "driver_lock": ("no", "yes"),
    "hostfn_workers": ("1", "2", "16"),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run a program: what is varied (letters of ``LETTERS``), and the seed. Prints as ``h17``."""

    varied: str = ""
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.varied}{self.seed}" if self.varied else "plain"

    @classmethod
    def parse(cls, text: str) -> Choice:
        """Read what ``str`` wrote. Raises ``GaplessError``."""
        found = _TEXT.fullmatch(text)
        if text == "plain":
            return cls()
        if not found or not found[1]:
            raise GaplessError(f"{text!r} is no run; write plain, or what is varied (h, t, m) and a seed: h17, htm4")
        return cls(found[1], int(found[2]))


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that went wrong, and the run that shows it with the least varied."""

    choice: Choice
    what: str

    def __str__(self) -> str:
        return f"{self.choice}: {self.what}"


@dataclass(frozen=True, slots=True)
class Exploration:
    """What exploring found: everything that went wrong, each once, in the order in which it turned up."""

    runs: int
    orders: int  # different orders of issue that were seen
    failures: tuple[Failure, ...]

    def __str__(self) -> str:
        if not self.failures:
            return f"nothing went wrong in {self.runs} runs ({self.orders} orders of issue)"
        return "\n".join(map(str, self.failures))


def explore(program: Program, machine: Machine | None = None, n: int = 100, seed: int = 0, *,
            expectations: Sequence[Expectation] = ()) -> Exploration:  # fmt: skip
    """Run a program *n* times, the first time as it stands, and gather what goes wrong.

    Wrong is a deadlock, a CUDA error of a call that has none in the first run, an expectation of order or races that
    does not hold, or, where none of that kind is given, a race that is an error. Times are not judged: they are varied.
    The same *seed* explores the same runs. Raises ``GaplessError`` for a program that cannot run at all.
    """
    judge = _Judge([e for e in expectations if e.kind in IN_EVERY_RUN and e.value != CudaError.NOT_READY])
    found: dict[str, Choice] = {}
    for choice, run in runs(program, machine, n, seed):
        for what in judge(run):
            if what not in found:
                found[what] = _least(program, machine, choice, what, judge)
    return Exploration(max(n, 0), len(judge.orders), tuple(Failure(choice, what) for what, choice in found.items()))


def runs(program: Program, machine: Machine | None = None, n: int = 100, seed: int = 0,
         ) -> Iterator[tuple[Choice, Schedule | DeadlockError]]:  # fmt: skip
    """Give *n* runs of a program, the first as it stands; a run that deadlocks is given as its error."""
    for number in range(n):
        choice = Choice(LETTERS, seed + number) if number else Choice()
        yield choice, _run(program, machine, choice)


def replay(program: Program, choice: Choice | str, machine: Machine | None = None) -> Schedule:
    """Run a program exactly as a choice says.

    Raises ``DeadlockError`` where that run deadlocks, ``GaplessError`` for a text that is no choice.
    """
    varied, other = vary(program, choice if isinstance(choice, Choice) else Choice.parse(choice), machine)
    return schedule(varied, other)


def vary(program: Program, choice: Choice, machine: Machine | None = None) -> tuple[Program, Machine]:
    """Give the program with the costs and durations, and the machine with the knobs, that a choice stands for."""
    machine = Machine() if machine is None else machine
    for letter in choice.varied:
        program, machine = _VARY[letter](program, machine, Random(f"{letter}{choice.seed}"))
    return program, machine


def _run(program: Program, machine: Machine | None, choice: Choice) -> Schedule | DeadlockError:
    try:
        return replay(program, choice, machine)
    except DeadlockError as deadlock:
        return deadlock


def _least(program: Program, machine: Machine | None, choice: Choice, what: str, judge: _Judge) -> Choice:
    """Give the choice with the same seed that varies least and still goes wrong in the same way."""
    for count in range(len(choice.varied)):
        for letters in combinations(choice.varied, count):
            less = Choice("".join(letters), choice.seed)
            if what in judge(_run(program, machine, less)):
                return less
    return choice


class _Judge:
    """Says what is wrong with a run. Runs that cannot differ in order or answers are judged once."""

    def __init__(self, expectations: Sequence[Expectation]) -> None:
        self._expectations = expectations
        self._judged: dict[tuple[bytes, bytes], list[str]] = {}
        self._errors: NDArray[np.int16] | None = None  # of the first run
        self.orders: set[bytes] = set()

    def __call__(self, run: Schedule | DeadlockError) -> list[str]:
        if isinstance(run, DeadlockError):
            return [str(run)]
        key = run.order.tobytes(), run.error.tobytes()
        self.orders.add(key[0])
        if key not in self._judged:
            self._judged[key] = [*self._new_errors(run), *self._broken(run)]
        return self._judged[key]

    def _new_errors(self, run: Schedule) -> Iterator[str]:
        """Errors that the first run has not; what queries and elapsed times answer is no error."""
        if self._errors is None:
            self._errors = run.error
        answers = np.isin(run.program.rows.call, (CallKind.QUERY, CallKind.ELAPSED))
        for row in np.flatnonzero((run.error != self._errors) & (run.error != 0) & ~answers).tolist():
            yield f"{run.program.describe(row)} fails: {error_name(int(run.error[row]))}"

    def _broken(self, run: Schedule) -> Iterator[str]:
        if self._expectations:
            for expectation, outcome in zip(self._expectations, evaluate(self._expectations, run), strict=True):
                if not outcome.holds:
                    yield f"line {expectation.line}: {expectation}: {outcome.got}"
        else:
            for race in find_races(run.program, happened_in(run)).errors:
                yield _in_one_way(race)


def _in_one_way(race: Race) -> str:
    """Say a race in the same words whichever of the two was issued first, and without the repair."""
    a, b = sorted((race.first, race.second), key=lambda access: (access.row, access.run))
    return f"{race.kind.word}: {a.name} {a.does} {race.buffer}, {b.name} {b.does} it, and nothing orders the two"


# -------------------------------------------------------------------------------------------------- what is varied


def _vary_hosts(program: Program, machine: Machine, random: Random) -> tuple[Program, Machine]:
    """Let the host threads take their time: before every call a little, at their own paces, or long before a few."""
    rows, count = program.rows, len(program)
    into_cuda = (rows.call < CallKind.HOST_WORK) | (rows.call == CallKind.BATCH)
    calls = np.flatnonzero(into_cuda).tolist()
    if not calls:
        return program, machine
    usual = _usual_time(program)
    way = random.randrange(3)
    if way == 0:
        late = [random.random() * usual if random.random() < 0.7 else 0.0 for _ in range(count)]
    elif way == 1:
        paces = [random.choice((0.0, 0.01, 1.0, 10.0)) * usual for _ in program.threads]
        late = [random.random() * paces[thread] for thread in rows.thread.tolist()]
    else:  # a thread that is held before one call until all else is done meets what nobody thought of
        everything = float(np.maximum(rows.duration, 0).sum() + count * usual)
        late = [random.random() * usual / 1000 for _ in range(count)]
        for _ in range(random.randint(1, 3)):
            late[random.choice(calls)] += everything
    base = plan(program, machine).cost
    cost = np.asarray(late).astype(np.int64) + (np.asarray(base, np.int64) if base is not None else 0)
    work = rows.call == CallKind.HOST_WORK
    factors = np.array([random.choice((0.0, 0.1, 1.0, 10.0)) for _ in range(count)])
    duration = np.where(work, rows.duration * factors, rows.duration).astype(np.int64)
    return program.replace(cost=np.where(work, rows.cost, cost), duration=duration), machine


def _vary_times(program: Program, machine: Machine, random: Random) -> tuple[Program, Machine]:
    """Let operations take longer or shorter: each for itself, stream by stream, or some out of all proportion."""
    rows, count = program.rows, len(program)
    way = random.randrange(3)
    if way == 0:
        factors = [2.0 ** random.uniform(-3, 3) for _ in range(count)]
    elif way == 1:
        paces = [random.choice((0.01, 1.0, 100.0)) for _ in range(len(program.streams) + 1)]
        factors = [paces[stream] for stream in rows.stream.tolist()]
    else:
        factors = [random.choice((0.001, 1.0, 1.0, 1000.0)) for _ in range(count)]
    program = _with_times(program, machine)
    times = program.rows.duration
    return program.replace(duration=np.where(rows.op >= 0, times * factors, times).astype(np.int64)), machine


def _vary_machine(program: Program, machine: Machine, random: Random) -> tuple[Program, Machine]:
    """Turn some of the knobs for which no document promises a value."""
    knobs = {knob: random.choice(values) for knob, values in _OPEN.items() if random.random() < 0.4}
    if "queues" in knobs:
        knobs["queue_policy"] = random.choice(("mod", "sticky"))  # queues in issue order: nothing waits in a circle
    return _with_times(program, machine), machine.with_knobs(**knobs)


def _with_times(program: Program, machine: Machine) -> Program:
    """Give the program with the times that the machine makes of sizes; another machine may have no curve for them."""
    unknown = (program.rows.op >= 0) & (program.rows.duration < 0)
    if not unknown.any():
        return program
    return program.replace(duration=np.where(unknown, plan(program, machine).work, program.rows.duration))


def _usual_time(program: Program) -> float:
    """Give the median of the operations' times in ps, where they are known; else a microsecond."""
    rows = program.rows
    times = rows.duration[(rows.op >= 0) & (rows.duration > 0)]
    return float(np.median(times)) if len(times) else float(us)


_VARY: dict[str, Callable[[Program, Machine, Random], tuple[Program, Machine]]] = {
    "h": _vary_hosts, "t": _vary_times, "m": _vary_machine,
}  # fmt: skip
