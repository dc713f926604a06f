"""What a recording of gapless cannot tell, and how to record so that it can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gapless.timeline.sources.cupti_unknown import gaps
from gapless.timeline.sources.recording_format import OWN_LOSS
from gapless.timeline.sources.recording_format import Block as Type
from gapless.timeline.sources.recording_process import Processes
from gapless.timeline.timeline import Timeline, Unknown

_REMEDIES = {
    "stream-kinds": "Record with gapless record: it starts with the program. Streams that are older than the recording "
    "are known by what they did alone.",
    "host-calls": "Call cudaDeviceSynchronize() before the recording starts, so that no earlier work is in it.",
    "event-waits": "Record from the start of the program, so that no event is older than the recording.",
    "sync-targets": "Record from the start of the program, so that no event is older than the recording.",
    "buffers": "Record with gapless record --addresses.",
}
_BROKEN_OFF = "The recording ends early; let the program end by itself, or end it with Ctrl-C."


def unknown(timeline: Timeline, processes: Processes) -> Timeline:
    """Add to a timeline what its recording cannot tell."""
    found = [*_dropped(processes), *_unfinished(processes), *_notes(processes)]
    if len(timeline.ops):
        found += gaps(timeline, "recording", _REMEDIES)
    return replace(timeline, unknown=tuple(found))


def _dropped(processes: Processes) -> Iterator[Unknown]:
    rows = [row for process in processes.all for row in process.rows(Type.DROPPED).tolist()]
    lost = sum(count for count, context, _ in rows if context != OWN_LOSS)
    own = sum(count for count, context, _ in rows if context == OWN_LOSS)
    if lost or own:
        parts = [f"CUPTI dropped {lost:,}"] * (lost > 0) + [f"the recorder had no room for {own:,}"] * (own > 0)
        yield Unknown(
            what="records-dropped",
            text=f"Records are missing: {' and '.join(parts)}. Times and counts are those of the rest.",
            remedy="Record a shorter part of the run, or write to a faster disk.",
        )


def _unfinished(processes: Processes) -> Iterator[Unknown]:
    cut = [process.pid for process in processes.all if process.end is None]
    if cut:
        named = ", ".join(str(pid) for pid in cut[:5]) + (", ..." if len(cut) > 5 else "")
        yield Unknown(
            what="unfinished",
            text=f"Process{'es' * (len(cut) > 1)} {named} did not close the recording: what was done after the last "
            "flush is missing.",
            remedy=_BROKEN_OFF,
        )


def _notes(processes: Processes) -> Iterator[Unknown]:
    """What the recorder itself noted, each slug once."""
    told: dict[str, list[str]] = {}
    for note in [*processes.notes, *(note for process in processes.all for note in process.notes)]:
        what, text = note.get("what"), note.get("text")
        if isinstance(what, str) and isinstance(text, str) and what and text:
            texts = told.setdefault(what[:60], [])
            if text not in texts:
                texts.append(" ".join(text.split())[:300])
    for what, texts in told.items():
        yield Unknown(what=what, text=" ".join(texts[:5]))
