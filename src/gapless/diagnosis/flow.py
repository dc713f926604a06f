"""Data that pass from one stream to another: where a repair takes an ordering away, an event keeps what they need.

A timeline shows no buffers. Data flow through H2D, kernel, D2H, and a host thread issues what belongs together one
after the other: so an upload and the kernel issued next, or a kernel and the download issued next, are taken to need
each other. What comes after a download, or an upload after anything, only reuses buffers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gapless.model.kinds import CallKind, OpKind

from .script import Act, Script

RECORD_COST, WAIT_COST = 500, 300  # ns of host time (H200: 0.4 and 0.3 us)

_COMPUTES = (OpKind.KERNEL, OpKind.D2D)


def needs(after: Act, before: Act) -> bool:
    """Tell whether an operation is taken to need the result of the one that was issued before it."""
    if before.op == OpKind.H2D:
        return after.op in (*_COMPUTES, OpKind.D2H)
    return before.op in _COMPUTES and after.op == OpKind.D2H


def with_waits(script: Script, pairs: Iterable[tuple[int, int]]) -> Script:
    """Let operations wait for others by events: pairs ``(before, after)`` of acts, by index."""
    records: dict[int, int] = {}
    waits: dict[int, list[int]] = {}
    for before, after in pairs:
        event = records.setdefault(before, script.events + len(records))
        waits.setdefault(after, []).append(event)
    if not records:
        return script
    acts: list[Act] = []
    for i, act in enumerate(script.acts):
        acts.extend(wait_for(event, act) for event in waits.get(i, ()))
        acts.append(act)
        if i in records:
            acts.append(record_of(records[i], act))
    return replace(script.with_acts(acts), events=script.events + len(records))


def record_of(event: int, act: Act) -> Act:
    """Give the call that records an event behind an act."""
    return Act(thread=act.thread, gap=0, call=CallKind.RECORD, cost=RECORD_COST, op=OpKind.RECORD, stream=act.stream,
               event=event)  # fmt: skip


def wait_for(event: int, act: Act) -> Act:
    """Give the call that lets an act's stream wait for an event."""
    return Act(thread=act.thread, gap=0, call=CallKind.WAIT_EVENT, cost=WAIT_COST, op=OpKind.WAIT, stream=act.stream,
               event=event)  # fmt: skip


def next_in_other_stream(script: Script) -> dict[int, int]:
    """Give for each act the next one of its thread that works, where that is in another stream than the act's own."""
    found: dict[int, int] = {}
    following: dict[int, int] = {}
    for i in range(len(script.acts) - 1, -1, -1):
        act = script.acts[i]
        after = following.get(act.thread, -1)
        if after >= 0 and script.acts[after].stream != act.stream:
            found[i] = after
        if act.works:
            following[act.thread] = i
    return found


__all__ = ["needs", "next_in_other_stream", "record_of", "wait_for", "with_waits"]
