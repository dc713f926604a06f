"""What a tape expects of its result: the ``expect`` lines, and whether a run holds them.

A time holds within 1 ns, a fraction within 1e-6. What must come before what is judged by the documented order alone,
whatever the schedule says; overlap and times are judged by the schedule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from . import tape_words as words
from .errors import GaplessError
from .happens_before import Order, happened_in, order
from .kinds import CudaError, Engine
from .races import Race, RaceClass, Races, find_races
from .schedule import Schedule
from .tape_line import Line, alternatives
from .units import format_time

WITHIN = 1_000  # ps that an exact time may be off
WITHIN_FRACTION = Fraction(1, 10**6)

ENGINES = ("h2d", "d2h", "sm")
ANSWERS = ("success", "notready")
_ERRORS = {error.cuda_name: error for error in CudaError if error}
_NUMBER = re.compile(r"\d{1,6}", re.ASCII)

Value = int | Fraction | str | None


@dataclass(frozen=True, slots=True)
class Expectation:
    """One ``expect`` line.

    ``kind`` is the words that say what is expected (``start``, ``no overlap``, ...); ``names`` the operations, calls or
    engine it is about; ``relation`` ``=``, ``>=`` or ``<=``; ``value`` picoseconds, a fraction, an error number, or
    the answer of a query; ``buffer`` the memory of a race, empty for any. ``line`` is where it stands in the tape.
    """

    line: int
    kind: str
    names: tuple[str, ...] = ()
    relation: str = "="
    value: Value = None
    buffer: str = ""

    def __str__(self) -> str:
        said = ["expect", self.kind]
        if self.kind == "error":
            return " ".join([*said, error_name(self.value), *(("at", *self.names) if self.names else ())])
        said += self.names
        said += ["on", self.buffer] if self.buffer else []
        said += [self.relation] if self.relation != "=" else []
        if self.kind in _FRACTIONS:
            said.append(str(self.value))
        elif isinstance(self.value, int):
            said.append(format_time(self.value))
        elif isinstance(self.value, str):
            said.append(self.value)
        return " ".join(said)


def error_name(number: Value) -> str:
    """Write an error as CUDA names it, without ``cudaError``; a number that has no name stays one."""
    return next((name for name, error in _ERRORS.items() if error == number), str(number))


# ------------------------------------------------------------------------------------------------ reading one line


def read_expectation(line: Line) -> Expectation:
    """Read what follows the word ``expect``. Raises ``TapeError``."""
    kind = line.next(f"what is expected: {alternatives(_FORMS)}")
    if kind not in _FORMS:
        line.fail(1, alternatives(_FORMS), known=_FORMS)
    if kind == "no":
        kind += " " + words.choice(line, ("overlap", "race"))
    expectation = (_FORMS | _NO_FORMS)[kind](line, kind)
    line.finish()
    return expectation


def _read_time(line: Line, kind: str) -> Expectation:
    names = () if kind == "makespan" else (_operation(line),)
    relation = _relation(line)
    return Expectation(line.number, kind, names, relation, words.time(line))


def _read_pair(line: Line, kind: str) -> Expectation:
    return Expectation(line.number, kind, (_operation(line), _operation(line)))


def _read_race(line: Line, kind: str) -> Expectation:
    names = (_operation(line), _operation(line))
    buffer = words.name(line, "a buffer") if line.take("on") else ""
    return Expectation(line.number, kind, names, buffer=buffer)


def _read_no_race(line: Line, kind: str) -> Expectation:
    return _read_pair(line, kind) if line.peek() else Expectation(line.number, kind)


def _read_error(line: Line, kind: str) -> Expectation:
    word = line.next("a CUDA error, as name (StreamCaptureImplicit) or number")
    error = _ERRORS.get(word.removeprefix("cudaError"))
    if error is None and not _NUMBER.fullmatch(word):
        known = [*_ERRORS, *(f"cudaError{name}" for name in _ERRORS)]
        line.fail(line.at - 1, f"a number or one of {alternatives(_ERRORS)}", known=known)
    names = (_operation(line),) if line.take("at") else ()
    return Expectation(line.number, kind, names, value=int(word) if error is None else int(error))


def _read_query(line: Line, kind: str) -> Expectation:
    return Expectation(line.number, kind, (_operation(line),), value=words.choice(line, ANSWERS))


def _read_busy(line: Line, kind: str) -> Expectation:
    names = (words.choice(line, ENGINES),) if kind == "busy" else ()
    relation = _relation(line)
    return Expectation(line.number, kind, names, relation, words.fraction(line))


def _operation(line: Line) -> str:
    return words.name(line, "the name of an operation or call")


def _relation(line: Line) -> str:
    return next((sign for sign in (">=", "<=") if line.take(sign)), "=")


_FORMS: dict[str, Callable[[Line, str], Expectation]] = {
    **dict.fromkeys(("makespan", "start", "end", "return", "elapsed"), _read_time),
    **dict.fromkeys(("order", "unordered", "overlap", "no"), _read_pair),
    **dict.fromkeys(("race", "warning", "nondeterminism"), _read_race),
    **dict.fromkeys(("busy", "overlapped"), _read_busy),
    "error": _read_error,
    "query": _read_query,
}
_NO_FORMS: dict[str, Callable[[Line, str], Expectation]] = {"no overlap": _read_pair, "no race": _read_no_race}
_FRACTIONS = ("busy", "overlapped")


# ----------------------------------------------------------------------------------------- whether a run holds them


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a run holds the expectation of a line, and what it gave instead or as well, in words."""

    line: int
    holds: bool
    got: str


