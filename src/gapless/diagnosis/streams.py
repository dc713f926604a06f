"""Is a stream blocking or not? Most sources do not tell; the fencing that a timeline shows does.

Work of a blocking stream never overlaps work of the legacy default stream that was issued before or after it (R2.1).
One overlap against that order therefore proves a stream non-blocking. No overlap although there was every chance for it
says blocking, as long as event waits do not explain the same picture. What is read off so is marked inferred.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.model.kinds import CallKind, StreamKind
from gapless.timeline.timeline import Timeline

from .work import HOP, LONG_AGO, Bools, Ints, Work

CLOCK_NOISE = 2_000  # ns by which intervals of one device clock may seem to overlap
CHANCE = 3  # so many times are no chance


def infer_kinds(work: Work) -> Timeline:
    """Give the timeline with the kinds of this device's unknown streams inferred where the fencing shows them."""
    timeline = work.timeline
    legacy = [row for row, stream in enumerate(timeline.streams) if stream.kind is StreamKind.LEGACY]
    used = set(np.unique(work.ops.stream).tolist())
    fencing = np.isin(work.ops.stream, legacy)
    if not fencing.any():
        return timeline
    seen = {row: _fencing_seen(work, work.ops.stream == row, fencing) for row in used
            if timeline.streams[row].kind is StreamKind.UNKNOWN}  # fmt: skip
    # A wait for an event can look like a fence on both sides of it, and a few times the one starting when the other
    # ends may be chance.
    waits = int(np.count_nonzero(timeline.calls.kind == CallKind.WAIT_EVENT))
    no_chance = sum(kept for _, kept in seen.values()) >= CHANCE + 2 * waits
    streams = list(timeline.streams)
    for row, (broken, kept) in seen.items():
        if broken:
            streams[row] = replace(streams[row], kind=StreamKind.NON_BLOCKING, inferred=True)
        elif kept and no_chance:
            streams[row] = replace(streams[row], kind=StreamKind.BLOCKING, inferred=True)
    return timeline.with_streams(streams)


def _fencing_seen(work: Work, mine: Bools, fencing: Bools) -> tuple[int, int]:
    """How often a stream's work overlapped the default stream's against the fence, and how often the fence held it."""
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
            # The fence decided when it started: not the host, nor the operation before it in its own stream.
            pending = ended > np.maximum(work.launched[later], work.stream_ready[later])
            kept += int(np.count_nonzero(pending & (ended <= start) & (start - ended <= HOP)))
    return broken, kept


def _latest_end_before(work: Work, earlier: Ints, later: Ints) -> Ints:
    """For each later operation the latest end among the earlier ones issued before it (both in issue order)."""
    if not len(earlier):
        return np.full(len(later), LONG_AGO)
    ends = np.maximum.accumulate(work.ops.end[earlier])
    at = np.searchsorted(work.issue[earlier], work.issue[later], side="left") - 1
    return np.where(at >= 0, ends[np.maximum(at, 0)], LONG_AGO)
