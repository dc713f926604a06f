"""From the tables of an Nsight Systems export to a Timeline: links, marks, streams, and what is doubtful.

Ids of all processes but the first are raised by a multiple of 2^32, so that equal ids mean the same thing everywhere in
the timeline; those of a report with one process stay as they are.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from gapless.model.errors import GaplessError
from gapless.timeline.sources import nsys_rows as rows
from gapless.timeline.sources.assembly import CallsById, Places, overlaps, unlink_doubtful
from gapless.timeline.sources.columns import Numbering, in_order
from gapless.timeline.sources.cupti import marks_of, ops_of, streams_of, told_marks
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.nsys_database import Database, text_of, whole
from gapless.timeline.sources.nsys_ids import Devices, Processes, Threads
from gapless.timeline.sources.nsys_unknown import unknown
from gapless.timeline.timeline import Calls, Marks, Ops, Ranges, Timeline

FORMAT = "nsys"

_KNOWN_SCHEMAS = ("1", "2", "3")
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
    places = Places(streams_of(table) for table in (*work, syncs, records))
    ops = ops_of(work, places)
    ops["call"] = by_id.rows(ops["correlation"])[0]
    unlink_doubtful(ops, calls, by_id, losses)
    described = devices.described()
    for table in (syncs, records):
        table["device"] = devices.rows_of_places(table["place"], described)
    marks = marks_of(told_marks(syncs, records, places, calls, by_id), calls)

    zero = min((int(table["start"][0]) for table in (ops, calls, ranges, marks) if len(table["start"])), default=0)
    for table in (ops, calls, ranges, marks):
        table["start"] -= zero
        table["end"] -= zero
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
    return replace(found, unknown=tuple(unknown(found)), lost=losses.sentences(), mended=losses.mended())


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
