"""A copy from or to ordinary (pageable) host memory is slow and blocks the host.

## What it finds
Copies between the device and host memory that is not pinned, where their slowness or the blocked host makes the binding
engine wait.

## Why engines wait
The copy engine can only reach pinned memory. For pageable memory the driver copies through a small pinned buffer of its
own with one host thread, so the copy runs at a fraction of the link's rate, and the "async" call returns only when the
data are staged (uploads above 2 MiB on an H200) or have arrived (downloads, any size) (table 3.1, R3.12). Until then
the host issues nothing, so no stream has anything to overlap with.

## Evidence needed
The memory kinds of the copies, which torch.profiler and Nsight give for NVIDIA GPUs. The rate of pinned copies is taken
from the same timeline where it has any, else assumed from the GPU's link; the evidence says which.

## What repairs it
``pin``: allocate the host side pinned (``torch.empty(..., pin_memory=True)``, ``DataLoader(pin_memory=True)``,
``cupyx.empty_pinned``, ``cudaHostAlloc``) once and reuse it, copy with ``non_blocking=True`` or ``cudaMemcpyAsync``,
and give the copies a stream of their own. Pinning alone on one stream makes copies fast, but they still take turns with
kernels.

## When the repair does not pay or is unsafe
Pinning fresh memory for every batch costs more than the slow copy (0.4 ms a MiB on an H200): pin once. Tiny copies gain
nothing. A pinned asynchronous copy reads its source later: the buffer must not be written, freed or reused until the
copy is done, so keep an event per buffer.

## What it cannot see
Copies of a host that stages into pinned memory itself, and AMD traces, which do not tell memory kinds.
"""

from __future__ import annotations

import numpy as np

from gapless.model.kinds import OpKind

from ..case import Bools, Case
from ..report import Finding, Repair
from ..waits import Reason, Waits
from ..words import directions, ms, plural, size


def claims(case: Case) -> Bools:
    """Slow copies, a host blocked for one, and a host that stages one."""
    return case.reason(Reason.SLOW_COPY, Reason.STAGING) | case.for_pageable_copy


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how slow the copies are beside pinned ones, and how long the host stood in them."""
    work = case.work
    ops = work.ops
    copies = np.flatnonzero(case.pageable_copies if len(waits) else case.pageable_copies & ~case.small_copies)
    if not len(copies):
        return None
    cost = int(waits.cost.sum())
    blocking = waits.reason != Reason.SLOW_COPY
    blocked = int(waits.cost[blocking].sum())
    slow = cost - blocked
    which = directions(ops.kind[copies])
    moved = int(np.maximum(ops.bytes[copies], 0).sum())
    lasted = int((ops.end - ops.start)[copies].sum())
    rate = case.rates[OpKind(int(ops.kind[copies[0]]))]
    apis = case.api_names(np.union1d(case.issuers(copies), waits.call[waits.reason == Reason.BLOCKED]))
    parts = [f"{plural(len(copies), 'copy', 'copies')}{f' by {apis}' if apis else ''} of {size(moved)} in all "
             f"{'uses' if len(copies) == 1 else 'use'} pageable host memory."]  # fmt: skip
    if slow:
        parts.append(f"At {moved / max(lasted, 1):.3g} GB/s, where pinned memory gives {rate}, that costs {ms(slow)}.")
    if blocked:
        parts.append(f"The calls keep the host from issuing more work: {ms(blocked)}.")
    if not cost:
        parts.append("Here that costs the device nothing.")
    return Finding(
        cause="pageable-copy",
        title=f"{plural(len(copies), f'{which} copy', f'{which} copies')} of pageable memory",
        cost_ms=cost / 1e6,
        count=len(copies),
        evidence=" ".join(parts),
        advice="Pin the host buffers once, reuse them, and copy with non_blocking=True (cudaMemcpyAsync) in a stream "
        "of their own.",
        where=case.where(case.issuers(copies)),
        repair=Repair(name="pin", grade="likely",
                      precondition="each pinned buffer stays untouched until its copy is done; pinned once, outside "
                      "the loop"),
        spans=case.spans(waits),
    )  # fmt: skip
