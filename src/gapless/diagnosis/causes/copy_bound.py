"""The link is the limit: a copy engine works nearly all the time.

## What it finds
That the busiest engine is a copy engine and has next to no avoidable idle time. This is a verdict, not a fault.

## Why engines wait
The others wait for the link because there is more to move than to compute. Streams have done what they can.

## Evidence needed
The copies' intervals and bytes.

## What repairs it
Nothing in how the work is ordered. Move fewer bytes: keep data on the device between steps, copy smaller types
(float16, uint8 and conversion on the device), compress, compute more per byte moved.

## When the repair does not pay or is unsafe
Smaller types change results.

## What it cannot see
Whether the bytes are needed.
"""

from __future__ import annotations

from gapless.model.kinds import Engine

from ..case import Case
from ..report import Finding
from ..waits import Waits
from ..words import ms, size


def claims(case: Case) -> None:
    """None: a verdict takes no idle time upon itself."""


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how busy the link is and at what rate."""
    engine = case.blame.engine
    if engine not in (Engine.H2D, Engine.D2H) or not case.is_bound:
        return None
    name = engine.name
    use = case.measures.engines[engine]
    return Finding(
        cause="copy-bound",
        title=f"The {name} copies {case.fill_words}: the link is the limit",
        cost_ms=use.busy_ns / 1e6,
        count=use.ops,
        evidence=f"{name} copies run for {ms(use.busy_ns)} of {ms(case.wall)} ({case.busy(engine):.0%}), "
        f"{size(use.bytes)} at {use.gb_per_s:.3g} GB/s{case.turnaround_words}. Overlap has little left to give.",
        advice="Move fewer bytes: keep data on the device, copy smaller types and convert there.",
        verdict=True,
    )
