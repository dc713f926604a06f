"""What may stand as the value of a machine's key: how it is read from text or JSON, and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field
from difflib import get_close_matches
from fractions import Fraction
from itertools import pairwise
from typing import Any

from .errors import GaplessError
from .units import format_size, format_time, parse_fraction, parse_size, parse_time

Curve = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Values:
    """What may stand as a knob's value: how it is read from text, how it is written, and how to say it."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]
    allowed: str


def whole(low: int, high: int | None = None, none: str = "") -> Values:
    """Give whole numbers of a range; *none* is the word for none at all."""

    def read(text: str) -> int | None:
        if none and text == none:
            return None
        number = int(text)
        if number < low or (high is not None and number > high):
            raise ValueError
        return number

    span = f"a whole number from {low}" + (f" to {high}" if high is not None else "")
    return Values(read, lambda v: none if v is None else str(v), f"{none} or {span}" if none else span)


def choice(*words: str) -> Values:
    """Give a few words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Values(read, str, " or ".join(words))


def size(none: bool = False) -> Values:
    """Give sizes in bytes; *none*: or none at all."""

    def read(text: str) -> int | None:
        return None if none and text == "none" else parse_size(text)

    return Values(read, lambda v: "none" if v is None else format_size(v), "none or a size" if none else "a size")


def _read_yes_no(text: str) -> bool:
    return {"yes": True, "no": False}[text]


def _read_copy_queues(text: str) -> int | str | None:
    return text if text == "same" else QUEUES.read(text)


def _read_duplex(text: str) -> tuple[Fraction, Fraction]:
    factors = [parse_fraction(part) for part in text.split(",")]
    if len(factors) > 2 or not all(0 < f <= 1 for f in factors):
        raise ValueError
    return factors[0], factors[-1]


def _write_duplex(value: tuple[Fraction, Fraction]) -> str:
    return ",".join(_plain(f) for f in (value[:1] if value[0] == value[1] else value))


def _read_priorities(text: str) -> tuple[int, int] | None:
    if text == "any":
        return None
    lowest, highest = (int(part) for part in text.split(","))
    if highest > lowest:
        raise ValueError
    return lowest, highest


def _read_fraction(text: str) -> Fraction:
    value = parse_fraction(text)
    if not 0 <= value < 1:
        raise ValueError
    return value


def _read_reuse(text: str) -> tuple[str, ...]:
    words = {"all": POLICIES, "none": ()}.get(text, tuple(text.split(",")))
    if not set(words) <= set(POLICIES):
        raise ValueError
    return tuple(policy for policy in POLICIES if policy in words)


def _write_reuse(value: tuple[str, ...]) -> str:
    return {POLICIES: "all", (): "none"}.get(tuple(value), ",".join(value))


def _read_threshold(text: str) -> int:
    return _MOST if text == "max" else parse_size(text)


def _read_call_cost(text: str) -> int | str:
    return text if text == "measured" else parse_time(text)


def _plain(value: Fraction) -> str:
    decimal = repr(float(value))
    return decimal.removesuffix(".0") if Fraction(decimal) == value else str(value)


YES_NO = Values(_read_yes_no, lambda v: "yes" if v else "no", "yes or no")
TIME = Values(parse_time, format_time, "a time, say 3.4us")
QUEUES = whole(1, 32, none="ideal")
COPY_QUEUES = Values(_read_copy_queues, lambda v: v if v == "same" else QUEUES.write(v), "same, ideal or 1 to 32")
DUPLEX = Values(_read_duplex, _write_duplex, "a factor in (0, 1], or two: H2D,D2H")
PRIORITIES = Values(
    _read_priorities, lambda v: "any" if v is None else f"{v[0]},{v[1]}", "any, or lowest,highest as 0,-5"
)
FRACTION = Values(_read_fraction, _plain, "a fraction in [0, 1)")
POLICIES = ("follow", "opportunistic", "internal")
REUSE = Values(_read_reuse, _write_reuse, "all, none, or some of follow,opportunistic,internal")
_MOST = 2**64 - 1  # bytes: the largest threshold that cudaMemPoolSetAttribute takes
THRESHOLD = Values(_read_threshold, lambda v: "max" if v == _MOST else format_size(v), "a size, or max")
CALL_COST = Values(_read_call_cost, lambda v: v if v == "measured" else format_time(v), "a time, or measured")


def knob(default: Any, values: Values) -> Any:
    """Describe a field of a machine that is a knob."""
    return field(default=default, metadata={"values": values})


def curve(columns: int = 2) -> Any:
    """Describe a field that is a measured curve of so many columns."""
    return field(default=(), metadata={"columns": columns})


def table(*, curves: bool = False, keys: tuple[str, ...] = ()) -> Any:
    """Describe a field that holds a number for each of some *keys*; *curves*: or a curve."""
    return field(default_factory=dict, metadata={"table": True, "curves": curves, "keys": keys})


def read_value(f: Field[Any], value: Any) -> Any:
    """Read one key's value, given as text, as JSON or as in Python."""
    if f.name == "name":
        return str(value)
    if "columns" in f.metadata:
        return _read_curve(f.name, value, f.metadata["columns"])
    if "table" in f.metadata:
        return _read_table(f, value)
    if "number" in f.metadata:
        return _read_number(f.name, value)
    values: Values = f.metadata["values"]
    text = _text(values, value)
    try:
        return values.read(text)
    except (ValueError, KeyError, TypeError) as problem:
        why = f" ({problem})" if isinstance(problem, GaplessError) else ""
        raise GaplessError(f"{f.name}={text} cannot be; {f.name} is {values.allowed}{why}") from None


