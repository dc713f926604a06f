"""From the processes of a recording to a Timeline: times on one clock, links between calls and work, marks, places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import OpKind
from gapless.timeline.apis import call_kind
from gapless.timeline.sources.assembly import CallsById, of_calls, overlaps, unlink_doubtful
from gapless.timeline.sources.assembly import Places as Streams
from gapless.timeline.sources.columns import Columns, Numbering, in_order, joined, take
from gapless.timeline.sources.cupti import (
    FARTHEST,
    NO_TIME,
    NONE,
    marks_of,
    ops_of,
    own,
    streams_of,
    told_marks,
)
from gapless.timeline.sources.cupti_rows import (
    COPIES,
    SYNCS,
    marks_of_syncs,
    named_copies,
    named_graphs,
    named_host_functions,
    named_memsets,
    of_each,
    placed,
    shape,
    shared,
    timed,
)
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.recording_format import Block as Type
from gapless.timeline.sources.recording_names import OVERHEADS, plain
from gapless.timeline.sources.recording_places import Devices, Threads
from gapless.timeline.sources.recording_process import Process, Processes
from gapless.timeline.sources.recording_records import Kind
from gapless.timeline.sources.recording_stacks import stacks
from gapless.timeline.sources.recording_touches import touches
from gapless.timeline.sources.recording_unknown import unknown
from gapless.timeline.timeline import Calls, Marks, Ops, RangeKind, Ranges, Timeline, Touches

Int64: TypeAlias = NDArray[np.int64]

FORMAT = "gapless"

# CUPTI's numbers of memories; Nsight Systems has others.
_MEMORIES = {
    0: "UNKNOWN", 1: "PAGEABLE", 2: "PINNED", 3: "DEVICE", 4: "ARRAY", 5: "MANAGED", 6: "DEVICE_STATIC",
    7: "MANAGED_STATIC",
}  # fmt: skip
_START, _END = 2, 4  # flags of markers

_NO_TEXT = "Named {events} by a number: the recording has no text for it."
_NO_CLOCK = "Put a process whose clock was not recorded on the clock of another."
_ENDLESS = "Left out {events}: NVTX ranges that were still open when the recording ended."


def timeline(processes: Processes, source: str, losses: Losses) -> Timeline:
    """Make the Timeline of a recording in which at least one process stands."""
    every, strings = processes.all, processes.strings
    clocks = _clocks(every, losses)
    unwanted = [_after_the_end(process) for process in every]

    def table(kind: Kind) -> Columns:
        """Give the records of a kind of all processes, with their process, on the common clock."""
        parts: list[Columns] = []
        for process, (shift, _), gone in zip(every, clocks, unwanted, strict=True):
            part = process.table(kind)
            if gone is not None and "correlationId" in part:
                part = take(part, ~np.isin(part["correlationId"], gone))
            count = len(next(iter(part.values())))
            parts.append(_shifted(part, shift) | {"process": np.full(count, process.number, np.int64)})
        return joined(parts)

    calls = _calls(table, strings, losses)
    work = _work(table, processes, losses)
    syncs, records = _syncs(table), _records(table)
    memory = table(Kind.MEMORY2)
    ranges = in_order(_ranges(table, strings, losses))

    threads = Threads(every, [calls, ranges])
    for rows in (calls, ranges):
        rows["thread"] = threads.rows(rows)
        del rows["threadId"], rows["process"]
    calls = in_order(calls)
    by_id = CallsById(calls)
    syncs = timed(_timed_by_calls(syncs, calls, by_id), losses)
    devices = Devices(every, [*work, memory], (syncs, records))
    for rows in (*work, memory, syncs, records):
        rows["place"] = devices.place_of(rows)
        rows["correlation"] = own(rows["process"], rows.pop("correlationId"))
    for rows in (syncs, records):
        rows["device"] = devices.of_places(rows["place"])
    places = Streams(streams_of(rows) for rows in (*work, memory, syncs, records))
    ops = ops_of(work, places)
    ops["call"] = by_id.rows(ops["correlation"])[0]
    unlink_doubtful(ops, calls, by_id, losses)
    marks = marks_of(told_marks(syncs, records, places, calls, by_id), calls)
    calls["stack"] = stacks(every, calls["correlation"], strings)
    memory["stream"] = places.rows(memory["place"], memory["streamId"])
    touched = touches(every, memory, by_id, calls, ops)

    zero = min((int(rows["start"][0]) for rows in (ops, calls, ranges, marks) if len(rows["start"])), default=0)
    for rows in (ops, calls, ranges, marks):
        rows["start"] -= zero
        rows["end"] -= zero
    streams = tuple(devices.streams(places))
    ops["device"] = of_each([stream.device for stream in streams], ops["stream"], np.int16)
    found = Timeline(
        ops=Ops.build(**ops),
        calls=Calls.build(**{name: column for name, column in calls.items() if name != "driver"}),
        marks=Marks.build(**marks),
        ranges=Ranges.build(**ranges),
        touches=Touches.build(**touched),
        devices=devices.described,
        streams=streams,
        threads=threads.described(),
        strings=tuple(strings.things()),
        source=source,
        format=FORMAT,
        clock_ns=_wall(clocks, zero),
        info=_info(processes) | {"overlaps": overlaps(ops["stream"], ops["start"], ops["end"])},
        lost=losses.sentences(),
        mended=losses.mended(),
    )
    return unknown(found, processes)


def _after_the_end(process: Process) -> Int64 | None:
    """Give the correlations of calls that began when what was asked for was over; None where all was asked for."""
    until = process.end.get("until") if process.end else None
    if type(until) is not int:
        return None
    tables = [process.table(kind) for kind in (Kind.RUNTIME, Kind.DRIVER)]
    return np.concatenate([table["correlationId"][table["start"] >= until] for table in tables])


def _clocks(processes: Sequence[Process], losses: Losses) -> list[tuple[int, int | None]]:
    """Give for each process what to add to CUPTI's times for the monotonic clock, and what more for the wall clock.

    CUPTI's clocks in the processes of a machine agree but for some microseconds: one of which nothing is told takes
    another's, as without one its times would lie years away.
    """
    told = [_clock(process) for process in processes]
    known = next((clock for clock in told if clock is not None), None)
    if known is None:
        return [(0, None)] * len(told)
    losses.add(_NO_CLOCK, told.count(None), kept=True)
    return [known if clock is None else clock for clock in told]


def _clock(process: Process) -> tuple[int, int] | None:
    """Give what to add to CUPTI's times of a process; None where it does not say.

    Medians: a row that was damaged, or taken while the process was held up, must not move everything.
    """
    rows = process.rows(Type.CLOCK)
    cupti, real, monotonic = (rows[name].astype(np.int64) for name in ("cupti", "realtime", "monotonic"))
    usable = np.all([(column > 0) & (column < FARTHEST) for column in (cupti, real, monotonic)], axis=0)
    if not usable.any():
        return None
    return _middle((monotonic - cupti)[usable]), _middle((real - monotonic)[usable])


def _middle(numbers: Int64) -> int:
    """Give the median as one of the numbers: a mean of two would go through a float, which is too coarse for ns."""
    return int(np.sort(numbers)[len(numbers) // 2])


def _wall(clocks: Sequence[tuple[int, int | None]], zero: int) -> int | None:
    """Give the wall clock at the timeline's zero, None where no process tells."""
    return next((zero + more for _, more in clocks if more is not None), None)


