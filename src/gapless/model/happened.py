"""What a run tells of the order in a program beside its text: which calls failed, what was issued when."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .kinds import CALL, OP
from .program import Program

if TYPE_CHECKING:
    from .schedule import Schedule


@dataclass(frozen=True, slots=True)
class Happened:
    """What a run tells beside the program: which calls failed, what queries returned, the order of issue.

    ``errors``: the CUDA error of each call, by row; None if not known: then no call fails, and no query orders
    anything. ``issued``: the rows of the calls in the order in which the driver took them (R1.1); None: as the text
    has them, each thread as far as it can go. ``behind``: what stands before an operation in this run
    beside what the program says: of a stream-ordered allocation the free, because the pool gave it that memory (R8.4),
    of a wait for a value the write or store that it saw (R5.9), by row. ``launch_blocking`` and ``sync_memops`` are
    the machine's (section 4, R3.2).
    """

    errors: Mapping[int, int] | Sequence[int] | None = None
    issued: Sequence[int] | None = None
    behind: Mapping[int, int] = field(default_factory=dict[int, int])
    launch_blocking: bool = False
    sync_memops: bool = False


def happened_in(run: Schedule) -> Happened:
    """Give what happened in a scheduled run."""
    ops = run.program.rows.op
    behind = {row: by for row, by in run.saw.items() if by >= 0 and ops[row] in (OP.MALLOC, OP.WAIT_VALUE)}
    machine = run.machine
    return Happened(
        run.error.tolist(), run.order.tolist(), behind,
        launch_blocking=machine.launch_blocking, sync_memops=machine.sync_memops,
    )  # fmt: skip


def issue_order(program: Program) -> list[int]:
    """Give the rows as the text has them; a thread that receives stops until the message is sent (HB14)."""
    calls, objects, threads = (c.tolist() for c in (program.rows.call, program.rows.object, program.rows.thread))
    if len(program.threads) == 1 and CALL.RECEIVE not in calls:
        return list(range(len(program)))
    order: list[int] = []
    sent = [0] * len(program.messages)
    waiting: list[deque[int]] = [deque() for _ in program.threads]
    stopped: dict[int, int] = {}  # thread -> the message it waits for
    for row, thread in enumerate(threads):
        waiting[thread].append(row)
        going = deque([] if thread in stopped else [thread])
        while going:
            rows = waiting[going[0]]
            if not rows:
                going.popleft()
                continue
            call, message = calls[rows[0]], objects[rows[0]]
            if call == CALL.RECEIVE and not sent[message]:
                stopped[going.popleft()] = message
                continue
            order.append(rows.popleft())
            if call == CALL.RECEIVE:
                sent[message] -= 1
            elif call == CALL.SEND:
                sent[message] += 1
                woken = [other for other, awaited in stopped.items() if awaited == message]
                for other in woken:
                    del stopped[other]
                going += woken
    return order
