"""Lanes of a GPU's crew, with a driver that is played: which copies it is asked for, and what is left to NumPy."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gapless.runtime.devices import Copies
from gapless.runtime.devices.cuda import CudaError, Lanes


class Driver:
    """Copies at once, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.problem = 0

    def cuMemcpyAsync(self, target: int, source: int, size: int, stream: int) -> int:  # noqa: N802
        self.asked.append((size, stream))
        if not self.problem:
            ctypes.memmove(target, source, size)
        return self.problem


class Event:
    def __init__(self, stream: int = 7) -> None:
        self.stream = stream
        self.is_timed = True
        self.waits = 0

    def wait(self) -> None:
        self.waits += 1

    def time_ns(self) -> int:
        return 0


def lanes_of(driver: Driver) -> Any:
    def expect(problem: int) -> None:
        if problem:
            raise CudaError(f"CUDA_ERROR_OF_THE_TEST ({problem})")

    device: Any = SimpleNamespace(copying=driver, current=nullcontext, expect=expect)
    return Lanes(device, 1)


@pytest.mark.parametrize("what", ["whole", "strided target", "strided source", "list", "two", "nothing", "no event"])
def test_one_whole_copy_after_an_event_is_the_drivers(what: str) -> None:
    driver, event = Driver(), Event()
    lanes = lanes_of(driver)
    target, source = np.zeros(100, np.float32), np.arange(100, dtype=np.float32)
    pairs: list[Any] = [(target, source)]
    if what == "strided target":
        pairs = [(target[::2], source[:50])]
    elif what == "strided source":
        pairs = [(target[:50], source[::2])]
    elif what == "list":
        pairs = [(target, [source[:30], source[30:]])]
    elif what == "two":
        pairs = [(target[:50], source[:50]), (target[50:], source[50:])]
    elif what == "nothing":
        pairs = [(target[:0], source[:0])]
    begun, ended = lanes.copy(Copies(pairs, after=None if what == "no event" else event))
    assert begun <= ended
    for got, wanted in pairs:
        assert np.array_equal(got, np.concatenate(wanted) if isinstance(wanted, list) else wanted)
    assert driver.asked == ([(400, 7)] if what == "whole" else [])
    assert event.waits == (0 if what in ("whole", "no event") else 1)


def test_what_the_driver_reports_comes_back_with_the_token() -> None:
    driver = Driver()
    driver.problem = 700
    lanes = lanes_of(driver)
    lanes.submit(0, "token", Copies([(np.zeros(9), np.ones(9))], after=Event()))
    done = lanes.next()
    lanes.close()
    assert (done.token, str(done.error)) == ("token", "CUDA_ERROR_OF_THE_TEST (700)")
