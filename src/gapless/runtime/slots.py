"""The ring: fixed slots that chunks pass through, in order, with back-pressure.

A slot owns a stream, device memory for its inputs and outputs, pinned memory for what must be staged, and events.
A chunk takes a slot, its copies and its kernel go into the slot's stream, and only when the last of them is over, and
staged back where it must be, may the next chunk have the slot. From that everything follows:

- device memory is used by one stream only, so stream order (R1.3) keeps successive chunks apart;
- host memory is written and read only after the event of the work that used it (R5.2), so nothing is read too early or
  overwritten too soon;
- the number of slots is the bound on memory, and the back-pressure: the source gives a chunk when a slot is free;
- nothing waits for the whole device, nothing is allocated once the ring has its size, and no host function is put into
  a stream.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from operator import is_not
from typing import Any, Protocol

import numpy as np

from .devices import Device, Event, HostArray, Memory, Source
from .devices.host import as_array
from .stock import COUNTS_HOLDERS, is_unheld

ALIGNMENT = 256  # bytes between arrays of one slot, as cudaMalloc aligns
MOST_BESIDE = 1024  # arrays on the device of which the outputs of several calls are chosen
KEPT = 64  # arrays on the device that a slot keeps, with what libraries made of them
# A timed event after an operation holds an engine up for a microsecond or more, so that on a device where it does only
# some chunks have them: the first ones, and pairs of neighbours after them.
TIMED = 16


def is_timed(device: Device, index: int) -> bool:
    """Tell whether the stages of a chunk are timed."""
    return not device.timing_costs or index < TIMED or index % TIMED < 2


@dataclass(slots=True, eq=False)
class Chunk:
    """A part of the work: rows *first* up to *first + rows*. An input that is a list is packed into one array."""

    index: int
    first: int
    rows: int
    inputs: tuple[Source, ...]
    items: list[int] | None = None  # rows of each item that was packed
    as_list: bool = False  # the items came as one batch and go back as one
    held: Any = None  # whose memory the inputs are
    batches: list[Chunk] | None = None  # that pass as this one chunk, each with a call of the kernel

    @property
    def last(self) -> int:
        """The number of the last batch in it."""
        return self.batches[-1].index if self.batches else self.index

    def where(self) -> str:
        """Say which chunk it is; by the numbers of its batches, where they share it."""
        which = f"chunk {self.index}" if self.last == self.index else f"chunks {self.index} to {self.last}"
        return f"{which} (rows {self.first} to {self.first + self.rows})"


@dataclass(slots=True, eq=False)
class Passage:
    """When a chunk passed each stage: ns on the device's clock. What did not happen has its neighbour's time."""

    index: int
    slot: int
    rows: int
    bytes_in: int
    bytes_out: int
    begun: int  # the slot was free and staging could start
    staged: tuple[int, int] | None  # copied into pinned memory
    issued: int  # the command to copy its input was given
    launched: int  # the kernel's
    returned: int  # the one to copy its results
    given: int  # all of them
    copied: int | None  # its input was on the device; None: not timed (see TIMED)
    computed: int | None
    done: int | None  # its results were in pinned memory
    unstaged: tuple[int, int] | None  # copied out of pinned memory
    worked: int  # ns that a crew's threads copied in and out, together
    retired: int


class Sink(Protocol):
    """Where results go."""

    hands_over: bool  # results that have no target are given to the user in the pinned memory they came to
    ordered: bool  # whether it matters in which order chunks are given

    def target(self, chunk: Chunk, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray | None:
        """Give the memory for one output of a chunk; None: it has none, the ring finds some.

        May be called from another thread. Raises GaplessError for a shape or type that does not fit.
        """
        ...


@dataclass(slots=True, eq=False)
class Flight:
    """A chunk on its way through a slot."""

    chunk: Chunk
    slot: Slot
    begun: int
    number: int = 0  # of all that passed
    ready: bool = False  # its input is where the device can copy it from
    is_issued: bool = False
    issued: int = 0
    launched: int = 0
    returned: int = 0
    given: int = 0
    sent: bool = False  # its results were given on the way; not so after a failure or a stop
    back: bool = False  # the crew has said that its results are back
    sends: list[tuple[Any, HostArray]] = field(default_factory=list[Any])  # what the device copies
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()
    results: tuple[HostArray, ...] = ()
    counts: list[int] = field(default_factory=list[int])  # results of each batch, where batches share the chunk
    failed: BaseException | None = None  # in the first of these:
    undone: list[Chunk] = field(default_factory=list[Chunk])  # batches that shared the chunk and are not part of it now
    returns: list[tuple[HostArray, Source]] = field(default_factory=list[Any])  # what is staged back
    spare: HostArray | None = None  # the block that takes the place of the one handed over
    bytes_in: int = 0
    bytes_out: int = 0
    staged: tuple[int, int] | None = None
    unstaged: tuple[int, int] | None = None
    worked: int = 0
    times: tuple[int | None, int | None, int | None] = (None, None, None)  # input there, kernel through, results out
    done: Event | None = None  # all that was given is over
    error: BaseException | None = None


class RingMemoryError(Exception):
    """Memory ran out. The ring is free again.

    *chunks* have not been finished, in order; *finished* have, though they come after the one that failed. *after*:
    what the input gave in place of a chunk after these, if it failed.
    """

    def __init__(
        self,
        problem: BaseException,
        chunks: list[Chunk],
        finished: list[Flight],
        after: BaseException | None = None,
    ) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.chunks = chunks
        self.finished = finished
        self.after = after


def layout(arrays: Shapes) -> tuple[list[int], int]:
    """Give the offset of each array in one block, and the size of the block."""
    offsets, end = [], 0
    for shape, dtype in arrays:
        offsets.append(end)
        size = prod(shape) * dtype.itemsize
        end += _aligned(size)
    return offsets, end


def _aligned(size: int) -> int:
    """Give the bytes that an array takes of a block."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def shape_of(source: Source, rows: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Give the shape and type of what a source becomes on the device; *rows* are those of its chunk."""
    if isinstance(source, np.ndarray):
        return source.shape, source.dtype
    return (rows, *source[0].shape[1:]), source[0].dtype


