"""Work of high priority waits behind work of low priority.

## What it finds
Operations of a high-priority stream that waited for their engine while an operation of a lower-priority stream held it.

## Why engines wait
Priorities act when blocks of kernels are placed: running blocks are never interrupted (R6.13), so a long block of bulk
work delays the urgent kernel by its whole length. Copies know no priority at all: the copy engine serves whatever is
ready, and drains one stream before it looks at the next (R6.1, R6.2).

## Evidence needed
The streams' priorities. torch.profiler does not give them; recordings and Nsight do.

## What repairs it
``priority``: shorter blocks in the bulk kernels, bulk copies cut into pieces with only a few in flight, and the urgent
stream created with the highest priority.

## When the repair does not pay or is unsafe
It makes the urgent path quicker and the whole slower or equal, so its cost to the run is always 0 here. Starving the
bulk work is possible.

## What it cannot see
Which of the two the program's purpose depends on.
"""

from __future__ import annotations

import numpy as np

from gapless.model.kinds import Engine

from ..case import Case
from ..report import Finding, Repair
from ..waits import Waits
from ..words import each_of, plural

LEAST = 0.01  # of the window


def claims(case: Case) -> None:
    """None of the binding engine's idle time: while the urgent work waits, the engine is busy with other work."""


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how long urgent operations stood behind others on their engine."""
    work = case.work
    priorities = [stream.priority for stream in work.timeline.streams]
    known = {p for p in priorities if p is not None}
    if len(known) < 2:
        return None
    priority = np.array([0 if p is None else p for p in priorities])[work.ops.stream]
    rows = np.flatnonzero(work.engine_pred >= 0)
    before = work.engine_pred[rows]
    ready = np.maximum.reduce([work.stream_ready, work.fence_ready, work.event_ready, work.launched])[rows]
    held = np.minimum(work.ops.end[before], work.ops.start[rows]) - np.maximum(ready, work.ops.start[before])
    urgent = (
        (priority[rows] < priority[before])
        & (held > 0)
        & np.isin(work.engine[rows], (Engine.SM, Engine.H2D, Engine.D2H))
    )
    rows, waited = rows[urgent], int(held[urgent].sum())
    if waited < LEAST * case.wall:
        return None
    return Finding(
        cause="priority-inversion",
        title=f"{plural(len(rows), 'urgent operation')} waited behind work of lower priority",
        cost_ms=0.0,  # the engine works meanwhile: what is urgent comes late, and the whole is none the longer
        count=len(rows),
        evidence="They were ready and their streams have a higher priority, but operations of a lower one held their "
        f"engine: for {each_of(held[urgent])}. It delays them, not the run as a whole.",
        advice="Shorten the blocks of the bulk kernels, cut bulk copies into pieces, and keep few of them in flight.",
        where=case.where(case.issuers(rows)),
        repair=Repair(name="priority", grade="needs care", precondition="the urgent path matters more than the whole"),
        spans=np.column_stack((ready[urgent], work.ops.start[rows])),
    )
