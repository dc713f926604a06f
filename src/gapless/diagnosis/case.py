"""The Case: all that a cause may look at when it says what it found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, Engine, OpKind
from gapless.timeline.measure import Measures
from gapless.timeline.timeline import Device

from .blame import Blame, Reason, Waits
from .places import Places
from .rates import PinnedRate
from .report import Where
from .work import Bools, Ints, Work

SMALL = 64 * 1024  # bytes up to which a copy costs its latency rather than its bytes
BOUND = 0.7  # share of the window from which the binding engine's own work is the verdict
FULL = 0.9  # share from which there is nothing left to win
READ_BACK = 1024  # bytes up to which a download is a value that the host asks for, such as .item()

COPY_CALLS = (CallKind.COPY_SYNC, CallKind.COPY_ASYNC)
SYNC_CALLS = (CallKind.SYNC_DEVICE, CallKind.SYNC_STREAM, CallKind.SYNC_EVENT)
ALLOCATION_CALLS = (
    CallKind.MALLOC,
    CallKind.FREE,
    CallKind.HOST_MALLOC,
    CallKind.HOST_FREE,
    CallKind.HOST_REGISTER,
    CallKind.HOST_UNREGISTER,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One device's run: its work, who made its binding engine wait, and what copies could reach."""

    work: Work
    blame: Blame
    measures: Measures
    device: Device
    rates: dict[OpKind, PinnedRate]
    needed: Ints  # ns that each operation would take at its best

    @property
    def wall(self) -> int:
        """Length of the window in ns."""
        return self.work.end - self.work.start

    @property
    def waits(self) -> Waits:
        """The idle time of the binding engine, by who made it wait."""
        return self.blame.waits

    @cached_property
    def places(self) -> Places:
        """Where calls were made; costly on large timelines, so built when first asked for."""
        return Places(self.work.timeline)

    # What a wait is about. Each gives one value for each wait.

    @cached_property
    def call_kind(self) -> Ints:
        """CallKind of the call that blocked or issued late; -1 where no call has to do with it."""
        return self._of_call(self.work.calls.kind)

    @cached_property
    def by_pageable(self) -> Bools:
        """Whether the operation waited for is a copy of pageable memory."""
        return self._of_op(self.waits.by, self.work.pageable(), False)

    @cached_property
    def by_kind(self) -> Ints:
        """OpKind of the operation waited for, -1 none."""
        return self._of_op(self.waits.by, self.work.ops.kind, -1)

    @cached_property
    def by_bytes(self) -> Ints:
        """Bytes of the operation waited for, -1 unknown."""
        return self._of_op(self.waits.by, self.work.ops.bytes, -1)

    @cached_property
    def op_small_copy(self) -> Bools:
        """Whether the operation that waited is a host copy of at most 64 KiB."""
        return self._of_op(self.waits.op, self.small_copies, False)

    @cached_property
    def by_small_copy(self) -> Bools:
        """Whether the operation waited for is a host copy of at most 64 KiB."""
        return self._of_op(self.waits.by, self.small_copies, False)

    @cached_property
    def by_fenced(self) -> Bools:
        """Whether the operation waited for was itself held by the legacy default stream's fence."""
        work = self.work
        fenced = (work.fence_pred >= 0) & (work.fence_ready >= work.stream_ready)
        return self._of_op(self.waits.by, fenced, False)

    @cached_property
    def small_copies(self) -> Bools:
        """For each operation: a copy from or to the host of at most 64 KiB."""
        ops = self.work.ops
        return np.isin(ops.kind, (OpKind.H2D, OpKind.D2H)) & (ops.bytes >= 0) & (ops.bytes <= SMALL)

    def blocked_in(self, *kinds: CallKind) -> Bools:
        """Waits behind a host blocked in calls of these kinds."""
        return (self.waits.reason == Reason.BLOCKED) & np.isin(self.call_kind, kinds)

    def reason(self, *reasons: Reason) -> Bools:
        """Waits for these reasons."""
        return np.isin(self.waits.reason, reasons)

    @cached_property
    def read_back(self) -> Bools:
        """Waits for a value of at most 1 KiB that the host fetched: a synchronise by another name."""
        return (self.by_kind == OpKind.D2H) & (self.by_bytes >= 0) & (self.by_bytes <= READ_BACK)

    @cached_property
    def for_pageable_copy(self) -> Bools:
        """Waits behind a host blocked by a copy of pageable memory: in the copy itself or in the synchronise after it.

        Frameworks follow a copy of pageable memory with a synchronise of its stream; the copy is what asks for it.
        """
        blocked = self.blocked_in(*COPY_CALLS, *SYNC_CALLS)
        sync_held = self.by_fenced & (self.call_kind == CallKind.COPY_SYNC)
        return blocked & self.by_pageable & ~self.read_back & ~sync_held

    @property
    def is_bound(self) -> bool:
        """Whether the binding engine's own work, with its turnaround, fills most of the window."""
        return self.blame.busy + self.blame.turnaround >= BOUND * self.wall

    # Words for the causes' sentences.

    @property
    def engine_words(self) -> str:
        """The binding engine's work in words."""
        return ENGINE_WORDS[self.blame.engine]

    @property
    def fill_words(self) -> str:
        """How much of the window the binding engine's work takes, in words."""
        full = self.blame.busy + self.blame.turnaround >= FULL * self.wall
        return "fill the time" if full else "take most of the time"

    @property
    def turnaround_words(self) -> str:
        """What lies between operations done back to back, where it is worth a word."""
        share = self.blame.turnaround / max(self.wall, 1)
        return f", and another {share:.0%} passes between one and the next" if share >= 0.03 else ""

    @cached_property
    def longest_kernel(self) -> str:
        """The kernel that takes most time in all, with its share of the SMs' busy time."""
        ops = self.work.ops
        rows = np.flatnonzero(self.work.engine == Engine.SM)
        if not len(rows):
            return "none"
        names, which = np.unique(ops.name[rows], return_inverse=True)
        spent = np.bincount(which, weights=(ops.end - ops.start)[rows])
        share = spent.max() / max(spent.sum(), 1)
        return f"{shorten(self.work.timeline.name_of(int(names[spent.argmax()])))} ({share:.0%})"

    def distinct(self, rows: Ints) -> Ints:
        """The distinct rows, without -1."""
        return np.unique(rows[rows >= 0])

    def count(self, rows: Ints) -> int:
        """How many distinct rows there are, without -1."""
        return len(self.distinct(rows))

    def count_by_api(self, calls: Ints) -> list[tuple[str, int]]:
        """Names of the called functions and how often each was called, most frequent first."""
        names, counts = np.unique(self.work.calls.name[calls], return_counts=True)
        return [(self.work.timeline.name_of(int(names[i])), int(counts[i])) for i in np.argsort(-counts, kind="stable")]

    def api_names(self, calls: Ints) -> str:
        """Names of the called functions in words, the most frequent three."""
        names = [name for name, _ in self.count_by_api(calls)][:3]
        return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)

    def first_kind(self, ops: Ints) -> OpKind:
        """Kind of the first of some operations."""
        return OpKind(int(self.work.ops.kind[ops[0]]))

    def host_was_doing(self, waits: Waits) -> str:
        """What filled the longest of these waits on the host, as " (mostly in ...)"; empty where nothing tells."""
        if not len(waits):
            return ""
        longest = int(waits.cost.argmax())
        call = int(waits.call[longest])
        if call < 0:
            return ""
        until = int(self.work.calls.start[call])
        doing = self.places.busiest(int(self.work.calls.thread[call]), until - int(waits.cost[longest]), until)
        return f" (in the longest, mostly in {shorten(doing)})" if doing else ""

    def where(self, calls: Ints) -> tuple[Where, ...]:
        """Where these calls were made, most frequent first."""
        return self.places.of_calls(calls)

    def issuers(self, ops: Ints) -> Ints:
        """The calls that issued these operations."""
        return self.work.ops.call[ops[ops >= 0]].astype(np.int64)

    def spans(self, waits: Waits) -> np.ndarray:
        """The gaps that these waits were charged from, ``(n, 2)`` ns."""
        return np.unique(np.column_stack((waits.start, waits.end)), axis=0)

    def busy(self, engine: Engine) -> float:
        """Fraction of the window in which an engine worked."""
        return self.measures.engines[engine].busy_ns / max(self.wall, 1)

    def busy_ms(self, engine: Engine) -> float:
        """Time that an engine worked, in ms."""
        return self.measures.engines[engine].busy_ns / 1e6

    def bound_ms(self) -> float:
        """Time that the binding engine needs for its own work, in ms: no repair goes below it."""
        return self.blame.busy / 1e6

    def streams_of(self, ops: Ints) -> list[int]:
        """The distinct streams of some operations, rows of ``timeline.streams``."""
        return np.unique(self.work.ops.stream[ops]).tolist()

    def copy_ops(self) -> Ints:
        """The copies from and to the host."""
        return np.flatnonzero(np.isin(self.work.engine, (Engine.H2D, Engine.D2H)))

    def _of_call(self, column: np.ndarray) -> Ints:
        call = self.waits.call
        if not len(column):
            return np.full(len(call), -1)
        return np.where(call >= 0, column[np.maximum(call, 0)], -1)

    def _of_op(self, rows: Ints, column: np.ndarray, none: int | bool) -> np.ndarray:
        if not len(column):
            return np.full(len(rows), none)
        return np.where(rows >= 0, column[np.maximum(rows, 0)], none)


