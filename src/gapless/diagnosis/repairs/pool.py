"""Allocations move out of the loop, or to a pool that does not ask the driver.

Safe when no code relies on the free as a synchronise, and a buffer goes back to the pool only after its last use.
What the first of them set up besides (a context, say) is still to be set up: ``warm-up`` moves that, not a pool.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..script import ALLOCATION_CALLS, Script
from . import Shop

TAKES_VALUE = False
IDLE = "nothing is allocated or freed"


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Leave out every call that allocates or frees; the time that a first use took beyond such a call stays."""
    gone = [i for i, act in enumerate(script.acts) if act.op < 0 and act.call in ALLOCATION_CALLS]
    acts = list(script.acts)
    for i in gone:
        if acts[i].first_use:
            usual = [act.cost for act in script.acts if act.call == acts[i].call and not act.first_use]
            setting_up = max(0, acts[i].cost - int(np.median(usual))) if usual else acts[i].cost
            acts[i] = replace(acts[i], gap=acts[i].gap + setting_up, setting_up=acts[i].setting_up + setting_up)
    return script.with_acts(acts).without(gone) if gone else script
