"""From the tables of an Nsight Systems export to a Timeline: links, marks, streams, and what is doubtful.

Ids of all processes but the first are raised by a multiple of 2^32, so that equal ids mean the same thing everywhere in
the timeline; those of a report with one process stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model.errors import GaplessError
from gapless.model.kinds import CallKind
from gapless.timeline.sources import nsys_rows as rows
from gapless.timeline.sources.assembly import CallsById, Places, on_several, overlaps
from gapless.timeline.sources.columns import Columns, Numbering, in_order, take
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.nsys_database import NONE, Database, text_of, whole
from gapless.timeline.sources.nsys_ids import NOWHERE, Devices, Processes, Threads
from gapless.timeline.sources.nsys_unknown import unknown
from gapless.timeline.timeline import Calls, MarkKind, Marks, Ops, Ranges, Timeline

Int64: TypeAlias = NDArray[np.int64]

FORMAT = "nsys"

_MARK_OF_CALL = {
    CallKind.SYNC_EVENT: MarkKind.SYNC_EVENT,
    CallKind.SYNC_STREAM: MarkKind.SYNC_STREAM,
    CallKind.SYNC_DEVICE: MarkKind.SYNC_DEVICE,
    CallKind.WAIT_EVENT: MarkKind.WAIT,
}
_FOR_EVENTS = (MarkKind.WAIT, MarkKind.SYNC_EVENT)
_KNOWN_SCHEMAS = ("1", "2", "3")
_AMBIGUOUS = "Could not tell which call issued {events}: several calls or streams share the correlation id."
_NOT_ALL = re.compile(r"not all|lost|drop|overflow|truncat|incomplete|might have not|missing", re.IGNORECASE)


def timeline(export: Database, losses: Losses) -> Timeline:
    """Make the Timeline of an export. Raises ``GaplessError`` for a database that is none."""
    if not export.has(*rows.TABLES, "StringIds"):
        raise GaplessError(
            f"{export.source} is an SQLite database, but no export of Nsight Systems: it has none of the tables "
            f"{rows.RUNTIME}, {rows.KERNEL}, {rows.MEMCPY}, StringIds."
        )
    export.expect(rows.TABLES)
    strings = Numbering()
    calls = rows.calls(export, strings, losses)
    work = [
        read(export, strings, losses)
        for read in (rows.kernels, rows.copies, rows.memsets, rows.graphs, rows.host_functions)
    ]
    syncs, records = rows.syncs(export, losses), rows.records(export)
    ranges = in_order(rows.ranges(export, strings, losses))

    processes = Processes([*(table["globalPid"] for table in (*work, syncs, records)), calls["thread"]])
    calls["correlation"] = processes.own(calls["thread"], calls.pop("correlationId"))
    threads = Threads([calls["thread"], ranges["thread"]])
    for table in (calls, ranges):
        table["thread"] = threads.rows(table["thread"])
    calls = in_order(calls)
    by_id = CallsById(calls)

    devices = Devices(export, processes, work, (syncs, records))
    for table in (*work, syncs, records):
        table["place"] = devices.place_of(table)
        table["correlation"] = processes.own(table["globalPid"], table.pop("correlationId"))
    places = Places(_streams_of(table) for table in (*work, syncs, records))
    ops = _ops(work, places)
    ops["call"] = by_id.rows(ops["correlation"])[0]
    _unlink_doubtful(ops, calls, by_id, losses)
    marks = _marks(_told_marks(syncs, records, processes, places, calls, by_id), calls)

    zero = min((int(table["start"][0]) for table in (ops, calls, ranges, marks) if len(table["start"])), default=0)
    for table in (ops, calls, ranges, marks):
        table["start"] -= zero
        table["end"] -= zero
    described = devices.described()
    streams = tuple(devices.streams(places, described))
    ops["device"] = rows.of_each([stream.device for stream in streams], ops["stream"], np.int16)
    _add_doubts(export, losses)
    found = Timeline(
        ops=Ops.build(**ops),
        calls=Calls.build(**{name: column for name, column in calls.items() if name != "driver"}),
        marks=Marks.build(**marks),
        ranges=Ranges.build(**ranges),
        devices=described,
        streams=streams,
        threads=threads.described(export),
        strings=tuple(strings.things()),
        source=export.source,
        format=FORMAT,
        clock_ns=_clock(export, zero),
        info=export.facts | {"session_ns": zero, "overlaps": overlaps(ops["stream"], ops["start"], ops["end"])},
    )
    if export.damage and not (len(found.ops) or len(found.calls)):
        raise GaplessError(f"{export.source} is damaged, and nothing of use could be read of it ({export.damage}).")
    return replace(found, unknown=tuple(unknown(found)), lost=losses.sentences())


def _streams_of(table: Columns) -> tuple[Int64, Int64]:
    """Give place and number of the streams that a table names; numbers that are none become -1 in the table."""
    stream = table["streamId"]
    table["streamId"] = np.where((stream >= 0) & (stream < NOWHERE) & (table["place"] >= 0), stream, NONE)
    named = table["streamId"] >= 0
    return table["place"][named], table["streamId"][named]


def _ops(work: Sequence[Columns], places: Places) -> Columns:
    """Make one table of all work, in order of start."""
    tables: list[Ops] = []
    for table in work:
        own = {name: column for name, column in table.items() if name in Ops.__slots__}
        tables.append(Ops.build(stream=places.rows(table["place"], table["streamId"]), **own))
    return in_order({name: np.concatenate([table.column(name) for table in tables]) for name in Ops.__slots__})


def _of_calls(values: NDArray[Any], call: Int64) -> NDArray[Any]:
    """Give a column of the calls for each of these rows; -1 where the call is unknown."""
    return np.where(call >= 0, values[call] if len(values) else NONE, NONE)


def _unlink_doubtful(ops: Columns, calls: Columns, by_id: CallsById, losses: Losses) -> None:
    """Take back links to calls where the id is of several calls, or of work on several streams that is no graph's."""
    several = on_several(ops["correlation"], ops["stream"])
    graph = (ops["graph"] >= 0) | (_of_calls(calls["kind"], ops["call"]) == CallKind.GRAPH_LAUNCH)
    doubtful = (ops["call"] >= 0) & (by_id.rows(ops["correlation"])[1] | (several & ~graph))
    losses.add(_AMBIGUOUS, int(doubtful.sum()))
    ops["call"] = np.where(doubtful, NONE, ops["call"])


