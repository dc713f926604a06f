"""Kernels are so short that the host cannot launch them fast enough.

## What it finds
Gaps before kernels whose launch came late, short enough and many enough to be the host's way from launch to launch.

## Why engines wait
A launch costs the host 3 to 10 microseconds, a framework's operator 20 to 50 with its interpreter and dispatcher. A
kernel that runs for less is over before the next one arrives, so the device waits for each launch. More streams do not
help: it is the host that is busy all the time.

## Evidence needed
When each launch was called and when the operation began.

## What repairs it
``graph``: capture the loop's launches once and replay them with one call (``torch.cuda.graph``, ``torch.compile`` with
``mode="reduce-overhead"``, ``cudaStreamBeginCapture``). Fewer and larger kernels: bigger batches, fused operators.

## When the repair does not pay or is unsafe
A graph repeats exactly what was captured: shapes, addresses and control flow must not change, and nothing in it may
synchronise or allocate. Where the host waits for data (``host-bound``) a graph changes nothing.

## What it cannot see
How much of the host's time is the profiler's own: tracing doubles the cost of the smallest operations.
"""

from __future__ import annotations

import numpy as np

from ..case import Bools, Case
from ..report import Finding, Repair
from ..waits import Reason, Waits
from ..words import each_of, ms, plural


def claims(case: Case) -> Bools:
    """Short waits for a host that went from call to call.

    And what the engine would wait for the host if nothing else held it up, where that is more than lifting all the
    rest would win.
    """
    late = case.reason(Reason.HOST) & case.from_call_to_call
    pace = case.reason(Reason.PACE)
    others = case.reason(Reason.REUSE, Reason.FENCE, Reason.BLOCKED)
    return late | (pace & (case.waits.cost[pace].sum() > case.waits.cost[others].sum()))


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how long operations are beside the time that the host takes to issue one."""
    if not case.matters(waits):
        return None
    late = waits.take(waits.reason == Reason.HOST)
    cost, waited = int(waits.cost.sum()), int(late.cost.sum())
    ops = case.distinct((late if waited >= cost / 2 else waits).op)
    duration = float(np.median((case.work.ops.end - case.work.ops.start)[ops]))
    title = f"{plural(len(ops), 'operation')} {'was' if len(ops) == 1 else 'were'} issued late by a busy host"
    parts: list[str] = []
    if waited:
        parts.append(f"The device waits {each_of(case.costs(late, late.op))}, and then works for {ms(duration)} "
                     "(median): the host issues more slowly than the device works.")  # fmt: skip
    if waited < cost:
        parts.append(f"Without the waits for other reasons it would wait {ms(cost - waited)}{' more' * bool(waited)} "
                     "for the host to issue its work.")  # fmt: skip
    if waited < cost / 2:
        title = "The host issues the work hardly faster than the device does it"
    return Finding(
        cause="launch-bound",
        title=title,
        cost_ms=cost / 1e6,
        count=len(ops),
        evidence=" ".join(parts),
        advice="Replay the loop as a CUDA graph (torch.cuda.graph, torch.compile mode='reduce-overhead'), or issue "
        "fewer and larger operations (larger batches or chunks, fused kernels).",
        where=case.where(case.issuers(ops), late if len(late) else None),
        repair=Repair(name="graph", grade="needs care",
                      precondition="shapes, addresses and control flow stay the same, and nothing in the loop "
                      "synchronises or allocates"),
        spans=case.spans(waits),
    )  # fmt: skip
