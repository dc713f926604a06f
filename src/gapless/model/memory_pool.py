"""The pool behind ``cudaMallocAsync``: what it hands out again, when it grows, and what waits for that (R8.2 to R8.5).

Each device has one. It keeps blocks: those that a buffer has, and free ones, each with the operation that freed it. An
allocation takes the smallest free block that is large enough and allowed (where the program says ``reuse``, that one or
none), else memory of the operating system; at the pool's limit it waits for a free block (M: blocks are cut, and not
joined again). A buffer of unknown size counts as empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .kinds import CALL, Bound
from .machine import Machine
from .program import Program

if TYPE_CHECKING:
    from .devices import DeviceState, StreamState
    from .simulator import Simulator

Known = dict[int, int]  # stream -> rank of the last of its operations that are over when something starts


@dataclass(slots=True, eq=False)
class Block:
    """Memory that is free again: how much, which buffer had it, and what freed it (-1: nothing that can be pending)."""

    bytes: int
    buffer: int
    freed: int = -1
    stream: int = -1
    synchronised: bool = False  # the host has waited for the free (R8.3)


@dataclass(slots=True)
class Grant:
    """What an allocation has been given: a block, the free that it comes behind (-1 none), and whether it waits."""

    block: Block | None  # None: there is no memory
    behind: int = -1
    waits: bool = False


def reuses(program: Program) -> dict[int, int]:
    """Give for each stream-ordered allocation whose memory is handed out again the buffer that had it before."""
    rows, malloc, reused = program.rows, dict[int, int](), dict[int, int]()
    if CALL.REUSE not in rows.call:
        return reused
    for row, (call, buffer, of) in enumerate(
        zip(rows.call.tolist(), rows.object.tolist(), rows.second.tolist(), strict=True)
    ):
        if call == CALL.MALLOC_ASYNC:
            malloc[buffer] = row
        elif call == CALL.REUSE and buffer in malloc:
            reused[malloc[buffer]] = of
    return reused


def matters(program: Program, machine: Machine) -> bool:
    """Tell whether it makes a difference to a run which memory the pool hands out."""
    if not (program.rows.call == int(CALL.MALLOC_ASYNC)).any():
        return False
    costs = machine.pool_max_size is not None or machine.pool_grow_curve or machine.pool_release_curve
    return bool(costs) or bool((program.rows.call == int(CALL.REUSE)).any())


class _Pool:
    """The pool of one device."""

    def __init__(self) -> None:
        self.reserved = 0  # bytes that it has from the operating system
        self.grown = 0  # of these, for the last allocation
        self.used: dict[int, Block] = {}  # by buffer
        self.free: list[Block] = []  # in the order in which they were freed


class MemoryPools:
    """The pools of all devices, and what streams and hosts know of frees."""

    def __init__(self, sim: Simulator) -> None:
        self._sim, self._machine = sim, sim.machine
        self._reuses = reuses(sim.program)
        self._sizes: list[int] = np.maximum(sim.program.rows.bytes, 0).tolist()
        self._given: list[int] = sim.program.rows.cost.tolist()
        self._pools: dict[int, _Pool] = {}
        self._grants: dict[int, Grant] = {}
        self._known: list[Known] = [{} for _ in sim.streams]
        self._snapshots: dict[int, Known] = {}  # of records
        self._fences: dict[int, Known] = {}  # of devices: what the legacy stream's last action knows

    def _of(self, device: DeviceState) -> _Pool:
        return self._pools.setdefault(device.index, _Pool())

    # ----------------------------------------------------------------------------------------------- allocating

    def ask(self, row: int) -> int:
        """Find memory for an allocation; give the host time that it takes beside the call's usual cost (R8.5)."""
        stream, wanted = self._sim.stream(row), self._sizes[row]
        pool = self._of(stream.device)
        pool.grown = 0
        grant = self._grants[row] = self._find(pool, stream, wanted, self._reuses.get(row, -1))
        if grant.block is not None:
            pool.used[self._sim.object[row]] = grant.block
        return self._time("pool_grow_curve", pool.grown) if pool.grown and self._given[row] < 0 else 0

    def _find(self, pool: _Pool, stream: StreamState, wanted: int, of: int) -> Grant:
        fitting = [block for block in pool.free if block.bytes >= wanted and (block.buffer == of or (of < 0 < wanted))]
        smallest_first = sorted(fitting, key=lambda block: block.bytes)
        for allowed in (self._at_once, self._follows, self._happens_to_be_over):
            for block in smallest_first:
                if allowed(block, stream):
                    behind = block.freed if allowed == self._happens_to_be_over else -1
                    return Grant(self._cut(pool, block, wanted), behind)
        if self._grow(pool, wanted):
            return Grant(Block(wanted, -1))
        if fitting and "internal" in self._machine.pool_reuse:  # R8.4: the driver inserts a wait
            behind = fitting[0].freed
            return Grant(self._cut(pool, fitting[0], wanted), behind, waits=True)
        return Grant(None)

    def _at_once(self, block: Block, stream: StreamState) -> bool:
        """R8.2: freed in this stream. R8.3: the host has synchronised with the free."""
        return block.stream == stream.row or block.freed < 0 or block.synchronised

    def _follows(self, block: Block, stream: StreamState) -> bool:
        """R8.4: this stream waits for the free already, by an event or the default stream."""
        if "follow" not in self._machine.pool_reuse:
            return False
        known = _merged(self._known[stream.row], self._fence_of(stream))
        if stream.legacy and self._machine.legacy_noop_barrier == "yes":  # R2.3: else an allocation is an empty action
            for other in stream.device.feeders:
                known = _merged(known, self._all_of(other))
        return known.get(block.stream, -1) >= self._sim.rank[block.freed]

    def _happens_to_be_over(self, block: Block, stream: StreamState) -> bool:
        """R8.4: the free has completed by now, for whatever reason."""
        return "opportunistic" in self._machine.pool_reuse and not self._sim.is_pending(block.freed)

    def _cut(self, pool: _Pool, block: Block, wanted: int) -> Block:
        """Take so many bytes of a free block."""
        if block.bytes == wanted:
            pool.free.remove(block)
        else:
            block.bytes -= wanted
        return Block(wanted, -1)

    def _grow(self, pool: _Pool, wanted: int) -> bool:
        """Get memory of the operating system, as much at a time as was measured at the least; tell whether there is."""
        limit, curve = self._machine.pool_max_size, self._machine.pool_grow_curve
        for block in [block for block in pool.free if self._over(block)]:
            if limit is None or pool.reserved + wanted <= limit:
                break
            pool.free.remove(block)  # too small as it is: it goes back, and its pages come again in another place
            pool.reserved -= block.bytes
        if limit is not None and pool.reserved + wanted > limit:
            return False
        grown = max(wanted, int(curve[0][0])) if curve and wanted else wanted
        if limit is not None:
            grown = min(grown, limit - pool.reserved)
        pool.reserved += grown
        pool.grown = grown
        if grown > wanted:
            pool.free.append(Block(grown - wanted, -1))
        return True

    def refused(self, row: int) -> bool:
        """Tell whether there is no memory for an allocation."""
        grant = self._grants.get(row)
        return grant is not None and grant.block is None

    def allocated(self, op: int) -> int:
        """Issue an allocation: note which free it comes behind (R8.4); give 1 if it has to wait for it."""
        grant = self._grants.get(op)
        if grant is None or grant.behind < 0:
            return 0
        self._sim.saw[op] = grant.behind
        return self._sim.wait_behind(op, grant.behind, Bound.POOL) if grant.waits else 0

    # -------------------------------------------------------------------------------------------------- freeing

    def freed(self, op: int, stream: StreamState) -> None:
        """Issue a stream-ordered free."""
        self._give_back(self._of(stream.device), self._sim.object[op], op, stream.row)

    def freed_by_host(self, row: int, device: DeviceState) -> None:
        """Free memory of the pool by ``cudaFree``: whoever calls it has waited for all uses (section 4)."""
        self._give_back(self._of(device), self._sim.object[row], -1, -1)

    def _give_back(self, pool: _Pool, buffer: int, op: int, stream: int) -> None:
        block = pool.used.pop(buffer, None)
        if block is not None:
            pool.free.append(Block(block.bytes, buffer, op, stream))

    def covered(self, ops: Iterable[int]) -> Known:
        """Give what is over when the last operations of streams, or a record, are."""
        sim, known = self._sim, Known()
        for op in ops:
            if op >= 0:
                stream = sim.stream_of[op]
                known = _merged(known, self._snapshots.get(op) or _merged(self._known[stream], {stream: sim.rank[op]}))
        return known

    def told(self, known: Known) -> None:
        """Let a host know what is over: a synchronise or a successful query was about it (R8.3)."""
        for pool in self._pools.values():
            for block in pool.free:
                block.synchronised |= block.freed >= 0 and known.get(block.stream, -1) >= self._sim.rank[block.freed]

    def release(self, device: DeviceState) -> int:
        """Give back at a synchronise what is free and above the threshold (R8.5); give the time that it takes."""
        pool, released = self._of(device), 0
        for block in [block for block in pool.free if self._over(block)]:  # it waits for no other stream
            if pool.reserved <= self._machine.pool_release_threshold:
                break
            pool.free.remove(block)
            pool.reserved -= block.bytes
            released += block.bytes
        return self._time("pool_release_curve", released) if released else 0

    def _over(self, block: Block) -> bool:
        return block.freed < 0 or not self._sim.is_pending(block.freed)

    def _time(self, curve: str, size: int) -> int:
        if not getattr(self._machine, curve):
            return 0
        return int(self._machine.time_of(curve, np.array([size]))[0])

    # --------------------------------------------------------------------------------- which stream waits for what

    def issued(self, stream: StreamState) -> None:
        """Let the next operation of a blocking stream wait for the legacy stream (R2.1)."""
        self._known[stream.row] = _merged(self._known[stream.row], self._fence_of(stream))

    def waits_for(self, stream: StreamState, record: int) -> None:
        """Let a stream wait for the work of a record (R5.2)."""
        self._known[stream.row] = _merged(self._known[stream.row], self._snapshots.get(record, {}))

    def recorded(self, op: int, stream: StreamState) -> None:
        """Take what a record stands for (R5.1)."""
        snapshot = _merged(self._known[stream.row], {stream.row: self._sim.rank[op]})
        for other in stream.device.feeders if stream.legacy else ():
            snapshot = _merged(snapshot, self._all_of(other))
        self._snapshots[op] = snapshot

    def acted_on_legacy(self, op: int, stream: StreamState, *, holds: bool) -> None:
        """Let an action of the legacy stream wait for the blocking ones, and let them wait for it (R2.1, R2.3)."""
        for other in stream.device.feeders:
            self._known[stream.row] = _merged(self._known[stream.row], self._all_of(other))
        if holds:
            self._fences[stream.device.index] = _merged(self._known[stream.row], {stream.row: self._sim.rank[op]})

    def _fence_of(self, stream: StreamState) -> Known:
        return self._fences.get(stream.device.index, {}) if stream.fenced else {}

    def _all_of(self, stream: StreamState) -> Known:
        last = {stream.row: self._sim.rank[stream.last]} if stream.last >= 0 else {}
        return _merged(self._known[stream.row], last)


def _merged(known: Known, more: Known) -> Known:
    return known | {stream: max(rank, known.get(stream, -1)) for stream, rank in more.items()}
