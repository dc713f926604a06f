"""A synchronous copy of pinned memory keeps the host waiting until it is done.

## What it finds
``cudaMemcpy`` and its kin (no ``Async``) on pinned memory, where the host stands in the call while it should issue the
next work.

## Why engines wait
The synchronous form waits for all earlier work of the default stream and of the blocking streams, then for its own copy
(table 3.1). While the host waits, nothing new is issued, so the engines run dry.

## Evidence needed
The call's kind and when it returned. A synchronous copy that is held by the default stream's fence counts as
``default-stream-barrier`` instead, one of pageable memory as ``pageable-copy``.

## What repairs it
``no-sync``: the asynchronous form in a stream, with an event recorded behind it for whoever needs the result.

## When the repair does not pay or is unsafe
The host may read the destination or reuse the source straight after the call: it must then wait for the event first. A
single copy at the end of the program costs what it costs.

## What it cannot see
What the host does with the data.
"""

from __future__ import annotations

from gapless.model.kinds import CallKind

from ..case import Bools, Case
from ..report import Finding, Repair
from ..waits import Waits
from ..words import directions, ms, plural


def claims(case: Case) -> Bools:
    """Waits behind a host blocked in a synchronous copy or memset."""
    return case.blocked_in(CallKind.COPY_SYNC, CallKind.MEMSET_SYNC)


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how long the host stood in synchronous copies."""
    if not len(waits):
        return None
    calls = case.distinct(waits.call)
    cost = int(waits.cost.sum())
    which = " ".join(["synchronous", directions(case.work.ops.kind[waits.by[waits.by >= 0]])]).strip()
    return Finding(
        cause="synchronous-copy",
        title=plural(len(calls), f"{which} copy", f"{which} copies"),
        cost_ms=cost / 1e6,
        count=len(calls),
        evidence=f"The host stands in {case.api_names(calls)} until the copy is done, and issues nothing meanwhile: "
        f"{ms(cost)} in which the {case.engine_words} wait.",
        advice="Use the Async form with a stream, and an event where the host needs the result.",
        where=case.where(calls),
        repair=Repair(name="no-sync", grade="likely",
                      precondition="the host touches source and destination only after the copy's event"),
        spans=case.spans(waits),
    )  # fmt: skip
