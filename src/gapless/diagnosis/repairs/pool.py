"""Allocations move out of the loop, or to a pool that does not ask the driver.

Safe when no code relies on the free as a synchronise, and a buffer goes back to the pool only after its last use.
"""

from __future__ import annotations

from ..script import ALLOCATION_CALLS, Script
from . import Shop

TAKES_VALUE = False


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Leave out every call that allocates or frees."""
    return script.without(i for i, act in enumerate(script.acts) if act.op < 0 and act.call in ALLOCATION_CALLS)
