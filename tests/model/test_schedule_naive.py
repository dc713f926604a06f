"""The schedule against a second, naive simulator: written from the rules anew, slow, and compared on random programs.

The naive one keeps no state but what the rules speak of. At every instant it looks at every operation again and asks
whether anything still holds it; who waits for whom it takes from all pairs of operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import wraps
from itertools import pairwise, takewhile
from math import lcm
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from gapless.model.bounds import lower_bounds
from gapless.model.errors import DeadlockError
from gapless.model.happens_before import happened_in, order
from gapless.model.kinds import (
    CALL,
    FLAG,
    MEMORY,
    OP,
    Bound,
    CallKind,
    CudaError,
    Engine,
    MemoryKind,
    OpKind,
    SourceOrder,
    StreamKind,
)
from gapless.model.machine import Machine
from gapless.model.memory_pool import matters
from gapless.model.program import Buffer, Event, Program, Stream
from gapless.model.schedule import Schedule, schedule
from picks import Picks, choices, several_choices

TICK = 4_000_000  # ps; rates of one half keep times whole
KIB = 1024
MIB = 1024 * KIB

# ----------------------------------------------------------------------------------------------- the naive simulator

PINNED = MEMORY.PINNED
L, P, B, N = StreamKind.LEGACY, StreamKind.PER_THREAD, StreamKind.BLOCKING, StreamKind.NON_BLOCKING
WAITS = {(L, L), (L, P), (L, B), (P, L), (B, L)}  # the table of R2.1, different streams
COPIES = (OP.H2D, OP.D2H, OP.D2D, OP.H2H)
ON_SMS = (OP.KERNEL, OP.D2D, OP.MEMSET)
NO_ENGINE = (OP.RECORD, OP.WAIT, OP.MALLOC, OP.FREE)


@dataclass(eq=False)
class Op:
    row: int
    rank: int
    kind: OpKind
    stream: int
    work: int
    before: list[Op] = field(default_factory=list)
    batch: Op | None = None  # of whose copies it is one (R3.9)
    copies: list[Op] = field(default_factory=list)
    documented: list[Op] = field(default_factory=list)  # of these the ones that a program may rely on
    queue: Any = None
    family: str = ""  # the kind of queue it goes through
    inline: bool = False
    empty: bool = False
    holds: bool = True  # an action on L that holds the blocking streams
    ready_at: int = -1
    start: int = -1
    end: int = -1  # -1 while not complete
    blocks: int = 1
    to_place: int = 1
    units: int = 1
    rounds: list[tuple[int, int]] = field(default_factory=list)  # end, blocks
    left: Fraction = Fraction(0)  # of a running copy
    until: int = -1  # when a running operation of fixed time ends
    slots: int = 0
    landings: list[int] = field(default_factory=list)  # when its pieces but the last have landed (R3.12)

    @property
    def done(self) -> bool:
        return self.end >= 0

    @property
    def may_start(self) -> bool:
        return all(b.done for b in self.before) and (self.batch is None or self.batch.start >= 0)

    @property
    def dispatched(self) -> bool:
        return self.start >= 0 and self.to_place == 0


@dataclass(eq=False)
class Block:
    """Free memory of the pool."""

    bytes: int
    buffer: int = -1
    freed: Op | None = None
    told: bool = False


@dataclass(eq=False)
class Host:
    rows: list[int]
    at: int = 0
    stage: str = "begin"
    until: int = -1
    for_ops: list[Op] = field(default_factory=list)
    has_slots: bool = False
    full: bool = False  # it waits for room in a launch queue
    covers: list[Op] = field(default_factory=list)  # what its synchronise is about


class Naive:
    def __init__(self, program: Program, machine: Machine) -> None:
        self.p, self.m, self.r = program, machine, program.rows
        self.now = 0
        self.ops: list[Op] = []
        self.of_row: dict[int, Op] = {}
        self.hosts = [
            Host([r for r in range(len(program)) if self.r.thread[r] == t]) for t in range(len(program.threads))
        ]
        self.begin: dict[int, int] = {}
        self.issued: dict[int, int] = {}
        self.returned: dict[int, int] = {}
        self.errors: dict[int, int] = {}
        self.values: dict[int, int] = {}
        self.record: dict[int, Op] = {}
        self.mail = Counter[int]()
        self.receivers: list[tuple[int, Host]] = []
        self.lock: Host | None = None
        self.barrier: list[Op] = []  # what everything issued from now on waits for
        self.slots = machine.staging_slots
        self.slot_line: list[Host] = []
        self.last_channel: dict[tuple[str, int], Any] = {}
        self.channel: dict[tuple[str, int], int] = {}
        self.given: dict[str, list[int]] = {}
        self.holders: set[int] = set()
        grids = program.grids
        self.capacity = lcm(*(g.block.denominator for g in grids if g.block))
        self.units = [int(g.block * self.capacity) for g in grids if g.block]
        self.free: list[Block] = []  # the pool
        self.used: dict[int, int] = {}
        self.reserved = 0
        self.no_memory: set[int] = set()
        self.behind: dict[int, Op] = {}
        self.waits_in_pool: set[int] = set()

    # -- the loop

    def run(self) -> None:
        while True:
            self.hosts_go()
            while self.start_something():
                pass
            times = [h.until for h in self.hosts if h.until > self.now]
            times += [t for op in self.ops for t in self.next_times(op)]
            times += [self.now] * any(t <= self.now for op in self.ops for t in self.next_times(op))
            if not times:
                break
            self.go_to(min(times))
        if any(h.at < len(h.rows) for h in self.hosts):
            raise DeadlockError([], [])

    def next_times(self, op: Op) -> list[int]:
        if op.done or op.start < 0 or op.kind == OP.BATCH:
            return []
        if op.until >= 0:
            return [op.until]
        if op.landings:
            return [op.landings[0], self.now + int(-(-op.left // self.rate(op)))]
        if op.family == "sm":
            return [end for end, _ in op.rounds]
        return [self.now + int(-(-op.left // self.rate(op)))]

    def rate(self, op: Op) -> Fraction:
        """R3.11."""
        mine = op.kind
        if mine not in (OP.H2D, OP.D2H) or self.host_paced(op):
            return Fraction(1)
        other = OP.D2H if mine == OP.H2D else OP.H2D
        both = any(self.runs_on_engine(o) and o.kind == other and not self.host_paced(o) for o in self.ops)
        return self.m.duplex[mine == OP.D2H] if both else Fraction(1)

    def host_paced(self, op: Op) -> bool:
        return self.pageable(op.row) and self.until_when(op.row) == "done"

    def runs_on_engine(self, op: Op) -> bool:
        return op.family in ("h2d", "d2h") and op.start >= 0 and not op.done

    def go_to(self, time: int) -> None:
        rates = {op: self.rate(op) for op in self.ops if self.runs_on_engine(op)}
        for op, rate in rates.items():
            op.left -= rate * (time - self.now)
        self.now = time
        for op in self.ops:
            if op.start < 0 or op.done:
                continue
            while op.landings and op.landings[0] <= time:
                op.landings.pop(0)
                op.slots -= 1
                self.slots += 1
                self.serve_slot_line()
            if op.family == "sm" and not op.inline:
                op.rounds = [(end, blocks) for end, blocks in op.rounds if end > time]
                if not op.rounds and not op.to_place:
                    self.end(op)
            elif (op in rates and op.left <= 0) or (0 <= op.until <= time):
                self.end(op)
        self.pass_zero_ops()

    def end(self, op: Op) -> None:
        op.end = self.now
        op.landings = []
        if op.slots:
            self.slots += op.slots
            self.serve_slot_line()

    def pass_zero_ops(self) -> None:
        """What needs no engine and no time is over as soon as it reaches the front of its stream."""
        again = True
        while again:
            again = False
            for op in self.ops:
                if op.kind == OP.BATCH and op.start >= 0 and not op.done and all(c.done for c in op.copies):
                    self.end(op)
                    again = True
                if op.kind == OP.BATCH and op.start < 0 and op.may_start:
                    op.start, op.to_place, again = self.now, 0, True
                if not op.done and op.start < 0 and op.kind in NO_ENGINE and op.may_start:
                    op.start = op.ready_at = self.now
                    op.to_place = 0
                    if op.work:
                        op.until = self.now + op.work
                    else:
                        self.end(op)
                    again = True
            self.settle_pool()

    # -- host threads

    def hosts_go(self) -> None:
        while True:
            for host in self.hosts:
                if self.step(host):
                    while self.step(host):  # as far as it can, then again in the order of the threads
                        pass
                    break
            else:
                return

    def step(self, host: Host) -> bool:
        """One step of a thread if it can make one now."""
        if host.until > self.now:
            return False
        if host.stage == "begin":
            if host.at == len(host.rows):
                return False
            self.begin[host.rows[host.at]] = self.now
            host.stage = "enter"
        row = host.rows[host.at]
        if host.stage == "enter":
            need = self.lock_need(row)
            if need and self.lock not in (None, host):
                return False
            if need == "holds":
                self.lock = host
            others_wait = any(other.full for other in self.hosts if other is not host)
            if self.m.driver_lock and self.r.call[row] == CALL.MALLOC and others_wait:  # R6.9
                return False
            host.stage = "act"
            cost = self.cost(row) + (self.ask(row) if self.r.call[row] == CALL.MALLOC_ASYNC else 0)
            if cost:
                host.until = self.now + cost
                return False
        host.until = -1
        if host.stage == "act":
            return self.act(host, row)
        if host.stage == "wait":
            if not all(op.done for op in host.for_ops):
                return False
            return self.give_back(host, row)
        if host.stage == "release":
            return self.give_back(host, row)
        if host.stage == "ready":
            if not all(op.done for op in self.of_row[row].before):
                return False
            return self.give_back(host, row)
        return False  # receives, slots: somebody else wakes it

    def give_back(self, host: Host, row: int) -> bool:
        asks = (CALL.SYNC_STREAM, CALL.SYNC_EVENT, CALL.SYNC_DEVICE, CALL.QUERY)
        if self.r.call[row] in asks and host.stage != "release":
            over = self.reached(host.covers)
            for block in self.free if row not in self.errors else []:
                block.told |= block.freed in over
            late = self.release() if self.r.call[row] != CALL.QUERY else 0
            if late:
                host.stage, host.until = "release", self.now + late
                return False
        self.returned[row] = self.now
        host.at += 1
        for copy in self.copies_of(row):
            for times in (self.begin, self.issued, self.returned):
                times[copy] = times[row]
            host.at += 1
        host.stage, host.for_ops = "begin", []
        if self.lock is host:
            self.lock = None
        return True

    def wait_for(self, host: Host, row: int, ops: list[Op]) -> bool:
        host.stage, host.for_ops, host.covers = "wait", ops, ops
        return all(op.done for op in ops) and self.give_back(host, row)

    def act(self, host: Host, row: int) -> bool:
        call, m = int(self.r.call[row]), self.m
        if self.r.op[row] >= 0:
            return self.put(host, row)
        self.issued[row] = self.now
        if call == CALL.SYNC_STREAM:
            return self.wait_for(host, row, self.covered(int(self.r.stream[row])))
        if call == CALL.SYNC_EVENT:
            record = self.record.get(int(self.r.object[row]))
            return self.wait_for(host, row, [record] if record else [])
        drains = {
            CALL.SYNC_DEVICE: True, CALL.FREE: m.free_sync and not self.r.flags[row] & FLAG.POOL,
            CALL.HOST_FREE: m.hostfree_sync, CALL.HOST_UNREGISTER: m.hostunregister_sync,
        }  # fmt: skip
        if drains.get(CallKind(call)):
            return self.wait_for(host, row, list(self.ops))
        if call == CALL.MALLOC and m.malloc_sync:
            self.barrier = self.barrier + [op for op in self.ops if not op.done]
        if call == CALL.QUERY:
            stream, ev = int(self.r.stream[row]), int(self.r.object[row])
            about = self.covered(stream) if stream >= 0 else [self.record[ev]] if ev in self.record else []
            host.covers = about
            if not all(op.done for op in about):
                self.errors[row] = CudaError.NOT_READY
        if call == CALL.FREE and self.r.flags[row] & FLAG.POOL:
            self.pool_free(int(self.r.object[row]), None)
        if call == CALL.ELAPSED:
            self.elapsed(row)
        if call == CALL.SEND:
            self.send(int(self.r.object[row]))
        if call == CALL.RECEIVE:
            message = int(self.r.object[row])
            if not self.mail[message]:
                self.receivers.append((message, host))
                host.stage = "receive"
                return False
            self.mail[message] -= 1
        return self.give_back(host, row)

    def send(self, message: int) -> None:
        for waiting in self.receivers:
            if waiting[0] == message:
                self.receivers.remove(waiting)
                waiting[1].stage, waiting[1].for_ops = "wait", []
                return
        self.mail[message] += 1

    def elapsed(self, row: int) -> None:
        first, second = (self.record.get(int(c[row])) for c in (self.r.object, self.r.second))
        if first is None or second is None or any(self.r.flags[op.row] & FLAG.UNTIMED for op in (first, second)):
            self.errors[row] = CudaError.INVALID_RESOURCE_HANDLE
        elif not first.done or not second.done:
            self.errors[row] = CudaError.NOT_READY
        else:
            self.values[row] = second.end - first.end

    def covered(self, stream: int) -> list[Op]:
        """R2.5."""
        kinds = self.p.streams
        if kinds[stream].kind != L:
            return [op for op in self.ops if op.stream == stream]
        return [op for op in self.ops if kinds[op.stream].kind != N]

    def cost(self, row: int) -> int:
        call = int(self.r.call[row])
        if call == CALL.HOST_WORK:
            return int(self.r.duration[row])
        if call in (CALL.HOST_READ, CALL.HOST_WRITE, CALL.SEND, CALL.RECEIVE, CALL.REUSE):
            return 0
        return self.m.launch_cost if call == CALL.LAUNCH else int(self.m.call_cost)

    def lock_need(self, row: int) -> str:
        """R4.2."""
        if not self.m.driver_lock or len(self.hosts) == 1:
            return ""
        call, op = int(self.r.call[row]), int(self.r.op[row])
        legacy = self.r.stream[row] >= 0 and self.p.streams[self.r.stream[row]].kind == L
        if legacy and call == CALL.COPY_SYNC and op != OP.D2D:
            return "holds"
        if legacy and call == CALL.COPY_ASYNC and self.pageable(row):
            return "holds"
        if call == CALL.MEMSET_SYNC and self.r.dst[row] == MEMORY.PINNED:
            return "holds"
        if call in (CALL.MALLOC, CALL.HOST_MALLOC, CALL.HOST_FREE):
            return "holds"
        if call == CALL.FREE and not self.r.flags[row] & FLAG.POOL:
            return "holds"
        return "needs" if op >= 0 else ""

    # -- table 3.1

    def pageable(self, row: int) -> bool:
        sides = {OP.H2D: self.r.src, OP.D2H: self.r.dst}
        op = int(self.r.op[row])
        return op in sides and sides[OpKind(op)][row] == MEMORY.PAGEABLE

    def size_class(self, row: int) -> str:
        size = int(self.r.bytes[row])
        if 0 <= size <= self.m.small_pageable:
            return "small"
        return "middle" if 0 <= size <= self.m.staging_slots * self.m.staging_slot else "large"

    def until_when(self, row: int) -> str:
        op, call = int(self.r.op[row]), int(self.r.call[row])
        sync = call in (CALL.COPY_SYNC, CALL.MEMSET_SYNC)
        staged, size = self.m.pageable == "staged", self.size_class(row)
        if call == CALL.BATCH:
            return "done" if "done" in [self.until_when(copy) for copy in self.copies_of(row)] else "issued"
        if call == CALL.BATCHED and self.r.flags[row] & FLAG.DURING_CALL:
            handed_over = op == OP.H2D and self.pageable(row) and (size == "small" or (staged and size == "middle"))
            return "issued" if handed_over else "done"
        if call == CALL.LAUNCH:
            return "done" if self.m.launch_blocking else "issued"
        if sync and self.m.sync_memops:
            return "done"
        if op == OP.H2D and self.pageable(row):
            if size == "small":
                return "ready" if staged and sync else "issued"
            return "issued" if staged and not sync and size == "middle" else "done"
        if op == OP.H2D:
            return "done" if sync else "issued"
        if op == OP.D2H:
            return "done" if sync or self.pageable(row) else "issued"
        if op == OP.H2H:
            return "done"
        if op == OP.MEMSET:
            return "done" if sync and self.r.dst[row] == MEMORY.PINNED else "issued"
        return "issued"

    def slots_needed(self, row: int) -> int:
        if self.m.pageable != "staged" or self.r.op[row] != OP.H2D or not self.pageable(row):
            return 0
        size = self.size_class(row)
        if size == "middle":
            return -(-int(self.r.bytes[row]) // self.m.staging_slot)
        return self.m.staging_slots if size == "large" else 0

    def serve_slot_line(self) -> None:
        while self.slot_line:
            host = self.slot_line[0]
            need = self.slots_needed(host.rows[host.at])
            if need > self.slots:
                return
            self.slots -= need
            self.slot_line.pop(0)
            host.has_slots = True
            host.stage = "act"

    # -- putting operations into streams

    def put(self, host: Host, row: int) -> bool:
        stream = int(self.r.stream[row])
        if self.r.call[row] == CALL.BATCH and self.p.streams[stream].kind == L:
            self.errors[row] = CudaError.INVALID_VALUE
            self.issued[row] = self.now
            return self.give_back(host, row)
        if row in self.no_memory:
            self.errors[row] = CudaError.MEMORY_ALLOCATION
            self.issued[row] = self.now
            return self.give_back(host, row)
        slots = self.slots_needed(row)
        if slots and not host.has_slots:
            self.slot_line.append(host)
            host.stage = "slots"
            self.serve_slot_line()
            if not host.has_slots:
                return False
        if self.m.launch_depth is not None and self.r.op[row] not in NO_ENGINE and self.r.op[row] != OP.H2H:
            pending = [o for o in self.ops if o.stream == stream and not o.done and o.kind not in NO_ENGINE]
            pending = [o for o in pending if o.batch is None]
            host.full = len([o for o in pending if o.kind != OP.H2H]) >= self.m.launch_depth
            if host.full:
                return False
        host.has_slots = False
        self.issued[row] = self.now
        op = self.issue(row, stream)
        op.slots = slots
        until = self.until_when(row)
        if until == "done":
            return self.wait_for(host, row, [op])
        if until == "ready" and not all(b.done for b in op.before):
            host.stage = "ready"
            return False
        return self.give_back(host, row)

    def issue(self, row: int, stream: int) -> Op:
        r, kind = self.r, OpKind(int(self.r.op[row]))
        op = Op(row, len(self.ops), kind, stream, max(int(r.duration[row]), 0))
        if kind in (OP.H2D, OP.D2H, OP.D2D):
            op.work += self.m.copy_overhead
        if kind == OP.RECORD and not r.flags[row] & FLAG.UNTIMED:
            op.work = self.m.record_cost
        on_legacy, knob = self.p.streams[stream].kind == L, self.m.legacy_noop_barrier
        if on_legacy and knob != "yes":
            op.empty = kind == OP.MALLOC or (kind == OP.WAIT and int(r.object[row]) not in self.record)
            op.empty |= r.bytes[row] == 0 and kind in (*COPIES, OP.MEMSET)
            op.holds = not op.empty and not (knob == "no" and kind == OP.RECORD)
        op.documented = [x for x in self.ops if self.must_wait(x, op)]
        if kind == OP.WAIT and int(r.object[row]) in self.record:
            op.documented.append(self.record[int(r.object[row])])
        op.before = op.documented + list(self.barrier)
        if row in self.waits_in_pool:
            op.before.append(self.behind[row])
        if kind == OP.FREE:
            self.pool_free(int(r.object[row]), op)
        if kind == OP.RECORD:
            self.record[int(r.object[row])] = op
        if r.flags[row] & FLAG.FIRST and self.m.first_launch_barrier:
            pending = [x for x in self.ops if not x.done]
            self.barrier = self.barrier + pending
            op.before += pending
        self.add(op)
        for copy in self.copies_of(row):
            part = Op(
                copy, len(self.ops), OpKind(int(r.op[copy])), stream, int(r.duration[copy]) + self.m.copy_overhead
            )
            part.batch = op
            op.copies.append(part)
            self.add(part)
        self.pass_zero_ops()
        return op

    def add(self, op: Op) -> None:
        self.choose_engine(op)
        self.ops.append(op)
        self.of_row[op.row] = op

    def copies_of(self, row: int) -> list[int]:
        if self.r.call[row] != CALL.BATCH:
            return []
        mine = [x for x in range(row + 1, len(self.p)) if self.r.thread[x] == self.r.thread[row]]
        return list(takewhile(lambda x: self.r.call[x] == CALL.BATCHED, mine))

    def must_wait(self, x: Op, y: Op) -> bool:
        if x.stream == y.stream:
            return True
        a, b = self.p.streams[x.stream].kind, self.p.streams[y.stream].kind
        if (a, b) not in WAITS:
            return False
        return not y.empty if b == L else x.holds

    def choose_engine(self, op: Op) -> None:
        size = int(self.r.bytes[op.row])
        if op.kind in ON_SMS:
            grid = max(int(self.r.grid[op.row]), 0)
            op.blocks = op.to_place = self.p.grids[grid].blocks
            op.units = self.units[grid]
            op.family = "sm"
            if op.kind == OP.MEMSET and 0 <= size <= self.m.memset_no_sm:
                op.inline = True
        elif op.kind in (OP.H2D, OP.D2H):
            op.family = "h2d" if self.m.shared_copy_engine else op.kind.name.lower()
            if op.kind == OP.H2D and not self.pageable(op.row) and size >= 0 and op.batch is None:
                idle = all(x.done for x in self.ops if x.stream == op.stream)
                limit = self.m.inline_idle if idle else self.m.inline_pending
                op.inline = limit > 0 and size <= limit
            if self.pageable(op.row) and op.kind == OP.H2D and self.m.pageable == "staged":
                op.inline = self.size_class(op.row) == "small"
            if op.inline:
                op.family = "sm"
        if op.inline:
            op.blocks = op.to_place = 1
        op.queue = self.queue_of(op)

    # -- the pool (R8.2 to R8.5)

    def reached(self, ops: list[Op]) -> set[Op | None]:
        """The operations, and all that is documented to come before them."""
        found, todo = set[Op | None](), list(ops)
        while todo:
            op = todo.pop()
            if op not in found:
                found.add(op)
                todo += op.documented
        return found

    def reuse_of(self, row: int) -> int:
        buffer = self.r.object[row]
        for later in range(row + 1, len(self.p)):
            if self.r.call[later] == CALL.MALLOC_ASYNC and self.r.object[later] == buffer:
                return -1
            if self.r.call[later] == CALL.REUSE and self.r.object[later] == buffer:
                again = [x for x in range(later + 1, len(self.p)) if self.r.object[x] == buffer]
                more = [x for x in again if self.r.call[x] in (CALL.REUSE, CALL.MALLOC_ASYNC)]
                while more and self.r.call[more[0]] == CALL.REUSE:
                    later = more.pop(0)
                return int(self.r.second[later])
        return -1

    def ask(self, row: int) -> int:
        stream, size, of = int(self.r.stream[row]), max(int(self.r.bytes[row]), 0), self.reuse_of(row)
        probe = Op(-1, len(self.ops), OP.MALLOC, stream, 0)
        probe.empty = self.m.legacy_noop_barrier != "yes"
        follows = self.reached([x for x in self.ops if self.must_wait(x, probe)])
        fit = [b for b in self.free if b.bytes >= size and (b.buffer == of if of >= 0 else size > 0)]
        policies = self.m.pool_reuse
        allowed = [
            [b for b in fit if b.freed is None or b.told or b.freed.stream == stream],
            [b for b in fit if b.freed in follows and "follow" in policies],
            [b for b in fit if b.freed is not None and b.freed.done and "opportunistic" in policies],
        ]
        for policy, blocks in enumerate(allowed):
            if blocks:
                block = min(blocks, key=lambda b: b.bytes)
                if policy == 2:
                    self.behind[row] = block.freed
                return self.hand_out(row, block, size)
        limit, curve = self.m.pool_max_size, self.m.pool_grow_curve
        for block in [b for b in self.free if b.freed is None or b.freed.done]:
            if limit is not None and self.reserved + size > limit:
                self.free.remove(block)
                self.reserved -= block.bytes
        if limit is None or self.reserved + size <= limit:
            grown = max(size, int(curve[0][0])) if curve and size else size
            grown = grown if limit is None else min(grown, limit - self.reserved)
            self.reserved += grown
            if grown > size:
                self.free.append(Block(grown - size))
            self.used[int(self.r.object[row])] = size
            return round(curve[0][1] * 1000) if curve and grown else 0
        if fit and "internal" in policies:
            self.behind[row] = fit[0].freed
            self.waits_in_pool.add(row)
            return self.hand_out(row, fit[0], size)
        self.no_memory.add(row)
        return 0

    def hand_out(self, row: int, block: Block, size: int) -> int:
        block.bytes -= size
        if not block.bytes:
            self.free.remove(block)
        self.used[int(self.r.object[row])] = size
        return 0

    def pool_free(self, buffer: int, op: Op | None) -> None:
        if buffer in self.used:
            self.free.append(Block(self.used.pop(buffer), buffer, op))

    def release(self) -> int:
        given_back = 0
        for block in [b for b in self.free if b.freed is None or b.freed.done]:
            if self.reserved > self.m.pool_release_threshold:
                self.free.remove(block)
                self.reserved -= block.bytes
                given_back += block.bytes
        curve = self.m.pool_release_curve
        return round(curve[0][1] * 1000) if curve and given_back else 0

    # -- queues (R6.6)

    def limit(self, family: str) -> int | None:
        if family not in ("sm", "h2d", "d2h"):
            return None
        if family == "sm":
            return self.m.queues
        if self.m.queue_policy == "pool":
            return None
        return self.m.queues if self.m.copy_queues == "same" else self.m.copy_queues

    def queue_of(self, op: Op) -> Any:
        limit = self.limit(op.family)
        if limit is None:
            return ("stream", op.family, op.stream) if op.family else None
        if self.m.queue_policy == "pool":
            return None if op.inline else ("pool", op.stream)
        if self.m.queue_policy == "mod":
            created = [i for i, s in enumerate(self.p.streams) if s.created]
            if op.stream not in created and self.m.default_stream_queue == "own":
                return ("own", op.family, op.stream)
            return ("mod", op.family, created.index(op.stream) % limit if op.stream in created else 0)
        turn = self.given.setdefault(op.family, list(range(limit)))
        key = (op.family, op.stream)
        mine = [x for x in self.ops if x.family == op.family and x.stream == op.stream and not x.dispatched]
        if not mine:
            waiting = {x.queue[2] for x in self.ops if x.family == op.family and x.queue and not x.dispatched}
            self.channel[key] = next((c for c in turn if c not in waiting), turn[0])
            turn.remove(self.channel[key])
            turn.append(self.channel[key])
        return ("sticky", op.family, self.channel[key])

    def settle_pool(self) -> None:
        if self.m.queue_policy != "pool" or self.m.queues is None:
            return
        waiting: dict[int, Op] = {}
        for op in self.ops:
            if op.queue and op.queue[0] == "pool" and not op.dispatched:
                waiting.setdefault(op.stream, op)
        stalled = set()
        for stream in range(len(self.p.streams)):
            head = next((op for op in self.ops if op.stream == stream and not op.done), None)
            if head is not None and not all(b.done for b in head.before):  # the next operation waits for another stream
                stalled.add(stream)
        self.holders = {s for s in self.holders if s in waiting and s not in stalled}
        for stream in sorted(waiting, key=lambda s: waiting[s].rank):
            if len(self.holders) < self.m.queues and stream not in stalled:
                self.holders.add(stream)

    def may_leave_queue(self, op: Op) -> bool:
        if op.queue is None:
            return True
        if op.queue[0] == "pool":
            return op.stream in self.holders
        return not any(x.queue == op.queue and x.rank < op.rank and not x.dispatched for x in self.ops)

    # -- starting

    def start_something(self) -> bool:
        """Start one operation (or place some blocks) if anything can start; tell whether it did."""
        ready = []
        for op in self.ops:
            if op.done or (op.start >= 0 and not op.to_place) or not op.may_start:
                continue
            if op.kind in (*NO_ENGINE, OP.BATCH) or not self.may_leave_queue(op):
                continue
            if op.ready_at < 0:
                op.ready_at = self.now
            ready.append(op)
        ready.sort(key=lambda op: (op.ready_at, op.rank))
        for op in ready:
            if op.inline or op.kind == OP.H2H:
                return self.start(op, fixed=True)
        functions = [op for op in ready if op.kind == OP.HOST_FUNCTION]
        running = [op for op in self.ops if op.kind == OP.HOST_FUNCTION and op.start >= 0 and not op.done]
        if functions and len(running) < self.m.hostfn_workers:
            return self.start(functions[0], fixed=True)
        for family in ("h2d", "d2h"):
            if self.start_copy(family, [op for op in ready if op.family == family]):
                return True
        return self.place_blocks([op for op in ready if op.family == "sm"])

    def start_copy(self, family: str, ready: list[Op]) -> bool:
        engines = 1 if self.m.shared_copy_engine else getattr(self.m, family + "_engines")
        running = [op for op in self.ops if op.family == family and self.runs_on_engine(op)]
        if not ready or len(running) >= engines:
            return False
        op = ready[0]
        if self.m.copy_arbitration == "drain_channel":
            op = next((o for o in ready if o.queue == self.last_channel.get((family, 0))), op)
            self.last_channel[family, 0] = op.queue
        return self.start(op, fixed=False)

    def start(self, op: Op, *, fixed: bool) -> bool:
        op.start, op.to_place = self.now, 0
        if fixed:
            op.until = self.now + op.work
        else:
            op.left = Fraction(op.work)
        if op.slots > 1 and self.size_class(op.row) == "middle":
            op.landings = [self.now + op.work * piece // op.slots for piece in range(1, op.slots)]
        self.settle_pool()
        return True

    def place_blocks(self, ready: list[Op]) -> bool:
        """R6.11, R6.13, A2; a kernel that waits for a grid slot holds nothing back."""
        resident = [op for op in self.ops if op.rounds]
        free = self.capacity - sum(op.units * blocks for op in resident for _, blocks in op.rounds)
        limit = 1 if self.m.kernels == "exclusive" else self.m.resident_grids
        ready.sort(key=lambda op: (self.p.streams[op.stream].priority, op.ready_at, op.rank))
        for op in ready:
            if (
                op.start < 0
                and len({o for o in self.ops if o.start >= 0 and not o.done and o.family == "sm" and not o.inline})
                >= limit
            ):
                continue
            fit = min(op.to_place, free // op.units)
            if not fit:
                return False
            if op.start < 0:
                op.start = self.now
            op.to_place -= fit
            op.rounds.append((self.now + op.work, fit))
            self.settle_pool()
            return True
        return False


# ---------------------------------------------------------------------------------------------------- random programs

KNOBS: dict[str, list[Any]] = {
    "h2d_engines": ["1", "2"],
    "shared_copy_engine": ["no", "yes"],
    "copy_arbitration": ["ready", "drain_channel"],
    "duplex": ["1", "0.5", "0.5,1"],
    "queues": ["ideal", "1", "2", "3"],
    "copy_queues": ["same", "ideal", "1", "2"],
    "queue_policy": ["pool", "mod", "sticky"],
    "default_stream_queue": ["own", "shared"],
    "launch_depth": ["none", "1", "2", "3"],
    "kernels": ["leftover", "exclusive"],
    "resident_grids": ["128", "1", "2"],
    "memset_no_sm": ["0", "4KiB"],
    "pageable": ["blocks", "staged"],
    "staging_slots": ["1", "2"],
    "inline_idle": ["0", "24KiB"],
    "inline_pending": ["0", "1KiB"],
    "sync_memops": ["no", "yes"],
    "legacy_noop_barrier": ["yes", "listed", "no"],
    "malloc_sync": ["no", "yes"],
    "free_sync": ["yes", "no"],
    "first_launch_barrier": ["no", "yes"],
    "driver_lock": ["no", "yes"],
    "launch_blocking": ["no", "no", "yes"],
    "hostfn_workers": ["1", "2"],
    "launch_cost": ["0", "4us"],
    "call_cost": ["0", "4us"],
    "copy_overhead": ["0", "4us"],
    "record_cost": ["0", "4us"],
    "pool_max_size": ["none", "64MiB", "96MiB"],
    "pool_reuse": ["all", "none", "follow", "opportunistic", "internal"],
    "pool_release_threshold": ["0", "64MiB", "max"],
    "pool_grow_curve": [[], [[16 * MIB, 4000]], [[80 * MIB, 4000], [96 * MIB, 4000]]],
    "pool_release_curve": [[], [[1, 4000]]],
}


def machine_of(choices: bytes) -> Machine:
    """A machine with a few knobs turned, or with any of them."""
    pick = Picks(choices)
    if pick((True, False)):
        names = {pick(list(KNOBS)) for _ in range(pick(range(7)))}
        return Machine().with_knobs(**{name: pick(KNOBS[name]) for name in sorted(names)})
    turned = {name: pick([None] * len(values) + values) for name, values in KNOBS.items()}
    return Machine().with_knobs(**{name: value for name, value in turned.items() if value is not None})


def machines() -> st.SearchStrategy[Machine]:
    return choices(6).map(machine_of)


def machine_with_pool(choices: bytes) -> Machine:
    pick = Picks(choices)
    return Machine().with_knobs(**{name: pick(values) for name, values in KNOBS.items() if name in _OF_POOLS})


def program_of(first: bytes, then: Sequence[bytes], of_calls: Sequence[str] = ()) -> Program:
    pick = Picks(first)
    program = Program(pick(["legacy", "per-thread"]))
    made = [program.stream(kind=pick([B, N, N, P]), priority=pick([0, 0, -1])) for _ in range(pick(range(1, 5)))]
    events = [program.event() for _ in range(2)]
    buffers, pinned = [program.buffer("b", 64 * MIB), program.buffer("c", 32 * MIB)], program.buffer("p", MIB, PINNED)
    calls = of_calls or pick([_CALLS, _CALLS, _CALLS[:7], _CALLS[:12], _CALLS[2:20]])
    threads = pick([["main"], ["main", "main", "T1"]])
    for of_call in then:
        pick = Picks(of_call)
        with program.thread(pick(threads)):
            stream = pick([*made, *made, program.default])
            _pick_call(pick, pick(calls), program, stream, events, buffers, pinned)
    program.sync_device()
    return program


def programs(of_calls: Sequence[str] = ()) -> st.SearchStrategy[Program]:
    """Programs of up to 16 calls: any, or some."""
    return st.builds(program_of, choices(1), several_choices(16, 3), st.just(of_calls))


def _pick_call(
    pick: Picks, call: str, program: Program, stream: Stream, events: list[Event], buffers: list[Buffer], pinned: Buffer
) -> None:
    time, event, some = pick(range(5)) * TICK, pick(events), (False, True)
    size = pick([-1, -1, 0, 512, 16 * KIB, MIB, 2 * MIB, 8 * MIB])
    where = pick([stream, stream, stream, program])
    match call:
        case "h2d":
            where.h2d(time, size, pageable=pick(some))
        case "d2h":
            where.d2h(time, size, pageable=pick(some))
        case "d2d":
            where.d2d(time, size)
        case "h2h":
            where.h2h(time, size)
        case "memset":
            where.memset(time, size, pinned=pick(some))
        case "kernel":
            share = Fraction(1, pick([1, 1, 2, 3, 4]))
            stream.kernel(time, share=share, blocks=pick([1, 1, 1, 2, 5]), first=pick(some))
        case "batch":
            batch = stream.batch(order=pick(list(SourceOrder)))
            for _ in range(pick(range(4))):
                kind = pick([batch.h2d, batch.d2h])
                kind(pick(range(5)) * TICK, pick([-1, 512, 16 * KIB, 2 * MIB, 8 * MIB]), pageable=pick(some))
            if pick(some):
                batch.d2d(time, size)
        case "function":
            stream.host_function(time)
        case "record":
            stream.record(event, timed=pick(some))
        case "wait":
            stream.wait(event)
        case "sync":
            pick([stream.sync, event.sync, program.sync_device])()
        case "query":
            pick([stream.query, event.query])()
        case "elapsed":
            program.elapsed(*events)
        case "host":
            program.host(time)
        case "malloc":
            pick([stream, program]).malloc(pick(buffers))
        case "free":
            pick([stream, program]).free(pick(buffers))
        case "use":
            buffer = pick(buffers)
            stream.malloc(buffer)
            stream.kernel(time)
            stream.free(buffer)
        case "reuse":
            program.reuse(*pick([buffers, buffers[::-1]]))
        case "host_free":
            program.host_free(pinned)
        case "send":
            program.send("m")
        case "receive":
            program.receive("m")


_CALLS = (
    *("h2d", "h2d", "d2h", "d2h", "kernel", "kernel", "kernel", "d2d", "h2h", "batch", "memset", "function"),
    *("record", "record", "wait", "wait", "sync", "query", "elapsed", "host"),
    *("malloc", "free", "host_free", "send", "receive"),
)
_OF_POOLS = (
    "pool_max_size", "pool_reuse", "pool_release_threshold", "pool_grow_curve", "pool_release_curve", "call_cost",
    "legacy_noop_barrier",
)  # fmt: skip
_MEMORY = (
    *("use", "use", "use", "use", "malloc", "malloc", "free", "free", "kernel", "kernel"),
    *("record", "wait", "sync", "query", "host", "reuse"),
)


def shown(test: Callable[..., None]) -> Callable[..., None]:
    """Tell what a failing program was."""

    @wraps(test)
    def showing(**drawn: Any) -> None:
        try:
            test(**drawn)
        except Exception:
            show(drawn["program"], drawn["machine"])
            raise

    return showing


def show(program: Program, machine: Machine) -> None:
    rows, usual = program.rows, Machine().knobs()
    note(str({knob: value for knob, value in machine.knobs().items() if value != usual[knob]}))
    note(str([(info.name, info.kind.name, info.priority) for info in program.streams]))
    for row in range(len(program)):
        grid = program.grids[rows.grid[row]] if rows.grid[row] > 0 else ""
        facts = f"{rows.duration[row] / TICK:g} ticks, {rows.bytes[row]} bytes, flags {rows.flags[row]} {grid}"
        note(f"{program.describe(row)}: {facts} {MemoryKind(rows.src[row]).name} {MemoryKind(rows.dst[row]).name}")


def run_both(program: Program, machine: Machine) -> tuple[Schedule | None, Naive | None]:
    naive = Naive(program, machine)
    try:
        naive.run()
    except DeadlockError:
        with pytest.raises(DeadlockError):
            schedule(program, machine)
        event("deadlock")
        return None, None
    return schedule(program, machine), naive


# --------------------------------------------------------------------------------------------------------- properties

often = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@often
@given(programs(), machines())
@shown
def test_agrees_with_the_naive_simulator(program: Program, machine: Machine):
    agree(program, machine)


@often
@given(programs(_MEMORY), choices(2).map(machine_with_pool))
@shown
def test_the_pool_agrees_with_the_naive_one(program: Program, machine: Machine):
    """R8.2 to R8.5."""
    agree(program, machine)


def agree(program: Program, machine: Machine) -> None:
    run, naive = run_both(program, machine)
    if run is None or naive is None:
        return
    rows = program.rows
    for row in range(len(program)):
        op = naive.of_row.get(row)
        got = {
            "begin": int(run.begin[row]), "issued": int(run.issued[row]), "returned": int(run.returned[row]),
            "start": int(run.start[row]), "end": int(run.end[row]), "error": int(run.error[row]),
            "value": run.elapsed(row), "behind": run.saw.get(row) if rows.op[row] == OP.MALLOC else None,
        }  # fmt: skip
        expected = {
            "begin": naive.begin[row], "issued": naive.issued[row], "returned": naive.returned[row],
            "start": op.start if op else -1, "end": op.end if op else -1, "error": naive.errors.get(row, 0),
            "value": naive.values.get(row),
            "behind": naive.behind[row].row if row in naive.behind and matters(program, machine) else None,
        }  # fmt: skip
        assert got == expected, program.describe(row)


def ran(run: Schedule) -> list[int]:
    return [op for op in range(len(run.start)) if run.start[op] >= 0]


@often
@given(programs(), machines())
@shown
def test_nothing_breaks_the_rules(program: Program, machine: Machine):
    """Streams in order, engines exclusive, SMs never overfull, no schedule under a lower bound."""
    try:
        run = schedule(program, machine)
    except DeadlockError:
        return
    rows, ops = program.rows, ran(run)
    rank = {row: i for i, row in enumerate(run.order.tolist())}
    for stream in range(len(program.streams)):
        in_order = [op for op in ops if rows.stream[op] == stream and rows.call[op] != CALL.BATCHED]  # R3.9
        mine = sorted(in_order, key=lambda op: rank[op])
        assert all(run.end[a] <= run.start[b] for a, b in pairwise(mine))
    for engine, servers in ((Engine.H2D, machine.h2d_engines), (Engine.D2H, 1), (Engine.HOST, machine.hostfn_workers)):
        mine = [op for op in ops if run.engine[op] == engine and rows.op[op] != OP.H2H]
        for op in mine:
            beside = [o for o in mine if run.start[o] <= run.start[op] < run.end[o]]
            assert len(beside) <= (1 if machine.shared_copy_engine and engine == Engine.H2D else servers)
    for op in ops:
        assert run.issued[op] <= run.start[op] <= run.end[op]
        beside = [o for o in ops if run.engine[o] == Engine.SM and run.start[o] <= run.start[op] < run.end[o]]
        single = [
            program.grids[max(rows.grid[o], 0)] for o in beside if program.grids[max(rows.grid[o], 0)].blocks == 1
        ]
        assert sum(grid.block for grid in single) <= 1
        assert len(beside) <= (1 if machine.kernels == "exclusive" else machine.resident_grids)
    for what, bound in lower_bounds(program, machine).items():
        assert run.makespan >= bound, what


@often
@given(programs(), machines())
@shown
def test_what_bound_an_operation_explains_its_start(program: Program, machine: Machine):
    """Every operation starts at the moment its binding constraint allows, and every wait ends with what it was for."""
    try:
        run = schedule(program, machine)
    except DeadlockError:
        return
    rows = program.rows
    for op in ran(run):
        bound, by, start = Bound(int(run.bound[op])), int(run.bound_by[op]), run.start[op]
        several = program.grids[max(rows.grid[by], 0)].blocks > 1
        if bound == Bound.HOST:
            assert (by, start) == (op, run.issued[op])
        elif bound == Bound.QUEUE:  # the queue fell free by a dispatch, or because another stream had to wait
            assert run.start[by] <= start if several else start in (run.start[by], run.end[by], run.issued[by])
        elif bound in (Bound.SM, Bound.GRID_SLOT) and several:
            assert run.start[by] <= start <= run.end[by]
        else:
            assert start == run.end[by]
        if bound in (Bound.COPY_ENGINE, Bound.SM, Bound.GRID_SLOT, Bound.WORKER):
            assert run.engine[by] == run.engine[op]
        if bound == Bound.STREAM:
            assert rows.stream[by] == rows.stream[op]
        if bound == Bound.EVENT:
            assert run.saw[op] == by
    for row, (bound, by) in run.waits.items():
        told = (
            run.issued[by]
            if bound == Bound.MESSAGE
            else run.end[by]
            if by != row or rows.op[row] < 0
            else run.returned[row]
        )
        assert bound in (Bound.WORK, Bound.MESSAGE)
        assert told <= run.returned[row]
    for row, (bound, by) in run.delays.items():
        assert run.begin[row] <= run.issued[row]
        assert bound in (Bound.LAUNCH_QUEUE, Bound.LOCK, Bound.STAGING, Bound.WORK)
        assert by >= 0


@often
@given(programs(), machines())
@shown
def test_nothing_starts_before_what_the_documentation_puts_before_it(program: Program, machine: Machine):
    """Section 14: whatever the engines do, no operation starts before its happens-before predecessors end.

    But for an empty copy or memset on the legacy stream, where the machine lets others pass it (R2.3): it does nothing
    that they could miss.
    """
    try:
        run = schedule(program, machine)
    except DeadlockError:
        return
    documented, ops = order(program, happened_in(run)), ran(run)
    passed = [
        machine.legacy_noop_barrier != "yes" and size == 0 and program.streams[stream].kind is L
        for size, stream in zip(program.rows.bytes.tolist(), program.rows.stream.tolist(), strict=True)
    ]
    for x in (op for op in ops if not passed[op]):
        for y in ops:
            if x != y and documented.before(x, y):
                assert run.end[x] <= run.start[y], (program.describe(x), program.describe(y))


@often
@given(programs(), machines(), st.randoms(use_true_random=False))
@shown
def test_names_and_order_of_streams_do_not_matter(program: Program, machine: Machine, random: Any):
    """Streams declared in another order give the same schedule; only `mod` numbers them (R6.6)."""
    if machine.queue_policy == "mod":
        machine = machine.with_knobs(queue_policy="pool")
    new_row = list(range(len(program.streams)))
    random.shuffle(new_row)
    infos = [program.streams[new_row.index(i)] for i in range(len(new_row))]
    renamed = program.with_streams([replace(info, name=f"other{i}") for i, info in enumerate(infos)])
    numbers = np.array([*new_row, -1], np.int32)
    renamed = renamed.replace(stream=numbers[program.rows.stream])
    try:
        run = schedule(program, machine)
    except DeadlockError:
        return
    again = schedule(renamed, machine)
    for column in ("start", "end", "bound", "bound_by", "begin", "issued", "returned", "error", "order"):
        assert np.array_equal(getattr(run, column), getattr(again, column)), column


@often
@given(programs(), machines())
@shown
def test_the_same_every_time(program: Program, machine: Machine):
    try:
        run = schedule(program, machine)
    except DeadlockError:
        return
    again = schedule(program, machine)
    for column in ("start", "end", "bound", "bound_by", "begin", "issued", "returned", "error", "order"):
        assert np.array_equal(getattr(run, column), getattr(again, column)), column
