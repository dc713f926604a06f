"""The walk through a program in issue order that finds what is known to be over when something starts (section 9).

Only documented rules make an edge (grade D); each line that makes one names its rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from .clocks import NOTHING, Clock, Line, State, Step
from .columns import Rows
from .happened import Happened, issue_order
from .kinds import CALL, FLAG, MEMORY, OP, StreamKind
from .memory_pool import reuses
from .ordering import fences, is_blocking, is_empty_action
from .program import Program, batches


@dataclass(slots=True, eq=False)
class StreamState:
    """A stream in the walk: its line, who holds it and whom it holds."""

    line: Line
    kind: StreamKind
    device: int
    legacy: bool
    held_by: list[StreamState] = field(default_factory=list)  # the legacy streams that R2.1 makes it wait for
    holds: State = NOTHING  # of the legacy stream: what the blocking ones wait for
    pending: dict[int, StreamState] = field(default_factory=dict)  # of the legacy stream: used since it waited for them
    # R6.14: kernels that a programmatic dependent has overtaken. Who waits for the whole stream waits for them too.
    overtaken: list[State] = field(default_factory=list)
    kernel: State | None = None  # what the last operation waited for, if it was a kernel
    strands: list[Line] = field(default_factory=list)  # of batches: one a copy, those of the next batch go on there


@dataclass(frozen=True, slots=True)
class _Node:
    row: int
    strand: tuple[int, ...]  # the captured stream; with a number in front for one inside a graph inside a graph
    after: tuple[int, ...]  # the nodes it waits for


@dataclass(slots=True, eq=False)
class _Capture:
    nodes: list[_Node] = field(default_factory=list)
    tips: dict[int, tuple[int, ...]] = field(default_factory=dict)  # stream -> the nodes its next one waits for
    nested: int = 0
    open: bool = True


@dataclass(slots=True, eq=False)
class _Exec:
    """An executable graph: instantiated once more, it is another one (R7.1)."""

    nodes: Sequence[_Node]
    lines: dict[tuple[int, ...], Line] = field(default_factory=dict)
    done: State = NOTHING


class Walk:
    """Goes through a program in issue order."""

    def __init__(self, program: Program, happened: Happened) -> None:
        rows = program.rows
        self._calls: list[int] = rows.call.tolist()
        self._ops: list[int] = rows.op.tolist()
        self._threads: list[int] = rows.thread.tolist()
        self._on: list[int] = rows.stream.tolist()
        self._objects: list[int] = rows.object.tolist()
        self._seconds: list[int] = rows.second.tolist()
        self._bytes: list[int] = rows.bytes.tolist()
        self._device: list[int] = rows.device.tolist()
        self._external: list[bool] = ((rows.flags & int(FLAG.EXTERNAL)) != 0).tolist()
        self._concerns_host = _concerns_host(rows)
        self._completes = _completes(rows, happened)
        self._overtakes = _overtakes(program)
        self._happened = happened
        self._errors = happened.errors
        self._issued = issue_order(program) if happened.issued is None else happened.issued
        self._count = 0
        self._hosts = [self._line() for _ in program.threads]
        self._streams = [
            StreamState(self._line(), info.kind, info.device, info.kind is StreamKind.LEGACY)
            for info in program.streams
        ]
        if OP.P2P in self._ops:  # R3.7: an operation of the other device's legacy stream too, used or not
            without = {s.device for s in self._streams} - {s.device for s in self._streams if s.legacy}
            self._streams += [StreamState(self._line(), StreamKind.LEGACY, device, legacy=True) for device in without]
        legacies = [stream for stream in self._streams if stream.legacy]
        for stream in self._streams:
            if not stream.legacy and fences(StreamKind.LEGACY, stream.kind):
                stream.held_by = [legacy for legacy in legacies if legacy.device == stream.device]
        self._events: list[State | None] = [None] * len(program.events)
        self._sent: list[deque[State]] = [deque() for _ in program.messages]
        self._receivers: list[deque[Line]] = [deque() for _ in program.messages]
        self._runs: dict[int, int] = {}  # row of an operation of a graph -> how often it ran
        self._graphs: list[_Exec | None] = [None] * len(program.graphs)
        self._capturing: dict[int, _Capture] = {}
        self._captured_events: dict[int, tuple[_Capture, tuple[int, ...]]] = {}
        self._about: dict[int, int] = {}  # by row: the record that a wait was about, where it may be put off
        self._snapshot_of: dict[int, State] = {}  # of records
        self._snapshots: dict[int, Line] = {}  # what the host knew at calls that are put off
        self._written: dict[int, State] = {}  # by row of a write or store of a value: who sees it knows so much (R5.9)
        self._batches = batches(program)
        self._batched = {copy for copies in self._batches.values() for copy in copies}
        self._freed: dict[int, tuple[int, State]] = {}  # buffer -> its stream-ordered free
        self._reused: dict[int, int] = reuses(program)

    def _line(self) -> Line:
        self._count += 1
        return Line(self._count - 1)

    def steps(self) -> Iterator[Step]:
        """Give every operation and call that runs."""
        for row in self._issued:
            op = self._ops[row]
            if op < 0:
                yield self._call(row)
            elif row in self._batched:
                continue  # it runs with its batch
            elif not self._failed(row):
                if op == OP.BATCH:
                    yield from self._batch(row)
                elif self._capturing or op == OP.GRAPH or op == OP.WAIT:
                    yield from self._put(row, op)
                else:
                    yield self._operation(row)

    def _failed(self, row: int) -> bool:
        return self._errors is not None and bool(self._errors[row])

    # ------------------------------------------------------------------------------ calls that put nothing in a stream

    def _call(self, row: int) -> Step:
        host, call = self._hosts[self._threads[row]], self._calls[row]
        host.tick()
        step = Step(row, 0, row, host.index, host.count, host.clock, host.index, host.count, host.clock, stamped=True)
        if call == CALL.STORE:
            self._written[row] = host.state()
        elif call == CALL.SEND:
            self._sent[self._objects[row]].append(host.state())
            self._deliver(self._objects[row])
        elif call == CALL.RECEIVE:
            self._receivers[self._objects[row]].append(host)
            self._deliver(self._objects[row])
        elif not self._failed(row):
            self._made(row, call, host)
        return step

    def _made(self, row: int, call: int, host: Line) -> None:
        if call == CALL.QUERY and self._happened.errors is not None:
            covered = self._of_event(row) if self._on[row] < 0 else self._of_stream(self._on[row])
            self._tell(host, covered)  # HB7: it returned success
        elif call == CALL.SYNC_STREAM:
            self._tell(host, self._of_stream(self._on[row]))  # HB6
        elif call == CALL.SYNC_EVENT:
            self._tell(host, self._of_event(row))  # HB6
        elif call == CALL.SYNC_DEVICE:  # R2.6
            here = [s for s in range(len(self._streams)) if self._streams[s].device == self._device[row]]
            self._tell(host, [state for s in here for state in self._whole(self._streams[s])])
        elif call == CALL.CAPTURE:
            capture = _Capture()
            self._capturing[self._on[row]] = capture
            capture.tips[self._on[row]] = ()  # R7.5: what stands in the stream already is no dependency
        elif call == CALL.CAPTURE_END:
            self._end_capture(row)
        elif call == CALL.GRAPH_BUILD:
            built = self._graphs[self._seconds[row]]
            self._graphs[self._objects[row]] = None if built is None else _Exec(built.nodes)
        elif call == CALL.GRAPH_UPDATE:  # R7.3
            updated, source = self._graphs[self._objects[row]], self._graphs[self._seconds[row]]
            if updated is not None and source is not None:
                updated.nodes = source.nodes

    def _deliver(self, message: int) -> None:
        """HB14: whichever of the two was first, the receiver goes on when the other has sent."""
        while self._sent[message] and self._receivers[message]:
            self._tell(self._receivers[message].popleft(), [self._sent[message].popleft()])

    def _tell(self, host: Line, states: Iterable[State]) -> None:
        """Let a host thread know; who knew the thread before does not know this yet, hence the new count."""
        for state in states:
            if host.learn(state):
                host.tick()

    def _whole(self, stream: StreamState) -> list[State]:
        """Give all prior work of a stream."""
        return [stream.line.state(), *stream.overtaken]

    def _of_stream(self, stream: int) -> list[State]:
        """Give all that synchronising a stream covers: for the legacy one the blocking streams too (R2.5)."""
        this = self._streams[stream]
        return [state for s in (this, *this.pending.values()) for state in self._whole(s)]

    def _of_event(self, row: int) -> list[State]:
        event = self._objects[row]
        if row in self._about:
            state = self._snapshot_of.get(self._about[row])
        else:
            state = self._events[event] if event >= 0 else None  # one that is not known promises nothing
        return [] if state is None else [state]  # R5.3

    # --------------------------------------------------------------------------------------- calls that put operations

    def _put(self, row: int, op: int) -> Iterator[Step]:
        """An operation that may belong to a capture, or that is a graph."""
        s = self._on[row]
        if op == OP.WAIT and self._joins_capture(row, s):
            return
        if s in self._capturing:
            self._capture(row, self._capturing[s], s)
        elif op == OP.GRAPH:
            graph = self._graphs[self._objects[row]]
            if graph is not None:
                yield from self._launch(row, graph)
        else:
            yield self._operation(row)

    def _operation(self, row: int) -> Step:
        op, stream, stamped = self._ops[row], self._streams[self._on[row]], self._concerns_host[row]
        host, line = self._called(row, stamped=stamped), stream.line
        if op == OP.WAIT and not self._of_event(row):
            line.tick()  # never recorded: no action at all
            return Step(row, 0, row, line.index, line.count, line.clock, host.index, host.count, host.clock)
        line = self._start(row, stream, host)  # HB2, HB3, HB4
        call = host.index, host.count, host.clock
        if op == OP.WAIT:
            for state in self._of_event(row):
                line.learn(state)  # HB5
        elif op == OP.MALLOC:
            self._handed_out_again(row, line)
        elif op == OP.WAIT_VALUE:
            line.learn(self._written.get(self._happened.behind.get(row, -1), NOTHING))  # R5.9
        line.tick()
        step = Step(row, 0, row, line.index, line.count, line.clock, *call, stamped)
        if op == OP.RECORD:
            step = step._replace(clock=self._record(row, stream))
        elif op == OP.FREE:
            self._freed[self._objects[row]] = row, line.state()
        elif op == OP.WRITE_VALUE:
            self._written[row] = line.state()
        if stream.legacy and op != OP.RECORD:  # R2.3: a record orders no later work of the blocking streams
            stream.holds = line.state()
        if op == OP.P2P and self._calls[row] == CALL.COPY_SYNC:
            self._hold_devices(row, line)
        if self._completes[row]:
            self._tell(self._hosts[self._threads[row]], [line.state()])  # HB6
        return step

    def _called(self, row: int, *, stamped: bool) -> Line:
        """Give the line of the host thread as it is when it makes a call, or as it was if that has been put off."""
        if row in self._snapshots:
            return self._snapshots.pop(row)
        host = self._hosts[self._threads[row]]
        if stamped:
            host.tick()
        return host

    def _put_off(self, row: int) -> None:
        """Keep what the host knows at a call whose operation has its turn later."""
        stamped = any(self._concerns_host[copy] for copy in self._batches.get(row, (row,)))
        host = self._called(row, stamped=stamped)
        then = self._snapshots[row] = Line(host.index)
        then.count, then.clock = host.count, host.clock

    def _batch(self, row: int) -> Iterator[Step]:
        """R3.9: prior stream work, then the copies in no order, then later stream work."""
        stream, copies = self._streams[self._on[row]], self._batches[row]
        stamped = any(self._concerns_host[copy] for copy in copies)
        host = self._called(row, stamped=stamped)
        line = self._start(row, stream, host)
        line.tick()
        begun, clock, call = line.state(), line.clock, (host.index, host.count, host.clock)
        stream.strands += [self._line() for _ in range(len(copies) - len(stream.strands))]
        for copy, strand in zip(copies, stream.strands, strict=False):
            strand.learn(begun)
            strand.tick()
            yield Step(copy, 0, row, strand.index, strand.count, strand.clock, *call, stamped)
        for _, strand in zip(copies, stream.strands, strict=False):
            line.learn(strand.state())
        line.tick()
        yield Step(row, 0, row, line.index, line.count, clock, *call, stamped)

    def _start(self, row: int, stream: StreamState, host: Line, *, empty: bool = False) -> Line:
        """Let a stream's line know what its next operation waits for; give the line."""
        op = self._ops[row]
        if row in self._overtakes and stream.kernel is not None:
            self._overtake(stream, stream.kernel)
        line = stream.line
        line.learn(host.state())
        peer = op == OP.P2P and self._calls[row] == CALL.COPY_SYNC
        elsewhere = self._elsewhere(row) if peer else []  # HB12: as if issued on the other device's legacy stream too
        if not stream.legacy:
            for other in stream.held_by:
                line.learn(other.holds)  # HB4
                other.pending[line.index] = stream
        elif op != OP.RECORD and not is_empty_action(op, self._bytes[row], empty=empty):
            for other in (*stream.pending.values(), *elsewhere):
                for state in self._whole(other):
                    line.learn(state)  # HB4
            stream.pending.clear()
        else:
            for other in elsewhere:
                if other.legacy:
                    line.learn(other.line.state())
        stream.kernel = line.state() if op == OP.KERNEL else None
        return line

    def _overtake(self, stream: StreamState, before_kernel: State) -> None:
        """Let the stream go on beside its last kernel, on a line of its own (HB15)."""
        stream.overtaken.append(stream.line.state())
        line = self._line()
        line.learn(before_kernel)
        stream.line = line

    def _record(self, row: int, stream: StreamState) -> Clock:
        """Take the snapshot (R5.1): on the legacy stream it covers the blocking streams too. Give its clock."""
        snapshot = stream.line.state()
        if stream.overtaken or stream.pending:
            line = Line(-1)
            for state in self._of_stream(self._on[row]):
                line.learn(state)
            snapshot = (line.clock, -1, 0)
        event = self._objects[row]
        if event >= 0:
            self._captured_events.pop(event, None)
            self._events[event] = snapshot
        return snapshot[0]

    def _elsewhere(self, row: int) -> list[StreamState]:
        """Give the legacy and blocking streams of the other device of a synchronous peer copy (R3.7)."""
        here = self._streams[self._on[row]].device
        devices = {self._device[row], self._seconds[row]} - {here, -1}
        return [s for s in self._streams if s.device in devices and (s.legacy or is_blocking(s.kind))]

    def _hold_devices(self, row: int, line: Line) -> None:
        """Let the other device's legacy stream go on after a synchronous peer copy (HB12)."""
        for other in self._elsewhere(row):
            if other.legacy:
                other.line.learn(line.state())
                other.line.tick()
                other.holds = other.line.state()

    def _handed_out_again(self, row: int, line: Line) -> None:
        """R8.3: once some thread has synchronised with the free, the pool may hand the memory out to any stream.

        R8.4: or because the free was over, or the driver lets the allocation wait for it; that is seen in a run.
        """
        free, freed = self._freed.get(self._reused.get(row, -1), (-1, NOTHING))
        if free < 0:
            return
        _, index, count = freed
        told = any(index < len(host.clock) and host.clock[index] >= count for host in self._hosts)
        if told or self._happened.behind.get(row) == free:
            line.learn(freed)  # HB10

    # ---------------------------------------------------------------------------------------------- capture and launch

    def _joins_capture(self, row: int, s: int) -> bool:
        """R7.4: a stream that waits for an event of a capture joins it. True if the wait is dealt with."""
        if self._objects[row] not in self._captured_events:
            return False
        capture, tips = self._captured_events[self._objects[row]]
        if capture.open:
            self._capturing[s] = capture
            capture.tips[s] = tuple(dict.fromkeys((*capture.tips.get(s, ()), *tips)))
        return True

    def _capture(self, row: int, capture: _Capture, s: int) -> None:
        op = self._ops[row]
        if op == OP.RECORD:
            self._captured_events[self._objects[row]] = (capture, capture.tips[s])
            self._events[self._objects[row]] = None
        elif op == OP.GRAPH:
            graph = self._graphs[self._objects[row]]
            if graph is not None:
                self._capture_graph(capture, s, graph.nodes)
        elif op != OP.WAIT or self._external[row]:
            capture.nodes.append(_Node(row, (s,), capture.tips[s]))
            capture.tips[s] = (len(capture.nodes) - 1,)

    def _capture_graph(self, capture: _Capture, s: int, nodes: Sequence[_Node]) -> None:
        """Put the nodes of a graph into another: its roots wait for the stream, the stream for all of it (HB11)."""
        first = len(capture.nodes)
        capture.nested += 1
        for node in nodes:
            after = tuple(first + n for n in node.after) or capture.tips[s]
            capture.nodes.append(_Node(node.row, (-capture.nested, *node.strand), after))
        if nodes:
            capture.tips[s] = tuple(range(first, len(capture.nodes)))

    def _end_capture(self, row: int) -> None:
        capture = self._capturing.get(self._on[row])
        if capture is None:
            return
        capture.open = False
        self._capturing = {s: other for s, other in self._capturing.items() if other is not capture}
        if self._objects[row] >= 0:
            self._graphs[self._objects[row]] = _Exec(capture.nodes)

    def _launch(self, row: int, graph: _Exec) -> Iterator[Step]:
        """R7.1: prior stream work, then the nodes in their own order, then later stream work (HB11)."""
        stream, host = self._streams[self._on[row]], self._called(row, stamped=False)
        line = self._start(row, stream, host, empty=not graph.nodes)
        line.learn(graph.done)
        line.tick()
        begun, clock, call = line.state(), line.clock, (host.index, host.count, host.clock)
        states: list[State] = []
        for node in graph.nodes:
            strand = graph.lines.get(node.strand)
            if strand is None:
                strand = graph.lines[node.strand] = self._line()
            strand.learn(begun)
            for other in node.after:
                strand.learn(states[other])
            if self._ops[node.row] == OP.WAIT:
                for state in self._of_event(node.row):
                    strand.learn(state)
            strand.tick()
            states.append(strand.state())
            run = self._runs[node.row] = self._runs.get(node.row, 0) + 1
            yield Step(node.row, run, row, strand.index, strand.count, strand.clock, *call)
        for strand in graph.lines.values():
            line.learn(strand.state())
        line.tick()
        graph.done = line.state()
        if stream.legacy:
            stream.holds = line.state()
        yield Step(row, 0, row, line.index, line.count, clock, *call)


