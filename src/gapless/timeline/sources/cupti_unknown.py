"""What the tables of CUPTI leave open, whoever kept them; how to record so that they do not is the source's to say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.timeline.timeline import MarkKind, Timeline, TouchKind, Unknown


def gaps(timeline: Timeline, source: str, remedies: Mapping[str, str]) -> Iterator[Unknown]:
    """Say what a timeline with work in it does not tell. *source* is what it is called: "export", "recording".

    *remedies* say by slug how to record so that it does.
    """
    found = (_stream_kinds, _host_calls, _graphs, _event_waits, _sync_targets, _buffers, _source_lines, _memory_kinds)
    for look in found:
        for what, text in look(timeline, source):
            yield Unknown(what=what, text=text, remedy=remedies.get(what, ""))


def _stream_kinds(timeline: Timeline, source: str) -> Iterator[tuple[str, str]]:
    used = [timeline.streams[row] for row in np.unique(timeline.ops.stream).tolist()]
    if blind := sum(stream.kind is StreamKind.UNKNOWN for stream in used):
        yield (
            "stream-kinds",
            f"For {blind:,} of {len(used):,} streams the {source} does not say whether they wait for the default "
            "stream.",
        )


def _host_calls(timeline: Timeline, source: str) -> Iterator[tuple[str, str]]:
    if not len(timeline.calls):
        yield (
            "host-calls",
            (f"The {source} has no host calls: it does not say when the host issued work and when it waited."),
        )
    elif lone := int((timeline.ops.call < 0).sum()):
        yield "host-calls", f"The {source} does not say which call issued {lone:,} of {len(timeline.ops):,} operations."


def _graphs(timeline: Timeline, source: str) -> Iterator[tuple[str, str]]:
    if graphs := int((timeline.ops.kind == OpKind.GRAPH).sum()):
        yield (
            "graph-nodes",
            f"{graphs:,} launches of CUDA graphs are recorded as a whole, not by the kernels and copies in them.",
        )


def _event_waits(timeline: Timeline, source: str) -> Iterator[tuple[str, str]]:
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
        yield "event-waits", f"{which}, the {source} does not say which stream waits for which."


def _sync_targets(timeline: Timeline, source: str) -> Iterator[tuple[str, str]]:
    marks = timeline.marks
    asked = np.isin(timeline.calls.kind, (CallKind.SYNC_STREAM, CallKind.SYNC_EVENT))
    told = ((marks.kind == MarkKind.SYNC_STREAM) & (marks.stream >= 0)) | (
        (marks.kind == MarkKind.SYNC_EVENT) & ((marks.waits_on >= 0) | (marks.record >= 0))
    )
    asked[marks.call[told & (marks.call >= 0)]] = False
    if blind := int(asked.sum()):
        yield (
            "sync-targets",
            f"For {blind:,} synchronise call{'s' * (blind > 1)}, "
            f"the {source} does not say which stream or event the host waits for.",
        )


def _buffers(timeline: Timeline, source: str) -> Iterator[tuple[str, str]]:
    if not (timeline.touches.kind <= TouchKind.ARGUMENT).any():
        yield "buffers", f"The {source} does not say which memory the operations read and write."


def _source_lines(timeline: Timeline, source: str) -> Iterator[tuple[str, str]]:
    if not (timeline.calls.stack >= 0).any():
        yield "source-lines", f"The {source} does not say from which lines of the program the work came."


def _memory_kinds(timeline: Timeline, source: str) -> Iterator[tuple[str, str]]:
    ops = timeline.ops
    host = np.where(ops.kind == OpKind.H2D, ops.src, ops.dst)
    copies = (ops.kind == OpKind.H2D) | (ops.kind == OpKind.D2H)
    if blind := int((copies & (host == MemoryKind.UNKNOWN)).sum()):
        yield (
            "memory-kinds",
            f"For {blind:,} of {int(copies.sum()):,} copies the {source} does not say whether the host's memory is "
            "pinned.",
        )
