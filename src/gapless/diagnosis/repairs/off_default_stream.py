"""The default stream's fence goes: the streams become non-blocking, the forgotten operation keeps its own order.

Safe when no stream relies on the fence for its order; where one does, an event and a wait take its place. A synchronous
copy on the default stream still keeps the host until it is done itself.
"""

from __future__ import annotations

from dataclasses import replace

from gapless.model.kinds import CallKind

from ..script import Script
from . import Shop

TAKES_VALUE = False
_SYNCHRONOUS_COPY = 3_500  # ns: own cost of a small cudaMemcpy that waits for nothing else (H200)


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Make all created streams non-blocking."""
    acts = (
        replace(act, cost=max(act.cost, _SYNCHRONOUS_COPY)) if act.call == CallKind.COPY_SYNC and act.waited else act
        for act in script.acts
    )
    return replace(script.with_acts(acts), non_blocking=True)
