"""Capture of streams into graphs, and their launches (section 7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappush
from typing import TYPE_CHECKING

from .engines import READY
from .errors import GaplessError
from .kinds import Bound, CallKind, CaptureMode, CudaError, Flag, OpKind, StreamKind

if TYPE_CHECKING:
    from .hosts import HostThread
    from .simulator import Simulator


@dataclass(slots=True, eq=False)
class Capture:
    """A capture that is going on, or has ended."""

    stream: int  # in which it began
    thread: int
    mode: int
    blocking: bool
    valid: bool = True
    ended: bool = False
    nodes: list[tuple[int, frozenset[int]]] = field(default_factory=list)  # row, nodes it depends on
    last: dict[int, frozenset[int]] = field(default_factory=dict)  # of each captured stream: what its next node follows

    def forbids(self, thread: int) -> bool:
        """Tell whether its mode forbids potentially unsafe calls of a thread (R7.4)."""
        return self.mode == CaptureMode.GLOBAL or (self.mode == CaptureMode.THREAD_LOCAL and self.thread == thread)

    def joined(self) -> bool:
        """Tell whether everything captured comes before what the first stream has come to."""
        reached, todo = set[int](), list(self.last[self.stream])
        while todo:
            node = todo.pop()
            if node not in reached:
                reached.add(node)
                todo += self.nodes[node][1]
        return all(last <= reached for last in self.last.values())


@dataclass(slots=True)
class Executable:
    """A graph that can be launched."""

    nodes: list[tuple[int, frozenset[int]]]
    last_launch: int = -1


class GraphRunner:
    """Starts the nodes of a launched graph when the launch has reached the head of its stream."""

    def add(self, sim: Simulator, op: int) -> None:
        """Start a launch."""
        sim.start[op] = sim.now
        sim.hosts.captures.start(op)


class Captures:
    """What is being captured, what was, and which calls that forbids."""

    def __init__(self, sim: Simulator) -> None:
        self._sim = sim
        self._of_stream: dict[int, Capture] = {}
        self._of_event: dict[int, tuple[Capture, frozenset[int]]] = {}
        self._graphs: dict[int, Executable] = {}
        self._to_do: dict[int, int] = {}  # launch -> nodes not complete
        self._nodes: dict[int, list[tuple[int, frozenset[int]]]] = {}  # of launches that have not started

    # ---------------------------------------------------------------------------------------------------- capturing

    def begin(self, thread: HostThread, row: int) -> None:
        """``cudaStreamBeginCapture``."""
        sim = self._sim
        stream = sim.stream_of[row]
        kind = sim.program.streams[stream].kind
        if kind == StreamKind.LEGACY:
            sim.hosts.errors[row] = CudaError.STREAM_CAPTURE_UNSUPPORTED
        elif stream in self._of_stream:
            sim.hosts.errors[row] = CudaError.ILLEGAL_STATE
        else:
            blocking = kind != StreamKind.NON_BLOCKING
            capture = Capture(stream, thread.index, int(sim.second[row]), blocking)
            capture.last[stream] = frozenset()
            self._of_stream[stream] = capture

    def finish(self, thread: HostThread, row: int) -> None:
        """``cudaStreamEndCapture``; a graph that has been captured can be launched."""
        sim = self._sim
        stream = sim.stream_of[row]
        capture = self._of_stream.get(stream)
        if capture is None:
            sim.hosts.errors[row] = CudaError.ILLEGAL_STATE
        elif stream != capture.stream:
            sim.hosts.errors[row] = CudaError.STREAM_CAPTURE_UNMATCHED
            capture.valid = False
        else:
            self._close(capture)
            if capture.thread != thread.index and capture.mode != CaptureMode.RELAXED:
                sim.hosts.errors[row] = CudaError.STREAM_CAPTURE_WRONG_THREAD
            elif not capture.valid:
                sim.hosts.errors[row] = CudaError.STREAM_CAPTURE_INVALIDATED
            elif not capture.joined():
                sim.hosts.errors[row] = CudaError.STREAM_CAPTURE_UNJOINED
            else:
                self._instantiate(row, capture.nodes)

    def build(self, row: int) -> None:
        """``cudaGraphInstantiate`` of a graph once more (R7.1)."""
        source = self._graphs.get(int(self._sim.second[row]))
        if source is None:
            self._sim.hosts.errors[row] = CudaError.INVALID_VALUE
        else:
            self._instantiate(row, source.nodes)

    def update(self, row: int) -> None:
        """``cudaGraphExecUpdate``: it takes effect at the next launch (R7.3)."""
        graph, source = (self._graphs.get(int(column[row])) for column in (self._sim.object, self._sim.second))
        if graph is None or source is None:
            self._sim.hosts.errors[row] = CudaError.INVALID_VALUE
        else:
            graph.nodes = source.nodes

    def _instantiate(self, row: int, nodes: list[tuple[int, frozenset[int]]]) -> None:
        sim = self._sim
        self._graphs[sim.object[row]] = Executable(nodes)
        if sim.plan.first and any(node in sim.plan.first for node, _ in nodes):
            sim.put_barrier(sim.stream(row).device if sim.stream_of[row] >= 0 else sim.devices[sim.device_of_row[row]])
            sim.plan.first.difference_update(node for node, _ in nodes)  # R4.1

    def _close(self, capture: Capture) -> None:
        capture.ended = True
        for stream in [s for s, c in self._of_stream.items() if c is capture]:
            del self._of_stream[stream]

    def intercept(self, thread: HostThread, row: int) -> bool:
        """Look at a call before it acts: tell whether it was captured or has failed and does nothing more (R7.4)."""
        sim = self._sim
        call, op = sim.call[row], sim.op_kind[row]
        if call in (CallKind.CAPTURE, CallKind.CAPTURE_END):
            return False
        if op == OpKind.GRAPH and sim.object[row] not in self._graphs:
            sim.hosts.errors[row] = CudaError.INVALID_VALUE
            return True
        if not self._of_stream and not self._of_event:
            return False
        if op >= 0:
            return self._operation(thread, row, op)
        error = self._about_event(thread, row, call)
        if not error and call in (CallKind.SYNC_STREAM, CallKind.QUERY) and sim.stream_of[row] >= 0:
            error = self._about_stream(thread, sim.stream_of[row])
        elif not error and call == CallKind.SYNC_DEVICE:
            error = self._break(self._active(), CudaError.STREAM_CAPTURE_UNSUPPORTED)
        elif not error and call in _UNSAFE:
            error = self._unsafe(thread)
        if error:
            sim.hosts.errors[row] = error
        return bool(error)

    def holds(self, row: int) -> bool:
        """Tell whether the stream of a row is being captured."""
        return self._sim.stream_of[row] in self._of_stream

    def _operation(self, thread: HostThread, row: int, op: int) -> bool:
        sim = self._sim
        stream, event = sim.stream_of[row], sim.object[row] if sim.object else -1
        capture = self._of_stream.get(stream)
        if capture is None and op == OpKind.WAIT and event in self._of_event:
            capture = self._of_event[event][0]  # a fork: the stream joins the capture
            if capture.ended:
                sim.hosts.errors[row] = CudaError.INVALID_VALUE
                return True
            if sim.streams[stream].legacy:
                return self._failed(row, self._about_stream(thread, stream))
            self._of_stream[stream] = capture
            capture.last[stream] = frozenset()
        if capture is not None:
            return self._failed(row, self._capture(capture, row, op))
        error = 0
        if sim.streams[stream].legacy:
            error = self._implicit()
        elif sim.call[row] == CallKind.MALLOC_ASYNC:
            error = self._unsafe(thread)
        if not error and op == OpKind.RECORD:
            self._of_event.pop(event, None)
        return bool(error) and self._failed(row, error)

    def _failed(self, row: int, error: int) -> bool:
        if error:
            self._sim.hosts.errors[row] = error
        return True

    def _capture(self, capture: Capture, row: int, op: int) -> int:
        """Make a node of an operation; give the error if it cannot be one."""
        sim = self._sim
        stream, event = sim.stream_of[row], sim.object[row] if sim.object else -1
        if not capture.valid:
            return CudaError.STREAM_CAPTURE_INVALIDATED
        if sim.call[row] in (CallKind.COPY_SYNC, CallKind.MEMSET_SYNC, CallKind.BATCH):
            return self._break([capture], CudaError.STREAM_CAPTURE_UNSUPPORTED)
        if op in (OpKind.WRITE_VALUE, OpKind.WAIT_VALUE):
            raise GaplessError(f"{sim.program.describe(row)}: values in memory inside a graph are not modelled")
        before = capture.last[stream]
        if op == OpKind.RECORD:
            self._of_event[event] = (capture, before)
        elif op == OpKind.WAIT:
            of_event, nodes = self._of_event.get(event, (None, frozenset[int]()))
            if of_event is capture:
                capture.last[stream] = before | nodes
            elif of_event is not None and of_event.ended:
                return CudaError.INVALID_VALUE
            elif of_event is not None:
                return self._break([capture, of_event], CudaError.STREAM_CAPTURE_MERGE)
            elif not sim.has_flag(row, Flag.EXTERNAL):
                return self._break([capture], CudaError.STREAM_CAPTURE_ISOLATION)
        else:
            nodes = self._graphs[event].nodes if op == OpKind.GRAPH else [(row, frozenset[int]())]
            capture.last[stream] = _append(capture.nodes, nodes, before) or before
        return CudaError.SUCCESS

    # ------------------------------------------------------------------------------------------- forbidden calls

    def _active(self) -> list[Capture]:
        return [c for c in dict.fromkeys(self._of_stream.values()) if c.valid]

    def _break(self, captures: list[Capture], error: CudaError) -> int:
        """Invalidate captures; the call fails if there are any."""
        for capture in captures:
            capture.valid = False
        return error if captures else CudaError.SUCCESS

    def _implicit(self) -> int:
        """Any use of the legacy stream while a blocking stream captures."""
        return self._break([c for c in self._active() if c.blocking], CudaError.STREAM_CAPTURE_IMPLICIT)

    def _unsafe(self, thread: HostThread) -> int:
        forbidding = [c for c in self._active() if c.forbids(thread.index)]
        return self._break(forbidding, CudaError.STREAM_CAPTURE_UNSUPPORTED)

    def _about_stream(self, thread: HostThread, stream: int) -> int:
        """Synchronise or query of a stream."""
        capture = self._of_stream.get(stream)
        if capture is not None and not capture.valid:
            return CudaError.STREAM_CAPTURE_INVALIDATED
        if capture is not None:
            return self._break([capture], CudaError.STREAM_CAPTURE_UNSUPPORTED)
        if self._sim.streams[stream].legacy and (error := self._implicit()):
            return error
        return self._unsafe(thread)

    def _about_event(self, thread: HostThread, row: int, call: int) -> int:
        """Synchronise, query or elapsed time of events."""
        sim = self._sim
        if call not in (CallKind.SYNC_EVENT, CallKind.QUERY, CallKind.ELAPSED) or sim.object[row] < 0:
            return CudaError.SUCCESS
        events = (sim.object[row], sim.second[row]) if call == CallKind.ELAPSED else (sim.object[row],)
        for event in events:
            capture = self._of_event[event][0] if event in self._of_event else None
            if capture is not None and capture.ended:
                return CudaError.INVALID_VALUE
            if capture is not None:
                return self._break([capture], CudaError.CAPTURED_EVENT)
        return CudaError.SUCCESS if call == CallKind.ELAPSED else self._unsafe(thread)

    # ----------------------------------------------------------------------------------------------------- launches

    def is_empty(self, op: int) -> bool:
        """Tell whether a launch starts nothing (R2.3)."""
        return not self._graphs[self._sim.object[op]].nodes

    def launched(self, op: int) -> int:
        """R7.1: a launch waits for the launch of the same executable before it; give 1 if that is not complete."""
        sim = self._sim
        graph = self._graphs[sim.object[op]]
        before, graph.last_launch = graph.last_launch, op
        self._nodes[op] = graph.nodes  # R7.3: what it is now, whatever becomes of the graph before the launch starts
        return sim.wait_behind(op, before, Bound.GRAPH) if before >= 0 else 0

    def start(self, launch: int) -> None:
        """Start the nodes that depend on no other one (R7.1, R7.2)."""
        sim = self._sim
        nodes = self._nodes.pop(launch)
        stream = sim.stream_of[launch]
        if not nodes:
            sim.completed.append(launch)
            return
        ops = [
            sim.new_op(row, launch, int(sim.plan.place[row]), sim.work[row], stream, sim.grid[row]) for row, _ in nodes
        ]
        self._to_do[launch] = len(nodes)
        for op, (_, before) in zip(ops, nodes, strict=True):
            sim.left[op] = len(before)
            for node in before:
                sim.edges.setdefault(ops[node], []).append((op, Bound.GRAPH))
        for op, (_, before) in zip(ops, nodes, strict=True):
            if not before:
                sim.bound[op], sim.bound_by[op] = Bound.GRAPH, launch
                sim.ready[op] = sim.now + sim.hop_into_graph(launch, op)
                if sim.ready[op] > sim.now:
                    heappush(sim.events, (sim.ready[op], READY, op, 0))
                else:
                    sim.enter(op)

    def node_done(self, op: int) -> None:
        """Note that a node is complete; after the last one the launch is."""
        sim = self._sim
        launch = sim.launch[op - sim.rows]
        self._to_do[launch] -= 1
        if not self._to_do[launch]:
            del self._to_do[launch]
            sim.end_stands_for(op, launch)
            sim.completed.append(launch)


def _append(
    nodes: list[tuple[int, frozenset[int]]], new: list[tuple[int, frozenset[int]]], before: frozenset[int]
) -> frozenset[int]:
    """Append a graph's nodes, its roots behind *before*; give its leaves."""
    first = len(nodes)
    leaves = set(range(first, first + len(new)))
    for row, own in new:
        shifted = frozenset(first + node for node in own)
        leaves -= shifted
        nodes.append((row, shifted or before))
    return frozenset(leaves)


_UNSAFE = (
    CallKind.MALLOC, CallKind.FREE, CallKind.HOST_MALLOC, CallKind.HOST_FREE, CallKind.HOST_REGISTER,
    CallKind.HOST_UNREGISTER, CallKind.GRAPH_BUILD, CallKind.DEVICE_LIMIT,
)  # fmt: skip
