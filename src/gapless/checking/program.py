"""From the timeline of a recording to a program for the race check: who waits for whom, and who touches what.

Every record of an event is an event of its own here, so that a wait means the record that it meant (R5.2). Host threads
tell each other things that no recording sees; so what one thread's call has returned counts as known to every call that
any thread makes later. All calls of a process are one thread therefore, in order of time: calls that put work into
streams where they begin, calls that wait where they return.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gapless.checking.arguments import read_only
from gapless.checking.memory import Memory
from gapless.model.happens_before import Happened
from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.model.program import Program
from gapless.model.things import BufferInfo, EventInfo, StreamInfo
from gapless.timeline.frames import user_place
from gapless.timeline.timeline import MarkKind, Table, Timeline, TouchKind, missing

_ALLOCATIONS = (CallKind.MALLOC, CallKind.MALLOC_ASYNC, CallKind.HOST_MALLOC)
_FREES = (CallKind.FREE, CallKind.FREE_ASYNC, CallKind.HOST_FREE)
_IN_STREAM = {CallKind.MALLOC_ASYNC: OpKind.MALLOC, CallKind.FREE_ASYNC: OpKind.FREE}
_CALL_OF = {
    OpKind.KERNEL: CallKind.LAUNCH, OpKind.MEMSET: CallKind.MEMSET_ASYNC, OpKind.HOST_FUNCTION: CallKind.HOST_FUNCTION,
}  # fmt: skip
_COPY_CALLS = (CallKind.COPY_SYNC, CallKind.COPY_ASYNC, CallKind.MEMSET_SYNC, CallKind.MEMSET_ASYNC)
MOVES = (OpKind.H2D, OpKind.D2H, OpKind.D2D, OpKind.P2P, OpKind.H2H, OpKind.MEMSET)
_SUCCESS = (0, -1)  # returned, or not known
_SKEW = 10_000  # ns by which the device's clock may be ahead of the host's: what seems to end then may be over already
# Calls that let a stream wait for what no event stands for: a value in memory, a semaphore of another API.
_BLIND_WAITS = re.compile(r"(?:cuda|cu)(?:StreamWaitValue|StreamBatchMemOp|WaitExternalSemaphores)")
# Calls that end all there is on a device, its work included.
_ENDS = re.compile(r"(?:cuda|cu)(?:DeviceReset|CtxDestroy|DevicePrimaryCtxReset)")
# With these, an event may have been recorded where the recording does not see it: in another process, by a graph.
_UNSEEN_RECORDS = re.compile(r"(?:cuda|cu)(?:IpcOpenEventHandle|GraphLaunch)")
# With these, memory that was freed may be there again without an allocation that the recording sees.
_UNSEEN_MEMORY = re.compile(r"(?:cuda|cu)(?:MemMap|IpcOpenMemHandle|MemPoolImport|GraphLaunch)")


@dataclass(slots=True)
class Watched:
    """A process's program, and where each of its rows comes from."""

    program: Program
    happened: Happened
    memory: Memory
    buffers: list[int] = field(default_factory=list[int])  # row of extents for each buffer
    calls: list[int] = field(default_factory=list[int])  # row of the timeline's calls for each row, -1 none
    ops: list[int] = field(default_factory=list[int])  # row of the timeline's operations, -1 none
    blind_graphs: int = 0
    blind_waits: int = 0

    def with_touches(self, *, sure_only: bool) -> Program:
        """Give the program with what its rows touch: all of it, or what is sure alone."""
        program = self.program.take(np.arange(len(self.program)))
        buffer_of = {extent: buffer for buffer, extent in enumerate(self.buffers)}
        told = [touch for touch in self.memory.touches if touch.sure or not sure_only]
        if told:
            base = [self.memory.extents[touch.extent].address for touch in told]
            size = [self.memory.extents[touch.extent].bytes for touch in told]
            low = [touch.address - start for touch, start in zip(told, base, strict=True)]
            program.access(
                [touch.row for touch in told], [buffer_of[touch.extent] for touch in told],
                [touch.write for touch in told], low,
                [min(at + touch.bytes, most) for touch, at, most in zip(told, low, size, strict=True)],
            )  # fmt: skip
        return program


