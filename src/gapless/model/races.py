"""Races: accesses to the same bytes, at least one a write, that happens-before leaves unordered (section 9).

::

    for race in find_races(program):
        print(race)

Only what the documentation promises counts as order, so a program may be found racing that has never failed yet:
engines that take turns, a ``cudaFree`` that waits, a copy that was over long ago put nothing in order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from .happens_before import Happened, Moment, Step, issue_order, walk
from .host_order import HostOrder, left_to_chance
from .kinds import CALL, FLAG, MEMORY, OP
from .memory import ALLOCATIONS, END, FREES, Memory, memories, span
from .program import Program, ranges
from .repairs import Names, Repair, Repairs

MOST = 10_000  # pairs that are listed; a program with more needs no longer list


class RaceClass(IntEnum):
    """How bad it is (9.3), worst first."""

    ERROR = 0  # the contract of documented rules is broken
    UNALLOCATED = 1  # used before its allocation, after its free, or with no order between
    WARNING = 2  # the contract is broken, and today's drivers hide it
    NONDETERMINISM = 3  # ordered on the device, but host threads decide by chance which way

    @property
    def word(self) -> str:
        """The word in reports and JSON."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a race: an operation or call, and what it does (``reads``, ``writes``, ``frees`` ... the memory)."""

    row: int
    run: int  # the n-th run of an operation of a graph, from 1; 0 for all else
    name: str
    does: str
    last: bool = True  # the last run

    def is_at(self, moment: Moment) -> bool:
        """Tell whether a row (its last run) or a run of a row is meant."""
        return moment == (self.row, self.run) or (moment == self.row and self.last)


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses without an order. ``first`` was issued first.

    ``buffer`` is the name of the memory as the first has it, ``buffers`` are all its names; empty where the race is
    about no memory.
    """

    kind: RaceClass
    first: Access
    second: Access
    buffer: str
    buffers: tuple[str, ...]
    repair: Repair
    misplaced: bool = False  # the second has to be the first: used after the free, or before the allocation
    unseen: bool = False  # a value in memory orders them, which CUDA cannot see (R5.9)

    def is_about(self, x: Moment, y: Moment) -> bool:
        """Tell whether these two (rows, or runs of rows) are its accesses, either way round."""
        a, b = self.first, self.second
        return (a.is_at(x) and b.is_at(y)) or (a.is_at(y) and b.is_at(x))

    def to_dict(self) -> dict[str, Any]:
        """Give the race as plain values: the form of the JSON."""
        return {
            "class": self.kind.word,
            "first": self.first.name,
            "second": self.second.name,
            "buffer": self.buffer or None,
            "repair": str(self.repair),
        }

    def __str__(self) -> str:
        a, b = self.first, self.second
        if self.kind is RaceClass.NONDETERMINISM:
            said = f"{a.name} and {b.name} come from different host threads; which is first is left to chance"
        elif self.misplaced:
            said = f"{a.name} {a.does} {self.buffer} before {b.name} {b.does} it"
        else:
            said = f"{a.name} {a.does} {self.buffer} and {b.name} {b.does} it, with no order between them"
        if self.unseen:
            said = f"{a.name} {a.does} {self.buffer} and {b.name} {b.does} it"
            said += ", and only a value in memory orders the two, which CUDA cannot see"
        elif self.kind is RaceClass.WARNING:
            said += " that the documentation promises; today's drivers hide it"
        return f"{self.kind.word}: {said}. To repair: {self.repair}"


@dataclass(frozen=True, slots=True)
class Races(Sequence[Race]):
    """What a check found, worst first, else in issue order. ``more``: there were more than are listed."""

    found: tuple[Race, ...]
    more: bool
    program: Program
    happened: Happened

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, at: Any) -> Any:
        return self.found[at]

    @property
    def errors(self) -> tuple[Race, ...]:
        """Those that are errors: broken contracts and uses outside allocation."""
        return tuple(race for race in self.found if race.kind <= RaceClass.UNALLOCATED)

    def between(self, x: Moment, y: Moment) -> tuple[Race, ...]:
        """Give all races of two operations or calls, by row (or row and run), either way round; listed or not."""
        found = self.found
        if self.more:
            pair = {m if isinstance(m, int) else m[0] for m in (x, y)}
            found = find_races(self.program, self.happened, only=pair).found
        return tuple(race for race in found if race.is_about(x, y))


def find_races(program: Program, happened: Happened | None = None, *, only: set[int] | None = None) -> Races:
    """Check a program for races. *only*: look at the accesses and calls of these rows alone.

    Exact for the order in which the driver takes the calls, which *happened* gives (else the text's); what other
    interleavings of host threads would change is reported as nondeterminism (R1.2).
    """
    happened = happened or Happened()
    issued = issue_order(program) if happened.issued is None else happened.issued
    check = _Check(program, replace(happened, issued=issued), issued, only)
    found = check.run()
    if waits := [row for row in happened.behind if program.rows.op[row] == OP.WAIT_VALUE]:
        seen = {(race.first, race.second, race.buffer) for race in found}
        visible = {row: by for row, by in happened.behind.items() if row not in waits}
        without = _Check(program, replace(happened, issued=issued, behind=visible), issued, only).run()
        found += [  # R5.9: the same order has to be expressed by events as well
            replace(race, kind=RaceClass.WARNING, unseen=True, repair=_with_an_event(race))
            for race in without
            if race.kind <= RaceClass.WARNING and (race.first, race.second, race.buffer) not in seen
        ]
        found.sort(key=lambda race: race.kind)
    return Races(tuple(found), check.more, program, happened)


def _with_an_event(race: Race) -> Repair:
    """Say what to do about an order that CUDA cannot see. To wait for the first of them might be to wait for ever."""
    a, b = race.first.name, race.second.name
    return Repair(f"order {a} and {b} by an event or a synchronise as well, and issue first what has to come first")


# ------------------------------------------------------------------------------------------------------------ the check

_READS_AT_CALL, _HIDDEN, _UNTIL_DONE = 1, 2, 4  # roles of accesses


class Use(NamedTuple):
    """An access as the check keeps it."""

    step: Step
    buffer: int
    write: bool
    by_host: bool  # by a host thread, during a call; else by the device (or the driver's thread), as an operation
    hidden: bool = False  # today's drivers hide it from what the host does after the call returned (9.2, R3.3)
    lifetime: bool = False  # an allocation or a free


class _Pair(NamedTuple):
    kind: RaceClass
    first: Use
    second: Use
    misplaced: bool  # the second has to be the first: used after the free, or before the allocation


Key = tuple[int, int, int, int, int]


class _Check:
    def __init__(self, program: Program, happened: Happened, issued: Sequence[int], only: set[int] | None) -> None:
        self.program = program
        self.happened = happened
        self.issued = issued
        self.more = False
        self._only = only
        self._pairs: dict[Key, _Pair] = {}
        rows = program.rows
        self._calls: list[int] = rows.call.tolist()
        self._ops: list[int] = rows.op.tolist()
        self._objects: list[int] = rows.object.tolist()
        accesses = program.accesses
        self._ranges = ranges(program)
        self._buffers: list[int] = accesses.buffer.tolist()
        self._writes: list[bool] = accesses.write.tolist()
        self._spans = [
            span(program, buffer, low, high)
            for buffer, low, high in zip(self._buffers, accesses.low.tolist(), accesses.high.tolist(), strict=True)
        ]
        self._roles = _roles(program)
        errors = happened.errors
        made = (
            [row for row in issued if not errors[row]] if errors is not None else issued
        )  # a failed call does nothing
        lifetimes = np.zeros(len(program), np.bool_)
        lifetimes[made] = np.isin(rows.call[made], (*ALLOCATIONS, *FREES))
        self._lifetimes: list[bool] = lifetimes.tolist()
        self._naming = memories(program, made)
        self._position = {row: at for at, row in enumerate(issued)} if lifetimes.any() or self._naming.then else {}
        self._renamed: dict[int, list[tuple[int, int]]] = {}  # buffer -> from where on it is which memory
        for row, memory in sorted(self._naming.then.items(), key=lambda item: self._position[item[0]]):
            self._renamed.setdefault(self._objects[row], []).append((self._position[row], memory))
        self._memory: dict[int, Memory[Use]] = {}
        self._freed: dict[int, list[Use]] = {}
        self._called: dict[int, tuple[str, ...]] = {}
        self._early: dict[int, list[Use]] = {memory: [] for memory in self._naming.unborn}

    def run(self) -> list[Race]:
        """Look at all accesses in issue order; give what was found, worst first."""
        runs: dict[int, int] = {}
        for step in walk(self.program, self.happened):
            row = step.row
            runs[row] = step.run
            if self._only is None or row in self._only:
                first, end = self._ranges[row]
                for access in range(first, end):
                    self._use(step, access)
                if self._lifetimes[row]:
                    self._allocation(step, self._objects[row])
            if self.more:
                break
        return self._races(runs)

    def _use(self, step: Step, access: int) -> None:
        role, buffer, write = self._roles[access], self._buffers[access], self._writes[access]
        bytes_ = self._spans[access]
        if role & _READS_AT_CALL and role & (_HIDDEN | _UNTIL_DONE):  # 9.2, R3.9: it may be read from the call on
            self._meet(Use(step, buffer, write, True), bytes_)
            self._meet(Use(step, buffer, write, False, bool(role & _HIDDEN)), bytes_)
        else:
            by_host, hidden = self._ops[step.row] < 0 or bool(role & _READS_AT_CALL), bool(role & _HIDDEN)
            self._meet(Use(step, buffer, write, by_host, hidden), bytes_)

    def _allocation(self, step: Step, buffer: int) -> None:
        """Allocating and freeing write all of the memory (9.2): every use lies between the two (R8.1)."""
        memory, bytes_ = self._memory_of(step, buffer), span(self.program, buffer)
        use = Use(step, buffer, True, self._ops[step.row] < 0, lifetime=True)
        self._meet(use, bytes_)
        if self._calls[step.row] in FREES:
            self._freed.setdefault(memory, []).append(use)
        else:
            at, frees = self._position[step.by], self._freed.pop(memory, ())
            if later := [free for free in frees if self._position[free.step.by] > at]:  # their turn came first (R5.9)
                self._freed[memory] = later
            for early in self._early.pop(memory, ()):
                if early.step is not step:
                    self._found(RaceClass.UNALLOCATED, early, use, misplaced=True)

    def _memory_of(self, step: Step, buffer: int) -> int:
        """Give the memory that a buffer named when the call was issued: what waits for a value runs later (R5.9)."""
        renamed = self._renamed.get(buffer)
        if renamed is None:
            return self._naming.first[buffer]
        at = bisect_right(renamed, (self._position[step.by], END)) - 1
        return renamed[at][1] if at >= 0 else self._naming.first[buffer]

    def _meet(self, use: Use, bytes_: tuple[int, int]) -> None:
        """Find what conflicts with an access, and keep it."""
        step, number = use.step, self._memory_of(use.step, use.buffer)
        memory = self._memory.get(number)
        if memory is None:
            memory = self._memory[number] = Memory(self._naming.layouts[use.buffer])
        if use.by_host:
            line, count, clock = step.call_line, step.call_tick, step.call_clock
        else:
            line, count, clock = step.line, step.tick, step.clock
        for other in memory.meet(bytes_, use.write, line, count, clock, use):
            if other.step is not step:
                self._found(_kind(other, use), other, use)
        if number in self._freed and not (use.lifetime and self._calls[step.row] in ALLOCATIONS):
            for free in self._freed[number]:
                self._found(RaceClass.UNALLOCATED, free, use, misplaced=True)
        if number in self._early:
            self._early[number].append(use)

    def _found(self, kind: RaceClass, first: Use, second: Use, misplaced: bool = False) -> None:
        x, y = first.step, second.step
        key = x.row, x.run, y.row, y.run, self._memory_of(y, second.buffer)
        pair = self._pairs.get(key)
        if pair is None:
            if len(self._pairs) >= MOST:
                self.more = True
                return
            self._pairs[key] = _Pair(kind, first, second, misplaced)
        elif (kind, not misplaced) < (pair.kind, not pair.misplaced):
            self._pairs[key] = _Pair(kind, first, second, misplaced)

    # ------------------------------------------------------------------------------------------------ in plain words

    def _races(self, runs: Mapping[int, int]) -> list[Race]:
        if not self._pairs and len(self.program.threads) == 1:
            return []
        host_order = HostOrder(self.program, self.issued)
        names = Names(self.program, runs)
        repairs = Repairs(self.program, self.issued, host_order, names)
        races = [self._race(pair, key[-1], names, repairs) for key, pair in self._pairs.items()]
        races.sort(key=lambda race: race.kind)
        if len(self.program.threads) > 1:
            races += self._left_to_chance(host_order, runs, names, repairs, MOST - len(races))
        return races

    def _race(self, pair: _Pair, memory: int, names: Names, repairs: Repairs) -> Race:
        x, y = pair.first, pair.second
        first, second = self._access(x, (x.buffer, y.buffer), names), self._access(y, (x.buffer, y.buffer), names)
        if pair.misplaced:
            repair = repairs.move(x.step, y.step, first_frees=x.lifetime, second_frees=y.lifetime)
        else:
            repair = repairs.shortest(x.step, y.step, x.by_host, y.by_host)
        name = self.program.buffers[x.buffer].name
        if memory not in self._called:
            buffers = self._naming.names.get(memory, [x.buffer])
            self._called[memory] = tuple(self.program.buffers[buffer].name for buffer in buffers)
        return Race(pair.kind, first, second, name, self._called[memory], repair, pair.misplaced)

    def _access(self, use: Use, buffers: Collection[int], names: Names) -> Access:
        row, run = use.step.row, use.step.run
        if use.lifetime:
            does = "frees" if self._calls[row] in FREES else "allocates"
        else:
            first, end = self._ranges[row]
            ways = {self._writes[i] for i in range(first, end) if self._buffers[i] in buffers}
            does = "updates" if len(ways) > 1 else "writes" if True in ways else "reads"
        return Access(row, run, names.of(row, run), does, names.is_last(row, run))

    def _left_to_chance(self, host_order: HostOrder, runs: Mapping[int, int], names: Names, repairs: Repairs,
                        most: int) -> list[Race]:  # fmt: skip
        pairs: dict[tuple[int, int], None] = {}
        for pair in left_to_chance(self.program, host_order, self.issued, runs.keys()):
            if self._only is None or self._only.issuperset(pair):
                if len(pairs) >= most:
                    self.more = True
                    break
                pairs[pair] = None
        races: list[Race] = []
        for x, y in pairs:
            first, second = (Access(row, 0, names.of(row), "is issued") for row in (x, y))
            races.append(Race(RaceClass.NONDETERMINISM, first, second, "", (), repairs.tell(x, y)))
        return races


def _kind(other: Use, use: Use) -> RaceClass:
    """Say how bad it is that *use* does not wait for *other* (9.3)."""
    if other.hidden and use.by_host and use.step.call_knows(other.step.call_line, other.step.call_tick):
        return RaceClass.WARNING
    if other.lifetime or use.lifetime:
        return RaceClass.UNALLOCATED
    return RaceClass.ERROR


def _roles(program: Program) -> list[int]:
    """Say for each access how it differs from one that happens while its operation runs (9.2)."""
    rows, accesses = program.rows, program.accesses
    row, writes = accesses.row, accesses.write
    call, op, src, dst = rows.call[row], rows.op[row], rows.src[row], rows.dst[row]
    source, target = (op == OP.H2D) & ~writes, (op == OP.D2H) & writes
    memory = np.where(source, src, np.where(target, dst, MEMORY.UNKNOWN))
    pageable, sync = memory == MEMORY.PAGEABLE, call == CALL.COPY_SYNC
    batched = call == CALL.BATCHED
    at_call = pageable & source & ~batched  # by the synchronous form during the call, by the asynchronous from it on
    hidden = (pageable & (call == CALL.COPY_ASYNC)) | ((memory == MEMORY.MANAGED) & sync)  # R3.3
    flags, read_by_copy = rows.flags[row], batched & ~writes  # R3.9: srcAccessOrder
    any_time = read_by_copy & ((flags & int(FLAG.ANY_TIME)) != 0)
    at_call |= any_time | (read_by_copy & ((flags & int(FLAG.DURING_CALL)) != 0))
    return (at_call * _READS_AT_CALL + hidden * _HIDDEN + any_time * _UNTIL_DONE).tolist()
