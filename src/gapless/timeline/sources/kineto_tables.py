"""From the rows of a Kineto trace to a Timeline: kinds, memories, links, streams, and what the trace cannot tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.timeline.apis import call_kind, is_loading
from gapless.timeline.sources.assembly import CallsById, Places, of_calls, overlaps, repeated, unlink_doubtful
from gapless.timeline.sources.columns import Columns, in_order, take
from gapless.timeline.sources.losses import Losses
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
    Unknown,
)

FORMAT = "torch.profiler"

_MEMORIES = {
    "Pageable": MemoryKind.PAGEABLE,
    "Pinned": MemoryKind.PINNED,
    "Device": MemoryKind.DEVICE,
    "Device Static": MemoryKind.DEVICE,
    "Array": MemoryKind.ARRAY,
    "Managed": MemoryKind.MANAGED,
    "Managed Static": MemoryKind.MANAGED,
}
_BY_ENDS = {"HD": OpKind.H2D, "DH": OpKind.D2H, "DD": OpKind.D2D, "PP": OpKind.P2P, "HH": OpKind.H2H}
_SHORT = re.compile(r"\b([HDAP])to([HDAP])\b")  # CUPTI: "Memcpy HtoD (Pageable -> Device)"; A is an array
_LONG = re.compile(r"(Host|Device|Array|Peer)To(Host|Device|Array|Peer)")  # ROCm: "CopyHostToDevice"
_IN_WORDS = re.compile(r"\((?:([\w ?]+) -> )?([\w ?]+)\)")
_WHOLE = re.compile(r"-?\d{1,18}")

_REPEATED = "Left out {events}: exact repeats of another."
_DIRECTION = "Took {events} as copies inside the device: the trace does not say between which memories."


@dataclass(slots=True, kw_only=True)
class KinetoRows:
    """The rows of a trace as they were read, in any order: times in ns, numbers as the trace has them, -1 unknown."""

    kernels: Columns
    copies: Columns  # and memsets
    calls: Columns
    hip: Columns  # what HIP calls tell of the work they issue
    marks: Columns
    ranges: Columns
    strings: list[str]
    threads: list[tuple[int | str, int | str]]  # (pid, tid)
    names: Mapping[tuple[int | str, int | str], str]  # of threads, and of streams by (device, stream)
    priorities: Mapping[tuple[int, int], int]  # by (device, stream)


def timeline(rows: KinetoRows, source: str, facts: Mapping[str, Any], losses: Losses) -> Timeline:
    """Make the Timeline. ``facts`` are what stands beside the events in the file."""
    strings = _sort_strings(rows)
    threads = _sort_threads(rows)
    vendor = _vendor(rows, facts)
    tick = _tick(rows)

    calls = in_order(rows.calls)
    kinds = np.zeros(len(strings), np.int8)
    for name in np.unique(calls["name"]).tolist():  # the other strings are none of an API, and some are very long
        kinds[name] = call_kind(strings[name])
    calls["kind"] = kinds[calls["name"]]
    calls = _once(calls, ("name", "thread", "end", "correlation"), tick, calls["correlation"] > 0, losses)
    by_id = CallsById(calls)

    places = Places(_stream_columns(rows))
    ops = _ops(rows, places, strings, losses)
    ops["call"] = by_id.rows(ops["correlation"])[0]
    by_graph = (ops["graph"] >= 0) | (of_calls(calls["kind"], ops["call"]) == CallKind.GRAPH_LAUNCH)
    ops = _once(ops, ("name", "stream", "end", "correlation"), tick, (ops["correlation"] > 0) & ~by_graph, losses)
    unlink_doubtful(ops, calls, by_id, losses)

    marks = _marks(rows.marks, calls, by_id, places)
    ranges = in_order(rows.ranges)
    step = np.array([name.startswith("ProfilerStep#") for name in strings], np.bool_)
    ranges["kind"][step[ranges["name"]]] = RangeKind.STEP
    loading = np.array([is_loading(name) for name in strings], np.bool_)
    ranges["kind"][loading[ranges["name"]] & (ranges["kind"] == RangeKind.OVERHEAD)] = RangeKind.LOADING
    if not tick:  # in whole microseconds, nested operators can look the same
        ranges = _once(ranges, ("name", "kind", "thread", "end"), tick, False, losses)

    zero = min((int(table["start"][0]) for table in (ops, calls, ranges, marks) if len(table["start"])), default=0)
    for table in (ops, calls, ranges, marks):
        table["start"] -= zero
        table["end"] -= zero
    devices = _devices(facts, vendor, {device for device, _ in places.streams})
    device_rows = {device.id: row for row, device in enumerate(devices)}
    ops["device"] = np.array([device_rows[device] for device, _ in places.streams], np.int16)[ops["stream"]]
    streams = tuple(_streams(places, device_rows, vendor, rows, _told_streams(facts)))
    kinds_told = all(stream.kind != StreamKind.UNKNOWN and not stream.inferred for stream in streams)
    return Timeline(
        ops=Ops.build(**ops),
        calls=Calls.build(**{name: column for name, column in calls.items() if name != "driver"}),
        marks=Marks.build(**marks),
        ranges=Ranges.build(**ranges),
        devices=devices,
        streams=streams,
        threads=threads,
        strings=strings,
        source=source,
        format=FORMAT,
        clock_ns=_clock(facts, zero),
        info=_info(facts) | {"overlaps": overlaps(ops["stream"], ops["start"], ops["end"])},
        unknown=tuple(_unknown(ops, calls, marks, ranges, vendor, kinds_told=kinds_told)),
        lost=losses.sentences(),
        mended=losses.mended(),
    )


def _sort_strings(rows: KinetoRows) -> tuple[str, ...]:
    """Number the strings anew, in their own order: how they were met depends on how the file was cut."""
    order = sorted(range(len(rows.strings)), key=rows.strings.__getitem__)
    new = np.empty(len(order) + 1, np.int32)
    new[order] = np.arange(len(order))
    new[-1] = -1
    for table in (rows.kernels, rows.copies, rows.calls, rows.ranges):
        table["name"] = new[table["name"]]
    rows.ranges["stack"] = new[rows.ranges["stack"]]
    return tuple(rows.strings[row] for row in order)


def _sort_threads(rows: KinetoRows) -> tuple[Thread, ...]:
    """Number the threads anew, in order of their numbers; ``"25738"`` and 25738 are one."""
    names = {(_number(pid), _number(tid)): name for (pid, tid), name in rows.names.items()}
    told = [(_number(pid), _number(tid)) for pid, tid in rows.threads]
    threads = [
        Thread(
            pid=pid if isinstance(pid, int) else -1,
            tid=tid if isinstance(tid, int) else -1,
            name=names.get((pid, tid), "" if isinstance(tid, int) else tid),
        )
        for pid, tid in told
    ]
    distinct = sorted(set(threads), key=lambda thread: (thread.pid, thread.tid, thread.name))
    numbers = {thread: row for row, thread in enumerate(distinct)}
    new = np.array([numbers[thread] for thread in threads], np.int32)
    for table in (rows.calls, rows.ranges):
        table["thread"] = new[table["thread"]]
    return tuple(distinct)


def _number(place: int | str) -> int | str:
    return int(place) if isinstance(place, str) and _WHOLE.fullmatch(place) else place


def _vendor(rows: KinetoRows, facts: Mapping[str, Any]) -> str:
    """Tell whose GPU it was, by the names of the calls, else of the devices."""
    if len(rows.hip["correlation"]):
        return "amd"
    if len(rows.calls["name"]):
        return "nvidia"
    names = " ".join(str(device.get("name")) for device in _described(facts))
    if re.search("AMD|Radeon|Instinct|gfx", names):
        return "amd"
    return "nvidia" if re.search("NVIDIA|GeForce|Tesla|Quadro|TITAN|RTX", names) else ""


def _tick(rows: KinetoRows) -> int:
    """Give the step of the trace's clock in ns: 1000 where it has whole microseconds only, else 0."""
    tables = (rows.kernels, rows.copies, rows.calls, rows.ranges)
    return 0 if any((table[name] % 1000).any() for table in tables for name in ("start", "end")) else 1000


