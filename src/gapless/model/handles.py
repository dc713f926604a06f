"""What a program gives for what it declares, but for streams: events, words, buffers and parts of them, graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import GaplessError
from .kinds import CallKind, MemoryKind
from .things import BufferInfo, Time, picoseconds, word_value

if TYPE_CHECKING:
    from .program import Program


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a program."""

    program: Program
    row: int

    def sync(self, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaEventSynchronize``: wait for what the event stands for now (R5.4)."""
        return self.program._add(CallKind.SYNC_EVENT, object=self.row, label=label, cost=picoseconds(cost))

    def query(self, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaEventQuery``; the answer is ``Schedule.error`` of the row (0 or 600, not ready)."""
        return self.program._add(CallKind.QUERY, object=self.row, label=label, cost=picoseconds(cost))


@dataclass(frozen=True, slots=True)
class Word:
    """A word of memory by which streams and host threads wait for each other (R5.9)."""

    program: Program
    row: int

    def store(self, value: int, *, label: str = "") -> int:
        """Let the host thread write it."""
        return self.program._add(CallKind.STORE, object=self.row, bytes=word_value(value), label=label)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of a program; ``buffer[low:high]`` is a part of it, in bytes."""

    program: Program
    row: int

    @property
    def info(self) -> BufferInfo:
        """Its name, kind and size."""
        return self.program.buffers[self.row]

    def __getitem__(self, part: slice) -> Part:
        low, high = part.start or 0, -1 if part.stop is None else part.stop
        if part.step is not None or low < 0 or (high != -1 and high <= low):
            raise GaplessError(f"a part of {self.info.name} is [low:high] with 0 <= low < high, in bytes")
        return Part(self, low, high)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a buffer: bytes ``low`` up to ``high`` (-1: its end)."""

    buffer: Buffer
    low: int
    high: int

    @property
    def row(self) -> int:
        """The buffer's row."""
        return self.buffer.row

    @property
    def info(self) -> BufferInfo:
        """The buffer's name, kind and size."""
        return self.buffer.info


@dataclass(frozen=True, slots=True)
class Graph:
    """An executable graph of a program."""

    program: Program
    row: int

    @property
    def name(self) -> str:
        """Its name."""
        return self.program.graphs[self.row]


_HOST_MEMORY = frozenset((MemoryKind.PAGEABLE, MemoryKind.PINNED, MemoryKind.MANAGED))
_DEVICE_MEMORY = frozenset((MemoryKind.DEVICE, MemoryKind.ARRAY, MemoryKind.MANAGED))


def memory_of(place: Buffer | Part | None, pageable: bool | None, name: str, *, host: bool) -> MemoryKind:
    """Give the memory kind of one side of a copy: a declared buffer's own, else what the copy says."""
    said = MemoryKind.PAGEABLE if pageable else MemoryKind.PINNED
    if place is None:
        return said if host else MemoryKind.DEVICE
    kind = place.info.kind
    wrong_side = kind not in (_HOST_MEMORY if host else _DEVICE_MEMORY)
    if wrong_side or (host and pageable is not None and said != kind):
        wanted = (said.name.lower() if pageable is not None else "host") if host else "device"
        raise GaplessError(
            f"copy {name or 'here'} needs {wanted} memory on that side, "
            f"but buffer {place.info.name} is {kind.name.lower()}"
        )
    return kind
