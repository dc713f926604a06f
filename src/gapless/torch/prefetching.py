"""``gapless.torch.prefetch``: batches on the device before the program asks for them.

A copy stream brings the next *depth* batches into fixed buffers while the GPU works on the one before; what puts that
in order is in ``ring``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any, Generic, TypeVar

import torch

from .ring import Ring, Stats
from .transfers import Transfers, depth_of, transfers_of

T = TypeVar("T")


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
        return Ring(self.loader, self._transfers, self.depth, self._transform, self.stats).batches()

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

    Batches are tensors, or tuples, lists, dicts, dataclasses, sets, deques, other mappings of them, subclasses too, or
    objects with ``.to``; further objects are given as they are. Their shapes may change. Pinned tensors are copied from
    where they lie: the loader must not write to them again. The program may keep a batch, or a view of it: its buffer
    is then replaced. It may use a batch on further streams of PyTorch: the buffer waits for all that were current
    meanwhile; those of other libraries are named by ``record_stream``. On the device there are buffers for *depth* + 2
    batches. *transform* gets each batch on the device and runs on the copy stream. ``stats`` counts, ``report()`` says
    what the program waited for. A *device* that is the CPU passes batches through.

    What the loader or *transform* raises for a batch comes behind the batches before it. Raises GaplessError for a
    depth that is no whole number from 1, a device that is neither a GPU nor the CPU, nested and quantized tensors, and
    containers with tensors of which no other one can be made.
    """
    return Prefetcher(loader, transfers_of(device), depth_of(depth, "batches"), transform)
