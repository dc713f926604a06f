"""Host threads while a program runs: what their calls wait for before and after they act (section 4, table 3.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from .columns import among
from .devices import DeviceState, StreamState
from .engines import TIMER, UNLOCK
from .graphs import Captures
from .kinds import CALL, FLAG, OP, Bound, CudaError
from .memory_pool import Known
from .plan import Action, Lock, Place, Until
from .queues import Channels, LaunchQueue, Staging

if TYPE_CHECKING:
    from .simulator import Simulator

# Where a call stands: not begun; begun; its cost is paid; it acts; it has acted; it returns.
BEGIN, ENTER, PAID, ACT, LATE, RETURN = range(6)

_OF_GRAPHS = among(CALL.CAPTURE, CALL.CAPTURE_END, CALL.GRAPH_BUILD, CALL.GRAPH_UPDATE, CALL.GRAPH_LAUNCH)


_TELLS = (CALL.SYNC_STREAM, CALL.SYNC_EVENT, CALL.SYNC_DEVICE, CALL.QUERY)
_LAUNCH, _WORK, _OP_RECORD, _OP_MALLOC = int(CALL.LAUNCH), Bound.WORK, int(OP.RECORD), int(OP.MALLOC)


class HostThread:
    """A host thread: where it is in its calls."""

    __slots__ = ("at", "covers", "drained", "has_slots", "index", "pending", "row", "rows", "runnable", "stage")

    def __init__(self, index: int, rows: range | list[int]) -> None:
        self.index = index
        self.rows = rows
        self.at = 0  # how many of its calls have returned
        self.row = -1  # the call it is in
        self.stage = BEGIN
        self.runnable = True
        self.pending = 0  # operations it waits for
        self.covers: Known = {}  # what is over when its synchronise returns; where it matters to the pools (R8.3)
        self.has_slots = False
        self.drained = False


class Hosts:
    """All host threads, and what they share: the driver's lock, the launch queues, staging slots, messages."""

    def __init__(self, sim: Simulator) -> None:
        self._sim = sim
        program, machine, rows = sim.program, sim.machine, sim.program.rows
        count = len(program)
        self.begin, self.issued, self.returned = (np.full(count, -1, np.int64) for _ in range(3))
        self.order: list[int] = []  # rows in the order in which the driver took them (R1.1)
        self.errors: dict[int, int] = {}
        self.values: dict[int, int] = {}
        self.delays: dict[int, tuple[Bound, int]] = {}  # what kept a call from acting
        self.waits: dict[int, tuple[Bound, int]] = {}  # what kept it from returning after it had acted
        names = program.threads
        whole = len(names) == 1
        self.threads = [
            HostThread(i, range(count) if whole else np.flatnonzero(rows.thread == i).tolist())
            for i in range(len(names))
        ]
        self._runnable = list(range(len(names)))
        self._mail: list[deque[int]] = [deque() for _ in program.messages]
        self._receivers: list[deque[HostThread]] = [deque() for _ in program.messages]
        self.staging = Staging(machine.staging_slots)
        self.on_ready: dict[int, HostThread] = {}  # threads that wait until an operation is ready (table 3.1)
        self.early: dict[int, HostThread] = {}  # threads that return before the end of their copy (R3.12)
        self.entry_of: dict[int, LaunchQueue] = {}
        self.captures = Captures(sim)
        self.capturing = bool(_OF_GRAPHS[rows.call].any())  # calls have to be looked at (R7.4)
        self._lock_owner: HostThread | None = None
        self._lock_waiters: list[HostThread] = []
        self._full = 0  # threads that wait for room in a launch queue
        self._full_waiters: list[HostThread] = []
        self._launching = 0  # threads that pay for a launch
        self._contention = machine.launch_contention
        plan = sim.plan
        self._action: list[int] = plan.action.tolist()
        self._cost, self._lock, self._entries, self._queue_bytes = (
            None if column is None else column.tolist()
            for column in (plan.cost, plan.lock, plan.entries, plan.queue_bytes)
        )
        self._plain = plan.cost is None and plan.lock is None and plan.entries is None and not self.capturing
        self._plain &= sim.pools is None and not plan.batches

    def wake(self, thread: HostThread) -> None:
        """Let a host thread go on."""
        if not thread.runnable:
            thread.runnable = True
            heappush(self._runnable, thread.index)

    def go_on(self) -> None:
        """Let each thread go on as far as it can at this instant, in the order of the threads."""
        while self._runnable:
            thread = self.threads[heappop(self._runnable)]
            thread.runnable = False
            self._go(thread)

    def stuck(self) -> list[int]:
        """Give the calls in which threads stand that have not come to their end."""
        return [thread.row for thread in self.threads if thread.at < len(thread.rows)]

    # ------------------------------------------------------------------------------------------ the stages of a call

    def _go(self, thread: HostThread) -> None:
        sim = self._sim
        late, now, rows = sim.plan.late, sim.now, thread.rows
        cost, lock = self._cost, self._lock
        while True:
            if thread.stage == BEGIN:
                if self._plain:
                    self._put_run(thread)
                if thread.at == len(rows):
                    return
                thread.row = rows[thread.at]
                self.begin[thread.row] = now
                thread.stage = ENTER
            row = thread.row
            if thread.stage == ENTER:
                if lock is not None and lock[row] and not self._get_lock(thread, lock[row]):
                    return
                if self._full and self._stands_behind_full_queue(thread):
                    return
                thread.stage = ACT
                paid = cost[row] if cost is not None else 0
                if sim.pools is not None and sim.op_kind[row] == _OP_MALLOC and not self.captures.holds(row):
                    paid += sim.pools.ask(row)  # R8.5
                if paid:
                    thread.stage = PAID
                    if not self._pay(thread, paid):
                        return
                    now = sim.now
            if thread.stage == PAID:
                thread.stage = ACT
                self._launching -= sim.call[row] == _LAUNCH
            if thread.stage == ACT and not self._act(thread, row):
                return
            if thread.stage == LATE:
                thread.stage = RETURN
                after = late.get(row, 0)
                if sim.pools is not None:
                    after += self._pool_is_told(thread, row)
                if after:
                    heappush(sim.events, (now + after, TIMER, thread.index, 0))
                    return
            self.returned[row] = now
            thread.at += 1
            if row in sim.plan.batches:
                self._return_copies(thread, row)
            thread.stage = BEGIN
            if self._lock_owner is thread:
                self.unlock(thread)

    def _return_copies(self, thread: HostThread, row: int) -> None:
        """R3.9: a batch is one call, which began, was taken and returned for all its copies at once."""
        copies = self._sim.plan.batches[row]
        for column in (self.begin, self.issued, self.returned):
            column[copies] = column[row]
        thread.at += len(copies)

    def _put_run(self, thread: HostThread) -> None:
        """Issue a run of plain operations that cost the host nothing: what most programs do most of the time."""
        sim, rows, first = self._sim, thread.rows, thread.at
        action, issue = self._action, sim.issue
        at, count = first, len(rows)
        put = Action.PUT
        while at < count and action[rows[at]] == put:
            issue(rows[at])
            at += 1
        if at > first:
            taken = rows[first:at]
            index = slice(taken[0], taken[-1] + 1) if isinstance(taken, range) else taken
            self.begin[index] = self.issued[index] = self.returned[index] = sim.now
            self.order.extend(taken)
            thread.at = at

    def _pay(self, thread: HostThread, cost: int) -> bool:
        """Spend the cost of a call; tell whether the thread can go on at once, because nothing else happens before."""
        sim = self._sim
        if sim.call[thread.row] == _LAUNCH:
            self._launching += 1
            if self._contention and self._launching > 1:  # R4.2: threads that launch at once slow each other down
                threads, factors = zip(*self._contention, strict=True)
                cost = round(cost * float(np.interp(self._launching, threads, factors)))
        if self._lock is not None and self._lock[thread.row] == Lock.HOLDS_HALF:
            heappush(sim.events, (sim.now + cost // 2, UNLOCK, thread.index, 0))
        later = sim.now + cost
        if not sim.to_serve and not sim.retime and not self._runnable and (not sim.events or sim.events[0][0] > later):
            sim.now = later
            return True
        heappush(sim.events, (later, TIMER, thread.index, 0))
        return False

    def _take(self, row: int) -> None:
        """Note that the driver takes a call now (R1.1)."""
        self.issued[row] = self._sim.now
        self.order.append(row)

    def _act(self, thread: HostThread, row: int) -> bool:
        """Do what a call is for, its cost being over; tell whether the thread can go on."""
        sim = self._sim
        if self.capturing and self.captures.intercept(thread, row):
            self._take(row)
            thread.stage = LATE
            return True
        action = self._action[row]
        if action in (Action.PUT, Action.PUT_AND_WAIT):
            return self._put(thread, row)
        self._take(row)
        thread.stage = LATE
        if action == Action.SYNC_STREAM:
            return self._synchronise(thread, self._covered(sim.stream(row)))
        if action == Action.SYNC_EVENT:
            record = sim.saw[row] = sim.recorded[sim.object[row]]  # R5.4: the snapshot at the call
            return self._synchronise(thread, [record])
        if action == Action.DRAIN:
            return self._synchronise(thread, _last(self._current_device(row)))  # R2.6
        if action == Action.RECEIVE:
            return self._receive(thread, row)
        if action == Action.QUERY:
            self._query(thread, row)
        elif action == Action.ELAPSED:
            self._elapsed(row)
        elif action == Action.BARRIER:
            sim.put_barrier(self._current_device(row))
        elif action == Action.STORE and sim.values is not None:
            sim.values.write(row, Bound.STORE)
            sim.settle()
        elif action == Action.SEND:
            self._send(row)
        elif action == Action.CAPTURE:
            self.captures.begin(thread, row)
        elif action == Action.CAPTURE_END:
            self.captures.finish(thread, row)
        elif action == Action.GRAPH_BUILD:
            self.captures.build(row)
        elif action == Action.GRAPH_UPDATE:
            self.captures.update(row)
        elif sim.pools is not None and sim.call[row] == CALL.FREE and sim.has_flag(row, FLAG.POOL):
            sim.pools.freed_by_host(row, self._current_device(row))
        return True

    def _put(self, thread: HostThread, row: int) -> bool:
        """Put an operation into a stream, as soon as there is room for it; then wait as table 3.1 says."""
        sim, plan = self._sim, self._sim.plan
        if self._refused(row):
            self._take(row)
            thread.stage = LATE
            return True
        if row in plan.drain_first and not thread.drained:  # R4.1, section 4
            thread.drained = True
            if not self._wait(thread, _last(sim.stream(row).device)):
                thread.stage = ACT
                return False
        if row in plan.slots and not thread.has_slots:
            thread.has_slots = self.staging.take(thread, plan.slots[row])
            if not thread.has_slots:
                return False
        if self._entries is not None and self._entries[row] and not self._take_entry(thread, row):
            return False
        thread.drained = thread.has_slots = False
        thread.stage = LATE
        self._take(row)
        self.order += plan.batches.get(row, ())
        sim.issue(row)
        if row in plan.slots:
            self.staging.hold(row, plan.slots[row])
        until = plan.until.get(row, Until.ISSUED)
        if until == Until.READY and sim.left[row] > 0:
            self.on_ready[row] = thread
            return False
        if until == Until.DONE and row in plan.lag:
            self.early[row] = thread
            self.waits[row] = (_WORK, row)
            return False
        return until != Until.DONE or self._wait(thread, [row])

    def _current_device(self, row: int) -> DeviceState:
        return self._sim.devices[self._sim.device_of_row[row]]

    # ------------------------------------------------------------------------------------------ waiting for the device

    def _covered(self, stream: StreamState) -> list[int]:
        """Give the last operations that a synchronise or query of a stream is about."""
        if not stream.legacy:
            return [stream.last]
        return [stream.last, *(other.last for other in stream.device.feeders)]  # R2.5

    def _synchronise(self, thread: HostThread, ops: list[int]) -> bool:
        """Let a thread wait for what a synchronise covers."""
        if self._sim.pools is not None:
            thread.covers = self._sim.pools.covered(ops)
        return self._wait(thread, ops)

    def _wait(self, thread: HostThread, ops: Iterable[int]) -> bool:
        """Let a thread wait for operations; tell whether it need not."""
        sim = self._sim
        pending = [op for op in ops if op >= 0 and sim.is_pending(op)]
        thread.pending = len(pending)
        for op in pending:
            sim.edges.setdefault(op, []).append((-1 - thread.index, _WORK))
        return not pending

    def waited(self, index: int, op: int) -> None:
        """Note that one of the operations a thread waits for is complete."""
        thread = self.threads[index]
        thread.pending -= 1
        if not thread.pending:
            (self.delays if thread.stage == ACT else self.waits)[thread.row] = (_WORK, op)
            self.come_back(thread)

    def come_back(self, thread: HostThread) -> None:
        """Let a thread return from a wait, once it has noticed."""
        if late := self._sim.machine.sync_return:
            heappush(self._sim.events, (self._sim.now + late, TIMER, thread.index, 0))
        else:
            self.wake(thread)

    def is_ready(self, op: int) -> None:
        """Let a thread return that waits until everything before its copy is done (table 3.1)."""
        if op in self.on_ready:
            self.waits[op] = (_WORK, self._sim.bound_by[op])
            self.come_back(self.on_ready.pop(op))

    def _pool_is_told(self, thread: HostThread, row: int) -> int:
        """R8.3, R8.5: after a synchronise the pool knows more, and gives back what it may; give the time that takes."""
        pools, call = self._sim.pools, self._sim.call[row]
        if pools is None or call not in _TELLS or row in self.errors:
            return 0
        pools.told(thread.covers)
        return pools.release(self._current_device(row)) if call != CALL.QUERY else 0

    def _query(self, thread: HostThread, row: int) -> None:
        """R2.5, R5.3: success if nothing that it is about is pending."""
        sim = self._sim
        if sim.stream_of[row] >= 0:
            about = self._covered(sim.stream(row))
        else:
            sim.saw[row] = sim.recorded[sim.object[row]]
            about = [sim.saw[row]]
        if sim.pools is not None:
            thread.covers = sim.pools.covered(about)
        if any(op >= 0 and sim.is_pending(op) for op in about):
            self.errors[row] = CudaError.NOT_READY

    def _elapsed(self, row: int) -> None:
        """R5.5, R5.6."""
        sim = self._sim
        first, second = sim.recorded[sim.object[row]], sim.recorded[sim.second[row]]
        without_time = any(record < 0 or sim.has_flag(record, FLAG.UNTIMED) for record in (first, second))
        if without_time or sim.stream(first).device is not sim.stream(second).device:
            self.errors[row] = CudaError.INVALID_RESOURCE_HANDLE
        elif sim.is_pending(first) or sim.is_pending(second):
            self.errors[row] = CudaError.NOT_READY
        else:
            self.values[row] = sim.end[second] - sim.end[first]

    def _refused(self, row: int) -> bool:
        """R3.9: a batch is not for the legacy stream. R8.4: a pool at its limit has nothing.

        R5.5: an event and the stream that records it belong to one device.
        """
        sim = self._sim
        if row in sim.plan.batches and sim.stream(row).legacy:
            self.errors[row] = CudaError.INVALID_VALUE
            return True
        if sim.pools is not None and sim.op_kind[row] == _OP_MALLOC and sim.pools.refused(row):
            self.errors[row] = CudaError.MEMORY_ALLOCATION
            return True
        if sim.op_kind[row] != _OP_RECORD:
            return False
        device = sim.program.events[sim.object[row]].device
        if device in (-1, sim.stream(row).device.index):
            return False
        self.errors[row] = CudaError.INVALID_RESOURCE_HANDLE
        return True

    # ------------------------------------------------------------------------------------------------- messages

    def _send(self, row: int) -> None:
        message = self._sim.object[row]
        if self._receivers[message]:
            thread = self._receivers[message].popleft()
            self._sim.saw[thread.row] = row
            self.waits[thread.row] = (Bound.MESSAGE, row)
            self.wake(thread)
        else:
            self._mail[message].append(row)

    def _receive(self, thread: HostThread, row: int) -> bool:
        message = self._sim.object[row]
        if not self._mail[message]:
            self._receivers[message].append(thread)
            return False
        self._sim.saw[row] = self._mail[message].popleft()
        return True

    # ----------------------------------------------------------------------------------------- the driver's lock (R4.2)

    def _get_lock(self, thread: HostThread, need: int) -> bool:
        if self._lock_owner is not None and self._lock_owner is not thread:
            self.delays[thread.row] = (Bound.LOCK, self._lock_owner.row)
            self._lock_waiters.append(thread)
            return False
        if need >= Lock.HOLDS:
            self._lock_owner = thread
        return True

    def unlock(self, thread: HostThread) -> None:
        """Let the lock go if the thread still has it."""
        if self._lock_owner is thread:
            self._lock_owner = None
            waiters, self._lock_waiters = self._lock_waiters, []
            for waiter in waiters:
                self.wake(waiter)

    # -------------------------------------------------------------------------------------------- launch queues (R6.9)

    def _launch_queue(self, row: int) -> LaunchQueue:
        """Give what holds the entries of a row's operation: its stream, or the channel it will go into."""
        sim = self._sim
        stream = sim.stream(row)
        if sim.machine.launch_depth_per == "stream":
            return stream
        place = sim.place_now(row, stream)
        queues = stream.device.queues[place if place in (Place.H2D, Place.D2H) else Place.SM]
        return queues.choose(stream) if isinstance(queues, Channels) else stream

    def _take_entry(self, thread: HostThread, row: int) -> bool:
        queue, machine, sizes = self._launch_queue(row), self._sim.machine, self._queue_bytes
        size = sizes[row] if sizes is not None else 0
        no_entry = machine.launch_depth is not None and queue.entries >= machine.launch_depth
        no_bytes = machine.launch_bytes is not None and queue.bytes and queue.bytes + size > machine.launch_bytes
        if no_entry or no_bytes:
            queue.blocked.append(thread)
            self._full += 1
            return False
        queue.entries += 1
        queue.bytes += size
        self.entry_of[row] = queue
        return True

    def give_entry_back(self, op: int) -> None:
        """Give back the entry of an operation that is complete; threads that wait for room look again."""
        queue, sizes = self.entry_of.pop(op), self._queue_bytes
        queue.entries -= 1
        queue.bytes -= sizes[op] if sizes is not None else 0
        if queue.blocked:
            woken = list(queue.blocked)
            queue.blocked.clear()
            self._full -= len(woken)
            if not self._full:
                woken += self._full_waiters
                self._full_waiters = []
            for thread in woken:
                self.delays[thread.row] = (Bound.LAUNCH_QUEUE, op)
                self.wake(thread)

    def _stands_behind_full_queue(self, thread: HostThread) -> bool:
        """R6.9: while a launch waits for room, other threads' allocations and new streams wait as well."""
        sim = self._sim
        if not sim.machine.driver_lock or sim.call[thread.row] not in (CALL.MALLOC, CALL.STREAM_CREATE):
            return False
        self._full_waiters.append(thread)
        return True


def _last(device: DeviceState) -> list[int]:
    return [stream.last for stream in device.all_streams()]
