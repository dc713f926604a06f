"""The chunks of a script: which operations belong to one pass of copy in, compute, copy out."""

from __future__ import annotations

from gapless.model.kinds import OpKind

from .script import Script
from .walk import is_reuse

_COPIES = (OpKind.H2D, OpKind.D2H)


def chunks_of(script: Script) -> dict[int, int]:
    """Give the number of the chunk for each act that belongs to one (by index), chunks in order of issue.

    A chunk begins where an operation needs nothing of the one before it in its stream: an upload behind anything
    else, or anything behind a download. Without copies every kernel is a chunk. Streams without kernels carry none.
    """
    streams: dict[int, list[int]] = {}
    for i, act in enumerate(script.acts):
        if act.op >= 0 and act.op not in (OpKind.RECORD, OpKind.WAIT):
            streams.setdefault(act.stream, []).append(i)
    carriers = [rows for rows in streams.values() if any(script.acts[i].op == OpKind.KERNEL for i in rows)]
    copies = any(script.acts[i].op in _COPIES and not script.acts[i].reads_back for rows in carriers for i in rows)
    head_of: dict[int, int] = {}
    for rows in carriers:
        head, before = rows[0], -1
        for i in rows:
            op = script.acts[i].op
            if before >= 0 and (is_reuse(before, op) if copies else op == OpKind.KERNEL):
                head = i
            head_of[i], before = head, op
    number = {head: n for n, head in enumerate(sorted(set(head_of.values())))}
    return {i: number[head] for i, head in head_of.items()}