def _shifted(part: Columns, shift: int) -> Columns:
    """Put times onto the common clock. Where start and end are both 0, CUPTI had no time."""
    moved = dict(part)
    for name in ("start", "end", "timestamp", "deviceTimestamp"):
        if name in part:
            column = part[name]
            known = (column > -FARTHEST) & (column < FARTHEST) & (column != 0)
            moved[name] = np.where(known, column + shift, NO_TIME)
    return moved


def _texts(column: NDArray[np.int32], numbers: NDArray[Any], what: str, strings: Numbering, losses: Losses) -> Columns:
    """Give a column of names: the text, else the number."""
    blind = column == NONE
    if blind.any():
        losses.add(_NO_TEXT, int(blind.sum()), kept=True)
        distinct, row = np.unique(numbers[blind], return_inverse=True)
        named = np.array(strings.of([f"{what} {number}" for number in distinct.tolist()]), np.int32)
        column = column.copy()
        column[blind] = named[row]
    return {"name": column}


def _calls(table: Callable[..., Columns], strings: Numbering, losses: Losses) -> Columns:
    """Give calls into the runtime and the driver."""
    parts: list[Columns] = []
    for kind, word in ((Kind.RUNTIME, "runtime call"), (Kind.DRIVER, "driver call")):
        rows = timed(table(kind), losses)
        rows |= _texts(rows.pop("cbidText"), rows.pop("cbid"), word, strings, losses)
        parts.append(rows | {"driver": np.full(len(rows["start"]), kind is Kind.DRIVER, np.bool_)})
    calls = joined(parts)
    apis = strings.things()
    return calls | {
        "kind": of_each([call_kind(api) for api in apis], calls["name"]),
        "correlation": own(calls["process"], calls.pop("correlationId")),
        "result": calls.pop("returnValue"),
    }