def _once(table: Columns, names: Sequence[str], tick: int, single: NDArray[np.bool_] | bool, losses: Losses) -> Columns:
    """Leave out exact repeats; what can have happened twice within a tick of the clock only where it is ``single``."""
    again = repeated(table, names) & ((table["end"] - table["start"] > tick) | single)
    losses.add(_REPEATED, int(again.sum()), kept=True)
    return take(table, ~again) if again.any() else table


def _stream_columns(rows: KinetoRows) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    for table in (rows.kernels, rows.copies):
        yield table["device"], table["stream"]
    for column in ("stream", "waits_on"):
        known = rows.marks[column] >= 0
        yield rows.marks["device"][known], rows.marks[column][known]


def _ops(rows: KinetoRows, places: Places, strings: Sequence[str], losses: Losses) -> Columns:
    """Make one table of kernels, copies and memsets, in order of start."""
    tables: list[Ops] = []
    for table in (rows.kernels, rows.copies):
        count = len(table["start"])
        kinds: dict[str, Any] = {"kind": np.full(count, OpKind.KERNEL, np.int8)}
        if table is rows.copies:
            kinds = _directions(table, strings, losses)
        own = {name: column for name, column in table.items() if name not in ("device", "stream", "memset", "peer")}
        if "occupancy" in own:
            own["occupancy"] = np.clip(own["occupancy"] / 100, 0, 1)
        tables.append(Ops.build(stream=places.rows(table["device"], table["stream"]), **own, **kinds))
        table.clear()  # the columns are large and have their copy now
    ops = {name: np.concatenate([table.column(name) for table in tables]) for name in Ops.__slots__}
    _fill_from_hip(ops, rows.hip)
    return in_order(ops)


