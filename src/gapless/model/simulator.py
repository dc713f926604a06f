"""The simulation under ``schedule.schedule``: host threads issue, streams order, engines serve.

One heap holds what will happen in time. At one instant (section "How it runs" of the tape format) everything that ends
ends, then each host thread goes on as far as it can, in the order of the threads, then operations start.

An operation is a number: the row of its call, or a number behind the last row for what has no row of its own (a node of
a launched graph, a barrier). What is known of operations stands in flat columns, so that a million of them are no
burden.
"""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heappop, heappush

import numpy as np

from .batches import Batches
from .devices import DeviceState, StreamState, hop_table, latencies, make_devices
from .engines import (
    COPY_END,
    OP_END,
    READY,
    ROOM,
    ROUND_END,
    SLOT,
    TIMER,
    TRIGGER,
    TURNED,
    CopyEngine,
    NoWaiting,
    Sms,
    Workers,
)
from .errors import DeadlockError
from .hosts import Hosts
from .kinds import CALL, FLAG, MEMORY, OP, Bound, Flag
from .machine import Machine
from .memory_pool import MemoryPools
from .ordering import is_empty_action
from .plan import Place, Plan
from .program import Program
from .queues import Channel
from .stream_values import StreamValues

DONE = -1  # in `left`: the operation is complete

# Plain numbers of the enums that are compared for every operation: reaching an enum's member takes longer than that.
_NONE, _HOST, _STREAM, _FENCE, _EVENT, _FIRST_USE, _QUEUE = (
    int(bound)
    for bound in (Bound.NONE, Bound.HOST, Bound.STREAM, Bound.FENCE, Bound.EVENT, Bound.FIRST_USE, Bound.QUEUE)
)
_OP_KERNEL, _OP_H2D, _OP_RECORD, _OP_WAIT, _OP_P2P, _OP_GRAPH, _OP_MALLOC, _OP_FREE, _OP_BATCH = (
    int(kind)
    for kind in (
        OP.KERNEL, OP.H2D, OP.RECORD, OP.WAIT, OP.P2P, OP.GRAPH, OP.MALLOC, OP.FREE,
        OP.BATCH,
    )
)  # fmt: skip
_COPY_SYNC = int(CALL.COPY_SYNC)


