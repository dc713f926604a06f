"""Many small copies cost their latency, not their bytes.

## What it finds
Host copies of at most 64 KiB, many of them and several in a row, where the time goes into issuing and completing each.

## Why engines wait
A copy takes 1 to 2 microseconds on its engine and 3 to 10 on the host before its first byte counts; 64 KiB move in one
more. From pageable memory with a framework's synchronise behind each, it is tens of microseconds a copy. The engines
wait for the host.

## Evidence needed
Sizes and calls of the copies.

## What repairs it
``batch-copies``: gather the pieces into one pinned buffer and copy once, then take views on the device; or
``cudaMemcpyBatchAsync``. Put scalars into kernel arguments.

## When the repair does not pay or is unsafe
Gathering costs a pass over host memory; where each copy is already large there is nothing to win. Pieces that become
ready at different times would wait for the last.

## What it cannot see
Whether the pieces lie side by side in memory already.
"""

from __future__ import annotations

import numpy as np

from gapless.model.kinds import OpKind

from ..case import COPY_CALLS, SYNC_CALLS, Bools, Case
from ..report import Finding, Repair
from ..waits import Reason, Waits
from ..words import directions, ms, plural, size
from ..work import at

MANY = 16  # fewer small copies than this are no pattern


def claims(case: Case) -> Bools:
    """Waits for the host around small copies: issuing them, staging them, waiting for nothing else."""
    if np.count_nonzero(case.small_copies) < MANY:
        return np.zeros(len(case.waits), bool)
    late = case.reason(Reason.HOST, Reason.STAGING) & case.from_call_to_call
    alone = case.small_copies & (case.work.stream_ready <= case.work.launched)
    blocked = case.blocked_in(*COPY_CALLS, *SYNC_CALLS) & at(alone, case.waits.by, False) & ~case.by_fenced
    return (late & at(case.small_copies, case.waits.op, False)) | blocked


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how many, how small, and what each costs."""
    if not case.matters(waits):
        return None
    ops = case.work.ops
    copies = np.flatnonzero(case.small_copies)
    moved = int(ops.bytes[copies].sum())
    cost = int(waits.cost.sum())
    rate = case.rates[OpKind(int(ops.kind[copies[0]]))]
    return Finding(
        cause="small-copies",
        title=f"{plural(len(copies), 'small copy', 'small copies')} ({directions(ops.kind[copies])}, "
        f"{size(moved / len(copies))} on average)",
        cost_ms=cost / 1e6,
        count=len(copies),
        evidence=f"They move {size(moved)} in all. On average each costs {ms(cost / len(copies))} of issuing "
        f"and waiting, {ms(cost)} together; the bytes themselves would take {ms(moved / rate.gb_per_s)} at {rate}.",
        advice="Gather the pieces in one pinned buffer, copy once, and take views on the device.",
        where=case.where(case.issuers(copies)),
        repair=Repair(name="batch-copies", grade="likely", precondition="the pieces are ready at the same time"),
        spans=case.spans(waits),
    )
