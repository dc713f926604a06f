"""Which accesses touch the same bytes: memory behind the names of buffers, and ranges of it.

A name is not the memory. An allocation gives a name new memory, and an allocator may hand memory out again under
another name (``reuse B of A``); what CuPy's arenas and RMM's lists do is said in this way (R8.8, R8.9). ``memories``
follows both; ``Memory`` keeps the accesses to one piece of memory, by bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from .clocks import Clock
from .columns import among
from .kinds import CALL
from .program import Program

END = 1 << 62  # the end of memory whose size is not known
ALLOCATIONS = (CALL.MALLOC, CALL.MALLOC_ASYNC, CALL.HOST_MALLOC)
FREES = (CALL.FREE, CALL.FREE_ASYNC, CALL.HOST_FREE)
_LIFETIMES = among(*ALLOCATIONS, *FREES, CALL.REUSE)

T = TypeVar("T")
Span = tuple[int, int]


class Layout:
    """Where the accesses to one piece of memory begin and end, as a segment tree over these edges.

    The bytes of an access are covered by a few nodes of the tree. Two accesses share bytes exactly if a node of the one
    is a node of the other, or lies above or below it. ``covers`` gives for the bytes of each access its nodes, and of
    all nodes above them those at which some access stands.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        spans = set(spans)
        edges = sorted({edge for span in spans for edge in span})
        leaves = 1 << max(0, len(edges) - 2).bit_length()
        place = {edge: leaves + at for at, edge in enumerate(edges)}
        nodes = {span: _nodes(place[span[0]], place[span[1]]) for span in spans}
        used = {node for some in nodes.values() for node in some}
        self.covers = {span: (some, _above(some, used)) for span, some in nodes.items()}


def _nodes(low: int, high: int) -> list[int]:
    """Give the nodes that together cover the leaves from *low* up to *high*."""
    nodes: list[int] = []
    while low < high:
        if low & 1:
            nodes.append(low)
            low += 1
        if high & 1:
            high -= 1
            nodes.append(high)
        low, high = low >> 1, high >> 1
    return nodes


def _above(nodes: list[int], used: set[int]) -> list[int]:
    return sorted({node >> shift for node in nodes for shift in range(1, node.bit_length())} & used)


@dataclass(frozen=True, slots=True)
class Naming:
    """Which memory each buffer names. ``first``: at the start, by buffer; ``then``: from a call on, by its row.

    ``names``: all buffers that ever name a piece of memory, by memory, where there are several. ``unborn``: memory that
    is allocated only later. ``layouts``: of the memory behind a buffer, by buffer; None where all accesses touch all.
    """

    first: list[int]
    then: dict[int, int]
    names: dict[int, list[int]]
    unborn: set[int]
    layouts: list[Layout | None]


def memories(program: Program, issued: Iterable[int]) -> Naming:
    """Follow allocations, frees and reuse through the calls in issue order (R8.2, R8.7)."""
    rows = program.rows
    if not _LIFETIMES[rows.call].any():
        return Naming(list(range(len(program.buffers))), {}, {}, set(), _layouts(program, range(len(program.buffers))))
    calls, objects, seconds = rows.call.tolist(), rows.object.tolist(), rows.second.tolist()
    now = list(range(len(program.buffers)))
    count, then, unborn, names = len(now), dict[int, int](), set[int](), dict[int, dict[int, None]]()
    touched: set[int] = set()  # buffers that were allocated, freed or bound before
    fresh: dict[int, int] = {}  # buffer -> the allocation that gave it its memory, as long as nothing else was said
    family = list(now)
    for row in issued:
        call, buffer = calls[row], objects[row]
        if call in ALLOCATIONS:
            if buffer in touched:
                now[buffer] = then[row] = count
                count += 1
            else:
                unborn.add(now[buffer])
            touched.add(buffer)
            fresh[buffer] = row
        elif call in FREES:
            touched.add(buffer)
            fresh.pop(buffer, None)
        elif call == CALL.REUSE:
            touched.add(buffer)
            memory = now[buffer] = then[fresh.pop(buffer, row)] = now[seconds[row]]
            names.setdefault(memory, {seconds[row]: None})[buffer] = None
            family[_head(family, buffer)] = _head(family, seconds[row])
    heads = [_head(family, buffer) for buffer in range(len(family))]
    return Naming(list(range(len(family))), then, {m: list(some) for m, some in names.items()}, unborn,
                  _layouts(program, heads))  # fmt: skip


def _head(family: list[int], buffer: int) -> int:
    """Give the buffer that stands for all that share memory with this one."""
    while family[buffer] != buffer:
        family[buffer] = family[family[buffer]]
        buffer = family[buffer]
    return buffer


