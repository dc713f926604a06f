"""What an Nsight Systems export cannot tell, and how to record so that it can."""

from __future__ import annotations

from collections.abc import Iterator

from gapless.timeline.sources.cupti_unknown import gaps
from gapless.timeline.timeline import Timeline, Unknown

_EVENTS = "Record with nsys profile --cuda-event-trace=true."
_REMEDIES = {
    "stream-kinds": "Export with a version of nsys that writes the table TARGET_INFO_CUDA_STREAM.",
    "host-calls": "Call cudaDeviceSynchronize() before the recording starts, so that no earlier work is in it.",
    "graph-nodes": "Record with nsys profile --cuda-graph-trace=node.",
    "event-waits": _EVENTS,
    "sync-targets": _EVENTS,
    "buffers": "No option of nsys records it.",
    "source-lines": "Record with nsys profile --cudabacktrace=all --sample=cpu, or name the program's parts with NVTX "
    "ranges and record with nsys profile --trace=cuda,nvtx.",
    "memory-kinds": "Export with a version of nsys that writes the columns srcKind and dstKind.",
}


def unknown(timeline: Timeline) -> Iterator[Unknown]:
    """Say what the export cannot tell of the work in it."""
    if len(timeline.ops):
        blind = {} if len(timeline.calls) else {"host-calls": "Record with nsys profile --trace=cuda."}
        yield from gaps(timeline, "export", _REMEDIES | blind)