def _told_marks(
    syncs: Columns, records: Columns, processes: Processes, places: Places, calls: Columns, by_id: CallsById
) -> Columns:
    """Make marks of the export's own rows, with each wait tied to the record that it waits for."""
    for table in (syncs, records):
        call, ambiguous = by_id.rows(table["correlation"])
        table["call"] = np.where(ambiguous, NONE, call)
        table["stream"] = places.rows(table["place"], table["streamId"])
        table["event"] = processes.own(table["globalPid"], _told(table["eventId"]), NONE)
        table["sync"] = processes.own(table["globalPid"], _told(table["eventSyncId"]), NONE)
    syncs = _settled(syncs, calls)
    record = np.where(np.isin(syncs["kind"], _FOR_EVENTS), _record_of(syncs, records, calls), NONE)
    correlation = _of_calls(records["correlation"], record)
    syncs |= {
        "waits_on": _of_calls(records["stream"], record),
        "record": np.where(correlation > 0, correlation, NONE),
    }
    # A record that the device did not time has the time of its call; without one it goes.
    timed = (records["timestamp"] > 0) & (records["timestamp"] <= rows.FARTHEST)
    nothing = np.full(len(timed), NONE, np.int64)
    records |= {
        "kind": np.full(len(timed), MarkKind.RECORD, np.int8),
        "start": np.where(timed, records["timestamp"], _of_calls(calls["start"], records["call"])),
        "end": np.where(timed, records["timestamp"], _of_calls(calls["end"], records["call"])),
        "waits_on": nothing,
        "record": nothing,
    }
    records = take(records, timed | (records["call"] >= 0))
    return {name: np.concatenate([syncs[name], records[name]]) for name in Marks.__slots__}


