"""Where the tables of CUPTI meet, whoever kept them: Nsight Systems or gapless's own recorder.

Tables are columns under CUPTI's names (``streamId``, ``eventId``, ``eventSyncId``), with ``process`` and ``place``
beside them: a place is one process on one device, and streams are at places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind
from gapless.timeline.sources.assembly import CallsById, Places, of_calls
from gapless.timeline.sources.columns import Columns, in_order, joined, take
from gapless.timeline.timeline import MarkKind, Marks, Ops

Int64: TypeAlias = NDArray[np.int64]

NONE = -1  # a number that the source does not tell
NO_TIME = -(1 << 62)  # the same for times, which may be negative
NOWHERE = (1 << 32) - 1  # CUPTI's number for "no stream" and "no event"
FARTHEST = 1 << 61  # ns from the source's zero

_MARK_OF_CALL = {
    CallKind.SYNC_EVENT: MarkKind.SYNC_EVENT,
    CallKind.SYNC_STREAM: MarkKind.SYNC_STREAM,
    CallKind.SYNC_DEVICE: MarkKind.SYNC_DEVICE,
    CallKind.WAIT_EVENT: MarkKind.WAIT,
}
_FOR_EVENTS = (MarkKind.WAIT, MarkKind.SYNC_EVENT)


def streams_of(table: Columns) -> tuple[Int64, Int64]:
    """Give place and number of the streams that a table names; numbers that are none become -1 in the table."""
    stream = table["streamId"]
    table["streamId"] = np.where((stream >= 0) & (stream < NOWHERE) & (table["place"] >= 0), stream, NONE)
    named = table["streamId"] >= 0
    return table["place"][named], table["streamId"][named]


def ops_of(work: Sequence[Columns], places: Places) -> Columns:
    """Make one table of all work, in order of start."""
    tables: list[Ops] = []
    for table in work:
        own = {name: column for name, column in table.items() if name in Ops.__slots__}
        tables.append(Ops.build(stream=places.rows(table["place"], table["streamId"]), **own))
    parts = [{name: table.column(name) for name in Ops.__slots__} for table in tables]
    return in_order(joined(parts))


def own(process: Int64, numbers: Int64, none: int = 0) -> Int64:
    """Make numbers of 32 bits that are unique in each process unique in the timeline; ``none`` for no number.

    Those of process 0, the first or only one, stay as they are.
    """
    return np.where((numbers > 0) & (numbers <= NOWHERE) & (process >= 0), numbers + (process << 32), none)


def told_marks(syncs: Columns, records: Columns, places: Places, calls: Columns, by_id: CallsById) -> Columns:
    """Make marks of what the device's tables say, with each wait tied to the record that it waits for."""
    for table in (syncs, records):
        call, ambiguous = by_id.rows(table["correlation"])
        table["call"] = np.where(ambiguous, NONE, call)
        table["stream"] = places.rows(table["place"], table["streamId"])
        table["event"] = own(table["process"], _told(table["eventId"]), NONE)
        table["sync"] = own(table["process"], _told(table["eventSyncId"]), NONE)
    syncs = _settled(syncs, calls)
    record = np.where(np.isin(syncs["kind"], _FOR_EVENTS), _record_of(syncs, records, calls), NONE)
    correlation = of_calls(records["correlation"], record)
    syncs |= {
        "waits_on": of_calls(records["stream"], record),
        "record": np.where(correlation > 0, correlation, NONE),
    }
    # A record that the device did not time has the time of its call; without one it goes.
    timed = (records["timestamp"] > 0) & (records["timestamp"] <= FARTHEST)
    nothing = np.full(len(timed), NONE, np.int64)
    records |= {
        "kind": np.full(len(timed), MarkKind.RECORD, np.int8),
        "start": np.where(timed, records["timestamp"], of_calls(calls["start"], records["call"])),
        "end": np.where(timed, records["timestamp"], of_calls(calls["end"], records["call"])),
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
    said = np.where(syncs["call"] >= 0, by_call[of_calls(calls["kind"], syncs["call"])], NONE)
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
    time = of_calls(calls["start"], call)
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


def marks_of(told: Columns, calls: Columns) -> Columns:
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
