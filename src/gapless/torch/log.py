"""What a PyTorch program did, as far as a missing wait can show: operations, waits, and who touched which memory.

The log stays small however long the program runs. Of the accesses that one stream makes to a memory, with no other
stream's between, only the first and the last of each kind can ever matter: what came before them knows them less, what
comes after knows them more. And memory that only one stream ever touched is forgotten when it is released.

The caching allocator (R8.7). A block belongs to the stream that was current when it was allocated. Released, it may be
handed out again on that stream at once. So
- what another stream does with it must be over when its stream comes to use the next tenant, or ``record_stream`` must
  have named that other stream: ``next_tenant`` of the memory is the access of the next tenant;
- a fresh tensor may lie where the stream's earlier work still reads: ``last_tenant`` is the last such work.
Blocks of up to 1 MiB and larger ones come from different pools, and a block is handed out for what fits into it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from gapless.model.kinds import MemoryKind, StreamKind

from .parts import View
from .stacks import Stack
from .streams import Made, Stream

HOST = -1  # where a stream's number stands: the host
SMALL, GRAIN = 1 << 20, 512  # the caching allocator's small pool, and what it rounds sizes up to
MOST = 1_000_000  # operations and waits that a log keeps


class Order(IntEnum):
    """What puts things in order."""

    RECORD = 0
    WAIT = 1
    SYNC_EVENT = 2
    SYNC_STREAM = 3
    SYNC_DEVICE = 4
    FENCE = 5  # anything done on the default stream, where a blocking stream could be fenced by it


@dataclass(slots=True, eq=False)
class Op:
    """An operation, or what the host does to memory (``stream`` is then ``HOST``). ``kind``: -1 for the host."""

    number: int
    kind: int
    stream: int
    name: str
    stack: Stack
    host: MemoryKind = MemoryKind.UNKNOWN  # of a copy: the memory on the host's side


@dataclass(slots=True, eq=False)
class Access:
    """One op touches one view of a memory."""

    op: Op
    view: View
    write: bool


@dataclass(slots=True, eq=False)
class Memory:
    """One piece of memory: the storage of tensors. ``stream``: of the current stream at its allocation."""

    size: int
    kind: MemoryKind
    stream: int
    tensor: tuple[Any, Sequence[int]]  # type and shape of the tensor it was allocated for; words where there is none
    born: Stack  # where it was allocated; where it was first used, if that was not seen
    allocation_seen: bool = True
    accesses: list[Access] = field(default_factory=list)
    streams: set[int] = field(default_factory=set)  # that touched it
    recorded: set[int] = field(default_factory=set)  # named by record_stream
    last: Op | None = None  # the last thing its own stream did to it
    pool: tuple[int, bool] | None = None  # of the caching allocator; None: not from there
    last_tenant: Op | None = None
    next_tenant: Op | None = None
    waiting: list[Memory] = field(default_factory=list)  # memories that this one may be the next tenant of
    released: Stack = ()
    _slots: dict[tuple[View, bool], tuple[int, int]] = field(default_factory=dict)
    _by: int | None = None

    @property
    def said(self) -> str:
        """What it is, in words."""
        if isinstance(self.tensor[0], str):
            return self.tensor[0]
        word = {MemoryKind.PINNED: "pinned ", MemoryKind.PAGEABLE: "pageable "}.get(self.kind, "")
        return f"{word}{str(self.tensor[0]).removeprefix('torch.')}{list(self.tensor[1])}"

    @property
    def shared(self) -> bool:
        """Whether an order is needed at all: two streams touched it, or a stream and the host."""
        return len(self.streams) > 1 or self.next_tenant is not None

    def touch(self, op: Op, view: View, write: bool) -> int:
        """Keep an access; give how many more are kept now."""
        if op.stream != self._by:
            self._by = op.stream
            self.streams.add(op.stream)
            self._slots.clear()
        key = (view, write)
        slot = self._slots.get(key)
        if slot is not None and slot[0] != slot[1]:
            self.accesses[slot[1]] = Access(op, view, write)
            return 0
        at = len(self.accesses)
        self._slots[key] = (at, at) if slot is None else (slot[0], at)
        self.accesses.append(Access(op, view, write))
        return 1


@dataclass(slots=True, eq=False)
class _Pool:
    """The free blocks of one stream: ``tenants`` (op number, size, op), later and larger ones; who awaits a tenant."""

    tenants: list[tuple[int, int, Op]] = field(default_factory=list)
    waiting: list[Memory] = field(default_factory=list)


class Log:
    """What happened, in issue order. Host threads count as one, in the order in which they were seen."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.orders: list[tuple[int, Order, int, int]] = []  # number, what, stream, event; -1 none
        self.events = 0
        self.kept: list[Memory] = []  # memories that are released, and matter
        self.alive: dict[int, Memory] = {}  # by the storage's identity
        self.operations = 0
        self.notes: dict[str, dict[str, None]] = {}  # what is not checked -> where
        self.full = False
        self._number = 0
        self._size = 0
        self._pools: dict[tuple[int, bool], _Pool] = {}
        self._fenced: set[int] = set()  # legacy streams of devices that have blocking streams

    def stream(self, name: str, kind: StreamKind, device: int = 0, made: Made | None = None) -> int:
        """Take up a stream; give its number."""
        self.streams.append(Stream(name, kind, device, made or Made()))
        blocking = {s.device for s in self.streams if s.kind in (StreamKind.BLOCKING, StreamKind.PER_THREAD)}
        legacy = [n for n, s in enumerate(self.streams) if s.kind == StreamKind.LEGACY]
        self._fenced = {n for n in legacy if self.streams[n].device in blocking}
        return len(self.streams) - 1

    def made_again(self, number: int, made: Made) -> None:
        """Note that a stream was handed out again."""
        self.streams[number] = replace(self.streams[number], made=self.streams[number].made.again(made))

    def event(self) -> int:
        """Take up an event; give its number."""
        self.events += 1
        return self.events - 1

    def note(self, what: str, where: str = "") -> None:
        """Say that something is not checked, or made up."""
        self.notes.setdefault(what, {})[where] = None

    # ------------------------------------------------------------------------------------------ operations and order

    def op(self, kind: int, stream: int, name: str, stack: Stack, host: MemoryKind = MemoryKind.UNKNOWN) -> Op:
        """Let an operation be issued to a stream, or the host do something (kind -1, stream ``HOST``)."""
        self._number += 1
        self.operations += 1
        if stream in self._fenced:
            self._order(Order.FENCE, stream)
        return Op(self._number, kind, stream, name, stack, host)

    def record(self, event: int, stream: int) -> None:
        """``cudaEventRecord``."""
        self._order(Order.RECORD, stream, event)

    def wait(self, event: int, stream: int) -> None:
        """``cudaStreamWaitEvent``."""
        self._order(Order.WAIT, stream, event)

    def sync_event(self, event: int) -> None:
        """``cudaEventSynchronize``, or a query that found it complete (HB7)."""
        self._order(Order.SYNC_EVENT, -1, event)

    def sync_stream(self, stream: int) -> None:
        """``cudaStreamSynchronize``, or a query that found it idle (HB7)."""
        self._order(Order.SYNC_STREAM, stream)

    def sync_device(self) -> None:
        """``cudaDeviceSynchronize``."""
        self._order(Order.SYNC_DEVICE)

    def join(self, first: int, then: int) -> None:
        """Let one stream wait for another, as an event recorded and waited for does."""
        if first != then:
            event = self.event()
            self.record(event, first)
            self.wait(event, then)

    def _order(self, what: Order, stream: int = -1, event: int = -1) -> None:
        if self.orders and self.orders[-1] == (self._number, what, stream, event):
            return  # the same again, and nothing between
        self._number += 1
        self._grow()
        if not self.full:
            self.orders.append((self._number, what, stream, event))

    def _grow(self, by: int = 1) -> None:
        self._size += by
        if self._size > MOST:
            self.full = True

    # ------------------------------------------------------------------------------------------------------- memory

    def allocated(self, key: int, size: int, kind: MemoryKind, stream: int, tensor: tuple[Any, Sequence[int]],
                  born: Stack, *, seen: bool = True, cached: bool = True) -> Memory:  # fmt: skip
        """Take up memory. *seen*: that it was allocated. *cached*: from the caching allocator's own pools."""
        memory = self.alive[key] = Memory(size, kind, stream, tensor, born, seen)
        if cached and kind == MemoryKind.DEVICE and size:
            rounded = -(-size // GRAIN) * GRAIN
            memory.pool = (stream, rounded <= SMALL)
            pool = self._pools.setdefault(memory.pool, _Pool())
            memory.last_tenant = next((op for _, block, op in reversed(pool.tenants) if block >= rounded), None)
            if pool.waiting:
                memory.waiting = [old for old in pool.waiting if old.size >= size]
                pool.waiting = [old for old in pool.waiting if old.size < size]
        return memory

    def touch(self, memory: Memory, op: Op, view: View, write: bool) -> None:
        """Let an op read or write a view of a memory."""
        if self.full:
            return
        self._grow(memory.touch(op, view, write))
        if op.stream == memory.stream:
            memory.last = op
        if memory.waiting:
            for old in memory.waiting:
                old.next_tenant = op
            self.kept += memory.waiting
            memory.waiting = []

    def released(self, key: int, stack: Stack) -> Memory | None:
        """Let the last reference to a memory go; give it, if it was known."""
        memory = self.alive.pop(key, None)
        if memory is None:
            return None
        memory.released = stack
        pool = self._pools.get(memory.pool) if memory.pool is not None else None
        if pool is not None:
            pool.waiting += memory.waiting
            memory.waiting = []
            if memory.last is not None:
                _remember(pool.tenants, memory.last, -(-memory.size // GRAIN) * GRAIN)
            exposed = [
                a for a in memory.accesses if a.op.stream not in memory.recorded and a.op.stream != memory.stream
            ]
            if exposed:
                pool.waiting.append(self._exposed(memory, exposed))
        if memory.shared or (memory.last_tenant is not None and memory.streams - {memory.stream}):
            self.kept.append(memory)
        else:
            self._size -= len(memory.accesses)
        return memory

    def _exposed(self, memory: Memory, accesses: list[Access]) -> Memory:
        """Give what of a released memory has to be over when its block has a new tenant: no other stream is named."""
        exposed = Memory(memory.size, memory.kind, memory.stream, memory.tensor, memory.born, memory.allocation_seen,
                         accesses)  # fmt: skip
        exposed.released = memory.released
        exposed.streams = {access.op.stream for access in accesses}
        return exposed

    def memories(self) -> list[Memory]:
        """Give all memories for which an order is needed."""
        return [m for m in (*self.kept, *self.alive.values())
                if m.shared or (m.last_tenant is not None and m.streams - {m.stream})]  # fmt: skip


def _remember(tenants: list[tuple[int, int, Op]], op: Op, size: int) -> None:
    """Keep the last op of a block that was released, and drop those that are both earlier and in smaller blocks.

    Sorted by op number; sizes fall from the first to the last.
    """
    at = bisect_left(tenants, op.number, key=lambda tenant: tenant[0])
    if any(block >= size for _, block, _ in tenants[at:]):
        return
    tenants[:at] = [tenant for tenant in tenants[:at] if tenant[1] > size]
    insort(tenants, (op.number, size, op), key=lambda tenant: tenant[0])