def _settled(syncs: Columns, calls: Columns) -> Columns:
    """Let the call say what a wait is, where it is known: in some exports the numbers are one off.

    Rows that are no wait, and waits for an event that name neither an event nor such a call, are left out.
    """
    by_call = np.full(max(CallKind) + 1, NONE, np.int8)
    by_call[list(_MARK_OF_CALL)] = list(_MARK_OF_CALL.values())
    said = np.where(syncs["call"] >= 0, by_call[_of_calls(calls["kind"], syncs["call"])], NONE)
    kind = np.where(said >= 0, said, syncs["kind"])
    contradicts = np.isin(kind, _FOR_EVENTS) & (syncs["event"] < 0) & (said < 0)
    return take(syncs | {"kind": kind}, (kind >= 0) & ~contradicts)


def _told(number: Int64) -> Int64:
    return np.where(number == NOWHERE, NONE, number)


def _record_of(syncs: Columns, records: Columns, calls: Columns) -> Int64:
    """Give for each wait the row of the record it waits for, -1 unknown.

    Newer exports give record and wait one id. In older ones it is the last record of the event that was called before
    the wait (R5.2).
    """
    count = len(records["event"])
    if (records["sync"] >= 0).any():
        ids, first, counts = np.unique(records["sync"], return_index=True, return_counts=True)
        at = np.minimum(np.searchsorted(ids, syncs["sync"]), len(ids) - 1)
        known = (ids[at] == syncs["sync"]) & (counts[at] == 1) & (syncs["sync"] >= 0)
        return np.where(known, first[at], NONE)
    event = np.concatenate([records["event"], syncs["event"]])
    call = np.concatenate([records["call"], syncs["call"]])
    time = _of_calls(calls["start"], call)
    is_wait = np.arange(len(event)) >= count
    usable = (event >= 0) & (call >= 0)
    order = np.flatnonzero(usable)
    order = order[np.lexsort((is_wait[order], time[order], event[order]))]
    found = np.full(len(event), NONE, np.int64)
    if len(order):
        last = np.maximum.accumulate(np.where(is_wait[order], NONE, np.arange(len(order))))
        earlier = order[np.maximum(last, 0)]
        found[order] = np.where((last >= 0) & (event[earlier] == event[order]), earlier, NONE)
    return found[count:]


def _marks(told: Columns, calls: Columns) -> Columns:
    """Add the records and waits that only the host's calls tell of, and sort."""
    parts = [told]
    for asked, kind in ((CallKind.RECORD, MarkKind.RECORD), (CallKind.WAIT_EVENT, MarkKind.WAIT)):
        own = np.setdiff1d(np.flatnonzero(calls["kind"] == asked), told["call"][told["kind"] == kind])
        nothing = np.full(len(own), NONE, np.int64)
        parts.append(
            dict.fromkeys(told, nothing)
            | {"kind": np.full(len(own), kind, np.int8), "call": own}
            | {name: calls[name][own] for name in ("start", "end")}
        )
    return in_order({name: np.concatenate([part[name] for part in parts]) for name in told})


def _clock(export: Database, zero: int) -> int | None:
    """Give the wall clock at the timeline's zero, which lies ``zero`` ns after the session's start."""
    for (start,) in export.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)):
        if 0 < whole(start) < 1 << 62:
            return whole(start) + zero
    return None


def _add_doubts(export: Database, losses: Losses) -> None:
    """Say where the export is of an unknown kind, and where Nsight Systems itself says that it lost something."""
    if export.schema and export.schema.split(".")[0] not in _KNOWN_SCHEMAS:
        losses.add(
            f"The export has schema version {export.schema[:40]}, which this version of gapless does not know: columns "
            "may mean something else."
        )
    said = {
        text_of(text).strip()[:300]
        for severity, text in export.rows("DIAGNOSTIC_EVENT", ("severity", "text"))
        if whole(severity) in (2, 3) and _NOT_ALL.search(text_of(text)) and re.search("CUDA|NVTX", text_of(text))
    }
    for text in sorted(said)[:10]:
        losses.add(f"Nsight Systems says: {text}")
