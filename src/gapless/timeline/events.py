"""Which record each wait of a stream is about."""

from __future__ import annotations

import numpy as np

from gapless.timeline.timeline import MarkKind, Timeline


def waits_for_records(timeline: Timeline) -> dict[int, int]:
    """Give for each wait whose record is known, and of both the stream: row of the wait -> row of the record."""
    marks, calls = timeline.marks, timeline.calls
    recorded = np.flatnonzero((marks.kind == MarkKind.RECORD) & (marks.call >= 0) & (marks.stream >= 0))
    ids = calls.correlation[marks.call[recorded]] if len(recorded) else recorded
    by_id = {id_: row for id_, row in zip(ids.tolist(), recorded.tolist(), strict=True) if id_ > 0}
    waits = np.flatnonzero((marks.kind == MarkKind.WAIT) & (marks.record > 0) & (marks.stream >= 0))
    about = marks.record[waits].tolist()
    return {row: by_id[id_] for row, id_ in zip(waits.tolist(), about, strict=True) if id_ in by_id}
