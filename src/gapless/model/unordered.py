"""Why nothing puts the two accesses of a race in order: said in words, from the program and one run of it."""

from __future__ import annotations

import numpy as np

from .kinds import CallKind, OpKind, StreamKind
from .races import Access, Race, RaceClass
from .schedule import Schedule


def why(run: Schedule, race: Race) -> str:
    """Say in a sentence why the documentation does not put one access of a race before the other."""
    program, rows = run.program, run.program.rows
    first, second = race.first.row, race.second.row
    x, y = called(run, race.first), called(run, race.second)
    threads = [program.threads[rows.thread[row]] for row in (first, second)]
    if race.misplaced:
        return f"{x} comes first, whatever the timing"
    if race.kind is RaceClass.NONDETERMINISM:
        return f"threads {threads[0]} and {threads[1]} issue them, and nothing tells the one when the other has"
    if threads[0] != threads[1]:
        return f"threads {threads[0]} and {threads[1]} issue them, and no event, wait or message orders the two"
    if race.unseen:
        return f"a stream waits for a value in memory; CUDA sees no order of {x} and {y} in that"
    if race.kind is RaceClass.WARNING:
        return f"the copy {x} may still use its host memory when its call has returned"
    if rows.op[first] >= 0 and rows.op[second] < 0:
        stream = program.streams[rows.stream[first]].name
        return f"the host does not wait for {x} (stream {stream}) before it gets to {y}"
    in_graph = race.first.run > 0 and race.second.run > 0
    if in_graph or rows.op[first] < 0 or rows.stream[first] == rows.stream[second]:
        return f"no path leads from {x} to {y}" + (" in the graph" if in_graph else "")
    return _between_streams(run, race)


def called(run: Schedule, access: Access) -> str:
    """Give the name of an access: its own, or that of its call, or what the call is."""
    return access.name if run.program.name_of(access.row) else run.program.brief(access.row)


def _between_streams(run: Schedule, race: Race) -> str:
    program, rows = run.program, run.program.rows
    first, second = race.first.row, race.second.row
    x, y = called(run, race.first), called(run, race.second)
    left, right = (program.streams[rows.stream[row]] for row in (first, second))
    for row in reversed(_waits_before(run, int(rows.stream[second]), second)):
        event, record = program.events[rows.object[row]].name, run.saw.get(row, -1)
        if record < 0 and _recorded_in(run, int(rows.object[row]), int(rows.stream[first])):
            return f"stream {right.name} waits for event {event} before it is recorded, so for nothing"
        if 0 <= record < len(program) and rows.stream[record] == rows.stream[first] and record < first:
            return f"stream {right.name} waits for event {event}, which was recorded before {x}"
    kinds = {left.kind, right.kind}
    if kinds == {StreamKind.LEGACY, StreamKind.NON_BLOCKING}:
        plain = right.name if left.kind == StreamKind.LEGACY else left.name
        return f"stream {plain} is non-blocking: the default stream does not fence it. No event orders {x} and {y}"
    return f"streams {left.name} and {right.name} run side by side, and no event leads from {x} to {y}"


def _waits_before(run: Schedule, stream: int, row: int) -> list[int]:
    """Give the waits that a stream was given before an operation, in their order."""
    rows = run.program.rows
    waits = np.flatnonzero((rows.op == OpKind.WAIT) & (rows.stream == stream))
    return waits[waits < row].tolist()


def _recorded_in(run: Schedule, event: int, stream: int) -> bool:
    rows = run.program.rows
    return bool(((rows.call == CallKind.RECORD) & (rows.object == event) & (rows.stream == stream)).any())
