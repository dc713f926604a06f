"""torch.profiler's traces: the JSON that Kineto writes for CUDA and ROCm, old and new dialects.

Old files (2021) say ``Kernel``, ``Runtime``, ``Operator`` and ``"stream 7"`` and give whole microseconds since 1970;
new ones say ``kernel``, ``cuda_runtime``, ``cpu_op`` and give decimal microseconds from ``baseTimeNanoseconds``.
``displayTimeUnit`` never changes the unit. Rows of ``gpu_user_annotation`` cover kernels and are not kernels.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gapless.model.errors import GaplessError
from gapless.timeline.sources import kineto_args as args
from gapless.timeline.sources.chrome import Category, Complete, Event, Metadata
from gapless.timeline.sources.chrome_file import BLOCK, Events
from gapless.timeline.sources.columns import TRIPLE, Columns, Growing, Numbering, take
from gapless.timeline.sources.decimals import LIMIT, UNREADABLE, Microseconds
from gapless.timeline.sources.feed import Progress, pieces
from gapless.timeline.sources.kineto_tables import KinetoRows, timeline
from gapless.timeline.sources.losses import Losses
from gapless.timeline.timeline import MarkKind, RangeKind, Timeline

EXPECTED = "a trace of torch.profiler (JSON, also gzipped)"

_RANGES = {
    Category.CPU_OP: RangeKind.CPU_OP,
    Category.OLD_OPERATOR: RangeKind.CPU_OP,
    Category.PYTHON: RangeKind.PYTHON,
    Category.ANNOTATION: RangeKind.ANNOTATION,
    Category.OVERHEAD: RangeKind.OVERHEAD,
    Category.STAGING: RangeKind.STAGING,
}
_CALLS = (Category.RUNTIME, Category.DRIVER, Category.OLD_RUNTIME)
_KERNELS = (Category.KERNEL, Category.OLD_KERNEL)
_MEMCPYS = (Category.MEMCPY, Category.OLD_MEMCPY)
_MEMSETS = (Category.MEMSET, Category.OLD_MEMSET)
_MARKS = {
    "Event Sync": MarkKind.SYNC_EVENT,
    "Stream Sync": MarkKind.SYNC_STREAM,
    "Stream Wait Event": MarkKind.WAIT,
    "Context Sync": MarkKind.SYNC_DEVICE,
}
_NOWHERE = 0xFFFFFFFF  # CUPTI's number for "no stream" and "no event"
_STREAM = re.compile(r"(?:stream )?(\d{1,18})")
_SIZE = re.compile(r"\d{1,18}")

_NO_TIME = "Left out {events}: no usable time."
_NO_LENGTH = "Took the length of {events} as zero: none is given."
_NEGATIVE = "Took the length of {events} as zero: it is negative."


def recognise(head: bytes) -> bool:
    """Tell whether a file that starts so may be a trace: JSON, an object or a list."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text[:1] in (b"{", b"[") and text[1:2] != b"\0"


def read(path: Path, progress: Progress | None = None, *, block: int = BLOCK) -> Timeline:
    """Read a trace into a Timeline. Raises ``GaplessError`` for a file that holds none.

    ``block`` is how many bytes are decoded in one go; it never changes the result.
    """
    losses = Losses()
    stream = pieces(path, progress, losses)
    events = Events(stream, str(path), losses, block)
    reader = _Reader()
    collecting = gc.isenabled()
    gc.disable()  # the events make no cycles, and looking for them would double the time
    try:
        for batch in events:
            reader.add(batch)
        return timeline(reader.rows(losses), str(path), events.facts, losses)
    except MemoryError:
        raise GaplessError(f"{path}: not enough memory to read it.") from None
    finally:
        stream.close()
        if collecting:
            gc.enable()


class _Timed:
    """A growing table of things with a start and a length."""

    def __init__(self, **dtypes: Any) -> None:
        self._columns = Growing(**dtypes)
        self._start = Microseconds()
        self._length = Microseconds()

    def add(self, events: Sequence[Complete], **values: Sequence[Any]) -> None:
        """Append one row an event."""
        self._columns.add(**values)
        self._start.add([event.ts for event in events])
        self._length.add([event.dur for event in events])

    def columns(self, losses: Losses, *, kept: bool = False) -> Columns:
        """Give all columns, with ``start`` and ``end`` in ns; rows without a start go. *kept*: they are no work."""
        start, length = self._start.column(), self._length.column()
        timed = start > -(LIMIT >> 1)  # so that the whole run, and each end, fits into an int64
        unknown = (length == UNREADABLE) | (length >= LIMIT >> 1)
        negative = (length < 0) & ~unknown
        length[unknown | negative] = 0
        losses.add(_NO_TIME, int((~timed).sum()), kept=kept)
        losses.add(_NO_LENGTH, int((unknown & timed).sum()), kept=kept)
        losses.add(_NEGATIVE, int((negative & timed).sum()), kept=kept)
        columns = self._columns.columns() | {"start": start, "end": start + length}
        return columns if timed.all() else take(columns, timed)


class _Reader:
    """Sorts events into columns."""

    def __init__(self) -> None:
        self._strings = Numbering()
        self._threads = Numbering()
        self._names: dict[tuple[int | str, int | str], str] = {}
        self._priorities: dict[tuple[int, int], int] = {}
        op = {"name": np.int32, "device": np.int64, "stream": np.int64, "correlation": np.int64, "graph": np.int64}
        self._kernels = _Timed(
            **op, registers=np.int32, shared=np.int32, grid=TRIPLE, block=TRIPLE, occupancy=np.float64
        )  # fmt: skip
        self._copies = _Timed(**op, bytes=np.int64, memset=np.bool_, peer=np.bool_)
        self._calls = _Timed(name=np.int32, thread=np.int32, correlation=np.int64, driver=np.bool_)
        self._hip = Growing(correlation=np.int64, bytes=np.int64, shared=np.int32, grid=TRIPLE, block=TRIPLE)
        self._marks = _Timed(
            kind=np.int8, device=np.int64, stream=np.int64, correlation=np.int64, waits_on=np.int64, record=np.int64,
            event=np.int64,
        )  # fmt: skip
        self._ranges = _Timed(kind=np.int8, name=np.int32, thread=np.int32, stack=np.int32)

    def rows(self, losses: Losses) -> KinetoRows:
        """Give all that was read."""
        return KinetoRows(
            kernels=self._kernels.columns(losses),
            copies=self._copies.columns(losses),
            calls=self._calls.columns(losses),
            hip=self._hip.columns(),
            marks=self._marks.columns(losses),
            ranges=self._ranges.columns(losses, kept=True),
            strings=self._strings.things(),
            threads=self._threads.things(),
            names=self._names,
            priorities=self._priorities,
        )

    def add(self, batch: Sequence[Event]) -> None:
        """Take a batch of events, in the order of the file."""
        complete = [event for event in batch if type(event) is Complete]
        present = {event.cat for event in complete}
        for category in Category:
            if category not in present:
                continue
            events = [event for event in complete if event.cat is category]
            if category in _RANGES:
                self._add_ranges(_RANGES[category], events)
            elif category in _CALLS:
                self._add_calls(category is Category.DRIVER, events)
            elif category in _KERNELS:
                self._add_kernels(events)
            elif category in _MEMCPYS or category in _MEMSETS:
                self._add_copies(category in _MEMSETS, events)
            elif category is Category.SYNC or category is Category.EVENT:
                self._add_marks(category is Category.EVENT, events)
        if Metadata in set(map(type, batch)):
            for event in batch:
                if type(event) is Metadata and event.name == "thread_name":
                    self._names[event.pid, event.tid] = args.decode(event.args, args.NameArgs).name.strip()

    def _add_ranges(self, kind: RangeKind, events: list[Complete]) -> None:
        stacks = [-1] * len(events)
        if kind is RangeKind.CPU_OP and b'"Call stack"' in (texts := args.joined(events)):
            found = [told.stack for told in args.decode_all(texts, events, args.OperatorArgs)]
            stacks = [row if stack else -1 for stack, row in zip(found, self._strings.of(found), strict=True)]
        kinds = [kind] * len(events)
        self._ranges.add(
            events, kind=kinds, name=self._names_of(events), thread=self._threads_of(events), stack=stacks
        )  # fmt: skip

    def _add_calls(self, driver: bool, events: list[Complete]) -> None:
        self._calls.add(
            events, name=self._names_of(events), thread=self._threads_of(events),
            correlation=[told.correlation for told in args.decode_all(args.joined(events), events, args.CallArgs)],
            driver=[driver] * len(events),
        )  # fmt: skip
        if hip := [event for event in events if event.name.startswith("hip")]:
            found = args.decode_all(args.joined(hip), hip, args.HipArgs)
            self._hip.add(
                correlation=[told.correlation for told in found], bytes=[_size(told) for told in found],
                shared=[told.shared for told in found], grid=[told.grid for told in found],
                block=[told.block for told in found],
            )  # fmt: skip

    def _add_kernels(self, events: list[Complete]) -> None:
        found = args.decode_all(args.joined(events), events, args.KernelArgs)
        devices, streams = _devices(events, found), _streams(events, found)
        for told, device, stream in zip(found, devices, streams, strict=True):
            if told.priority is not None:
                self._priorities[device, stream] = told.priority
        self._kernels.add(
            events, name=self._names_of(events), device=devices, stream=streams,
            correlation=[told.correlation for told in found],
            graph=[told.graph or told.node or -1 for told in found],
            registers=[told.registers for told in found], shared=[told.shared for told in found],
            grid=[told.grid for told in found], block=[told.block for told in found],
            occupancy=[told.occupancy for told in found],
        )  # fmt: skip

    def _add_copies(self, memset: bool, events: list[Complete]) -> None:
        found = args.decode_all(args.joined(events), events, args.CopyArgs)
        for told in found:
            if told.device < 0:
                told.device = told.in_device
        self._copies.add(
            events, name=self._names_of(events), device=_devices(events, found), stream=_streams(events, found),
            correlation=[told.correlation for told in found],
            graph=[told.graph or told.node or -1 for told in found],
            bytes=[told.bytes for told in found], memset=[memset] * len(events),
            peer=[-1 < told.from_device != told.to_device > -1 for told in found],
        )  # fmt: skip

    def _add_marks(self, recorded: bool, events: list[Complete]) -> None:
        found = args.decode_all(args.joined(events), events, args.SyncArgs)
        kinds = [
            MarkKind.RECORD if recorded else _MARKS.get(told.kind or event.name, -1)
            for event, told in zip(events, found, strict=True)
        ]
        self._marks.add(
            events, kind=kinds, device=_devices(events, found),
            stream=[_told(told.stream) for told in found],
            correlation=[told.correlation for told in found],
            waits_on=[_told(told.waits_on) for told in found],
            record=[_told(told.record) or -1 for told in found],
            event=[_told(told.recorded if recorded else told.waited) for told in found],
        )  # fmt: skip

    def _names_of(self, events: list[Complete]) -> list[int]:
        return self._strings.of([event.name for event in events])

    def _threads_of(self, events: list[Complete]) -> list[int]:
        processes, threads = [event.pid for event in events], [event.tid for event in events]
        if threads.count(threads[0]) == processes.count(processes[0]) == len(events):  # most often so, and faster
            return self._threads.of([(processes[0], threads[0])]) * len(events)
        return self._threads.of(list(zip(processes, threads, strict=True)))


def _devices(events: list[Complete], found: Sequence[Any]) -> list[int]:
    """Give device numbers by the args, else by where the event is drawn."""
    devices = [told.device for told in found]
    if -1 in devices:
        for row, device in enumerate(devices):
            if device == -1:
                devices[row] = _drawn(events[row].pid, (1 << 15) - 2)
    return devices


def _streams(events: list[Complete], found: Sequence[Any]) -> list[int]:
    """Give stream numbers by the args, else by where the event is drawn."""
    streams = [told.stream for told in found]
    if -1 in streams:
        for row, stream in enumerate(streams):
            if stream == -1:
                streams[row] = _drawn(events[row].tid, (1 << 32) - 1)
    return streams


def _drawn(place: int | str, most: int) -> int:
    """Give the number in ``7``, ``"7"`` or ``"stream 7"``; -1 where there is none."""
    if isinstance(place, str):
        found = _STREAM.fullmatch(place.strip())
        place = int(found[1]) if found else -1
    return place if 0 <= place <= most else -1


def _told(number: int) -> int:
    return -1 if number == _NOWHERE else number


def _size(told: args.HipArgs) -> int:
    """Give the bytes of a HIP copy: a number, or the number in a text."""
    if told.bytes >= 0 or isinstance(told.size, int):
        return max(told.bytes, told.size if isinstance(told.size, int) else -1)
    return int(told.size) if _SIZE.fullmatch(told.size) else -1
