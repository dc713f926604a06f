"""Pinned host memory: copies run at the rate of the link and no longer block the host.

Safe when each host buffer stays untouched until its copy is done, and is pinned once, outside the loop. The prediction
does not contain the pinning itself. A synchronise that a framework puts behind a copy of pageable memory stays; it
goes with ``no-sync``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.model.kinds import CallKind, MemoryKind, OpKind

from ..script import Act, Script
from . import Shop

TAKES_VALUE = False
_CALL = 2_000  # ns: own cost of cudaMemcpyAsync from pinned memory where the timeline has no sample


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Make every copy of pageable memory a pinned one; values of a few bytes stay as they are."""
    cost = _cost(script)
    return script.with_acts(
        _pinned(act, cost, shop) if act.pageable and not act.reads_back else act for act in script.acts
    )


def _pinned(act: Act, cost: int, shop: Shop) -> Act:
    kind = OpKind(act.op)
    return replace(
        act, cost=cost, post=0, waited=False, duration=shop.copy_time(kind, act.bytes),
        src=MemoryKind.PINNED if kind is OpKind.H2D else act.src,
        dst=MemoryKind.PINNED if kind is OpKind.D2H else act.dst,
    )  # fmt: skip


def _cost(script: Script) -> int:
    """What an asynchronous copy call costs: the timeline's own pinned ones, if it has some."""
    seen = [act.cost for act in script.acts
            if act.op in (OpKind.H2D, OpKind.D2H) and act.call == CallKind.COPY_ASYNC and not act.pageable]  # fmt: skip
    return int(np.median(seen)) if len(seen) >= 5 else _CALL
