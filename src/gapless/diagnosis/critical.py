"""What bound each operation of a measured run last, and the critical path: from the end back along what bound.

The path leads from the last operation to what it waited for, to what that one waited for, and so on. Where the host
issued an operation late it goes on with the thread's calls, back to the last one in which the device had kept the
thread waiting, and from there with the operation waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import Engine

from .work import CLOCK_SLACK, HOP, LONG_AGO, Ints, Work, at


class Held(IntEnum):
    """What an operation had to wait for last."""

    NOTHING = 0  # it is the first, or no call is known that issued it
    STREAM = 1  # R1.3
    FENCE = 2  # R2.1
    EVENT = 3  # R5.2
    ENGINE = 4  # R3.6
    HOST = 5
    UNKNOWN = 6  # it was ready by all that the timeline shows, and yet not started


HELD_WORDS: Mapping[Held, str] = {
    Held.NOTHING: "nothing came before it",
    Held.STREAM: "it waited for the operation before it in its stream",
    Held.FENCE: "it waited for the legacy default stream's fence",
    Held.EVENT: "it waited for an event",
    Held.ENGINE: "it waited for its engine",
    Held.HOST: "the host issued it late",
    Held.UNKNOWN: "this timeline does not show what it waited for",
}


def held_by(work: Work) -> tuple[NDArray[np.int8], Ints]:
    """Give for each operation what held it last, and the operation that it waited for; -1 none."""
    start = work.ops.start
    none = np.full(len(start), -1)
    launched = np.where(work.ops.call >= 0, work.launched, LONG_AGO)
    # In this order where several end together: the stream's order says more than the engine's.
    candidates = (
        (Held.STREAM, work.stream_ready, work.stream_pred), (Held.FENCE, work.fence_ready, work.fence_pred),
        (Held.EVENT, work.event_ready, work.event_pred), (Held.HOST, launched, none),
        (Held.ENGINE, work.engine_ready, work.engine_pred),
    )  # fmt: skip
    # What ended after the operation had begun held nothing, whatever the rules say: clocks agree only so far.
    ready = np.stack([np.where(time <= start + CLOCK_SLACK, time, LONG_AGO) for _, time, _ in candidates])
    last = ready.argmax(axis=0)
    which = np.arange(len(start))
    held = np.array([name for name, *_ in candidates], np.int8)[last]
    by = np.stack([pred for *_, pred in candidates])[last, which]
    late = ready[last, which]
    held = np.where(late == LONG_AGO, Held.NOTHING, np.where(start - late > HOP, Held.UNKNOWN, held)).astype(np.int8)
    return held, np.where(late == LONG_AGO, -1, by)


def critical_path(work: Work) -> Ints:
    """Give the critical path, the first to the last: rows of the work's operations, and calls as -1 - their row."""
    if not len(work.ops):
        return np.zeros(0, np.int64)
    _, by = held_by(work)
    waited_for, ends, starts = by.tolist(), work.ops.end.tolist(), work.ops.start.tolist()
    call_of = work.ops.call.tolist()
    before, blocked_on = _call_before(work).tolist(), work.blocked_on.tolist()
    path: list[int] = []
    op = int(work.ops.end.argmax())
    for _ in range(len(ends)):
        path.append(op)
        next_op = waited_for[op]
        if next_op < 0:
            next_op = _along_host(path, call_of[op], before, blocked_on)
        if next_op < 0 or ends[next_op] > ends[op] or starts[next_op] >= starts[op]:
            break  # the timeline's own times do not lead on
        op = next_op
    return np.array(path[::-1], np.int64)


def path_times(work: Work, path: Ints) -> tuple[dict[Engine, int], int, int]:
    """Give what the time of a critical path goes to: ns on each engine, on the host, and between one and the next."""
    if not len(path):
        return {}, 0, 0
    is_op = path >= 0
    row = np.where(is_op, path, -1 - path)
    start = np.where(
        is_op, at(work.ops.start, np.where(is_op, row, -1), 0), at(work.calls.start, np.where(is_op, -1, row), 0)
    )
    end = np.where(is_op, at(work.ops.end, np.where(is_op, row, -1), 0), 0)
    # A call, and what the host does after it, lasts until the next link begins; of a launch that is the way there.
    end = np.where(is_op, end, np.append(start[1:], start[-1]))
    reached = np.maximum.accumulate(np.concatenate((start[:1], end)))
    spent = np.maximum(reached[1:] - np.maximum(reached[:-1], start), 0)
    engine = np.where(is_op, at(work.engine, np.where(is_op, row, -1), Engine.NONE), Engine.NONE)
    on_engine = {one: int(spent[engine == one].sum()) for one in (Engine.H2D, Engine.SM, Engine.D2H, Engine.PEER)}
    host = int(spent[~is_op].sum())
    whole = int(reached[-1] - start[0])
    return {one: time for one, time in on_engine.items() if time}, host, whole - sum(on_engine.values()) - host


def _along_host(path: list[int], call: int, before: list[int], blocked_on: list[int]) -> int:
    """Go back along a thread's calls to the one that the device kept waiting; give the operation, -1 none."""
    while call >= 0:
        path.append(-1 - call)
        call = before[call]
        if call >= 0 and blocked_on[call] >= 0:
            path.append(-1 - call)
            return blocked_on[call]
    return -1


def _call_before(work: Work) -> Ints:
    """For each call the one before it in its thread, -1 none; calls before the window are none of its path."""
    calls = work.calls
    order = np.lexsort((calls.start, calls.thread))
    before = np.full(len(calls), -1)
    same = calls.thread[order[1:]] == calls.thread[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    first = int(at(calls.start, work.ops.call[work.ops.call >= 0], 0).min(initial=work.start))
    return np.where((before >= 0) & (at(calls.start, before, LONG_AGO) >= first), before, -1)


__all__ = ["HELD_WORDS", "Held", "critical_path", "held_by", "path_times"]
