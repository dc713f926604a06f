"""The device waits for other devices: collectives and peer copies.

## What it finds
Time in which only communication runs: NCCL (RCCL) kernels or peer copies with no other kernel beside them.

## Why engines wait
A collective is done when the slowest rank has joined, so its kernel also contains the wait for the others. Streams of
one device order nothing on another (PGC 6.2.9.3).

## Evidence needed
Kernel names of the collective libraries, and peer copies. Which rank was late needs the timelines of all ranks.

## What repairs it
Nothing in this device's streams alone: overlap communication with computation (gradient buckets, asynchronous
collectives), balance the ranks, use NCCL over NVLink rather than copies through the host, and peer access.

## When the repair does not pay or is unsafe
Communication kernels take SMs from computation; overlapping them helps only if both fit.

## What it cannot see
The other ranks: whether this one waits or is waited for.
"""

from __future__ import annotations

import re

import numpy as np

from gapless.model.kinds import Engine, OpKind
from gapless.timeline.measure import subtract, total, union

from ..case import Case
from ..report import Finding
from ..waits import Waits
from ..words import ms, plural

_COLLECTIVE = re.compile(r"nccl|rccl|nvshmem|all_?reduce|all_?gather|reduce_?scatter", re.IGNORECASE)
LEAST = 0.05  # of the window


def claims(case: Case) -> None:
    """None: a verdict takes no idle time upon itself."""


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how long only communication ran."""
    work, ops = case.work, case.work.ops
    names = np.unique(ops.name[ops.kind == OpKind.KERNEL])
    collective = [row for row in names.tolist() if _COLLECTIVE.search(work.timeline.name_of(row))]
    talk = np.isin(ops.name, collective) & (ops.kind == OpKind.KERNEL) | (ops.kind == OpKind.P2P)
    rows = np.flatnonzero(talk)
    if not len(rows):
        return None
    others = np.flatnonzero(~talk & (work.engine == Engine.SM))
    exposed = total(subtract(union(ops.start[rows], ops.end[rows]), union(ops.start[others], ops.end[others])))
    if exposed < LEAST * case.wall:
        return None
    lasted = total(union(ops.start[rows], ops.end[rows]))
    return Finding(
        cause="several-devices",
        title="Communication with other devices is not hidden behind computation",
        cost_ms=exposed / 1e6,
        count=len(rows),
        evidence=f"{plural(len(rows), 'collective or peer copy', 'collectives and peer copies')} last"
        f"{'s' * (len(rows) == 1)} {ms(lasted)}; for {ms(exposed)} of it nothing else runs on this device. Their time "
        "includes waiting for slower ranks.",
        advice="Overlap communication with computation (buckets, asynchronous collectives) and balance the ranks; "
        "streams of one device cannot help.",
        where=case.where(case.issuers(rows)),
        verdict=True,
    )
