"""Launches are captured once and replayed as one.

Safe when shapes, addresses and control flow stay the same, and nothing in the captured stretch synchronises or
allocates. Only stretches of many launches are taken: with a value fetched every few launches there is nothing to
capture. What the host does between its launches is taken to be the launching itself.
"""

from __future__ import annotations

from dataclasses import replace

from gapless.model.kinds import OpKind

from ..script import Script
from . import Shop

TAKES_VALUE = False
IDLE = "there are not enough launches in a row to capture"
SHORTEST = 24  # launches in a row below which capturing is not worth it
_CAPTURED = (OpKind.KERNEL, OpKind.MEMSET, OpKind.D2D, OpKind.RECORD, OpKind.WAIT)
_LAUNCH = 1_300  # ns on the host for a graph of any size (H200)


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Replay every long enough stretch of kernels and memsets as one graph."""
    acts = list(script.acts)
    begin = 0
    changed = False
    for i in range(len(acts) + 1):
        captured = i < len(acts) and acts[i].op in _CAPTURED
        if captured and acts[i].thread == acts[begin].thread:
            continue
        if sum(act.works for act in acts[begin:i]) >= SHORTEST:
            changed = True
            acts[begin] = replace(acts[begin], cost=_LAUNCH)
            for j in range(begin + 1, i):
                acts[j] = replace(acts[j], gap=0, cost=0, post=0)
        begin = i if captured else i + 1
    return replace(script.with_acts(acts), graph=True) if changed else script
