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
        self._starts: list[int] = []  # of what is allocated now
        self._now: dict[int, int] = {}  # start: row of extents

    def allocate(self, row: int, address: int, size: int, kind: MemoryKind) -> int:
        """Let a call allocate memory; give the extent."""
        last = bisect_left(self._starts, address + max(size, 1))
        first = bisect_right(self._starts, address)
        if first and self._end(self._starts[first - 1]) > address:
            first -= 1
        for start in self._starts[first:last]:  # its free was not seen
            del self._now[start]
        del self._starts[first:last]
        insort(self._starts, address)
        self._now[address] = len(self.extents)
        self.extents.append(Extent(address, max(size, 1), kind, row))
        return len(self.extents) - 1

    def free(self, address: int) -> int:
        """Let a call free memory; give the extent, -1 for one that was not seen allocated."""
        extent = self._now.pop(address, -1)
        if extent >= 0:
            self._starts.pop(bisect_left(self._starts, address))
        return extent

    def touch(self, row: int, address: int, size: int, *, write: bool, sure: bool, gaps: bool = False) -> None:
        """Let a row touch memory. *size* -1: from there on, how far is not known."""
        at = bisect_right(self._starts, address) - 1
        extent = -1
        if at >= 0 and address < self._end(self._starts[at]):
            extent = self._now[self._starts[at]]
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

    def _end(self, start: int) -> int:
        extent = self.extents[self._now[start]]
        return extent.address + extent.bytes
