"""``gapless.torch.to_host``: results of the GPU on the host, without stopping it.

Each result is copied into a pinned buffer on a stream of its own, behind an event of the stream that made it, and
handed out when its copy is done; *depth* results are under way meanwhile. Its tensors on the device are held until
then, so their memory is not handed out again. A result that the program keeps is the program's: its buffer is replaced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Generic, TypeVar

import torch

from gapless.model.errors import GaplessError

from .batches import map_batch, tensors_in
from .buffers import Buffer
from .transfers import Transfers, depth_of, transfers_of

T = TypeVar("T")


@dataclass(slots=True)
class ResultStats:
    """What came back: results and bytes, buffers that the program kept, seconds that the host waited for copies."""

    results: int = 0
    bytes: int = 0
    kept: int = 0
    copy_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Slot:
    buffers: list[Buffer] = field(default_factory=list)
    source: Any = None
    result: Any = None
    made: Any = None  # the event behind what made it
    copied: Any = None


class HostResults(Generic[T]):
    """Iterate results on the host; see ``to_host``."""

    def __init__(self, results: Iterable[T], transfers: Transfers | None, depth: int) -> None:
        self.results = results
        self.depth = depth
        self.stats = ResultStats()
        self._transfers = transfers

    def __len__(self) -> int:
        return len(self.results)  # pyright: ignore[reportArgumentType]

    def __iter__(self) -> Iterator[T]:
        gpu = self._transfers
        if gpu is None:
            yield from self.results
            return
        stream = gpu.new_stream()
        slots, ready, handed = list[_Slot](), deque[_Slot](), deque[_Slot]()
        source, failure = iter(self.results), None
        try:
            while True:
                try:
                    result = next(source)
                except StopIteration:
                    break
                except Exception as problem:  # the results before it come first
                    failure = problem
                    break
                if len(slots) < self.depth + 2:  # one is the program's until it has the next, one is being filled
                    slots.append(_Slot())
                    slot = slots[-1]
                else:
                    slot = handed.popleft()
                slot.source = result  # before anything of it is copied
                del result
                try:
                    self._fetch(gpu, stream, slot)
                except Exception as problem:  # refused, or no memory for it
                    failure = problem
                    break
                ready.append(slot)
                if len(ready) > self.depth:
                    yield self._hand_over(gpu, ready, handed)
            while ready:
                yield self._hand_over(gpu, ready, handed)
            if failure is not None:
                raise failure
        finally:
            del failure  # it holds this frame
            if slots:
                gpu.synchronize(gpu.record(stream))  # before what is being copied is let go, and where it goes to

    def _fetch(self, gpu: Transfers, stream: Any, slot: _Slot) -> None:
        """Put the copies of a slot's result into the stream."""
        result = slot.source
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

        def place(tensor: torch.Tensor) -> torch.Tensor:
            if not gpu.holds(tensor) or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
                return tensor
            at = len(pairs)
            while len(slot.buffers) <= at:
                slot.buffers.append(Buffer(gpu.pinned))
            buffer = slot.buffers[at]
            buffer.look()
            target = buffer.again(tensor)
            if target is None:
                kept = buffer.kept
                self.stats.kept += kept
                if not buffer.fits(tensor) or kept:
                    buffer.renew()
                target = buffer.like(tensor)
            pairs.append((tensor.detach() if tensor.requires_grad else tensor, target))
            return target

        slot.result = map_batch(result, place)
        if type(result) is not torch.Tensor or not pairs:
            self._refuse_others(gpu, slot.result)
        slot.made = gpu.record(gpu.current(), slot.made)
        gpu.wait(stream, slot.made)
        gpu.copy(pairs, stream)
        slot.copied = gpu.record(stream, slot.copied)
        self.stats.results += 1
        for buffer in slot.buffers[: len(pairs)]:
            self.stats.bytes += buffer.bytes

    @staticmethod
    def _refuse_others(gpu: Transfers, result: Any) -> None:
        for tensor in tensors_in(result):
            if gpu.holds(tensor):
                raise GaplessError(
                    "to_host brings back dense tensors, and tuples, lists, dicts, dataclasses, other containers of "
                    f"them; this result holds others ({type(result).__name__}). Take their tensors out first."
                )

    def _hand_over(self, gpu: Transfers, ready: deque[_Slot], handed: deque[_Slot]) -> Any:
        slot = ready[0]
        begun = perf_counter()
        gpu.synchronize(slot.copied)
        self.stats.copy_s += perf_counter() - begun
        ready.popleft()
        result, slot.result, slot.source = slot.result, None, None
        handed.append(slot)
        return result

    def report(self) -> str:
        """Say what came back, and how long the host waited for it."""
        stats = self.stats
        kept = f"; {stats.kept:,} buffers were replaced because the program kept their result" if stats.kept else ""
        return (f"{stats.results:,} results, {stats.bytes / 1e6:,.1f} MB brought back; the host waited "
                f"{stats.copy_s:.3f} s for them{kept}")  # fmt: skip


def to_host(results: Iterable[T], depth: int = 2, *, device: torch.device | str | int = "cuda") -> HostResults[T]:
    """Iterate *results* (made on *device*) on the host, each handed out when its copy is done::

        for scores in gapless.torch.to_host(model(x) for x in gapless.torch.prefetch(loader)):
            save(scores.numpy())

    Results are tensors, or containers of them as ``prefetch`` takes them; they come in order, *depth* results later
    than they are made, in pinned memory. The program may keep them. An exception of *results* comes behind the results
    before it, and so does what cannot be brought back. Raises GaplessError for a depth that is no whole number from 1,
    a device that is neither a GPU nor the CPU, and results with other tensors (sparse, nested and quantized ones, those
    in further objects).
    """
    return HostResults(results, transfers_of(device), depth_of(depth, "results"))
