"""Which buffer an address lies in: allocations by their time, and what was never seen allocated by what touches it.

Kernels tell only where their arguments point. What a kernel touches from there on is not known; it is taken to reach to
where the next known piece of the buffer begins, because programs that cut one allocation into chunks hand out pointers
to the chunks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass

from gapless.model.kinds import MemoryKind


@dataclass(slots=True)
class Extent:
    """A stretch of memory that accesses are compared in: an allocation, or what copies touch without one."""

    address: int
    bytes: int
    kind: MemoryKind
    allocated: int  # row of the call that allocated it, -1 not seen


@dataclass(slots=True)
class Touch:
    """Bytes that a row of the program touches. ``sure`` is False where a kernel's argument points there."""

    row: int
    address: int
    bytes: int
    write: bool
    sure: bool
    gaps: bool  # not all bytes between the first and the last
    extent: int  # row of extents, -1 not yet known


class Memory:
    """Follows allocations and frees in the order of the calls, and puts every touch into an extent."""

    def __init__(self) -> None:
        self.extents: list[Extent] = []
        self.touches: list[Touch] = []
        self._now = _Extents(self.extents)  # what is allocated
        self._freed = _Extents(self.extents)  # what was handed back to its pool, and not handed out again

    def allocate(self, row: int, address: int, size: int, kind: MemoryKind) -> int:
        """Let a call allocate memory; give the extent."""
        made = Extent(address, max(size, 1), kind, row)
        self.extents.append(made)
        self._freed.drop(made)
        self._now.add(len(self.extents) - 1)  # of what it overlaps the free was not seen
        return len(self.extents) - 1

    def free(self, address: int, *, to_pool: bool) -> int:
        """Let a call free memory; give the extent, -1 for one that was not seen allocated.

        *to_pool*: its addresses go to nobody else but by an allocation that is seen, so later uses of them mean it.
        """
        extent = self._now.pop(address)
        if extent >= 0 and to_pool:
            self._freed.add(extent)
        return extent

    def touch(
        self, row: int, address: int, size: int, *, write: bool, sure: bool, gaps: bool = False, freed: bool = False
    ) -> None:
        """Let a row touch memory. *size* -1: from there on, how far is not known. *freed*: it may have been freed."""
        extent = self._now.at(address)
        if extent < 0 and freed:
            extent = self._freed.at(address)
        self.touches.append(Touch(row, address, size, write, sure, gaps, extent))

    def settle(self) -> None:
        """Put the touches of memory that was never seen allocated into extents of their own, and end the open ones.

        A kernel's argument that points into no known memory is no pointer that anything is known of, and goes.
        """
        self._settle_unseen()
        starts: dict[int, set[int]] = {}
        for touch in self.touches:
            starts.setdefault(touch.extent, set()).add(touch.address)
        ordered = {extent: sorted(found) for extent, found in starts.items()}
        for touch in self.touches:
            extent = self.extents[touch.extent]
            end = extent.address + extent.bytes
            if touch.bytes < 0:
                edges = ordered[touch.extent]
                following = bisect_right(edges, touch.address)
                end = edges[following] if following < len(edges) else end
                touch.bytes = max(end - touch.address, 1)

    def _settle_unseen(self) -> None:
        spans = sorted(
            (touch.address, touch.address + touch.bytes)
            for touch in self.touches
            if touch.extent < 0 and touch.sure and touch.bytes > 0
        )
        merged: list[list[int]] = []
        for start, end in spans:
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        first = len(self.extents)
        self.extents += [Extent(start, end - start, MemoryKind.UNKNOWN, -1) for start, end in merged]
        starts = [start for start, _ in merged]
        for touch in self.touches:
            if touch.extent < 0:
                at = bisect_right(starts, touch.address) - 1
                if at >= 0 and touch.address < merged[at][1]:
                    touch.extent = first + at
        self.touches = [touch for touch in self.touches if touch.extent >= 0 and touch.bytes]


class _Extents:
    """Extents that do not overlap, to be found by an address inside."""

    def __init__(self, extents: list[Extent]) -> None:
        self._extents = extents
        self._starts: list[int] = []
        self._rows: dict[int, int] = {}  # start: row of extents

    def add(self, row: int) -> None:
        """Take an extent, by its row, in place of all that it overlaps."""
        extent = self._extents[row]
        self.drop(extent)
        insort(self._starts, extent.address)
        self._rows[extent.address] = row

    def pop(self, start: int) -> int:
        """Take out the extent that starts there; give its row, -1 for none."""
        row = self._rows.pop(start, -1)
        if row >= 0:
            self._starts.pop(bisect_left(self._starts, start))
        return row

    def drop(self, other: Extent) -> None:
        """Take out all that overlap another extent."""
        last = bisect_left(self._starts, other.address + other.bytes)
        first = bisect_right(self._starts, other.address)
        if first and self._end(self._starts[first - 1]) > other.address:
            first -= 1
        for start in self._starts[first:last]:
            del self._rows[start]
        del self._starts[first:last]

    def at(self, address: int) -> int:
        """Give the row of the extent in which an address lies, -1 for none."""
        found = bisect_right(self._starts, address) - 1
        return self._rows[self._starts[found]] if found >= 0 and address < self._end(self._starts[found]) else -1

    def _end(self, start: int) -> int:
        extent = self._extents[self._rows[start]]
        return extent.address + extent.bytes
