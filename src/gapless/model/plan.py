"""What a machine makes of each row of a program, before anything runs: costs, engines, how the host waits.

Everything here depends on one row alone (and on the machine), so it is worked out for all rows at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from .call_costs import host_costs, late_costs
from .columns import among
from .errors import GaplessError
from .kinds import CALL, FLAG, MEMORY, OP, StreamKind
from .machine import Machine
from .memory_pool import matters
from .ordering import is_empty_action
from .plan_facts import Facts, sparse
from .program import Program
from .things import Grid

PIECES = 8  # a kernel of known shape is placed in at most so many rounds; more would cost time and tell nothing


# The numbers that follow are plain ones: the simulation compares them all the time, and an enum would slow it down.


class Action:
    """What a call does once its cost is over."""

    NOTHING = 0
    PUT = 1  # puts an operation into a stream and returns
    PUT_AND_WAIT = 2  # the same, but needs a staging slot or waits for something
    SYNC_STREAM = 3
    SYNC_EVENT = 4
    DRAIN = 5  # waits for all work of the device
    QUERY = 6
    ELAPSED = 7
    SEND = 8
    RECEIVE = 9
    CAPTURE = 10
    CAPTURE_END = 11
    GRAPH_BUILD = 12
    STORE = 14  # writes a word that streams wait for (R5.9)
    GRAPH_UPDATE = 15
    BARRIER = 13  # holds all later work of the device behind all earlier work, without waiting itself


class Place:
    """Where an operation runs."""

    NOWHERE = 0  # needs no engine
    SM = 1
    INLINE = 2  # inside the compute channel (R3.13); small memsets too (R3.10)
    H2D = 3
    D2H = 4
    PEER = 5
    WORKER = 6  # a host function's worker
    CALLER = 7  # the calling host thread copies itself (table 3.1, H2H)
    GRAPH = 8
    BATCH = 9  # of copies, which run where they run (R3.9)


PLACES = range(10)


class Until:
    """Up to when a call that puts an operation into a stream blocks its thread (table 3.1)."""

    ISSUED = 0
    READY = 1  # everything before the operation is done
    DONE = 2


class Lock:
    """What a call has to do with the driver's lock (R4.2)."""

    FREE = 0
    NEEDS = 1
    HOLDS = 2
    HOLDS_HALF = 3


@dataclass(slots=True)
class Plan:
    """One entry a row, unless said otherwise. Times in ps. None: nothing of the kind in this program and machine."""

    action: NDArray[np.int8]
    place: NDArray[np.int8]
    work: NDArray[np.int64]  # time on the engine, alone
    cost: NDArray[np.int64] | None  # host time before the call acts
    late: dict[int, int]  # host time after its waiting, of rows that have any
    until: dict[int, int]  # rows that wait: Until
    lag: dict[int, int]  # how long before the end of its operation a call returns (R3.12)
    slots: dict[int, int]  # staging slots a row needs; -1 all of them (R3.12)
    pieces: dict[int, int]  # pieces in which a staged copy lands (R3.12)
    drain_first: set[int]  # rows that wait for all work before they act (R4.1, section 4)
    first: set[int]  # rows that use a kernel for the first time (R4.1)
    empty: set[int]  # rows that are empty actions of R2.3 whatever the events hold
    lock: NDArray[np.int8] | None
    entries: NDArray[np.int8] | None  # launch queue entries a row takes, 0 or 1 (R6.9)
    queue_bytes: NDArray[np.int64] | None  # bytes it takes there
    slowed: NDArray[np.float64] | None  # rate while the other direction runs too (R3.11); 0: not on the link
    overhead: NDArray[np.int64] | None  # part of a copy's time that its curve holds for the engine, not for the link
    units: list[int]  # of each grid: units of the SM pool a block needs
    blocks: list[int]  # of each grid
    rounds: list[int]  # of each grid: a kernel's time is that of so many rounds of blocks
    tails: list[float]  # of each grid: last part of a kernel's time in which its SMs fall free (kernel_tail)
    batches: dict[int, list[int]]  # copies of each batch (R3.9)
    pools: bool  # it matters which memory the stream-ordered pool hands out (R8.4, R8.5)
    triggers: dict[int, int]  # of some grids: after so long a block lets the dependent kernel start (R6.14)
    capacity: int  # units of the SM pool of a device


def plan(program: Program, machine: Machine) -> Plan:
    """Work out the plan. Raises ``GaplessError`` for an operation whose time neither program nor machine gives."""
    return _Planner(program, machine).plan()


