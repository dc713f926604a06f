"""Independent streams share a hardware queue and wait for each other.

## What it finds
Operations that were ready by all that the timeline shows and yet started only when other streams' work was done, in a
program with more busy streams than the device has queues.

## Why engines wait
Streams are mapped onto a few hardware queues, 8 for kernels and 4 for each copy direction by default on an H200. A
queue is in order: an operation at its head that cannot start yet holds back those of other streams behind it (R6.5,
R6.6).

## Evidence needed
More than 8 streams with work in flight (4 for copies), and waits that no other rule explains. Never certain: a hidden
event wait looks the same.

## What repairs it
``connections=32``: the environment variable CUDA_DEVICE_MAX_CONNECTIONS, set before the context is created; or fewer
streams (2 to 4 do in most programs); or issue breadth-first.

## When the repair does not pay or is unsafe
Some programs set one connection on purpose, to start communication kernels in order. More connections than streams
change nothing.

## What it cannot see
The mapping itself.
"""

from __future__ import annotations

import numpy as np

from gapless.model.kinds import OpKind

from ..case import Bools, Case
from ..report import Finding, Repair
from ..waits import Reason, Waits
from ..words import ms, plural

QUEUES, COPY_QUEUES = 8, 4  # R6.5, defaults
COPIES = (OpKind.H2D, OpKind.D2H)


def claims(case: Case) -> Bools:
    """Unexplained waits in programs with more streams in use than queues."""
    ops = case.work.ops
    copies = np.isin(ops.kind, COPIES)
    crowded = len(np.unique(ops.stream[~copies])) > QUEUES
    crowded_copies = len(np.unique(ops.stream[copies])) > COPY_QUEUES
    return case.reason(Reason.UNEXPLAINED) & np.where(copies[case.waits.op], crowded_copies, crowded)


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how many streams compete, and how long ready work waited."""
    if not case.matters(waits):
        return None
    ops, cost = case.work.ops, int(waits.cost.sum())
    count = case.count(waits.op)
    of_copies = np.isin(ops.kind, COPIES)
    mostly_copies = np.count_nonzero(of_copies[waits.op]) > len(waits) / 2
    streams = len(np.unique(ops.stream[of_copies == mostly_copies]))
    queues = f"{COPY_QUEUES} hardware queues for copies each way" if mostly_copies else f"{QUEUES} hardware queues"
    return Finding(
        cause="hardware-queue",
        title=f"{streams} streams share {queues}",
        cost_ms=cost / 1e6,
        count=count,
        evidence=f"{plural(count, 'operation')} started {ms(cost)} after all that the timeline shows had let "
        f"{'it' if count == 1 else 'them'}. A queue shared with a stalled stream is the likely reason; an event wait "
        "that the timeline does not show would look the same.",
        advice="Use fewer streams, or set CUDA_DEVICE_MAX_CONNECTIONS=32 before the program starts.",
        where=case.where(case.issuers(waits.op)),
        repair=Repair(name="connections=32", grade="needs care", precondition="no code relies on launch order"),
        spans=case.spans(waits),
    )
