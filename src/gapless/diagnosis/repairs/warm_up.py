"""First uses happen before the loop: loading kernels, setting up libraries and pools.

Always safe; it moves the cost and does not remove it, so a program that runs once gains nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..host import FIRST_USE_FACTOR, FIRST_USE_LEAST
from ..script import Script
from . import Shop

TAKES_VALUE = False


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Let the first long call of each kind cost what such a call usually does, and let nothing be set up before it."""
    costs: dict[int, list[int]] = {}
    for act in script.acts:
        costs.setdefault(act.call, []).append(act.cost)
    usual = {call: int(np.median(all_)) for call, all_ in costs.items()}
    seen: set[tuple[int, int]] = set()
    acts = []
    for act in script.acts:
        kind = (act.call, act.name)
        long_ = act.cost >= max(FIRST_USE_LEAST, FIRST_USE_FACTOR * usual[act.call])
        cost = usual[act.call] if long_ and kind not in seen else act.cost
        acts.append(replace(act, cost=cost, gap=act.gap - act.setting_up, setting_up=0))
        seen.add(kind)
    changed = any(new is not old for new, old in zip(acts, script.acts, strict=True))
    return script.with_acts(acts) if changed else script
