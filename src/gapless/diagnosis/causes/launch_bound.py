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

from ..blame import Reason, Waits
from ..case import Bools, Case, ms, plural
from ..report import Finding, Repair

LONGEST = 200_000  # ns: a gap beyond this is not the host's way from one launch to the next


def claims(case: Case) -> Bools:
    """Short waits for a host that was working."""
    return case.reason(Reason.HOST) & (case.waits.cost <= LONGEST)


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how long operations are beside the time that the host takes to issue one."""
    if not len(waits):
        return None
    work = case.work
    late = case.distinct(waits.op)
    cost = int(waits.cost.sum())
    duration = float(np.median((work.ops.end - work.ops.start)[late]))
    return Finding(
        cause="launch-bound",
        title=f"{plural(len(late), 'operation')} {'was' if len(late) == 1 else 'were'} issued late by a busy host",
        cost_ms=cost / 1e6,
        count=len(late),
        evidence=f"The device waits {ms(cost / max(len(late), 1))} for each of them, {ms(cost)} in all, and then "
        "works on it "
        f"for {ms(duration)} (median): the host issues more slowly than the device computes.",
        advice="Replay the loop as a CUDA graph (torch.cuda.graph, torch.compile mode='reduce-overhead'), or "
        "launch fewer, "
        "larger kernels.",
        where=case.where(case.issuers(late)),
        repair=Repair(name="graph", grade="needs care",
                      precondition="shapes, addresses and control flow stay the same, and nothing in the loop "
                      "synchronises "
                      "or allocates"),
        spans=case.spans(waits),
    )  # fmt: skip
