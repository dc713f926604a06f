"""The Machine: engines, queues, limits, costs and knobs of the GPUs a program runs on.

    Machine()                                   the profile ``teaching``: documented or simplest behaviour, no costs
    Machine.named("h200")                       a profile
    Machine.named("h200", queues=32)            with knobs changed
    Machine.load("my-gpu.json")                 from a file

Knobs have the names, values and meaning of section 14 of the specification; the number behind each below is its rule.
In text and in files a value is written as on a tape's ``machine`` line (``"3.4us"``, ``"24KiB"``, ``"0.85,0.935"``,
``"none"``, ``"ideal"``); in Python times are picoseconds, sizes bytes, "none" and "ideal" are None.

Six knobs are the model's own. A program sets the pool of its stream-ordered memory by three of them (R8.4, R8.5):
``pool_max_size`` (``maxSize`` of the pool), ``pool_reuse`` (the policies that are on: ``all``, ``none``, or some of
``follow,opportunistic,internal``), ``pool_release_threshold`` (a size, or ``max``). The others do nothing in
``teaching``: ``default_stream_queue`` (under ``mod``: do default
streams have a queue of their own, or share those of the others, as on Fermi), ``kernel_tail`` (the last part of a
kernel's time in which its blocks end one by one and its SMs fall free, for kernels of known shape; on an H200 kernels
that fill the GPU follow each other back to back in 0.94 of their time alone), ``sync_return`` (from the end of what a
host thread waits for to its return).

Beyond the knobs a file may hold what was measured; all of it is empty in ``teaching``:

``h2d_curve``, ``d2h_curve``, ``pageable_h2d_curve``, ``pageable_d2h_curve``, ``d2d_curve``, ``memset_curve``,
``p2p_curve``
    ``[[bytes, ns], ...]``: time of an operation of which only the size is known, interpolated; beyond the last point it
    goes on with the last slope, before the first it is the first.
``inline_curve``
    The same for an H2D copy that travels inside the compute channel (R3.13).
``pageable_lag_curve``
    How long after the return of a pageable H2D copy its data land (R3.12).
``staging_curve``
    Host time to stage a pageable H2D copy, added to the cost of the call (R3.12).
``pool_grow_curve``, ``pool_release_curve``
    Host time to get memory for the pool of stream-ordered memory, and to give it back at a synchronise (R8.5). The
    first point of the one is the least that a pool grows by.
``duplex_curve``
    ``[[bytes, H2D factor, D2H factor], ...]``: the knob ``duplex`` by the size of the copy that is slowed. A copy whose
    size is not known takes the knob. Setting the knob drops the curve.
``call_costs``
    Host time of each kind of call under ``call_cost=measured``: ns, or a curve over bytes. Keys are names of
    ``CallKind`` in lower case; also ``copy_async_d2d`` and so on for one kind of copy, ``record_untimed``, and
    ``malloc_pooled``, ``free_pooled`` for blocks of up to 1 MiB while another such block is allocated, and
    ``malloc_async_first`` for the first stream-ordered allocation of a process, where the program marks it.
``late_costs``
    The same, for the part of a call's own work that comes after its waiting (``cudaFreeHost`` unmaps when all is done).
``hops``
    ``{"h2d>sm": [alone, one other, more], ...}``: ns from the end of an operation to the earliest start of one that
    waited for it, by the engines of both (``sm``, ``inline``, ``h2d``, ``d2h``, ``peer``, ``host``) and by how many
    other operations run on the device at that moment. Back-to-back copies of one direction need none: the curves
    hold it. After a copy that its curve timed, the hop counts from where its data have gone: what the curve says of the
    smallest copy is the engine's own time, which the other direction does not stretch either (R3.11).
``turnaround``
    ``{"h2d": ns, "d2h": ns, "peer": ns}``: from the end of a copy to the start of the next on the same engine, where
    the curves do not hold it (durations read from a timeline).
``issue_latency``
    ``{"sm": ns, ...}``: from the end of a call's cost to the earliest start of its operation on that engine.
``graph_node_cost``
    ns that a node of a graph takes to start after the one it waits for (instead of the hop).
``device_hop``
    ns from the end of an operation to the start of one on another device that waited for it (instead of the hop).
``launch_contention``
    ``[[threads, factor], ...]``: what a launch costs when so many host threads are inside calls (R4.2).

Every number of the profile ``h200`` comes from measurements of one machine (NVIDIA H200, driver 580); nothing in it is
an ordering promise.
"""
# ruff: noqa: RUF009 - the calls in the class body only describe its fields

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from fractions import Fraction
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .errors import GaplessError
from .kinds import CallKind, OpKind
from .units import format_size, format_time, parse_fraction, parse_size, parse_time

