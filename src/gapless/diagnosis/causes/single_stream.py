"""Copies and kernels take turns in one stream.

## What it finds
Uploads, kernels and downloads that all sit in one stream, so that only one engine works at a time.

## Why engines wait
A stream is a queue: each operation starts when the one before it is done (R1.3), even if it needs another engine and
none of the results. N chunks of three equal phases then take 3N units instead of N + 2 (section 10).

## Evidence needed
The stream of every operation. An upload behind a kernel or a download, or anything behind a download, needs no result
of it: that is the order which costs. One large copy in each direction, where that is all there is.

## What repairs it
``streams=4``: deal the chunks to three or four streams, each with its own input and output buffers, all from pinned
memory and with the stream passed to every call. ``prefetch=1`` where many kernels follow each input and nothing but
values comes back, as in training: the next input is copied on a copy stream, with an event for the hand-over.
``chunks=8`` where there is but one large copy: cut it, and deal the pieces to streams.

## When the repair does not pay or is unsafe
Streams win at most what the other engines do beside the busiest one; if kernels fill the time (``kernel-bound``)
nothing is left to win. Chunks of one stream may share buffers safely; in several streams every chunk in flight needs
its own. Steps that build on one another must not be dealt to streams.

## What it cannot see
Which buffers the operations use: whether chunks depend on each other is for you to say.
"""

from __future__ import annotations

import numpy as np

from gapless.model.kinds import Engine, OpKind, StreamKind

from ..case import PAYS, Bools, Case
from ..host import TINY
from ..report import Finding, Repair
from ..reuse import chunk_streams, phases
from ..waits import Reason, Waits
from ..words import ms, size
from ..work import Ints

CHUNKS = 8  # to cut one large chunk into
STEP = 4  # kernels for each input, from which it is a step of a larger program
LARGE = 8 << 20  # bytes: an eighth of it still moves at the rate of the link


def claims(case: Case) -> Bools:
    """Waits for stream order behind work whose result is not needed, where one stream carries it all."""
    return case.reason(Reason.REUSE) & (len(chunk_streams(case)) == 1)


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say what takes turns, and what the longest phase alone would take."""
    if not case.matters(waits):
        return _one_chunk(case)
    cost = int(waits.cost.sum())
    advice = "Deal the chunks to 3 or 4 streams, each with its own pinned buffers; pass the stream to every call."
    repair = "streams=4"
    precondition = "the chunks are independent, and every chunk in flight has buffers of its own"
    if _is_steps(case):
        advice = "Copy the next input from pinned memory in a stream of its own, while the kernels work on this one; "
        advice += "an event hands it over."
        repair = "prefetch=1"
        precondition = "the next input is known a step ahead, and there is memory for one more"
    return Finding(
        cause="single-stream",
        title=f"Copies and kernels take turns in {_stream_name(case)}",
        cost_ms=cost / 1e6,
        count=case.count(waits.op),
        evidence=f"{phases(case)}, one after another in {_stream_name(case)}: {ms(cost)} in which an operation waits "
        "for one whose result it does not need.",
        advice=advice,
        where=case.where(case.issuers(waits.op)),
        repair=Repair(name=repair, grade="likely", precondition=precondition),
        spans=case.spans(waits),
    )


def _is_steps(case: Case) -> bool:
    """Tell whether inputs go to many kernels and nothing but values comes back, as in training: steps, not chunks.

    A step may build on the one before, so steps must not be dealt to streams.
    """
    ops = case.work.ops
    inputs = np.count_nonzero((ops.kind == OpKind.H2D) & (ops.bytes > TINY))
    results = np.count_nonzero((ops.kind == OpKind.D2H) & (ops.bytes > TINY))
    return not results and bool(np.count_nonzero(ops.kind == OpKind.KERNEL) >= STEP * inputs)


def _one_chunk(case: Case) -> Finding | None:
    """Tell of one large copy with all that follows from it: a pipeline of a single chunk, which can overlap nothing."""
    ops = case.work.ops
    copies = np.flatnonzero(np.isin(ops.kind, (OpKind.H2D, OpKind.D2H)))
    one_each = all(np.count_nonzero(ops.kind[copies] == kind) <= 1 for kind in (OpKind.H2D, OpKind.D2H))
    if not one_each or ops.bytes[copies].max(initial=0) < LARGE:
        return None
    phase = [int(case.needed[case.work.engine == engine].sum()) for engine in (Engine.H2D, Engine.SM, Engine.D2H)]
    # Section 10: n chunks take the longest phase, and an n-th of the others.
    saved = (sum(phase) - max(phase)) * (CHUNKS - 1) // CHUNKS
    if saved < PAYS * case.wall or saved > case.wall - max(phase):
        return None
    return Finding(
        cause="single-stream",
        title=f"One large copy and its kernels take turns in {_stream_name(case)}",
        cost_ms=saved / 1e6,
        count=1,
        evidence=f"{phases(case)}, one after another: a single chunk of {size(ops.bytes[copies].max())} leaves nothing "
        f"to overlap with. In {CHUNKS} chunks, the others would hide behind the longest but for the first and last.",
        advice=f"Cut the data into {CHUNKS} or more chunks and deal them to 3 or 4 streams, each with its own pinned "
        "buffers.",
        where=case.where(case.issuers(copies)),
        repair=Repair(name=f"chunks={CHUNKS}", grade="needs care",
                      precondition="the kernels can work on a part of the data at a time"),
        spans=_turns(case, copies),
    )  # fmt: skip


def _turns(case: Case, copies: Ints) -> Ints:
    """The time of the copies, in which the other engines wait."""
    return np.column_stack((case.work.ops.start[copies], case.work.ops.end[copies]))


def _stream_name(case: Case) -> str:
    stream = case.work.timeline.streams[chunk_streams(case)[0]]
    return "the default stream" if stream.kind is StreamKind.LEGACY else f"stream {stream.id}"
