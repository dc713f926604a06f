"""What prefetching asks of a device: streams, events, memory, copies. A GPU answers through PyTorch, tests play one.

Memory of the device belongs to the stream that is current when it is allocated (R8.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import index
from typing import Any, Protocol

import torch

from gapless.model.errors import GaplessError

from .currents import set_quietly
from .naming import record_stream


class Transfers(Protocol):
    """A device to copy to and from."""

    def current(self) -> Any:
        """Give the current stream of this thread."""
        ...

    def new_stream(self) -> Any:
        """Give a stream for copies."""
        ...

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream the current one."""
        ...

    def allocate(self, size: int) -> torch.Tensor:
        """Give so many bytes of device memory, owned by the current stream."""
        ...

    def pinned(self, size: int) -> torch.Tensor:
        """Give so many bytes of pinned host memory."""
        ...

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor lies in pinned memory."""
        ...

    def holds(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor lies on the device."""
        ...

    def has(self, stream: Any) -> bool:
        """Tell whether a stream is one of the device."""
        ...

    def moved(self, obj: Any) -> Any:
        """Give an object that has a ``.to`` of its own, moved to the device in the current stream."""
        ...

    def copy(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], stream: Any) -> None:
        """Copy, either way, in a stream: from the first of each pair to the second. None requires a gradient."""
        ...

    def record(self, stream: Any, event: Any = None) -> Any:
        """Give an event that stands for all work of a stream so far: a new one, or the given one recorded again."""
        ...

    def wait(self, stream: Any, event: Any) -> None:
        """Let a stream wait for an event."""
        ...

    def synchronize(self, event: Any) -> None:
        """Let the host wait for an event."""
        ...

    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        """Keep a tensor's memory, once nobody holds it, until what a stream does now is done."""
        ...

    def stalls(self, stream: Any, event: Any) -> Any:
        """Let a stream wait for an event; give what ``stalled`` takes."""
        ...

    def stalled(self, token: Any) -> float | None:
        """Give the seconds that a stream stood still for it; None while that is not known."""
        ...