def _directions(copies: Columns, strings: Sequence[str], losses: Losses) -> dict[str, NDArray[np.int8]]:
    """Read kind and memories of copies and memsets off their names."""
    told = np.zeros((len(strings), 3), np.int8)
    for name in np.unique(copies["name"]).tolist():
        told[name] = direction(strings[int(name)])
    kind, src, dst = told[copies["name"]].T.copy()
    kind[copies["peer"]] = OpKind.P2P
    kind[copies["memset"]], src[copies["memset"]] = OpKind.MEMSET, MemoryKind.UNKNOWN
    losses.add(_DIRECTION, int((kind < 0).sum()))
    kind[kind < 0] = OpKind.D2D
    return {"kind": kind, "src": src, "dst": dst}


def direction(name: str) -> tuple[int, int, int]:
    """Give kind (-1 unknown), source and destination memory by a name such as ``Memcpy HtoD (Pageable -> Device)``."""
    src = dst = MemoryKind.UNKNOWN
    if words := _IN_WORDS.search(name):
        src = _MEMORIES.get(words[1], MemoryKind.UNKNOWN)
        dst = _MEMORIES.get(words[2], MemoryKind.UNKNOWN)
    if ends := _SHORT.search(name) or _LONG.search(name):
        kind = _BY_ENDS.get(ends[1][0].replace("A", "D") + ends[2][0].replace("A", "D"), -1)
    else:
        kind = _BY_ENDS.get(_side(src) + _side(dst), -1)
    if kind in (OpKind.H2D, OpKind.D2H) and src == dst == MemoryKind.DEVICE:  # a leg of a copy that two devices share
        kind = OpKind.P2P
    return kind, src, dst


def _side(memory: MemoryKind) -> str:
    if memory in (MemoryKind.PAGEABLE, MemoryKind.PINNED):
        return "H"
    return "D" if memory in (MemoryKind.DEVICE, MemoryKind.ARRAY) else "?"


def _fill_from_hip(ops: Columns, hip: Columns) -> None:
    """Fill sizes and shapes that ROCm's device rows lack from the calls that issued them."""
    ids, first, counts = np.unique(hip["correlation"], return_index=True, return_counts=True)
    single = (counts == 1) & (ids > 0)  # an id of several calls tells nothing
    ids, first = ids[single], first[single]
    if not len(ids):
        return
    at = np.minimum(np.searchsorted(ids, ops["correlation"]), len(ids) - 1)
    told = ids[at] == ops["correlation"]
    kernel = ops["kind"] == OpKind.KERNEL
    fills = {"grid": kernel, "block": kernel, "shared": kernel, "bytes": ~kernel}
    for name, fitting in fills.items():
        column = ops[name]
        rows = told & fitting & ((column < 0).any(axis=1) if column.ndim > 1 else column < 0)
        column[rows] = hip[name][first[at[rows]]]