_LARGEST_FILE = 1 << 20  # bytes

Curve = tuple[tuple[float, ...], ...]

COPY_WORDS = ("h2d", "d2h", "peer")
ENGINE_WORDS = ("sm", "inline", "h2d", "d2h", "peer", "host")
PROFILES = ("teaching", "one-copy-engine", "fermi", "h200")


@dataclass(frozen=True, slots=True)
class _Values:
    """What may stand as a knob's value: how it is read from text, how it is written, and how to say it."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]
    allowed: str


def _whole(low: int, high: int | None = None, none: str = "") -> _Values:
    def read(text: str) -> int | None:
        if none and text == none:
            return None
        number = int(text)
        if number < low or (high is not None and number > high):
            raise ValueError
        return number

    span = f"a whole number from {low}" + (f" to {high}" if high is not None else "")
    return _Values(read, lambda v: none if v is None else str(v), f"{none} or {span}" if none else span)


def _choice(*words: str) -> _Values:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return _Values(read, str, " or ".join(words))


def _size(none: bool = False) -> _Values:
    def read(text: str) -> int | None:
        return None if none and text == "none" else parse_size(text)

    return _Values(read, lambda v: "none" if v is None else format_size(v), "none or a size" if none else "a size")


def _read_yes_no(text: str) -> bool:
    return {"yes": True, "no": False}[text]


def _read_copy_queues(text: str) -> int | str | None:
    return text if text == "same" else _QUEUES.read(text)


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
    words = {"all": _POLICIES, "none": ()}.get(text, tuple(text.split(",")))
    if not set(words) <= set(_POLICIES):
        raise ValueError
    return tuple(policy for policy in _POLICIES if policy in words)


def _write_reuse(value: tuple[str, ...]) -> str:
    return {_POLICIES: "all", (): "none"}.get(tuple(value), ",".join(value))


def _read_threshold(text: str) -> int:
    return _MOST if text == "max" else parse_size(text)


def _read_call_cost(text: str) -> int | str:
    return text if text == "measured" else parse_time(text)


def _plain(value: Fraction) -> str:
    decimal = repr(float(value))
    return decimal.removesuffix(".0") if Fraction(decimal) == value else str(value)


_YES_NO = _Values(_read_yes_no, lambda v: "yes" if v else "no", "yes or no")
_TIME = _Values(parse_time, format_time, "a time, say 3.4us")
_QUEUES = _whole(1, 32, none="ideal")
_COPY_QUEUES = _Values(_read_copy_queues, lambda v: v if v == "same" else _QUEUES.write(v), "same, ideal or 1 to 32")
_DUPLEX = _Values(_read_duplex, _write_duplex, "a factor in (0, 1], or two: H2D,D2H")
_PRIORITIES = _Values(
    _read_priorities, lambda v: "any" if v is None else f"{v[0]},{v[1]}", "any, or lowest,highest as 0,-5"
)
_FRACTION = _Values(_read_fraction, _plain, "a fraction in [0, 1)")
_POLICIES = ("follow", "opportunistic", "internal")
_REUSE = _Values(_read_reuse, _write_reuse, "all, none, or some of follow,opportunistic,internal")
_MOST = 2**64 - 1  # bytes: the largest threshold that cudaMemPoolSetAttribute takes
_THRESHOLD = _Values(_read_threshold, lambda v: "max" if v == _MOST else format_size(v), "a size, or max")
_CALL_COST = _Values(_read_call_cost, lambda v: v if v == "measured" else format_time(v), "a time, or measured")


def _knob(default: Any, values: _Values) -> Any:
    return field(default=default, metadata={"values": values})


def _curve(columns: int = 2) -> Any:
    return field(default=(), metadata={"columns": columns})


def _table(*, curves: bool = False, keys: tuple[str, ...] = ()) -> Any:
    return field(default_factory=dict, metadata={"table": True, "curves": curves, "keys": keys})


_HOPS = tuple(f"{a}>{b}" for a in ENGINE_WORDS for b in ENGINE_WORDS)
_CALLS = (
    *(call.name.lower() for call in CallKind),
    *(f"{call}_{op.name.lower()}" for call in ("copy_async", "copy_sync") for op in OpKind),
    *("record_untimed", "malloc_pooled", "free_pooled", "malloc_async_first"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A full set of knobs and measured costs. See the module's text."""

    name: str = "teaching"

    # Engines
    h2d_engines: int = _knob(1, _whole(0, 64))  # 6.1; 0: copies occupy the SMs
    d2h_engines: int = _knob(1, _whole(0, 64))  # 6.1
    peer_engines: int = _knob(1, _whole(1, 64))  # 6.1
    shared_copy_engine: bool = _knob(False, _YES_NO)  # 6.1: one engine in all
    copy_arbitration: str = _knob("ready", _choice("ready", "drain_channel"))  # R6.1
    duplex: tuple[Fraction, Fraction] = _knob((Fraction(1), Fraction(1)), _DUPLEX)  # R3.11
    d2d_engine: str = _knob("sm", _choice("sm", "ce"))  # R3.10
    memset_engine: str = _knob("sm", _choice("sm", "ce"))  # R3.10
    memset_no_sm: int = _knob(0, _size())  # R3.10
    hostfn_workers: int = _knob(1, _whole(1, 1024))  # R6.15

    # Queues
    queues: int | None = _knob(None, _QUEUES)  # R6.5
    copy_queues: int | str | None = _knob("same", _COPY_QUEUES)  # R6.5
    queue_policy: str = _knob("pool", _choice("pool", "mod", "sticky"))  # R6.6
    default_stream_queue: str = _knob("own", _choice("own", "shared"))  # R6.6, R6.7: under `mod`
    launch_depth: int | None = _knob(None, _whole(1, none="none"))  # R6.9
    launch_depth_per: str = _knob("stream", _choice("stream", "channel"))  # R6.9
    launch_bytes: int | None = _knob(None, _size(none=True))  # R6.9

    # SMs
    kernels: str = _knob("leftover", _choice("leftover", "exclusive"))  # R6.11
    resident_grids: int = _knob(128, _whole(1))  # R6.10
    sms: int | None = _knob(None, _whole(1, none="none"))  # R6.10, R6.12; None: a pool of capacity 1
    blocks_per_sm: int | None = _knob(None, _whole(1, none="none"))  # R6.10
    threads_per_sm: int | None = _knob(None, _whole(1, none="none"))  # R6.10
    regs_per_sm: int | None = _knob(None, _whole(1, none="none"))  # R6.10
    smem_per_sm: int | None = _knob(None, _size(none=True))  # R6.10
    smem_config_per_sm: bool = _knob(False, _YES_NO)  # R6.17
    kernel_tail: Fraction = _knob(Fraction(0), _FRACTION)  # R6.11: last part of a kernel in which its SMs fall free
    priorities: tuple[int, int] | None = _knob(None, _PRIORITIES)  # R6.13

    # Copies
    pageable: str = _knob("blocks", _choice("blocks", "staged"))  # R3.12
    small_pageable: int = _knob(64 * 1024, _size())  # table 3.1, R3.13
    staging_slots: int = _knob(2, _whole(1))  # R3.12
    staging_slot: int = _knob(1024 * 1024, _size())  # R3.12
    inline_idle: int = _knob(0, _size())  # R3.13
    inline_pending: int = _knob(0, _size())  # R3.13
    sync_memops: bool = _knob(False, _YES_NO)  # R3.2
    peer_barrier_all: bool = _knob(False, _YES_NO)  # R3.7

    # Calls
    legacy_noop_barrier: str = _knob("yes", _choice("yes", "listed", "no"))  # R2.3
    malloc_sync: bool = _knob(False, _YES_NO)  # section 4
    free_sync: bool = _knob(True, _YES_NO)  # section 4
    hostfree_sync: bool = _knob(True, _YES_NO)  # section 4
    hostunregister_sync: bool = _knob(True, _YES_NO)  # section 4
    stack_limit_sync: bool = _knob(False, _YES_NO)  # section 4
    first_launch_barrier: bool = _knob(False, _YES_NO)  # R4.1
    driver_lock: bool = _knob(False, _YES_NO)  # R4.2
    launch_blocking: bool = _knob(False, _YES_NO)  # section 4

    # The pool of stream-ordered memory
    pool_max_size: int | None = _knob(None, _size(none=True))  # R8.4
    pool_reuse: tuple[str, ...] = _knob(_POLICIES, _REUSE)  # R8.4
    pool_release_threshold: int = _knob(0, _THRESHOLD)  # R8.5

    # Costs
    launch_cost: int = _knob(0, _TIME)  # section 10: host time of a kernel launch
    call_cost: int | str = _knob(0, _CALL_COST)  # section 10: host time of any other call
    copy_overhead: int = _knob(0, _TIME)  # section 10: engine time added to every copy
    record_cost: int = _knob(0, _TIME)  # R5.6: stream time of a timed record
    sync_return: int = _knob(0, _TIME)  # from the end of what a host waits for to its return

    # Measured, see the module's text
    h2d_curve: Curve = _curve()
    d2h_curve: Curve = _curve()
    pageable_h2d_curve: Curve = _curve()
    pageable_d2h_curve: Curve = _curve()
    d2d_curve: Curve = _curve()
    memset_curve: Curve = _curve()
    p2p_curve: Curve = _curve()
    inline_curve: Curve = _curve()
    pageable_lag_curve: Curve = _curve()
    staging_curve: Curve = _curve()
    pool_grow_curve: Curve = _curve()
    pool_release_curve: Curve = _curve()
    duplex_curve: Curve = _curve(3)
    launch_contention: Curve = _curve()
    call_costs: Mapping[str, float | Curve] = _table(curves=True, keys=_CALLS)
    late_costs: Mapping[str, float | Curve] = _table(curves=True, keys=_CALLS)
    hops: Mapping[str, tuple[float, ...]] = _table(keys=_HOPS)
    turnaround: Mapping[str, float] = _table(keys=COPY_WORDS)
    issue_latency: Mapping[str, float] = _table(keys=ENGINE_WORDS)
    graph_node_cost: float = field(default=0.0, metadata={"number": True})
    device_hop: float = field(default=0.0, metadata={"number": True})

    @classmethod
    def named(cls, profile: str = "teaching", **knobs: Any) -> Self:
        """Give a profile (``teaching``, ``one-copy-engine``, ``fermi``, ``h200``), knobs changed as by ``with_knobs``.

        Raises ``GaplessError`` for an unknown profile, knob or value.
        """
        if profile not in PROFILES:
            raise GaplessError(
                f"no machine is named {profile!r}{_meant(profile, PROFILES)} (there are {', '.join(PROFILES)})"
            )
        return cls._plain(profile).with_knobs(**knobs)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a machine from a JSON file: ``{KEY: VALUE, ...}``, with the keys of this class.

        A key that is left out has the value of profile ``teaching``, or of the profile that the key ``profile`` names.
        Raises ``GaplessError`` with the file, the key, and what could stand there.
        """
        try:
            keys = json.loads(_read_machine(Path(path)))
        except GaplessError:
            raise
        except OSError as problem:
            raise GaplessError(f"cannot read the machine file {path}: {problem.strerror}") from None
        except (ValueError, RecursionError) as problem:
            raise GaplessError(f"{path} is not JSON: {problem}") from None
        if not isinstance(keys, dict):
            raise GaplessError(f'{path} must hold one JSON object of knobs, such as {{"queues": 8}}')
        try:
            profile = keys.pop("profile", "teaching")
            _refuse_bare_times(keys)
            base = cls.named(str(profile))
            return replace(base, **({"name": Path(path).stem} | cls._read(keys, base)))
        except GaplessError as problem:
            raise GaplessError(f"{path}: {problem}") from None

    def with_knobs(self, **knobs: Any) -> Self:
        """Give the same machine with knobs changed: values as text as on a tape, or as in Python.

        Raises ``GaplessError`` for an unknown knob or a value that cannot stand there.
        """
        return replace(self, **self._read(knobs, self)) if knobs else self

    def __post_init__(self) -> None:
        """Refuse what no machine can be."""
        if self.staging_slot < 1:
            raise GaplessError("staging_slot must be larger than 0")

    def knobs(self) -> dict[str, str]:
        """Give every knob as text, in the spelling of a tape's ``machine`` line."""
        return {f.name: f.metadata["values"].write(getattr(self, f.name)) for f in _knob_fields()}

    def to_json(self) -> str:
        """Write the machine as a file that ``load`` reads back."""
        measured = {f.name: _bare(getattr(self, f.name)) for f in fields(self) if "values" not in f.metadata}
        return json.dumps({"name": self.name, **self.knobs(), **{k: v for k, v in measured.items() if v}}, indent=1)

    def queues_of(self, copies: bool) -> int | None:
        """Number of compute queues, or of queues per copy direction; None: no limit (R6.5)."""
        if not copies:
            return self.queues
        if self.queue_policy == "pool":  # R6.6: with `pool` copies have no limit
            return None
        return self.queues if self.copy_queues == "same" else self.copy_queues  # type: ignore[return-value]

    def clamped(self, priority: int) -> int:
        """Give the priority that a stream gets which asks for one: out of range is clamped, without error (R6.13)."""
        if self.priorities is None:
            return priority
        lowest, highest = self.priorities
        return min(max(priority, highest), lowest)

    def time_of(self, curve: str, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Read one of the ``..._curve`` of two columns at sizes in bytes; gives ps."""
        return interpolate(getattr(self, curve), sizes)

    @classmethod
    @cache
    def _plain(cls, profile: str) -> Self:
        values = cls._read(_profile(profile), None)
        values["name"] = profile
        return cls(**values)

    @classmethod
    def _read(cls, keys: Mapping[str, Any], base: Machine | None) -> dict[str, Any]:
        known = {f.name: f for f in fields(cls)}
        given: dict[str, Any] = {}
        for key, value in keys.items():
            if key not in known:
                raise GaplessError(f"no knob of a machine is called {key!r}{_meant(key, known)}")
            given[key] = _value(known[key], value)
        if "duplex" in given and base is not None and base.duplex_curve:
            given.setdefault("duplex_curve", ())  # whoever sets the factor means it for every size
        return given


def _read_machine(path: Path) -> str:
    if path.exists() and not path.is_file() and not path.is_dir():  # a pipe would wait for whoever writes into it
        raise GaplessError(f"{path} is no regular file. Save the machine to a file first.")
    with path.open("rb") as file:
        raw = file.read(_LARGEST_FILE + 1)
    if len(raw) > _LARGEST_FILE:
        raise GaplessError(f"{path} is longer than {_LARGEST_FILE >> 20} MiB; a machine file holds a few kilobytes")
    return raw.decode("utf-8")


def interpolate(curve: Curve, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Read a curve ``((bytes, ns), ...)`` at sizes; whole picoseconds. See the module's text for what lies outside."""
    points = np.asarray(curve, np.float64)
    nanoseconds = np.interp(sizes, points[:, 0], points[:, 1])
    if len(points) > 1:
        beyond = np.maximum(np.asarray(sizes) - points[-1, 0], 0)
        nanoseconds += beyond * (points[-1, 1] - points[-2, 1]) / (points[-1, 0] - points[-2, 0])
    return np.rint(nanoseconds * 1000).astype(np.int64)


def _knob_fields() -> list[Field[Any]]:
    return [f for f in fields(Machine) if "values" in f.metadata]


def _profile(name: str) -> dict[str, Any]:
    if name == "h200":
        text = (
            resources.files(__name__.rpartition(".")[0]).joinpath("profiles", "h200.json").read_text(encoding="utf-8")
        )
        return json.loads(text)
    one = {"shared_copy_engine": "yes"}
    fermi = {
        "queues": "1", "copy_queues": "1", "queue_policy": "mod", "resident_grids": "16",
        "default_stream_queue": "shared",
    }  # fmt: skip
    return {"teaching": {}, "one-copy-engine": one, "fermi": one | fermi}[name]


def _meant(word: str, known: Any) -> str:
    close = get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _value(f: Field[Any], value: Any) -> Any:
    """Read one key's value, given as text, as JSON or as in Python."""
    if f.name == "name":
        return str(value)
    if "columns" in f.metadata:
        return _read_curve(f.name, value, f.metadata["columns"])
    if "table" in f.metadata:
        return _read_table(f, value)
    if "number" in f.metadata:
        return _read_number(f.name, value)
    values: _Values = f.metadata["values"]
    text = _text(values, value)
    try:
        return values.read(text)
    except (ValueError, KeyError, TypeError) as problem:
        why = f" ({problem})" if isinstance(problem, GaplessError) else ""
        raise GaplessError(f"{f.name}={text} cannot be; {f.name} is {values.allowed}{why}") from None


def _text(values: _Values, value: Any) -> str:
    """Give a value that is not text in the spelling of a tape, so that it is checked as one."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    try:
        return ",".join(map(str, value)) if isinstance(value, list) else values.write(value)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError):
        return repr(value)


def _refuse_bare_times(keys: Mapping[str, Any]) -> None:
    for f in _knob_fields():
        value = keys.get(f.name)
        if f.metadata["values"] in (_TIME, _CALL_COST) and isinstance(value, int | float) and value:
            raise GaplessError(f'{f.name}={value} has no unit; write a time as text, say "3.4us"')


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
            raise GaplessError(f"{f.name} has no entry {key!r}{_meant(str(key), f.metadata['keys'])}")
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


def _bare(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _bare(entry) for key, entry in value.items()}
    return [_bare(entry) for entry in value] if isinstance(value, tuple) else value


assert all(f.default is not MISSING for f in _knob_fields())
