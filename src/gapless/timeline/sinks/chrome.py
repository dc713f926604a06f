"""Chrome-trace JSON as torch.profiler writes it: read by gapless itself, ui.perfetto.dev, chrome://tracing and HTA.

The layout is Kineto's, one event a block of lines, so that reading the file back takes it in blocks. What Kineto has
no word for (which streams wait for the default stream) stands beside the events under ``gapless``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import MemoryKind, OpKind
from gapless.timeline.sinks.files import MARK
from gapless.timeline.sinks.notes import Note
from gapless.timeline.sources.kineto_tables import direction
from gapless.timeline.timeline import MarkKind, RangeKind, Timeline

_PIECE = 1 << 20  # characters given at a time
_OFFSET = 1000  # ns before the first event: Kineto writes 0 where it knows no time
_SHORT: Mapping[OpKind, str] = {
    OpKind.H2D: "HtoD", OpKind.D2H: "DtoH", OpKind.D2D: "DtoD", OpKind.P2P: "PtoP", OpKind.H2H: "HtoH",
}  # fmt: skip
_MEMORIES: Mapping[MemoryKind, str] = {
    MemoryKind.PAGEABLE: "Pageable", MemoryKind.PINNED: "Pinned", MemoryKind.DEVICE: "Device",
    MemoryKind.ARRAY: "Array", MemoryKind.MANAGED: "Managed",
}  # fmt: skip
_RANGES: Mapping[RangeKind, str] = {
    RangeKind.CPU_OP: "cpu_op", RangeKind.PYTHON: "python_function", RangeKind.ANNOTATION: "user_annotation",
    RangeKind.NVTX: "user_annotation", RangeKind.STEP: "user_annotation", RangeKind.OVERHEAD: "overhead",
    RangeKind.LOADING: "overhead", RangeKind.STAGING: "staging",
}  # fmt: skip
_SYNCS: Mapping[MarkKind, str] = {
    MarkKind.WAIT: "Stream Wait Event", MarkKind.SYNC_EVENT: "Event Sync", MarkKind.SYNC_STREAM: "Stream Sync",
    MarkKind.SYNC_DEVICE: "Context Sync",
}  # fmt: skip
_DRIVER = re.compile("cu[A-Z]")  # calls of the driver's own API
_KERNELS = (OpKind.KERNEL, OpKind.GRAPH)
_WRITTEN = frozenset((*_KERNELS, *_SHORT, OpKind.MEMSET))

_Place: TypeAlias = tuple[int | str, int | str]  # process and thread, or device and stream; JSON


def left_out(timeline: Timeline) -> tuple[str, ...]:
    """Say what a Chrome trace of torch.profiler's kind cannot hold of a timeline."""
    kinds = timeline.ops.kind
    said = []
    if functions := int((kinds == OpKind.HOST_FUNCTION).sum()):
        said.append(f"Left out {functions:,} host function{'s' * (functions > 1)}: the format has no such operation.")
    if others := int((~np.isin(kinds, (*_WRITTEN, OpKind.HOST_FUNCTION))).sum()):
        said.append(f"Left out {others:,} operation{'s' * (others > 1)} of kinds that the format does not have.")
    if graphs := int((kinds == OpKind.GRAPH).sum()):
        said.append(f"Wrote {graphs:,} graph{'s' * (graphs > 1)} recorded as a whole as kernels.")
    if named := int((timeline.ranges.kind == RangeKind.NVTX).sum()):
        said.append(f"Wrote {named:,} NVTX range{'s' * (named > 1)} as annotations.")
    if placed := int((timeline.calls.stack >= 0).sum()):
        said.append(
            f"Left out from which lines {placed:,} call{'s' * (placed > 1)} came: the format has no place for it."
        )
    if len(timeline.touches):
        said.append("Left out which memory each call touches: the format has no place for it.")
    return tuple(said)


