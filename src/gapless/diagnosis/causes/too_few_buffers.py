"""There are several streams, but too few of them to keep every engine busy.

## What it finds
Uploads that wait for a download or a kernel of an earlier chunk in the same stream (or by an event), although their
engine is free: the chunk's stream or buffer is not free yet.

## Why engines wait
A chunk occupies its stream and buffers through upload, kernel and download. With k of them, k chunks are in flight, and
a new one starts only when one is through: a chunk needs at least 1/k of its three phases, so two slots with three equal
phases take 1.5 N + 1 instead of N + 2 (section 10).

## Evidence needed
The stream of every operation, and event waits where buffers are guarded by events (torch traces hold them only when
asked).

## What repairs it
``streams=4``: one more stream with its own buffers, until the sum of the phases divided by the streams is below the
longest phase. Three suffice for three equal phases on an ideal machine, four in practice.

## When the repair does not pay or is unsafe
Beyond that, streams only add memory and launch cost; copies in both directions share the link and slow each other. The
memory for k buffer sets must be there.

## What it cannot see
Buffers themselves: two streams that share a buffer look like independent ones.
"""

from __future__ import annotations

from ..case import Bools, Case
from ..report import Finding, Repair
from ..reuse import chunk_streams, phases
from ..waits import Reason, Waits
from ..words import ms, plural


def claims(case: Case) -> Bools:
    """Waits for stream order behind work whose result is not needed, where several streams take part."""
    return case.reason(Reason.REUSE)


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say how many streams there are and how long new chunks waited for a free one."""
    if not case.matters(waits):
        return None
    streams = len(chunk_streams(case))
    cost = int(waits.cost.sum())
    count = plural(case.count(waits.op), "operation")
    if _by_events(case, waits):
        title = "Chunks wait for a buffer that an earlier one still uses"
        what = f"{count} waited for work of an earlier chunk in another stream, not for its result: {ms(cost)}"
        more = max(4, streams)
        advice = f"Add sets of buffers, each guarded by its own event: {more} in all, so that as many chunks are in "
        advice += "flight."
    else:
        title = f"{plural(streams, 'stream')} {'is' if streams == 1 else 'are'} too few to fill the engines"
        what = f"{count} waited for an earlier chunk to leave the stream, not for its result: {ms(cost)}"
        more = max(4, streams + 1)
        advice = f"Add streams, each with its own buffers: {more} in all."
    return Finding(
        cause="too-few-buffers",
        title=title,
        cost_ms=cost / 1e6,
        count=case.count(waits.op),
        evidence=f"{phases(case)}. {what}.",
        advice=advice,
        where=case.where(case.issuers(waits.op)),
        repair=Repair(name=f"streams={more}", grade="likely",
                      precondition="the chunks are independent, and there is memory for as many buffer sets"),
        spans=case.spans(waits),
    )  # fmt: skip


def _by_events(case: Case, waits: Waits) -> bool:
    """Tell whether most of the waits are for another stream: an event guards the buffers, not stream order."""
    across = case.work.ops.stream[waits.op] != case.work.ops.stream[waits.by]
    return int(waits.cost[across].sum()) > int(waits.cost.sum()) // 2
