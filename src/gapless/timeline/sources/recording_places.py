"""Where things ran in a recording: devices, streams and threads, over all its processes.

A process numbers devices, contexts, streams and threads in its own way. A place is one process on one device; streams
are at places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model.errors import GaplessError
from gapless.model.kinds import StreamKind
from gapless.timeline.sources.assembly import Places
from gapless.timeline.sources.columns import Columns, distinct
from gapless.timeline.sources.cupti import NONE, NOWHERE
from gapless.timeline.sources.cupti_rows import MOST_DEVICE
from gapless.timeline.sources.recording_format import Space
from gapless.timeline.sources.recording_process import Process
from gapless.timeline.sources.recording_records import Kind
from gapless.timeline.timeline import Device, Stream, Thread

Int64: TypeAlias = NDArray[np.int64]

_KINDS = {1: StreamKind.BLOCKING, 2: StreamKind.NON_BLOCKING, 3: StreamKind.LEGACY}  # CUpti_ActivityStreamFlag
_FLAG_MASK = 0xFFFF
_FIRST_DEFAULT = 7  # CUPTI's number for the default stream of a process's first context


class Devices:
    """The devices by row, and the places of processes on them."""

    def __init__(self, processes: Sequence[Process], work: Sequence[Columns], marks: Sequence[Columns]) -> None:
        """Take the tables of work, which name their devices, and of marks, whose contexts do. All have ``process``."""
        self._processes = processes
        self._described: list[Device] = []
        self._rows: dict[tuple[int, int], int] = {}  # (process, its number of the device): row
        self._contexts: dict[tuple[int, int], int] = {}  # (process, context): the process's number of the device
        self._describe()
        for process in processes:
            contexts = process.table(Kind.CONTEXT)
            for context, device in zip(contexts["contextId"].tolist(), contexts["deviceId"].tolist(), strict=True):
                self._contexts[process.number, context] = device
        for table in work:
            keys, at = distinct(_joined(table["process"], table["contextId"]))
            for key, device in zip(keys.tolist(), table["deviceId"][at].tolist(), strict=True):
                self._contexts.setdefault((key >> 32, (key & NOWHERE) - 1), device)
        for table in marks:
            table["deviceId"] = self._by_context(table)
        found = np.unique(np.concatenate([distinct(_own_numbers(table))[0] for table in (*work, *marks)]))
        self._found = found[found >= 0]
        rows = [self._row((key >> 16) - 1, key & 0xFFFF) for key in self._found.tolist()]
        if len(rows) > MOST_DEVICE:
            raise GaplessError(f"The recording names {len(rows):,} devices. That cannot be.")
        order = np.lexsort((self._found, np.array(rows, np.int64)))
        self._rank = np.argsort(order)
        self.places = [(rows[at], (int(self._found[at]) >> 16) - 1) for at in order.tolist()]

    @property
    def described(self) -> tuple[Device, ...]:
        """The devices in order of their rows."""
        return tuple(self._described)

    def place_of(self, table: Columns) -> Int64:
        """Give the place of each row of a table of work or marks, -1 none."""
        own = _own_numbers(table)
        if not len(self._found):
            return np.full(len(own), NONE, np.int64)
        return np.where(own >= 0, self._rank[np.searchsorted(self._found, own)], NONE)

    def of_places(self, place: Int64) -> NDArray[np.int16]:
        """Give the row of the device of each place, -1 for none."""
        return np.array([*(row for row, _ in self.places), NONE], np.int16)[place]

    def streams(self, places: Places) -> Iterator[Stream]:
        """Describe streams: by their records, by the contexts whose default streams they are, else by their numbers."""
        told: dict[tuple[int, int], tuple[StreamKind, int | None]] = {}
        for process in self._processes:
            records = process.table(Kind.STREAM)
            columns = (records[name].tolist() for name in ("streamId", "flag", "priority"))
            for stream, flag, priority in zip(*columns, strict=True):
                kind = _KINDS.get(flag & _FLAG_MASK, StreamKind.UNKNOWN)
                told[process.number, stream] = kind, _signed(priority)
            contexts = process.table(Kind.CONTEXT)
            for stream in contexts["nullStreamId"].tolist():
                if stream > 0:
                    told[process.number, stream] = StreamKind.LEGACY, told.get((process.number, stream), (0, 0))[1]
        owners = Counter(row for row, _ in self.places)
        for place, stream in places.streams:
            row, process = self.places[place]
            kind, priority = told.get((process, stream), (None, None))
            default = kind is None and stream == _FIRST_DEFAULT
            yield Stream(
                device=row,
                id=stream,
                kind=StreamKind.LEGACY if default else kind or StreamKind.UNKNOWN,
                inferred=default,
                priority=priority,
                name=f"process {self._processes[process].pid}" if owners[row] > 1 else "",
            )

    def _describe(self) -> None:
        """Describe the devices that processes list. What has one UUID is one device, else what has one number."""
        known: dict[tuple[int, ...], int] = {}
        for process in self._processes:
            table = process.table(Kind.DEVICE)
            for at in range(len(table["id"])):
                number = int(table["id"][at])
                if not 0 <= number <= MOST_DEVICE or len(self._described) > MOST_DEVICE:
                    continue
                uuid = (int(table["uuid.0"][at]), int(table["uuid.1"][at]))
                key = uuid if any(part not in (0, NONE) for part in uuid) else (number,)
                if key not in known:
                    known[key] = len(self._described)
                    self._described.append(_device(process, table, at, self._unused(number)))
                self._rows[process.number, number] = known[key]

    def _row(self, process: int, number: int) -> int:
        """Give the row of the device that a process numbers so; one that no record describes becomes a new row."""
        if (process, number) not in self._rows:
            same = next((row for row, device in enumerate(self._described) if device.id == number), None)
            if same is None:
                same = len(self._described)
                self._described.append(Device(id=number, vendor="nvidia"))
            self._rows[process, number] = same
        return self._rows[process, number]

    def _unused(self, number: int) -> int:
        taken = {device.id for device in self._described}
        return number if number not in taken else next(free for free in range(len(taken) + 1) if free not in taken)

    def _by_context(self, table: Columns) -> NDArray[np.int32]:
        """Give the device of each row: its context's, which rows of marks name, else the row's own."""
        keys, row = np.unique(_joined(table["process"], table["contextId"]), return_inverse=True)
        found = [self._contexts.get((key >> 32, (key & NOWHERE) - 1), NONE) for key in keys.tolist()]
        device = np.array(found, np.int32)[row] if len(row) else np.empty(0, np.int32)
        return np.where(device >= 0, device, table["deviceId"])


def _device(process: Process, table: Mapping[str, NDArray[np.int64]], at: int, number: int) -> Device:
    told = {name: max(int(column[at]), 0) for name, column in table.items()}
    return Device(
        id=number,
        name=process.text(Space.POINTER, int(table["name"][at]) & 0xFFFFFFFFFFFFFFFF),
        vendor="nvidia",
        sms=told["numMultiprocessors"],
        compute_capability=(told["computeCapabilityMajor"], told["computeCapabilityMinor"]),
        memory_bytes=told["globalMemorySize"],
        threads_per_sm=told["maxWarpsPerMultiprocessor"] * told["numThreadsPerWarp"],
        registers_per_sm=told["maxRegistersPerMultiprocessor"],
        shared_per_sm=told["maxSharedMemoryPerMultiprocessor"],
    )


class Threads:
    """The threads by row, from processes and their own numbers."""

    def __init__(self, processes: Sequence[Process], tables: Sequence[Columns]) -> None:
        """Take tables with ``process`` and ``threadId``."""
        self._processes = processes
        self._known = np.unique(np.concatenate([np.empty(0, np.int64), *(distinct(_keys(t))[0] for t in tables)]))

    def rows(self, table: Columns) -> Int64:
        """Give the row of the thread of each row of a table."""
        return np.searchsorted(self._known, _keys(table))

    def described(self) -> tuple[Thread, ...]:
        """Describe the threads in order of their rows."""
        found: list[Thread] = []
        for key in self._known.tolist():
            process, tid = self._processes[key >> 32], key & NOWHERE
            found.append(Thread(pid=process.pid, tid=tid, name=process.text(Space.THREAD, tid)))
        return tuple(found)


def _keys(table: Columns) -> Int64:
    return (table["process"] << 32) + (table["threadId"] & NOWHERE)


def _joined(process: Int64, context: Int64) -> Int64:
    return (process << 32) + (context + 1 & NOWHERE)


def _own_numbers(table: Columns) -> Int64:
    """Join process and the process's own number of the device; -1 where the device is no number."""
    process, device = table["process"], table["deviceId"].astype(np.int64)
    return np.where((device >= 0) & (device <= MOST_DEVICE), ((process + 1) << 16) + device, NONE)


def _signed(priority: int) -> int:
    """Give a priority, which is negative or 0, from the unsigned number of 32 bits that CUPTI writes."""
    return priority - NOWHERE - 1 if priority > NOWHERE >> 1 else priority
