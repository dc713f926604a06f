"""What a recording of gapless cannot tell, and how to record so that it can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gapless.timeline.sources.cupti_unknown import gaps
from gapless.timeline.sources.recording_format import OWN_LOSS
from gapless.timeline.sources.recording_format import Block as Type
from gapless.timeline.sources.recording_process import Processes
from gapless.timeline.sources.recording_records import Kind
from gapless.timeline.timeline import Timeline, Unknown

_REMEDIES = {
    "stream-kinds": "Record with gapless record: it starts with the program. Streams that are older than the recording "
    "are known from the first call that names them and is looked at.",
    "host-calls": "Call cudaDeviceSynchronize() before the recording starts, so that no earlier work is in it.",
    "event-waits": "Record from the start of the program, so that no event is older than the recording.",
    "sync-targets": "Record from the start of the program, so that no event is older than the recording.",
    "buffers": "Record with gapless record --addresses.",
}
_IN_PROGRESS = 4  # calls that had not returned when the recording ended
# Why the recording of a process is over before the process is: what to say of it, and what to do.
_EARLY = {
    "killed": (
        "did not close the recording: what was done after the last flush",
        "The recording ends early; let the program end by itself, or end it with Ctrl-C.",
    ),
    "max-size": (
        "went on when the file had the size asked for: what was done then",
        "Give a greater --max-size, or record a part of the run (--after, --for, --range).",
    ),
    "file-full": (
        "went on when the file could not grow any further: what was done then",
        "Make room on the disk, or record a part of the run (--after, --for, --range).",
    ),
}


def unknown(timeline: Timeline, processes: Processes) -> Timeline:
    """Add to a timeline what its recording cannot tell."""
    found = [*_dropped(processes), *_unfinished(processes), *_unanswered(processes), *_notes(processes)]
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
    """Processes that went on when their recording did not, by what ended it."""
    ended: dict[str, list[int]] = {}
    for process in processes.all:
        reason = process.end.get("reason") if process.end else "killed"
        if isinstance(reason, str):
            ended.setdefault(reason, []).append(process.pid)
    for reason, (text, remedy) in _EARLY.items():
        if cut := ended.get(reason):
            named = ", ".join(str(pid) for pid in cut[:5]) + (", ..." if len(cut) > 5 else "")
            yield Unknown(
                what="unfinished", text=f"Process{'es' * (len(cut) > 1)} {named} {text} is missing.", remedy=remedy
            )


def _unanswered(processes: Processes) -> Iterator[Unknown]:
    """Calls whose place is known and nothing else: CUPTI called back for them, and no record of them came."""
    missing = 0
    for process in processes.all:
        reason = process.end.get("reason") if process.end else None
        if reason not in ("exit", "stop", "for", "range") or len(process.rows(Type.DROPPED)):
            continue
        calls = [process.table(kind)["correlationId"] for kind in (Kind.RUNTIME, Kind.DRIVER)]
        asked = np.unique(process.rows(Type.CALLSITES)["correlation"].astype(np.int64))
        lone = int((~np.isin(asked, np.concatenate(calls))).sum())
        missing += lone if lone > _IN_PROGRESS else 0
    if missing:
        yield Unknown(
            what="calls-missing",
            text=f"{missing:,} calls into CUDA left no record: what they issued may be missing too. Another tool may "
            "have taken CUPTI's records.",
            remedy="Record without other profilers in the program.",
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
