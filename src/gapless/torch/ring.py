"""The ring of buffers behind ``prefetch``: one iteration of a loader, its batches copied ahead.

What puts this in order, for each slot of the ring:

- the consumer's current stream waits for the event behind the copies before the batch is handed over;
- the copies into a slot wait for an event recorded on the consumer's current stream when the program asks for a later
  batch and no longer holds the old one, for every other stream that was current in some thread since the old one was
  handed over, and for the streams that ``record_stream`` named for it or for a view of it;
- a batch of which the program still holds anything then is the program's: its memory is replaced. The memory was
  allocated on the consumer's stream, and the allocator is told of the other streams, so that what PyTorch does when the
  program lets go of it is in order too.

The program waits for this code in every step, so it does little: a batch that looks like the one before it in its slot
costs a view of each tensor, its copy, and the calls above.

The loader is asked in the program's own thread, as a plain loop does: order, exceptions, workers and ``break`` are the
loader's. Batches that are not pinned are copied into pinned buffers by a thread, which then issues the copy.

What fails for one batch (its transform, a ``.to`` of its own, memory) is raised when that batch's turn comes. However
an iteration ends, its buffers are let go behind all that is in the copy stream: for the batch that failed too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch

from .batches import Held, map_batch, map_tensors, refuse, tensors_in
from .buffers import Buffer
from .currents import listen, now, through
from .naming import lend, take_back
from .transfers import Transfers

_SAMPLE = 8  # batches, of which one's wait is timed: it takes two events more


@dataclass(slots=True)
class Stats:
    """What prefetching did: batches and bytes copied, seconds waited, buffers that the program kept."""

    batches: int = 0
    bytes: int = 0
    staged: int = 0  # bytes that came unpinned, and went through a pinned buffer
    kept: int = 0  # buffers replaced because the program held on to a batch
    loader_s: float = 0.0  # the program's thread waited for the loader
    host_s: float = 0.0  # ... for a buffer: for an earlier copy, or for the thread that pins
    copy_s: float = 0.0  # the consumer's stream stood still until a copy was done; from each eighth batch


@dataclass(slots=True, eq=False)
class _Slot:
    """One place of the ring: buffers for each tensor of a batch, in their order."""

    buffers: list[Buffer] = field(default_factory=list)
    staging: list[Buffer] = field(default_factory=list)
    sources: list[Any] = field(default_factory=list)  # what is being copied from
    copied: Any = None  # the event behind the copies
    released: Any = None  # the event behind what the consumer's streams did with it
    others: Held | None = None  # tensors that are not in our buffers: what a transform made, what ``.to`` gave
    named: list[Any] = field(default_factory=list)  # streams that may use it: since current, or record_stream's
    batch: Any = None  # until it is handed over
    work: Future[None] | None = None  # the thread that pins
    failure: BaseException | None = None  # what came instead of the batch

    def hear(self, stream: Any) -> None:
        """Take note of a stream that uses it."""
        if stream not in self.named:
            self.named.append(stream)


def _modes() -> Callable[[], AbstractContextManager[Any]]:
    """Give what a thread of ours has to enter for PyTorch to do there what it does here: a transform may ask for it."""
    gradients, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    casts, to = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")

    @contextmanager
    def enter() -> Iterator[None]:
        torch.set_autocast_enabled("cuda", casts)
        torch.set_autocast_dtype("cuda", to)
        torch.set_autocast_cache_enabled(False)  # the thread has no block at whose end the cache would be emptied
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            yield

    return enter


class Ring:
    """One iteration."""

    def __init__(
        self,
        loader: Iterable[Any],
        transfers: Transfers,
        depth: int,
        transform: Callable[[Any], Any] | None,
        stats: Stats,
    ) -> None:
        self._loader = loader
        self._depth = depth
        self._transform = transform
        self._stats = stats
        self._gpu = transfers
        self._stream = transfers.new_stream()
        self._slots: list[_Slot] = []  # all that there are, wherever they are just now
        self._ready: deque[_Slot] = deque()
        self._handed: deque[_Slot] = deque()
        self._kept: list[Held] = []  # what the program still holds of tensors that are not in our buffers
        self._stalls: deque[Any] = deque()
        self._handed_over = 0
        self._pool: ThreadPoolExecutor | None = None

    def batches(self) -> Iterator[Any]:
        """Give the batches, each behind the event of its copies."""
        source, ended = iter(self._loader), False
        listen(self, self._hear)
        try:
            while True:
                while not ended and len(self._ready) <= self._depth:
                    ended = not self._bring(source)
                if not self._ready:
                    break
                yield self._hand_over()
        finally:
            through(self)
            self._close()

    def _bring(self, source: Iterator[Any]) -> bool:
        """Bring the loader's next batch, or what it raises; False where no other one comes behind it."""
        last = self._ready[-1] if self._ready else None
        if last is not None and last.work is not None:
            begun = perf_counter()
            wait([last.work])  # the loader may use its memory again for the next
            self._stats.host_s += perf_counter() - begun
            last.failure, last.work = last.work.exception(), None
            if last.failure is not None:
                return False
        begun = perf_counter()
        try:
            batch = next(source)
        except StopIteration:
            return False
        except Exception as problem:
            return self._fail(problem)
        self._stats.loader_s += perf_counter() - begun
        try:
            self._fill(batch)
        except Exception as problem:
            return self._fail(problem)
        return True

    def _fail(self, problem: Exception) -> bool:
        """End the iteration with what was raised: the batches before it come first."""
        self._ready.append(_Slot(failure=problem))
        return False

    # ------------------------------------------------------------------------------------------------------ filling

    def _fill(self, batch: Any) -> None:
        """Bring a batch into the next slot."""
        slot = self._next_slot()
        self._take_back(slot)
        gpu, pairs = self._gpu, list[tuple[torch.Tensor, torch.Tensor]]()  # source and target
        elsewhere: list[Any] = []  # what has to move itself: sparse tensors, subclasses, objects with ``.to``
        there = False  # the loader's own tensors on the device

        def place(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal there
            if gpu.holds(tensor):
                there = True
                return tensor
            if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_nested:
                refuse(tensor)
                elsewhere.append(tensor)
                return tensor
            at = len(pairs)
            target = slot.buffers[at].again(tensor) if at < len(slot.buffers) else None
            if target is None:
                target = self._place(slot, at, tensor)
            if not tensor.requires_grad:
                pairs.append((tensor, target))
                return target
            pairs.append((tensor.detach(), target))
            return target.detach().requires_grad_() if torch.is_grad_enabled() else target

        def mark(obj: Any) -> Any:
            elsewhere.append(obj)
            return obj

        moved = map_batch(batch, place, mark)
        if there and (elsewhere or self._transform is not None):
            gpu.wait(self._stream, gpu.record(gpu.current()))  # what the loader did to them comes first
        slot.sources = [batch]
        for buffer in slot.buffers[: len(pairs)]:
            self._stats.bytes += buffer.bytes
        self._stats.batches += 1
        unpinned = [at for at, (source, _) in enumerate(pairs) if not gpu.is_pinned(source)]
        if unpinned:
            self._stage(slot, pairs, unpinned, moved, bool(elsewhere))
        else:
            self._issue(slot, pairs, moved, bool(elsewhere))
        self._ready.append(slot)

    def _next_slot(self) -> _Slot:
        """Give the slot to be filled next."""
        if len(self._slots) < self._depth + 2:  # one is the program's until it has the next batch, one is being filled
            self._slots.append(_Slot())
            return self._slots[-1]
        return self._handed.popleft()

    def _place(self, slot: _Slot, at: int, tensor: torch.Tensor) -> torch.Tensor:
        """Give the place on the device where a tensor of the batch will be."""
        refuse(tensor)
        while len(slot.buffers) <= at:
            slot.buffers.append(Buffer(self._gpu.allocate))
        buffer = slot.buffers[at]
        if buffer.kept or not buffer.fits(tensor):
            self._stats.kept += buffer.kept
            self._leave(slot, buffer)
            buffer.fits(tensor)
            lend(buffer.renew(), slot.hear)
            # The memory is fresh from the consumer's stream, whose earlier work may still use it (R8.7).
            self._gpu.wait(self._stream, self._gpu.record(self._gpu.current()))
        return buffer.like(tensor)

    def _leave(self, slot: _Slot, buffer: Buffer) -> None:
        """Let go of a buffer: from now on its memory is the allocator's, which has to know who used it."""
        if buffer.memory is not None:
            take_back(buffer.memory)
            for stream in slot.named:
                self._gpu.keep(buffer.memory, stream)
            buffer.leave()

    def _stage(self, slot: _Slot, pairs: list[tuple[torch.Tensor, torch.Tensor]], unpinned: list[int], moved: Any,
               elsewhere: bool) -> None:  # fmt: skip
        """Let a thread bring what is not pinned into pinned memory, and issue the copies behind that."""
        for at in unpinned:
            while len(slot.staging) <= at:
                slot.staging.append(Buffer(self._gpu.pinned))
            if not slot.staging[at].fits(pairs[at][0]):
                slot.staging[at].renew()
            self._stats.staged += slot.staging[at].bytes

        as_here = _modes()

        def issue() -> None:
            with as_here():
                for at in unpinned:
                    source, target = pairs[at]
                    staged = slot.staging[at].like(source)
                    staged.copy_(source)
                    pairs[at] = staged, target
                self._issue(slot, pairs, moved, elsewhere)

        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="gapless-pin")
        slot.work = self._pool.submit(issue)

    def _issue(self, slot: _Slot, pairs: list[tuple[torch.Tensor, torch.Tensor]], moved: Any, elsewhere: bool) -> None:
        """Put the copies of a batch into the copy stream, and what its objects and the transform do there."""
        self._gpu.copy(pairs, self._stream)
        if elsewhere or self._transform is not None:
            moved = self._change(slot, pairs, moved)
        slot.copied = self._gpu.record(self._stream, slot.copied)
        slot.batch = moved

    def _change(self, slot: _Slot, pairs: list[tuple[torch.Tensor, torch.Tensor]], moved: Any) -> Any:
        """Move what moves itself, and transform the batch, on the copy stream; give what came out."""
        gpu, made = self._gpu, list[Any]()

        def move(obj: Any) -> Any:
            pinned = obj.pin_memory() if callable(getattr(obj, "pin_memory", None)) else obj
            slot.sources.append(pinned)
            made.append(gpu.moved(pinned))
            return made[-1]

        with gpu.on(self._stream):
            moved = map_tensors(moved, lambda t: t if gpu.holds(t) else move(t), move)
            if self._transform is not None:
                moved = self._transform(moved)
                made.append(moved)
        ours = {target.untyped_storage()._cdata for _, target in pairs}
        others = [t for t in tensors_in(made) if gpu.holds(t) and t.untyped_storage()._cdata not in ours]
        slot.others = Held([tensor.detach() for tensor in others]) if others else None
        return moved

    # ----------------------------------------------------------------------------------------- handing over and back

    def _hand_over(self) -> Any:
        """Give a batch to the program: its current stream waits for the copies."""
        slot = self._ready.popleft()
        if slot.failure is not None:
            problem, slot.failure = slot.failure, None
            try:
                raise problem
            finally:
                del problem  # it holds this frame, and the frames that hold the batch
        current = self._gpu.current()
        if self._handed_over % _SAMPLE:
            self._gpu.wait(current, slot.copied)
        else:
            self._stalls.append(self._gpu.stalls(current, slot.copied))
            self._count_stalls()
        self._handed_over += 1
        batch, slot.batch = slot.batch, None
        slot.named[:] = [current]
        self._handed.append(slot)
        for stream in now():
            self._hear(stream)
        return batch

    def _hear(self, stream: Any) -> None:
        """Take note of a stream that became current, in any thread: it may use what the program has."""
        if stream != self._stream and self._gpu.has(stream):
            for slot in list(self._handed):
                slot.hear(stream)

    def _take_back(self, slot: _Slot) -> None:
        """Let a slot be filled again: after the copies out of its sources, and after the consumer's streams."""
        if slot.copied is None:
            return
        begun = perf_counter()
        self._gpu.synchronize(slot.copied)  # before its sources are let go; done long ago, where the host is not ahead
        self._stats.host_s += perf_counter() - begun
        slot.sources = []
        slot.hear(self._gpu.current())
        for buffer in slot.buffers:  # first: who lets go later than this may use it later than what is recorded below
            buffer.look()
        kept = slot.others is not None and slot.others.elsewhere
        for stream in slot.named:
            slot.released = self._gpu.record(stream, slot.released)
            self._gpu.wait(self._stream, slot.released)
        if slot.others is not None:
            if kept:
                self._name(slot.others, slot.named)
                self._kept.append(slot.others)
            slot.others = None  # goes, behind the wait above
        self._kept = [held for held in self._kept if held.elsewhere]

    def _name(self, held: Held, streams: list[Any]) -> None:
        """Tell the allocator who used tensors that are not in our buffers: their memory is the copy stream's."""
        for tensor in held.tensors:
            for stream in streams:
                self._gpu.keep(tensor, stream)

    def _count_stalls(self, *, all_: bool = False) -> None:
        while self._stalls and (all_ or len(self._stalls) > 1):
            seconds = self._gpu.stalled(self._stalls[0])
            if seconds is None:
                return
            self._stalls.popleft()
            self._stats.copy_s += seconds * _SAMPLE

    def _close(self) -> None:
        """End the iteration: nothing of ours may be let go while a copy of it is under way.

        That is for the sources, and for the buffers where they were not handed out. The event is one behind everything:
        a slot whose batch failed has copies in the stream, and none of its own behind them.
        """
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        if self._slots:
            self._gpu.synchronize(self._gpu.record(self._stream))
        current = self._gpu.current()
        for slot in self._slots:
            slot.hear(current)
            for buffer in slot.buffers:
                self._leave(slot, buffer)
            if slot.others is not None:
                self._name(slot.others, slot.named)
        for held in self._kept:
            self._name(held, [current])
        self._ready.clear()
        self._count_stalls(all_=True)