def evaluate(expectations: Iterable[Expectation], run: Schedule) -> list[Outcome]:
    """Say for every expectation whether a run holds it, in their order.

    Order and races are asked of the documented rules, with what the run's queries returned and the order in which its
    calls were issued; times and overlap of the run itself.
    """
    answers = _Answers(run)
    return [_outcome(expectation, answers) for expectation in expectations]


def _outcome(expectation: Expectation, answers: _Answers) -> Outcome:
    try:
        holds, got = _JUDGES[expectation.kind](expectation, answers)
    except GaplessError as error:  # it is about something that never ran
        holds, got = False, str(error)
    return Outcome(expectation.line, holds, got)


class _Answers:
    """A run, and what the rules say of its program; worked out when first asked for."""

    def __init__(self, run: Schedule) -> None:
        self.run = run
        self._happened = happened_in(run)

    @cached_property
    def order(self) -> Order:
        return order(self.run.program, self._happened)

    @cached_property
    def races(self) -> Races:
        return find_races(self.run.program, self._happened)

    def interval(self, name: str) -> tuple[int, int]:
        """Give start and end of an operation, or begin and return of a call that puts none into a stream."""
        run, row = self.run, self.moment(name)
        if isinstance(row, int) and run.program.rows.op[row] < 0:
            return int(run.begin[row]), int(run.returned[row])
        op = run.op(name)
        return int(run.start[op]), int(run.end[op])

    def moment(self, name: str) -> int | tuple[int, int]:
        """Give the row that a name means; with the number of the run for ``NAME.1``, ``NAME.2``, ..."""
        try:
            return self.run.program.find(name)
        except GaplessError:
            whole, _, number = name.rpartition(".")
            if not whole or not number.isdecimal():
                raise
            return self.run.program.find(whole), int(number)

    def moments(self, expectation: Expectation) -> list[int | tuple[int, int]]:
        return [self.moment(name) for name in expectation.names]


