"""What a tape expects of its result: the ``expect`` lines, and whether a run holds them.

A time holds within 1 ns, a fraction within 1e-6. What must come before what is judged by the documented order alone,
whatever the schedule says; overlap and times are judged by the schedule.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from . import tape_words as words
from .kinds import CudaError
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


def _time(line: Line, kind: str) -> Expectation:
    names = () if kind == "makespan" else (_operation(line),)
    relation = _relation(line)
    return Expectation(line.number, kind, names, relation, words.time(line))


def _pair(line: Line, kind: str) -> Expectation:
    return Expectation(line.number, kind, (_operation(line), _operation(line)))


def _race(line: Line, kind: str) -> Expectation:
    names = (_operation(line), _operation(line))
    buffer = words.name(line, "a buffer") if line.take("on") else ""
    return Expectation(line.number, kind, names, buffer=buffer)


def _no_race(line: Line, kind: str) -> Expectation:
    return _pair(line, kind) if line.peek() else Expectation(line.number, kind)


def _error(line: Line, kind: str) -> Expectation:
    word = line.next("a CUDA error, as name (StreamCaptureImplicit) or number")
    error = _ERRORS.get(word.removeprefix("cudaError"))
    if error is None and not _NUMBER.fullmatch(word):
        known = [*_ERRORS, *(f"cudaError{name}" for name in _ERRORS)]
        line.fail(line.at - 1, f"a number or one of {alternatives(_ERRORS)}", known=known)
    names = (_operation(line),) if line.take("at") else ()
    return Expectation(line.number, kind, names, value=int(word) if error is None else int(error))


def _query(line: Line, kind: str) -> Expectation:
    return Expectation(line.number, kind, (_operation(line),), value=words.choice(line, ANSWERS))


def _busy(line: Line, kind: str) -> Expectation:
    names = (words.choice(line, ENGINES),) if kind == "busy" else ()
    relation = _relation(line)
    return Expectation(line.number, kind, names, relation, words.fraction(line))


def _operation(line: Line) -> str:
    return words.name(line, "the name of an operation or call")


def _relation(line: Line) -> str:
    return next((sign for sign in (">=", "<=") if line.take(sign)), "=")


_FORMS: dict[str, Callable[[Line, str], Expectation]] = {
    "makespan": _time, "start": _time, "end": _time, "return": _time, "elapsed": _time, "order": _pair,
    "unordered": _pair, "overlap": _pair, "no": _pair, "race": _race, "warning": _race, "nondeterminism": _race,
    "error": _error, "query": _query, "busy": _busy, "overlapped": _busy,
}  # fmt: skip
_NO_FORMS: dict[str, Callable[[Line, str], Expectation]] = {"no overlap": _pair, "no race": _no_race}
_FRACTIONS = ("busy", "overlapped")
