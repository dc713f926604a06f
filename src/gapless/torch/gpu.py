"""A real GPU, as the watch sees it: PyTorch itself tells of events, waits and synchronises, C++ code's own included."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from gapless.model.kinds import StreamKind

from .log import Log
from .patches import Patches
from .stacks import Stack, here, place
from .streams import Made, being_made
from .watch import Capture, Watch

_LEGACY, _PER_THREAD = (0, 1), 2  # handles of the default streams
_NON_BLOCKING = 1  # cudaStreamNonBlocking


class GpuDevice:
    """The GPU."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.captures: dict[int, Capture] = {}  # by the id of the graph
        self._streams: dict[tuple[int, int], int] = {}  # (device, handle) -> the log's number
        # Streams met inside a capture alone: to ask for their flags there would end it, and nothing that is captured
        # needs them. Outside they are met anew.
        self._captured: dict[tuple[int, int], int] = {}
        self.capturing = False
        self._events: dict[int, int] = {}
        self._made: dict[int, Made] = {}  # handle -> how it came to be
        self._registered: list[tuple[int, int]] = []
        self._backward: Stack = ()
        self._flags = _stream_flags()

    def holds(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor lies on the GPU."""
        return tensor.is_cuda

    def stream(self, index: int) -> int:
        """Give the log's number of the current stream of a device."""
        return self.numbered(index, torch._C._cuda_getCurrentRawStream(index))

    def numbered(self, index: int, handle: int) -> int:
        """Give the log's number of a stream by its handle."""
        handle = 0 if handle in _LEGACY else handle
        number = self._streams.get((index, handle))
        if number is None and self.capturing:
            number = self._captured.get((index, handle))
        if number is None:
            kind = StreamKind.NON_BLOCKING if self.capturing else self._kind(handle)
            made = self._made.get(handle, Made())
            name = f"torch.cuda.default_stream({index or ''})" if handle == 0 else made.said(f"stream_{handle:#x}")
            number = self.log.stream(name, kind, index, made)
            (self._captured if self.capturing else self._streams)[index, handle] = number
        return number

    def number_of(self, stream: Any) -> int:
        """Give the log's number of a stream of PyTorch."""
        handle = torch.cuda.Stream(
            stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
        ).cuda_stream
        return self.numbered(stream.device_index, handle)

    def pinned(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor lies in pinned host memory."""
        return tensor.is_pinned()

    def guarded(self, tensor: torch.Tensor) -> bool:
        """Tell whether it is not memory that the program pinned itself."""
        if not self._registered:
            return True
        at = tensor.untyped_storage().data_ptr()
        return not any(low <= at < high for low, high in self._registered)

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Do an operation."""
        return func(*args, **kwargs)

    def fallback(self) -> Stack:
        """Give the line that called backward: its threads have no line of their own."""
        return self._backward

    def event(self, handle: int) -> int:
        """Give the log's number of an event."""
        number = self._events.get(handle)
        if number is None:
            number = self._events[handle] = self.log.event()
        return number

    def being_made(self, index: int, handle: int, *, external: bool) -> None:
        """Remember how a stream comes to be."""
        made = being_made(external=external)
        self._made[handle] = self._made.get(handle, made).again(made)
        if (number := self._streams.get((index, handle))) is not None:
            self.log.made_again(number, made)

    def in_backward(self, function: Any) -> Any:
        """Wrap ``backward``, so that what its threads do has a line to blame."""

        def call(*args: Any, **kwargs: Any) -> Any:
            before, self._backward = self._backward, here()
            try:
                return function(*args, **kwargs)
            finally:
                self._backward = before

        return call

    def register(self, address: int, size: int) -> None:
        """``cudaHostRegister``."""
        self._registered.append((int(address), int(address) + int(size)))

    def unregister(self, address: int) -> None:
        """``cudaHostUnregister``."""
        self._registered = [some for some in self._registered if some[0] != int(address)]

    def _kind(self, handle: int) -> StreamKind:
        if handle == 0:
            return StreamKind.LEGACY
        if handle == _PER_THREAD:
            return StreamKind.PER_THREAD
        flags = ctypes.c_uint(_NON_BLOCKING)
        if self._flags is None or self._flags(ctypes.c_void_p(handle), ctypes.byref(flags)) != 0:
            self.log.note("whether streams that PyTorch did not make are blocking: taken as non-blocking")
            return StreamKind.NON_BLOCKING
        return StreamKind.NON_BLOCKING if flags.value & _NON_BLOCKING else StreamKind.BLOCKING


@contextmanager
def watching(device: GpuDevice, watch: Watch) -> Iterator[None]:
    """Watch a program that uses the GPU."""
    torch.cuda.init()
    torch._C._activate_gpu_trace()
    patches = Patches()
    callbacks = _listen(device, watch)
    _patch(patches, device, watch)
    try:
        with watch:
            yield
    finally:
        patches.undo()
        for registry, callback in callbacks:
            registry.callback_list.remove(callback)


def _listen(device: GpuDevice, watch: Watch) -> list[tuple[Any, Callable[..., None]]]:
    """Let PyTorch tell of events and synchronises; give what was registered."""
    from torch.cuda import _gpu_trace  # pyright: ignore[reportMissingImports]

    log = device.log

    def told(does: Callable[..., None]) -> Callable[..., None]:
        def callback(*args: int) -> None:
            if not watch.capture:
                with watch.lock:
                    does(*args)

        return callback

    def current() -> int:
        return torch._C._cuda_getDevice()

    heard = [
        ("EventRecordCallbacks", lambda e, s: log.record(device.event(e), device.numbered(current(), s))),
        ("EventWaitCallbacks", lambda e, s: log.wait(device.event(e), device.numbered(current(), s))),
        ("EventSynchronizationCallbacks", lambda e: log.sync_event(device.event(e))),
        ("StreamSynchronizationCallbacks", lambda s: log.sync_stream(device.numbered(current(), s))),
        ("DeviceSynchronizationCallbacks", log.sync_device),
    ]
    callbacks: list[tuple[Any, Callable[..., None]]] = []
    for name, does in heard:
        registry, callback = getattr(_gpu_trace, name), told(does)
        registry.add_callback(callback)
        callbacks.append((registry, callback))
    return callbacks


def _patch(patches: Patches, device: GpuDevice, watch: Watch) -> None:
    """Hear of what PyTorch does not tell: queries, graphs, names of streams, memory that the program pins itself."""
    log = device.log
    real_stream_query = torch.cuda.Stream.query
    real_event_query = torch.cuda.Event.query
    real_new = torch.cuda.Stream.__new__
    real_begin = torch.cuda.CUDAGraph.capture_begin
    real_end = torch.cuda.CUDAGraph.capture_end
    real_replay = torch.cuda.CUDAGraph.replay

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        stream = real_new(cls, *args, **kwargs)
        if "stream_id" not in kwargs and (handle := stream.cuda_stream):  # else it was there before
            external = issubclass(cls, torch.cuda.ExternalStream)
            device.being_made(stream.device_index, handle, external=external)
        return stream

    def stream_query(self: Any) -> bool:
        done = real_stream_query(self)
        if done and not watch.capture:
            with watch.lock:
                log.sync_stream(device.numbered(self.device_index, self.cuda_stream))
        return done

    def event_query(self: Any) -> bool:
        done = real_event_query(self)
        if done and self.cuda_event and not watch.capture:
            with watch.lock:
                log.sync_event(device.event(self.cuda_event))
        return done

    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        real_begin(self, *args, **kwargs)
        device.capturing = True
        watch.capture.append(Capture())

    def capture_end(self: Any) -> None:
        device.capturing = False
        capture = watch.capture.pop() if watch.capture else None
        if capture is not None:
            device.captures[id(self)] = capture
            capture.keep_alive(log)
            found = place(here())
            log.note("the order of operations inside a CUDA graph: a replay counts as one operation",
                     str(found) if found else "")  # fmt: skip
        real_end(self)
        if capture is not None:
            with suppress(RuntimeError):  # a graph that is instantiated later may not tell before
                capture.pool = self.pool()

    def replay(self: Any) -> None:
        real_replay(self)
        capture = device.captures.get(id(self))
        if capture is not None:
            watch.replay(capture, device.stream(torch.cuda.current_device()), here())

    patches.put(torch.cuda.Stream, "__new__", new)
    patches.put(torch.cuda.Stream, "query", stream_query)
    patches.put(torch.cuda.Event, "query", event_query)
    patches.put(torch.cuda.CUDAGraph, "capture_begin", capture_begin)
    patches.put(torch.cuda.CUDAGraph, "capture_end", capture_end)
    patches.put(torch.cuda.CUDAGraph, "replay", replay)
    for name in ("backward", "grad"):
        patches.put(torch.autograd, name, device.in_backward(getattr(torch.autograd, name)))
    real_cudart = torch.cuda.cudart
    patches.put(torch.cuda, "cudart", lambda: _Cudart(real_cudart(), device))
    patches.put(torch, "compile", _uncompiled)


class _Cudart:
    """``torch.cuda.cudart()``, with an ear for memory that the program pins itself."""

    def __init__(self, real: Any, device: GpuDevice) -> None:
        self._real = real
        self._device = device

    def cudaHostRegister(self, pointer: int, size: int, flags: int = 0) -> Any:  # noqa: N802
        self._device.register(pointer, size)
        return self._real.cudaHostRegister(pointer, size, flags)

    def cudaHostUnregister(self, pointer: int) -> Any:  # noqa: N802
        self._device.unregister(pointer)
        return self._real.cudaHostUnregister(pointer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _uncompiled(model: Any = None, **_: Any) -> Any:
    """Stand in for ``torch.compile``: what is compiled runs operation by operation, and so is seen."""
    return (lambda function: function) if model is None else model


def _stream_flags() -> Any:
    """Give ``cudaStreamGetFlags`` of the CUDA runtime that PyTorch has loaded; None if it cannot be found."""
    try:
        loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcudart" in line}
        return ctypes.CDLL(next(iter(loaded))).cudaStreamGetFlags
    except (OSError, StopIteration, AttributeError):
        return None
