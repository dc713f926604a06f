"""Virtual time goes on only when it is told to."""

from __future__ import annotations

import pytest

from gapless.model.errors import GaplessError
from gapless.model.units import ms
from gapless.testing import Clock


def test_time_stands_still():
    clock = Clock()
    assert clock.now == 0
    clock.advance("3ms")
    clock.advance(2 * ms)
    assert clock.now == 5 * ms
    assert clock.seconds() == 0.005


def test_what_is_due_happens_in_order():
    clock, seen = Clock(), []
    for time, what in (("3ms", "c"), ("1ms", "a"), ("1ms", "b"), ("9ms", "d")):
        clock.at(time, lambda what=what: seen.append((what, clock.now // ms)))
    clock.advance("3ms")
    assert seen == [("a", 1), ("b", 1), ("c", 3)]
    assert clock.advance_to_next()
    assert seen[-1] == ("d", 9)
    assert not clock.advance_to_next()


def test_what_happens_may_ask_for_more():
    clock, ticks = Clock(), []

    def tick() -> None:
        ticks.append(clock.now // ms)
        clock.after("2ms", tick)

    clock.after("2ms", tick)
    clock.advance("7ms")
    assert ticks == [2, 4, 6]
    assert clock.now == 7 * ms


def test_sleeping_is_advancing():
    clock, seen = Clock(), []
    clock.at("1ms", lambda: seen.append("woken"))
    clock.sleep(0.0005)
    assert seen == []
    clock.sleep(0.0005)
    assert seen == ["woken"]


def test_time_does_not_go_back():
    clock = Clock()
    clock.advance("2ms")
    with pytest.raises(GaplessError, match="it is 2ms already; 1ms is over"):
        clock.at("1ms", lambda: None)
    for back in (lambda: clock.advance(-1), lambda: clock.sleep(-1.0), lambda: clock.after(-5, lambda: None)):
        with pytest.raises(GaplessError, match="does not go back"):
            back()
