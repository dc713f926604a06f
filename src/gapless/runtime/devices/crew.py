"""The crew: host threads that copy between pageable and pinned memory, one thread a slot.

A chunk is copied by one thread. Splitting it over several costs more than it gives: what is wanted is many copies at
the same time, and the slots already are many. NumPy lets go of the interpreter's lock while it copies.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
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


PATIENCE = 0.01  # seconds that a caller who waits for certain news goes without any
BUSY = 1 << 62  # as much news as is never there: the caller will look by itself


class Threads:
    """A crew of real threads; each starts when its lane is first used and ends with ``close``.

    Each waking of the caller costs all threads more than most news is worth: it takes the interpreter's lock from the
    lanes. So the caller is woken when there is what it has asked for, or an error; and that results have been copied
    out can wait until the lane has copied its next input in, where that is asked already.
    """

    def __init__(self, lanes: int, prepare: Any = None) -> None:
        self._prepare = prepare  # what a new thread does first
        self._news: deque[Copied] = deque()
        self._enough = BUSY  # news for which the caller is to be woken
        self._wanted: tuple[Any, ...] = ()  # tokens likewise
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._lanes: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(lanes)]
        self._shared: SimpleQueue[Any] = SimpleQueue()  # for whichever lane is free
        self._threads: list[threading.Thread | None] = [None] * lanes
        self._failed = self._stopped = False

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

    def next(self, enough: int = 1, wanted: tuple[Any, ...] = ()) -> Copied:
        """Wait until some lane is done with something, and say what; see ``Crew``."""
        news = self._news
        if not news:
            self._enough, self._wanted = enough, wanted
            while not self._is_enough(news, enough, wanted):  # a bell may be one of before
                try:
                    self._bell.get(timeout=None if enough == 1 else PATIENCE)
                except Empty:
                    if news:
                        break
            self._enough, self._wanted = BUSY, ()
        return news.popleft()

    def _is_enough(self, news: deque[Copied], enough: int, wanted: tuple[Any, ...]) -> bool:
        if len(news) >= enough or (news and self._failed):
            return True
        return bool(wanted) and any(copied.token in wanted for copied in news.copy())

    def close(self) -> list[Copied]:
        """Let the lanes finish what they are at, drop the rest, wait until the threads are gone; give what is news."""
        self._stopped = True
        for lane in self._lanes:
            lane.put(None)
            self._shared.put(None)
        for thread in self._threads:
            if thread is not None:
                thread.join()
        news = list(self._news)
        self._news.clear()
        return news

    def _begin(self, lane: int, tasks: SimpleQueue[Any]) -> None:
        name = f"gapless-staging-{lane}"
        thread = self._threads[lane] = threading.Thread(target=self._work, args=(lane, tasks), name=name, daemon=True)
        thread.start()

    def _work(self, lane: int, tasks: SimpleQueue[Any]) -> None:
        if self._prepare is not None:
            self._prepare()
        news, rings = self._news, False
        while (task := tasks.get()) is not None and not self._stopped:
            token, what = task
            done = self._do(lane, token, what)
            news.append(done)
            if done.error is not None:
                self._failed = True
            rings = rings or self._failed or token in self._wanted or len(news) >= self._enough
            if rings and not (isinstance(what, Copies) and what.after is not None and not tasks.empty()):
                self._bell.put(None)
                rings = False

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
