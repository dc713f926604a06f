"""Where in the user's program a call was made: from Python frames, recorded stacks, framework operators and
annotations.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from gapless.timeline.timeline import RangeKind, Timeline

from .report import Where
from .work import Ints

# A frame as profilers write it: "train.py(12): step". The line is where the function begins.
_FRAME = re.compile(r"^(?P<file>[^()]+\.\w+|<[^>]+>)\((?P<line>\d+)\): (?P<function>.*)$")
_BUILTIN = re.compile(r"^<built-in (?:method|function) (?P<name>\w+)(?: of (?:type )?(?P<owner>\w+))?")
# Frames of libraries say how, not where: the user's own frames are what remains.
_LIBRARY = re.compile(
    r"(^|/)(torch|numpy|cupy|numba|triton|jax|tensorflow|transformers|accelerate|lightning|pytorch_lightning|"
    r"site-packages|dist-packages|lib/python3)(/|\.py)|^<|^nn\.Module|^(typing|enum|contextlib|threading|functools|logging/"
    r"__init__|abc|inspect|runpy|collections/__init__|asyncio/.*|concurrent/.*|multiprocessing/.*|queue|weakref|copy|os|"
    r"random|json/.*|re/.*|subprocess|selectors|socket|pickle|tempfile|pathlib|warnings|types|dataclasses|importlib/.*)"
    r"\.py\("
)


class Places:
    """Finds where calls were made. Built once per timeline; each look-up is a few binary searches."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        ranges = timeline.ranges
        used = np.unique(ranges.name[np.isin(ranges.kind, (RangeKind.PYTHON, RangeKind.CPU_OP))])
        users = np.zeros(len(timeline.strings) + 1, bool)
        for row in used.tolist():
            name = timeline.name_of(row)
            users[row] = _FRAME.match(name) is not None and not _LIBRARY.search(name)
        is_python = ranges.kind == RangeKind.PYTHON
        self.has_frames = bool(is_python.any())
        self._frames = _Nested(timeline, np.flatnonzero(is_python & users[ranges.name]))
        self._builtins = _Nested(timeline, np.flatnonzero(is_python & ~users[ranges.name]))
        self._ops = _Nested(timeline, np.flatnonzero(ranges.kind == RangeKind.CPU_OP))
        self._notes = _Nested(timeline, np.flatnonzero(np.isin(ranges.kind, (RangeKind.ANNOTATION, RangeKind.NVTX))))

    def of_calls(self, calls: Ints, most: int = 5) -> tuple[Where, ...]:
        """Give the places that made these calls (rows of ``timeline.calls``, -1 none), most frequent first."""
        calls = calls[calls >= 0]
        if not len(calls):
            return ()
        threads, times = self._timeline.calls.thread[calls], self._timeline.calls.start[calls]
        rows = [where.innermost(threads, times) for where in (self._frames, self._builtins, self._ops, self._notes)]
        apis = self._timeline.calls.name[calls]
        found = Counter(zip(*(column.tolist() for column in (*rows, apis)), strict=True))
        merged: Counter[tuple[str, int, str]] = Counter()
        for (frame, builtin, op, note, api), count in found.items():
            merged[self._place(frame, builtin, op, note, api)] += count
        return tuple(
            Where(file=file, line=line, function=function, count=count)
            for (file, line, function), count in merged.most_common(most)
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
        return self._timeline.name_of(int(ranges.name[rows[np.argmin((ranges.end - ranges.start)[rows])]]))

    def _place(self, frame: int, builtin: int, op: int, note: int, api: int) -> tuple[str, int, str]:
        timeline, ranges = self._timeline, self._timeline.ranges
        doing = self._doing(builtin, op) or timeline.name_of(api)
        if frame < 0 and op >= 0 and ranges.stack[op] >= 0:
            for text in timeline.name_of(int(ranges.stack[op])).split(";"):
                match = _FRAME.match(text.strip())
                if match and not _LIBRARY.search(text.strip()):
                    return match["file"], int(match["line"]), f"{match['function']} → {doing}"
        if frame >= 0:
            match = _FRAME.match(timeline.name_of(int(ranges.name[frame])))
            assert match is not None  # only such frames are kept
            return match["file"], int(match["line"]), f"{match['function']} → {doing}"
        if note >= 0:
            return "", 0, f"{timeline.name_of(int(ranges.name[note]))} → {doing}"
        return "", 0, doing

    def _doing(self, builtin: int, op: int) -> str:
        """What the innermost frame or operator was at, in the words of the program: "Tensor.cuda", "aten::mm"."""
        ranges = self._timeline.ranges
        if builtin >= 0:
            match = _BUILTIN.match(self._timeline.name_of(int(ranges.name[builtin])))
            if match and not match["name"].startswith("_"):
                return f"{match['owner']}.{match['name']}" if match["owner"] == "Tensor" else match["name"]
        return self._timeline.name_of(int(ranges.name[op])) if op >= 0 else ""


class _Nested:
    """Ranges that nest per thread, and for a moment the innermost one that covers it."""

    def __init__(self, timeline: Timeline, rows: NDArray[np.intp]) -> None:
        self._ranges = timeline.ranges
        self._by_thread: dict[int, tuple[NDArray[np.intp], Ints]] = {}
        self._parents: dict[int, Ints] = {}
        threads = self._ranges.thread[rows]
        for thread in np.unique(threads).tolist():
            mine = rows[threads == thread]
            mine = mine[np.lexsort((-self._ranges.end[mine], self._ranges.start[mine]))]
            self._by_thread[thread] = mine, self._ranges.start[mine]

    def innermost(self, threads: NDArray[np.int32], times: Ints) -> Ints:
        """Row of ``ranges`` for each moment, -1 where none covers it."""
        found = np.full(len(times), -1)
        for thread in np.unique(threads).tolist():
            own = self._by_thread.get(thread)
            if own is None:
                continue
            rows, starts = own
            asked = np.flatnonzero(threads == thread)
            at = np.searchsorted(starts, times[asked], side="right") - 1
            parents = self._parent_of(thread)
            ends = self._ranges.end[rows]
            open_ = at >= 0
            while True:
                outside = open_ & (ends[np.maximum(at, 0)] < times[asked])
                if not outside.any():
                    break
                at[outside] = parents[at[outside]]
                open_ = at >= 0
            found[asked[open_]] = rows[at[open_]]
        return found

    def _parent_of(self, thread: int) -> Ints:
        """For each range of a thread the one around it, as an index into the thread's rows."""
        known = self._parents.get(thread)
        if known is not None:
            return known
        rows, starts = self._by_thread[thread]
        ends: list[int] = self._ranges.end[rows].tolist()
        parents: list[int] = []
        stack: list[int] = []
        for row, start in enumerate(starts.tolist()):
            while stack and ends[stack[-1]] <= start:
                stack.pop()
            parents.append(stack[-1] if stack else -1)
            stack.append(row)
        self._parents[thread] = np.array(parents, np.int64)
        return self._parents[thread]
