"""The kernels are the limit: the SMs work nearly all the time.

## What it finds
That the SMs are the busiest engine and have next to no avoidable idle time. This is a verdict, not a fault.

## Why engines wait
The copy engines wait for the kernels because there is more to compute than to move. Streams have done what they can, or
there is nothing for them to do: one long kernel after another is no case for streams.

## Evidence needed
The kernels' intervals.

## What repairs it
Nothing in how the work is ordered. Make the kernels faster (Nsight Compute, better algorithms, lower precision, fused
operators), or use more devices.

## When the repair does not pay or is unsafe
An SM that is busy need not be well used: this says nothing of how good the kernels are.

## What it cannot see
How well a block uses its SM, and whether kernels that leave room depend on each other.
"""

from __future__ import annotations

import numpy as np

from gapless.model.kinds import Engine, OpKind

from ..case import Case
from ..fit import share_of_gpu
from ..report import Finding
from ..waits import Waits
from ..words import ms, plural

ROOMY = 0.5  # part of the GPU's room below which it is worth a word


def claims(case: Case) -> None:
    """None: a verdict takes no idle time upon itself."""


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how busy the SMs are and with what."""
    if case.blame.engine is not Engine.SM or not case.is_bound:
        return None
    use = case.measures.engines[Engine.SM]
    filled = _filled(case)
    room = f" On average they fill {filled:.0%} of the GPU's room for blocks." if filled < ROOMY else ""
    return Finding(
        cause="kernel-bound",
        title=f"The kernels {case.fill_words}" + ("" if not room else ", but leave room on the SMs"),
        cost_ms=use.busy_ns / 1e6,
        count=use.ops,
        evidence=f"{plural(use.ops, 'kernel, copy or memset', 'kernels, copies and memsets')} on the SMs run for "
        f"{ms(use.busy_ns)} of {ms(case.wall)} ({case.busy(Engine.SM):.0%}){case.turnaround_words}. Most time goes to "
        f"{case.longest_kernel}.{room}",
        advice="Larger launches, or independent kernels in other streams, could use the room; kernels that need "
        "each other's results cannot."
        if room
        else "Make the kernels faster (Nsight Compute tells how good), or use more devices; streams cannot help.",
        verdict=True,
    )


def _filled(case: Case) -> float:
    """Give the part of the GPU that the kernels take, weighted by their time."""
    ops = case.work.ops
    rows = np.flatnonzero(ops.kind == OpKind.KERNEL)
    spent = (ops.end - ops.start)[rows]
    return float((share_of_gpu(case.work, rows) * spent).sum() / spent.sum()) if spent.sum() else 1.0
