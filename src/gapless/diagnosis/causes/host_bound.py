"""The device waits for the host, which is doing something else.

## What it finds
Long gaps in which nothing was issued although the host was not waiting for the device: loading data, preprocessing,
logging, a slow interpreter. Also gaps of any length in which the program's own threads were staging: copying between
pageable and pinned memory.

## Why engines wait
The device runs only what it was given. While the host does its own work between launches, every engine is idle.

## Evidence needed
When each launch was called. Python frames or operators, where recorded, say what the host was at. Code that is loaded
for a kernel at the end of a wait may have been compiled in it. Of staging the
timeline of a ``gapless.Pipeline`` tells (``pipe.report().timeline``).

## What repairs it
Nothing on the GPU's side. Move the host's work off the launching thread: DataLoader workers (``num_workers``), a
prefetching thread, a faster decoder, logging every so many steps. Staging goes where the data are in pinned memory from
the start; until then more threads stage more. A long wait before next to any work is the start of the program
(loading, compiling): look at the rest of the run with ``--from``.

## When the repair does not pay or is unsafe
If the work is needed before the next launch and cannot be started earlier, only making it faster helps.

## What it cannot see
What the host did where the source has no frames or operators for it, and waits for locks or the network. Whether there
are CPUs for more threads.
"""

from __future__ import annotations

import numpy as np

from gapless.model.kinds import CallKind, OpKind

from ..case import Bools, Case
from ..report import Finding
from ..waits import Reason, Waits
from ..words import each_of, ms, times


def claims(case: Case) -> Bools:
    """Long waits for a host that was working, and all waits for one that staged."""
    return case.reason(Reason.HOST, Reason.OWN_STAGING)


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how long, how often, and what the host was at."""
    if not case.matters(waits):
        return None
    cost = int(waits.cost.sum())
    count = case.count(waits.op)
    staging = waits.take(waits.reason == Reason.OWN_STAGING)
    if staging.cost.sum() >= cost / 2:
        return _staging(case, waits, staging)
    doing = case.host_was_doing(waits)
    evidence = f"The host was not blocked by the device, and issued nothing for {each_of(case.costs(waits, waits.op))}"
    evidence += f" (in the longest, mostly in {doing})." if doing else "."
    advice = "Move that work off the launching thread (loader workers, a prefetching thread), or make it shorter."
    started = case.start_up
    if started is not None and _in_start(waits, started.end) >= cost / 2:
        evidence += " The longest is start-up (loading, compiling, setting up), which a longer run has once too."
        advice = f"Look at what comes after the start with {started.option}. Shorten the start itself "
        advice += "by keeping what was compiled, or by compiling and loading ahead of time."
    elif loaded := _loaded(case, waits):
        evidence += f" At {'its end' if count == 1 else 'the end of the longest'} the code of a kernel was loaded that "
        evidence += f"had not run before ({loaded})."
        advice = "If the host was compiling that: keep what was compiled from run to run, or run one warm-up step "
        advice += "before what matters. Else move the work off the launching thread, or make it shorter."
    return Finding(
        cause="host-bound",
        title=f"The device waits for the host's own work {times(count)}",
        cost_ms=cost / 1e6,
        count=count,
        evidence=evidence,
        advice=advice,
        where=case.where_before(waits),
        spans=case.spans(waits),
    )


def _loaded(case: Case, waits: Waits) -> str:
    """Name the call that loaded code within the longest wait, where a kernel ended it that had not run before."""
    longest = int(waits.cost.argmax())
    op, call = int(waits.op[longest]), int(waits.call[longest])
    ops, calls = case.work.ops, case.work.calls
    same = ops.name == ops.name[op]
    if ops.kind[op] != OpKind.KERNEL or ops.start[same].min() < ops.start[op]:
        return ""
    until = calls.start[call]
    loading = (calls.kind == CallKind.MODULE) & (calls.thread == calls.thread[call])
    rows = np.flatnonzero(loading & (calls.start >= until - waits.cost[longest]) & (calls.end <= until))
    return case.api_names(rows[-1:]) if len(rows) else ""


def _in_start(waits: Waits, end: int) -> int:
    """Give how much of the longest wait, in ns, lies before the start-up's *end*."""
    longest = int(waits.cost.argmax())
    return int(min(waits.cost[longest], end - waits.start[longest]))


def _staging(case: Case, waits: Waits, staging: Waits) -> Finding:
    """Say how long the device waited for what the program's own threads were staging."""
    cost, staged = int(waits.cost.sum()), int(staging.cost.sum())
    evidence = "What was to be issued next was still being copied between pageable and pinned memory, by the host: "
    evidence += f"{each_of(case.costs(staging, staging.op))}."
    if staged < cost:
        evidence += f" The host's other work costs {ms(cost - staged)}."
    return Finding(
        cause="host-bound",
        title=f"The device waits for host threads that stage pageable memory {times(case.count(waits.op))}",
        cost_ms=cost / 1e6,
        count=case.count(waits.op),
        evidence=evidence,
        advice="Keep input and results in pinned memory, which goes straight through; or let more threads stage, where "
        "there are CPUs for them.",
        where=case.where_before(waits),
        spans=case.spans(waits),
    )
