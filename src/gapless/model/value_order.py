"""Happens-before where streams wait for values in memory (R5.9).

Such a wait may be issued long before the write that ends it. So the walk cannot take operations in the order of issue:
what waits is put off, with all that stands behind it, until the write has had its turn. A host thread that synchronises
with what is put off stops in its call. What the host knew at a call is kept as it was then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from .clocks import NOTHING, State, Step
from .happened import Happened
from .kinds import CALL, OP
from .order_walk import StreamState, Walk
from .ordering import is_blocking
from .program import Program


class ValueWalk(Walk):
    """Goes through a program so that what a write orders comes behind the write."""

    def __init__(self, program: Program, happened: Happened) -> None:
        super().__init__(program, happened)
        self._held: list[deque[int]] = [deque() for _ in self._streams]  # rows that are put off, by stream
        self._waiting: list[deque[int]] = [deque() for _ in program.threads]  # calls that are not made yet
        self._number = {row: number for number, row in enumerate(self._issued)}
        self._launches: dict[int, list[int]] = {}  # graph -> its launches that are put off
        self._stands_for: dict[int, int] = {}  # event -> its record, as far as calls have come
        self._done: set[int] = set()
        self._at = 0  # place in the order of issue of what has its turn
        self._mine: StreamState | None = None  # the stream of the operation that has its turn
        self._history: dict[int, list[tuple[int, State]]] = {id(s): [] for s in self._streams}
        self._inside: list[int] = [-1] * len(program.threads)  # the synchronous operation that a thread waits for

    def steps(self) -> Iterator[Step]:
        """Give every operation and call that runs."""
        for row in self._issued:
            self._waiting[self._threads[row]].append(row)
            yield from self._go_on()
        while any(self._held) or any(self._waiting):  # something that no rule explains: then without an edge
            heads = [rows[0] for rows in self._held if rows]
            if heads:
                yield from self._run(min(heads, key=self._number.__getitem__))
            else:
                yield from self._make(next(rows for rows in self._waiting if rows).popleft())
            yield from self._go_on()

    def _go_on(self) -> Iterator[Step]:
        """Let everything happen that may, threads and streams in turn."""
        again = True
        while again:
            again = False
            for rows in self._held:
                while rows and self._may_run(rows[0]):
                    again = True
                    yield from self._run(rows[0])
            for rows in self._waiting:
                while rows and self._may_be_made(rows[0]):
                    again = True
                    yield from self._make(rows.popleft())

    # --------------------------------------------------------------------------------------------------------- calls

    def _may_be_made(self, row: int) -> bool:
        call, thread = self._calls[row], self._threads[row]
        if self._inside[thread] >= 0 and self._inside[thread] not in self._done:
            return False
        if self._failed(row):  # as a query does of what is not over: it waits for nothing
            return True
        if call == CALL.RECEIVE:
            return bool(self._sent[self._objects[row]])
        if call == CALL.SYNC_DEVICE:
            return not self._is_held([s for s in range(len(self._streams)) if self._is_on(s, self._device[row])], row)
        if call in (CALL.SYNC_STREAM, CALL.QUERY) and self._on[row] >= 0:
            return not self._is_held([self._on[row], *self._fenced_by(self._on[row])], row)
        if call in (CALL.SYNC_EVENT, CALL.QUERY):
            return self._is_over(self._stood_for(row))
        return True

    def _make(self, row: int) -> Iterator[Step]:
        """Make a call; what it puts into a stream waits for its turn there."""
        op = self._ops[row]
        self._at, self._mine = self._number[row], None
        if op < 0:
            self._stood_for(row)
            yield self._call(row)
            self._done.add(row)
        elif row not in self._batched and not self._failed(row):
            stream, thing = self._on[row], self._objects[row]
            if stream in self._capturing or (op == OP.WAIT and thing in self._captured_events):
                yield from self._put(row, op)
                self._done.add(row)
                return
            if op == OP.WAIT:
                self._about[row] = self._stands_for.get(thing, -1)
            elif op == OP.RECORD:
                self._stands_for[thing] = row
            if self._completes[row]:
                self._inside[self._threads[row]] = row
            self._put_off(row)
            for s in self._stands_in(row):
                self._held[s].append(row)
            if op == OP.GRAPH:
                self._launches.setdefault(thing, []).append(row)

    def _stood_for(self, row: int) -> int:
        """Give the record that an event stood for when its call had its turn, however long that waits; -1 none."""
        return self._about.setdefault(row, self._stands_for.get(self._objects[row], -1))

    def _is_over(self, row: int) -> bool:
        return row < 0 or row in self._done

    # ---------------------------------------------------------------------------------------------------- operations

    def _stands_in(self, row: int) -> list[int]:
        """Give the streams in which an operation stands: a synchronous peer copy in both legacy streams (R3.7)."""
        elsewhere = self._elsewhere(row) if self._is_peer_copy(row) else []
        return [self._on[row], *(s for s, other in enumerate(self._streams) if other.legacy and other in elsewhere)]

    def _is_peer_copy(self, row: int) -> bool:
        return self._ops[row] == OP.P2P and self._calls[row] == CALL.COPY_SYNC

    def _may_run(self, row: int) -> bool:
        op, stream, stands_in = self._ops[row], self._streams[self._on[row]], self._stands_in(row)
        if any(self._held[s][0] != row for s in stands_in):
            return False
        if op in (OP.WAIT_VALUE, OP.MALLOC) and not self._is_over(self._happened.behind.get(row, -1)):
            return False
        if op == OP.WAIT and not self._is_over(self._about[row]):
            return False
        if op == OP.GRAPH and self._launches[self._objects[row]][0] != row:
            return False  # R7.1: behind the launch before, wherever that stands
        if op == OP.GRAPH and self._waits_for_events(row):
            others = [s for s in range(len(self._streams)) if s != self._on[row]]
        elif stream.legacy:
            others = [other for s in stands_in for other in self._fenced_by(s)]
        else:
            others = [s for s, other in enumerate(self._streams) if other in stream.held_by]
        return not self._is_held(others, row)

    def _waits_for_events(self, row: int) -> bool:
        graph = self._graphs[self._objects[row]]
        return graph is not None and any(self._ops[node.row] == OP.WAIT for node in graph.nodes)

    def _whole(self, stream: StreamState) -> list[State]:
        """Give all work of a stream that was issued before what has its turn; what came later may have been there."""
        if stream is self._mine:
            return super()._whole(stream)
        before = [state for number, state in self._history[id(stream)] if number < self._at]
        return [before[-1], *stream.overtaken] if before else []

    def _of_stream(self, stream: int) -> list[State]:
        """Give all that synchronising a stream covers, of the legacy one also where a later operation took it over."""
        covered = (self._streams[s] for s in (stream, *self._fenced_by(stream)))
        return [state for s in covered for state in self._whole(s)]

    def _run(self, row: int) -> Iterator[Step]:
        op = self._ops[row]
        for s in self._stands_in(row):
            self._held[s].remove(row)
        if op == OP.GRAPH:
            self._launches[self._objects[row]].remove(row)
        self._at, self._mine = self._number[row], self._streams[self._on[row]]
        if op == OP.BATCH:
            yield from self._batch(row)
        elif op == OP.GRAPH:
            yield from self._put(row, op)
        else:
            yield self._operation(row)
        if op == OP.RECORD:
            self._snapshot_of[row] = self._events[self._objects[row]] or NOTHING
        self._done.add(row)
        for stream in self._streams:
            history, line = self._history[id(stream)], stream.line
            if line.count and (not history or history[-1][1][1:] != (line.index, line.count)):
                history.append((self._number[row], line.state()))

    def _fenced_by(self, stream: int) -> list[int]:
        """Give the blocking streams of a legacy stream's device; none for any other stream."""
        this = self._streams[stream]
        others = [s for s in range(len(self._streams)) if this.legacy and s != stream and self._is_on(s, this.device)]
        return [s for s in others if is_blocking(self._streams[s].kind)]

    def _is_on(self, stream: int, device: int) -> bool:
        return self._streams[stream].device == device

    def _is_held(self, streams: list[int], row: int) -> bool:
        """Tell whether something issued before a row is put off in some streams."""
        number = self._number[row]
        return any(self._number[rows[0]] < number for rows in (self._held[s] for s in streams) if rows)
