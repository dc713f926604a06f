"""Memory is allocated and freed inside the loop.

## What it finds
``cudaMalloc``, ``cudaFree``, ``cudaHostAlloc``, ``cudaFreeHost``, ``cudaHostRegister`` and their kin between launches,
where they keep the host from issuing work.

## Why engines wait
``cudaFree``, ``cudaFreeHost`` and ``cudaHostUnregister`` wait for all work on the device, non-blocking streams
included, and ``cudaMalloc`` and pinning take long on the host (0.4 ms for each MiB pinned on an H200) (section 4, D1).
Each of them also keeps other host threads from launching (R4.2).

## Evidence needed
The calls themselves. Frameworks with caching allocators call them only while their cache grows or is emptied.

## What repairs it
``pool``: allocate once before the loop and reuse, or use ``cudaMallocAsync`` / ``cudaFreeAsync`` with a release
threshold, a caching allocator, or the framework's pool. In PyTorch: avoid ``torch.cuda.empty_cache()`` in the loop, set
``expandable_segments:True`` where shapes vary, and run one warm-up step with the largest shapes.

## When the repair does not pay or is unsafe
The free was also a synchronise: code that relied on it for order needs an event instead, and memory that goes back to a
pool may be handed out while another stream still uses it. Allocations before the loop, once, cost what they cost.

## What it cannot see
Why an allocator had to ask the driver; fragmentation.
"""

from __future__ import annotations

import numpy as np

from ..case import ALLOCATION_CALLS, Bools, Case
from ..report import Finding, Repair
from ..waits import Reason, Waits
from ..words import ms, plural

FEW = 2  # one allocation is no loop


def claims(case: Case) -> Bools:
    """Waits behind a host that is blocked in a free or busy in an allocation."""
    return case.blocked_in(*ALLOCATION_CALLS) | case.reason(Reason.ALLOCATING)


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say which calls allocate, how long they took and how long frees waited for the device."""
    calls, issued = case.work.calls, case.work.issue
    between = (calls.end > max(case.work.start, int(issued.min()))) & (calls.start < issued.max())
    rows = np.flatnonzero(np.isin(calls.kind, ALLOCATION_CALLS) & between)
    if not len(waits) and len(rows) < FEW:
        return None
    rows = np.union1d(rows, case.distinct(waits.call[waits.reason == Reason.BLOCKED]))
    cost = int(waits.cost.sum())
    blocked = int(waits.cost[waits.reason == Reason.BLOCKED].sum())
    counts = ", ".join(f"{count:,} {name}" for name, count in case.count_by_api(rows))
    parts: list[str] = []
    if blocked:
        parts.append(f"frees that wait for the whole device cost {ms(blocked)}")
    if cost - blocked:
        parts.append(f"the host's own time in the calls costs {ms(cost - blocked)}")
    return Finding(
        cause="allocation-in-loop",
        title=f"{plural(len(rows), 'allocation call')} between the launches",
        cost_ms=cost / 1e6,
        count=len(rows),
        evidence=f"{counts}: {' and '.join(parts) or 'here they cost the device nothing'}.",
        advice="Allocate before the loop and reuse, or take a stream-ordered pool (cudaMallocAsync with a release "
        "threshold).",
        where=case.where(rows),
        repair=Repair(name="pool", grade="likely",
                      precondition="no code relies on the free as a synchronise; a buffer goes back to the pool only "
                      "after its last use"),
        spans=case.spans(waits),
    )  # fmt: skip
