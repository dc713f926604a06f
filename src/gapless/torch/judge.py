"""The log as a Program of the model, whose race check judges it: one judge for tapes and programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.model.program import Program
from gapless.model.races import Race, RaceClass, find_races

from .advice import advise
from .causes import Cause
from .findings import Finding, Side
from .log import HOST, Log, Memory, Op, Order
from .parts import Ranges, cells
from .stacks import places
from .streams import another

_COPIES = (OpKind.H2D, OpKind.D2H, OpKind.D2D)


def judge(log: Log) -> list[Finding]:
    """Find what no documented rule puts in order, worst first, alike ones as one."""
    told = _Told(log)
    races = find_races(told.program)
    findings: dict[tuple[object, ...], Finding] = {}
    for race in races:
        finding = told.finding(race)
        findings.setdefault(finding.key, finding)
    if races.more:
        log.note("more than 10,000 pairs of accesses race; the rest is not listed")
    return sorted(_without_echoes(list(findings.values())), key=lambda finding: not finding.error)


def _without_echoes(findings: list[Finding]) -> list[Finding]:
    """Leave out a block found unready by the same two accesses, and mended by the same line, as a missing wait.

    In a loop the access meets what the one of the round before left in the block, as it meets that of its own round.
    """
    waits = {(f.error, f.first, f.second, f.advice) for f in findings if f.cause is Cause.MISSING_WAIT}
    return [
        f for f in findings if f.cause is not Cause.UNREADY_BLOCK or (f.error, f.first, f.second, f.advice) not in waits
    ]


@dataclass(slots=True)
class _Row:
    """One row of the Program: an op, or what the host does to one memory."""

    op: Op
    accesses: list[tuple[int, bool, Ranges]] = field(default_factory=list)  # buffer, write, ranges


class _Told:
    """The Program, and what its rows and buffers stand for."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.memories = log.memories()
        self.program = program = Program()
        self._rows: dict[tuple[int, int, bool], _Row] = {}
        for memory in self.memories:
            self._buffer(memory)
        self.streams: list[int] = []
        for n, stream in enumerate(log.streams):
            if stream.kind == StreamKind.LEGACY:
                self.streams.append(program.legacy(stream.device).row)
            else:
                self.streams.append(program.stream(f"s{n}", stream.kind, device=stream.device).row)
        for n in range(log.events):
            program.event(f"e{n}")
        self.of_row: dict[int, _Row] = {}
        self._write(log.orders)

    # --------------------------------------------------------------------------------------------- into the Program

    def _buffer(self, memory: Memory) -> None:
        buffer = len(self.program.buffers)
        accesses = list(memory.accesses)
        ranges, size, coarse = cells([None, *(access.view for access in accesses)], memory.size)
        if coarse:
            self.log.note("views with more than 262,144 separate pieces: what lies between the pieces counts as used, "
                          "so an overlap may be none", memory.said)  # fmt: skip
        self.program.buffer(f"m{buffer}", size, memory.kind)
        for access in accesses:
            self._access(access.op, buffer, access.write, ranges[access.view])
        for op in (memory.last_tenant, memory.next_tenant):
            if op is not None:
                self._access(op, buffer, True, ranges[None])

    def _access(self, op: Op, buffer: int, write: bool, ranges: Ranges) -> None:
        key = (op.number, buffer, write) if op.stream == HOST else (op.number, -1, False)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _Row(op)
        row.accesses.append((buffer, write, ranges))

    def _write(self, orders: Iterable[tuple[int, Order, int, int]]) -> None:
        things: list[tuple[int, _Row | tuple[int, Order, int, int]]] = [
            (row.op.number, row) for row in self._rows.values()
        ]
        things += [(order[0], order) for order in orders]
        things.sort(key=lambda thing: thing[0])
        columns: dict[str, list[int]] = {
            name: [] for name in ("call", "op", "stream", "object", "bytes", "src", "dst", "device")
        }
        touched: dict[str, list[int]] = {name: [] for name in ("row", "buffer", "write", "low", "high")}
        for _, thing in things:
            at = len(columns["call"])
            if isinstance(thing, _Row):
                self.of_row[at] = thing
                values = self._operation(thing)
                for buffer, write, ranges in thing.accesses:
                    for low, high in ranges:
                        for name, value in zip(touched, (at, buffer, write, low, high), strict=True):
                            touched[name].append(int(value))
            else:
                values = self._order(thing)
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)
        self.program.extend(**columns)
        if touched["row"]:
            self.program.access(**touched)

    def _operation(self, row: _Row) -> tuple[int, ...]:
        op = row.op
        if op.stream == HOST:
            buffer, write, _ = row.accesses[0]
            return CallKind.HOST_WRITE if write else CallKind.HOST_READ, -1, -1, buffer, -1, 0, 0, 0
        stream, device = self.streams[op.stream], self.log.streams[op.stream].device
        if op.kind not in _COPIES:
            return CallKind.LAUNCH, OpKind.KERNEL, stream, -1, -1, 0, 0, device
        src = op.host if op.kind == OpKind.H2D else MemoryKind.DEVICE
        dst = op.host if op.kind == OpKind.D2H else MemoryKind.DEVICE
        return CallKind.COPY_ASYNC, op.kind, stream, -1, 1, src, dst, device

    def _order(self, order: tuple[int, Order, int, int]) -> tuple[int, ...]:
        _, what, stream, event = order
        row = self.streams[stream] if stream >= 0 else -1
        device = self.log.streams[stream].device if stream >= 0 else 0
        call, op, on = {
            Order.RECORD: (CallKind.RECORD, OpKind.RECORD, row),
            Order.WAIT: (CallKind.WAIT_EVENT, OpKind.WAIT, row),
            Order.SYNC_EVENT: (CallKind.SYNC_EVENT, -1, -1),
            Order.SYNC_STREAM: (CallKind.SYNC_STREAM, -1, row),
            Order.SYNC_DEVICE: (CallKind.SYNC_DEVICE, -1, -1),
            Order.FENCE: (CallKind.LAUNCH, OpKind.KERNEL, row),
        }[what]
        return call, op, on, event, -1, 0, 0, device

    # ------------------------------------------------------------------------------------------- back from its races

    def finding(self, race: Race) -> Finding:
        """Say what a race of the Program is in the program that ran."""
        memory = self.memories[int(race.buffer[1:])]
        first, second = self.of_row[race.first.row].op, self.of_row[race.second.row].op
        names = ["host" if op.stream == HOST else self.log.streams[op.stream].name for op in (first, second)]
        if names[0] == names[1] and first.stream != second.stream:
            names[1] = another(names[1])
        sides = [
            Side(op.name, name, access.does, places(op.stack))
            for op, name, access in zip((first, second), names, (race.first, race.second), strict=True)
        ]
        cause = _cause(memory, first, second, filled=race.first.does != "reads")
        born = places(memory.born)
        return Finding(
            cause=cause,
            error=race.kind <= RaceClass.UNALLOCATED,
            first=sides[0],
            second=sides[1],
            buffer=memory.said,
            allocated=born if memory.allocation_seen else (),
            first_used=() if memory.allocation_seen else born,
            owner=self.log.streams[memory.stream].name if memory.stream >= 0 else "",
            released=places(memory.released) if cause in (Cause.REUSED_BLOCK, Cause.SOURCE_FREED) else (),
            advice=advise(cause, first, second, memory, self.log),
        )


def _cause(memory: Memory, first: Op, second: Op, *, filled: bool) -> Cause:
    """Say what is missing. *filled*: the first writes; of memory of the host, that is a copy to it."""
    if memory.next_tenant in (first, second) and memory.next_tenant is not None:
        return Cause.REUSED_BLOCK
    if memory.last_tenant is first:
        return Cause.UNREADY_BLOCK
    if first.stream != HOST and second.stream != HOST:
        return Cause.MISSING_WAIT
    if filled:
        return Cause.READ_TOO_EARLY
    return Cause.SOURCE_FREED if second.name == "release" else Cause.SOURCE_OVERWRITTEN
