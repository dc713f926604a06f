"""A tape played: its schedule, its races, and whether what it expects holds."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import DeadlockError, GaplessError
from .expectations import Expectation, Outcome, evaluate
from .explore import IN_EVERY_RUN, Choice, Exploration
from .explore import explore as explored
from .explore import replay as replayed
from .gaps import Cause, Causes
from .happens_before import happened_in
from .kinds import Bound, OpKind
from .machine import Machine
from .program import Program
from .races import Races, find_races
from .schedule import BOUND_WORDS, Schedule
from .tape import Tape, read

VERSION = 1  # of to_dict(); raised when a key changes its meaning or goes away


@dataclass(frozen=True, eq=False)
class Simulation:
    """One run of a program on a machine. ``lines`` gives for each row of the program its line in the tape, if any.

    ``replay`` says which run it is, as exploring calls it.
    """

    name: str
    schedule: Schedule
    expectations: tuple[Expectation, ...]
    lines: NDArray[np.int32]
    replay: str = "plain"

    def __repr__(self) -> str:
        return f"<Simulation of {self.name}: {self.schedule!r}>"

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Whether each expectation holds, in the order of the tape."""
        return tuple(evaluate(self.expectations, self.schedule))

    @property
    def ok(self) -> bool:
        """Whether all expectations hold."""
        return all(outcome.holds for outcome in self.outcomes)

    @cached_property
    def races(self) -> Races:
        """What the race check finds in the order in which this run issued its calls."""
        return find_races(self.schedule.program, happened_in(self.schedule))

    def line_of(self, row: int) -> int:
        """The line of the tape that a row of the program comes from; 0 where there is none."""
        return int(self.lines[row]) if 0 <= row < len(self.lines) else 0

    def to_dict(self) -> dict[str, Any]:
        """Give the run as plain values: a versioned, stable form for JSON. Times are ns, whole where they are.

        An operation that never ran is not in ``ops``. One of a graph launched more than once stands there as ``NAME``
        for its last run, and as ``NAME.1``, ``NAME.2``, ... for each.
        """
        return {
            "version": VERSION,
            "source": self.name,
            "makespan_ns": _ns(self.schedule.makespan),
            "ops": _ops(self.schedule),
            "calls": _calls(self.schedule),
            "races": [race.to_dict() for race in self.races],
            "expectations": [{"line": o.line, "holds": o.holds, "got": o.got} for o in self.outcomes],
        }


def simulate(
    source: str | PathLike[str] | Tape | Program, *, machine: Machine | str | None = None, replay: str = "plain"
) -> Simulation:
    """Play a tape (its file, or as read) or a program on its machine, or on another one.

    *replay* is one of the runs that exploring tells of, such as ``h17``; of what the tape expects, only what must hold
    in every run is then judged. Raises ``GaplessError`` for a tape that cannot be read, and ``DeadlockError`` where
    host threads wait for each other for ever.
    """
    tape = _tape(source)
    choice = Choice.parse(replay)
    try:
        run = replayed(tape.program, choice, _machine(machine) or tape.machine)
    except DeadlockError as deadlock:
        raise DeadlockError([_placed(tape, row) for row in deadlock.rows], deadlock.rows) from None
    expected = [e for e in tape.expectations if choice == Choice() or e.kind in IN_EVERY_RUN]
    return Simulation(tape.name, run, tuple(expected), tape.lines, str(choice))


@dataclass(frozen=True, eq=False)
class Check:
    """What the race check says of one tape: in one run, and in others of the same program where they were explored."""

    played: Simulation
    explored: Exploration | None = None

    def __repr__(self) -> str:
        return f"<Check of {self.played.name}: {self.played.schedule!r}>"

    @property
    def races(self) -> Races:
        """All that was found in the one run, worst first."""
        return self.played.races

    @property
    def ok(self) -> bool:
        """Whether the tape's expectations hold or, where it has none, there is no error; explored runs included."""
        explored = self.explored is None or not self.explored.failures
        return explored and (self.played.ok if self.played.expectations else not self.races.errors)

    def to_dict(self) -> dict[str, Any]:
        """Give plain values in the form of ``Simulation.to_dict``, with ``explored`` where other runs were explored."""
        values = self.played.to_dict()
        if self.explored is not None:
            failures = [{"replay": str(failure.choice), "what": failure.what} for failure in self.explored.failures]
            values["explored"] = {"runs": self.explored.runs, "orders": self.explored.orders, "failures": failures}
        return values


def check(
    source: str | PathLike[str] | Tape | Program, *, machine: Machine | str | None = None, replay: str = "plain",
    explore: int = 0,
) -> Check:  # fmt: skip
    """Check a tape (its file, or as read) or a program for races, in the order in which its run issues the calls.

    With *explore* so many runs are looked at, in which host threads, durations and whatever no rule fixes vary. Raises
    as ``simulate``.
    """
    tape = _tape(source)
    played = simulate(tape, machine=machine, replay=replay)
    if not explore:
        return Check(played)
    chosen = _machine(machine) or tape.machine
    return Check(played, explored(tape.program, chosen, explore, expectations=tape.expectations))


