"""Why operations started when they did, for a scene: arrows, reasons and the critical path, of a run or a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from gapless.diagnosis.critical import HELD_WORDS, Held, critical_path, held_by
from gapless.diagnosis.work import Work
from gapless.model.gaps import Causes, Gap, chain
from gapless.model.kinds import Bound, Engine
from gapless.model.schedule import Schedule
from gapless.timeline.simulated import calls_of, operations_of
from gapless.views.reasons import why

Ints = NDArray[np.int64]

MOST_SAID = 20_000  # operations of a run; of more, only the arrows are worked out and not the sentences


class Arrow(IntEnum):
    """What an arrow says."""

    LAUNCH = 0  # a call issued the operation
    EVENT = 1  # an event made the operation wait for another one
    FENCE = 2  # the legacy default stream's rule did
    BLOCK = 3  # a call kept its thread waiting for the operation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Links:
    """What a scene draws between its intervals, by rows of the timeline's ``ops`` and ``calls``."""

    waits: Sequence[tuple[Arrow, Ints, Ints]] = ()  # EVENT, FENCE: from op, to op; BLOCK: from op, to call
    reasons: Sequence[str] = ()
    reason: Ints | None = None  # for each operation of the timeline a row of reasons, -1 none
    path: Ints | None = None  # the critical path, first to last: rows of ops; a call's row as -1 - row


def of_work(work: Work) -> Links:
    """Give the links of a measured run."""
    held, _ = held_by(work)
    reason = np.full(len(work.timeline.ops), -1)
    reason[work.rows] = held
    fenced = np.flatnonzero(held == Held.FENCE)
    awaited = np.flatnonzero(work.event_pred >= 0)
    blocked = np.flatnonzero(work.blocked_on >= 0)
    path = critical_path(work)
    return Links(
        waits=(
            (Arrow.FENCE, work.rows[work.fence_pred[fenced]], work.rows[fenced]),
            (Arrow.EVENT, work.rows[work.event_pred[awaited]], work.rows[awaited]),
            (Arrow.BLOCK, work.rows[work.blocked_on[blocked]], blocked),
        ),
        reasons=[HELD_WORDS[one] for one in Held],
        reason=reason,
        path=np.where(path >= 0, work.rows[np.maximum(path, 0)], path),
    )


def of_schedule(run: Schedule, lines: Sequence[int] | NDArray[np.int32] = ()) -> Links:
    """Give the links of a played run, by the rows of its timeline; *lines* are the tape's, by row of the program."""
    ops, calls = operations_of(run), calls_of(run)
    row_of_op, row_of_call = np.full(len(run.start), -1), np.full(len(run.program), -1)
    row_of_op[ops], row_of_call[calls] = np.arange(len(ops)), np.arange(len(calls))
    causes = Causes(run)
    found: dict[Arrow, list[tuple[int, int]]] = {Arrow.EVENT: [], Arrow.FENCE: [], Arrow.BLOCK: []}
    reasons: dict[str, int] = {}
    reason = np.full(len(ops), -1)
    start = run.start.tolist()
    for row, op in enumerate(ops.tolist()):
        cause = causes.of(op)
        arrow = {Bound.EVENT: Arrow.EVENT, Bound.FENCE: Arrow.FENCE}.get(cause.bound)
        if arrow is not None and cause.call < 0 and cause.by >= 0:
            found[arrow].append((int(row_of_op[cause.by]), row))
        if len(ops) <= MOST_SAID and start[op] > 0:
            said = why(run, Gap(-1, Engine.NONE, start[op], start[op], op, cause), lines)
            reason[row] = reasons.setdefault(said, len(reasons))
    for call, (bound, by) in run.waits.items():
        if bound == Bound.WORK and by >= 0:
            found[Arrow.BLOCK].append((int(row_of_op[by]), int(row_of_call[call])))
    waits: list[tuple[Arrow, Ints, Ints]] = []
    for arrow, pairs in found.items():
        both = np.array([pair for pair in pairs if min(pair) >= 0], np.int64).reshape(-1, 2)
        waits.append((arrow, both[:, 0], both[:, 1]))
    path: list[int] = []
    for link in chain(run):
        row = row_of_op[link.op] if link.op >= 0 else row_of_call[link.call]
        if row >= 0:
            path.append(int(row) if link.op >= 0 else -1 - int(row))
    return Links(waits=waits, reasons=list(reasons), reason=reason, path=np.array(path, np.int64))
