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
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from fractions import Fraction
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .errors import GaplessError
from .kinds import CallKind, OpKind
from .knobs import (
    CALL_COST,
    COPY_QUEUES,
    DUPLEX,
    FRACTION,
    POLICIES,
    PRIORITIES,
    QUEUES,
    REUSE,
    THRESHOLD,
    TIME,
    YES_NO,
    Curve,
    bare,
    choice,
    curve,
    knob,
    meant,
    read_value,
    size,
    table,
    whole,
)

_LARGEST_FILE = 1 << 20  # bytes

COPY_WORDS = ("h2d", "d2h", "peer")
ENGINE_WORDS = ("sm", "inline", "h2d", "d2h", "peer", "host")
PROFILES = ("teaching", "one-copy-engine", "fermi", "h200")


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
    h2d_engines: int = knob(1, whole(0, 64))  # 6.1; 0: copies occupy the SMs
    d2h_engines: int = knob(1, whole(0, 64))  # 6.1
    peer_engines: int = knob(1, whole(1, 64))  # 6.1
    shared_copy_engine: bool = knob(False, YES_NO)  # 6.1: one engine in all
    copy_arbitration: str = knob("ready", choice("ready", "drain_channel"))  # R6.1
    duplex: tuple[Fraction, Fraction] = knob((Fraction(1), Fraction(1)), DUPLEX)  # R3.11
    d2d_engine: str = knob("sm", choice("sm", "ce"))  # R3.10
    memset_engine: str = knob("sm", choice("sm", "ce"))  # R3.10
    memset_no_sm: int = knob(0, size())  # R3.10
    hostfn_workers: int = knob(1, whole(1, 1024))  # R6.15

    # Queues
    queues: int | None = knob(None, QUEUES)  # R6.5
    copy_queues: int | str | None = knob("same", COPY_QUEUES)  # R6.5
    queue_policy: str = knob("pool", choice("pool", "mod", "sticky"))  # R6.6
    default_stream_queue: str = knob("own", choice("own", "shared"))  # R6.6, R6.7: under `mod`
    launch_depth: int | None = knob(None, whole(1, none="none"))  # R6.9
    launch_depth_per: str = knob("stream", choice("stream", "channel"))  # R6.9
    launch_bytes: int | None = knob(None, size(none=True))  # R6.9

    # SMs
    kernels: str = knob("leftover", choice("leftover", "exclusive"))  # R6.11
    resident_grids: int = knob(128, whole(1))  # R6.10
    sms: int | None = knob(None, whole(1, none="none"))  # R6.10, R6.12; None: a pool of capacity 1
    blocks_per_sm: int | None = knob(None, whole(1, none="none"))  # R6.10
    threads_per_sm: int | None = knob(None, whole(1, none="none"))  # R6.10
    regs_per_sm: int | None = knob(None, whole(1, none="none"))  # R6.10
    smem_per_sm: int | None = knob(None, size(none=True))  # R6.10
    smem_config_per_sm: bool = knob(False, YES_NO)  # R6.17
    kernel_tail: Fraction = knob(Fraction(0), FRACTION)  # R6.11: last part of a kernel in which its SMs fall free
    priorities: tuple[int, int] | None = knob(None, PRIORITIES)  # R6.13

    # Copies
    pageable: str = knob("blocks", choice("blocks", "staged"))  # R3.12
    small_pageable: int = knob(64 * 1024, size())  # table 3.1, R3.13
    staging_slots: int = knob(2, whole(1))  # R3.12
    staging_slot: int = knob(1024 * 1024, size())  # R3.12
    inline_idle: int = knob(0, size())  # R3.13
    inline_pending: int = knob(0, size())  # R3.13
    sync_memops: bool = knob(False, YES_NO)  # R3.2
    peer_barrier_all: bool = knob(False, YES_NO)  # R3.7

    # Calls
    legacy_noop_barrier: str = knob("yes", choice("yes", "listed", "no"))  # R2.3
    malloc_sync: bool = knob(False, YES_NO)  # section 4
    free_sync: bool = knob(True, YES_NO)  # section 4
    hostfree_sync: bool = knob(True, YES_NO)  # section 4
    hostunregister_sync: bool = knob(True, YES_NO)  # section 4
    stack_limit_sync: bool = knob(False, YES_NO)  # section 4
    first_launch_barrier: bool = knob(False, YES_NO)  # R4.1
    driver_lock: bool = knob(False, YES_NO)  # R4.2
    launch_blocking: bool = knob(False, YES_NO)  # section 4

    # The pool of stream-ordered memory
    pool_max_size: int | None = knob(None, size(none=True))  # R8.4
    pool_reuse: tuple[str, ...] = knob(POLICIES, REUSE)  # R8.4
    pool_release_threshold: int = knob(0, THRESHOLD)  # R8.5

    # Costs
    launch_cost: int = knob(0, TIME)  # section 10: host time of a kernel launch
    call_cost: int | str = knob(0, CALL_COST)  # section 10: host time of any other call
    copy_overhead: int = knob(0, TIME)  # section 10: engine time added to every copy
    record_cost: int = knob(0, TIME)  # R5.6: stream time of a timed record
    sync_return: int = knob(0, TIME)  # from the end of what a host waits for to its return

    # Measured, see the module's text
    h2d_curve: Curve = curve()
    d2h_curve: Curve = curve()
    pageable_h2d_curve: Curve = curve()
    pageable_d2h_curve: Curve = curve()
    d2d_curve: Curve = curve()
    memset_curve: Curve = curve()
    p2p_curve: Curve = curve()
    inline_curve: Curve = curve()
    pageable_lag_curve: Curve = curve()
    staging_curve: Curve = curve()
    pool_grow_curve: Curve = curve()
    pool_release_curve: Curve = curve()
    duplex_curve: Curve = curve(3)
    launch_contention: Curve = curve()
    call_costs: Mapping[str, float | Curve] = table(curves=True, keys=_CALLS)
    late_costs: Mapping[str, float | Curve] = table(curves=True, keys=_CALLS)
    hops: Mapping[str, tuple[float, ...]] = table(keys=_HOPS)
    turnaround: Mapping[str, float] = table(keys=COPY_WORDS)
    issue_latency: Mapping[str, float] = table(keys=ENGINE_WORDS)
    graph_node_cost: float = field(default=0.0, metadata={"number": True})
    device_hop: float = field(default=0.0, metadata={"number": True})

    @classmethod
    def named(cls, profile: str = "teaching", **knobs: Any) -> Self:
        """Give a profile (``teaching``, ``one-copy-engine``, ``fermi``, ``h200``), knobs changed as by ``with_knobs``.

        Raises ``GaplessError`` for an unknown profile, knob or value.
        """
        if profile not in PROFILES:
            raise GaplessError(
                f"no machine is named {profile!r}{meant(profile, PROFILES)} (there are {', '.join(PROFILES)})"
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
        measured = {f.name: bare(getattr(self, f.name)) for f in fields(self) if "values" not in f.metadata}
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
                raise GaplessError(f"no knob of a machine is called {key!r}{meant(key, known)}")
            given[key] = read_value(known[key], value)
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


def _refuse_bare_times(keys: Mapping[str, Any]) -> None:
    for f in _knob_fields():
        value = keys.get(f.name)
        if f.metadata["values"] in (TIME, CALL_COST) and isinstance(value, int | float) and value:
            raise GaplessError(f'{f.name}={value} has no unit; write a time as text, say "3.4us"')


assert all(f.default is not MISSING for f in _knob_fields())
