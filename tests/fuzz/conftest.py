"""Damage for traces and recordings, and what must hold of whatever a reader makes of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from damaged_traces import LAYOUTS, check, damaged, trace


@pytest.fixture(scope="session")
def fuzzing() -> SimpleNamespace:
    """Give what damages traces and checks timelines."""
    return SimpleNamespace(trace=trace, damaged=damaged, check=check, layouts=LAYOUTS)
