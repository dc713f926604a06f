"""The stream part of ``torch.cuda``, pretended: streams, events and graphs that go into the log and nowhere else.

As in PyTorch there are 32 streams a priority, non-blocking, handed out in turn: the 33rd is the first again. A stream
given by its handle (``ExternalStream``) is taken as a blocking one, as ``cudaStreamCreate`` makes them.
"""

from __future__ import annotations

import ctypes
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from gapless.model.kinds import StreamKind

from .currents import entered
from .log import Log
from .stacks import here, place
from .streams import Made, being_made
from .watch import Capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from .watch import Watch

POOL = 32  # streams a priority
LEGACY, PER_THREAD = 1, 2  # handles of the default streams
DEVICE = torch.device("cuda", 0)


class _OfThread(threading.local):
    """What each thread has of its own."""

    stream: Stream | None = None  # the current one, where it is not the default stream
    follow: Callable[[], None] | None = None


class Pretended:
    """The pretended GPU: its streams, which of them are current, what is being captured."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.watch: Watch | None = None
        self._numbers: dict[int, int] = {}  # handle -> the log's number
        self._taken_in: dict[int, Made] = {}  # by the handle
        self._created: dict[int, int] = {}  # priority -> how many streams were asked for
        self._local = _OfThread()
        self.default = Stream(handle=LEGACY, of=self)
        self._numbers[LEGACY] = log.stream("torch.cuda.default_stream()", StreamKind.LEGACY)

    @property
    def follow(self) -> Callable[[], None] | None:
        """Inside backward, which runs in this thread: go on to the stream of its next node, if any."""
        return self._local.follow

    @follow.setter
    def follow(self, follow: Callable[[], None] | None) -> None:
        self._local.follow = follow

    @property
    def current(self) -> Stream:
        """The current stream of this thread."""
        if self.follow is not None:
            self.follow()
        return self._local.stream or self.default

    @current.setter
    def current(self, stream: Stream) -> None:
        if self.follow is not None:
            self.follow()
        self._local.stream = stream
        entered(stream)

    def set_quietly(self, stream: Stream) -> None:
        """Make a stream current and tell nobody."""
        self._local.stream = stream

    @property
    def capturing(self) -> bool:
        """Whether a graph is being captured."""
        return bool(self.watch and self.watch.capture)

    def new_stream(self, priority: int) -> int:
        """Hand out a stream of the pool; give its handle."""
        turn = self._created.get(priority, 0)
        self._created[priority] = turn + 1
        handle = 0x10000 * (1 - priority) + turn % POOL
        made = being_made()
        if handle not in self._numbers:
            name = made.said(f"stream_{turn % POOL}")
            self._numbers[handle] = self.log.stream(name, StreamKind.NON_BLOCKING, made=made)
        else:
            self.log.made_again(self._numbers[handle], made)
        return handle

    def taken_in(self, handle: int) -> None:
        """Note where the program takes in a stream of another library."""
        made = being_made(external=True)
        if handle in self._numbers:
            self.log.made_again(self._numbers[handle], made)
        else:
            self._taken_in[handle] = self._taken_in.get(handle, made).again(made)

    def number(self, handle: int) -> int:
        """Give the log's number of a stream."""
        handle = handle or LEGACY
        if handle not in self._numbers:
            kind = StreamKind.PER_THREAD if handle == PER_THREAD else StreamKind.BLOCKING
            made = self._taken_in.get(handle, Made())
            self._numbers[handle] = self.log.stream(made.said(f"stream_{handle:#x}"), kind, made=made)
        return self._numbers[handle]


class Stream:
    """Stands in for ``torch.cuda.Stream``."""

    gpu: Pretended  # set while a dry run goes on

    def __init__(self, device: Any = None, priority: int = 0, *, handle: int | None = None, of: Pretended | None = None,
                 **rest: Any) -> None:  # fmt: skip
        self.gpu = of or type(self).gpu
        handle = rest.get("stream_id", rest.get("stream_ptr", handle))
        self.priority = max(-3, min(0, priority))
        self.cuda_stream: int = self.gpu.new_stream(self.priority) if handle is None else handle
        self.device = DEVICE
        self.device_index, self.device_type, self.stream_id = 0, 1, self.cuda_stream
        self._entered: list[Stream] = []

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Give the lowest and the highest priority that PyTorch hands out."""
        return 0, -3

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.cuda_stream)

    @property
    def number(self) -> int:
        """The log's number of it."""
        return self.gpu.number(self.cuda_stream)

    def wait_event(self, event: Event) -> None:
        """``cudaStreamWaitEvent``."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Wait for all that was issued to another stream."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """``cudaEventRecord``."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Say that all is done: then it is, for the host (HB7)."""
        self.synchronize()
        return True

    def is_capturing(self) -> bool:
        """Tell whether a graph is being captured."""
        return self.gpu.capturing

    def synchronize(self) -> None:
        """``cudaStreamSynchronize``."""
        if not self.gpu.capturing:
            self.gpu.log.sync_stream(self.number)

    def __enter__(self) -> Stream:
        self._entered.append(self.gpu.current)
        self.gpu.current = self
        return self

    def __exit__(self, *_: object) -> None:
        self.gpu.current = self._entered.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (other.cuda_stream or LEGACY) == (self.cuda_stream or LEGACY)

    def __hash__(self) -> int:
        return hash(self.cuda_stream or LEGACY)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """Stands in for ``torch.cuda.ExternalStream``."""

    def __init__(self, stream_ptr: int, device: Any = None, **_: Any) -> None:
        super().__init__(device, handle=stream_ptr)
        self.gpu.taken_in(stream_ptr)


