"""What was asked of a simulated device, with the memory that it touched, as a program of the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gapless.model.handles import Buffer, Part
from gapless.model.kinds import MemoryKind, OpKind, StreamKind
from gapless.model.program import Program
from gapless.model.units import ns

from . import HostArray
from .address import address


@dataclass(slots=True, eq=False)
class Entry:
    """One thing in the log: a call of a host thread, with what its operation touched."""

    thread: str
    what: str  # "h2d", "kernel", "d2h", "record", "sync", "send", "receive", "read", "write"
    name: str = ""
    stream: int = -1
    bytes: int = -1
    duration: int = 0  # ns
    reads: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])  # (block, low, high)
    writes: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])


class Log:
    """Calls in the order in which they came, and blocks of memory by which their accesses are told."""

    def __init__(self) -> None:
        self._log: list[Entry] = []
        self._entry: Entry | None = None
        self._blocks: list[tuple[int, int, str, MemoryKind, Any]] = []  # address, size, name, kind, what keeps it
        self._known: dict[tuple[int, int], int] = {}  # which block holds a stretch of memory
        self._streams = self._events = self._numbers = 0

    def new_stream(self) -> int:
        """Count a stream; give its row."""
        self._streams += 1
        return self._streams - 1

    def new_event(self) -> str:
        """Count an event; give its name."""
        self._events += 1
        return f"e{self._events - 1}"

    def note(self, entry: Entry) -> Entry:
        """Add to the log."""
        self._log.append(entry)
        return entry

    def number(self, kind: OpKind) -> str:
        """Name an operation."""
        self._numbers += 1
        return f"{kind.name.lower()}{self._numbers // 3}"

    @contextmanager
    def doing(self, entry: Entry) -> Iterator[None]:
        """Note what is touched meanwhile as touched by this."""
        before, self._entry = self._entry, entry
        try:
            yield
        finally:
            self._entry = before

    def touch(self, *arrays: HostArray, write: bool = False) -> None:
        """Note that memory is read or written: by the work that is going on, else by the main thread."""
        for array in arrays:
            if not array.size:
                continue
            block = self.find(array)
            if block is None:
                block = self.keep(array, MemoryKind.PAGEABLE)
            low, high = _extent(array)
            place = (block, low - self._blocks[block][0], high - self._blocks[block][0])
            entry = self._entry or self.note(Entry("main", "write" if write else "read", f"user{len(self._log)}"))
            (entry.writes if write else entry.reads).append(place)

    def program(self) -> Program:
        """Give everything that was asked so far as a program of the model, to be judged by its rules."""
        program = Program()
        buffers = [program.buffer(name, size, kind) for _, size, name, kind, _ in self._blocks]
        streams = [program.stream(f"s{i}", StreamKind.NON_BLOCKING) for i in range(self._streams)]
        events = {f"e{i}": program.event(f"e{i}") for i in range(self._events)}
        touched: list[tuple[int, int, bool, int, int]] = []
        for entry in self._log:
            with program.thread(entry.thread):
                row = self._call(program, entry, streams, events, buffers)
            if row is not None:
                touched += [(row, block, False, low, high) for block, low, high in entry.reads]
                touched += [(row, block, True, low, high) for block, low, high in entry.writes]
        if touched:
            program.access(*zip(*touched, strict=True))
        return program

    def _call(self, program: Program, entry: Entry, streams: list[Any], events: dict[str, Any],
              buffers: list[Buffer]) -> int | None:  # fmt: skip
        what = entry.what
        if what in ("h2d", "d2h"):
            copy_of = getattr(streams[entry.stream], what)
            return copy_of(entry.duration * ns, max(entry.bytes, 0), name=entry.name)
        if what == "kernel":
            return streams[entry.stream].kernel(entry.duration * ns, name=entry.name)
        if what == "record":
            streams[entry.stream].record(events[entry.name])
        elif what == "sync":
            events[entry.name].sync()
        elif what in ("send", "receive"):
            getattr(program, what)(entry.name)
        else:  # what a host thread reads and writes has a call each
            for places, touch in ((entry.reads, program.read), (entry.writes, program.write)):
                for block, low, high in places:
                    touch(_part(buffers[block], low, high), label=f"{touch.__name__} by {entry.name} in {entry.thread}")
        return None

    def keep(self, array: HostArray, kind: MemoryKind) -> int:
        """Know a block of memory from now on, the whole that an array lies in; give its number."""
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        low, high = _extent(root)
        self._blocks.append((low, high - low, f"{kind.name.lower()}{len(self._blocks)}", kind, root))
        return len(self._blocks) - 1

    def kind_of(self, array: HostArray) -> MemoryKind:
        """Give the kind of memory that an array lies in; UNKNOWN where it is in no known block."""
        block = self.find(array)
        return MemoryKind.UNKNOWN if block is None else self._blocks[block][3]

    def find(self, array: HostArray) -> int | None:
        """Give the number of the block that an array lies in."""
        low, high = _extent(array)
        known = self._known.get((low, high))
        if known is None:
            within = (
                row for row, (start, size, *_) in enumerate(self._blocks) if start <= low and high <= start + size
            )
            known = next(within, None)
            if known is not None:  # for good: blocks are kept
                self._known[low, high] = known
        return known


def _part(buffer: Buffer, low: int, high: int) -> Part:
    return buffer[low:high]


def _extent(array: HostArray) -> tuple[int, int]:
    if array.flags.c_contiguous:
        low = address(array)
        return low, low + array.nbytes
    from numpy.lib.array_utils import byte_bounds

    return byte_bounds(array)
