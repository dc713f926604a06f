"""More hardware queues (CUDA_DEVICE_MAX_CONNECTIONS=K), so that fewer streams share one.

Safe unless code relies on the order in which kernels of different streams were launched.
"""

from __future__ import annotations

from dataclasses import replace

from gapless.model.errors import GaplessError

from ..script import Script
from . import Shop

TAKES_VALUE = True
IDLE = "there is nothing to change"


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Give every engine *value* queues."""
    if value > 32:
        raise GaplessError(f"connections={value}: CUDA knows 1 to 32 connections.")
    return replace(script, connections=value)
