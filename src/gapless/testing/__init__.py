"""For other people's tests: assertions, exploration, virtual time, conformance of devices.

::

    from gapless.testing import assert_overlaps, assert_race_free

    def test_the_loop():
        assert_race_free("loop.tape", runs=200)
        assert_overlaps("loop.tape", "h1", "k0")

``conformance`` holds the checks that every device of a pipeline must pass.
"""

from __future__ import annotations

from gapless.model.explore import Choice, Exploration, explore, replay, runs

from .assertions import (
    assert_busy,
    assert_holds,
    assert_no_overlap,
    assert_ordered,
    assert_overlaps,
    assert_race_free,
    assert_unordered,
)
from .clock import Clock

__all__ = [
    "Choice", "Clock", "Exploration", "assert_busy", "assert_holds", "assert_no_overlap", "assert_ordered",
    "assert_overlaps", "assert_race_free", "assert_unordered", "explore", "replay", "runs",
]  # fmt: skip