def _concerns_host(rows: Rows) -> list[bool]:
    """Tell of which calls the begin itself, and not only the operation, has to do with host memory (9.2, HB8)."""
    host_side = np.where(rows.op == OP.H2D, rows.src, np.where(rows.op == OP.D2H, rows.dst, MEMORY.UNKNOWN))
    managed = (host_side == MEMORY.MANAGED) & (rows.call == CALL.COPY_SYNC)
    at_call = (rows.flags & int(FLAG.DURING_CALL | FLAG.ANY_TIME)) != 0  # R3.9
    return ((host_side == MEMORY.PAGEABLE) | managed | at_call).tolist()


def _completes(rows: Rows, happened: Happened) -> list[bool]:
    """Tell which calls return only when their operation is complete, by the documentation (table 3.1, HB6)."""
    copy, memset = rows.call == CALL.COPY_SYNC, rows.call == CALL.MEMSET_SYNC
    between_host = (copy | (rows.call == CALL.COPY_ASYNC)) & (rows.op == OP.H2H)
    from_pinned = copy & (rows.op == OP.H2D) & (rows.src == MEMORY.PINNED)
    to_host = copy & (rows.op == OP.D2H) & (rows.dst != MEMORY.MANAGED)  # R3.3
    completes = between_host | from_pinned | to_host | (memset & (rows.dst == MEMORY.PINNED))
    if happened.sync_memops:
        completes |= copy | memset
    if happened.launch_blocking:
        completes |= rows.call == CALL.LAUNCH
    return completes.tolist()


def _overtakes(program: Program) -> set[int]:
    """Give the programmatic dependent kernels that are done before they wait for the kernel before (R6.14, HB15).

    Of a kernel that waits at all the accesses count as those of its main part, after the wait.
    """
    rows = program.rows
    dependent = np.flatnonzero(rows.flags & int(FLAG.PROGRAMMATIC)).tolist()
    return {row for row in dependent if program.grids[rows.grid[row]].prologue >= rows.duration[row] >= 0}
