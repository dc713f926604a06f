"""A crew in Python: host threads that copy between pageable and pinned memory, one a slot.

A chunk is copied by one thread: here, splitting it over several costs more than it gives. NumPy lets go of the
interpreter's lock while it copies; between copies the threads take turns at it, which ``pool.Pool`` does without.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import perf_counter_ns
from typing import Any

import numpy as np

from . import Copied, Copies, HostArray, Source

PATIENCE = 0.1  # seconds after which who waits for a thread looks by himself whether it is there


def copy(target: HostArray, source: Source) -> None:
    """Copy one array, or many whose rows come one after another."""
    if isinstance(source, np.ndarray):
        np.copyto(target, source, casting="no")
    else:
        np.concatenate(source, out=target, casting="no")


class Threads:
    """A crew of Python's threads; each starts when its lane is first used and ends with ``close``.

    A Ctrl-C may come at any moment. So threads are started by one call of C, where ``threading.Thread`` could be left
    half started, and who begins says so himself: what has not begun when the crew is stopped never does.
    """

    def __init__(self, lanes: int, prepare: Callable[[], Any] | None = None) -> None:
        self._prepare = prepare  # what a new thread does before it copies
        self._news: SimpleQueue[Copied] = SimpleQueue()
        self._lanes: list[SimpleQueue[tuple[Any, Copies] | None]] = [SimpleQueue() for _ in range(lanes)]
        self._used: set[int] = set()  # lanes that were given a thread
        self._lock = threading.Lock()
        self._at_work: list[threading.Lock] = []  # one a thread that has begun, held until it ends
        self._stopped = False

    def submit(self, lane: int, token: Any, copies: Copies) -> None:
        """Ask a lane to copy; ``next`` will give the token back."""
        self._lanes[lane].put((token, copies))
        if lane not in self._used:
            self._used.add(lane)
            _thread.start_new_thread(self._work, (self._lanes[lane],))

    def next(self) -> Copied:
        """Wait until some lane is done with something, and say what."""
        return self._news.get()

    def close(self) -> list[Copied]:
        """Let the lanes finish what they are at, drop the rest, wait until the threads are gone; give what is news."""
        with self._lock:
            self._stopped = True
        for lane in self._lanes:
            lane.put(None)
        while self._at_work:
            with suppress(IndexError):  # it has just ended
                self._at_work[0].acquire(timeout=PATIENCE)
        news: list[Copied] = []
        while True:
            try:
                news.append(self._news.get_nowait())
            except Empty:
                return news

    def _work(self, tasks: SimpleQueue[tuple[Any, Copies] | None]) -> None:
        working = threading.Lock()
        working.acquire()
        with self._lock:
            if self._stopped:
                return
            self._at_work.append(working)
        prepare = self._prepare
        try:
            while (task := tasks.get()) is not None and not self._stopped:
                token, copies = task
                try:
                    if prepare is not None:
                        prepare()
                        prepare = None
                    start, end = carry_out(copies)
                    self._news.put(Copied(token, (start, end), end - start))
                except BaseException as problem:  # it comes out at its chunk, in the caller's thread
                    self._news.put(Copied(token, None, error=problem))
        finally:
            self._at_work.remove(working)
            working.release()


def carry_out(copies: Copies) -> tuple[int, int]:
    """Wait for what is to be waited for, and copy. Gives when copying began and ended."""
    if copies.after is not None:
        copies.after.wait()
    start = perf_counter_ns()
    for target, source in copies.pairs:
        copy(target, source)
    return start, perf_counter_ns()
