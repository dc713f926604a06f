"""Check a recording for races: accesses to the same memory that no documented rule puts in order.

What copies, memsets, allocations and frees touch is recorded to the byte: of these a finding is **exact**. What a
kernel touches is not: one of its arguments points there, and such a finding is **possible**.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np

from gapless.checking.program import MOVES, Watched, processes, watched
from gapless.checking.words import Side, Step, Words
from gapless.model.errors import GaplessError
from gapless.model.kinds import CallKind, OpKind
from gapless.model.races import Race, RaceClass, find_races
from gapless.timeline.sources import load
from gapless.timeline.timeline import Timeline, TouchKind, Unknown, missing

VERSION = 1  # of to_dict(); raised when a key changes its meaning or goes away


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Two accesses without an order, and all that are alike: the same calls at the same lines. ``first`` came first."""

    exact: bool
    kind: RaceClass
    first: Side
    second: Side
    memory: str
    why: str
    steps: tuple[Step, ...]  # what to add, call by call; empty where something has to move
    repair: str
    count: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Give the finding as plain values: the form of the JSON."""
        return {
            "certainty": "exact" if self.exact else "possible",
            "class": self.kind.word,
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
            "memory": self.memory,
            "why": self.why,
            "repair": self.repair,
            "add": [step.to_dict() for step in self.steps],
            "count": self.count,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordingCheck:
    """What the race check says of a recording. ``more``: there were more races than could be listed.

    ``lost`` holds a sentence for everything that was damaged in the file and left out; ``mended`` are those by which
    nothing is gone that the program asked of the GPU.
    """

    source: str
    findings: tuple[Finding, ...]
    calls: int  # that were looked at
    unknown: tuple[Unknown, ...] = field(default=())
    more: bool = False
    lost: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()

    @property
    def has_races(self) -> bool:
        """Whether there is an exact finding that breaks a contract: what is merely possible is none."""
        return any(f.exact and f.kind <= RaceClass.UNALLOCATED for f in self.findings)

    @property
    def ok(self) -> bool:
        """Whether nothing races in a whole recording: where a part is missing, nobody knows."""
        return not (self.has_races or self.missing)

    @property
    def missing(self) -> tuple[str, ...]:
        """Say what is not in the file though the program did it: a race may be among it, and so may a wait."""
        return missing(self)

    def to_dict(self) -> dict[str, Any]:
        """Give what was found as plain values: a versioned, stable form for JSON."""
        return {
            "version": VERSION,
            "source": self.source,
            "ok": self.ok,
            "findings": [finding.to_dict() for finding in self.findings],
            "more": self.more,
            "missing": list(self.missing),
            "lost": list(self.lost),
            "unknown": [{"what": u.what, "text": u.text, "remedy": u.remedy} for u in self.unknown],
        }


def check(source: str | PathLike[str] | Timeline) -> RecordingCheck:
    """Check a recording (its file, or as loaded) for races.

    Raises ``GaplessError`` for what is no recording, and for one that holds no addresses.
    """
    timeline = source if isinstance(source, Timeline) else load(source)
    if not (timeline.touches.kind <= TouchKind.ARGUMENT).any():
        if lacks := missing(timeline):
            raise GaplessError(
                f"Part of {timeline.source} is missing, and the rest does not say which memory its calls touch. "
                f"{' '.join(lacks)}\nCheck the whole file, or record again: gapless record --addresses -- COMMAND"
            )
        raise GaplessError(
            f"{timeline.source} does not say which memory its calls touch. Record it so that it does: "
            "gapless record --addresses -- COMMAND"
        )
    found: list[Finding] = []
    more, graphs, waits, calls = False, 0, 0, 0
    for pid in processes(timeline):
        seen = watched(timeline, pid)
        calls += len(seen.program)
        graphs += seen.blind_graphs
        waits += seen.blind_waits
        for finding, cut in _judged(timeline, seen):
            more |= cut
            if finding is not None:
                found.append(finding)
    found.sort(key=lambda finding: (not finding.exact, finding.kind, finding.first.time_ns))
    return RecordingCheck(
        source=timeline.source,
        findings=tuple(_counted(found)),
        calls=calls,
        unknown=tuple(_unknown(timeline, graphs, waits)),
        more=more,
        lost=timeline.lost,
        mended=timeline.mended,
    )


def _judged(timeline: Timeline, seen: Watched) -> Iterator[tuple[Finding | None, bool]]:
    """Give the findings of one process, each with whether there were too many; first what is exact."""
    sure = find_races(seen.with_touches(sure_only=True), seen.happened)
    yield None, sure.more
    broken = {touch.row for touch in seen.memory.touches if touch.gaps}  # not all bytes of it: two may lie side by side
    words = Words(timeline, seen, sure.program)
    for race in sure:
        if race.kind != RaceClass.NONDETERMINISM:
            yield _finding(words, race, exact=broken.isdisjoint((race.first.row, race.second.row))), False
    if all(touch.sure for touch in seen.memory.touches):
        return
    every = find_races(seen.with_touches(sure_only=False), seen.happened)
    yield None, every.more
    words, ops = Words(timeline, seen, every.program), every.program.rows.op
    for race in every:
        rows = (race.first.row, race.second.row)
        if race.kind != RaceClass.NONDETERMINISM and any(ops[row] == OpKind.KERNEL for row in rows):
            yield _finding(words, race, exact=False), False


def _finding(words: Words, race: Race, *, exact: bool) -> Finding:
    first, second = (words.side(race, access) for access in (race.first, race.second))
    steps = words.steps(race)
    hidden = race.kind is RaceClass.UNALLOCATED and not race.misplaced and words.waits_in_practice(race)
    return Finding(
        exact=exact,
        kind=RaceClass.WARNING if hidden else race.kind,
        first=first,
        second=second,
        memory=words.memory(race),
        why=words.why(race, first, second),
        steps=steps,
        repair="; ".join(str(step) for step in steps) or str(race.repair),
    )


def _counted(findings: list[Finding]) -> list[Finding]:
    """Put findings together that come from the same calls at the same lines, in the order in which they came."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.exact, finding.kind, finding.first.key, finding.second.key, finding.why)
        groups.setdefault(key, []).append(finding)
    return [replace(group[0], count=len(group)) for group in groups.values()]