class Simulator:
    """One run of a program on a machine. ``run`` fills the columns that a ``Schedule`` is made of."""

    def __init__(self, program: Program, machine: Machine, plan: Plan) -> None:
        self.program, self.machine, self.plan = program, machine, plan
        self.now = 0
        self.events: list[tuple[int, int, int, int]] = []  # time, what happens, operation or thread, a number
        self.to_serve: list[CopyEngine | Sms | Workers | NoWaiting] = []  # engines to look at before time goes on
        self.retime: set[int] = set()  # devices on which a copy that slows others has started or ended

        self.devices, self.streams = make_devices(program, machine, self.plan)
        self.recorded = [-1] * len(program.events)  # the record that each event stands for (R5.1)
        self.saw: dict[int, int] = {}  # by row: the record a wait was about, the send a receive got
        self.channel: dict[int, Channel] = {}  # of operations that are in one
        self.issues = 0
        self.completed: deque[int] = deque()  # operations that take no time and are over
        self.triggered: set[int] = set()  # kernels whose dependent may start (R6.14)
        self.done_at: dict[int, int] = {}  # when kernels with a trigger will end (R6.14)

        self.hops, self.latency = hop_table(machine), latencies(machine)
        self._device_hop = round(machine.device_hop * 1000) if len(self.devices) > 1 else 0
        self.timed = self.hops is not None or any(self.latency)
        self.inlines = bool(machine.inline_idle or machine.inline_pending)
        self.pools = MemoryPools(self) if plan.pools else None
        self.values = StreamValues(self) if program.words else None
        self.batches = Batches(self)
        self.batch_of = self.batches.of
        self.special = _SPECIAL | {_OP_MALLOC, _OP_FREE} if plan.pools else _SPECIAL
        self.queued = any(queues is not None for device in self.devices for queues in device.queues)
        self.pooled = any(device.pool is not None for device in self.devices)
        self.starts_more = self._rows_that_start_more()
        self._by_row()
        self._by_operation()
        self.hosts = Hosts(self)
        self.on_ready, self.entry_of = self.hosts.on_ready, self.hosts.entry_of

    def _rows_that_start_more(self) -> set[int]:
        """Give the rows of which `started` has more to note."""
        rows, plan = self.program.rows, self.plan
        more = set(plan.pieces) | set(plan.lag)
        if plan.triggers:
            more |= set(np.flatnonzero(np.isin(rows.grid, list(plan.triggers))).tolist())
        return more

    def _by_row(self) -> None:
        """Make the columns that are read off the program."""
        rows = self.program.rows
        self.rows = len(rows)
        self.call: list[int] = rows.call.tolist()
        self.object: list[int] = rows.object.tolist() if np.any(rows.object >= 0) else []
        self.second: list[int] = rows.second.tolist() if np.any(rows.second >= 0) else []
        self.overhead: list[int] | None = None if self.plan.overhead is None else self.plan.overhead.tolist()
        self.device_of_row: list[int] = rows.device.tolist()
        self._flags = rows.flags.tolist() if np.any(rows.flags) else None
        pinned = (rows.op == _OP_H2D) & (rows.src != MEMORY.PAGEABLE)
        self._pinned_sizes: list[int] = np.where(pinned, rows.bytes, -1).tolist() if self.inlines else []

    def _by_operation(self) -> None:
        """Make the columns that have an entry for every operation, also for those that get a number later."""
        n, rows = self.rows, self.program.rows
        self.op_kind: list[int] = rows.op.tolist()
        self.stream_of: list[int] = rows.stream.tolist()
        self.grid: list[int] = np.maximum(rows.grid, 0).tolist()  # R3.10: copies and memsets on the SMs fill the GPU
        self.place: list[int] = self.plan.place.tolist()
        self.work = array("q", self.plan.work.tobytes())
        self.slowed = None if self.plan.slowed is None else array("d", self.plan.slowed.tobytes())
        self.left = [0] * n  # predecessors that are not complete; DONE
        self.follower = [-1] * n  # the next operation of its stream
        self.edges: dict[int, list[tuple[int, int]]] = {}  # what else waits for it: operations, -1 - thread
        self.ready = [0] * n  # from when on nothing but its engine holds it
        self.rank = array("q", bytes(8 * n))  # issue order
        self.start = array("q", [-1]) * n
        self.end = array("q", [-1]) * n
        self.bound = bytearray(n)
        self.bound_by = array("i", [-1]) * n
        self.stands_for = [-1] * n if self.hops is not None else None  # the operation whose end its end is: `_pass_on`
        self.source: list[int] = []  # of those without a row of their own: the row behind them, -1 for a barrier
        self.launch: list[int] = []  # and the launch of the graph, -1 for a barrier

    # ---------------------------------------------------------------------------------------------------------- time

    def run(self) -> None:
        """Run to the end. Raises ``DeadlockError`` if host threads wait for each other for ever."""
        events, hosts, to_serve = self.events, self.hosts, self.to_serve
        streams, stream_of, place = self.streams, self.stream_of, self.place
        while True:
            hosts.go_on()
            while to_serve:
                engine = to_serve.pop()
                engine.waits_to_serve = False
                engine.serve(self)
            if self.retime:
                self._settle_rates()
            if not events:
                break
            now = self.now = events[0][0]
            while events and events[0][0] == now:
                _, kind, what, number = heappop(events)
                if kind == COPY_END:
                    if streams[stream_of[what]].device.copies[place[what]].ended(self, what, number):
                        self._complete(what)
                elif kind == ROUND_END:
                    if streams[stream_of[what]].device.sms.round_ended(self, what, number):
                        self._complete(what)
                else:
                    self._happens(kind, what, number)
                if self.completed:
                    self.settle()
            if self.pooled:
                for device in self.devices:
                    if device.pool is not None and device.pool.unsettled:
                        device.pool.settle(self)
        waiting = self.values.waiting if self.values is not None else []
        if stuck := hosts.stuck() + waiting:
            raise DeadlockError([self.program.describe(row) for row in stuck], stuck)
        unfinished = [
            s.last for d in self.devices for s in d.all_streams() if s.last >= 0 and self.left[s.last] != DONE
        ]
        if unfinished:  # the rules leave no way to this: better no schedule than a wrong one
            raise RuntimeError(f"the simulation stopped before operation {min(unfinished)} was complete")

    def _happens(self, kind: int, what: int, number: int) -> None:
        if kind == TIMER:
            self.hosts.wake(self.hosts.threads[what])
        elif kind == READY:
            self.enter(what)
        elif kind == TURNED:
            self.streams[self.stream_of[what]].device.copies[self.place[what]].turned(self)
        elif kind == OP_END:
            engine = self.stream(what).device.engines[self.place[what]]
            if isinstance(engine, Workers):
                engine.ended(self, what)
            self._complete(what)
        elif kind == ROOM:
            self.stream(what).device.sms.room(self, what, number)
        elif kind == SLOT:
            self.hosts.staging.give_back(self, what, number)
        elif kind == TRIGGER:
            self._trigger(what)
        else:
            self.hosts.unlock(self.hosts.threads[what])

    def _settle_rates(self) -> None:
        """R3.11: while both directions run, both run slower."""
        for index in sorted(self.retime):
            device = self.devices[index]
            down, up = device.copies[Place.H2D], device.copies[Place.D2H]
            both = down.slowing > 0 and up.slowing > 0
            if both != device.both_ways and self.slowed is not None:
                device.both_ways = both
                down.set_rate(self, self.slowed, both=both)
                up.set_rate(self, self.slowed, both=both)
        self.retime.clear()

    # ------------------------------------------------------------------------------------------------- looking up

    def stream(self, op: int) -> StreamState:
        """Give the stream of an operation."""
        return self.streams[self.stream_of[op]]

    def priority_of(self, op: int) -> int:
        """Give the priority of an operation's stream (R6.13)."""
        return self.streams[self.stream_of[op]].priority

    def channel_of(self, op: int) -> object:
        """Give the channel of a copy, or its stream's number where channels have no limit."""
        return self.channel.get(op, self.stream_of[op])

    def has_flag(self, row: int, flag: Flag) -> bool:
        """Tell whether a row carries a flag."""
        return self._flags is not None and bool(self._flags[row] & flag)

    def is_pending(self, op: int) -> bool:
        """Tell whether an operation that has been issued is not complete."""
        return self.left[op] != DONE

    # ------------------------------------------------------------------------------------------ issuing operations

    def issue(self, op: int) -> None:
        """Put an operation into its stream: note what it waits for (R2.8); it may go at once if there is nothing."""
        stream = self.streams[self.stream_of[op]]
        device, left, kind = stream.device, self.left, self.op_kind[op]
        self.rank[op] = self.issues
        self.issues += 1
        self.bound[op], self.bound_by[op] = _HOST, op
        if self.inlines:
            self.place_now(op, stream)
        if self.timed:
            self.ready[op] = self.now + self.latency[self.place[op]]
        waits = 0
        last = stream.last
        if last >= 0:  # R1.3
            if left[last] == DONE:
                if self.timed:
                    self._follow(op, last, _STREAM)
            elif not self._may_overlap(op, last):
                waits = 1
                if self.follower[last] < 0:
                    self.follower[last] = op
                else:
                    self.edges.setdefault(last, []).append((op, _STREAM))
        if stream.fenced:
            if device.fence >= 0 and device.fence != last:  # R2.1
                waits += self.wait_behind(op, device.fence, _FENCE)
            if self.pools is not None:
                self.pools.issued(stream)
        elif stream.legacy:
            waits += self._issue_on_legacy(op, device)
        if device.barrier >= 0:
            waits += self.wait_behind(op, device.barrier, _FIRST_USE)
        if kind in self.special or self.plan.first:
            waits += self._special(op, kind, stream)
        stream.last = op
        left[op] = waits
        if device.pool is not None and waits and (last < 0 or left[last] == DONE):
            device.pool.waits(stream, op, op)
        queues = device.queues[self.place[op]]
        if queues is not None:
            queues.admit(self, stream, op)
        if not waits:
            self._arrive(op)
            if self.completed:
                self.settle()
        if device.pool is not None and device.pool.unsettled:
            device.pool.settle(self)

    def wait_behind(self, op: int, before: int, bound: int) -> int:
        """Let an operation wait for another one, which may be complete already; give 1 if it is not."""
        if self.left[before] == DONE:
            if self.timed:
                self._follow(op, before, bound)
            return 0
        self.edges.setdefault(before, []).append((op, bound))
        return 1

    def _special(self, op: int, kind: int, stream: StreamState) -> int:
        """What some operations do when they are issued; give how many more operations they wait for."""
        waits = 0
        if kind == _OP_RECORD:
            self.recorded[self.object[op]] = op  # R5.1, R5.4
            if self.pools is not None:
                self.pools.recorded(op, stream)
        elif kind == _OP_WAIT:
            record = self.saw[op] = self.recorded[self.object[op]]
            waits = self.wait_behind(op, record, _EVENT) if record >= 0 else 0  # R5.2, R5.3
            if self.pools is not None:
                self.pools.waits_for(stream, record)
        elif kind == _OP_BATCH:
            self.batches.issued(op)
        elif kind == _OP_MALLOC and self.pools is not None:
            waits = self.pools.allocated(op)  # R8.4
        elif kind == _OP_FREE and self.pools is not None:
            self.pools.freed(op, stream)  # R8.2
        elif kind == _OP_P2P and self.call[op] == _COPY_SYNC:
            waits = self._issue_on_both(op, stream)
        elif kind == _OP_GRAPH:
            waits = self.hosts.captures.launched(op)
        if op in self.plan.first:  # R4.1: this kernel and all that is issued later wait for what is pending now
            barrier = self.put_barrier(stream.device)
            waits += self.wait_behind(op, barrier, _FIRST_USE) if barrier >= 0 else 0
        return waits

    def _issue_on_legacy(self, op: int, device: DeviceState) -> int:
        """R2.1: wait for all blocking streams, and let them wait in turn; R2.3: empty actions do neither.

        So a record here stands for the work of them all, and a wait here holds them all (R5.8).
        """
        knob, kind = self.machine.legacy_noop_barrier, self.op_kind[op]
        if knob != "yes":
            nothing = kind == _OP_WAIT and self.recorded[self.object[op]] < 0
            nothing |= kind == _OP_GRAPH and self.hosts.captures.is_empty(op)
            if op in self.plan.empty or is_empty_action(kind, empty=nothing):
                return 0
        waits = 0
        for other in device.feeders:
            if other.last >= 0:
                waits += self.wait_behind(op, other.last, _FENCE)
        holds = not (knob == "no" and kind == _OP_RECORD)  # R2.8: such a record covers them, but does not hold them
        if holds:
            device.fence = op
        if self.pools is not None:
            self.pools.acted_on_legacy(op, device.legacy, holds=holds)
        return waits

    def _issue_on_both(self, op: int, stream: StreamState) -> int:
        """R3.7: a synchronous peer copy is an operation of the legacy streams of both devices."""
        here, there = stream.device, self.devices[self.second[op]]
        everything = self.machine.peer_barrier_all
        others = there.other_streams(blocking_only=not everything) if there is not here else []
        if everything:
            others = others + here.all_streams()
            here.barrier = there.barrier = op
        waits = sum(
            self.wait_behind(op, other.last, _FENCE) for other in others if other.last >= 0 and other is not stream
        )
        there.fence = there.legacy.last = op
        return waits

    def put_barrier(self, device: DeviceState) -> int:
        """Hold everything issued to a device from now on behind all that is pending there; give the barrier, or -1."""
        pending = [s.last for s in device.all_streams() if s.last >= 0 and self.left[s.last] != DONE]
        if not pending:
            return -1
        barrier = self.new_op(-1, -1, Place.NOWHERE, 0, device.streams[0].row)
        self.left[barrier] = len(pending)
        for op in pending:
            self.edges.setdefault(op, []).append((barrier, _FIRST_USE))
        device.barrier = barrier
        return barrier

    def new_op(self, source: int, launch: int, place: int, work: int, stream: int, grid: int = 0) -> int:
        """Add an operation that has no row of its own."""
        op = self.rows + len(self.source)
        self.source.append(source)
        self.launch.append(launch)
        self.op_kind.append(self.op_kind[source] if source >= 0 else -1)
        self.place.append(place)
        self.work.append(work)
        self.stream_of.append(stream)
        self.grid.append(grid)
        self.left.append(0)
        self.follower.append(-1)
        self.ready.append(0)
        self.rank.append(self.rank[launch] if launch >= 0 else self.issues)
        self.start.append(-1)
        self.end.append(-1)
        self.bound.append(_NONE)
        self.bound_by.append(-1)
        if self.stands_for is not None:
            self.stands_for.append(-1)
        if self.slowed is not None:
            self.slowed.append(self.slowed[source] if source >= 0 else 0.0)
        return op

    def place_now(self, op: int, stream: StreamState) -> int:
        """R3.13: a small pinned copy goes inline, depending on whether its stream is idle."""
        place = self.place[op]
        if self.inlines and place == Place.H2D:
            idle = stream.last < 0 or self.left[stream.last] == DONE
            limit = self.machine.inline_idle if idle else self.machine.inline_pending
            if limit and 0 <= self._pinned_sizes[op] <= limit:
                place = self.place[op] = Place.INLINE
        return place

    # ------------------------------------------------------------------------------------ operations start and end

    def _follow(self, op: int, before: int, bound: int) -> None:
        """Keep the hop from a predecessor that is complete already: there is no start before it (machine.hops)."""
        candidate = self.end[before] + self._hop(before, op)
        if candidate > self.ready[op]:
            self.ready[op] = candidate
            self.bound[op], self.bound_by[op] = bound, before

    def _hop(self, before: int, op: int) -> int:
        """Give the way from the end of one operation to the start of another that waited for it (machine.hops)."""
        if self.hops is None or self.stands_for is None or self.stands_for[before] < 0:
            return 0
        if op >= self.rows and before >= self.rows and self.launch[op - self.rows] == self.launch[before - self.rows]:
            return round(self.machine.graph_node_cost * 1000)
        before = self.stands_for[before]
        if self._device_hop and self.stream(before).device is not self.stream(op).device:
            return self._device_hop  # D10
        hops = self.hops[self.place[before]][self.place[op]]
        if hops is None:
            return 0
        hop = hops[min(self.stream(before).device.running, 2)]
        if self.overhead is not None and before < self.rows:
            hop = max(hop - self.overhead[before], 0)  # the engine's own part of the copy's time is over already
        return hop

    def _arrive(self, op: int) -> None:
        """Everything an operation waits for is complete: it goes on now, or when the way there is covered."""
        if self.timed and self.place[op] != Place.NOWHERE:
            if self.ready[op] > self.now:
                heappush(self.events, (self.ready[op], READY, op, 0))
                return
        else:
            self.ready[op] = self.now
        self.enter(op)

    def enter(self, op: int) -> None:
        """An operation is at the head of its stream: it runs, or waits for its channel and its engine."""
        place = self.place[op]
        if self.on_ready:
            self.hosts.is_ready(op)
        if place == Place.NOWHERE and not self.work[op]:
            if self.values is not None and self.op_kind[op] in _OF_VALUES and not self.values.reached(op):
                return
            self.start[op] = self.now
            self.completed.append(op)
            return
        device = self.streams[self.stream_of[op]].device
        queues = device.queues[place]
        if queues is None or op >= self.rows or queues.may_go(self, op):
            device.engines[place].add(self, op)

    def let_go(self, op: int, by: int) -> None:
        """An operation that was held by its queue may go now (R6.5)."""
        if self.ready[op] < self.now:
            self.ready[op] = self.now
            self.bound[op], self.bound_by[op] = _QUEUE, by
        self.stream(op).device.engines[self.place[op]].add(self, op)

    def started(self, op: int, end: int) -> None:
        """Note that an operation runs (a kernel: that all its blocks do) and when it will end if nothing slows it."""
        if self.start[op] < 0:
            self.start[op] = self.now
        if self.timed or self.queued:
            device, place = self.streams[self.stream_of[op]].device, self.place[op]
            if place != Place.NOWHERE:
                device.running += 1
            queues = device.queues[place]
            if queues is not None and op < self.rows:
                queues.dispatched(self, op)
        if self.batch_of and op in self.batch_of:
            self.batches.dispatched(op)
        if self.starts_more and op in self.starts_more:
            self._starts_more(op, end)

    def _starts_more(self, op: int, end: int) -> None:
        """What begins to run out when some operations start."""
        plan = self.plan
        for piece in range(1, plan.pieces.get(op, 1)):  # R3.12: a slot is given back when its piece has landed
            landed = self.now + self.work[op] * piece // plan.pieces[op]
            heappush(self.events, (landed, SLOT, op, 1))
        if op in self.hosts.early:
            back = max(end - plan.lag[op], self.now)
            heappush(self.events, (back, TIMER, self.hosts.early.pop(op).index, 0))
        if self.grid[op] in plan.triggers and self.op_kind[op] == _OP_KERNEL:
            self.done_at[op] = end
            heappush(self.events, (min(self.now + plan.triggers[self.grid[op]], end), TRIGGER, op, 0))

    def time_of_blocks(self, op: int) -> int:
        """Give how long blocks of a kernel that are placed now will run."""
        grid, time = self.grid[op], self.work[op]
        rounds = self.plan.rounds[grid]
        if rounds > 1:
            time = -(-time // rounds)
        if self.done_at and op < self.rows and self.has_flag(op, FLAG.PROGRAMMATIC):
            before = self.saw.get(op, -1)
            if before in self.done_at:  # R6.14: after its prologue it waits until the kernel before is complete
                prologue = min(max(self.program.grids[grid].prologue, 0), time)
                return max(self.now + prologue, self.done_at[before]) - self.now + time - prologue
        return time

    def _may_overlap(self, op: int, last: int) -> bool:
        """R6.14: a programmatic dependent kernel may start once the kernel before has triggered."""
        if self._flags is None or not self._flags[op] & FLAG.PROGRAMMATIC or self.op_kind[last] != _OP_KERNEL:
            return False
        self.saw[op] = last
        return last in self.triggered

    def _trigger(self, op: int) -> None:
        """R6.14: all blocks of a kernel have let the dependent one start."""
        follower = self.follower[op]
        if self.left[op] != DONE:
            self.triggered.add(op)
            if follower >= 0 and self.saw.get(follower) == op and self.has_flag(follower, FLAG.PROGRAMMATIC):
                self.follower[op] = -1
                self._one_less(follower, op, _STREAM)

    def settle(self) -> None:
        """Complete what takes no time and waits for nothing any more, one after the other."""
        while self.completed:
            self._complete(self.completed.popleft())

    def _complete(self, op: int) -> None:
        """An operation is complete: what waits for it may go on."""
        self.left[op] = DONE
        self.end[op] = self.now
        if self.timed or self.queued:
            self._pass_on(op)
        if op in self.entry_of:
            self.hosts.give_entry_back(op)
        if op in self.plan.slots:
            self.hosts.staging.give_back(self, op)
        follower = self.follower[op]
        if follower >= 0:
            self._one_less(follower, op, _STREAM)
        if op in self.edges:
            for waiting, bound in self.edges.pop(op):
                if waiting < 0:
                    self.hosts.waited(-1 - waiting, op)
                else:
                    self._one_less(waiting, op, bound)
        if op >= self.rows and self.launch[op - self.rows] >= 0:
            self.hosts.captures.node_done(op)
        elif self.batch_of and op in self.batch_of:
            self.batches.done(op)

    def _pass_on(self, op: int) -> None:
        """Keep whose end an operation's end is: a record or a wait passes on the end of the work it waited for."""
        place = self.place[op]
        if place not in _NO_ENGINE:
            self.stream(op).device.running -= 1
            if self.stands_for is not None:
                self.stands_for[op] = op
        elif self.stands_for is not None and self.stands_for[op] < 0 and self.bound[op] != _HOST:
            self.stands_for[op] = self.stands_for[self.bound_by[op]]

    def hop_into_graph(self, launch: int, node: int) -> int:
        """Give how long after the start of its launch a first node of a graph can start."""
        return self._hop(self.bound_by[launch], node) if self.bound[launch] != _HOST else 0

    def end_stands_for(self, op: int, launch: int) -> None:
        """Let the end of a graph's launch be the end of its last node."""
        if self.stands_for is not None:
            self.stands_for[launch] = self.stands_for[op]

    def _one_less(self, op: int, before: int, bound: int) -> None:
        """One of the operations that another waits for is complete."""
        if self.timed:
            candidate = self.now + self._hop(before, op)
            if candidate >= self.ready[op]:
                self.ready[op] = candidate
                self.bound[op], self.bound_by[op] = bound, before
        else:
            self.bound[op], self.bound_by[op] = bound, before
        self.left[op] -= 1
        if not self.left[op]:
            self._arrive(op)
        if self.pooled and op < self.rows:
            self._tell_pool(op, before, bound)

    def _tell_pool(self, op: int, before: int, bound: int) -> None:
        """R6.6: a stream whose next operation waits for another stream gives its queue back."""
        stream = self.stream(op)
        pool = stream.device.pool
        if pool is not None and self.left[op] > 0 and bound == _STREAM:
            pool.waits(stream, op, before)
        elif pool is not None:
            pool.unsettled = True


_OF_VALUES = (int(OP.WRITE_VALUE), int(OP.WAIT_VALUE))
_NO_ENGINE = (Place.NOWHERE, Place.GRAPH, Place.BATCH)
_SPECIAL = frozenset({_OP_RECORD, _OP_WAIT, _OP_P2P, _OP_GRAPH, _OP_BATCH})
