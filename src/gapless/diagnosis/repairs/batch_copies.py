"""Small copies of one direction are gathered and done as one.

Safe when the pieces are ready at the same time. The gathering on the host is not in the prediction; neither is what
the host did between the small copies, which was issuing them.
"""

from __future__ import annotations

from dataclasses import replace

from gapless.model.kinds import OpKind

from ..script import Script
from . import Shop

TAKES_VALUE = False
IDLE = "there are not enough small copies to gather"
SMALL = 64 * 1024  # bytes
FEWEST = 16


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Make one copy of all small ones of each direction, where the first of them stood."""
    dropped: set[int] = set()
    acts = list(script.acts)
    for kind in (OpKind.H2D, OpKind.D2H):
        small = [i for i, act in enumerate(acts) if act.op == kind and 0 <= act.bytes <= SMALL and not act.reads_back]
        if kind is OpKind.H2D:
            small = [i for i, act in enumerate(acts) if act.op == kind and 0 <= act.bytes <= SMALL]
        if len(small) < FEWEST:
            continue
        size = sum(acts[i].bytes for i in small)
        slower = sum(acts[i].duration for i in small) / max(sum(shop.copy_time(kind, acts[i].bytes) for i in small), 1)
        time = shop.copy_time(kind, size) * (max(slower, 1.0) if acts[small[0]].pageable else 1.0)
        acts[small[0]] = replace(acts[small[0]], bytes=size, duration=time, gap=0)
        for i in small[1:]:
            dropped.add(i)
            if i + 1 < len(acts) and acts[i + 1].synchronises and i + 1 < len(acts) - 1:
                dropped.add(i + 1)  # the synchronise that a framework puts behind each copy
            acts[i] = replace(acts[i], gap=0)
    return script.with_acts(acts).without(dropped) if dropped else script