class Event:
    """Stands in for ``torch.cuda.Event``."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False,
                 external: bool = False, **_: Any) -> None:  # fmt: skip
        self.gpu = Stream.gpu
        self.device = DEVICE
        self.enable_timing = enable_timing
        self.number = self.gpu.log.event()
        self._captured = False

    @property
    def cuda_event(self) -> int:
        """Give a handle."""
        return self.number + 1

    event_id = cuda_event

    def record(self, stream: Stream | None = None) -> None:
        """``cudaEventRecord``."""
        self._captured = self.gpu.capturing
        if not self._captured:
            self.gpu.log.record(self.number, (stream or self.gpu.current).number)

    def wait(self, stream: Stream | None = None) -> None:
        """``cudaStreamWaitEvent``."""
        if not self._captured and not self.gpu.capturing:
            self.gpu.log.wait(self.number, (stream or self.gpu.current).number)

    def query(self) -> bool:
        """Say that all is done: then it is, for the host (HB7)."""
        self.synchronize()
        return True

    def synchronize(self) -> None:
        """``cudaEventSynchronize``."""
        if not self._captured and not self.gpu.capturing:
            self.gpu.log.sync_event(self.number)

    def elapsed_time(self, end_event: Event) -> float:
        """Give a made-up time."""
        self.gpu.log.note("times between events are made up: 1 ms", where())
        return 1.0


class DeviceEvent(Event):
    """Stands in for ``torch.Event``, which names its device first."""

    def __init__(self, device: Any = None, *, enable_timing: bool = False, **_: Any) -> None:
        super().__init__(enable_timing)


_handles = count(1)


def pool_handle() -> tuple[int, int]:
    """Give a handle of memory for graphs, another one each time."""
    return 0, next(_handles)


class Graph:
    """Stands in for ``torch.cuda.CUDAGraph``."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.gpu = Stream.gpu
        self._capture: Capture | None = None
        self._pool: Any = pool_handle()

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begin to capture what follows."""
        if self.gpu.watch is not None:
            self._pool = pool or self._pool
            self.gpu.watch.capture.append(Capture())

    def capture_end(self) -> None:
        """End the capture: what outlives it is what a replay touches."""
        watch = self.gpu.watch
        if watch is not None and watch.capture:
            self._capture = watch.capture.pop()
            self._capture.keep_alive(self.gpu.log)
            self._capture.pool = self._pool
            self.gpu.log.note("the order of operations inside a CUDA graph: a replay counts as one operation", where())

    def replay(self) -> None:
        """``cudaGraphLaunch``."""
        if self._capture is not None and self.gpu.watch is not None:
            self.gpu.watch.replay(self._capture, self.gpu.current.number, here())

    def instantiate(self) -> None:
        """Do nothing: it orders nothing."""

    def reset(self) -> None:
        """Forget the graph."""
        self._capture = None

    def pool(self) -> tuple[int, int]:
        """Give a handle of the graph's memory."""
        return self._pool

    def enable_debug_mode(self) -> None:
        """Do nothing."""

    def debug_dump(self, debug_path: str) -> None:
        """Do nothing."""


class StreamContext:
    """Stands in for what ``torch.cuda.stream`` gives: it can be entered again, after or inside itself."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before: list[Stream] = []

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before.append(self.stream.gpu.current)
            self.stream.gpu.current = self.stream

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.gpu.current = self._before.pop()


def stream_context(stream: Stream | None) -> StreamContext:
    """Stand in for ``torch.cuda.stream``."""
    return StreamContext(stream)


class GraphContext:
    """Stands in for ``torch.cuda.graph``: captures on a side stream, after a synchronise."""

    def __init__(self, cuda_graph: Graph, pool: Any = None, stream: Stream | None = None,
                 capture_error_mode: str = "global", **_: Any) -> None:  # fmt: skip
        self.cuda_graph = cuda_graph
        self.capture_stream = stream or Stream()
        self._pool = pool
        self._on = StreamContext(self.capture_stream)

    def __enter__(self) -> None:
        self.cuda_graph.gpu.log.sync_device()
        self._on.__enter__()
        self.cuda_graph.capture_begin(self._pool)

    def __exit__(self, *_: object) -> None:
        self.cuda_graph.capture_end()
        self._on.__exit__()


class DeviceContext:
    """Stands in for ``torch.cuda.device``: there is one."""

    def __init__(self, device: Any = None) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class _OfAll(type(torch._C.Generator)):  # pyright: ignore[reportUntypedBaseClass]
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_OfAll):
    """Stands in for ``torch.Generator``: one of the CPU, whatever it says. All generators are of this class."""

    _says: torch.device

    def __new__(cls, device: Any = "cpu") -> Generator:
        """Make one."""
        made = super().__new__(cls, "cpu")  # pyright: ignore[reportCallIssue]
        made._says = torch.device(device)
        return made

    @property
    def device(self) -> torch.device:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Give the device that it was asked for."""
        return self._says


def where() -> str:
    """Give the line of the user's program that is being run."""
    found = place(here())
    return str(found) if found else ""