def _tape(source: str | PathLike[str] | Tape | Program) -> Tape:
    if isinstance(source, Program):
        return Tape("program", source, Machine(), (), np.empty(0, np.int32))
    return source if isinstance(source, Tape) else load_tape(source)


def _machine(machine: Machine | str | None) -> Machine | None:
    return Machine.named(machine) if isinstance(machine, str) else machine


_START = 1 << 16  # bytes
LARGEST_TAPE = 256 << 20  # bytes


def load_tape(path: str | PathLike[str]) -> Tape:
    """Read the tape in a file. Raises ``GaplessError`` for a file that cannot be read, or that holds no tape."""
    path = Path(path)
    try:
        with path.open("rb") as file:  # the start tells what it is, so that an endless device is not read to its end
            raw = file.read(_START)
            if b"\0" not in raw:
                raw += file.read(LARGEST_TAPE + 1 - len(raw))
    except FileNotFoundError:
        raise GaplessError(f"{path}: no such file.") from None
    except (OSError, ValueError) as problem:
        raise GaplessError(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    if len(raw) > LARGEST_TAPE:
        raise GaplessError(f"{path} is longer than {LARGEST_TAPE >> 20} MiB; use repeat to write a long tape")
    if b"\0" in raw[:_START] or raw.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"\x1f\x8b", b"{", b"[")):
        raise GaplessError(f"{path} is no tape. A tape is plain text; a timeline is read by gapless explain.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise GaplessError(f"{path}, line {line}: this is not UTF-8 text. Save the tape as UTF-8.") from None
    return read(text, name=str(path), folder=path.parent)


def _placed(tape: Tape, row: int) -> str:
    """Say what a call is, and where it stands."""
    line = f"line {tape.lines[row]}, " if row < len(tape.lines) else ""
    return f"{tape.program.brief(row)} ({line}thread {tape.program.threads[tape.program.rows.thread[row]]})"


def _ns(picoseconds: int) -> int | float:
    whole, rest = divmod(picoseconds, 1000)
    return picoseconds / 1000 if rest else whole


def _ops(run: Schedule) -> Mapping[str, Any]:
    """Give every operation that has a name and ran, in the order of the program."""
    rows, strings = run.program.rows, run.program.strings
    words, text = _Words(run), rows.name.tolist()
    start, end = run.start.tolist(), run.end.tolist()
    runs: dict[int, list[int]] = {}
    for number, row in enumerate(run.node_row.tolist()):
        runs.setdefault(row, []).append(len(text) + number)
    ops: dict[str, Any] = {}
    for row in np.flatnonzero((rows.op >= 0) & (rows.name >= 0)).tolist():
        numbers = runs.get(row) or ([row] if start[row] >= 0 else [])
        for i, op in [(0, op) for op in numbers[-1:]] + list(enumerate(numbers, 1)) * (len(numbers) > 1):
            name = strings[text[row]] + (f".{i}" if i else "")
            ops[name] = {"start_ns": _ns(start[op]), "end_ns": _ns(end[op]), "bound_by": words.bound_by(op)}
    return ops


def _calls(run: Schedule) -> Mapping[str, Any]:
    rows, strings = run.program.rows, run.program.strings
    begin, returned = run.begin.tolist(), run.returned.tolist()
    return {
        strings[rows.label[row]]: {"begin_ns": _ns(begin[row]), "return_ns": _ns(returned[row])}
        for row in np.flatnonzero(rows.label >= 0).tolist()
    }


class _Words:
    """Says what bound operations, many of them in one run."""

    def __init__(self, run: Schedule) -> None:
        self._run = run
        self._bound, self._by = run.bound.tolist(), run.bound_by.tolist()
        self._causes = Causes(run)
        rows = run.program.rows
        self._row = np.concatenate([np.arange(len(rows.op)), run.node_row]).tolist()
        self._op, self._name, self._stream = rows.op.tolist(), rows.name.tolist(), rows.stream.tolist()

    def bound_by(self, op: int) -> str:
        bound, by = Bound(self._bound[op]), self._by[op]
        if bound == Bound.HOST:
            held = self._causes.of(op)
            return BOUND_WORDS[bound] + (f": {self._held(held)}" if held.call >= 0 else "")
        return BOUND_WORDS[bound] + (f": {self._what(by)}" if by >= 0 else "")

    def _held(self, cause: Cause) -> str:
        """Say what kept the host thread: the call it was in, and what that waited for."""
        call = self._run.program.brief(cause.call)
        if cause.by < 0 or cause.by == cause.call:
            return f"in {call}"
        return f"in {call}, for {BOUND_WORDS[cause.bound]}: {self._what(cause.by)}"

    def _what(self, op: int) -> str:
        row, program = self._row[op], self._run.program
        if self._name[row] < 0 or self._op[row] not in _OPS:
            return program.brief(row)
        name, stream = program.strings[self._name[row]], program.streams[self._stream[row]].name
        return f"{_OPS[self._op[row]]} {name} on {stream}"


_OPS = {op: op.name.lower() for op in (OpKind.KERNEL, OpKind.H2D, OpKind.D2H, OpKind.D2D, OpKind.MEMSET)}