def _unknown(timeline: Timeline, graphs: int, waits: int) -> Iterator[Unknown]:
    """Say what the check could not look at, first what is missing from the file."""
    yield from (unknown for unknown in timeline.unknown if unknown.is_missing)
    yield Unknown(
        what="host-accesses",
        text="The recording does not say when the program's own code reads and writes host memory: a buffer that it "
        "overwrites before a copy has read it is not found.",
    )
    if len(set(timeline.calls.thread.tolist())) > 1:
        yield Unknown(
            what="host-order",
            text="The recording does not say what host threads tell each other: what one thread's call has returned is "
            "taken to be known to all calls that come later.",
        )
    if graphs:
        yield Unknown(
            what="graph-accesses",
            text=f"What {graphs:,} launch{'es' * (graphs > 1)} of graphs touch{'es' * (graphs == 1)} is not recorded.",
        )
    if told := _without_memory(timeline):
        count, names = told.total(), ", ".join(api for api, _ in told.most_common(3)) + ", ..." * (len(told) > 3)
        which = f"{count:,} call{'s' * (count > 1)} of {names} touch{'es' * (count == 1)}"
        yield Unknown(what="copy-accesses", text=f"Which memory {which} is not recorded.")
    if waits:
        yield Unknown(
            what="event-waits",
            text=f"For {waits:,} wait{'s' * (waits > 1)} the recording does not say which event or stream is meant: "
            "each is taken to be for all that was issued before.",
        )
    wanted = ("stream-kinds", "host-calls", "kind-refused", "no-kernel-arguments")
    yield from (unknown for unknown in timeline.unknown if unknown.what in wanted)


def _without_memory(timeline: Timeline) -> Counter[str]:
    """Count the calls that copied or filled memory of which nothing is told, by name: those of graphs count apart."""
    ops, calls, touches = timeline.ops, timeline.calls, timeline.touches
    issued = (ops.call >= 0) & (ops.graph < 0) & (ops.bytes != 0) & np.isin(ops.kind, MOVES)
    moved = np.unique(ops.call[issued])
    moved = moved[calls.kind[moved] != CallKind.GRAPH_LAUNCH]
    blind = moved[~np.isin(moved, touches.call[touches.kind <= TouchKind.WRITE])]
    return Counter(timeline.name_of(name) for name in calls.name[blind].tolist())