def _work(table: Callable[..., Columns], processes: Processes, losses: Losses) -> list[Columns]:
    """Give kernels, copies, memsets, graphs and host functions, each as a table."""
    strings = processes.strings
    kernels = placed(timed(table(Kind.KERNEL), losses), losses)
    kernels |= _kernel_names(kernels, processes, losses)
    count = len(kernels["start"])
    kernels |= {
        "kind": np.full(count, OpKind.KERNEL, np.int8),
        "registers": kernels.pop("registersPerThread"),
        "shared": shared(kernels),
        "grid": shape(kernels, "grid"),
        "block": shape(kernels, "block"),
    }
    copies: list[Columns] = []
    for kind in (Kind.MEMCPY, Kind.MEMCPY2):
        rows = placed(timed(table(kind), losses), losses)
        if kind is Kind.MEMCPY:
            nothing = np.full(len(rows["start"]), NONE, np.int32)
            rows |= {"srcDeviceId": nothing, "dstDeviceId": nothing}
        copies.append(named_copies(rows, COPIES, _MEMORIES, strings, losses))
    memsets = placed(timed(table(Kind.MEMSET), losses), losses)
    memsets["memKind"] = memsets.pop("memoryKind")
    graphs = timed(table(Kind.GRAPH_TRACE), losses)
    functions = timed(table(Kind.HOST_LAUNCH), losses)
    for rows in (graphs, functions):
        nothing = np.full(len(rows["start"]), NONE, np.int64)
        rows |= {"graphNodeId": nothing, "graphId": rows.get("graphId", nothing)}
    return [
        kernels,
        *copies,
        named_memsets(memsets, _MEMORIES, strings),
        named_graphs(placed(graphs, losses), strings),
        named_host_functions(placed(functions, losses), strings),
    ]


def _kernel_names(kernels: Columns, processes: Processes, losses: Losses) -> Columns:
    """Give the names of kernels as C++ has them where the recording tells, else without arguments, each its own."""
    strings = processes.strings
    column = _texts(kernels.pop("nameText"), kernels.pop("name"), "kernel", strings, losses)["name"]
    distinct, row = np.unique(column, return_inverse=True)
    things = strings.things()
    met: dict[str, int] = {}
    names: list[str] = []
    for mangled in (things[number] for number in distinct.tolist()):
        name = processes.demangled.get(mangled, "") or plain(mangled)
        met[name] = met.get(name, 0) + 1
        names.append(name if met[name] == 1 else f"{name} #{met[name]}")
    return {"name": of_each(strings.of(names), row, np.int32)}


def _syncs(table: Callable[..., Columns]) -> Columns:
    """Give waits of the host and of streams. ``kind`` is a MarkKind, -1 for one that is none."""
    rows = table(Kind.SYNCHRONIZATION)
    rows |= {"eventId": rows.pop("cudaEventId"), "eventSyncId": rows.pop("cudaEventSyncId")}
    rows["deviceId"] = np.full(len(rows["start"]), NONE, np.int32)
    return rows | {"kind": marks_of_syncs(SYNCS, rows.pop("type"))}


def _timed_by_calls(syncs: Columns, calls: Columns, by_id: CallsById) -> Columns:
    """Give waits that CUPTI did not time the time of their call."""
    call = by_id.rows(own(syncs["process"], syncs["correlationId"]))[0]
    untimed = (syncs["start"] == NO_TIME) & (call >= 0)
    return syncs | {name: np.where(untimed, of_calls(calls[name], call), syncs[name]) for name in ("start", "end")}


