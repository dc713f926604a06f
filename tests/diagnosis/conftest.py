"""A GPU in miniature: programs are written as calls of host threads, and it keeps the time by the rules of streams.

Engines serve operations in the order of issue, which is enough for programs whose true cause is known. Everything else
follows the specification: stream order, the legacy default stream's fence, events, copies of pageable memory that keep
the host, and frees that wait for the device. Times are ns, rates bytes a ns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gapless.diagnosis.explain import explain
from gapless.diagnosis.report import Finding, Report
from gapless.model.kinds import ENGINE_OF, CallKind, Engine, MemoryKind, OpKind, StreamKind
from gapless.timeline.timeline import (
    Calls,
    Device,
    MarkKind,
    Marks,
    Ops,
    RangeKind,
    Ranges,
    Stream,
    Thread,
    Timeline,
)

US, MS, KIB, MIB = 1_000, 1_000_000, 1 << 10, 1 << 20
LATENCY = 4 * US  # from the begin of a call to the start on an idle device
LINK, STAGING = 50.0, 8.0  # pinned copies; one host thread that stages
BLOCKING = (StreamKind.BLOCKING, StreamKind.PER_THREAD)


class Gpu:
    """One or more devices, their streams and the host threads that feed them."""

    def __init__(self, *, devices: int = 1, call: int = 3 * US, tells_kinds: bool = True, name: str = "NVIDIA H200"):
        self.call = call
        self.tells_kinds = tells_kinds
        self.devices = tuple(Device(id=i, name=name) for i in range(devices))
        self.streams = [Stream(device=i, id=7, kind=StreamKind.LEGACY) for i in range(devices)]
        self.threads: list[Thread] = []
        self.ops: list[dict] = []
        self.calls: list[dict] = []
        self.marks: list[dict] = []
        self.ranges: list[dict] = []
        self.strings: list[str] = []
        self.engine_free: dict[tuple[int, Engine], int] = defaultdict(int)
        self.stream_done: dict[int, int] = defaultdict(int)

    def stream(self, kind: StreamKind = StreamKind.BLOCKING, *, device: int = 0, priority: int | None = None) -> int:
        """Create a stream and give its row."""
        self.streams.append(Stream(device=device, id=12 + len(self.streams), kind=kind, priority=priority))
        return len(self.streams) - 1

    def host(self, *, pid: int = 1) -> Host:
        """Start a host thread."""
        self.threads.append(Thread(pid=pid, tid=100 + len(self.threads)))
        return Host(self, len(self.threads) - 1)

    def named(self, text: str) -> int:
        if text not in self.strings:
            self.strings.append(text)
        return self.strings.index(text)

    def ready(self, stream: int) -> int:
        """When all that work in a stream has to wait for is done: its own, and what the fence puts before it."""
        kind, device = self.streams[stream].kind, self.streams[stream].device
        before = [stream]
        if kind is StreamKind.LEGACY:
            before += [i for i, s in enumerate(self.streams) if s.device == device and s.kind in BLOCKING]
        elif kind in BLOCKING:
            before.append(device)  # the legacy default streams come first
        return max(self.stream_done[row] for row in before)

    def run(self, kind: OpKind, stream: int, reached: int, duration: int, **columns) -> dict:
        """Put an operation into a stream; it starts when its launch, its stream and its engine allow."""
        device = self.streams[stream].device
        engine = ENGINE_OF[kind]
        start = max(reached, self.ready(stream), self.engine_free[device, engine])
        op = {"kind": kind, "device": device, "stream": stream, "start": start, "end": start + duration, **columns}
        self.ops.append(op)
        self.engine_free[device, engine] = self.stream_done[stream] = op["end"]
        return op

    def idle_at(self, device: int) -> int:
        """When all work issued so far to a device is done."""
        return max((op["end"] for op in self.ops if op["device"] == device), default=0)

    def timeline(self) -> Timeline:
        """What a profiler would have written."""
        calls = sorted(self.calls, key=lambda call: (call["start"], call["correlation"]))
        row_of = {call["correlation"]: row for row, call in enumerate(calls)}
        for table in (self.ops, self.marks):
            for row in table:
                row["call"] = row_of.get(row.get("correlation", 0), -1)
        ops = sorted(self.ops, key=lambda op: op["start"])
        kept = {StreamKind.LEGACY, StreamKind.PER_THREAD}
        streams = [
            s if self.tells_kinds or s.kind in kept else Stream(device=s.device, id=s.id, priority=s.priority)
            for s in self.streams
        ]
        return Timeline(
            ops=Ops.build(**_columns(ops)),
            calls=Calls.build(**_columns(calls)),
            marks=Marks.build(**_columns([{k: v for k, v in m.items() if k != "correlation"} for m in self.marks])),
            ranges=Ranges.build(**_columns(self.ranges)),
            devices=self.devices,
            streams=tuple(streams),
            threads=tuple(self.threads),
            strings=tuple(self.strings),
            source="made.json",
        )

    def explain(self, **options) -> Report:
        """Explain what a profiler would have written."""
        return explain(self.timeline(), **options)


def _columns(rows: list[dict]) -> dict[str, list]:
    names = {name for row in rows for name in row}
    fill = {"bytes": -1, "src": MemoryKind.UNKNOWN, "dst": MemoryKind.UNKNOWN, "correlation": 0}
    return {name: [row.get(name, fill.get(name, -1)) for row in rows] for name in names}


class Host:
    """A host thread, with its own clock."""

    def __init__(self, gpu: Gpu, thread: int):
        self.gpu, self.thread, self.now, self.stack = gpu, thread, 0, ""
        self.events: dict[str, tuple[int, int, int]] = {}  # stream, done, correlation of the record

    # Its own time

    def work(self, duration: int) -> None:
        """Do something that is no call into CUDA."""
        self.now += duration

    @contextmanager
    def inside(self, name: str, kind: RangeKind = RangeKind.PYTHON, stack: str = "") -> Iterator[None]:
        """Be inside a frame, an operator or an annotation."""
        row = {"kind": kind, "name": self.gpu.named(name), "thread": self.thread, "start": self.now,
               "stack": self.gpu.named(stack) if stack else -1}  # fmt: skip
        self.gpu.ranges.append(row)
        yield
        row["end"] = self.now

    @contextmanager
    def called_from(self, stack: str) -> Iterator[None]:
        """Make calls whose own stack is recorded, innermost frame first, separated by ";"."""
        before, self.stack = self.stack, stack
        yield
        self.stack = before

    # Work for the device

    def kernel(self, stream: int, duration: int, name: str = "work", *, first: int = 0) -> None:
        """Launch a kernel; its first launch takes the host *first* longer."""
        begin = self.now
        correlation = self._call("cudaLaunchKernel", CallKind.LAUNCH, self.gpu.call + first)
        self.gpu.run(OpKind.KERNEL, stream, begin + LATENCY + first, duration, name=self.gpu.named(name),
                     correlation=correlation)  # fmt: skip

    def graph(self, stream: int, durations: list[int]) -> None:
        """Launch a graph of kernels that follow each other."""
        begin = self.now
        correlation = self._call("cudaGraphLaunch", CallKind.GRAPH_LAUNCH, 2 * self.gpu.call)
        for i, duration in enumerate(durations):
            self.gpu.run(OpKind.KERNEL, stream, begin + 2 * LATENCY, duration, name=self.gpu.named(f"node{i}"),
                         correlation=correlation, graph=1)  # fmt: skip

    def memset(self, stream: int, duration: int = 2 * US) -> None:
        begin = self.now
        correlation = self._call("cudaMemsetAsync", CallKind.MEMSET_ASYNC, self.gpu.call)
        self.gpu.run(OpKind.MEMSET, stream, begin + LATENCY, duration, name=self.gpu.named("Memset (Device)"),
                     correlation=correlation)  # fmt: skip

    def h2d(self, stream: int, size: int, *, pinned: bool = True, sync: bool = False) -> None:
        self._copy(OpKind.H2D, stream, size, pinned, sync)

    def d2h(self, stream: int, size: int, *, pinned: bool = True, sync: bool = False) -> None:
        self._copy(OpKind.D2H, stream, size, pinned, sync)

    def _copy(self, kind: OpKind, stream: int, size: int, pinned: bool, sync: bool) -> None:
        """Table 3.1: the call of a pinned copy returns at once, all others keep the host."""
        gpu, begin, upload = self.gpu, self.now, kind == OpKind.H2D
        if sync:
            stream = self.gpu.streams[stream].device  # R3.1: the legacy default stream's
        staged = not pinned
        waits = sync or (staged and (not upload or size > 2 * MIB))
        stage = round(size / STAGING) if staged else 0
        reached = max(begin, gpu.ready(stream)) if waits and staged else begin
        duration = US + max(round(size / LINK), stage if staged and size > 2 * MIB else 0)
        on_host = stage if staged and upload and size <= 2 * MIB else 0
        memory = MemoryKind.PAGEABLE if staged else MemoryKind.PINNED
        op = gpu.run(kind, stream, reached + LATENCY + on_host, duration, bytes=size,
                     src=memory if upload else MemoryKind.DEVICE, dst=MemoryKind.DEVICE if upload else memory,
                     name=gpu.named(f"Memcpy {'HtoD' if upload else 'DtoH'}"))  # fmt: skip
        name = "cudaMemcpy" if sync else "cudaMemcpyAsync"
        until = max(op["end"] + US, begin + gpu.call) if waits else begin + gpu.call + on_host
        op["correlation"] = self._call(name, CallKind.COPY_SYNC if sync else CallKind.COPY_ASYNC, until - begin)

    # Waits

    def sync(self, stream: int | None = None, device: int = 0) -> None:
        """Wait for a stream, or for the device."""
        done = self.gpu.idle_at(device) if stream is None else self.gpu.ready(stream)
        kind = CallKind.SYNC_DEVICE if stream is None else CallKind.SYNC_STREAM
        name = "cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize"
        self._call(name, kind, max(done + US - self.now, US))

    def record(self, event: str, stream: int) -> None:
        correlation = self._call("cudaEventRecord", CallKind.RECORD, US)
        self.events[event] = stream, self.gpu.ready(stream), correlation
        self._mark(MarkKind.RECORD, stream, correlation)

    def wait(self, event: str, stream: int, *, told: bool = True) -> None:
        """Make a stream wait for an event; *told*: the profiler writes which one."""
        source, done, record = self.events[event]
        correlation = self._call("cudaStreamWaitEvent", CallKind.WAIT_EVENT, US)
        self.gpu.stream_done[stream] = max(self.gpu.stream_done[stream], done)
        if told:
            self._mark(MarkKind.WAIT, stream, correlation, waits_on=source, record=record)

    def sync_event(self, event: str) -> None:
        _, done, _ = self.events[event]
        self._call("cudaEventSynchronize", CallKind.SYNC_EVENT, max(done + US - self.now, US))

    # Memory

    def malloc(self, duration: int = 40 * US) -> None:
        self._call("cudaMalloc", CallKind.MALLOC, duration)

    def free(self, device: int = 0) -> None:
        """D1: cudaFree waits for all work on the device."""
        self._call("cudaFree", CallKind.FREE, max(self.gpu.idle_at(device) - self.now, 0) + 10 * US)

    def malloc_async(self, stream: int) -> None:
        self._call("cudaMallocAsync", CallKind.MALLOC_ASYNC, US)

    def free_async(self, stream: int) -> None:
        self._call("cudaFreeAsync", CallKind.FREE_ASYNC, US)

    def _call(self, name: str, kind: CallKind, duration: int) -> int:
        correlation = len(self.gpu.calls) + 1
        self.gpu.calls.append({"kind": kind, "name": self.gpu.named(name), "thread": self.thread, "start": self.now,
                               "end": self.now + duration, "correlation": correlation,
                               "stack": self.gpu.named(self.stack) if self.stack else -1})  # fmt: skip
        self.now += duration + 300
        return correlation

    def _mark(self, kind: MarkKind, stream: int, correlation: int, **columns) -> None:
        self.gpu.marks.append({"kind": kind, "stream": stream, "start": self.now, "end": self.now,
                               "correlation": correlation, **columns})  # fmt: skip


def chunk_loop(gpu: Gpu, *, streams: list[int] | int = 4, chunks: int = 32, size: int = 4 * MIB, kernel: int = 80 * US,
               pinned: bool = True, up: bool = True, down: bool = True, each=None) -> Host:  # fmt: skip
    """Run the loop that all of this is about: upload, kernel, download, dealt to streams; *each* follows a chunk."""
    host = gpu.host()
    rows = [gpu.stream() for _ in range(streams)] if isinstance(streams, int) else streams
    for chunk in range(chunks):
        stream = rows[chunk % len(rows)]
        if up:
            host.h2d(stream, size, pinned=pinned)
        host.kernel(stream, kernel)
        if down:
            host.d2h(stream, size, pinned=pinned)
        if each is not None:
            each(host, stream, chunk)
    host.sync()
    return host


class Made:
    """What tests make timelines with, and how they look at reports."""

    Gpu = Gpu
    loop = staticmethod(chunk_loop)

    @staticmethod
    def cost_of(report: Report, cause: str) -> float:
        """Give what a cause costs as a fraction of the window; 0 where it is not reported."""
        return sum((f.cost_ms for f in report.findings if f.cause == cause), 0.0) / report.wall_ms

    @staticmethod
    def faults(report: Report) -> float:
        """Give what all faults cost as a fraction of the window."""
        return sum((f.cost_ms for f in report.findings if not f.verdict), 0.0) / report.wall_ms

    @staticmethod
    def finding(report: Report, cause: str) -> Finding:
        """Give the finding of a cause, which must be there."""
        return next(f for f in report.findings if f.cause == cause)


@pytest.fixture(scope="session")
def made() -> type[Made]:
    """Give what makes timelines."""
    return Made
