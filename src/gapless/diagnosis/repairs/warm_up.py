"""First uses happen before the loop: loading kernels, setting up libraries and pools.

Always safe; it moves the cost and does not remove it, so a program that runs once gains nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.model.kinds import CallKind

from ..script import Act, Script
from . import Shop

TAKES_VALUE = False
IDLE = "nothing is used for the first time here"

_LAUNCH = 5_000  # ns: what a launch costs at most, where the run has no other


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Let each call that used something for the first time cost what such a call usually does."""
    costs: dict[int, list[int]] = {}
    for act in script.acts:
        if not act.first_use:
            costs.setdefault(act.call, []).append(act.cost)
    usual = {call: int(np.median(all_)) for call, all_ in costs.items()}
    if not any(act.first_use or act.setting_up for act in script.acts):
        return script
    return script.with_acts(
        replace(act, cost=min(act.cost, _cost(act, usual)), gap=act.gap - act.setting_up, setting_up=0, first_use=False)
        for act in script.acts
    )


def _cost(act: Act, usual: dict[int, int]) -> int:
    """What the call costs when everything is loaded: as it usually does; as it did where the run does not tell."""
    if not act.first_use:
        return act.cost
    return usual.get(act.call, _LAUNCH if act.call == CallKind.LAUNCH else act.cost)
