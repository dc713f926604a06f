"""Whose a number is in an Nsight Systems export: processes, threads, devices, streams.

Correlation ids, events, contexts and streams are unique inside a process only, and a process numbers devices in its own
way. A report may hold several processes, so everything here goes by process first.
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
from gapless.timeline.sources.columns import Columns
from gapless.timeline.sources.cupti import NONE, NOWHERE, own
from gapless.timeline.sources.cupti_rows import MOST_DEVICE
from gapless.timeline.sources.nsys_database import Database, text_of, whole
from gapless.timeline.timeline import Device, Stream, Thread

Int64: TypeAlias = NDArray[np.int64]

# What flags say of a stream, by the words of ENUM_CUPTI_STREAM_TYPE, and their numbers where there is no such table.
_FLAGS = {0: "UNKNOWN", 1: "DEFAULT", 2: "NON_BLOCKING", 3: "NULL"}
_KINDS = {"DEFAULT": StreamKind.BLOCKING, "NON_BLOCKING": StreamKind.NON_BLOCKING, "NULL": StreamKind.LEGACY}
_FIRST_DEFAULT = 7  # CUPTI's number for the default stream of a process's first context


class Processes:
    """The processes by number, from global ids: 24 bits of thread, 24 of process, above them the machine.

    A row that names no process belongs to the only one there is; where there are several, to none (-1).
    """

    def __init__(self, columns: Sequence[Int64]) -> None:
        """Take columns of global ids, of processes or of threads."""
        found = np.unique(np.concatenate([np.unique(column >> 24) for column in columns]))
        self._known = found[found >= 0]
        self.pids: list[int] = (self._known & 0xFFFFFF).tolist() or [NONE]
        self._by_pid: dict[int, list[int]] = {}
        for process, pid in enumerate(self.pids):
            self._by_pid.setdefault(pid, []).append(process)

    def with_pid(self, pid: int) -> list[int]:
        """Give the processes with this id: each machine may have one. Where none is known, the only one."""
        return self._by_pid.get(pid, self._by_pid.get(NONE, []))

    def name(self, process: int) -> str:
        """Name a process."""
        return f"process {self.pids[process]}" if process >= 0 else ""

    def of(self, ids: Int64) -> Int64:
        """Give the number of the process of each global id."""
        if len(self._known) < 2:
            return np.zeros(len(ids), np.int64)
        return np.where(ids >= 0, np.searchsorted(self._known, ids >> 24), NONE)

    def own(self, ids: Int64, numbers: Int64, none: int = 0) -> Int64:
        """Make numbers of 32 bits that are unique in each process unique in the report; ``none`` for no number.

        Those of the first process, or of the only one, stay as they are.
        """
        return own(self.of(ids), numbers, none)


class Threads:
    """The threads by row, from global ids."""

    def __init__(self, columns: Sequence[Int64]) -> None:
        """Take columns of global ids."""
        self._known = np.unique(np.concatenate([np.unique(column) for column in columns]))

    def rows(self, ids: Int64) -> Int64:
        """Give the row of the thread of each global id."""
        return np.searchsorted(self._known, ids)

    def described(self, export: Database) -> tuple[Thread, ...]:
        """Describe the threads in order of their rows."""
        named = {whole(id_): whole(name) for id_, name in export.rows("ThreadNames", ("globalTid", "nameId"))}
        texts = export.strings(np.unique(np.array(list(named.values()), np.int64)))
        return tuple(
            Thread(pid=id_ >> 24 & 0xFFFFFF, tid=id_ & 0xFFFFFF, name=texts.get(named.get(id_, NONE), ""))
            if id_ >= 0
            else Thread(pid=NONE, tid=NONE)
            for id_ in self._known.tolist()
        )


class Devices:
    """The devices, and the places of processes on them. A place is one process on one device; streams are at places."""

    def __init__(
        self, export: Database, processes: Processes, work: Sequence[Columns], marks: Sequence[Columns]
    ) -> None:
        """Take the tables of work, which name their devices, and of marks, whose contexts do."""
        self._export = export
        self._processes = processes
        self._gpus = {
            (whole(pid), whole(device)): whole(gpu)
            for pid, device, gpu in export.rows("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId"))
            if 0 <= whole(gpu) <= MOST_DEVICE
        }
        self._contexts = dict(self._told_contexts())
        for table in work:
            table["process"] = processes.of(table["globalPid"])
            self._learn_contexts(table)
        for table in marks:
            table["process"] = processes.of(table["globalPid"])
            table["deviceId"] = self._by_context(table)
        every = [*work, *marks]
        found = np.unique(np.concatenate([np.unique(self._own_numbers(table)) for table in every]))
        self._found = found[found >= 0]
        device = self._mapped(self._found)
        order = np.lexsort((self._found, device))
        self._rank = np.argsort(order)
        self.places: list[tuple[int, int]] = list(
            zip(device[order].tolist(), ((self._found[order] >> 16) - 1).tolist(), strict=True)
        )
        if len(self.places) > MOST_DEVICE:
            raise GaplessError(f"{export.source} names {len(self.places):,} devices. That cannot be.")

    def place_of(self, table: Columns) -> Int64:
        """Give the place of each row of a table of work or marks, -1 none."""
        own = self._own_numbers(table)
        if not len(self._found):
            return np.full(len(own), NONE, np.int64)
        return np.where(own >= 0, self._rank[np.searchsorted(self._found, own)], NONE)

    def described(self) -> tuple[Device, ...]:
        """Describe the devices that the export describes or names, in order of their numbers."""
        devices = {device: Device(id=device, vendor="nvidia") for device, _ in self.places}
        columns = (
            "id", "name", "smCount", "computeMajor", "computeMinor", "totalMemory", "maxWarpsPerSm", "threadsPerWarp",
            "maxRegistersPerSm", "maxShmemPerSm",
        )  # fmt: skip
        for id_, name, *numbers in self._export.rows("TARGET_INFO_GPU", columns):
            sms, major, minor, memory, warps, lanes, registers, shared = (max(whole(number), 0) for number in numbers)
            if 0 <= whole(id_) <= MOST_DEVICE:
                devices[whole(id_)] = Device(
                    id=whole(id_), name=text_of(name), vendor="nvidia", sms=sms, compute_capability=(major, minor),
                    memory_bytes=memory, threads_per_sm=warps * lanes, registers_per_sm=registers, shared_per_sm=shared,
                )  # fmt: skip
        return tuple(devices[number] for number in sorted(devices))

    def rows_of_places(self, place: Int64, devices: Sequence[Device]) -> NDArray[np.int16]:
        """Give the row in *devices* of the device of each place, -1 for none."""
        rows = {device.id: row for row, device in enumerate(devices)}
        return np.array([*(rows[device] for device, _ in self.places), NONE], np.int16)[place]

    def streams(self, places: Places, devices: Sequence[Device]) -> Iterator[Stream]:
        """Describe streams: by what the export says of them, else by what the numbers say."""
        rows = {device.id: row for row, device in enumerate(devices)}
        flags = self._export.words("ENUM_CUPTI_STREAM_TYPE", _FLAGS)
        told: dict[tuple[int, int], tuple[StreamKind, int | None]] = {}
        first: dict[tuple[int, int], int] = {}  # place -> the lowest number of its created streams
        columns = ("processId", "contextId", "streamId", "flag", "priority")
        for pid, context, stream, flag, priority in self._export.rows("TARGET_INFO_CUDA_STREAM", columns):
            kind = _KINDS.get(flags.get(whole(flag), ""), StreamKind.UNKNOWN)
            for process in self._processes.with_pid(whole(pid)):
                told[process, whole(stream)] = kind, _signed(whole(priority, NOWHERE + 1))
                place = self._gpu(process, self._contexts.get((process, whole(context)), NONE)), process
                first[place] = min(first.get(place, NOWHERE), whole(stream))
        for process, stream in self._null_streams():
            told[process, stream] = StreamKind.LEGACY, told.get((process, stream), (None, None))[1]
        names = self._stream_names()
        owners = Counter(device for device, _ in self.places)
        for row, stream in places.streams:
            device, process = self.places[row]
            kind, priority = told.get((process, stream), (None, None))
            default = kind is None and (stream == _FIRST_DEFAULT or stream < first.get((device, process), 0))
            yield Stream(
                device=rows[device],
                id=stream,
                kind=StreamKind.LEGACY if default else kind or StreamKind.UNKNOWN,
                inferred=default,
                priority=priority,
                name=names.get((process, stream), self._processes.name(process) if owners[device] > 1 else ""),
            )

    def _told_contexts(self) -> Iterator[tuple[tuple[int, int], int]]:
        for pid, context, device in self._export.rows(
            "TARGET_INFO_CUDA_CONTEXT_INFO", ("processId", "contextId", "deviceId")
        ):
            for process in self._processes.with_pid(whole(pid)):
                yield (process, whole(context)), whole(device)

    def _learn_contexts(self, table: Columns) -> None:
        keys, at = np.unique(_joined(table["process"], table["contextId"]), return_index=True)
        for key, device in zip(keys.tolist(), table["deviceId"][at].tolist(), strict=True):
            self._contexts.setdefault((key >> 32, (key & NOWHERE) - 1), device)

    def _by_context(self, table: Columns) -> NDArray[np.int32]:
        """Give the device of each row: its context's. Rows of marks may name device 0 whatever the context's is."""
        keys, row = np.unique(_joined(table["process"], table["contextId"]), return_inverse=True)
        found = [self._contexts.get((key >> 32, (key & NOWHERE) - 1), NONE) for key in keys.tolist()]
        device = np.array(found, np.int32)[row] if len(row) else np.empty(0, np.int32)
        return np.where(device >= 0, device, table["deviceId"])

    def _own_numbers(self, table: Columns) -> Int64:
        """Join process and the process's own number of the device; -1 where the device is no number."""
        process, device = table["process"], table["deviceId"].astype(np.int64)
        return np.where((device >= 0) & (device <= MOST_DEVICE), ((process + 1) << 16) + device, NONE)

    def _mapped(self, own: Int64) -> Int64:
        return np.array([self._gpu((key >> 16) - 1, key & 0xFFFF) for key in own.tolist()], np.int64)

    def _gpu(self, process: int, device: int) -> int:
        """Give the GPU that a process numbers so."""
        return self._gpus.get((self._processes.pids[process], device), device) if process >= 0 else device

    def _null_streams(self) -> Iterator[tuple[int, int]]:
        for table, column in (
            ("TARGET_INFO_CUDA_CONTEXT_INFO", "nullStreamId"),
            ("TARGET_INFO_CUDA_NULL_STREAM", "streamId"),
        ):
            for pid, stream in self._export.rows(table, ("processId", column)):
                for process in self._processes.with_pid(whole(pid)):
                    yield process, whole(stream)

    def _stream_names(self) -> Mapping[tuple[int, int], str]:
        return {
            (process, whole(stream)): text_of(name)
            for pid, stream, name in self._export.rows(
                "TARGET_INFO_NVTX_CUDA_STREAM", ("processId", "streamId", "name")
            )
            for process in self._processes.with_pid(whole(pid))
        }


def _joined(process: Int64, context: NDArray[np.int32]) -> Int64:
    return (process << 32) + context + 1


def _signed(priority: int) -> int | None:
    """Undo that exports write priorities, which are negative or 0, as unsigned numbers of 32 bits."""
    if not -NOWHERE <= priority <= NOWHERE:
        return None
    return priority - NOWHERE - 1 if priority > NOWHERE >> 1 else priority