def _marks(rows: Columns, calls: Columns, by_id: CallsById, places: Places) -> Columns:
    """Make the marks: what the device's rows say, and the records and waits that only the host's calls tell of.

    A record that only a call tells of has the stream and the event that some wait names with it.
    """
    rows = take(rows, rows["kind"] >= 0)
    call, ambiguous = by_id.rows(rows["correlation"])
    call[ambiguous] = -1
    told = {
        "kind": rows["kind"], "start": rows["start"], "end": rows["end"], "event": rows["event"], "call": call,
        "stream": places.rows(rows["device"], rows["stream"]),
        "waits_on": places.rows(rows["device"], rows["waits_on"]),
        "record": np.where(rows["record"] > 0, rows["record"], -1),
    }  # fmt: skip
    told = _timed_by_calls(told, calls)
    ids, first = np.unique(told["record"], return_index=True)
    parts = [told]
    for asked, kind in ((CallKind.RECORD, MarkKind.RECORD), (CallKind.WAIT_EVENT, MarkKind.WAIT)):
        own = np.setdiff1d(np.flatnonzero(calls["kind"] == asked), told["call"][told["kind"] == kind])
        correlation = calls["correlation"][own]
        nothing = np.full(len(own), -1, np.int64)
        part = dict.fromkeys(told, nothing) | {"kind": np.full(len(own), kind, np.int8), "call": own}
        part |= {name: calls[name][own] for name in ("start", "end")}
        if kind is MarkKind.RECORD and len(ids):
            at = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
            named = (ids[at] == correlation) & (correlation > 0)
            part["stream"] = np.where(named, told["waits_on"][first[at]], -1)
            part["event"] = np.where(named, told["event"][first[at]], -1)
        parts.append(part)
    return in_order({name: np.concatenate([part[name] for part in parts]) for name in told})


def _timed_by_calls(marks: Columns, calls: Columns) -> Columns:
    """Give records that the device did not time (before CUDA 12.8) the time of their call; without one they go."""
    untimed = (marks["kind"] == MarkKind.RECORD) & (marks["start"] == 0)
    if not untimed.any():
        return marks
    for name in ("start", "end"):
        marks[name] = np.where(untimed, of_calls(calls[name], marks["call"]), marks[name])
    return take(marks, ~untimed | (marks["call"] >= 0))