def pieces(timeline: Timeline, notes: Sequence[Note] = ()) -> Iterator[bytes]:
    """Give the bytes of a trace. It has no place for notes."""
    tables = (timeline.ops, timeline.calls, timeline.marks, timeline.ranges)
    shift = _OFFSET - min((int(table.start.min()) for table in tables if len(table)), default=0)
    yield (_head(timeline, shift) + '  "traceEvents": [').encode()
    batch, size, between = list[str](), 0, "\n  {\n    "
    for event in _Writer(timeline, shift).events():
        batch.append(between + event + "\n  }")
        size += len(batch[-1])
        between = ",\n  {\n    "
        if size >= _PIECE:
            yield "".join(batch).encode()
            batch, size = [], 0
    yield ("".join(batch) + "\n  ]\n}\n").encode()


def _head(timeline: Timeline, shift: int) -> str:
    """Give what stands before the events: the devices, the clock, and what gapless knows of streams."""
    devices = [
        {
            "id": device.id, "name": device.name, "totalGlobalMem": device.memory_bytes,
            "computeMajor": device.compute_capability[0], "computeMinor": device.compute_capability[1],
            "maxThreadsPerMultiprocessor": device.threads_per_sm, "regsPerMultiprocessor": device.registers_per_sm,
            "sharedMemPerMultiprocessor": device.shared_per_sm, "numSms": device.sms,
        }
        for device in timeline.devices
    ]  # fmt: skip
    streams = [
        {"device": timeline.devices[s.device].id, "stream": s.id, "kind": s.kind.name.lower(), "inferred": s.inferred}
        for s in timeline.streams
    ]
    facts: dict[str, Any] = {"gapless": {"about": MARK, "streams": streams}, "schemaVersion": 1}
    facts["deviceProperties"] = devices
    if timeline.clock_ns is not None and timeline.clock_ns > shift:
        facts["baseTimeNanoseconds"] = timeline.clock_ns - shift
    facts["displayTimeUnit"] = "ms"
    return "{\n" + "".join(f'  "{name}": {_json(value)},\n' for name, value in facts.items())


