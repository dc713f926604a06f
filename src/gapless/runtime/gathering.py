"""Small batches that pass the ring together: one copy in, a call of the kernel for each, one copy out.

The link takes a few microseconds for 64 KiB, Python ten times that for a chunk. So small batches that are there at
once share one. Nothing else changes for them: the kernel gets each by itself, and the results come in their order.

Only batches of a list, a tuple or an array share: an iterator may have to wait for what it gives, or for results before
it goes on, and is asked for no more than a batch a slot. And none share before the first results tell how long a kernel
takes and how large its results are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from .slots import Chunk, Passage

MOST = 64  # batches
MOST_BYTES = 4 << 20
KERNELS = 1e6  # ns that the kernels of a chunk may take together: results wait for the last of them


class Gathered:
    """An iterator over chunks: of *batches*, those that are small are gathered.

    *small*: bytes of a batch that may be, *most_bytes*: of a chunk, and of its results as far as can be foreseen. What
    goes wrong in the source comes out after the batches that it has given.
    """

    def __init__(self, batches: Iterator[Chunk], *, small: int, most_bytes: int = MOST_BYTES) -> None:
        self._batches = batches
        self._small = small
        self.most_bytes = most_bytes
        self._most = 1  # that kernels and results let a chunk have
        self._in_time = MOST  # that kernels alone do
        self._next: Chunk | None = None  # has been taken from the source, and was too large for the last chunk
        self._failed: Exception | None = None

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        first = self._take()
        if first is None:
            raise StopIteration
        together, size = [first], _bytes(first)
        most = self._most if size <= self._small else 1
        while len(together) < most:
            try:
                batch = next(self._batches, None)
            except Exception as problem:
                self._failed = problem
                break
            if batch is None:
                break
            more = _bytes(batch)
            if more > self._small or size + more > self.most_bytes:
                self._next = batch
                break
            together.append(batch)
            size += more
        return first if len(together) == 1 else joined(together)

    def tell(self, chunk: Chunk, passage: Passage) -> None:
        """Take note of how large the results of small batches were, and how long their kernels took, if measured."""
        if chunk.batches is None and _bytes(chunk) > self._small:
            return
        batches = len(chunk.batches or [chunk])
        if passage.copied is not None and passage.computed is not None:
            self._in_time = int(KERNELS * batches / max(passage.computed - passage.copied, 1))
        in_bytes = self.most_bytes * batches // max(passage.bytes_out, 1)
        self._most = max(min(self._in_time, in_bytes, MOST), 1)

    def _take(self) -> Chunk | None:
        if self._failed is not None:
            problem, self._failed = self._failed, None
            raise problem
        batch, self._next = self._next, None
        return next(self._batches, None) if batch is None else batch


def joined(batches: list[Chunk]) -> Chunk:
    """Make batches one chunk."""
    first = batches[0]
    inputs = tuple(chain.from_iterable([batch.inputs for batch in batches]))
    return Chunk(first.index, first.first, sum([batch.rows for batch in batches]), inputs, batches=batches)


def _bytes(batch: Any) -> float:
    """Give the bytes of a batch; a list that is packed is none to gather."""
    if batch.items is not None:
        return float("inf")
    inputs = batch.inputs
    return inputs[0].nbytes if len(inputs) == 1 else sum([source.nbytes for source in inputs])