Shapes = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]


@dataclass(slots=True, eq=False)
class Place:
    """Where the inputs of a chunk lie in a slot. Most chunks have the shapes of others, and lie where those lay."""

    arrays: tuple[Any, ...]  # on the device
    sizes: tuple[int, ...]  # bytes of each
    moved: int  # bytes of all
    offsets: list[int]
    size: int  # bytes of the block that holds them
    stages: tuple[HostArray, ...] | None = None  # in pinned memory, once they have been staged
    whole: tuple[Any, HostArray] | None = None  # the block on the device and in pinned memory


class Beside:
    """Device memory for the outputs of several calls of a kernel, side by side, so that one copy brings all back.

    It grows when a chunk begins, to what all outputs take if they are like the first. What no longer fits, since
    outputs differ or are several, has memory of its own in that chunk, and room in later ones.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._memory: Memory | None = None
        self._arrays: dict[Any, Any] = {}
        self._given: list[Any] = []
        self._end = self._filled = 0  # of all outputs of the chunk, of those that fit
        self._wanted = self._calls = self._rows = 0

    def begin(self, calls: int, rows: int) -> None:
        """Let the next chunk have the memory: so many calls of the kernel, with so many rows together."""
        self._wanted = max(self._wanted, self._end)
        self._given.clear()
        self._end = self._filled = 0
        self._calls, self._rows = calls, rows

    def array(self, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Give memory for one output of one call."""
        at, size = self._end, prod(shape) * dtype.itemsize
        self._end += _aligned(size)
        if not at:
            self._grow(shape, size)
        memory = self._memory
        if memory is None or at + size > memory.nbytes:
            return self._device.memory(max(size, 1)).array(0, shape, dtype)
        array = self._arrays.get((at, shape, dtype))
        if array is None:
            if len(self._arrays) >= MOST_BESIDE:
                self._arrays.clear()
            array = self._arrays[at, shape, dtype] = memory.array(at, shape, dtype)
        self._given.append(array)
        self._filled = self._end
        return array

    def _grow(self, shape: tuple[int, ...], size: int) -> None:
        """Have room for the outputs of all calls, if they have as many bytes a row as this one."""
        share = shape[0] / self._rows if shape and self._rows else 1 / self._calls
        wanted = max(_aligned(int(size / share)) + ALIGNMENT * self._calls if size else 1, self._wanted)
        if self._memory is None or self._memory.nbytes < wanted:
            self._memory = None
            self._arrays.clear()
            self._memory = self._device.memory(wanted)

    def whole(self, arrays: Sequence[Any]) -> Any:
        """Give the memory of all of the chunk's outputs as one array of bytes; None where these are not they."""
        if not arrays or len(arrays) != len(self._given) or any(map(is_not, arrays, self._given)):
            return None
        key = self._filled, (), None
        whole = self._arrays.get(key)
        if whole is None and self._memory is not None:
            whole = self._arrays[key] = self._memory.array(0, (self._filled,), np.dtype(np.uint8))
        return whole


