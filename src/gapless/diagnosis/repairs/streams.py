"""The chunks are dealt to K streams in turn, each with its own buffers.

Safe when the chunks are independent of each other and every chunk in flight has buffers of its own; of kernels that
use each other's results the timeline shows nothing. Operations of one chunk keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gapless.model.kinds import CallKind, OpKind

from ..chunks import chunks_of
from ..script import NEW_STREAM, Act, Script
from . import Shop

TAKES_VALUE = True
IDLE = "there are no chunks of copies and kernels to deal to streams"


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Deal the chunks to *value* streams."""
    chunk = chunks_of(script)
    if not chunk:
        return script
    dealt = {i: NEW_STREAM + number % value for i, number in chunk.items()}
    last = script.last_operation()
    now: dict[int, int] = {}
    acts = []
    for i, act in enumerate(script.acts):
        if i in dealt:
            act = replace(act, stream=dealt[i])
            now[act.thread] = act.stream
        elif act.synchronises and act.call != CallKind.SYNC_DEVICE:
            if i > last:  # what waited for one stream at the end waits for all
                act = replace(act, call=CallKind.SYNC_DEVICE, event=-1)
            elif act.stream >= 0:
                act = replace(act, stream=now.get(act.thread, act.stream))
        acts.append(act)
    return script.with_acts(_with_their_events(acts, script.acts, dealt))


def _with_their_events(acts: list[Act], before: Sequence[Act], dealt: Mapping[int, int]) -> list[Act]:
    """Let the record of an event follow the work before it, and the wait for one the work behind it."""
    for kind, order in ((OpKind.RECORD, range(len(acts))), (OpKind.WAIT, range(len(acts) - 1, -1, -1))):
        there: dict[int, int] = {}
        for i in order:
            if i in dealt:
                there[before[i].stream] = dealt[i]
            elif acts[i].op == kind:
                acts[i] = replace(acts[i], stream=there.get(before[i].stream, before[i].stream))
    return acts