class Cuda:
    """A GPU, through PyTorch."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._streams: dict[int, Any] = {}  # handle -> the stream: to make one anew in each step takes longer
        self._timed: list[Any] = []  # pairs of timed events that are free

    def current(self) -> Any:
        """Give the current stream of this thread."""
        handle = torch._C._cuda_getCurrentRawStream(self.device.index)
        stream = self._streams.get(handle)
        if stream is None:
            stream = self._streams[handle] = torch.cuda.current_stream(self.device)
        return stream

    def new_stream(self) -> Any:
        """Give a stream of PyTorch's pool: a non-blocking one."""
        return torch.cuda.Stream(self.device)

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """Make a stream the current one."""
        with torch.cuda.device(self.device):
            before = self.current()
            set_quietly(stream)
            try:
                yield
            finally:
                set_quietly(before)

    def allocate(self, size: int) -> torch.Tensor:
        """Give so many bytes of the caching allocator."""
        return _plain(torch.empty, size, dtype=torch.uint8, device=self.device)

    def pinned(self, size: int) -> torch.Tensor:
        """Give so many bytes of pinned memory."""
        return _plain(torch.empty, size, dtype=torch.uint8, pin_memory=True)

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor lies in pinned memory."""
        return tensor.is_pinned()

    def holds(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor lies on a GPU."""
        return tensor.is_cuda

    def has(self, stream: Any) -> bool:
        """Tell whether a stream is one of this GPU."""
        return isinstance(stream, torch.cuda.Stream) and stream.device_index == self.device.index

    def moved(self, obj: Any) -> Any:
        """``obj.to(device, non_blocking=True)``; of a class that knows no such argument, ``obj.to(device)``."""
        try:
            return obj.to(self.device, non_blocking=True)
        except TypeError as problem:
            if "non_blocking" not in str(problem):
                raise
        return obj.to(self.device)

    def copy(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], stream: Any) -> None:
        """``cudaMemcpyAsync``."""
        if torch.cuda.current_device() != self.device.index:
            with torch.cuda.device(self.device):
                self.copy(pairs, stream)
            return
        before = self.current()
        set_quietly(stream)  # ``torch.cuda.stream`` does the same, and takes five times as long
        try:
            for source, target in pairs:
                target.copy_(source, non_blocking=True)
        finally:
            set_quietly(before)

    def record(self, stream: Any, event: Any = None) -> Any:
        """``cudaEventRecord``, of an event without timing."""
        event = torch.cuda.Event() if event is None else event
        event.record(stream)
        return event

    def wait(self, stream: Any, event: Any) -> None:
        """``cudaStreamWaitEvent``."""
        event.wait(stream)

    def synchronize(self, event: Any) -> None:
        """``cudaEventSynchronize``."""
        event.synchronize()

    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        """``record_stream``."""
        record_stream(tensor, stream)

    def stalls(self, stream: Any, event: Any) -> Any:
        """Wait between two timed events; for what is over already, just wait."""
        if _over(event):
            event.wait(stream)
            return None
        before, after = self._timed.pop() if self._timed else [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        before.record(stream)
        stream.wait_event(event)
        after.record(stream)
        return before, after

    def stalled(self, token: Any) -> float | None:
        """Give the time between the two."""
        if token is None:
            return 0.0
        before, after = token
        if not _over(after):
            return None
        self._timed.append(token)
        return before.elapsed_time(after) / 1e3


def _over(event: Any) -> bool:
    """Tell whether an event is over; a pretended one is.

    A check does not hear of it: it would take that for a synchronise, but what we do with the answer orders nothing,
    and another run gets another answer.
    """
    base = torch._C._CudaEventBase
    return not isinstance(event, base) or base.query(event)


def _plain(make: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    """Make a tensor that can be written outside inference mode too."""
    if not torch.is_inference_mode_enabled():
        return make(*args, **kwargs)
    with torch.inference_mode(False):
        return make(*args, **kwargs)


def transfers_of(device: torch.device | str | int) -> Transfers | None:
    """Give how to copy to and from a device; None for the CPU. Raises GaplessError for other devices."""
    where = _device(device)
    if where.type == "cpu":
        return None
    if where.type != "cuda":
        raise GaplessError(f"prefetching knows GPUs (cuda) and the CPU, not {where}")
    if not torch.cuda.is_available():
        raise GaplessError("There is no GPU here, or PyTorch cannot use it. For the CPU: device='cpu'")
    if where.index is None:
        return Cuda(torch.device("cuda", torch.cuda.current_device()))
    if where.index >= (gpus := torch.cuda.device_count()):
        if not issubclass(torch.cuda.Stream, torch._C._CudaStreamBase):
            torch.empty(0, device=where)  # a dry run says by itself that it pretends one GPU
        raise GaplessError(f"There is no {where} here: PyTorch sees {gpus} GPU{'s' * (gpus > 1)}, from cuda:0")
    return Cuda(where)


def _device(device: Any) -> torch.device:
    """Give what PyTorch calls a device of this name or number."""
    if isinstance(device, torch.device):
        return device
    if isinstance(device, str | int) and not isinstance(device, bool):
        name = f"cuda:{device}" if isinstance(device, int) else device
        try:
            where = torch.device(name)
        except (RuntimeError, TypeError, ValueError):
            where = None
        if where is not None and (":" not in name or name.endswith(f":{where.index}")):  # of 300, it takes 44
            return where
    raise GaplessError(f"device={device!r} is no device: 'cuda', the GPU's number (1 or 'cuda:1'), or 'cpu'")


def depth_of(depth: Any, what: str) -> int:
    """Give how many *what* are to be under way. Raises GaplessError for anything but a whole number from 1."""
    try:
        number = index(depth)
    except TypeError:
        number = 0
    if number < 1:
        raise GaplessError(f"depth is a whole number of {what}, at least 1, not {depth!r}")
    return number