def _described(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    devices = facts.get("deviceProperties")
    return [device for device in devices if isinstance(device, Mapping)] if isinstance(devices, list) else []


def _devices(facts: Mapping[str, Any], vendor: str, used: set[int]) -> tuple[Device, ...]:
    """Give the devices that the trace describes, and those that only work names, in order of their numbers."""
    devices = {number: Device(id=number, vendor=vendor) for number in used}
    for device in _described(facts):
        if type(number := device.get("id")) is int and 0 <= number < (1 << 15) - 1:
            devices[number] = Device(
                id=number,
                name=name if isinstance(name := device.get("name"), str) else "",
                vendor=vendor,
                sms=_fact(device, "numSms"),
                compute_capability=(_fact(device, "computeMajor"), _fact(device, "computeMinor")),
                memory_bytes=_fact(device, "totalGlobalMem"),
                threads_per_sm=_fact(device, "maxThreadsPerMultiprocessor"),
                registers_per_sm=_fact(device, "regsPerMultiprocessor"),
                shared_per_sm=_fact(device, "sharedMemPerMultiprocessor")
                or _fact(device, "maxSharedMemoryPerMultiProcessor"),
            )
    return tuple(devices[number] for number in sorted(devices))


def _fact(facts: Mapping[str, Any], name: str) -> int:
    return value if type(value := facts.get(name)) is int else 0


def _streams(
    places: Places, device_rows: Mapping[int, int], vendor: str, rows: KinetoRows,
    told: Mapping[tuple[int, int], tuple[StreamKind, bool]],
) -> Iterator[Stream]:  # fmt: skip
    """Describe the streams. CUPTI numbers the default stream of the first context 7, ROCm numbers it 0."""
    legacy = {"nvidia": 7, "amd": 0}.get(vendor)
    names = {(_number(device), _number(stream)): name for (device, stream), name in rows.names.items()}
    for device, stream in places.streams:
        by_number = (StreamKind.LEGACY, True) if stream == legacy else (StreamKind.UNKNOWN, False)
        kind, inferred = told.get((device, stream), by_number)
        yield Stream(
            device=device_rows[device],
            id=stream,
            kind=kind,
            inferred=inferred,
            priority=rows.priorities.get((device, stream)),
            name=names.get((device, stream), ""),
        )


_KINDS_BY_WORD = {kind.name.lower(): kind for kind in StreamKind}


def _told_streams(facts: Mapping[str, Any]) -> dict[tuple[int, int], tuple[StreamKind, bool]]:
    """Read what a trace that gapless wrote says of its streams: the kind, and whether that was inferred."""
    own = facts.get("gapless")
    streams = own.get("streams") if isinstance(own, Mapping) else None
    told: dict[tuple[int, int], tuple[StreamKind, bool]] = {}
    for stream in streams if isinstance(streams, list) else ():
        if not isinstance(stream, Mapping):
            continue
        device, number, word = (stream.get(name) for name in ("device", "stream", "kind"))
        if type(device) is int and type(number) is int and isinstance(word, str) and word in _KINDS_BY_WORD:
            told[device, number] = _KINDS_BY_WORD[word], stream.get("inferred") is True
    return told


def _clock(facts: Mapping[str, Any], zero: int) -> int | None:
    """Give the wall clock at ``zero``: told by the base, or plain from times that count from 1970."""
    base = facts.get("baseTimeNanoseconds")
    if type(base) is int and 0 < base < 1 << 62:
        return base + zero
    return zero if 10**18 < zero < 4 * 10**18 else None


def _info(facts: Mapping[str, Any]) -> dict[str, str | int]:
    """Keep the trace's own facts that are plain values, and those of ``distributedInfo``."""
    distributed = facts.get("distributedInfo")
    told = dict(facts) | (dict(distributed) if isinstance(distributed, Mapping) else {})
    return {
        name: value for name, value in told.items() if type(value) is int or (type(value) is str and len(value) <= 1000)
    }


_SYNC_EVENTS = (
    "Record with torch.profiler.profile(..., experimental_config="
    "torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True))."
)


def _unknown(
    ops: Columns, calls: Columns, marks: Columns, ranges: Columns, vendor: str, *, kinds_told: bool
) -> Iterator[Unknown]:
    """Say what the trace cannot tell, and how to record it so that it can."""
    if not len(ops["kind"]):
        return
    if not kinds_told:
        yield Unknown(
            what="stream-kinds",
            text="The trace does not say which streams wait for the default stream and which do not.",
            remedy="No option of torch.profiler records it. torch.cuda.Stream makes streams that do not wait.",
        )
    yield from _unknown_calls(ops, calls)
    yield from _unknown_waits(calls, marks, "" if vendor == "amd" else _SYNC_EVENTS)
    yield Unknown(
        what="buffers",
        text="The trace does not say which memory the operations read and write.",
        remedy="No option of torch.profiler records it.",
    )
    if not ((ranges["kind"] == RangeKind.PYTHON) | (ranges["stack"] >= 0)).any():
        yield Unknown(
            what="source-lines",
            text="The trace does not say from which lines of the program the work came.",
            remedy="Record with torch.profiler.profile(..., with_stack=True).",
        )
    host = np.where(ops["kind"] == OpKind.H2D, ops["src"], ops["dst"])
    copies = (ops["kind"] == OpKind.H2D) | (ops["kind"] == OpKind.D2H)
    if blind := int((copies & (host == MemoryKind.UNKNOWN)).sum()):
        yield Unknown(
            what="memory-kinds",
            text=f"For {blind:,} of {int(copies.sum()):,} copies the trace does not say whether the host's memory is "
            "pinned.",
            remedy="No option of torch.profiler records it on ROCm." if vendor == "amd" else "",
        )


def _unknown_calls(ops: Columns, calls: Columns) -> Iterator[Unknown]:
    if not len(calls["kind"]):
        yield Unknown(
            what="host-calls",
            text="The trace has no host calls: it does not say when the host issued work and when it waited.",
            remedy="Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
        )
    elif lone := int((ops["call"] < 0).sum()):
        yield Unknown(
            what="host-calls",
            text=f"The trace does not say which call issued {lone:,} of {len(ops['call']):,} operations.",
            remedy="Call torch.cuda.synchronize() before the profiler starts, so that no earlier work is in the trace.",
        )


def _unknown_waits(calls: Columns, marks: Columns, remedy: str) -> Iterator[Unknown]:
    linked = (marks["waits_on"] >= 0) | (marks["record"] >= 0)
    waits = marks["kind"] == MarkKind.WAIT
    blind = int((waits & ~(linked & (marks["stream"] >= 0))).sum())
    if blind or not len(calls["kind"]):
        which = (
            f"For {blind:,} of {int(waits.sum()):,} waits of streams for events"
            if blind
            else "If streams wait for events"
        )
        yield Unknown(
            what="event-waits", text=f"{which}, the trace does not say which stream waits for which.", remedy=remedy
        )
    asked = np.isin(calls["kind"], (CallKind.SYNC_STREAM, CallKind.SYNC_EVENT))
    told = ((marks["kind"] == MarkKind.SYNC_STREAM) & (marks["stream"] >= 0)) | (
        (marks["kind"] == MarkKind.SYNC_EVENT) & linked
    )
    asked[marks["call"][told & (marks["call"] >= 0)]] = False
    if blind := int(asked.sum()):
        yield Unknown(
            what="sync-targets",
            text=f"For {blind:,} synchronise call{'s' * (blind > 1)}, "
            "the trace does not say for which stream or event.",
            remedy=remedy,
        )
