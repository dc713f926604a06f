"""The Case: all that a cause may look at when it says what it found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gapless.model.kinds import CallKind, Engine, OpKind
from gapless.timeline.measure import Measures
from gapless.timeline.timeline import Device

from .blame import Blame
from .host import TINY, FirstUses, first_uses, pauses
from .places import Places
from .rates import PinnedRate
from .report import Where
from .start_up import StartUp, start_up
from .waits import Reason, Waits
from .words import ENGINE_WORDS, shorten, unlike
from .work import Bools, Ints, Work, at

PAYS = 0.10  # gain from which a repair is worth making; where none reaches it, the verdict stands first
LEAST = 0.01  # share of the window that a wait must cost to be worth a word
SMALL = 64 * 1024  # bytes up to which a copy costs its latency rather than its bytes
BOUND = 0.7  # share of the window from which the binding engine's own work is the verdict
FULL = 0.9  # share from which there is nothing left to win
LONGEST = 200_000  # ns: a longer pause is not the host's way from one call to the next
RUN = 3  # small copies in a row, from which they are worth gathering

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

    @cached_property
    def first_uses(self) -> FirstUses:
        """What was used for the first time inside the window."""
        found = first_uses(self.work)
        inside = (found.start < self.work.end) & (self.work.calls.end[found.call] > self.work.start)
        return FirstUses(call=found.call[inside], start=found.start[inside], end=found.end[inside])

    @cached_property
    def start_up(self) -> StartUp | None:
        """A start of the window that distorts the whole."""
        return start_up(self.work, self.first_uses)

    # What operations are.

    @cached_property
    def small_copies(self) -> Bools:
        """For each operation: a host copy of at most 64 KiB, one of several that a thread issues in a row.

        A single small copy between other work has nothing that it could be gathered with.
        """
        ops = self.work.ops
        small = np.isin(ops.kind, (OpKind.H2D, OpKind.D2H)) & (ops.bytes >= 0) & (ops.bytes <= SMALL)
        thread = at(self.work.calls.thread, ops.call, -1)
        order = np.lexsort((ops.start, self.work.issue, thread))
        what = np.where(small, ops.kind, -1)[order]
        ends = np.flatnonzero(np.diff(what, append=-2) | np.diff(thread[order], append=-2))
        lengths = np.diff(ends, prepend=-1)
        found = np.zeros(len(ops), bool)
        found[order] = small[order] & (np.repeat(lengths, lengths) >= RUN)
        return found

    @cached_property
    def pageable_copies(self) -> Bools:
        """For each operation: a copy of pageable memory that would be better off pinned.

        Not a value of a few bytes: one that the host fetches is a synchronise by another name, and one that it sends
        by a synchronous copy costs the call, not the memory.
        """
        ops = self.work.ops
        sent = at(self.work.calls.kind, ops.call, -1) == CallKind.COPY_SYNC
        return self.work.pageable() & ((ops.bytes > TINY) | ((ops.kind == OpKind.H2D) & ~sent))

    # What a wait is about. Each gives one value for each wait.

    @cached_property
    def call_kind(self) -> Ints:
        """CallKind of the call that blocked or issued late; -1 where no call has to do with it."""
        return at(self.work.calls.kind, self.waits.call, -1)

    @cached_property
    def by_kind(self) -> Ints:
        """OpKind of the operation waited for, -1 none."""
        return at(self.work.ops.kind, self.waits.by, -1)

    @cached_property
    def by_pageable(self) -> Bools:
        """Whether the operation waited for is a copy of pageable memory that would be better off pinned."""
        return at(self.pageable_copies, self.waits.by, False)

    @cached_property
    def by_fenced(self) -> Bools:
        """Whether the operation waited for was itself held by the legacy default stream's fence."""
        work = self.work
        fenced = (work.fence_pred >= 0) & (work.fence_ready >= work.stream_ready)
        return at(fenced, self.waits.by, False)

    @cached_property
    def read_back(self) -> Bools:
        """Waits for a value of at most 1 KiB that the host fetched: a synchronise by another name."""
        size = at(self.work.ops.bytes, self.waits.by, -1)
        return (self.by_kind == OpKind.D2H) & (size >= 0) & (size <= TINY)

    @cached_property
    def for_pageable_copy(self) -> Bools:
        """Waits behind a host blocked by a copy of pageable memory: in the copy itself or in the synchronise after it.

        Frameworks follow a copy of pageable memory with a synchronise of its stream; the copy is what asks for it.
        """
        held_by_fence = self.by_fenced & (self.call_kind == CallKind.COPY_SYNC)
        return self.blocked_in(*COPY_CALLS, *SYNC_CALLS) & self.by_pageable & ~held_by_fence

    @cached_property
    def from_call_to_call(self) -> Bools:
        """Waits that are no longer than a host takes from one call to the next."""
        pause = at(pauses(self.work), self.waits.call, 0)
        return np.maximum(self.waits.cost, pause) <= LONGEST

    def matters(self, waits: Waits) -> bool:
        """Whether these waits cost enough to be worth a word."""
        return int(waits.cost.sum()) >= LEAST * self.wall

    def blocked_in(self, *kinds: CallKind) -> Bools:
        """Waits behind a host blocked in calls of these kinds."""
        return (self.waits.reason == Reason.BLOCKED) & np.isin(self.call_kind, kinds)

    def reason(self, *reasons: Reason) -> Bools:
        """Waits for these reasons."""
        return np.isin(self.waits.reason, reasons)

    @property
    def is_bound(self) -> bool:
        """Whether the binding engine's own work, with its turnaround, fills most of the window."""
        return 0 < self.blame.busy >= BOUND * self.wall - self.blame.turnaround

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
        found = np.zeros(int(rows.max(initial=-1)) + 1, bool)
        found[rows[rows >= 0]] = True
        return np.flatnonzero(found)

    def costs(self, waits: Waits, rows: Ints) -> Ints:
        """What the waits cost in ns by the distinct values of *rows*, one for each wait."""
        _, which = np.unique(rows, return_inverse=True)
        return np.bincount(which, weights=waits.cost).astype(np.int64)

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

    def host_was_doing(self, waits: Waits) -> str:
        """What filled the longest of these waits on the host; empty where nothing tells."""
        longest = int(waits.cost.argmax())
        call, cost = int(waits.call[longest]), int(waits.cost[longest])
        until = int(self.work.calls.start[call])
        return shorten(self.places.busiest(int(self.work.calls.thread[call]), until - cost, until))

    def where(self, calls: Ints, waits: Waits | None = None) -> tuple[Where, ...]:
        """Where these calls were made, most frequent first; of *waits* unlike each other that of the longest first."""
        found = self.places.of_calls(calls)
        if waits is None or not unlike(waits.cost):
            return found
        return longest_first(found, self.places.of_calls(waits.call[[waits.cost.argmax()]]))

    def where_before(self, waits: Waits) -> tuple[Where, ...]:
        """Where the host was while these waits for it lasted, most frequent first; before them one much longer."""
        found = self._at_half(waits)
        places = self._at_half
        if not any(place.file for place in found) and (self.work.calls.stack[waits.call] >= 0).any():
            places = self._before  # nothing tells where the host was, but where it got to in the end is known
            found = places(waits)
        return (
            longest_first(found, places(waits.take(np.array([waits.cost.argmax()])))) if unlike(waits.cost) else found
        )

    def _at_half(self, waits: Waits) -> tuple[Where, ...]:
        calls = self.work.calls
        return self.places.at_moments(calls.thread[waits.call], calls.start[waits.call] - waits.cost // 2)

    def _before(self, waits: Waits) -> tuple[Where, ...]:
        return tuple(replace(place, function=f"before {place.function}") for place in self.where(waits.call))

    def issuers(self, ops: Ints) -> Ints:
        """The calls that issued these operations, where they are known."""
        calls = self.work.ops.call[ops[ops >= 0]].astype(np.int64)
        return calls[calls >= 0]

    def spans(self, waits: Waits) -> np.ndarray:
        """The gaps that these waits were charged from, ``(n, 2)`` ns."""
        _, first = np.unique(waits.start, return_index=True)  # gaps of one engine: where they begin tells them apart
        return np.column_stack((waits.start[first], waits.end[first]))

    def busy(self, engine: Engine) -> float:
        """Fraction of the window in which an engine worked."""
        return self.measures.engines[engine].busy_ns / max(self.wall, 1)

    def streams_of(self, ops: Ints) -> list[int]:
        """The distinct streams of some operations, rows of ``timeline.streams``."""
        return np.unique(self.work.ops.stream[ops]).tolist()


def longest_first(found: tuple[Where, ...], longest: tuple[Where, ...]) -> tuple[Where, ...]:
    """Give places with that of the longest wait first."""
    places = {(place.file, place.line, place.function): place for place in (*longest, *found)}
    return tuple(places.values())[: max(len(found), 1)]


__all__ = [
    "ALLOCATION_CALLS", "COPY_CALLS", "LEAST", "PAYS", "SYNC_CALLS", "Bools", "Case", "Ints", "longest_first",
]  # fmt: skip
