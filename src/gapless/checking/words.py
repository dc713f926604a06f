"""Findings in words: what both accesses are and where, why nothing orders them, and which lines to add."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gapless.checking.arguments import parameters
from gapless.checking.memory import Extent
from gapless.checking.program import Watched
from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.model.program import Program
from gapless.model.races import Access, Race
from gapless.timeline.frames import user_place
from gapless.timeline.timeline import Timeline, TouchKind

_OPS = {
    OpKind.KERNEL: "kernel", OpKind.H2D: "H2D copy", OpKind.D2H: "D2H copy", OpKind.D2D: "copy inside the device",
    OpKind.P2P: "peer copy", OpKind.H2H: "copy inside host memory", OpKind.MEMSET: "memset",
}  # fmt: skip
_MEMORIES = {
    MemoryKind.PAGEABLE: "pageable host memory", MemoryKind.PINNED: "pinned host memory",
    MemoryKind.DEVICE: "device memory", MemoryKind.ARRAY: "an array", MemoryKind.MANAGED: "managed memory",
    MemoryKind.UNKNOWN: "memory",
}  # fmt: skip
# The statements of a tape, in CUDA's words.
_STATEMENTS = (
    (re.compile(r"record (\S+) on (.+)"), r"cudaEventRecord(\1, \2)"),
    (re.compile(r"wait (\S+) on (.+)"), r"cudaStreamWaitEvent(\2, \1)"),
    (re.compile(r"sync event (\S+)"), r"cudaEventSynchronize(\1)"),
    (re.compile(r"sync (.+)"), r"cudaStreamSynchronize(\1)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two accesses."""

    what: str  # "kernel scale", "H2D copy of 4 MiB", "cudaFree"
    call: str  # the API that issued it
    stream: str  # empty for what is in no stream
    does: str  # "reads", "writes", "may read", "may write", "frees", "allocates"
    file: str
    line: int
    function: str
    time_ns: int  # begin of the call, on the timeline's clock
    argument: str = ""  # of a kernel: which argument points there

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two sides alike."""
        return self.what, self.call, self.stream, self.does, self.file, self.line, self.function

    @property
    def place(self) -> str:
        """Where the call stands; empty where nothing tells."""
        return f"{self.file}:{self.line}" if self.file else self.function

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A call to add, directly before or after one that is there."""

    add: str
    where: str  # "before" or "after"
    call: str
    file: str
    line: int

    def __str__(self) -> str:
        place = f" ({self.file.rpartition('/')[2]}:{self.line})" if self.file else ""
        return f"{self.add} {self.where} {self.call}{place}"

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain values."""
        return asdict(self)


class Words:
    """Says what the races of one process's program are."""

    def __init__(self, timeline: Timeline, seen: Watched, program: Program) -> None:
        self._timeline = timeline
        self._seen = seen
        self._program = program
        self._rows = rows = program.rows
        records = np.flatnonzero(rows.op == OpKind.RECORD).tolist()
        self._records = {int(rows.object[row]): row for row in records}
        self._waits: dict[int, list[int]] = {}  # stream: its waits in order
        for row in np.flatnonzero(rows.op == OpKind.WAIT).tolist():
            self._waits.setdefault(int(rows.stream[row]), []).append(row)

    def side(self, race: Race, access: Access) -> Side:
        """Say what one access of a race is."""
        timeline, row = self._timeline, access.row
        call, op = self._seen.calls[row], int(self._rows.op[row])
        api = timeline.name_of(int(timeline.calls.name[call]))
        file, line, function = user_place(timeline.name_of(int(timeline.calls.stack[call])))
        name = timeline.name_of(int(timeline.ops.name[self._seen.ops[row]])) if op == OpKind.KERNEL else ""
        size = int(self._rows.bytes[row])
        what = api
        if op == OpKind.KERNEL:
            what = f"kernel {name.partition('(')[0] or api}"
        elif op in _OPS:
            what = _OPS[OpKind(op)] + (f" of {_size(size)}" if size >= 0 else "")
        return Side(
            what=what, call=api, does=f"may {_plain(access.does)}" if op == OpKind.KERNEL else access.does,
            stream=self._program.streams[self._rows.stream[row]].name if op >= 0 else "",
            file=file, line=line, function=function, time_ns=int(timeline.calls.start[call]),
            argument=self._argument(race, call, name) if op == OpKind.KERNEL else "",
        )  # fmt: skip

    def memory(self, race: Race) -> str:
        """Say which memory a race is about: its kind, its size, where it was allocated."""
        extent = self._extent(race)
        words = f"{_size(extent.bytes)} of {_MEMORIES[self._kind_of(race, extent.kind)]} at {extent.address:#x}"
        if extent.allocated < 0:
            return f"{words}, whose allocation was not recorded"
        timeline, call = self._timeline, self._seen.calls[extent.allocated]
        file, line, _ = user_place(timeline.name_of(int(timeline.calls.stack[call])))
        api = timeline.name_of(int(timeline.calls.name[call]))
        return f"{words}, from {api}" + (f" at {file}:{line}" if file else "")

    def why(self, race: Race, first: Side, second: Side) -> str:
        """Say in a sentence why the documentation does not put one access of a race before the other."""
        streams, x, y = self._rows.stream, race.first.row, race.second.row
        if race.misplaced:
            return f"{first.what} comes first, whatever the timing"
        if not second.stream:
            before = f"the host does not wait for {first.stream or first.call} before {second.call}"
            hidden = ": today's drivers wait in it, the documentation does not promise it"
            return before + (hidden if self.waits_in_practice(race) else "")
        if not first.stream:
            return f"nothing puts {first.call} before {second.stream}"
        if streams[x] == streams[y]:
            return f"the copy may still use its host memory when {first.call} has returned"
        left, right = (self._program.streams[streams[row]] for row in (x, y))
        if self._recorded_too_early(x, y):
            return f"{right.name} waits for an event of {left.name}, but it was recorded before the {first.what}"
        if {left.kind, right.kind} == {StreamKind.LEGACY, StreamKind.NON_BLOCKING}:
            plain = right.name if left.kind is StreamKind.LEGACY else left.name
            return f"{plain} is non-blocking: the default stream does not fence it, and no event orders the two"
        return f"{left.name} and {right.name} run side by side, and no event leads from the one to the other"

    def waits_in_practice(self, race: Race) -> bool:
        """Tell whether the second is a free in which today's drivers wait for all work of the device (section 4)."""
        return int(self._rows.call[race.second.row]) in (CallKind.FREE, CallKind.HOST_FREE)

    def steps(self, race: Race) -> tuple[Step, ...]:
        """Say which calls to add and where, in CUDA's words."""
        timeline = self._timeline
        found: list[Step] = []
        for insertion in race.repair.add:
            call, row = self._seen.calls[insertion.row], insertion.row
            file, line, _ = user_place(timeline.name_of(int(timeline.calls.stack[call])))
            name = timeline.name_of(int(timeline.calls.name[call]))
            if self._rows.op[row] == OpKind.KERNEL:
                name += f" of {timeline.name_of(int(timeline.ops.name[self._seen.ops[row]])).partition('(')[0]}"
            where = "after" if insertion.after else "before"
            found.append(Step(add=_in_cuda(insertion.statement), where=where, call=name, file=file, line=line))
        return tuple(found)

    def _extent(self, race: Race) -> Extent:
        buffer = int(race.buffer.rpartition(" ")[2])
        return self._seen.memory.extents[self._seen.buffers[buffer]]

    def _kind_of(self, race: Race, known: MemoryKind) -> MemoryKind:
        """Give the kind of memory: of the allocation, else what a copy says of its side."""
        for access in (race.first, race.second):
            op = self._rows.op[access.row]
            if (
                known == MemoryKind.UNKNOWN
                and op in _OPS
                and op != OpKind.KERNEL
                and access.does in ("reads", "writes")
            ):
                column = self._rows.dst if access.does == "writes" else self._rows.src
                known = MemoryKind(int(column[access.row]))
        return known

    def _argument(self, race: Race, call: int, name: str) -> str:
        """Say which argument of a kernel points into the memory of a race: "argument 0 (float*)"."""
        extent, touches = self._extent(race), self._timeline.touches
        first, end = np.searchsorted(touches.call, (call, call + 1)).tolist()
        types = parameters(name)
        found: list[str] = []
        for touch in range(first, end):
            at, inside = int(touches.argument[touch]), int(touches.address[touch]) - extent.address
            if touches.kind[touch] == TouchKind.ARGUMENT and 0 <= inside < extent.bytes:
                found.append(f"{at} ({types[at]})" if 0 <= at < len(types) else f"{at}")
        return f"argument{'s' * (len(found) > 1)} {', '.join(found)}" if found else ""

    def _recorded_too_early(self, x: int, y: int) -> bool:
        """Tell whether the last wait of y's stream for an event of x's stream means one that was recorded before x."""
        rows = self._rows
        waits = self._waits.get(int(rows.stream[y]), [])
        for wait in waits[: bisect_left(waits, y)][::-1]:
            record = self._records.get(int(rows.object[wait]), -1)
            if record >= 0 and rows.stream[record] == rows.stream[x]:
                return record < x
        return False


def _in_cuda(statement: str) -> str:
    for pattern, words in _STATEMENTS:
        if match := pattern.fullmatch(statement):
            return match.expand(words)
    return statement


def _plain(does: str) -> str:
    return {"reads": "read", "writes": "write", "updates": "write", "frees": "free"}.get(does, does)


def _size(count: int) -> str:
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= length:
            return f"{count / length:.3g} {unit}"
    return f"{count} bytes"
