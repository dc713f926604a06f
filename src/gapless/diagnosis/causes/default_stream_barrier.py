"""An operation on the legacy default stream holds up every other stream.

## What it finds
Work on the legacy default stream (a plain ``cudaMemcpy`` or ``cudaMemset``, a kernel launched without a stream, an
event recorded there) between work of streams that were meant to overlap.

## Why engines wait
The legacy default stream is a fence. Work put into it waits for everything issued before it in all blocking streams,
and everything issued later in any of them waits for it (R2.1, R2.2). One forgotten 4-byte copy in a loop makes four
streams as slow as one. If the call is synchronous, the host waits as well and issues nothing meanwhile (R3.1).

## Evidence needed
Which stream is the default one, and which streams are blocking. Sources that do not tell are read by the fencing that
the timeline shows; the kinds are then marked as inferred.

## What repairs it
``off-default-stream``: give the forgotten operation the stream of the work that it belongs to (``cudaMemcpyAsync`` with
a stream, a launch with its stream argument, ``with torch.cuda.stream(s)``), or create the streams with
``cudaStreamNonBlocking``, or build with ``--default-stream per-thread``.

## When the repair does not pay or is unsafe
The fence may be the only thing that orders two streams. Where work in one stream uses what another one or the default
stream produced, record an event after the producer and let the consumer's stream wait for it before the fence goes. It
gains nothing when the engines are busy anyway.

## What it cannot see
Fences that cost nothing because the host was late too, and default-stream calls inside libraries by name.
"""

from __future__ import annotations

import numpy as np

from gapless.model.kinds import CallKind, StreamKind

from ..case import Bools, Case, Ints
from ..report import Finding, Repair
from ..waits import Reason, Waits
from ..words import ms, plural


def claims(case: Case) -> Bools:
    """Waits for the fence, on the device or by a host blocked in a synchronous copy that the fence holds."""
    held = case.by_fenced & case.blocked_in(CallKind.COPY_SYNC, CallKind.MEMSET_SYNC)
    return case.reason(Reason.FENCE) | held


def finding(case: Case, waits: Waits) -> Finding | None:
    """Say which default-stream operations fenced which streams."""
    if not len(waits):
        return None
    work = case.work
    culprits = _culprits(case, waits)
    if not len(culprits):
        return None
    fenced = [s for s in case.streams_of(np.concatenate((waits.op, waits.by[waits.by >= 0])))
              if work.timeline.streams[s].kind is not StreamKind.LEGACY]  # fmt: skip
    inferred = any(work.timeline.streams[s].inferred for s in fenced)
    issuers = case.issuers(culprits)
    cost = int(waits.cost.sum())
    spent = int((work.ops.end - work.ops.start)[culprits].sum())
    return Finding(
        cause="default-stream-barrier",
        title=f"{plural(len(culprits), 'operation')} on the default stream fence{'s' * (len(culprits) == 1)} "
        f"{plural(len(fenced), 'other stream')}",
        cost_ms=cost / 1e6,
        count=len(culprits),
        evidence=f"{case.api_names(issuers) or 'Work'} on the legacy default stream takes {ms(spent)} itself, but "
        f"waits for all work of {plural(len(fenced), 'blocking stream')}"
        f"{' (blocking by the fencing seen)' * inferred} and holds back what comes after: {ms(cost)} in which the "
        f"{case.engine_words} wait.",
        advice="Put the operation into the stream of the work it belongs to (the Async form with a stream), or create "
        "the streams with cudaStreamNonBlocking.",
        where=case.where(issuers),
        repair=Repair(name="off-default-stream", grade="likely",
                      precondition="no stream relies on the fence for its order; if one does, an event and a wait take "
                      "its place"),
        spans=case.spans(waits),
    )  # fmt: skip


def _culprits(case: Case, waits: Waits) -> Ints:
    """Give the default-stream operations behind these waits, and all others that the fence held."""
    work = case.work
    legacy = np.array([s.kind is StreamKind.LEGACY for s in work.timeline.streams])[work.ops.stream]
    seen = np.concatenate((waits.op, waits.by[waits.by >= 0]))
    preds = work.fence_pred[seen]
    held = np.flatnonzero(legacy & (work.fence_pred >= 0) & (work.fence_ready >= work.stream_ready))
    seen = np.unique(np.concatenate((seen, preds[preds >= 0], held)))
    return seen[legacy[seen]]
