"""``gapless.torch.prefetch``: batches on the device before the program asks for them.

A copy stream brings the next *depth* batches into fixed buffers while the GPU works on the one before. What puts this
in order, for each slot of the ring:

- the consumer's current stream waits for the event behind the copies before the batch is handed over;
- the copies into a slot wait for an event recorded on the consumer's current stream when the program asks for a later
  batch and no longer holds the old one, and for the streams that ``record_stream`` named for it;
- a batch that the program still holds then is the program's: its memory is replaced. The memory was allocated on the
  consumer's stream, so that what PyTorch does when the program lets go of it is in order too.

The loader is asked in the program's own thread, as a plain loop does: order, exceptions, workers and ``break`` are the
loader's. Batches that are not pinned are copied into pinned buffers by a thread, which then issues the copy.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Generic, TypeVar

import torch

from gapless.model.errors import GaplessError

from .batches import Held, map_tensors, tensors_in
from .buffers import Buffer, bytes_of
from .transfers import Cuda, Transfers

_SAMPLE = 8  # batches, of which one's wait is timed: it takes two events more

T = TypeVar("T")


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


class Prefetcher(Generic[T]):
    """Iterate a loader with its batches on the device; see ``prefetch``."""

    def __init__(
        self,
        loader: Iterable[T],
        transfers: Transfers | None,
        depth: int,
        transform: Callable[[Any], Any] | None,
    ) -> None:
        self.loader = loader
        self.depth = depth
        self.stats = Stats()
        self._transfers = transfers
        self._transform = transform

    def __len__(self) -> int:
        return len(self.loader)  # pyright: ignore[reportArgumentType]

    def __iter__(self) -> Iterator[T]:
        if self._transfers is None:
            return self._pass_through()
        return _Ring(self, self._transfers).batches()

    def _pass_through(self) -> Iterator[T]:
        """On the CPU there is nothing to copy."""
        source = iter(self.loader)
        while True:
            begun = perf_counter()
            try:
                batch = next(source)
            except StopIteration:
                return
            finally:
                self.stats.loader_s += perf_counter() - begun
            self.stats.batches += 1
            yield batch if self._transform is None else self._transform(batch)

    def report(self) -> str:
        """Say in a few lines what prefetching did, and what the program waited for."""
        stats = self.stats
        unpinned = f", {stats.staged / 1e6:,.1f} MB of them not pinned by the loader" if stats.staged else ""
        lines = [f"{stats.batches:,} batches, {stats.bytes / 1e6:,.1f} MB copied{unpinned}"]
        lines.append(f"waited {stats.loader_s:.3f} s for the loader, {stats.host_s:.3f} s for buffers; the GPU stood "
                     f"still about {stats.copy_s:.3f} s for copies")  # fmt: skip
        if stats.kept:
            lines.append(f"{stats.kept:,} buffers were replaced because the program kept their batch")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Prefetcher({self.loader!r}, depth={self.depth})"


@dataclass(slots=True, eq=False)
class _Slot:
    """One place of the ring: buffers for each tensor of a batch, in their order."""

    buffers: list[Buffer] = field(default_factory=list)
    staging: list[Buffer] = field(default_factory=list)
    sources: list[Any] = field(default_factory=list)  # what is being copied from
    copied: Any = None  # the event behind the copies
    released: Any = None  # the event behind what the consumer's streams did with it
    others: Held | None = None  # tensors that are not in our buffers: what a transform made, what ``.to`` gave
    named: list[Any] = field(default_factory=list)  # streams that use it: the one it was handed to, record_stream's
    batch: Any = None  # until it is handed over
    work: Future[None] | None = None  # the thread that pins


class _Ring:
    """One iteration."""

    def __init__(self, owner: Prefetcher[Any], transfers: Transfers) -> None:
        self._owner = owner
        self._stats = owner.stats
        self._gpu = transfers
        self._stream = transfers.new_stream()
        # one slot is the program's until it has the next batch, one is being filled meanwhile
        self._free: deque[_Slot] = deque(_Slot() for _ in range(owner.depth + 2))
        self._ready: deque[_Slot] = deque()
        self._handed: deque[_Slot] = deque()
        self._kept: list[Held] = []  # what the program still holds of tensors that are not in our buffers
        self._stalls: deque[Any] = deque()
        self._handed_over = 0
        self._pool: ThreadPoolExecutor | None = None

    def batches(self) -> Iterator[Any]:
        """Give the batches, each behind the event of its copies."""
        source, ended = iter(self._owner.loader), False
        failure: BaseException | None = None
        try:
            while True:
                while not ended and len(self._ready) <= self._owner.depth:
                    if self._ready and self._ready[-1].work is not None:
                        self._ready[-1].work.result()  # the loader may use its memory again for the next
                    try:
                        batch = self._next_of(source)
                    except StopIteration:
                        ended = True
                    except Exception as problem:  # the batches before it come first
                        ended, failure = True, problem
                    else:
                        self._fill(batch)
                if not self._ready:
                    break
                yield self._hand_over()
            if failure is not None:
                raise failure
        finally:
            self._close()

    def _next_of(self, source: Iterator[Any]) -> Any:
        begun = perf_counter()
        try:
            return next(source)
        finally:
            self._stats.loader_s += perf_counter() - begun

    # ------------------------------------------------------------------------------------------------------ filling

    def _fill(self, batch: Any) -> None:
        """Bring a batch into the next slot."""
        slot = self._free.popleft() if self._free else self._handed.popleft()
        self._take_back(slot)
        tensors: list[tuple[torch.Tensor, torch.Tensor]] = []  # source and target
        whole: list[Any] = []
        moved = map_tensors(batch, lambda t: self._place(slot, tensors, t), lambda obj: self._mark(whole, obj))
        left = any(not self._gpu.holds(t) for t in tensors_in(moved))  # sparse ones, and subclasses
        unpinned = [at for at, (source, _) in enumerate(tensors) if not self._gpu.is_pinned(source)]
        slot.sources = [batch]
        self._stats.batches += 1
        self._stats.bytes += sum(bytes_of(source) for source, _ in tensors)

        def issue() -> None:
            for at in unpinned:
                source, target = tensors[at]
                staged = slot.staging[at].like(source)
                with torch.no_grad():
                    staged.copy_(source)
                tensors[at] = staged, target
            self._issue(slot, tensors, moved, bool(whole or left))

        if unpinned:
            self._stats.staged += sum(bytes_of(tensors[at][0]) for at in unpinned)
            for at in unpinned:
                while len(slot.staging) <= at:
                    slot.staging.append(Buffer(self._gpu.pinned))
                slot.staging[at].room_for(bytes_of(tensors[at][0]))
            slot.work = self._threads().submit(issue)
        else:
            issue()
        self._ready.append(slot)

    def _place(self, slot: _Slot, tensors: list[tuple[torch.Tensor, torch.Tensor]], tensor: torch.Tensor) -> Any:
        """Give the place on the device where a tensor of the batch will be."""
        if self._gpu.holds(tensor) or tensor.layout is not torch.strided or type(tensor) is not torch.Tensor:
            return tensor
        at = len(tensors)
        while len(slot.buffers) <= at:
            slot.buffers.append(Buffer(self._gpu.allocate))
        buffer = slot.buffers[at]
        kept = buffer.replaced
        if buffer.room_for(bytes_of(tensor)):
            # The memory is fresh from the consumer's stream, whose earlier work may still use it (R8.7).
            self._gpu.wait(self._stream, self._gpu.record(self._gpu.current()))
        self._stats.kept += buffer.replaced - kept
        place = buffer.like(tensor)
        tensors.append((tensor, place))
        return place

    @staticmethod
    def _mark(whole: list[Any], obj: Any) -> Any:
        whole.append(obj)
        return obj

    def _issue(self, slot: _Slot, tensors: list[tuple[torch.Tensor, torch.Tensor]], moved: Any, left: bool) -> None:
        """Put the copies of a batch into the copy stream, and what its objects and the transform do there."""
        self._gpu.copy(tensors, self._stream)
        made: list[Any] = []
        if left or self._owner._transform is not None:
            with self._gpu.on(self._stream):
                moved = map_tensors(
                    moved,
                    lambda t: t if self._gpu.holds(t) else self._move(slot, made, t),
                    lambda obj: self._move(slot, made, obj),
                )
                if self._owner._transform is not None:
                    moved = self._owner._transform(moved)
                    made.append(moved)
        slot.copied = self._gpu.record(self._stream, slot.copied)
        ours = {target.untyped_storage()._cdata for _, target in tensors}
        others = [t for t in tensors_in(made) if self._gpu.holds(t) and t.untyped_storage()._cdata not in ours]
        slot.others = Held([tensor.detach() for tensor in others]) if others else None
        slot.batch = moved

    def _move(self, slot: _Slot, made: list[Any], obj: Any) -> Any:
        """Move an object of a class of its own, as it does that itself."""
        pinned = obj.pin_memory() if hasattr(obj, "pin_memory") else obj
        slot.sources.append(pinned)
        made.append(self._gpu.moved(pinned))
        return made[-1]

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="gapless-pin")
        return self._pool

    # ----------------------------------------------------------------------------------------- handing over and back

    def _hand_over(self) -> Any:
        """Give a batch to the program: its current stream waits for the copies."""
        slot = self._ready.popleft()
        begun = perf_counter()
        if slot.work is not None:
            slot.work.result()
            slot.work = None
            self._stats.host_s += perf_counter() - begun
        current = self._gpu.current()
        if self._handed_over % _SAMPLE:
            self._gpu.wait(current, slot.copied)
        else:
            self._stalls.append(self._gpu.stalls(current, slot.copied))
            self._count_stalls()
        self._handed_over += 1
        batch, slot.batch = slot.batch, None
        slot.named = [current]
        for tensor in tensors_in(batch):
            if self._gpu.holds(tensor):
                tensor.record_stream = _Named(self._gpu, slot.named, tensor)  # pyright: ignore[reportAttributeAccessIssue]
        self._handed.append(slot)
        return batch

    def _take_back(self, slot: _Slot) -> None:
        """Let a slot be filled again: after the copies out of its sources, and after the consumer's streams."""
        if slot.copied is None:
            return
        begun = perf_counter()
        self._gpu.synchronize(slot.copied)  # before its sources are let go; done long ago, where the host is not ahead
        self._stats.host_s += perf_counter() - begun
        slot.sources = []
        for stream in {self._gpu.current(), *slot.named}:
            slot.released = self._gpu.record(stream, slot.released)
            self._gpu.wait(self._stream, slot.released)
        slot.named = []
        if slot.others is not None:
            self._kept.append(slot.others)
            slot.others = None
        self._kept = [held for held in self._kept if held.elsewhere]  # the rest goes, behind the wait above

    def _count_stalls(self, *, all_: bool = False) -> None:
        while self._stalls and (all_ or len(self._stalls) > 1):
            seconds = self._gpu.stalled(self._stalls[0])
            if seconds is None:
                return
            self._stalls.popleft()
            self._stats.copy_s += seconds * _SAMPLE

    def _close(self) -> None:
        """End the iteration: nothing of ours may be let go while a copy of it is under way."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        current = self._gpu.current()
        for slot in (*self._ready, *self._handed, *self._free):
            if slot.copied is not None:
                self._gpu.synchronize(slot.copied)  # for its sources, and for its buffers where they were not handed
            if slot.others is not None:
                self._kept.append(slot.others)
        for held in self._kept:
            for tensor in held.tensors:
                self._gpu.keep(tensor, current)
        self._count_stalls(all_=True)


class _Named:
    """``record_stream`` of a tensor that was handed over: the ring waits for that stream too."""

    def __init__(self, gpu: Transfers, named: list[Any], tensor: torch.Tensor) -> None:
        self._gpu = gpu
        self._named = named
        self._tensor = weakref.ref(tensor)

    def __call__(self, stream: Any) -> None:
        self._named.append(stream)
        tensor = self._tensor()
        if tensor is not None:
            self._gpu.keep(tensor, stream)


def prefetch(
    loader: Iterable[T],
    device: torch.device | str | int = "cuda",
    depth: int = 2,
    *,
    transform: Callable[[Any], Any] | None = None,
) -> Prefetcher[T]:
    """Iterate *loader* with its batches already on *device*, copied *depth* batches ahead on a stream of their own::

        for images, labels in gapless.torch.prefetch(loader):
            loss = criterion(model(images), labels)

    Batches are tensors, or tuples, lists, dicts, named tuples, dataclasses of them, or objects with ``.to``; their
    shapes may change. The program may keep a batch: its buffer is then replaced. On the device there are buffers for
    *depth* + 2 batches. *transform* gets each batch on the device and runs on the copy stream. ``stats`` counts,
    ``report()`` says what the program waited for. A *device* that is the CPU passes batches through.

    Raises GaplessError for a depth below 1, and for a device that is neither a GPU nor the CPU.
    """
    if depth < 1:
        raise GaplessError(f"prefetch needs a depth of at least 1 batch, not {depth}")
    return Prefetcher(loader, transfers_of(device), depth, transform)


def transfers_of(device: torch.device | str | int) -> Transfers | None:
    """Give how to copy to and from a device; None for the CPU. Raises GaplessError for other devices."""
    where = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if where.type == "cpu":
        return None
    if where.type != "cuda":
        raise GaplessError(f"prefetching knows GPUs (cuda) and the CPU, not {where}")
    if not torch.cuda.is_available():
        raise GaplessError("There is no GPU here, or PyTorch cannot use it. For the CPU: device='cpu'")
    return Cuda(torch.device("cuda", torch.cuda.current_device()) if where.index is None else where)
