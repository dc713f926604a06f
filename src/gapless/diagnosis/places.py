"""Where in the user's program a call was made: from Python frames, recorded stacks, framework operators and
annotations.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.timeline.frames import FRAME, LIBRARY, frames, user_function
from gapless.timeline.timeline import RangeKind, Timeline

from .report import Where
from .work import Ints, at

_BUILTIN = re.compile(r"^<built-in (?:method|function) (?P<name>\w+)(?: of (?:type )?(?P<owner>\w+))?")

MOST = 5  # places are told of one finding


class Places:
    """Finds where calls were made. Built once per timeline; each look-up is a few binary searches."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        ranges = timeline.ranges
        used = np.unique(ranges.name[np.isin(ranges.kind, (RangeKind.PYTHON, RangeKind.CPU_OP))])
        users = np.zeros(len(timeline.strings) + 1, bool)
        for row in used.tolist():
            name = timeline.name_of(row)
            users[row] = FRAME.match(name) is not None and not LIBRARY.search(name)
        is_python = ranges.kind == RangeKind.PYTHON
        self._frames = _Nested(timeline, np.flatnonzero(is_python & users[ranges.name]))
        self._builtins = _Nested(timeline, np.flatnonzero(is_python & ~users[ranges.name]))
        self._ops = _Nested(timeline, np.flatnonzero(ranges.kind == RangeKind.CPU_OP))
        self._notes = _Nested(timeline, np.flatnonzero(np.isin(ranges.kind, (RangeKind.ANNOTATION, RangeKind.NVTX))))

    def of_calls(self, calls: Ints) -> tuple[Where, ...]:
        """Give the places that made these calls (rows of ``timeline.calls``, -1 none), most frequent first."""
        calls = calls[calls >= 0]
        table = self._timeline.calls
        return self._most_frequent(table.thread[calls], table.start[calls], table.name[calls], table.stack[calls])

    def at_moments(self, threads: NDArray[np.int32], times: Ints) -> tuple[Where, ...]:
        """Give the places at which threads were at some moments (ns), most frequent first."""
        nothing = np.full(len(times), -1)
        return self._most_frequent(threads, times, nothing, nothing)

    def _most_frequent(
        self, threads: NDArray[np.int32], times: Ints, apis: NDArray[Any], stacks: NDArray[Any]
    ) -> tuple[Where, ...]:
        if not len(times):
            return ()
        ranges = self._timeline.ranges
        inner = [where.innermost(threads, times) for where in (self._frames, self._builtins, self._ops, self._notes)]
        names = [at(ranges.name, rows, -1) for rows in inner]
        first, counts = _distinct([*names, at(ranges.stack, inner[2], -1), apis, stacks])
        places: Counter[tuple[str, int, str]] = Counter()
        for i, count in zip(first.tolist(), counts.tolist(), strict=True):
            frame, builtin, op, note = (int(rows[i]) for rows in inner)
            places[self._place(frame, builtin, op, note, int(apis[i]), int(stacks[i]))] += count
        del places["", 0, ""]  # nothing is known there
        return tuple(
            Where(file=file, line=line, function=function, count=count)
            for (file, line, function), count in places.most_common(MOST)
        )

    def busiest(self, thread: int, since: int, until: int) -> str:
        """The shortest operator or frame that covers most of ``[since, until]`` ns on a thread; empty if none."""
        ranges = self._timeline.ranges
        rows = np.flatnonzero((ranges.thread == thread) & (ranges.start < until) & (ranges.end > since)
                              & (ranges.kind != RangeKind.STEP))  # fmt: skip
        inside = np.minimum(ranges.end[rows], until) - np.maximum(ranges.start[rows], since)
        rows = rows[inside > (until - since) // 2]
        if not len(rows):
            return ""
        name = self._timeline.name_of(int(ranges.name[rows[np.argmin((ranges.end - ranges.start)[rows])]]))
        builtin = _BUILTIN.match(name)
        return f"the built-in {builtin['name']}" if builtin else name

    def _place(self, frame: int, builtin: int, op: int, note: int, api: int, stack: int) -> tuple[str, int, str]:
        """File, line and function of a place: from the call's own stack (a row of ``strings``), which is exact, else
        from the innermost ranges there (rows of ``ranges``); -1 none.
        """
        timeline, ranges = self._timeline, self._timeline.ranges
        doing = self._doing(builtin, op) or timeline.name_of(api)
        recorded = frames(timeline.name_of(stack))
        texts = list(recorded)
        if frame >= 0:
            texts.append(timeline.name_of(int(ranges.name[frame])))
        elif op >= 0:
            texts += frames(timeline.name_of(int(ranges.stack[op])))
        for text in texts:
            match = FRAME.match(text)
            if match and not LIBRARY.search(text):
                return match["file"], int(match["line"]), _arrow(match["function"], doing)
        if native := user_function(recorded):
            return "", 0, _arrow(native, doing)
        return "", 0, _arrow(timeline.name_of(int(ranges.name[note])), doing) if note >= 0 else doing

    def _doing(self, builtin: int, op: int) -> str:
        """What the innermost frame or operator was at, in the words of the program: "Tensor.cuda", "aten::mm"."""
        ranges = self._timeline.ranges
        if builtin >= 0:
            match = _BUILTIN.match(self._timeline.name_of(int(ranges.name[builtin])))
            if match and not match["name"].startswith("_"):
                return f"{match['owner']}.{match['name']}" if match["owner"] == "Tensor" else match["name"]
        return self._timeline.name_of(int(ranges.name[op])) if op >= 0 else ""


def _arrow(function: str, doing: str) -> str:
    return f"{function} → {doing}" if doing else function


def _distinct(columns: list[NDArray[Any]]) -> tuple[Ints, Ints]:
    """The first row of every distinct combination of values, and how often it occurs."""
    which = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if low < high:
            _, which = np.unique(which * (high - low + 1) + (column - low), return_inverse=True)
    _, first, counts = np.unique(which, return_index=True, return_counts=True)
    return first, counts


class _Nested:
    """Ranges that nest per thread, and for a moment the innermost one that covers it."""

    def __init__(self, timeline: Timeline, rows: NDArray[np.intp]) -> None:
        self._ranges = timeline.ranges
        self._by_thread: dict[int, tuple[NDArray[np.intp], Ints, Ints, Ints]] = {}
        rows = rows[self._ranges.end[rows] > self._ranges.start[rows]]
        self._rows = {int(thread): rows[self._ranges.thread[rows] == thread] for thread in np.unique(
            self._ranges.thread[rows])}  # fmt: skip

    def innermost(self, threads: NDArray[np.int32], times: Ints) -> Ints:
        """Row of ``ranges`` for each moment, -1 where none covers it."""
        found = np.full(len(times), -1)
        for thread in np.unique(threads).tolist():
            if thread not in self._rows:
                continue
            rows, starts, ends, parents = self._of_thread(thread)
            asked = np.flatnonzero(threads == thread)
            place = np.searchsorted(starts, times[asked], side="right") - 1
            while (outside := (place >= 0) & (ends[place] <= times[asked])).any():
                place[outside] = parents[place[outside]]
            found[asked[place >= 0]] = rows[place[place >= 0]]
        return found

    def _of_thread(self, thread: int) -> tuple[NDArray[np.intp], Ints, Ints, Ints]:
        """A thread's ranges in order of start, outer ones first: row, start, end, and the place of the one around."""
        if thread not in self._by_thread:
            rows = self._rows[thread]
            rows = rows[np.lexsort((-self._ranges.end[rows], self._ranges.start[rows]))]
            starts, ends = self._ranges.start[rows], self._ranges.end[rows]
            self._by_thread[thread] = rows, starts, ends, _parents(starts, ends)
        return self._by_thread[thread]


def _parents(starts: Ints, ends: Ints) -> Ints:
    """For each of some nested ranges, in order of start, the place of the one around it, -1 none."""
    depth = np.arange(len(starts)) - np.searchsorted(np.sort(ends), starts, side="right")
    parents = np.full(len(starts), -1)
    by_depth = np.argsort(depth, kind="stable")
    outer = np.empty(0, np.int64)
    for level in np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1):
        if len(outer):
            parents[level] = np.where(level > outer[0], outer[np.searchsorted(outer, level) - 1], -1)
        outer = level
    return parents
