"""Several processes share one GPU and take turns on it.

## What it finds
Work of more than one process on the same device in one timeline.

## Why engines wait
Kernels of different processes never run at the same time: the device switches between contexts in slices of a
millisecond or two (section 6.4). Streams order work inside one process and cannot change that.

## Evidence needed
Host calls of several processes that issue work to one device.

## What repairs it
The Multi-Process Service (MPS): its clients count as one process and their kernels can share the SMs. Or one process
with several streams, or one device for each process.

## When the repair does not pay or is unsafe
MPS clients share a fate: a fatal error in one reaches the others. If each process fills the GPU alone, MPS wins little.

## What it cannot see
Processes that the profiler did not record.
"""

from __future__ import annotations

import numpy as np

from gapless.timeline.measure import total, union

from ..case import Case
from ..report import Finding
from ..waits import Waits


def claims(case: Case) -> None:
    """None: a verdict takes no idle time upon itself."""


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how many processes share the device."""
    work = case.work
    issued = work.ops.call >= 0
    threads = work.timeline.threads
    pids = np.array([thread.pid for thread in threads])
    if not issued.any() or not len(pids):
        return None
    owner = pids[work.calls.thread[work.ops.call[issued]]]
    start, end = work.ops.start[issued], work.ops.end[issued]
    worked = {int(pid): total(union(start[owner == pid], end[owner == pid])) for pid in np.unique(owner)}
    if len(worked) < 2:
        return None
    rest = min(sum(worked.values()) - max(worked.values()), case.wall)
    return Finding(
        cause="several-processes",
        title=f"{len(worked)} processes share this GPU",
        cost_ms=rest / 1e6,
        count=len(worked),
        evidence=f"Processes {', '.join(map(str, sorted(worked)))} issue work to one device. Without MPS their kernels "
        "never run at the same time, whatever streams they use.",
        advice="Start the Multi-Process Service (MPS), or use one process with several streams. Streams do not work "
        "between processes.",
        verdict=True,
    )