def processes(timeline: Timeline) -> list[int]:
    """Give the numbers of the processes that made calls, in the order of their first."""
    return list(dict.fromkeys(timeline.threads[row].pid for row in timeline.calls.thread.tolist()))


def watched(timeline: Timeline, pid: int) -> Watched:
    """Make the program of one process."""
    return _Builder(timeline, pid).build()


@dataclass(slots=True)
class _Item:
    """Something that a call does at a moment."""

    time: int
    call: int
    kind: int  # CallKind
    op: int = -1  # OpKind
    row: int = -1  # of the timeline's operations
    stream: int = -1
    device: int = 0  # of what waits for all of a device
    event: int = 0  # a number of the record that it makes or waits for: its correlation, or a negative one; 0 none
    touch: int = -1  # of the timeline's touches: what it allocates or frees


class _Builder:
    def __init__(self, timeline: Timeline, pid: int) -> None:
        self.timeline = timeline
        self.calls = timeline.calls
        self.ops = timeline.ops
        self._call, self._op, self._mark, self._touch = (  # the same by row
            _Lists(table) for table in (timeline.calls, timeline.ops, timeline.marks, timeline.touches)
        )
        self._mine = np.array([thread.pid == pid for thread in timeline.threads], np.bool_)[self.calls.thread]
        self._of_call: dict[int, list[int]] = {}
        for row, call in enumerate(self.ops.call.tolist()):
            if call >= 0:
                self._of_call.setdefault(call, []).append(row)
        self._marks: dict[int, list[int]] = {}
        for row, call in enumerate(timeline.marks.call.tolist()):
            if call >= 0:
                self._marks.setdefault(call, []).append(row)
        self._touches: dict[int, list[int]] = {}
        for row, call in enumerate(timeline.touches.call.tolist()):
            self._touches.setdefault(call, []).append(row)
        threads = np.unique(self.calls.thread[self._mine])
        self._begins = {
            thread: np.sort(self.calls.start[self._mine & (self.calls.thread != thread)])
            for thread in threads.tolist() if len(threads) > 1
        }  # fmt: skip
        self.blind_graphs = self.blind_waits = 0
        self._used = np.unique(
            self.ops.stream[self.ops.call >= 0][self._mine[self.ops.call[self.ops.call >= 0]]]
        ).tolist()
        self._made_events = -(1 << 50)  # numbers of events that the program did not make
        self._apis = {name: timeline.name_of(name) for name in np.unique(self.calls.name[self._mine]).tolist()}
        self._recorded = self._first_records()
        self._pools_told = not any(_UNSEEN_MEMORY.match(api) for api in self._apis.values())

    def build(self) -> Watched:
        """Collect what the calls do, put it in order of time, and make the program."""
        items = [item for call in np.flatnonzero(self._mine).tolist() for item in self._items(call)]
        items += [*self._told_by_queries(items), *self._told_by_functions(items)]
        items.sort(key=lambda item: item.time)
        return self._program(items)

    def _first_records(self) -> dict[int, int] | None:
        """Give when each event was first recorded; None where one may have been recorded of which nothing is told."""
        timeline, marks = self.timeline, self.timeline.marks
        refused = any(u.what == "kind-refused" and re.search(r"\bkind 3[68]\b", u.text) for u in timeline.unknown)
        late = timeline.info.get("how") != "injected" or timeline.info.get("begins", "start") != "start"
        unseen = any(_UNSEEN_RECORDS.match(api) for api in self._apis.values())
        rows = np.flatnonzero((marks.kind == MarkKind.RECORD) & (marks.call >= 0))
        events, begins = marks.event[rows].tolist(), self.calls.start[marks.call[rows]].tolist()
        if late or refused or unseen or missing(timeline) or -1 in events:
            return None
        return dict(sorted(zip(events, begins, strict=True), reverse=True))

    # --------------------------------------------------------------------------------------------- what a call does

    def _items(self, call: int) -> Iterator[_Item]:
        kind, begin, end = (column[call] for column in (self._call.kind, self._call.start, self._call.end))
        if self._call.result[call] not in _SUCCESS:
            return
        if call in self._of_call:
            yield from self._work(call, kind, begin, end)
        elif kind in _ALLOCATIONS or kind in _FREES:
            # Another thread's free may lie within the call that hands the memory out again: it began before this ends.
            yield from self._allocation(call, kind, end if kind in _ALLOCATIONS else begin)
        elif kind == CallKind.SYNC_DEVICE or _ENDS.match(self._apis[self._call.name[call]]):
            yield from (_Item(end, call, CallKind.SYNC_DEVICE, device=device) for device in self._devices(call))
        elif _BLIND_WAITS.match(self._apis[self._call.name[call]]):
            yield from self._for_all(MarkKind.WAIT, call, -1, begin, end)
        else:
            yield from self._about_events(call, kind, begin, end)

    def _devices(self, call: int) -> Sequence[int]:
        """Give the device whose work a call waits for; where nothing tells, all: that hides races and invents none."""
        told = {
            self._mark.device[row] for row in self._marks.get(call, ()) if self._mark.kind[row] == MarkKind.SYNC_DEVICE
        }
        return sorted(told) if told and min(told) >= 0 else range(len(self.timeline.devices))

    def _work(self, call: int, kind: int, begin: int, end: int) -> Iterator[_Item]:
        rows = self._of_call[call]
        last = max(rows, key=lambda row: self._op.end[row])  # of several, such as a copy in pieces, the last
        op, stream = self._op.kind[last], self._op.stream[last]
        if kind == CallKind.GRAPH_LAUNCH or op == OpKind.GRAPH or self._op.graph[last] >= 0:
            self.blind_graphs += 1
            yield _Item(begin, call, CallKind.LAUNCH, OpKind.KERNEL, last, stream)
            return
        issued = kind if kind in _COPY_CALLS else _CALL_OF.get(OpKind(op), CallKind.COPY_ASYNC)
        waits = issued in (CallKind.COPY_SYNC, CallKind.MEMSET_SYNC) and self._others_call_between(call, begin, end)
        if waits and self._completes(op, last):  # its two halves, so that others' calls in between know nothing of it
            issued = CallKind.MEMSET_ASYNC if op == OpKind.MEMSET else CallKind.COPY_ASYNC
            yield _Item(begin, call, issued, op, last, stream)
            yield _Item(begin, call, CallKind.RECORD, OpKind.RECORD, -1, stream, event=-1 - call)
            yield _Item(end, call, CallKind.SYNC_EVENT, event=-1 - call)
        else:
            beside = self._beside(rows, stream, issued, op)
            for other in beside:
                yield from self._joined(begin, call, other, stream)
            yield _Item(begin, call, issued, op, last, stream)
            for other in beside:
                yield from self._joined(begin, call, stream, other)

    def _beside(self, rows: Sequence[int], stream: int, issued: int, op: int) -> Sequence[int]:
        """Give the other streams that a copy may be in order with.

        A copy that two devices share has a leg on each, and nothing tells in whose stream it was issued; the
        synchronous form is in order with the streams of both devices that a default stream fences (R3.7). Taking it to
        be in order with all of them can hide a race, and never invents one.
        """
        streams = {self._op.stream[row] for row in rows}
        if op == OpKind.P2P and issued == CallKind.COPY_SYNC:
            known = self.timeline.streams
            streams |= {at for at, other in enumerate(known) if other.kind is not StreamKind.NON_BLOCKING}
        return sorted(streams - {stream})

    def _joined(self, time: int, call: int, stream: int, waiting: int) -> Iterator[_Item]:
        """Let a stream wait for all that another has been given."""
        self._made_events -= 1
        yield _Item(time, call, CallKind.RECORD, OpKind.RECORD, -1, stream, event=self._made_events)
        yield _Item(time, call, CallKind.WAIT_EVENT, OpKind.WAIT, -1, waiting, event=self._made_events)

    def _others_call_between(self, call: int, begin: int, end: int) -> bool:
        begins = self._begins.get(self._call.thread[call])
        return begins is not None and bisect_right(begins, begin) < bisect_left(begins, end)

    def _completes(self, op: int, row: int) -> bool:
        """Tell whether the synchronous form returns only when the operation is complete (table 3.1)."""
        src, dst = self._op.src[row], self._op.dst[row]
        if op == OpKind.H2D:
            return src == MemoryKind.PINNED
        if op == OpKind.D2H:
            return dst != MemoryKind.MANAGED
        return op == OpKind.H2H or (op == OpKind.MEMSET and dst == MemoryKind.PINNED)

    def _allocation(self, call: int, kind: int, time: int) -> Iterator[_Item]:
        for row in self._touches.get(call, ()):
            touch = self._touch.kind[row]
            stream = self._touch.stream[row]
            fits = touch == (TouchKind.ALLOCATE if kind in _ALLOCATIONS else TouchKind.FREE)
            if fits and (kind not in _IN_STREAM or stream >= 0):
                yield _Item(time, call, kind, _IN_STREAM.get(CallKind(kind), -1), stream=stream, touch=row)
                return

    def _about_events(self, call: int, kind: int, begin: int, end: int) -> Iterator[_Item]:
        marks = self._mark
        for row in self._marks.get(call, ()):
            mark, stream, record = marks.kind[row], marks.stream[row], marks.record[row]
            if mark == MarkKind.RECORD and stream >= 0 and self._call.correlation[call] > 0:
                correlation = self._call.correlation[call]
                yield _Item(begin, call, CallKind.RECORD, OpKind.RECORD, -1, stream, event=correlation)
            elif mark == MarkKind.WAIT and stream >= 0 and record > 0:
                yield _Item(begin, call, CallKind.WAIT_EVENT, OpKind.WAIT, -1, stream, event=record)
            elif mark == MarkKind.SYNC_STREAM and stream >= 0:
                yield _Item(end, call, CallKind.SYNC_STREAM, stream=stream)
            elif mark == MarkKind.SYNC_EVENT and record > 0:
                yield _Item(end, call, CallKind.SYNC_EVENT, event=record)
            elif mark in (MarkKind.WAIT, MarkKind.SYNC_STREAM, MarkKind.SYNC_EVENT) and not self._never(row):
                yield from self._for_all(mark, call, stream, begin, end)
        if call not in self._marks and kind in (CallKind.SYNC_STREAM, CallKind.SYNC_EVENT):
            yield from self._for_all(MarkKind.SYNC_STREAM, call, -1, begin, end)

    def _never(self, mark: int) -> bool:
        """Tell whether a wait means an event that was not recorded before it, and so nothing (R5.3)."""
        event, end = self._mark.event[mark], self._call.end[self._mark.call[mark]]
        return self._recorded is not None and event >= 0 and self._recorded.get(event, end) >= end

    def _for_all(self, mark: int, call: int, stream: int, begin: int, end: int) -> Iterator[_Item]:
        """Let a wait of which nothing tells what it is for wait for all. That hides races and invents none."""
        self.blind_waits += 1
        if mark != MarkKind.WAIT:
            yield from (_Item(end, call, CallKind.SYNC_STREAM, stream=other) for other in self._used)
            return
        waiting = stream if stream >= 0 else min(self._used, default=-1)
        others = [other for other in self._used if other != waiting]
        for other in others:
            yield from self._joined(begin, call, other, waiting)
        for other in others if stream < 0 else ():  # whichever it is that waits, it does so by way of that one
            yield from self._joined(begin, call, waiting, other)

    def _told_by_queries(self, items: list[_Item]) -> list[_Item]:
        """Let a successful query tell the host of all work that was over by then.

        The recording does not say which event or stream was asked for. Taking it for all that was over can hide a
        race, and never invents one.
        """
        asked = self._mine & (self.calls.kind == CallKind.QUERY) & (self.calls.result == 0)
        ends = sorted(self.calls.end[asked].tolist())
        if not ends:
            return []
        found: list[_Item] = []
        told: dict[tuple[int, int], int] = {}  # stream, number of the query: its last operation that was over
        for at, item in enumerate(items):
            if item.row >= 0:
                query = bisect_left(ends, self._op.end[item.row] - _SKEW)
                if query < len(ends):
                    told[item.stream, query] = at
        for (stream, query), at in told.items():
            found += self._known(items[at], stream, ends[query])
        return found

    def _told_by_functions(self, items: list[_Item]) -> list[_Item]:
        """Let a function of the host that a stream runs tell the host of all work that was over before it ran.

        The recording does not say when it ran, nor always in which stream. Whatever was issued before it counts as
        known to the host once it was over; that can hide a race, and never invents one.
        """
        asked = self.calls.start[self._mine & (self.calls.kind == CallKind.HOST_FUNCTION)].tolist()
        work: dict[int, list[tuple[int, int]]] = {}  # stream: begin of the call and its item
        for at, item in enumerate(items) if asked else ():
            if item.row >= 0:
                work.setdefault(item.stream, []).append((item.time, at))
        told: dict[tuple[int, int], int] = {}  # stream, its last operation before a function: the first such function
        for begin in asked:
            for stream, issued in work.items():
                before = bisect_left(issued, (begin, -1))
                if before:
                    told.setdefault((stream, issued[before - 1][1]), begin)
        return [
            item
            for (stream, at), begin in told.items()
            for item in self._known(items[at], stream, max(begin, self._op.end[items[at].row] - _SKEW))
        ]

    def _known(self, item: _Item, stream: int, time: int) -> Iterator[_Item]:
        """Let the host know at a time of an operation, and of all that its stream was given before."""
        self._made_events -= 1
        yield _Item(item.time, item.call, CallKind.RECORD, OpKind.RECORD, -1, stream, event=self._made_events)
        yield _Item(time, item.call, CallKind.SYNC_EVENT, event=self._made_events)

    # -------------------------------------------------------------------------------------------------- the program

    def _program(self, items: list[_Item]) -> Watched:
        program, memory = Program(), Memory()
        program.threads = ["host"]
        program.streams = [
            StreamInfo(self._stream_name(row), _kind(stream.kind), stream.priority or 0, stream.device)
            for row, stream in enumerate(self.timeline.streams)
        ]
        events: dict[int, int] = {}
        watch = Watched(program, Happened(), memory)
        columns: dict[str, list[int]] = {
            name: [] for name in ("call", "op", "stream", "object", "src", "dst", "device", "bytes")
        }
        names: list[str] = []
        buffers: dict[int, int] = {}  # extent: buffer
        for row, item in enumerate(items):
            thing = -1
            if item.kind in _ALLOCATIONS or item.kind in _FREES:
                thing = self._lifetime(row, item, memory, buffers)
                if thing < 0:
                    item.kind, item.op = CallKind.OTHER, -1  # frees what was not seen allocated
            elif item.event:
                thing = events.setdefault(item.event, len(events))
            if item.row >= 0:
                self._touched(row, item, memory)
            device = self.timeline.streams[item.stream].device if item.stream >= 0 else item.device
            source, target = (c[item.row] if item.row >= 0 else 0 for c in (self._op.src, self._op.dst))
            size = self._op.bytes[item.row] if item.row >= 0 else -1
            stream = item.stream if item.op >= 0 or item.kind == CallKind.SYNC_STREAM else -1
            for name, value in zip(
                columns, (item.kind, item.op, stream, thing, source, target, device, size), strict=True
            ):
                columns[name].append(value)
            names.append(self._name(item))
            watch.calls.append(item.call)
            watch.ops.append(item.row)
        memory.settle()
        program.events = [EventInfo(f"e{number}") for number in range(len(events))]
        for extent in range(len(memory.extents)):
            buffers.setdefault(extent, len(buffers))
        watch.buffers = list(buffers)
        program.buffers = [
            BufferInfo(f"memory {buffer}", memory.extents[extent].kind, memory.extents[extent].bytes)
            for buffer, extent in enumerate(watch.buffers)
        ]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        program.strings = list(numbers)
        given: dict[str, Any] = {**columns, "name": [numbers[name] for name in names]}
        given["duration"] = [0] * len(items)
        if items:
            program.extend(**given)
        blocking = self.timeline.info.get("environment.CUDA_LAUNCH_BLOCKING") == "1"
        watch.happened = Happened(launch_blocking=blocking)
        watch.blind_graphs, watch.blind_waits = self.blind_graphs, self.blind_waits
        return watch

    def _lifetime(self, row: int, item: _Item, memory: Memory, buffers: dict[int, int]) -> int:
        """Follow an allocation or a free; give the buffer, -1 for a free of what was not seen allocated."""
        touches = self._touch
        address, size = touches.address[item.touch], touches.bytes[item.touch]
        if item.kind in _ALLOCATIONS:
            kind = MemoryKind(touches.memory[item.touch])
            extent = memory.allocate(row, address, size, kind)
        else:
            extent = memory.free(address, to_pool=item.kind == CallKind.FREE_ASYNC)
        return -1 if extent < 0 else buffers.setdefault(extent, len(buffers))

    def _touched(self, row: int, item: _Item, memory: Memory) -> None:
        touches = self._touch
        constant = read_only(self.timeline.name_of(self._op.name[item.row])) if item.op == OpKind.KERNEL else ()
        for touch in self._touches.get(item.call, ()):
            kind, address = touches.kind[touch], touches.address[touch]
            if kind in (TouchKind.READ, TouchKind.WRITE) and item.op != OpKind.KERNEL:
                memory.touch(
                    row, address, touches.bytes[touch], write=kind == TouchKind.WRITE, sure=True,
                    gaps=bool(touches.gaps[touch]),
                    freed=self._pools_told and touches.memory[touch] == MemoryKind.DEVICE,
                )  # fmt: skip
            elif kind == TouchKind.ARGUMENT and item.op == OpKind.KERNEL:
                writes = touches.argument[touch] not in constant
                memory.touch(row, address, -1, write=writes, sure=False, freed=self._pools_told)

    def _stream_name(self, row: int) -> str:
        stream = self.timeline.streams[row]
        if stream.kind is StreamKind.LEGACY:
            several = len({s.device for s in self.timeline.streams}) > 1
            return f"the default stream of device {stream.device}" if several else "the default stream"
        return stream.name if stream.name and not stream.name.startswith("process ") else f"stream {stream.id}"

    def _name(self, item: _Item) -> str:
        """Name what a row does, and the line it comes from: ``cudaMemcpyAsync (train.py:12)``."""
        call = self.timeline.name_of(self._call.name[item.call])
        if item.op == OpKind.KERNEL:
            call = self.timeline.name_of(self._op.name[item.row]).partition("(")[0] or call
        file, line, function = user_place(self.timeline.name_of(self._call.stack[item.call]))
        place = f"{file.rpartition('/')[2]}:{line}" if file else function
        return f"{call} ({place})" if place else call


class _Lists:
    """The columns of a table as lists, made when they are asked for: single numbers are quick to get from them."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __getattr__(self, name: str) -> list[int]:
        found = self._table.column(name).tolist()
        setattr(self, name, found)
        return found


def _kind(kind: StreamKind) -> StreamKind:
    """Take a stream of unknown kind for a blocking one: that hides races and invents none."""
    return StreamKind.BLOCKING if kind is StreamKind.UNKNOWN else kind
