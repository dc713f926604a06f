"""What a program itself is told while it runs: times between events, answers of queries, errors of calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gapless.model.kinds import CallKind, CudaError
from gapless.model.schedule import Schedule
from gapless.model.simulation import Simulation
from gapless.views import wording
from gapless.views.reasons import call_text

MOST_TOLD = 40  # of each


def ns(ps: int) -> float:
    """Give ps in ns."""
    return ps / 1000


def answers(played: Simulation) -> Iterator[dict[str, Any]]:
    """Give what the program itself was told: times between events, and answers of queries."""
    run, rows = played.schedule, played.schedule.program.rows
    asked = np.flatnonzero(np.isin(rows.call, (CallKind.ELAPSED, CallKind.QUERY)))
    for row in asked[:MOST_TOLD].tolist():
        answer = {"line": played.line_of(row), "said": call_text(run, row)}
        if rows.call[row] == CallKind.QUERY:
            if run.error[row] in (0, CudaError.NOT_READY):
                yield answer | {"got": "not ready" if run.error[row] else "success"}
        elif (time := run.elapsed(row)) is not None:
            between = [
                wording.visible(run.program.events[event].name) for event in (rows.object[row], rows.second[row])
            ]
            yield (
                answer
                | {
                    "said": f"elapsed time from {between[0]} to {between[1]}",
                    "got": wording.duration(time / 1e9),
                }
                | _worked_between(run, row, time)
            )


def _worked_between(run: Schedule, row: int, measured: int) -> dict[str, Any]:
    """Say what the stream of two events really had to do between them, which the time between them may not tell.

    Only of one host thread, where the text says which record of an event is the last one before the call.
    """
    rows = run.program.rows
    events = int(rows.object[row]), int(rows.second[row])
    records = [np.flatnonzero((rows.call[:row] == CallKind.RECORD) & (rows.object[:row] == e)) for e in events]
    if len(run.program.threads) > 1 or not all(map(len, records)):
        return {}
    first, last = (int(found[-1]) for found in records)
    stream = wording.visible(run.program.streams[int(rows.stream[first])].name)
    drawn = {"stream": stream, "from": ns(int(run.start[first])), "to": ns(int(run.start[last]))}
    if rows.stream[first] != rows.stream[last] or first > last:
        return {"really": "The two events are on different streams: the time tells nothing about one of them."}
    inside = np.flatnonzero((rows.stream == rows.stream[first]) & (run.engine[: len(run.program)] >= 0))
    inside = inside[(inside > first) & (inside < last) & (run.start[inside] >= 0)]
    if not len(inside):
        return drawn | {"really": f"Nothing was put into stream {stream} between them: they measure no work at all."}
    worked = int((run.end[inside] - run.start[inside]).sum())
    if abs(measured - worked) <= 1000:
        return drawn | {"really": "That is what the work between them takes."}
    took = wording.duration(worked / 1e9)
    return drawn | {"really": f"The work between them takes {took}; the rest of the measured time is waiting."}


def failed(played: Simulation) -> Iterator[dict[str, Any]]:
    """Tell the calls that return an error."""
    run = played.schedule
    names = {error.value: error.cuda_name for error in CudaError}
    for row in np.flatnonzero((run.error != 0) & (run.error != CudaError.NOT_READY))[:MOST_TOLD].tolist():
        error = int(run.error[row])
        said = f"{call_text(run, row)} returns {names.get(error, 'error')} ({error})"
        yield {"line": played.line_of(row), "said": said}