def _text(values: Values, value: Any) -> str:
    """Give a value that is not text in the spelling of a tape, so that it is checked as one."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    try:
        return ",".join(map(str, value)) if isinstance(value, list) else values.write(value)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError):
        return repr(value)


def _read_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise GaplessError(f"{name} holds {value!r}; a number of at least 0 must stand there")
    return float(value)


def _read_curve(name: str, value: Any, columns: int) -> Curve:
    if not isinstance(value, list | tuple) or not all(isinstance(p, list | tuple) and len(p) == columns for p in value):
        example = "[[65536, 3933], [1048576, 21768]]" if columns == 2 else "[[1048576, 0.76, 0.76]]"
        raise GaplessError(f"{name} is a list of points of {columns} numbers, say {example}")
    curve = tuple(tuple(_read_number(name, x) for x in point) for point in value)
    if any(b[0] <= a[0] for a, b in pairwise(curve)):
        raise GaplessError(f"{name}: the first numbers of its points must grow")
    if columns == 3 and not all(0 < factor <= 1 for point in curve for factor in point[1:]):
        raise GaplessError(f"{name}: a factor lies in (0, 1]")
    return curve


def _read_table(f: Field[Any], value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise GaplessError(f"{f.name} is an object of named numbers")
    table: dict[str, Any] = {}
    for key, entry in value.items():
        if key not in f.metadata["keys"]:
            raise GaplessError(f"{f.name} has no entry {key!r}{meant(str(key), f.metadata['keys'])}")
        where = f"{f.name}.{key}"
        if f.name == "hops":
            if not isinstance(entry, list | tuple) or len(entry) != 3:
                raise GaplessError(f"{where} is [alone, one other, more] in ns")
            table[key] = tuple(_read_number(where, x) for x in entry)
        elif f.metadata["curves"] and isinstance(entry, list | tuple):
            table[key] = _read_curve(where, entry, 2)
        else:
            table[key] = _read_number(where, entry)
    return table


def bare(value: Any) -> Any:
    """Give a value as JSON has it."""
    if isinstance(value, Mapping):
        return {key: bare(entry) for key, entry in value.items()}
    return [bare(entry) for entry in value] if isinstance(value, tuple) else value


def meant(word: str, known: Any) -> str:
    """Give the hint that ends an error message, or nothing if no known word is close."""
    close = get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
