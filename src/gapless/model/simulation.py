"""A tape played: its schedule, its races, and whether what it expects holds."""

from __future__ import annotations

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
from .gaps import Cause, Causes
from .happens_before import Happened
from .kinds import Bound, OpKind
from .machine import Machine
from .program import Program
from .races import Races, find_races
from .schedule import BOUND_WORDS, Schedule, schedule
from .tape import Tape, read

VERSION = 1  # of to_dict(); raised when a key changes its meaning or goes away


@dataclass(frozen=True, eq=False)
class Simulation:
    """One run of a program on a machine. ``lines`` gives for each row of the program its line in the tape, if any."""

    name: str
    schedule: Schedule
    expectations: tuple[Expectation, ...]
    lines: NDArray[np.int32]

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
        run = self.schedule
        happened = Happened(
            errors=run.error.tolist(), issued=run.order.tolist(),
            launch_blocking=run.machine.launch_blocking, sync_memops=run.machine.sync_memops,
        )  # fmt: skip
        return find_races(run.program, happened)

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
            "makespan_ns": _ns(self.schedule.makespan),
            "ops": _ops(self.schedule),
            "calls": _calls(self.schedule),
            "races": [race.to_dict() for race in self.races],
            "expectations": [{"line": o.line, "holds": o.holds, "got": o.got} for o in self.outcomes],
        }


def simulate(source: str | PathLike[str] | Tape | Program, *, machine: Machine | str | None = None) -> Simulation:
    """Play a tape (its file, or as read) or a program on its machine, or on another one.

    Raises ``GaplessError`` for a tape that cannot be read, and ``DeadlockError`` where host threads wait for each other
    for ever.
    """
    if isinstance(source, Program):
        source = Tape("program", source, Machine(), (), np.empty(0, np.int32))
    tape = source if isinstance(source, Tape) else load_tape(source)
    chosen = Machine.named(machine) if isinstance(machine, str) else machine
    try:
        run = schedule(tape.program, chosen or tape.machine)
    except DeadlockError as deadlock:
        raise DeadlockError([_placed(tape, row) for row in deadlock.rows], deadlock.rows) from None
    return Simulation(tape.name, run, tape.expectations, tape.lines)


@dataclass(frozen=True, eq=False)
class Check:
    """What the race check says of one tape."""

    played: Simulation

    @property
    def races(self) -> Races:
        """All that was found, worst first."""
        return self.played.races

    @property
    def ok(self) -> bool:
        """Whether the tape's expectations hold; where it has none, whether there is no error."""
        return self.played.ok if self.played.expectations else not self.races.errors

    def to_dict(self) -> dict[str, Any]:
        """Give plain values in the form of ``Simulation.to_dict``."""
        return self.played.to_dict()


def check(source: str | PathLike[str] | Tape | Program, *, machine: Machine | str | None = None) -> Check:
    """Check a tape (its file, or as read) or a program for races, in the order in which its run issues the calls.

    Raises as ``simulate``.
    """
    return Check(simulate(source, machine=machine))


def load_tape(path: str | PathLike[str]) -> Tape:
    """Read the tape in a file. Raises ``GaplessError`` for a file that cannot be read, or that holds no tape."""
    path = Path(path)
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as problem:
        raise GaplessError(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    if b"\0" in raw[:65536] or raw.startswith((b"\x1f\x8b", b"{", b"[")):
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
