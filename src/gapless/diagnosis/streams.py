"""Is a stream blocking or not? Most sources do not tell; the fencing that a timeline shows does.

Work of a blocking stream never overlaps work of the legacy default stream that was issued before or after it (R2.1).
One overlap against that order therefore proves a stream non-blocking. No overlap although there was every chance for it
says blocking, as long as event waits do not explain the same picture. What is read off so is marked inferred.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.model.kinds import CallKind, StreamKind
from gapless.timeline.timeline import Stream, Timeline

from .work import HOP, LONG_AGO, Ints, Work

CLOCK_NOISE = 2_000  # ns by which intervals of one device clock may seem to overlap


def infer_kinds(work: Work) -> Timeline:
    """Give the timeline with the kinds of this device's unknown streams inferred where the fencing shows them."""
    timeline = work.timeline
    legacy = [row for row, stream in enumerate(timeline.streams) if stream.kind is StreamKind.LEGACY]
    used = set(np.unique(work.ops.stream).tolist())
    fencing = np.isin(work.ops.stream, legacy)
    if not fencing.any():
        return timeline
    waits = int(np.count_nonzero(timeline.calls.kind == CallKind.WAIT_EVENT))
    streams = list(timeline.streams)
    for row, stream in enumerate(streams):
        if stream.kind is StreamKind.UNKNOWN and row in used:
            streams[row] = _inferred(stream, work, work.ops.stream == row, fencing, waits)
    return timeline.with_streams(streams)


def _inferred(stream: Stream, work: Work, mine: np.ndarray, fencing: np.ndarray, waits: int) -> Stream:
    order = np.lexsort((work.ops.start, work.issue))
    broken = kept = 0
    for ours, theirs in ((mine, fencing), (fencing, mine)):
        before, after = order[ours[order]], order[theirs[order]]
        for engine in np.unique(work.engine[after]).tolist():
            # Work of one engine is serial anyway and shows nothing, so only pairs on different engines are looked at.
            earlier, later = before[work.engine[before] != engine], after[work.engine[after] == engine]
            ended = _latest_end_before(work, earlier, later)
            start = work.ops.start[later]
            broken += int(np.count_nonzero(ended > start + CLOCK_NOISE))
            pending = ended > work.launched[later]  # the fence, and not the host, decided when it started
            kept += int(np.count_nonzero(pending & (ended <= start) & (start - ended <= HOP)))
    if broken:
        return replace(stream, kind=StreamKind.NON_BLOCKING, inferred=True)
    if kept > 2 * waits:
        return replace(stream, kind=StreamKind.BLOCKING, inferred=True)
    return stream


def _latest_end_before(work: Work, earlier: Ints, later: Ints) -> Ints:
    """For each later operation the latest end among the earlier ones issued before it (both in issue order)."""
    if not len(earlier):
        return np.full(len(later), LONG_AGO)
    ends = np.maximum.accumulate(work.ops.end[earlier])
    at = np.searchsorted(work.issue[earlier], work.issue[later], side="left") - 1
    return np.where(at >= 0, ends[np.maximum(at, 0)], LONG_AGO)
