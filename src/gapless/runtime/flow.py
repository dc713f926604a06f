"""One run through the ring: who stages, who gives the commands, in which order, and how it ends.

The caller's thread gives all commands and calls the kernel, in order of the chunks (on the host device a slot's thread
calls it). A crew copies between pageable and pinned memory: a chunk's input before its commands, its results after
them. A slot gets its next chunk when the results of the last one are out of its memory.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import inf, prod
from time import monotonic
from typing import Any

import numpy as np

from gapless.model.kinds import OpKind

from .devices import Copied, Copies, Crew, Event, HostArray, Job, Launch, Source, out_of_memory
from .gathering import joined
from .slots import Chunk, Flight, Passage, Ring, RingMemoryError, Sink, is_timed, shape_of

ALIGN_EVERY = 5.0  # seconds between ties of the device's clock to the host's


def flow(
    ring: Ring,
    chunks: Iterable[Chunk],
    launch: Launch,
    sink: Sink,
    *,
    slots: int,
    ahead: int = 0,
    threads: int = 1,
    straight: tuple[bool | None, bool | None] = (None, None),
    prompt: bool = True,
    log: deque[Passage],
) -> Iterator[Flight]:
    """Let chunks pass so many slots of a ring and give each, in order, when its results are back.

    *ahead* bounds how many are in flight at once, at most one a slot. *threads* of a crew copy pageable memory; 0: the
    caller does. *straight*: whether the device copies from the inputs and to the targets as they are; None: find out
    for each. *prompt*: the iterator lets nobody wait, so that free slots are filled before results are given. What goes
    wrong in a kernel or the iterator comes out at its chunk, after all earlier ones. However this ends, nothing is in
    flight after it, and no thread is left.
    """
    run = Run(ring, launch, sink, slots=slots, ahead=ahead, threads=threads, straight=straight, prompt=prompt, log=log)
    return run.flow(iter(chunks))


class Run:
    """A run and all that is in flight."""

    def __init__(
        self,
        ring: Ring,
        launch: Launch,
        sink: Sink,
        *,
        slots: int,
        ahead: int,
        threads: int,
        straight: tuple[bool | None, bool | None],
        prompt: bool,
        log: deque[Passage],
    ) -> None:
        self.ring = ring
        self.prompt = prompt
        self.slots = ring.slots(slots)
        self.most = min(ahead or slots, slots)  # chunks in flight
        self.straight_in, self.straight_out = straight
        self.device = ring.device
        self.launch = launch
        self.sink = sink
        self.log = log
        self.threads = threads
        self.process = os.getpid()
        self.crew: Crew | None = None  # while the run goes on
        self.flights: deque[Flight] = deque()  # in the ring, oldest first
        self.waiting: deque[Flight] = deque()  # those not issued yet
        self.stopped = False
        self.next_slot = 0
        self.taken = 0  # number of the chunk, or the batch, to come
        self.number = len(log)  # of the next flight
        self.aligned = -inf  # when the device's clock was tied to the host's
        self.pinned: Any = None  # an array that is known to be pinned
        self.pageable: Any = None  # and one that is not, or not at both ends

    def flow(self, chunks: Iterator[Chunk]) -> Iterator[Flight]:
        """Let chunks pass, and give each when it is back."""
        source: Iterator[Chunk] | None = chunks
        try:
            if self.threads:
                self.crew = self.device.crew(len(self.slots), self.threads)
            while True:
                self.issue()
                if self.prompt and source is not None and self.has_room():
                    source = self.take(source)
                elif self.flights and self.is_over(self.flights[0]):
                    flight = self.flights[0]
                    self.check(flight)
                    self.retire(flight)
                    self.flights.popleft()
                    yield flight
                    if flight.failed is not None:
                        self.fail(flight.failed, flight.undone[0], flight.undone)
                elif source is not None and self.has_room():
                    source = self.take(source)
                elif self.flights:
                    self.wait()
                else:
                    return
        finally:
            self.stopped = True
            try:
                self.drain()
            except KeyboardInterrupt:  # maybe one that came just before it began
                self.drain()
                raise

    def has_room(self) -> bool:
        """Tell whether the next slot is free: slots are used in turns, and chunks leave them in order."""
        return len(self.flights) < self.most

    def take(self, source: Iterator[Chunk]) -> Iterator[Chunk] | None:
        """Let the next chunk into the ring; None when there are no more."""
        slot = self.slots[self.next_slot]
        try:
            chunk = next(source, None)
        except Exception as problem:
            self.flights.append(Flight(Chunk(-1, 0, 0, ()), slot, self.device.now_ns(), ready=True, error=problem))
            return None
        if chunk is None:
            return None
        self.next_slot = (self.next_slot + 1) % len(self.slots)
        self.taken = chunk.last + 1
        flight = Flight(chunk, slot, self.device.now_ns(), self.number)
        self.number += 1
        self.flights.append(flight)
        self.waiting.append(flight)
        try:
            self.begin(flight)
        except Exception as problem:
            flight.error, flight.ready = problem, True
        return None if flight.error is not None else source

    def begin(self, flight: Flight) -> None:
        """Have staged what the device cannot copy from where it is."""
        pairs = self.places(flight)
        if pairs and self.crew is not None:
            self.crew.submit(flight.slot.index, flight, Copies(pairs))
            return
        if pairs:
            start = self.device.now_ns()
            for target, source in pairs:
                self.device.copy(target, source)
            flight.staged = (start, self.device.now_ns())
        flight.ready = True

    def places(self, flight: Flight) -> list[tuple[HostArray, Source]]:
        """Find the memory for a chunk in its slot; give what must be staged, and into what."""
        chunk, slot = flight.chunk, flight.slot
        shapes = tuple([shape_of(source, chunk.rows) for source in chunk.inputs])
        place = slot.place(shapes)
        flight.inputs, flight.bytes_in = place.arrays, place.moved
        pairs: list[tuple[HostArray, Source]] = []
        for number, source in enumerate(chunk.inputs):
            if not place.sizes[number]:
                continue
            straight = self.straight_in
            if straight is None:
                straight = isinstance(source, np.ndarray) and self.is_straight(source)
            if straight and isinstance(source, np.ndarray):
                flight.sends.append((place.arrays[number], source))
            else:
                stage = slot.stage(place, shapes)[number]
                pairs.append((stage, source))
                flight.sends.append((place.arrays[number], stage))
        if len(pairs) == len(shapes) > 1 and place.whole is not None:  # all staged side by side: one copy takes them
            flight.sends = [place.whole]
        if self.sink.hands_over:
            flight.spare = self.ring.spare()
        return pairs

    def issue(self) -> None:
        """Give the commands of all chunks whose turn it is and whose input is there."""
        while self.waiting and self.waiting[0].ready:
            flight = self.waiting.popleft()
            flight.issued, flight.is_issued = self.device.now_ns(), True
            if flight.error is None:
                try:
                    self.give_commands(flight)
                except Exception as problem:  # of the device, which took no work: it comes out at its chunk
                    flight.error = flight.error or problem
            if isinstance(flight.error, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise flight.error
            if self.crew is not None and flight.error is None:
                self.crew.submit(flight.slot.index, flight, Copies(flight.returns, after=flight.done))

    def give_commands(self, flight: Flight) -> None:
        """Put a chunk's copies and kernel into its slot's stream."""
        slot, stream, device = flight.slot, flight.slot.stream, self.device
        timed = is_timed(device, flight.number)
        copied, computed, flight.done = (slot.copied, slot.computed, slot.timed) if timed else (None, None, slot.done)
        if device.real and not timed:  # one piece of work: there is no event between its parts
            stream.submit(OpKind.KERNEL, lambda: self.guarded(flight, self.all_steps), flight.done)
        else:
            stream.submit(OpKind.H2D, lambda: self.guarded(flight, self.copy_in), copied, flight.bytes_in)
            flight.launched = device.now_ns()
            stream.submit(OpKind.KERNEL, lambda: self.guarded(flight, self.compute), computed)
            flight.returned = device.now_ns()
            stream.submit(OpKind.D2H, lambda: self.guarded(flight, self.copy_out), flight.done)
        flight.given = device.now_ns()

    def guarded(self, flight: Flight, step: Callable[[Flight], None]) -> None:
        """Do one step of a chunk; what goes wrong is kept for the chunk's turn. After that, or a stop, do nothing."""
        if self.stopped or flight.error is not None:
            return
        try:
            step(flight)
        except BaseException as problem:
            flight.error = problem

    def all_steps(self, flight: Flight) -> None:
        """Give the commands of a whole chunk."""
        self.copy_in(flight)
        flight.launched = self.device.now_ns()
        self.compute(flight)
        flight.returned = self.device.now_ns()
        self.copy_out(flight)

    def copy_in(self, flight: Flight) -> None:
        """Copy the input to the device."""
        stream = flight.slot.stream
        for array, source in flight.sends:
            stream.h2d(array, source)

    def compute(self, flight: Flight) -> None:
        """Call the kernel."""
        chunk, slot = flight.chunk, flight.slot
        if chunk.batches is not None:
            self.compute_each(flight, chunk.batches)
            return
        flight.outputs = self.launch(slot.stream, Job(flight.inputs, chunk.first, chunk.rows, slot.memory_out))

    def compute_each(self, flight: Flight, batches: list[Chunk]) -> None:
        """Call the kernel for each batch of a chunk. If one fails, the results of those before it are given first."""
        chunk, slot, launch, inputs, outputs = flight.chunk, flight.slot, self.launch, flight.inputs, list[Any]()
        beside, at = slot.beside, 0
        beside.begin(len(batches), chunk.rows)
        for count, batch in enumerate(batches):
            after = at + len(batch.inputs)
            try:
                given = launch(slot.stream, Job(inputs[at:after], batch.first, batch.rows, beside.array))
            except Exception as problem:
                flight.chunk, flight.undone = joined(batches[: count or 1]), batches[count or 1 :]
                if not count:
                    raise
                flight.failed = problem
                break
            outputs += given
            flight.counts.append(len(given))
            at = after
        flight.outputs = tuple(outputs)

    def copy_out(self, flight: Flight) -> None:
        """Copy results to where they belong if that is pinned, else into the slot's block."""
        if flight.chunk.batches is not None:
            self.copy_out_each(flight)
            return
        stream, slot, straight = flight.slot.stream, flight.slot, self.straight_out
        results: list[HostArray | None] = []
        by_block: list[int] = []
        for number, array in enumerate(flight.outputs):
            shape, dtype = array.shape, array.dtype
            target = self.sink.target(flight.chunk, number, shape, dtype)
            results.append(target)
            flight.bytes_out += prod(shape) * dtype.itemsize
            if target is None or not (self.is_straight(target) if straight is None else straight):
                by_block.append(number)
            elif target.size:
                stream.d2h(target, array)
        if by_block:
            arrays = [flight.outputs[number] for number in by_block]
            views = slot.views_out(tuple([(array.shape, array.dtype) for array in arrays]))
            for number, array, view in zip(by_block, arrays, views, strict=True):
                target = results[number]
                if view.size:
                    stream.d2h(view, array)
                if target is None and flight.spare is not None:
                    results[number] = view
                else:
                    results[number] = target = np.empty(view.shape, view.dtype) if target is None else target
                    flight.returns.append((target, view))
        if flight.spare is not None and (not by_block or flight.returns):
            flight.spare = None  # nothing lies in the block that the user would get
        flight.results = tuple([result for result in results if result is not None])
        flight.sent = True

    def copy_out_each(self, flight: Flight) -> None:
        """Copy the results of all batches into the slot's block; at once, where they lie on the device as there."""
        stream, slot, arrays = flight.slot.stream, flight.slot, flight.outputs
        views = slot.views_out(tuple([(array.shape, array.dtype) for array in arrays]))
        flight.bytes_out = sum([view.nbytes for view in views])
        whole = slot.beside.whole(arrays)
        if whole is not None and slot.block is not None:
            stream.d2h(slot.block[: whole.shape[0]], whole)
        else:
            for array, view in zip(arrays, views, strict=True):
                if view.size:
                    stream.d2h(view, array)
        if flight.spare is not None and views:
            flight.results = views
        else:
            flight.spare, flight.results = None, tuple([np.empty(view.shape, view.dtype) for view in views])
            flight.returns += zip(flight.results, views, strict=True)
        flight.sent = True

    def is_straight(self, array: HostArray) -> bool:
        """Tell whether the device copies this memory as it is.

        Parts of one array are asked for one after another, and asking may wait for the driver.
        """
        if not array.flags.c_contiguous:
            return False
        root: Any = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        if root is self.pinned:
            return True
        if root is self.pageable and root is not array:
            return False
        straight = self.device.is_pinned(array)
        if straight and root.flags.forc and self.device.is_pinned(root):  # else parts may lie outside its two ends
            self.pinned = root
        if not straight:
            self.pageable = root
        return straight

    def is_over(self, flight: Flight) -> bool:
        """Tell whether a chunk's results are back, without waiting."""
        if flight.error is not None and not flight.is_issued:
            return flight.ready
        if not flight.is_issued:
            return False
        if self.crew is not None and flight.error is None:
            return flight.back
        return flight.done is None or flight.done.done()

    def wait(self) -> None:
        """Wait until something has happened that may let the oldest chunk go on."""
        self.align()
        if self.crew is not None and self.flights[0].error is None:
            self.hear(self.crew.next())
        else:
            self.settle(self.flights[0])

    def align(self) -> None:
        """Tie the device's clock to the host's, if it is time: after the first commands, which need not wait for it."""
        now = monotonic()
        if now - self.aligned > ALIGN_EVERY:
            self.aligned = now
            with suppress(Exception):  # what a broken device says comes out at its chunk
                self.device.align_clock()

    def hear(self, copied: Copied) -> None:
        """Take in what the crew has done."""
        flight: Flight = copied.token
        if copied.error is not None and flight.error is None:
            flight.error = copied.error
        flight.worked += copied.worked
        if flight.is_issued:
            flight.back = True
            if flight.error is None:
                flight.times = self.times_of(flight)
            flight.unstaged = copied.span if flight.returns else None
        else:
            flight.ready = True
            flight.staged = copied.span

    def check(self, flight: Flight) -> None:
        """Raise what went wrong in a chunk, with the chunk's number."""
        if flight.error is None and self.crew is None:
            self.settle(flight)  # it is over; a device tells here what went wrong
        if flight.error is not None:
            self.fail(flight.error, flight.chunk, [])

    def fail(self, problem: BaseException, chunk: Chunk, undone: list[Chunk]) -> None:
        """Raise what went wrong in a chunk, with its number. *undone*: of the chunks before those in flight."""
        self.stopped = True
        if chunk.index >= 0 and out_of_memory(problem):
            flights = [other for other in self.flights if other.chunk.index >= 0]
            after = next((other.error for other in self.flights if other.chunk.index < 0), None)
            self.drain()
            # Results that have arrived stay: the input may be where they are now.
            finished = [] if self.sink.ordered else [other for other in flights if self.has_arrived(other)]
            for other in finished:
                if self.threads and not other.back:
                    other.times = self.times_of(other)
                self.retire(other)
            rest = list(undone)
            for other in flights:
                if other not in finished:
                    rest += [other.chunk, *other.undone]
            raise RingMemoryError(problem, rest, finished, after) from problem
        if isinstance(problem, StopIteration):  # which would end the iterator that results come by
            error = RuntimeError("the kernel raised StopIteration")
            error.__cause__ = problem
            problem = error
        if chunk.index >= 0:
            problem.add_note(f"gapless: this happened in {chunk.where()}")
        else:
            problem.add_note(f"gapless: the input gave this in place of chunk {self.taken}")
        raise problem

    def has_arrived(self, flight: Flight) -> bool:
        """Tell, of a ring that is drained, whether a chunk's results are where they belong."""
        return flight.error is None and flight.sent and (flight.back or not flight.returns)

    def retire(self, flight: Flight) -> None:
        """Free the slot, and note when the chunk passed what."""
        self.align()
        slot = flight.slot
        if not self.threads and flight.returns:
            start = self.device.now_ns()
            for target, source in flight.returns:
                self.device.copy(target, source)
            flight.unstaged = (start, self.device.now_ns())
        if flight.spare is not None:
            slot.use_block(flight.spare)
        copied, computed, done = flight.times if self.threads else self.times_of(flight)
        flight.spare, flight.outputs, flight.inputs = None, (), ()
        flight.sends.clear()
        flight.chunk.held = None
        self.log.append(
            Passage(
                flight.chunk.index, slot.index, flight.chunk.rows, flight.bytes_in, flight.bytes_out, flight.begun,
                flight.staged, flight.issued, flight.launched, flight.returned, flight.given, copied, computed, done,
                flight.unstaged, flight.worked, self.device.now_ns(),
            )
        )  # fmt: skip

    def settle(self, flight: Flight) -> None:
        """Wait until what was given for a chunk is over, and keep what the device says."""
        try:
            if flight.done is not None:
                flight.done.wait()
        except Exception as problem:
            flight.error = flight.error or problem

    def times_of(self, flight: Flight) -> tuple[int | None, int | None, int | None]:
        """Give when the slot's events were done; before the slot's next chunk records them anew."""
        slot = flight.slot
        if flight.done is not slot.timed:
            return None, None, None
        return slot.copied.time_ns(), slot.computed.time_ns(), slot.timed.time_ns()

    def drain(self) -> None:
        """Wait until nothing is in flight any more; buffers and the user's memory are free then.

        A Ctrl-C meanwhile does not leave work behind, and is raised after that.
        """
        interrupted: KeyboardInterrupt | None = None
        while True:
            try:
                if self.process == os.getpid():  # else in a child that was forked meanwhile nothing here is at work
                    self.settle_all()
                break
            except KeyboardInterrupt as problem:
                interrupted = problem
        if interrupted is not None:
            raise interrupted

    def settle_all(self) -> None:
        """Wait for the crew and for all events. Can be called again where it was interrupted."""
        try:
            if self.crew is not None:
                for copied in self.crew.close():  # nothing is given to the device after this
                    self.hear(copied)
                self.crew = None
        finally:
            for flight in self.flights:
                _settle(flight.done)
            self.flights.clear()
            self.waiting.clear()


def _settle(event: Event | None) -> None:
    """Wait for an event, whatever it says: the first error has been kept; what a broken device says after it adds
    nothing.
    """
    if event is not None:
        with suppress(Exception):
            event.wait()