def _makespan(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    return _compared(expectation, answers.run.makespan)


def _start(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    return _compared(expectation, answers.interval(expectation.names[0])[0])


def _end(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    return _compared(expectation, answers.interval(expectation.names[0])[1])


def _return(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    row = answers.run.program.find(expectation.names[0])
    return _compared(expectation, int(answers.run.returned[row]))


def _elapsed(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    row = answers.run.program.find(expectation.names[0])
    value = answers.run.elapsed(row)
    return (False, error_name(int(answers.run.error[row]))) if value is None else _compared(expectation, value)


def _ordered(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    return _order_of(expectation, answers, wanted="before")


def _unordered(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    return _order_of(expectation, answers, wanted="")


def _order_of(expectation: Expectation, answers: _Answers, wanted: str) -> tuple[bool, str]:
    (x, y), (first, second) = expectation.names, answers.moments(expectation)
    if answers.order.before(first, second):
        return wanted == "before", f"{x} before {y}"
    if answers.order.before(second, first):
        return False, f"{y} before {x}"
    return wanted == "", f"{x} and {y} in no order"


def _overlap(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    (a, b), (c, d) = (answers.interval(name) for name in expectation.names)
    shared = min(b, d) - max(a, c)
    x, y = expectation.names
    got = f"{x} {format_time(a)} to {format_time(b)}, {y} {format_time(c)} to {format_time(d)}"
    return (shared > 0) == (expectation.kind == "overlap"), got


def _race(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    found = answers.races.between(*answers.moments(expectation))
    wanted = [
        race
        for race in found
        if race.kind in _CLASSES[expectation.kind] and (not expectation.buffer or expectation.buffer in race.buffers)
    ]
    return bool(wanted), _races_text(wanted or found)


def _no_race(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    if expectation.names:
        found = answers.races.between(*answers.moments(expectation))
        return not found, _races_text(found)
    return not answers.races.errors, _races_text(answers.races.errors or answers.races)


def _races_text(races: Sequence[Race]) -> str:
    shown = "; ".join(str(race) for race in races[:3])
    return (shown + (f"; and {len(races) - 3} more" if len(races) > 3 else "")) or "no race"


def _error(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    run = answers.run
    rows = [run.program.find(name) for name in expectation.names] or range(len(run.program))
    failed = [row for row in rows if run.error[row]]
    got = "; ".join(f"{error_name(int(run.error[row]))} at {run.program.describe(row)}" for row in failed[:3])
    return any(run.error[row] == expectation.value for row in failed), got or "no error"


def _query(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    error = int(answers.run.error[answers.run.program.find(expectation.names[0])])
    got = {0: "success", int(CudaError.NOT_READY): "notready"}.get(error) or error_name(error)
    return got == expectation.value, got


def _busy(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    return _compared_part(expectation, answers, answers.run.busy(_ENGINE_OF[expectation.names[0]]))


def _overlapped(expectation: Expectation, answers: _Answers) -> tuple[bool, str]:
    return _compared_part(expectation, answers, answers.run.overlapped())


def _compared_part(expectation: Expectation, answers: _Answers, part: int) -> tuple[bool, str]:
    got = Fraction(part, answers.run.makespan) if answers.run.makespan else Fraction(0)
    return _holds(expectation, got, WITHIN_FRACTION), f"{float(got):.6g}"


def _compared(expectation: Expectation, got: int) -> tuple[bool, str]:
    return _holds(expectation, got, WITHIN), format_time(got)


def _holds(expectation: Expectation, got: int | Fraction, within: int | Fraction) -> bool:
    """Compare with the value that is expected; bounds, too, are as wide as an exact value."""
    wanted = expectation.value
    assert isinstance(wanted, int | Fraction)
    if expectation.relation == ">=":
        return got >= wanted - within
    return got <= wanted + within if expectation.relation == "<=" else abs(got - wanted) <= within


_ENGINE_OF = {"h2d": Engine.H2D, "d2h": Engine.D2H, "sm": Engine.SM}
_CLASSES = {
    "race": (RaceClass.ERROR, RaceClass.UNALLOCATED),
    "warning": (RaceClass.WARNING,),
    "nondeterminism": (RaceClass.NONDETERMINISM,),
}
_JUDGES: dict[str, Callable[[Expectation, _Answers], tuple[bool, str]]] = {
    "makespan": _makespan, "start": _start, "end": _end, "return": _return, "elapsed": _elapsed, "order": _ordered,
    "unordered": _unordered, "overlap": _overlap, "no overlap": _overlap, "race": _race, "warning": _race,
    "nondeterminism": _race, "no race": _no_race, "error": _error, "query": _query, "busy": _busy,
    "overlapped": _overlapped,
}  # fmt: skip
