"""The chunks are dealt to K streams in turn, each with its own buffers.

Safe when the chunks are independent of each other and every chunk in flight has buffers of its own; of kernels that
use each other's results the timeline shows nothing. Operations of one chunk keep their order.
"""

from __future__ import annotations

from dataclasses import replace

from gapless.model.kinds import CallKind

from ..chunks import chunks_of
from ..script import NEW_STREAM, Script
from . import Shop

TAKES_VALUE = True


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Deal the chunks to *value* streams."""
    chunk = chunks_of(script)
    if not chunk:
        return script
    last = script.last_operation()
    now: dict[int, int] = {}
    acts = []
    for i, act in enumerate(script.acts):
        if i in chunk:
            act = replace(act, stream=NEW_STREAM + chunk[i] % value)
            now[act.thread] = act.stream
        elif act.synchronises and act.call != CallKind.SYNC_DEVICE:
            if i > last:  # what waited for one stream at the end waits for all
                act = replace(act, call=CallKind.SYNC_DEVICE)
            elif act.stream >= 0:
                act = replace(act, stream=now.get(act.thread, act.stream))
        acts.append(act)
    return script.with_acts(acts)