def _layouts(program: Program, family: Sequence[int]) -> list[Layout | None]:
    """Give the layout of every buffer; buffers of one family (names of shared memory) have the same."""
    accesses = program.accesses
    spans: dict[int, set[Span]] = {}
    for buffer, head in enumerate(family):
        spans.setdefault(head, set()).add(span(program, buffer))
    partial = np.flatnonzero((accesses.low > 0) | (accesses.high >= 0))
    for buffer, low, high in zip(
        accesses.buffer[partial].tolist(), accesses.low[partial].tolist(), accesses.high[partial].tolist(), strict=True
    ):
        spans[family[buffer]].add(span(program, buffer, low, high))
    layouts = {head: Layout(some) for head, some in spans.items() if len(some) > 1}
    return [layouts.get(head) for head in family]


def span(program: Program, buffer: int, low: int = 0, high: int = -1) -> Span:
    """Give the bytes of an access; all of a buffer whose size is not known ends at ``END``."""
    if high >= 0:
        return low, high
    size = program.buffers[buffer].bytes
    return low, END if size < 0 else size


class _Uses(Generic[T]):
    """Accesses by line, each line in order of its events.

    ``base`` is an event that comes after all accesses before ``recent``: who knows it looks at the recent ones only.
    """

    __slots__ = ("base", "counts", "recent", "uses")

    def __init__(self) -> None:
        self.counts: dict[int, list[int]] = {}
        self.uses: dict[int, list[T]] = {}
        self.recent: dict[int, int] = {}  # line -> its last access since base
        self.base = (-1, 0)

    def add(self, line: int, count: int, use: T) -> None:
        self.recent[line] = count
        if line in self.counts:
            self.counts[line].append(count)
            self.uses[line].append(use)
        else:
            self.counts[line], self.uses[line] = [count], [use]

    def settle(self, line: int, count: int) -> None:
        """Say that this event comes after all accesses so far."""
        self.base = (line, count)
        self.recent = {}

    def unknown_to(self, line: int, clock: Clock) -> list[T]:
        """Give all that are not over for who has this clock and stands on this line."""
        found: list[T] = []
        if not self.counts:
            return found
        known = len(clock)
        settled, count = self.base
        if settled == line or (0 <= settled < known and clock[settled] >= count):
            last = self.recent.items()
        else:
            last = [(other, counts[-1]) for other, counts in self.counts.items()]
        for other, count in last:
            over = clock[other] if other < known else 0
            if count > over and other != line:
                found += self.uses[other][bisect_right(self.counts[other], over) :]
        return found


class _Place(Generic[T]):
    """The accesses at one node."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.reads = _Uses[T]()
        self.writes = _Uses[T]()

    def conflicts(self, write: bool, line: int, clock: Clock) -> list[T]:
        """Give all that conflict with an access and are not over when it starts."""
        found = self.writes.unknown_to(line, clock)
        return found + self.reads.unknown_to(line, clock) if write else found

    def add(self, write: bool, line: int, count: int, use: T) -> None:
        (self.writes if write else self.reads).add(line, count, use)

    def meet(self, write: bool, line: int, count: int, clock: Clock, use: T) -> list[T]:
        """Keep an access; give what it conflicts with. A write that comes after all before settles them."""
        found = self.conflicts(write, line, clock)
        if write and not found:
            self.writes.settle(line, count)
            self.reads.settle(line, count)
        self.add(write, line, count, use)
        return found


class Memory(Generic[T]):
    """The accesses to one piece of memory, and which of them conflict with a new one.

    An access stands at the nodes of its bytes, and is known as standing below at the nodes above them.
    """

    def __init__(self, layout: Layout | None) -> None:
        self._layout = layout
        self._whole = _Place[T]()
        self._here: dict[int, _Place[T]] = {}
        self._below: dict[int, _Place[T]] = {}

    def meet(self, bytes_: Span, write: bool, line: int, count: int, clock: Clock, use: T) -> list[T]:
        """Keep an access, the count-th event of a line, which starts when what *clock* says is over.

        Gives every earlier access that shares bytes with it, is a write or meets one, and is not over; some twice.
        """
        if self._layout is None:
            return self._whole.meet(write, line, count, clock, use) if bytes_[0] < bytes_[1] else []
        nodes, above = self._layout.covers[bytes_]
        found: list[T] = []
        for node in nodes:
            found += _at(self._here, node).meet(write, line, count, clock, use)
        for kept, where in ((self._below, nodes), (self._here, above)):
            for node in where:
                if node in kept:
                    found += kept[node].conflicts(write, line, clock)
        for node in above:
            _at(self._below, node).add(write, line, count, use)
        return found


def _at(kept: dict[int, _Place[T]], node: int) -> _Place[T]:
    if node not in kept:
        kept[node] = _Place[T]()
    return kept[node]
