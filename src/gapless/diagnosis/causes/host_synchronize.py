"""The host waits for the device inside the loop, so the device waits for the host.

## What it finds
``cudaDeviceSynchronize``, ``cudaStreamSynchronize`` or ``cudaEventSynchronize`` in the loop, and values that the host
fetches (``.item()``, ``if tensor:``, ``nonzero``), after which the device stands idle until the host has issued more.

## Why engines wait
A synchronise returns when the device is done. From then until the next launch has arrived there is nothing to run:
every engine idles for the length of the host's work between two launches, and copies of the next chunk, which could
have run beside the kernel, start only afterwards.

## Evidence needed
When the call began and returned, and which operation ended just before. A trace that does not say what a call waits for
is read by that end.

## What repairs it
``no-sync``: order work on the device with events (``cudaEventRecord``, ``cudaStreamWaitEvent``), wait once at the end,
and fetch values for logging every so many steps or with ``non_blocking=True`` one step late. The lightest wait that
fits: an event between streams, a query, an event on the host, a stream, the device.

## When the repair does not pay or is unsafe
Where the host is the slower side anyway (small kernels, a busy interpreter) the device would idle just as long: then
the cause is ``launch-bound`` or ``host-bound``, and removing the synchronise gains nothing. A result that the host
reads, or a buffer that it writes again, needs a wait of some kind: keep an event for it.

## What it cannot see
What the host does with the value, and waits that spin on a query.
"""

from __future__ import annotations

import numpy as np

from gapless.model.kinds import OpKind

from ..case import COPY_CALLS, SYNC_CALLS, Bools, Case, Ints
from ..host import TINY
from ..report import Finding, Repair
from ..waits import Waits
from ..words import each_of, plural, times

FEW = 2  # one synchronise in the middle of a program is no loop


def claims(case: Case) -> Bools:
    """Waits behind a host blocked in a synchronise, or in the fetch of a small value."""
    return case.blocked_in(*SYNC_CALLS) | (case.blocked_in(*COPY_CALLS) & case.read_back)


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say which calls kept the host, how often, and what stood still meanwhile."""
    calls = _in_loop(case)
    if not len(waits) and len(calls) < FEW:
        return None
    calls = np.union1d(calls, case.distinct(waits.call))
    cost = int(waits.cost.sum())
    values = bool(np.count_nonzero(case.work.ops.bytes[_fetched(case, waits)] <= TINY) > len(waits) / 2)
    if cost:
        costs = case.costs(waits, waits.call)
        some = f", after {len(costs):,} of them" if len(costs) < len(calls) else ""
        effect = f"the {case.engine_words} then wait {each_of(costs)}{some}"
    else:
        effect = "that costs the device nothing here: it has work in hand, or waits for something else"
    return Finding(
        cause="host-synchronize",
        title=f"The host waits for the device {times(len(calls))}{' in the loop' * (len(calls) > 1)}"
        if cost
        else f"{plural(len(calls), 'synchronise call')} between the launches",
        cost_ms=cost / 1e6,
        count=len(calls),
        evidence=f"In {case.api_names(calls)}{' for values fetched from the device' * values} the host issues nothing; "
        f"{effect}.",
        advice="Fetch values later or less often (every n steps, or non_blocking and read one step late)."
        if values
        else "Order streams with events and wait once, at the end; where the host needs a result, wait on its event.",
        where=case.where(waits.call, waits) if len(waits) else case.where(calls),
        repair=Repair(name="no-sync", grade="needs care",
                      precondition="nothing that the host reads or overwrites relies on the wait; where it does, an "
                      "event takes its place"),
        spans=case.spans(waits),
    )  # fmt: skip


def _in_loop(case: Case) -> Ints:
    """Give the synchronise calls after which more work was issued, also those that had nothing to wait for."""
    work = case.work
    between = (work.calls.end <= work.issue.max()) & (work.calls.end > work.start)
    return np.flatnonzero(between & np.isin(work.calls.kind, SYNC_CALLS))


def _fetched(case: Case, waits: Waits) -> Ints:
    """Give the downloads that these waits were for."""
    by = waits.by[waits.by >= 0]
    return by[case.work.ops.kind[by] == OpKind.D2H]
