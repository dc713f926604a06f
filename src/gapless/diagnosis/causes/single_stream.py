"""Copies and kernels take turns in one stream.

## What it finds
Uploads, kernels and downloads that all sit in one stream, so that only one engine works at a time.

## Why engines wait
A stream is a queue: each operation starts when the one before it is done (R1.3), even if it needs another engine and
none of the results. N chunks of three equal phases then take 3N units instead of N + 2 (section 10).

## Evidence needed
The stream of every operation. An upload behind a kernel or a download, or anything behind a download, needs no result
of it: that is the order which costs.

## What repairs it
``streams=4``: deal the chunks to three or four streams, each with its own input and output buffers, all from pinned
memory and with the stream passed to every call. For a training or inference loop: ``prefetch=2``, the next inputs
copied on a copy stream with an event for the hand-over.

## When the repair does not pay or is unsafe
Streams win at most what the other engines do beside the busiest one; if kernels fill the time (``kernel-bound``)
nothing is left to win. Chunks of one stream may share buffers safely; in several streams every chunk in flight needs
its own. One large copy and one large kernel must first be cut into chunks.

## What it cannot see
Which buffers the operations use: whether chunks depend on each other is for you to say.
"""

from __future__ import annotations

from gapless.model.kinds import StreamKind

from ..blame import Reason, Waits
from ..case import Bools, Case, ms
from ..report import Finding, Repair
from ..reuse import chunk_streams, phases


def claims(case: Case) -> Bools:
    """Waits for stream order behind work whose result is not needed, where one stream carries it all."""
    reuse = case.reason(Reason.REUSE)
    return reuse & (len(chunk_streams(case, case.waits.take(reuse))) == 1)


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say what takes turns, and what the longest phase alone would take."""
    if not len(waits):
        return None
    stream = case.work.timeline.streams[chunk_streams(case, waits)[0]]
    name = "the default stream" if stream.kind is StreamKind.LEGACY else f"stream {stream.id}"
    cost = int(waits.cost.sum())
    return Finding(
        cause="single-stream",
        title=f"Copies and kernels take turns in {name}",
        cost_ms=cost / 1e6,
        count=case.count(waits.op),
        evidence=f"{phases(case)}, one after another in {name}: {ms(cost)} in which an operation waits for one "
        "whose result it does not need.",
        advice="Deal the chunks to 3 or 4 streams, each with its own pinned buffers; pass the stream to every call.",
        where=case.where(case.issuers(waits.op)),
        repair=Repair(name="streams=4", grade="likely",
                      precondition="the chunks are independent, and every chunk in flight has buffers of its own"),
        spans=case.spans(waits),
    )  # fmt: skip
