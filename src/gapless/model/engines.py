"""The engines of a device, and how each picks what to serve next (sections 6.1 and 6.3).

An engine keeps what is ready for it in a heap, ordered by priority (SMs only), ready time and issue order (section 14).
``serve`` starts whatever can start at the moment; the simulation calls it after everything that ends at that moment
has ended and the host threads have gone on.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from .kinds import Bound
from .sm_split import SmSplit

if TYPE_CHECKING:
    from .simulator import Simulator

# Events in time, as (time, kind, operation or thread, number).
COPY_END, ROUND_END, ROOM, OP_END, READY, TRIGGER, SLOT, UNLOCK, TIMER, TURNED = range(10)


_COPY_ENGINE, _SM, _GRID_SLOT, _WORKER = (
    int(bound) for bound in (Bound.COPY_ENGINE, Bound.SM, Bound.GRID_SLOT, Bound.WORKER)
)


class Server:
    """One copy engine: one copy at a time."""

    __slots__ = ("alarm", "channel", "done_at", "left", "op", "rate", "since")

    def __init__(self) -> None:
        self.op = -1
        self.channel: object = None  # what it served last (R6.1)
        self.rate = 1.0
        self.left = 0  # ps of work at full rate, from `since` on
        self.since = 0
        self.done_at = 0  # when it is done at the present rate
        self.alarm = 0  # the earliest event in time that asks whether it is done


class CopyEngine:
    """The copy engines of one direction of a device: one queue, and as many copies at a time as there are engines."""

    def __init__(self, engines: int, *, drains: bool, turnaround: int = 0) -> None:
        self.servers = [Server() for _ in range(engines)]
        self.turnaround = turnaround  # ps between the end of a copy and the start of the next (machine.turnaround)
        self.turned_at = 0
        self.queue: list[tuple[int, int, int]] = []  # ready time, rank, op
        self.waits_to_serve = False
        self.drains = drains
        self.of_channel: dict[object, int] = {}  # draining: the ready copy of each channel
        self.slowing = 0  # copies that run on the link, so that its other direction feels them (R3.11)
        self.freed_by = -1

    def add(self, sim: Simulator, op: int) -> None:
        """Let a copy that has reached the head of its stream and channel wait for an engine.

        Priorities mean nothing to it (R6.2), and what else may share the engine is not modelled (R6.3).
        """
        heappush(self.queue, (sim.now, sim.rank[op], op))
        if self.drains:
            self.of_channel[sim.channel_of(op)] = op
        if not self.waits_to_serve:
            self.waits_to_serve = True
            sim.to_serve.append(self)

    def serve(self, sim: Simulator) -> None:
        """Start copies on free engines."""
        if sim.now < self.turned_at:
            return
        for number, server in enumerate(self.servers):
            if server.op < 0 and self.queue:
                op = self._next(sim, server) if self.drains else heappop(self.queue)[2]  # R6.1: readiness, issue order
                if op < 0:
                    return
                self._start(sim, server, number, op)

    def _next(self, sim: Simulator, server: Server) -> int:
        """R6.1: stay with the channel served last while that has a ready copy, then take the first that is ready."""
        op = self.of_channel.pop(server.channel, -1)
        while op < 0 and self.queue:
            candidate = heappop(self.queue)[2]
            if sim.start[candidate] < 0:  # else it was drained before its turn
                op = candidate
                server.channel = sim.channel_of(op)
                del self.of_channel[server.channel]
        return op

    def _start(self, sim: Simulator, server: Server, number: int, op: int) -> None:
        now = sim.now
        if sim.ready[op] < now:
            sim.bound[op], sim.bound_by[op] = _COPY_ENGINE, self.freed_by
        server.op, server.left = op, sim.work[op]
        end = now + server.left
        if sim.slowed is not None:
            end = self._at_rate(sim, server, op)
        server.done_at = server.alarm = end
        heappush(sim.events, (end, COPY_END, op, number))
        sim.started(op, end)

    def _at_rate(self, sim: Simulator, server: Server, op: int) -> int:
        """Start a copy at the rate of one direction or of both, as it is now; give when it will end (R3.11)."""
        server.since, server.rate = sim.now, 1.0
        rate, device = sim.slowed[op], sim.stream(op).device  # type: ignore[index]
        if rate:
            self.slowing += 1
            if device.both_ways:
                server.rate = rate
                return sim.now + round(server.left / rate)
            sim.retime.add(device.index)
        return sim.now + server.left

    def ended(self, sim: Simulator, op: int, number: int) -> bool:
        """Take an event in time: tell whether the copy is done now, else ask again when it should be."""
        server = self.servers[number]
        if server.op != op:
            return False  # it had become faster and is over
        if server.done_at > sim.now:
            if server.alarm <= sim.now:
                server.alarm = server.done_at
                heappush(sim.events, (server.done_at, COPY_END, op, number))
            return False
        server.op, self.freed_by = -1, op
        if self.turnaround:
            self.turned_at = sim.now + self.turnaround
            heappush(sim.events, (self.turned_at, TURNED, op, 0))
        if sim.slowed is not None and sim.slowed[op]:
            self.slowing -= 1
            if not self.slowing:
                sim.retime.add(sim.stream(op).device.index)
        if not self.waits_to_serve:
            self.waits_to_serve = True
            sim.to_serve.append(self)
        return True

    def turned(self, sim: Simulator) -> None:
        """Serve again when the engine has turned around."""
        if not self.waits_to_serve:
            self.waits_to_serve = True
            sim.to_serve.append(self)

    def set_rate(self, sim: Simulator, slowed: Sequence[float], *, both: bool) -> None:
        """Go on at the rate of one direction or of both; what is left of a copy takes a new time (R3.11)."""
        for number, server in enumerate(self.servers):
            rate = (slowed[server.op] or 1.0) if both and server.op >= 0 else 1.0
            if server.op >= 0 and rate != server.rate:
                server.left -= round((sim.now - server.since) * server.rate)
                server.since, server.rate = sim.now, rate
                server.done_at = sim.now + max(round(server.left / rate), 0)
                if server.done_at < server.alarm:
                    server.alarm = server.done_at
                    heappush(sim.events, (server.done_at, COPY_END, server.op, number))


class Sms:
    """The SMs of a device as one pool: who may place blocks, and how many fit (R6.10 to R6.13).

    Kernels that run side by side take as long as alone: they do not share memory bandwidth here (R6.16).
    """

    def __init__(self, capacity: int, grids: int, *, exclusive: bool, split: SmSplit | None = None) -> None:
        self.free = capacity
        self.limit = 1 if exclusive else grids
        self.no_slot = _SM if exclusive else _GRID_SLOT
        self.queue: list[tuple[int, int, int, int]] = []  # priority, ready time, rank, op
        self.waits_to_serve = False
        self.left: dict[int, int] = {}  # blocks still to place, of kernels that have placed some
        self.running: dict[int, int] = {}  # blocks that run, of kernels that were not placed all at once
        self.resident = 0
        self.slotless = -1  # the kernel that found no grid slot
        self.freed_by = -1
        self.split = split  # R6.17

    def add(self, sim: Simulator, op: int) -> None:
        """Let a kernel that has reached the head of its stream and channel join the queue of its priority."""
        heappush(self.queue, (sim.priority_of(op), sim.now, sim.rank[op], op))
        if not self.waits_to_serve:
            self.waits_to_serve = True
            sim.to_serve.append(self)

    def serve(self, sim: Simulator) -> None:
        """Place blocks of the first kernel, then of the next, until one does not fit (R6.11).

        One heap does for the queues of all priorities: a kernel of higher priority stands before all lower ones
        (R6.13), and while it waits for room nothing of lower priority is placed (A2).
        """
        while self.queue:
            op = self.queue[0][3]
            if self.resident >= self.limit and op not in self.left:  # R6.10
                self.slotless = op
                self._place_begun(sim)
                return
            entry = heappop(self.queue)  # before it is placed: that may let another one join the queue
            if not self._place(sim, op):
                heappush(self.queue, entry)
                return  # R6.11: nobody passes a head that does not fit

    def _place_begun(self, sim: Simulator) -> None:
        """A kernel that waits for a grid slot holds nothing back: those that have one go on."""
        for entry in sorted(entry for entry in self.queue if entry[3] in self.left):
            self.queue.remove(entry)
            heapify(self.queue)
            if not self._place(sim, entry[3]):
                heappush(self.queue, entry)
                return

    def _place(self, sim: Simulator, op: int) -> bool:
        """Place as many blocks as fit; tell whether all are placed now (fully dispatched)."""
        plan, grid = sim.plan, sim.grid[op]
        blocks = self.left.get(op) or plan.blocks[grid]
        fit = min(self.free // plan.units[grid], blocks)
        if self.split is not None:
            fit = self.split.place(op, grid, fit)
        if not fit:
            return False
        if sim.start[op] < 0:
            self._take_slot(sim, op)
        self.free -= fit * plan.units[grid]
        all_placed = fit == blocks
        if not all_placed or op in self.left:
            self.running[op] = self.running.get(op, 0) + fit
            self.left[op] = blocks - fit
            if all_placed:
                del self.left[op]
        self._run(sim, op, fit, all_placed=all_placed)
        return all_placed

    def _take_slot(self, sim: Simulator, op: int) -> None:
        if sim.ready[op] < sim.now:
            sim.bound[op] = self.no_slot if self.slotless == op else _SM
            sim.bound_by[op] = self.freed_by
        self.resident += 1

    def _run(self, sim: Simulator, op: int, blocks: int, *, all_placed: bool) -> None:
        plan, grid, now = sim.plan, sim.grid[op], sim.now
        time = sim.time_of_blocks(op)
        end = now + time
        if plan.tails[grid] and all_placed:  # the last blocks end one by one: room before the end
            heappush(sim.events, (end - min(round(sim.work[op] * plan.tails[grid]), time), ROOM, op, blocks))
            heappush(sim.events, (end, ROUND_END, op, -blocks))
        else:
            heappush(sim.events, (end, ROUND_END, op, blocks))
        if all_placed:
            sim.started(op, end)  # fully dispatched: it leaves its channel
        elif sim.start[op] < 0:
            sim.start[op] = now

    def room(self, sim: Simulator, op: int, blocks: int) -> None:
        """Take back the room of blocks that are over or nearly so."""
        self.free += blocks * sim.plan.units[sim.grid[op]]
        self.freed_by = op
        if not self.waits_to_serve:
            self.waits_to_serve = True
            sim.to_serve.append(self)

    def round_ended(self, sim: Simulator, op: int, blocks: int) -> bool:
        """Let blocks end; tell whether the kernel is complete (R6.11: then it leaves its stream)."""
        if blocks > 0:
            self.room(sim, op, blocks)
        if self.split is not None:
            self.split.leave(op, sim.grid[op], abs(blocks))
        if op in self.running:
            self.running[op] -= abs(blocks)
            if self.running[op] or op in self.left:
                return False
            del self.running[op]
        self.resident -= 1
        self.freed_by = op
        if not self.waits_to_serve:
            self.waits_to_serve = True
            sim.to_serve.append(self)
        return True


class Workers:
    """The driver's threads that run host functions (R6.15)."""

    def __init__(self, workers: int) -> None:
        self.free = workers
        self.queue: list[tuple[int, int, int]] = []
        self.waits_to_serve = False
        self.freed_by = -1

    def add(self, sim: Simulator, op: int) -> None:
        """Let a host function that has reached the head of its stream wait for a worker."""
        heappush(self.queue, (sim.now, sim.rank[op], op))
        self._to_serve(sim)

    def serve(self, sim: Simulator) -> None:
        """Start functions on free workers, in the order in which they became ready, then of issue."""
        while self.free and self.queue:
            op = heappop(self.queue)[2]
            if sim.ready[op] < sim.now:
                sim.bound[op], sim.bound_by[op] = _WORKER, self.freed_by
            self.free -= 1
            end = sim.now + sim.work[op]
            heappush(sim.events, (end, OP_END, op, 0))
            sim.started(op, end)

    def ended(self, sim: Simulator, op: int) -> None:
        """Take a worker back."""
        self.free += 1
        self.freed_by = op
        self._to_serve(sim)

    def _to_serve(self, sim: Simulator) -> None:
        if not self.waits_to_serve:
            self.waits_to_serve = True
            sim.to_serve.append(self)


class NoWaiting:
    """Where operations run that need no engine: inside their channel (R3.13), on the calling thread, on the stream."""

    def __init__(self) -> None:
        self.queue: list[int] = []
        self.waits_to_serve = False

    def add(self, sim: Simulator, op: int) -> None:
        """Let an operation run as soon as operations start."""
        self.queue.append(op)
        if not self.waits_to_serve:
            self.waits_to_serve = True
            sim.to_serve.append(self)

    def serve(self, sim: Simulator) -> None:
        """Start all of them."""
        ops, self.queue = self.queue, []
        for op in ops:
            end = sim.now + sim.work[op]
            heappush(sim.events, (end, OP_END, op, 0))
            sim.started(op, end)