class Slot:
    """Fixed buffers, a stream, four events. They grow when a chunk needs more than any before it, and never shrink."""

    def __init__(self, ring: Ring, index: int, *, priority: int, spins: bool) -> None:
        self.index = index
        self.stream = ring.device.stream(priority)
        self.copied, self.computed, self.timed = (ring.device.event(spins=spins) for _ in range(3))
        self.done = ring.device.event(spins=spins, timed=False)
        self._ring = ring
        self._memory_in: Memory | None = None
        self._memory_out: dict[int, Memory] = {}
        self._pinned_in: HostArray | None = None
        self._places: dict[Shapes, Place] = {}
        self._arrays: dict[Any, Any] = {}  # of outputs
        self.beside = Beside(ring.device)
        self.block: HostArray | None = None  # pinned memory for results
        self._views: dict[Shapes, tuple[HostArray, ...]] = {}  # of the block

    def place(self, shapes: Shapes) -> Place:
        """Give the inputs' place on the device."""
        place = self._places.get(shapes)
        if place is None:
            offsets, size = layout(shapes)
            if self._memory_in is None or self._memory_in.nbytes < size:
                self._memory_in = None
                self._places.clear()
                self._memory_in = self._ring.device.memory(max(size, 1))
            elif len(self._places) >= KEPT:
                self._places.clear()
            memory = self._memory_in
            arrays = tuple(memory.array(at, *one) for one, at in zip(shapes, offsets, strict=True))
            sizes = tuple(prod(shape) * dtype.itemsize for shape, dtype in shapes)
            place = self._places[shapes] = Place(arrays, sizes, sum(sizes), offsets, size)
        return place

    def stage(self, place: Place, shapes: Shapes) -> tuple[HostArray, ...]:
        """Give the inputs' place in pinned memory."""
        if place.stages is None:
            if self._pinned_in is None or self._pinned_in.nbytes < place.size:
                self._pinned_in = None
                for other in self._places.values():
                    other.stages = other.whole = None
                self._pinned_in = self._ring.device.pinned(place.size)
            block = self._pinned_in
            place.stages = tuple(as_array(block, at, *one) for one, at in zip(shapes, place.offsets, strict=True))
            if self._memory_in is not None and len(shapes) > 1:
                whole = self._memory_in.array(0, (place.size,), np.dtype(np.uint8))
                place.whole = whole, block[: place.size]
        return place.stages

    def memory_out(self, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Give device memory for one output of a kernel that does not bring its own."""
        size = prod(shape) * dtype.itemsize
        memory = self._memory_out.get(number)
        if memory is None or memory.nbytes < size:
            self._memory_out.pop(number, None)
            self._arrays.clear()
            memory = self._memory_out[number] = self._ring.device.memory(max(size, 1))
        key = -1 - number, shape, dtype
        array = self._arrays.get(key)
        if array is None:
            array = self._arrays[key] = memory.array(0, shape, dtype)
        return array

    def views_out(self, shapes: Shapes) -> tuple[HostArray, ...]:
        """Give results' place in the pinned memory that they come to."""
        views = self._views.get(shapes)
        if views is None:
            offsets, size = layout(shapes)
            block = self.block
            if block is None or block.nbytes < size:
                block = self._ring.new_block(size)
                self.use_block(block)
            elif len(self._views) >= KEPT:
                self._views.clear()
            views = tuple([as_array(block, at, *one) for one, at in zip(shapes, offsets, strict=True)])
            self._views[shapes] = views
        return views

    def use_block(self, block: HostArray) -> None:
        """Let results come to another block. Nothing here refers to the one before any more."""
        self.block = block
        self._views.clear()


class Ring:
    """Slots, and the blocks of pinned memory that results come to.

    It gets slots as runs ask for them, and serves one run at a time. *spins*: who waits for a slot does nothing else.
    """

    def __init__(self, device: Device, *, priority: int = 0, spins: bool = True) -> None:
        self.device = device
        self.spins = spins
        self.process = os.getpid()  # a child that is forked later has none of what its streams run by
        self._priority = priority
        self._blocks: list[HostArray] = []
        self._largest = 0
        self._slots: list[Slot] = []
        self._lock = threading.RLock()  # a stream's thread may ask for blocks

    def slots(self, count: int) -> list[Slot]:
        """Give so many slots."""
        while len(self._slots) < count:
            self._slots.append(Slot(self, len(self._slots), priority=self._priority, spins=self.spins))
        return self._slots[:count]

    def new_block(self, size: int) -> HostArray:
        """Allocate pinned memory for results and keep it in the ring's stock."""
        with self._lock:
            self._largest = max(size, self._largest)
            block = self.device.pinned(max(self._largest, 1))
            self._blocks = [old for old in self._blocks if old.nbytes >= self._largest]
            self._blocks.append(block)
            return block

    def spare(self) -> HostArray | None:
        """Give a block that nobody holds; None where all are held, or the size of results is not known yet.

        Results handed over hold the block they lie in; when the user lets go of them, it is used again.
        """
        if not COUNTS_HOLDERS or not self._largest:
            return None
        with self._lock:
            blocks = self._blocks
            for index in range(len(blocks)):  # always the first ones: few blocks may stay in the cache
                if is_unheld(blocks, index) and blocks[index].nbytes >= self._largest:
                    return blocks[index]
            # A slot has one and a chunk in it a spare one; those whose results the user looks at are more.
            if len(blocks) < 3 * len(self._slots):
                return self.new_block(self._largest)
            return None
