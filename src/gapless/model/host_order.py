"""Which calls of different host threads the program itself puts in order, and what is left to chance (R1.2)."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from .kinds import CALL, OP, StreamKind
from .ordering import is_blocking
from .program import Program


class HostOrder:
    """The order of calls by their threads and by what the threads tell each other, and by nothing else (HB1, HB14)."""

    def __init__(self, program: Program, issued: Iterable[int]) -> None:
        rows = program.rows
        calls, objects, self._threads = rows.call.tolist(), rows.object.tolist(), rows.thread.tolist()
        self._number = [0] * len(program)  # of the call in its thread, from 1
        self._known: list[tuple[int, ...]] = [()] * len(program)  # calls of each thread that are over when it begins
        made = [0] * len(program.threads)
        known: list[tuple[int, ...]] = [(0,) * len(program.threads) for _ in program.threads]
        sent: list[deque[tuple[int, ...]]] = [deque() for _ in program.messages]
        receivers: list[deque[int]] = [deque() for _ in program.messages]
        for row in issued:
            thread, message = self._threads[row], objects[row]
            made[thread] += 1
            self._number[row], self._known[row] = made[thread], known[thread]
            if calls[row] == CALL.SEND:
                mine = known[thread]
                sent[message].append((*mine[:thread], made[thread], *mine[thread + 1 :]))
            elif calls[row] == CALL.RECEIVE:
                receivers[message].append(thread)
            else:
                continue
            while sent[message] and receivers[message]:
                told, receiver = sent[message].popleft(), receivers[message].popleft()
                known[receiver] = tuple(map(max, known[receiver], told))

    def before(self, x: int, y: int) -> bool:
        """Tell whether the call of row *x* has returned before that of row *y* begins, in every run."""
        thread = self._threads[x]
        if thread == self._threads[y]:
            return self._number[x] < self._number[y]
        return bool(self._known[y]) and self._known[y][thread] >= self._number[x] > 0

    def unordered_calls(self, row: int, calls: dict[int, tuple[list[int], list[int]]]) -> Iterator[int]:
        """Give those of *calls* (thread -> numbers, rows) that no order puts before the call of *row*."""
        for thread, (numbers, rows) in calls.items():
            if thread != self._threads[row] and numbers[-1] > self._known[row][thread]:
                yield from rows[bisect_right(numbers, self._known[row][thread]):]  # fmt: skip

    def add(self, row: int, calls: dict[int, tuple[list[int], list[int]]]) -> None:
        """Put the call of *row* into *calls*."""
        numbers, rows = calls.setdefault(self._threads[row], ([], []))
        numbers.append(self._number[row])
        rows.append(row)


def left_to_chance(
    program: Program, order: HostOrder, issued: Sequence[int], running: Collection[int]
) -> Iterator[tuple[int, int]]:
    """Give the pairs of calls whose order decides what happens and is not decided by the program (R1.2, class O).

    Two operations of one stream, or of the legacy and a blocking stream, that unordered host threads issue; a record of
    an event and a wait for it (of a stream or of a host thread). *running*: the rows that put an operation into a
    stream.
    """
    rows = program.rows
    ops, on, objects = rows.op.tolist(), rows.stream.tolist(), rows.object.tolist()
    calls, seconds = rows.call.tolist(), rows.second.tolist()
    beside = _fenced(program)
    in_stream: list[dict[int, tuple[list[int], list[int]]]] = [{} for _ in program.streams]
    records: list[dict[int, tuple[list[int], list[int]]]] = [{} for _ in program.events]
    waits: list[dict[int, tuple[list[int], list[int]]]] = [{} for _ in program.events]
    for row in issued:
        op, event = ops[row], objects[row]
        if op >= 0:
            if row not in running or calls[row] == CALL.BATCHED:  # a batch is one operation (R3.9)
                continue
            streams = [on[row]]
            if op == OP.P2P and calls[row] == CALL.COPY_SYNC:  # R3.7: of both devices' legacy streams
                streams += [
                    s for s, info in enumerate(program.streams)
                    if info.kind is StreamKind.LEGACY and info.device == seconds[row] and s != on[row]
                ]  # fmt: skip
            for stream in streams:
                for other in (stream, *beside[stream]):
                    yield from ((x, row) for x in order.unordered_calls(row, in_stream[other]))
            for stream in streams:
                order.add(row, in_stream[stream])
        if event >= 0 and op == OP.RECORD:
            yield from ((x, row) for x in order.unordered_calls(row, waits[event]))
            order.add(row, records[event])
        elif event >= 0 and (op == OP.WAIT or (calls[row] in _ASK_AN_EVENT and on[row] < 0)):
            yield from ((x, row) for x in order.unordered_calls(row, records[event]))
            order.add(row, waits[event])


_ASK_AN_EVENT = (CALL.SYNC_EVENT, CALL.QUERY)


def _fenced(program: Program) -> list[list[int]]:
    """Give for each stream those that the legacy stream's fence lets it wait for, or it for them (R2.1)."""
    beside: list[list[int]] = [[] for _ in program.streams]
    legacies = [stream for stream, info in enumerate(program.streams) if info.kind is StreamKind.LEGACY]
    for stream, info in enumerate(program.streams):
        for legacy in legacies:
            if stream != legacy and info.device == program.streams[legacy].device and is_blocking(info.kind):
                beside[stream].append(legacy)
                beside[legacy].append(stream)
    return beside
