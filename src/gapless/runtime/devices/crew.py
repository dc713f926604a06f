"""The crew: host threads that copy between pageable and pinned memory, one thread a slot.

A chunk is copied by one thread. Splitting it over several costs more than it gives: what is wanted is many copies at
the same time, and the slots already are many. NumPy lets go of the interpreter's lock while it copies.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Any

import numpy as np

from . import Copied, Copies, HostArray, Source


def copy(target: HostArray, source: Source) -> None:
    """Copy one array, or many whose rows come one after another."""
    if isinstance(source, np.ndarray):
        np.copyto(target, source, casting="no")
    else:
        np.concatenate(source, out=target, casting="no")


class Threads:
    """A crew of real threads; each starts when its lane is first used and ends with ``close``.

    That results have been copied out can wait until the lane has copied its next input in, where that is asked already:
    each waking of the caller costs all threads more than the news is worth.
    """

    def __init__(self, lanes: int, prepare: Any = None) -> None:
        self._prepare = prepare  # what a new thread does first
        self._done: SimpleQueue[list[Copied]] = SimpleQueue()
        self._heard: deque[Copied] = deque()
        self._lanes: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(lanes)]
        self._shared: SimpleQueue[Any] = SimpleQueue()  # for whichever lane is free
        self._threads: list[threading.Thread | None] = [None] * lanes
        self._stopped = False

    def submit(self, lane: int, token: Any, copies: Copies) -> None:
        """Ask a lane to copy; ``next`` will give the token back."""
        self._lanes[lane].put((token, copies))
        if self._threads[lane] is None:
            self._begin(lane, self._lanes[lane])

    def share(self, token: Any, start: Callable[[int], Copies]) -> None:
        """Ask whichever lane is free next."""
        self._shared.put((token, start))
        if None in self._threads:
            self._begin(self._threads.index(None), self._shared)

    def next(self) -> Copied:
        """Wait until some lane is done with something, and say what."""
        while not self._heard:
            self._heard.extend(self._done.get())
        return self._heard.popleft()

    def close(self) -> list[Copied]:
        """Let the lanes finish what they are at, drop the rest, wait until the threads are gone; give what is news."""
        self._stopped = True
        for lane in self._lanes:
            lane.put(None)
            self._shared.put(None)
        for thread in self._threads:
            if thread is not None:
                thread.join()
        news = list(self._heard)
        while not self._done.empty():
            news += self._done.get()
        self._heard.clear()
        return news

    def _begin(self, lane: int, tasks: SimpleQueue[Any]) -> None:
        name = f"gapless-staging-{lane}"
        thread = self._threads[lane] = threading.Thread(target=self._work, args=(lane, tasks), name=name, daemon=True)
        thread.start()

    def _work(self, lane: int, tasks: SimpleQueue[Any]) -> None:
        if self._prepare is not None:
            self._prepare()
        done: list[Copied] = []
        while (task := tasks.get()) is not None and not self._stopped:
            token, what = task
            done.append(self._do(lane, token, what))
            if not isinstance(what, Copies) or what.after is None or tasks.empty():
                self._done.put(done)
                done = []
        self._done.put(done)

    def _do(self, lane: int, token: Any, what: Copies | Callable[[int], Copies]) -> Copied:
        spans: list[tuple[int, int]] = []
        try:
            copies: Copies | None = what if isinstance(what, Copies) else what(lane)
            while copies is not None:
                spans.append(self.copy(copies))
                copies = None if copies.then is None else copies.then()
        except BaseException as problem:  # it comes out at its chunk, in the caller's thread
            return Copied(token, spans, problem)
        return Copied(token, spans)

    def copy(self, copies: Copies) -> tuple[int, int]:
        """Wait for what is to be waited for, and copy. Gives when copying began and ended."""
        if copies.after is not None:
            copies.after.wait()
        start = perf_counter_ns()
        for target, source in copies.pairs:
            copy(target, source)
        return start, perf_counter_ns()
