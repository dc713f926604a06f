"""Urgent work comes to its engine first: short blocks in the bulk work, few copies in flight.

Always safe: a priority orders nothing that a program may rely on. It makes the urgent path quicker, not the whole, so
the wall time is predicted to stay as it is.
"""

from __future__ import annotations

from ..script import Script
from . import Shop

TAKES_VALUE = False
IDLE = "a priority makes urgent work quicker, not the whole run"


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Change nothing in the order of the whole."""
    return script
