"""A device of real threads that stages like a GPU: its streams run by themselves, and only its own memory is pinned."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
import pytest

from gapless.runtime import calibrate
from gapless.runtime.calibrate import Costs
from gapless.runtime.devices import host, pool
from gapless.runtime.devices.address import address
from gapless.runtime.devices.host import Host

WAIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
COSTS = Costs(
    h2d_latency=2e3, h2d_rate=50.0, d2h_latency=2e3, d2h_rate=50.0, both=((1 << 20, 40.0, 40.0),), call=2e4,
    direct=5e4, staged=2e5, host_copy=((1, 10.0), (4, 30.0)), register=float("inf"),
)  # fmt: skip
FAILED = 700  # what a wait gives for an event that is none


def library() -> pool.Library:
    """Give the library of the staging threads; skip the test where there is none."""
    found = pool.load()
    if isinstance(found, str):
        pytest.skip(f"no staging threads in C: {found}")
    return found


def address_of(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class Event(host.Event):
    """One that C knows by a number."""

    __slots__ = ("__weakref__", "handle")


class Stream(host.Stream):
    """One that gives its commands at once, as a GPU's does."""

    def submit(self, kind: Any, commands: Any, event: Any, size: int = 0) -> None:
        commands()
        if event is not None:
            event.happen()


class StagedHost(Host):
    """The host, with pageable memory that must be staged by a crew: threads in C where it *pools*."""

    stages = True

    def __init__(self, *, pools: bool = False) -> None:
        super().__init__()
        self.pools = pools
        self.name = self.key = "staged host"
        self._pinned: list[Any] = []
        self._library = library() if pools else None
        self._events: weakref.WeakValueDictionary[int, Event] = weakref.WeakValueDictionary()
        self._wait = WAIT(self._waited_for)
        calibrate._known[self.key] = COSTS  # what this machine's threads do is not the question
        calibrate._renewed.add(self.key)  # nor is it measured where runs contradict these costs, which takes seconds

    def _waited_for(self, handle: int) -> int:
        event = self._events.get(handle)
        if event is None:
            return FAILED
        event.wait()
        return 0

    def stream(self, priority: int = 0) -> Any:
        return Stream() if self.pools else super().stream(priority)

    def event(self, *, spins: bool = True, timed: bool = True) -> Any:
        event = Event()
        event.handle = id(event)
        self._events[event.handle] = event
        return event

    def crew(self, lanes: int, threads: int) -> Any:
        if self._library is None:
            return super().crew(lanes, threads)
        wait = address_of(self._wait)
        return pool.Pool(self._library, threads, wait=wait, enter=0, context=0, failed=OSError)

    def pinned(self, nbytes: int) -> np.ndarray:
        block = np.full(nbytes, 0x5A, np.uint8)
        self._pinned = [known for known in self._pinned if known[0]() is not None]
        self._pinned.append((weakref.ref(block), address(block), nbytes))
        return block

    def is_pinned(self, array: np.ndarray) -> bool:
        start = address(array)
        return any(
            known() is not None and low <= start and start + array.nbytes <= low + size
            for known, low, size in list(self._pinned)
        )
