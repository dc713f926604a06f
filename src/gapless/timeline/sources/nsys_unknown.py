"""What an Nsight Systems export cannot tell, and how to record so that it can."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.timeline.timeline import MarkKind, Timeline, Unknown

_EVENTS = "Record with nsys profile --cuda-event-trace=true."


def unknown(timeline: Timeline) -> Iterator[Unknown]:
    """Say what the export cannot tell of the work in it."""
    if not len(timeline.ops):
        return
    yield from _stream_kinds(timeline)
    yield from _host_calls(timeline)
    yield from _graphs(timeline)
    yield from _event_waits(timeline)
    yield from _sync_targets(timeline)
    yield Unknown(
        what="buffers",
        text="The export does not say which memory the operations read and write.",
        remedy="No option of nsys records it.",
    )
    if not (timeline.calls.stack >= 0).any():
        yield Unknown(
            what="source-lines",
            text="The export does not say from which lines of the program the work came.",
            remedy="Record with nsys profile --cudabacktrace=all --sample=cpu, or name the program's parts with NVTX "
            "ranges and record with nsys profile --trace=cuda,nvtx.",
        )
    yield from _memory_kinds(timeline)


def _stream_kinds(timeline: Timeline) -> Iterator[Unknown]:
    used = [timeline.streams[row] for row in np.unique(timeline.ops.stream).tolist()]
    if blind := sum(stream.kind is StreamKind.UNKNOWN for stream in used):
        yield Unknown(
            what="stream-kinds",
            text=f"For {blind:,} of {len(used):,} streams the export does not say whether they wait for the default "
            "stream.",
            remedy="Export with a version of nsys that writes the table TARGET_INFO_CUDA_STREAM.",
        )


def _host_calls(timeline: Timeline) -> Iterator[Unknown]:
    if not len(timeline.calls):
        yield Unknown(
            what="host-calls",
            text="The export has no host calls: it does not say when the host issued work and when it waited.",
            remedy="Record with nsys profile --trace=cuda.",
        )
    elif lone := int((timeline.ops.call < 0).sum()):
        yield Unknown(
            what="host-calls",
            text=f"The export does not say which call issued {lone:,} of {len(timeline.ops):,} operations.",
            remedy="Call cudaDeviceSynchronize() before the recording starts, so that no earlier work is in it.",
        )


def _graphs(timeline: Timeline) -> Iterator[Unknown]:
    if graphs := int((timeline.ops.kind == OpKind.GRAPH).sum()):
        yield Unknown(
            what="graph-nodes",
            text=f"{graphs:,} launches of CUDA graphs are recorded as a whole, not by the kernels and copies in them.",
            remedy="Record with nsys profile --cuda-graph-trace=node.",
        )


def _event_waits(timeline: Timeline) -> Iterator[Unknown]:
    marks = timeline.marks
    waits = marks.kind == MarkKind.WAIT
    told = ((marks.waits_on >= 0) | (marks.record >= 0)) & (marks.stream >= 0)
    blind = int((waits & ~told).sum())
    if blind or not len(timeline.calls):
        which = (
            f"For {blind:,} of {int(waits.sum()):,} waits of streams for events"
            if blind
            else "If streams wait for events"
        )
        yield Unknown(
            what="event-waits", text=f"{which}, the export does not say which stream waits for which.", remedy=_EVENTS
        )


def _sync_targets(timeline: Timeline) -> Iterator[Unknown]:
    marks = timeline.marks
    asked = np.isin(timeline.calls.kind, (CallKind.SYNC_STREAM, CallKind.SYNC_EVENT))
    told = ((marks.kind == MarkKind.SYNC_STREAM) & (marks.stream >= 0)) | (
        (marks.kind == MarkKind.SYNC_EVENT) & ((marks.waits_on >= 0) | (marks.record >= 0))
    )
    asked[marks.call[told & (marks.call >= 0)]] = False
    if blind := int(asked.sum()):
        yield Unknown(
            what="sync-targets",
            text=f"For {blind:,} synchronise call{'s' * (blind > 1)}, "
            "the export does not say which stream or event the host waits for.",
            remedy=_EVENTS,
        )


def _memory_kinds(timeline: Timeline) -> Iterator[Unknown]:
    ops = timeline.ops
    host = np.where(ops.kind == OpKind.H2D, ops.src, ops.dst)
    copies = (ops.kind == OpKind.H2D) | (ops.kind == OpKind.D2H)
    if blind := int((copies & (host == MemoryKind.UNKNOWN)).sum()):
        yield Unknown(
            what="memory-kinds",
            text=f"For {blind:,} of {int(copies.sum()):,} copies the export does not say whether the host's memory is "
            "pinned.",
            remedy="Export with a version of nsys that writes the columns srcKind and dstKind.",
        )