ENGINE_WORDS = {Engine.H2D: "H2D copies", Engine.D2H: "D2H copies", Engine.SM: "kernels", Engine.PEER: "peer copies"}


def ms(ns: float) -> str:
    """Give a time in ns as text with three digits and the unit that fits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns / size:,.0f} {unit}"
    return f"{ns:.0f} ns"


def size(count: float) -> str:
    """Give a number of bytes as text."""
    for unit, unit_size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= unit_size:
            return f"{count / unit_size:.3g} {unit}"
    return f"{count:.0f} bytes"


def shorten(text: str, most: int = 60) -> str:
    """Give a long name with its middle left out."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 + 1 :]}"


def plural(count: int, word: str, many: str = "") -> str:
    """Give "1 copy", "2 copies"."""
    return f"{count:,} {word if count == 1 else many or word + 's'}"


def directions(kinds: NDArray[np.integer[Any]]) -> str:
    """Give the directions of some copies in words."""
    present = [name for name, kind in (("H2D", OpKind.H2D), ("D2H", OpKind.D2H)) if (kinds == kind).any()]
    return " and ".join(present)


__all__ = [
    "ALLOCATION_CALLS", "COPY_CALLS", "ENGINE_WORDS", "SYNC_CALLS", "Bools", "Case", "Ints", "directions", "ms",
    "plural", "shorten", "size",
]  # fmt: skip
