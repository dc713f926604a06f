"""One large copy, kernel and copy back are cut into K chunks, dealt to streams.

Safe when the kernel works on parts of its data independently. A chunk's kernel is taken to need its share of the time,
which holds while a chunk still fills the GPU.
"""

from __future__ import annotations

from dataclasses import replace

from gapless.model.kinds import CallKind, OpKind

from ..chunks import chunks_of
from ..flow import record_of, wait_for
from ..script import NEW_STREAM, Act, Script
from . import Shop

TAKES_VALUE = True
IDLE = "there is no copy with its kernel to cut into chunks"
STREAMS = 4
_CALL = 3_000  # ns of host time for each further call


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Cut every chunk that copies and computes into *value* parts."""
    members: dict[int, list[int]] = {}
    for i, number in chunks_of(script).items():
        members.setdefault(number, []).append(i)
    new: dict[int, list[Act]] = {}
    for rows in members.values():
        rows.sort()
        acts = [script.acts[i] for i in rows]
        kinds = {act.op for act in acts}
        if OpKind.KERNEL not in kinds or not kinds & {OpKind.H2D, OpKind.D2H}:
            continue
        for i in rows:
            new[i] = []
        new[rows[0]] = [_part(act, part, value, shop) for part in range(value) for act in acts]
    if not new:
        return script
    cut = {script.acts[i].stream for i in new}
    return _joined(script, [(act, new.get(i)) for i, act in enumerate(script.acts)], cut)


def _joined(script: Script, acts: list[tuple[Act, list[Act] | None]], cut: set[int]) -> Script:
    """Let whoever waited for a stream that has been cut up wait for all its parts."""
    events, joined = script.events, list[Act]()
    for act, parts in acts:
        if parts is not None:
            joined.extend(parts)
            continue
        if act.op == OpKind.RECORD and act.stream in cut:
            for part in range(STREAMS):
                there = replace(act, gap=0, stream=NEW_STREAM + part)
                joined += [record_of(events, there), wait_for(events, act)]
                events += 1
        elif act.synchronises and (act.stream in cut or act.event >= 0):
            act = replace(act, call=CallKind.SYNC_DEVICE, event=-1)
        joined.append(act)
    return replace(script.with_acts(joined), events=events)


def _part(act: Act, part: int, parts: int, shop: Shop) -> Act:
    copy = act.op in (OpKind.H2D, OpKind.D2H)
    size = act.bytes // parts if act.bytes >= 0 else -1
    time = act.duration / parts
    if copy and size >= 0:
        whole = shop.copy_time(OpKind(act.op), act.bytes)
        time = act.duration * shop.copy_time(OpKind(act.op), size) / max(whole, 1)
    blocks = act.grid and (max(1, act.grid[0] // parts), *act.grid[1:])
    return replace(act, bytes=size, duration=time, grid=blocks, stream=NEW_STREAM + part % STREAMS,
                   gap=act.gap if part == 0 else 0, cost=act.cost if part == 0 else min(act.cost, _CALL))  # fmt: skip