class _Writer:
    """Writes the rows of a timeline as events, the members of each on one line."""

    def __init__(self, timeline: Timeline, shift: int) -> None:
        self._timeline, self._shift = timeline, shift
        self._names = [_json(text) for text in timeline.strings]
        self._pids = [device.id for device in timeline.devices]
        self._streams = [(self._pids[stream.device], stream.id) for stream in timeline.streams]
        self._threads = _places(timeline)
        self._ids = _Ids(timeline)

    def events(self) -> Iterator[str]:
        """Give all events: names of places first, then each table, and an arrow for each launch."""
        yield from self._places()
        yield from self._ranges()
        yield from self._calls()
        yield from self._ops()
        yield from self._marks()

    def _complete(self, category: str, name: str, place: _Place, start: int, end: int, told: str) -> str:
        """Give a complete event; *name* is JSON already, *told* are the members of its args."""
        return (
            f'"ph": "X", "cat": "{category}", "name": {name}, "pid": {place[0]}, "tid": {place[1]}, '
            f'"ts": {_us(start + self._shift)}, "dur": {_us(end - start)}, "args": {{{told}}}'
        )

    def _places(self) -> Iterator[str]:
        for device in self._timeline.devices:
            yield _metadata("process_name", device.id, 0, f"GPU {device.id} {device.name}".strip())
        for (device, number), stream in zip(self._streams, self._timeline.streams, strict=True):
            if stream.name:
                yield _metadata("thread_name", device, number, stream.name)
        for (pid, tid), thread in zip(self._threads, self._timeline.threads, strict=True):
            if thread.name:
                yield _metadata("thread_name", pid, tid, thread.name)

    def _ranges(self) -> Iterator[str]:
        for kind, name, thread, start, end, stack in _columns(
            self._timeline.ranges, "kind name thread start end stack"
        ):
            told = f'"Call stack": {self._names[stack]}' if stack >= 0 else ""
            category = _RANGES[RangeKind(kind)]
            yield self._complete(category, self._names[name], self._threads[thread], start, end, told)

    def _calls(self) -> Iterator[str]:
        for row, (name, thread, start, end) in enumerate(_columns(self._timeline.calls, "name thread start end")):
            driver = _DRIVER.match(self._timeline.name_of(name)) is not None
            category = "cuda_driver" if driver else "cuda_runtime"
            told = f'"correlation": {self._ids.calls[row]}'
            yield self._complete(category, self._names[name], self._threads[thread], start, end, told)

    def _ops(self) -> Iterator[str]:
        calls, call_starts = self._timeline.calls, self._timeline.calls.start
        columns = _columns(self._timeline.ops, "kind name stream start end bytes src dst graph call")
        for row, (kind, name, stream, start, end, size, src, dst, graph, call) in enumerate(columns):
            place, id_ = self._streams[stream], self._ids.ops[row]
            if kind not in _WRITTEN:
                continue
            told = f'"device": {place[0]}, "stream": {place[1]}, "correlation": {id_}'
            if graph >= 0:
                told += f', "graph id": {graph}'
            if size >= 0:
                told += f', "bytes": {size}'
            if kind in _KERNELS:
                told += self._shape(row)
                category, shown = "kernel", self._names[name] if name >= 0 else '"kernel"'
            else:
                category = "gpu_memset" if kind == OpKind.MEMSET else "gpu_memcpy"
                shown = _json(_telling(self._timeline.name_of(name), kind, src, dst))
            yield self._complete(category, shown, place, start, end, told)
            if call >= 0:
                at = self._threads[int(calls.thread[call])]
                yield _arrow("s", row, at, int(call_starts[call]) + self._shift)
                yield _arrow("f", row, place, start + self._shift)

    def _shape(self, row: int) -> str:
        ops, told = self._timeline.ops, ""
        stream = self._timeline.streams[int(ops.stream[row])]
        for name, value in (("registers per thread", ops.registers[row]), ("shared memory", ops.shared[row])):
            if value >= 0:
                told += f', "{name}": {value}'
        for name, shape in (("grid", ops.grid[row].tolist()), ("block", ops.block[row].tolist())):
            if shape[0] >= 0:
                told += f', "{name}": {shape}'
        if not np.isnan(ops.occupancy[row]):
            told += f', "est. achieved occupancy %": {float(ops.occupancy[row]) * 100:.6g}'
        return told + (f', "priority": {stream.priority}' if stream.priority is not None else "")

    def _marks(self) -> Iterator[str]:
        columns = _columns(self._timeline.marks, "kind stream start end event call waits_on record")
        for row, (kind, stream, start, end, event, _, waits_on, _) in enumerate(columns):
            seen_at = stream if stream >= 0 else waits_on
            device = self._streams[seen_at][0] if seen_at >= 0 else self._pids[0] if self._pids else 0
            number = self._streams[stream][1] if stream >= 0 else -1
            told = f'"device": {device}, "stream": {number}, "correlation": {self._ids.marks[row]}'
            if kind == MarkKind.RECORD:
                category, name = "cuda_event", '"Event Record"'
                told += f', "event_id": {event}'
            else:
                category, name = "cuda_sync", f'"{_SYNCS[MarkKind(kind)]}"'
                told += f', "cuda_sync_kind": {name}, "wait_on_cuda_event_id": {event}'
                # The format takes both streams to be of one device.
                near = waits_on >= 0 and self._streams[waits_on][0] == device
                told += f', "wait_on_stream": {self._streams[waits_on][1] if near else -1}'
                told += f', "wait_on_cuda_event_record_corr_id": {self._ids.records[row]}'
            yield self._complete(category, name, (device, max(number, 0)), start, end, told)