def _records(table: Callable[..., Columns]) -> Columns:
    """Give records of events. ``timestamp`` is when the device got there, ``NO_TIME`` where it was not asked."""
    rows = table(Kind.CUDA_EVENT)
    return rows | {"timestamp": rows.pop("deviceTimestamp"), "eventSyncId": rows.pop("cudaEventSyncId")}


def _ranges(table: Callable[..., Columns], strings: Numbering, losses: Losses) -> Columns:
    """Give NVTX ranges and what CUPTI itself took, as columns of ``Ranges`` with process and ``threadId``."""
    parts = [_nvtx(table(Kind.MARKER), strings, losses)]
    rows = timed(table(Kind.OVERHEAD), losses, kept=True)
    kinds = rows.pop("overheadKind")
    rows = take(rows | {"kinds": kinds}, np.isin(kinds, list(OVERHEADS)))
    kinds = rows.pop("kinds")
    distinct, row = np.unique(kinds, return_inverse=True)
    names = strings.of([OVERHEADS[kind] for kind in distinct.tolist()])
    parts.append(
        rows
        | {
            "threadId": rows.pop("objectId.pt.threadId"),
            "kind": np.full(len(kinds), RangeKind.OVERHEAD, np.int8),
            "name": of_each(names, row, np.int32),
        }
    )
    return joined(parts)


def _nvtx(markers: Columns, strings: Numbering, losses: Losses) -> Columns:
    """Pair the begins and ends of NVTX ranges by their ids. Names are ``domain:text``, or the text alone."""
    flags = markers["flags"]
    begins = np.flatnonzero((flags & _START > 0) & (markers["timestamp"] != NO_TIME))
    ends = np.flatnonzero((flags & _END > 0) & (markers["timestamp"] != NO_TIME))
    key = (markers["process"] << 32) + (markers["id"] & 0xFFFFFFFF)
    ends = ends[np.argsort(key[ends], kind="stable")]
    at = np.searchsorted(key[ends], key[begins])
    paired = at < len(ends)
    paired[paired] = key[ends][at[paired]] == key[begins][paired]
    losses.add(_ENDLESS, int((~paired).sum()), kept=True)
    end_rows = ends[at[paired]]
    begins = begins[paired]
    things = strings.things()
    both, row = np.unique(
        (markers["domainText"][begins].astype(np.int64) << 32)
        + (markers["nameText"][begins].astype(np.int64) & 0xFFFFFFFF),
        return_inverse=True,
    )
    names = list(_range_names(both.tolist(), things))
    kinds = [RangeKind.CPU_OP if operator else RangeKind.NVTX for _, operator in names]
    rows = {
        "start": markers["timestamp"][begins],
        "end": markers["timestamp"][end_rows],
        "threadId": markers["objectId.pt.threadId"][begins],
        "process": markers["process"][begins],
        "kind": of_each(kinds, row, np.int8),
        "name": of_each(strings.of([name for name, _ in names]), row, np.int32),
    }
    return timed(rows, losses, kept=True)


def _range_names(pairs: Sequence[int], things: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Give the name of each range, and whether it is an operator as PyTorch names it (``aten::mm, op_id = 34``)."""
    for pair in pairs:
        domain, text = pair >> 32, pair & 0xFFFFFFFF
        name = things[text] if text < len(things) else "unnamed"
        before, separator, number = name.partition(", op_id = ")
        if separator and number[:1].isdigit():
            yield before.partition(", seq = ")[0], True
        else:
            yield (f"{things[domain]}:{name}" if domain >= 0 else name), False


def _info(processes: Processes) -> dict[str, str | int]:
    """Keep the recording's own facts that are plain values, those of the first process by their names."""
    found: dict[str, str | int] = {"processes": len(processes.all)}
    facts = processes.all[0].facts if processes.all else {}
    environment = facts.get("environment")
    command = facts.get("command")
    if isinstance(command, list):
        found["command"] = " ".join(str(word) for word in command)[:1000]
    for prefix, told in (("", facts), ("environment.", environment if isinstance(environment, dict) else {})):
        for name, value in told.items():
            if isinstance(name, str) and (type(value) is int or (type(value) is str and len(value) <= 1000)):
                found[f"{prefix}{name}"] = value
    return found