class _Planner(Facts):
    def __init__(self, program: Program, machine: Machine) -> None:
        super().__init__(program, machine)
        self.overhead = np.zeros(len(self.op), np.int64)  # see Plan

    def plan(self) -> Plan:
        machine, until = self.machine, self._until()
        place = self._place()
        work = self._work(place)
        slowed = self._slowed(place, until, work)
        slots, pieces = self._slots()
        self._gather_batches(until)
        lag = self._lag(until)
        capacity, units, blocks, rounds = self._grids()
        multi = len(self.program.threads) > 1
        return Plan(
            action=self._action(until, slots),
            place=place,
            work=work,
            cost=host_costs(self),
            late=sparse(late_costs(self)),
            until=sparse(until),
            lag=sparse(lag),
            slots=sparse(slots),
            pieces=sparse(pieces),
            drain_first=self._drain_first(),
            first=self._first() if machine.first_launch_barrier else set(),
            empty=self._empty(),
            lock=self._lock() if machine.driver_lock and multi else None,
            entries=self._entries(place),
            queue_bytes=self._queue_bytes(place) if machine.launch_bytes is not None else None,
            slowed=slowed,
            overhead=self.overhead if self.overhead.any() else None,
            units=units,
            blocks=blocks,
            rounds=rounds,
            tails=self._tails(),
            batches=self.batches,
            pools=matters(self.program, machine),
            triggers={i: grid.trigger for i, grid in enumerate(self.program.grids) if grid.trigger >= 0},
            capacity=capacity,
        )

    # ------------------------------------------------------------------------------------------- where and how long

    def _place(self) -> NDArray[np.int8]:
        machine, op, table = self.machine, self.op, _PLACE_OF.copy()
        if not machine.h2d_engines:  # 6.1: no copy engine, the SMs copy
            table[OP.H2D] = Place.SM
        if not machine.d2h_engines:
            table[OP.D2H] = Place.SM
        if machine.d2d_engine == "ce":  # R3.10
            table[OP.D2D] = Place.PEER
        if machine.memset_engine == "ce":  # R3.10
            table[OP.MEMSET] = Place.PEER
        where = table[op]
        where[(op == OP.MEMSET) & (self.size <= machine.memset_no_sm)] = Place.INLINE  # R3.10
        if self.staged_machine:
            where[self.small] = Place.INLINE  # R3.13
        if machine.shared_copy_engine:  # 6.1: one engine in all
            where[(where == Place.D2H) | (where == Place.PEER)] = Place.H2D
        return where

    def _work(self, place: NDArray[np.int8]) -> NDArray[np.int64]:
        machine, op = self.machine, self.op
        work = self.rows.duration.copy()
        unknown = (op >= 0) & (work < 0)
        if unknown.any():
            staged_dma = self.pageable & self.h2d & ~self.small & ~self.sync & (self.size <= self.staged_size)
            by_host = self.pageable & ~(staged_dma & self.staged_machine) & (place != Place.INLINE)
            for curve, rows in (
                ("inline_curve", (place == Place.INLINE) & self.h2d),
                ("pageable_h2d_curve", by_host & self.h2d),
                ("pageable_d2h_curve", by_host & self.d2h),
                ("h2d_curve", self.h2d & ~by_host & (place != Place.INLINE)),
                ("d2h_curve", self.d2h & ~by_host),
                ("d2d_curve", op == OP.D2D),
                ("memset_curve", op == OP.MEMSET),
                ("p2p_curve", op == OP.P2P),
            ):
                self._by_size(work, unknown & rows, curve)
            self._refuse(unknown & (work < 0), "gives neither a time nor a size")
        copies = _COPIES[op]
        work[copies] += machine.copy_overhead
        if machine.record_cost:
            timed = (op == OP.RECORD) & ((self.rows.flags & FLAG.UNTIMED) == 0)
            work[timed] += machine.record_cost  # R5.6
        return np.maximum(work, 0)

    def _by_size(self, work: NDArray[np.int64], rows: NDArray[np.bool_], curve: str) -> None:
        if not rows.any():
            return
        self._refuse(rows & (self.bytes < 0), "gives neither a time nor a size")
        if not getattr(self.machine, curve):
            self._refuse(rows, f"gives only a size, and machine {self.machine.name} has no {curve}: give a time")
        work[rows] = self.machine.time_of(curve, self.bytes[rows])
        if curve in (
            "h2d_curve",
            "d2h_curve",
        ):  # back to back: what the smallest copy takes, the engine takes for itself
            self.overhead[rows] = round(getattr(self.machine, curve)[0][1] * 1000)

    def _refuse(self, rows: NDArray[np.bool_], why: str) -> None:
        if rows.any():
            raise GaplessError(f"{self.program.describe(int(np.argmax(rows)))} {why}")

    def _slowed(
        self, place: NDArray[np.int8], until: NDArray[np.int8], work: NDArray[np.int64]
    ) -> NDArray[np.float64] | None:
        """R3.11; a copy whose pace is the host's (pageable, waited for) neither slows nor is slowed.

        The factor is that of the link; the part of a copy's time that its engine takes for itself stays the same.
        """
        machine = self.machine
        if machine.duplex == (1, 1) and not machine.duplex_curve:
            return None
        factor = np.zeros(len(place))
        paced = self.pageable & (until == Until.DONE)
        for column, (kind, where) in enumerate(((self.h2d, Place.H2D), (self.d2h, Place.D2H))):
            rows = kind & (place == where) & ~paced
            factor[rows] = float(machine.duplex[column])
            if machine.duplex_curve:
                sized = rows & (self.bytes >= 0)
                points = np.asarray(machine.duplex_curve)
                factor[sized] = np.interp(self.bytes[sized], points[:, 0], points[:, column + 1])
        on_link = (factor > 0) & (work > self.overhead)
        time, fixed = work[on_link], self.overhead[on_link]
        factor[on_link] = time / (fixed + (time - fixed) / factor[on_link])
        return factor

    def _grids(self) -> tuple[int, list[int], list[int], list[int]]:
        """Shares as whole units of a pool: exact, whatever the fractions."""
        machine, grids = self.machine, self.program.grids
        shares = [_share(grid, machine) for grid in grids]
        capacity = lcm(*(share.denominator for share in shares), machine.sms or 1)
        units = [int(share * capacity) for share in shares]
        blocks, rounds = [], []
        for grid, share in zip(grids, shares, strict=True):
            at_once = int(1 / share)
            times = min(-(-grid.blocks // at_once), PIECES) if grid.block is None else 1
            rounds.append(times)
            blocks.append(grid.blocks if grid.block is not None or grid.blocks <= at_once else at_once * times)
        return capacity, units, blocks, rounds

    def _tails(self) -> list[float]:
        """Only the last wave of blocks ends one by one, so a kernel of many waves has a short tail (R6.11, M)."""
        tail = float(self.machine.kernel_tail)
        waves = [-(-grid.blocks // int(1 / _share(grid, self.machine))) for grid in self.program.grids]
        return [
            tail / wave if grid.block is None else 0.0 for grid, wave in zip(self.program.grids, waves, strict=True)
        ]

    # ------------------------------------------------------------------------------------------------- the host's side

    def _until(self) -> NDArray[np.int8]:
        """Table 3.1, and the calls of section 4 that wait for their own operation."""
        machine, op, sync = self.machine, self.op, self.sync
        until = np.full(len(op), Until.ISSUED, np.int8)
        managed = self.host_kind == MEMORY.MANAGED
        until[sync & (self.h2d | self.d2h)] = Until.DONE  # sync-2, sync-3
        until[self.pageable] = Until.DONE  # sync-1, async-1 to -3
        staged = self.pageable & self.h2d & ~sync & (self.size <= self.staged_size)
        if self.staged_machine:
            until[staged] = Until.ISSUED  # R3.12
        until[self.small] = Until.ISSUED  # PGC 6.2.8.1
        if self.staged_machine:
            until[self.small & sync] = Until.READY  # table 3.1, O: waits at every size
        until[op == OP.H2H] = Until.DONE  # sync-5, async-2
        pinned_target = (op == OP.MEMSET) & ((self.rows.dst == MEMORY.PINNED) | managed)
        until[pinned_target & sync] = Until.DONE
        if machine.sync_memops:
            until[sync] = Until.DONE  # R3.2
        if machine.launch_blocking:
            until[self.call == CALL.LAUNCH] = Until.DONE  # PG 5.2.3.1: launches only
        return until

    def _gather_batches(self, until: NDArray[np.int8]) -> None:
        """R3.9: a batch is one call. It blocks its thread as its copies would; during the call they have to be read.

        What drivers make of the source order has not been measured: as documented (M).
        """
        handed_over = self.small | (self.pageable & self.h2d & (self.size <= self.staged_size) & self.staged_machine)
        until[self.has(FLAG.DURING_CALL) & self.batched & ~handed_over] = Until.DONE
        for batch, copies in self.batches.items():
            until[batch] = until[copies].max(initial=Until.ISSUED)
        until[self.batched] = Until.ISSUED

    def _lag(self, until: NDArray[np.int8]) -> NDArray[np.int64]:
        lag = np.zeros(len(self.op), np.int64)
        early = self.h2d & self.pageable & (until == Until.DONE)
        if self.staged_machine and self.machine.pageable_lag_curve and early.any():
            size = np.where(self.bytes < 0, self.staged_size, self.bytes)
            lag[early] = self.machine.time_of("pageable_lag_curve", size[early])  # R3.12
        return lag

    def _slots(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """R3.12: slots to hold, and pieces in which they are given back; a larger copy holds them all."""
        none = np.zeros(len(self.op), np.int64)
        if not self.staged_machine:
            return none, none
        staged = self.pageable & self.h2d & ~self.small & ~self.batched
        fits = staged & (self.size <= self.staged_size)
        pieces = none.copy()
        pieces[fits] = -(-self.size[fits] // self.machine.staging_slot)
        slots = pieces.copy()
        slots[staged & ~fits] = -1
        return slots, pieces

    def _action(self, until: NDArray[np.int8], slots: NDArray[np.int64]) -> NDArray[np.int8]:
        machine, call = self.machine, self.call
        action = np.full(len(call), Action.NOTHING, np.int8)
        action[(self.op >= 0) & ~self.batched] = Action.PUT
        action[(self.op >= 0) & ((until != Until.ISSUED) | (slots != 0))] = Action.PUT_AND_WAIT
        of_a_device = np.array([event.device >= 0 for event in self.program.events], np.bool_)
        records = np.flatnonzero(self.op == OP.RECORD)
        action[records[of_a_device[self.rows.object[records]]]] = Action.PUT_AND_WAIT  # R5.5
        action[sorted(self._drain_first())] = Action.PUT_AND_WAIT
        does = _ACTION_OF[call]
        action = np.where(does != Action.NOTHING, does, action)
        if machine.malloc_sync:
            action[call == CALL.MALLOC] = Action.BARRIER  # D1
        pooled = (self.rows.flags & FLAG.POOL) != 0
        if machine.free_sync:
            action[(call == CALL.FREE) & ~pooled] = Action.DRAIN  # D1
        if machine.hostfree_sync:
            action[call == CALL.HOST_FREE] = Action.DRAIN
        if machine.hostunregister_sync:
            action[call == CALL.HOST_UNREGISTER] = Action.DRAIN
        if machine.stack_limit_sync:
            action[(call == CALL.DEVICE_LIMIT) & self.has(FLAG.MORE_STACK)] = Action.DRAIN
        if machine.first_launch_barrier:
            action[(call == CALL.FUNCTION_ATTRIBUTES) & self.has(FLAG.FIRST)] = Action.BARRIER  # R4.1
        return action

    def _first(self) -> set[int]:
        """R4.1: the first use of a kernel. The first one of a pool, say, holds nothing up."""
        kernels = _ABOUT_KERNELS[self.call]
        return set(np.flatnonzero(self.has(FLAG.FIRST) & kernels).tolist())

    def _drain_first(self) -> set[int]:
        wait = np.zeros(len(self.call), np.bool_)
        if self.machine.stack_limit_sync:
            wait |= (self.call == CALL.LAUNCH) & self.has(FLAG.MORE_STACK)  # section 4
        if self.machine.first_launch_barrier:
            wait |= self.has(FLAG.FIRST_OF_LIBRARY)  # R4.1
        return set(np.flatnonzero(wait).tolist())

    def _empty(self) -> set[int]:
        """R2.3, where the knob makes a difference; waits and graphs are judged when they are issued."""
        if self.machine.legacy_noop_barrier == "yes":
            return set()
        legacy = np.array([info.kind == StreamKind.LEGACY for info in self.program.streams], np.bool_)
        on_legacy = (self.op >= 0) & legacy[np.maximum(self.rows.stream, 0)] if len(legacy) else np.zeros(0, np.bool_)
        rows = np.flatnonzero(on_legacy).tolist()
        return {row for row in rows if is_empty_action(int(self.op[row]), int(self.bytes[row]))}

    def _lock(self) -> NDArray[np.int8]:
        """R4.2."""
        call, flags = self.call, self.rows.flags
        lock = np.where(self.op >= 0, Lock.NEEDS, Lock.FREE).astype(np.int8)
        legacy = np.array([info.kind == StreamKind.LEGACY for info in self.program.streams] or [False], np.bool_)
        on_legacy = (self.rows.stream >= 0) & legacy[np.maximum(self.rows.stream, 0)]
        either_way = self.h2d | self.d2h
        lock[on_legacy & (call == CALL.COPY_SYNC) & (either_way | (self.op == OP.H2H))] = Lock.HOLDS
        lock[on_legacy & (call == CALL.COPY_ASYNC) & self.pageable] = Lock.HOLDS
        lock[(call == CALL.MEMSET_SYNC) & (self.rows.dst == MEMORY.PINNED)] = Lock.HOLDS
        lock[_HOLDERS[call]] = Lock.HOLDS
        lock[(call == CALL.FREE) & ((flags & FLAG.POOL) != 0)] = Lock.FREE
        lock[(call == CALL.DEVICE_LIMIT) & self.has(FLAG.MORE_STACK)] = Lock.HOLDS
        lock[call == CALL.GRAPH_BUILD] = Lock.HOLDS_HALF
        return lock

    def _entries(self, place: NDArray[np.int8]) -> NDArray[np.int8] | None:
        """R6.9: what takes an entry of the launch queue."""
        machine, op = self.machine, self.op
        if machine.launch_depth is None and machine.launch_bytes is None:
            return None
        takes = _QUEUED[op] & ~self.batched  # R3.9: the batch is one operation
        if machine.launch_depth_per == "stream":
            takes |= op == OP.HOST_FUNCTION
        else:
            takes |= (op == OP.RECORD) & ~self.has(FLAG.UNTIMED)
        return takes.astype(np.int8)

    def _queue_bytes(self, place: NDArray[np.int8]) -> NDArray[np.int64]:
        """R6.9: arguments of kernels and data that travel inline."""
        inside = (self.op == OP.KERNEL) | ((place == Place.INLINE) & self.h2d)
        return np.where(inside, np.maximum(self.bytes, 0), 0)


def _table(of: dict[int, int]) -> NDArray[np.int8]:
    """Give a table from a kind, a number of one byte, to what it means; 0 for all others, and for -1, none."""
    table = np.zeros(128, np.int8)
    table[list(of)] = list(of.values())
    return table


_PLACE_OF = _table({
    OP.KERNEL: Place.SM, OP.H2D: Place.H2D, OP.D2H: Place.D2H, OP.D2D: Place.SM,
    OP.MEMSET: Place.SM, OP.P2P: Place.PEER, OP.H2H: Place.CALLER, OP.HOST_FUNCTION: Place.WORKER,
    OP.GRAPH: Place.GRAPH, OP.BATCH: Place.BATCH,
})  # fmt: skip
_ACTION_OF = _table({
    CALL.SYNC_STREAM: Action.SYNC_STREAM, CALL.SYNC_EVENT: Action.SYNC_EVENT,
    CALL.SYNC_DEVICE: Action.DRAIN, CALL.QUERY: Action.QUERY, CALL.ELAPSED: Action.ELAPSED,
    CALL.SEND: Action.SEND, CALL.RECEIVE: Action.RECEIVE, CALL.CAPTURE: Action.CAPTURE,
    CALL.CAPTURE_END: Action.CAPTURE_END, CALL.GRAPH_BUILD: Action.GRAPH_BUILD, CALL.STORE: Action.STORE,
    CALL.GRAPH_UPDATE: Action.GRAPH_UPDATE,
})  # fmt: skip
_HOLDERS = among(
    CALL.MALLOC, CALL.FREE, CALL.HOST_MALLOC, CALL.HOST_FREE, CALL.HOST_REGISTER,
    CALL.HOST_UNREGISTER,
)  # fmt: skip
_ABOUT_KERNELS = among(CALL.LAUNCH, CALL.GRAPH_BUILD, CALL.FUNCTION_ATTRIBUTES)
_COPIES = among(OP.H2D, OP.D2H, OP.D2D, OP.P2P)
_QUEUED = _COPIES | among(OP.KERNEL, OP.MEMSET, OP.GRAPH, OP.BATCH)  # R6.9


def _share(grid: Grid, machine: Machine) -> Fraction:
    """Give the share of the GPU that one block of a grid needs (R6.10)."""
    if grid.block is not None:
        return grid.block
    if machine.sms is None:
        return Fraction(1, grid.blocks)  # a machine without SMs: the kernel fills the GPU
    needs = (
        (1, machine.blocks_per_sm),
        (grid.threads, machine.threads_per_sm),
        (grid.registers * grid.threads, machine.regs_per_sm),
        (grid.shared, machine.smem_per_sm),
    )
    of_an_sm = max(Fraction(need, has) for need, has in needs if has is not None)
    return min(of_an_sm, Fraction(1)) / machine.sms