class _Ids:
    """Correlation ids of calls, operations and marks: the source's own where they link every row to its call.

    Where they do not (ids of several processes, links that were found otherwise), calls are numbered from 1 on.
    """

    def __init__(self, timeline: Timeline) -> None:
        ops, calls, marks = timeline.ops, timeline.calls, timeline.marks
        known = calls.correlation[calls.correlation > 0]
        self.calls, self.ops = calls.correlation, ops.correlation
        self.marks = _of_calls(calls.correlation, marks.call)
        self.records = marks.record
        one_each = len(np.unique(known)) == len(known)
        linked = one_each and all(
            (of_call > 0)[call >= 0].all() and (own[call >= 0] == of_call[call >= 0]).all()
            for own, call, of_call in (
                (ops.correlation, ops.call, _of_calls(calls.correlation, ops.call)),
                (self.marks, marks.call, self.marks),
            )
        )
        # An operation whose call is unknown must not meet one by its id.
        lone = ops.call < 0
        if linked and not np.isin(ops.correlation[lone], known).any():
            return
        row_of = {id_: row for row, id_ in enumerate(calls.correlation.tolist()) if id_ > 0} if one_each else {}
        self.calls = np.arange(1, len(calls) + 1)
        self.ops, self.marks = ops.call.astype(np.int64) + 1, marks.call.astype(np.int64) + 1
        self.records = np.array([row_of.get(id_, -2) + 1 for id_ in marks.record.tolist()], np.int64)


def _of_calls(values: NDArray[np.int64], rows: NDArray[Any]) -> NDArray[np.int64]:
    """Give a column of the calls for each of these rows; 0 where the call is unknown."""
    return np.where(rows >= 0, values[rows] if len(values) else 0, 0)


def _places(timeline: Timeline) -> list[_Place]:
    """Give each host thread a process and a thread that nothing else has, as JSON; what is unknown gets a word."""
    taken: set[_Place] = {(timeline.devices[stream.device].id, stream.id) for stream in timeline.streams}
    places: list[_Place] = []
    for number, thread in enumerate(timeline.threads):
        place: _Place = (
            thread.pid if thread.pid >= 0 else "host",
            thread.tid if thread.tid >= 0 else thread.name or f"thread {number}",
        )
        if place in taken:
            place = ("host", f"{thread.name or 'thread'} {number}")
        taken.add(place)
        places.append((_json(place[0]), _json(place[1])))
    return places


def _telling(name: str, kind: int, src: int, dst: int) -> str:
    """Give a copy's name such that direction and memories can be read off it, as they are read off torch's names."""
    if kind == OpKind.MEMSET:
        words = f"Memset ({_MEMORIES.get(MemoryKind(dst), 'Unknown')})"
        told = (kind, MemoryKind.UNKNOWN, dst)
    else:
        ends = (_MEMORIES.get(MemoryKind(memory), "Unknown") for memory in (src, dst))
        words = f"Memcpy {_SHORT[OpKind(kind)]} ({' -> '.join(ends)})"
        told = (kind, src, dst)
    for candidate in (name, f"{name}: {words}"):
        read = direction(candidate)
        if (kind if kind == OpKind.MEMSET else read[0], *read[1:]) == told and candidate.strip():
            return candidate
    return words


def _metadata(what: str, pid: int | str, tid: int | str, name: str) -> str:
    return f'"ph": "M", "name": "{what}", "pid": {pid}, "tid": {tid}, "ts": 0, "args": {{"name": {_json(name)}}}'


def _arrow(phase: str, number: int, place: _Place, ns: int) -> str:
    end = ', "bp": "e"' if phase == "f" else ""
    return (
        f'"ph": "{phase}", "id": {number + 1}, "pid": {place[0]}, "tid": {place[1]}, "ts": {_us(ns)}, '
        f'"cat": "ac2g", "name": "ac2g"{end}'
    )


def _columns(table: Any, names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).tolist() for name in names.split()), strict=True)


def _us(ns: int) -> str:
    """Give ns as decimal microseconds without ever being a float."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _json(value: Any) -> str:
    """Give JSON; a half of a surrogate pair, which UTF-8 cannot hold, becomes a question mark."""
    if isinstance(value, str):
        value = value.encode("utf-8", "replace").decode()
    return json.dumps(value)
