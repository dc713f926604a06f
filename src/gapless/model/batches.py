"""Batches of copies: one operation in stream order, inside which nothing is in order (R3.9)."""

from __future__ import annotations

from heapq import heappush
from typing import TYPE_CHECKING

from .engines import READY
from .kinds import Bound

if TYPE_CHECKING:
    from .simulator import Simulator


class BatchRunner:
    """Starts the copies of a batch when the batch has reached the head of its stream."""

    def add(self, sim: Simulator, op: int) -> None:
        """Start a batch."""
        sim.start[op] = sim.now
        sim.batches.start(op)


class Batches:
    """The batches of a run: their copies are operations of their rows, but not of their stream."""

    def __init__(self, sim: Simulator) -> None:
        self._sim = sim
        self._copies = sim.plan.batches
        self.of = {copy: batch for batch, copies in self._copies.items() for copy in copies}
        self._to_do: dict[int, int] = {}  # batch -> copies not complete
        self._behind: dict[int, int] = {}  # copy of a batch that runs -> the next one for the same engine

    def issued(self, op: int) -> None:
        """Note a batch that the driver takes, and with it its copies."""
        sim = self._sim
        stream = sim.stream(op)
        for copy in self._copies[op]:
            sim.rank[copy] = sim.issues
            sim.issues += 1
            sim.bound[copy], sim.bound_by[copy] = Bound.HOST, copy
            sim.left[copy] = 1
            sim.ready[copy] = sim.now + sim.latency[sim.place[copy]]
            queues = stream.device.queues[sim.place[copy]]
            if queues is not None:
                queues.admit(sim, stream, copy)

    def start(self, op: int) -> None:
        """Let the copies of a batch go to their engines."""
        sim, copies = self._sim, self._copies[op]
        if not copies:
            sim.completed.append(op)
            return
        self._to_do[op] = len(copies)
        heads, last = dict[int, int](), dict[int, int]()  # by place: the copy that goes first, and the last so far
        for copy in copies:
            sim.left[copy] = 0
            if sim.bound[op] != Bound.HOST:
                sim.bound[copy], sim.bound_by[copy] = sim.bound[op], sim.bound_by[op]
            sim.ready[copy] = max(sim.ready[copy] if sim.timed else 0, sim.now + sim.hop_into_graph(op, copy))
            place = sim.place[copy]
            if place in heads:
                self._behind[last[place]] = copy
            heads.setdefault(place, copy)
            last[place] = copy
        for copy in heads.values():
            self._enter(copy)

    def _enter(self, copy: int) -> None:
        sim = self._sim
        if sim.ready[copy] > sim.now:
            heappush(sim.events, (sim.ready[copy], READY, copy, 0))
        else:
            sim.enter(copy)

    def dispatched(self, copy: int) -> None:
        """Let the next copy for the same engine go: they come to it in one channel (R6.4)."""
        sim, follower = self._sim, self._behind.pop(copy, -1)
        if follower >= 0:
            if sim.ready[follower] < sim.now:
                sim.ready[follower] = sim.now
                sim.bound[follower], sim.bound_by[follower] = Bound.QUEUE, copy
            self._enter(follower)

    def done(self, copy: int) -> None:
        """Note that a copy is complete; after the last one the batch is."""
        batch = self.of[copy]
        self._to_do[batch] -= 1
        if not self._to_do[batch]:
            del self._to_do[batch]
            self._sim.end_stands_for(copy, batch)
            self._sim.completed.append(batch)
