"""A GPU for prefetching that is only played: streams that run when it pleases a random number, and memory like the
caching allocator's, whose blocks are handed out again on their own stream as soon as nobody holds them.
"""

from __future__ import annotations

import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from gapless.torch import currents


class Stream:
    def __init__(self, name: str) -> None:
        self.name = name
        self.cuda_stream = id(self)
        self.work: deque[Callable[[], bool]] = deque()  # each gives False while it cannot run yet


class Snapshot:
    done = False


class Event:
    """Holds its latest record alone."""

    holds: Snapshot


class Simulated:
    """``eager`` is how likely some work is done after a call; 0: only when the host waits for it."""

    def __init__(self, seed: int = 0, eager: float = 0.3) -> None:
        currents.forget()
        self.random = random.Random(seed)
        self.eager = eager
        self.consumer = Stream("consumer")
        self.streams = [self.consumer]
        self._local = threading.local()
        self._one = threading.RLock()  # one thread at a time lets streams run
        self._free: dict[tuple[str, int], list[np.ndarray]] = {}
        self._held_back: list[tuple[list[Snapshot], list[np.ndarray], np.ndarray]] = []
        self._named: dict[int, set[Stream]] = {}  # by a block's address: the streams of record_stream
        self._device: dict[int, str] = {}  # by a block's address: the stream that it belongs to
        self._pinned: set[int] = set()
        self.allocations = 0

    # ---------------------------------------------------------------------------------------------- as Transfers

    def current(self) -> Stream:
        return self._stack[-1]

    @property
    def _stack(self) -> list[Stream]:
        """The current streams of this thread, the innermost last."""
        if not hasattr(self._local, "stack"):
            self._local.stack = [self.consumer]
        return self._local.stack

    def new_stream(self) -> Stream:
        self.streams.append(Stream(f"s{len(self.streams)}"))
        return self.streams[-1]

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        with self.quietly_on(stream):
            currents.entered(stream)
            yield
        currents.entered(self.current())

    @contextmanager
    def quietly_on(self, stream: Stream) -> Iterator[None]:
        """As what is given a stream does, and makes it no current one."""
        self._stack.append(stream)
        try:
            yield
        finally:
            self._stack.pop()

    def allocate(self, size: int) -> torch.Tensor:
        for snapshots, pool, block in self._held_back[:]:
            if all(snapshot.done for snapshot in snapshots):
                self._held_back.remove((snapshots, pool, block))
                pool.append(block)
        free = self._free.setdefault((self.current().name, size), [])
        block = free.pop() if free else np.zeros(size, np.uint8)
        self.allocations += 1
        self._device[block.ctypes.data] = self.current().name
        tensor = torch.from_numpy(block)
        weakref.finalize(tensor.untyped_storage(), self._release, free, block).atexit = False
        return tensor

    def _release(self, pool: list[np.ndarray], block: np.ndarray) -> None:
        named = self._named.pop(block.ctypes.data, set())
        if named:
            self._held_back.append(([_put_mark(stream) for stream in named], pool, block))
        else:
            pool.append(block)

    def pinned(self, size: int) -> torch.Tensor:
        return self.pin(torch.zeros(size, dtype=torch.uint8))

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        self._pinned.add(tensor.untyped_storage().data_ptr())
        return tensor

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._pinned

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._device

    def has(self, stream: Stream) -> bool:
        return stream in self.streams

    def moved(self, obj: Any) -> Any:
        return obj.to_simulated(self)

    def copy(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], stream: Stream) -> None:
        with self.quietly_on(stream):
            for source, target in pairs:
                self.launch(target, np.copyto, source)

    def record(self, stream: Stream, event: Event | None = None) -> Event:
        event = event or Event()
        event.holds = _put_mark(stream)
        self._go_on()
        return event

    def wait(self, stream: Stream, event: Event) -> None:
        snapshot = event.holds
        self._put(stream, lambda: snapshot.done)

    def synchronize(self, event: Event) -> None:
        snapshot = event.holds
        while not snapshot.done:
            assert self.step(), "deadlock"

    def keep(self, tensor: torch.Tensor, stream: Stream) -> None:
        address = tensor.untyped_storage().data_ptr()
        if self._device.get(address) != stream.name:  # its own needs no name: what it gets next comes behind
            self._named.setdefault(address, set()).add(stream)

    def stalls(self, stream: Stream, event: Event) -> float:
        self.wait(stream, event)
        return 0.5

    def stalled(self, token: float) -> float | None:
        return token

    # ---------------------------------------------------------------------------------------- what tests do with it

    def launch(self, target: torch.Tensor, kernel: Callable[..., object], *sources: torch.Tensor) -> None:
        """Put a kernel into the current stream. It gets NumPy arrays of its tensors' memory, and holds no tensor."""
        raw = [_raw(tensor) for tensor in (target, *sources)]

        def run() -> bool:
            kernel(*raw)
            return True

        self._put(self.current(), run)

    def step(self) -> bool:
        """Let some stream do one thing; False if none can."""
        with self._one:
            for stream in self.random.sample(self.streams, len(self.streams)):
                if stream.work and stream.work[0]():
                    stream.work.popleft()
                    return True
            return False

    def finish(self) -> None:
        while any(stream.work for stream in self.streams):
            assert self.step(), "deadlock"

    def _put(self, stream: Stream, work: Callable[[], bool]) -> None:
        stream.work.append(work)
        self._go_on()

    def _go_on(self) -> None:
        while self.random.random() < self.eager and self.step():
            pass


def _put_mark(stream: Stream) -> Snapshot:
    snapshot = Snapshot()

    def happen() -> bool:
        snapshot.done = True
        return True

    stream.work.append(happen)
    return snapshot


class _Address:
    def __init__(self, tensor: torch.Tensor) -> None:
        shape, strides = tuple(tensor.shape), tuple(s * tensor.element_size() for s in tensor.stride())
        kind = np.dtype(str(tensor.dtype).removeprefix("torch.")).str
        self.__array_interface__ = {"data": (tensor.data_ptr(), False), "shape": shape, "strides": strides,
                                    "typestr": kind, "version": 3}  # fmt: skip


def _raw(tensor: torch.Tensor) -> np.ndarray:
    """Give a tensor's memory as an array that does not keep it alive, as a GPU's addresses do not."""
    return np.asarray(_Address(tensor))
