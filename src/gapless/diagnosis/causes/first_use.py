"""Something is used for the first time inside the measured stretch.

## What it finds
Long calls that are the first of their kind: a kernel launched for the first time, a library or context being set up,
the first use of a memory pool. Operators of a framework that take long before they launch a kernel for the first time,
because they compile it.

## Why engines wait
CUDA loads kernels when they are first launched, and creates contexts, pools and library handles when they are first
needed. The host takes milliseconds for it, and on an H200 the first launch of a kernel also makes everything issued
later wait for all work that is pending on the device (R4.1).

## Evidence needed
The calls' durations and the order of the launches; the operators, for what is set up outside of calls to CUDA.

## What repairs it
``warm-up``: run one step with the same shapes before the loop that matters, or load everything at start with
``CUDA_MODULE_LOADING=EAGER``.

## When the repair does not pay or is unsafe
It moves the cost, it does not remove it: a program that runs once gains nothing. Judge a steady loop without its first
steps (``--steps`` or ``--from``).

## What it cannot see
First uses before the profiler was started, and the profiler's own set-up, which looks the same.
"""

from __future__ import annotations

import numpy as np

from ..case import Bools, Case
from ..report import Finding, Repair
from ..waits import Reason, Waits
from ..words import ms, plural


def claims(case: Case) -> Bools:
    """Waits for a host that used something for the first time."""
    return case.reason(Reason.FIRST_USE)


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say what took how long."""
    if not case.matters(waits):
        return None
    first = case.first_uses
    order = np.argsort(first.start - first.end, kind="stable")
    longest = order[:1]
    cost = int(waits.cost.sum())
    return Finding(
        cause="first-use",
        title=f"{plural(len(order), 'first use')} inside the measured stretch",
        cost_ms=cost / 1e6,
        count=len(order),
        evidence=f"The longest, at {case.where(first.call[longest])[0].brief}, took "
        f"{ms(int((first.end - first.start)[longest][0]))}; the {case.engine_words} waited {ms(cost)} for all of them.",
        advice="Run one warm-up step before the loop that matters, or look at later steps with --steps or --from.",
        where=case.where(first.call[order]),
        repair=Repair(name="warm-up", grade="sure", precondition="the loop runs more than once"),
        spans=case.spans(waits),
    )
