"""Something is used for the first time inside the measured stretch.

## What it finds
Long calls that are the first of their kind: a kernel launched for the first time, a library or context being set up,
the first use of a memory pool.

## Why engines wait
CUDA loads kernels when they are first launched, and creates contexts, pools and library handles when they are first
needed. The host takes milliseconds for it, and on an H200 the first launch of a kernel also makes everything issued
later wait for all work that is pending on the device (R4.1).

## Evidence needed
The calls' durations and the order of the launches.

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

from ..case import Bools, Case, ms, plural
from ..host import first_uses
from ..report import Finding, Repair
from ..waits import Reason, Waits


def claims(case: Case) -> Bools:
    """Waits for a host that used something for the first time."""
    return case.reason(Reason.FIRST_USE)


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say which calls took how long."""
    if not case.matters(waits):
        return None
    calls = case.work.calls
    rows = first_uses(case.work)
    rows = rows[(calls.start[rows] < case.work.end) & (calls.end[rows] > case.work.start)]
    cost = int(waits.cost.sum())
    return Finding(
        cause="first-use",
        title=f"{plural(len(rows), 'first use')} inside the measured stretch",
        cost_ms=cost / 1e6,
        count=len(rows),
        evidence=f"{case.api_names(rows)} took {ms(int((calls.end - calls.start)[rows].max(initial=0)))} at the "
        "longest, the "
        f"first of its kind; the {case.engine_words} waited {ms(cost)} for it.",
        advice="Run one warm-up step before the loop that matters, or look at later steps with --steps or --from.",
        where=case.where(rows),
        repair=Repair(name="warm-up", grade="sure", precondition="the loop runs more than once"),
        spans=case.spans(waits),
    )
