"""Pinned host memory: copies run at the rate of the link and no longer block the host.

Safe when each host buffer stays untouched until its copy is done, and is pinned once, outside the loop. The prediction
does not contain the pinning itself. A copy that kept the host waiting also kept work of other streams behind it: what
needs its data waits for an event instead, and the prediction holds that. A synchronise that a framework puts behind a
copy of pageable memory stays; it goes with ``no-sync``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.model.kinds import CallKind, MemoryKind, OpKind

from ..flow import needs, next_in_other_stream, with_waits
from ..script import Act, Script
from . import Shop

TAKES_VALUE = False
IDLE = "there is nothing to pin (no copy uses pageable memory)"
_CALL = 2_000  # ns: own cost of cudaMemcpyAsync from pinned memory where the timeline has no sample


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Make every copy of pageable memory a pinned one; values of a few bytes stay as they are."""
    cost = _cost(script)
    pageable = [i for i, act in enumerate(script.acts) if act.pageable and not act.reads_back]
    if not pageable:
        return script
    acts = list(script.acts)
    for i in pageable:
        acts[i] = _pinned(acts[i], cost, shop)
    following = next_in_other_stream(script)
    return with_waits(
        script.with_acts(acts),
        [(i, following[i]) for i in pageable if script.acts[i].waited and i in following
         and needs(acts[following[i]], acts[i])],
    )  # fmt: skip


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
