"""What bound a run: every chunk's way through the ring as a Timeline, and the yardstick of the link beside it.

Times come from events. An event tells when work was over; when it began follows from what it had to wait for: its own
stage before it, and the engine's previous work (one copy at a time, R3.6). On a GPU only some chunks are timed
(``slots.TIMED``), so that the run is not slowed; what lies between them is interpolated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.timeline.timeline import (
    Calls,
    Device,
    Ops,
    RangeKind,
    Ranges,
    Stream,
    Thread,
    Timeline,
    Unknown,
)  # fmt: skip

from .calibrate import Costs
from .slots import Passage
from .tune import Plan

LANE = 60  # characters of a lane
BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """What a run did. Times are ns; ``busy`` is the share of the run in which a stage worked (1.0: always).

    ``limit_ns`` is the least time for the same bytes each way at once over this link, None where there is no link;
    ``percent`` the share of it that was reached. ``timeline`` is a Timeline like any other.
    """

    device: str
    wall_ns: int
    chunks: int
    rows: int
    bytes_in: int
    bytes_out: int
    limit_ns: float | None
    busy: dict[str, float]
    binding: str
    notes: tuple[str, ...]
    plan: Plan
    timeline: Timeline

    @property
    def percent(self) -> float | None:
        """Percent of the two-way link limit; None where there is no link."""
        return None if self.limit_ns is None or not self.wall_ns else 100 * self.limit_ns / self.wall_ns

    def __str__(self) -> str:
        wall = self.wall_ns or 1
        lines = [
            f"{self.rows:,} row{'s' * (self.rows != 1)} in {self.chunks:,} chunk{'s' * (self.chunks != 1)} "
            f"through {self.plan.slots} slot{'s' * (self.plan.slots != 1)} on {self.device}: "
            f"{self.wall_ns / 1e6:.4g} ms, in {self.bytes_in / wall:.3g} GB/s, out {self.bytes_out / wall:.3g} GB/s"
        ]
        if self.percent is not None and self.limit_ns is not None:
            lines.append(f"{self.percent:.1f}% of the two-way link limit ({self.limit_ns / 1e6:.4g} ms)")
        lines.append(self.binding)
        lines += [f"{name:>9} {_lane(self.timeline, kind)} {self.busy.get(name, 0):4.0%}" for name, kind in _LANES]
        lines += [f"{name:>9} {'':{LANE}} {share:4.0%}" for name, share in self.busy.items() if name in _HOST_STAGES]
        return "\n".join((*lines, *self.notes))


_LANES = (("H2D", OpKind.H2D), ("kernels", OpKind.KERNEL), ("D2H", OpKind.D2H))
_HOST_STAGES = ("staging", "input", "caller")
_WORDS = {
    "H2D": "The link to the device binds: H2D copies are at work {share:.0%} of the time.",
    "D2H": "The link from the device binds: D2H copies are at work {share:.0%} of the time.",
    "kernels": "The kernel binds: it is at work {share:.0%} of the time; only a faster kernel helps.",
    "staging": "Staging binds: the threads that copy between pageable and pinned memory work {share:.0%} of the time. "
    "Pinned input and output go straight through.",
    "input": "The input binds: the pipeline waited for the iterator {share:.0%} of the time.",
    "caller": "The caller binds: results waited to be taken {share:.0%} of the time.",
}


def report(
    log: Sequence[Passage], plan: Plan, *, device: str, costs: Costs | None, start: int, end: int, source_ns: int,
    caller_ns: int, notes: Sequence[str],
) -> PipelineReport:  # fmt: skip
    """Make the report of one run from its log. *costs* are of a device with a link and engines that take turns."""
    wall, engines = max(end - start, 1), costs is not None
    bytes_in, bytes_out = sum([p.bytes_in for p in log]), sum([p.bytes_out for p in log])
    timeline = timeline_of(log, plan, device=device, engines=engines, origin=start)
    busy = {
        name: float((timeline.ops.end - timeline.ops.start)[timeline.ops.kind == kind].sum()) / wall
        for name, kind in _LANES
    }
    if plan.threads:
        busy["staging"] = sum(passage.worked for passage in log) / wall / plan.threads
    busy["input"], busy["caller"] = source_ns / wall, caller_ns / wall
    most = max(busy, key=lambda name: busy[name])
    binding = _WORDS[most].format(share=min(busy[most], 1.0))
    if busy[most] < 0.5:
        binding = f"Nothing binds for long: the busiest stage ({most}) works {busy[most]:.0%} of the time."
        if engines:  # by elimination
            binding += " The rest is the host's: commands and threads take turns at Python. Larger chunks need it less."
    if not engines and most in ("H2D", "D2H", "kernels"):
        binding = f"{busy[most]:.1f} threads were in the stage that takes longest ({most}), on average."
    return PipelineReport(
        device=device, wall_ns=end - start, chunks=len(log), rows=sum(p.rows for p in log),
        bytes_in=bytes_in, bytes_out=bytes_out, limit_ns=costs.limit_ns(bytes_in, bytes_out) if costs else None,
        busy=busy, binding=binding, notes=tuple(notes), plan=plan, timeline=timeline,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """One operation of every chunk: what it is, and columns over the chunks; *chunks* are those that have it."""

    kind: OpKind
    call: CallKind
    src: MemoryKind
    dst: MemoryKind
    asked: NDArray[np.int64]
    answered: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    bytes: NDArray[np.int64]
    chunks: NDArray[np.int64]


def timeline_of(log: Sequence[Passage], plan: Plan, *, device: str, engines: bool, origin: int) -> Timeline:
    """Turn a run's log into a Timeline whose time 0 is *origin*."""
    columns = np.array([(p.issued, p.launched, p.returned, p.given, _seen(p)) for p in log], np.int64).reshape(-1, 5)
    issued, launched, returned, given, _ = (columns - origin).T
    done = np.maximum(_ends([p.done for p in log], columns[:, 4]) - origin, issued)
    copied, computed = (
        np.maximum(done - _gaps(times, done + origin), issued)
        for times in ([p.copied for p in log], [p.computed for p in log])
    )
    slot = np.array([p.slot for p in log], np.int32)
    bytes_in, bytes_out = (np.array([getattr(p, name) for p in log], np.int64) for name in ("bytes_in", "bytes_out"))
    before = _previous if engines else _none
    stages = (
        _Stage(OpKind.H2D, CallKind.COPY_ASYNC, MemoryKind.PINNED, MemoryKind.DEVICE, issued, launched,
               np.maximum(issued, before(copied)), copied, bytes_in, np.flatnonzero(bytes_in > 0)),
        _Stage(OpKind.KERNEL, CallKind.LAUNCH, MemoryKind.UNKNOWN, MemoryKind.UNKNOWN, launched, returned,
               np.maximum.reduce((launched, copied, before(computed))), computed, _none(done) - 1, np.arange(len(log))),
        _Stage(OpKind.D2H, CallKind.COPY_ASYNC, MemoryKind.DEVICE, MemoryKind.PINNED, returned, given,
               np.maximum.reduce((returned, computed, before(done))), done, bytes_out, np.flatnonzero(bytes_out > 0)),
    )  # fmt: skip

    def joined(column: Callable[[_Stage], Any]) -> NDArray[np.int64]:
        """Give a column of all operations, one stage after the other."""
        parts = [np.broadcast_to(column(stage), len(log))[stage.chunks] for stage in stages]
        return np.concatenate(parts).astype(np.int64)

    start, end = joined(lambda stage: stage.start), joined(lambda stage: stage.end)
    name, asked = joined(stages.index), joined(lambda stage: stage.asked)
    streams = joined(lambda stage: slot)
    by_start, by_call = np.lexsort((end, start)), np.argsort(asked, kind="stable")
    call_of = np.empty(len(asked), np.int64)
    call_of[by_call] = np.arange(len(asked))
    ops = Ops.build(
        kind=joined(lambda stage: stage.kind)[by_start], name=name[by_start], device=np.zeros(len(name)),
        stream=streams[by_start], start=start[by_start], end=np.maximum(end, start)[by_start],
        bytes=joined(lambda stage: stage.bytes)[by_start], src=joined(lambda stage: stage.src)[by_start],
        dst=joined(lambda stage: stage.dst)[by_start], correlation=call_of[by_start] + 1, call=call_of[by_start],
    )  # fmt: skip
    calls = Calls.build(
        kind=joined(lambda stage: stage.call)[by_call], name=name[by_call] + len(stages), thread=np.zeros(len(name)),
        start=asked[by_call], end=joined(lambda stage: stage.answered)[by_call], correlation=np.arange(len(name)) + 1,
    )  # fmt: skip
    return Timeline(
        ops=ops,
        calls=calls,
        ranges=_staging(log, origin, by_caller=not plan.threads),
        devices=(Device(id=0, name=device, vendor="nvidia" if "NVIDIA" in device else ""),),
        streams=tuple(
            Stream(device=0, id=i, kind=StreamKind.NON_BLOCKING, name=f"slot {i}") for i in range(plan.slots)
        ),
        threads=(Thread(pid=0, tid=0, name="caller"),
                 *(Thread(pid=0, tid=i + 1, name=f"staging {i}") for i in range(plan.slots))),
        strings=("copy in", "kernel", "copy out", *(_CUDA_CALLS if engines else _HOST_CALLS),
                 "stage in", "stage out", "wait for staging"),
        source="pipeline",
        format="gapless",
        unknown=(
            *_untimed(log),
            *([_STARTS] if engines else []),
        ),
    )  # fmt: skip


_CUDA_CALLS = ("cudaMemcpyAsync", "cudaLaunchKernel", "cudaMemcpyAsync")
_HOST_CALLS = ("issue copy in", "issue kernel", "issue copy out")
_STARTS = Unknown(
    what="kernel-starts",
    text="Starts of operations follow from the ends before them: kernels of different chunks that ran at the same time "
    "show one after another.",
    remedy="Record the program with a profiler to see each kernel.",
)


def _seen(passage: Passage) -> int:
    """Give when the host knew that a chunk's results were out of the device."""
    return passage.retired if passage.unstaged is None else passage.unstaged[0]


def _ends(times: Sequence[int | None], seen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give when each chunk's copy out was over; of those not timed on the line between others, no later than seen."""
    rows = [row for row, time in enumerate(times) if time is not None]
    if len(rows) == len(times):
        return np.array(times, np.int64)
    known = {row: times[row] for row in rows}
    known.setdefault(len(times) - 1, int(seen[-1]))
    base = int(seen[0])
    line = np.interp(np.arange(len(times)), sorted(known), [(known[row] or 0) - base for row in sorted(known)])
    return np.minimum(line.astype(np.int64) + base, seen)


def _gaps(times: Sequence[int | None], done: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give how long before its chunk's end each stage was over; of those that were not timed as of their neighbours."""
    rows = [row for row, time in enumerate(times) if time is not None]
    if not rows:
        return np.zeros(len(times), np.int64)
    gaps = done[rows] - np.array([times[row] for row in rows], np.int64)
    return np.interp(np.arange(len(times)), rows, gaps).astype(np.int64)


def _untimed(log: Sequence[Passage]) -> list[Unknown]:
    """Say how many chunks were not timed."""
    count = sum(passage.computed is None for passage in log)
    if not count:
        return []
    text = (
        f"{count} of {len(log)} chunks were not timed, so as not to slow the run; when their stages were over is "
        "interpolated from the other chunks."
    )
    return [Unknown(what="stage-ends", text=text, remedy="Record the program with a profiler to see each operation.")]


def _staging(log: Sequence[Passage], origin: int, *, by_caller: bool) -> Ranges:
    """Give when which thread staged, and when nothing but that kept the next commands from being given."""
    found = [
        (*span, name, 0 if by_caller else passage.slot + 1)
        for passage in log
        for name, span in ((6, passage.staged), (7, passage.unstaged))
        if span is not None
    ]
    if not by_caller:
        found += [(*span, 8, 0) for span in _awaited(log)]
    start, end, name, thread = zip(*sorted(found), strict=True) if found else ((), (), (), ())
    return Ranges.build(kind=[RangeKind.STAGING] * len(found), name=name, thread=thread,
                        start=np.array(start, np.int64) - origin, end=np.array(end, np.int64) - origin)  # fmt: skip


def _awaited(log: Sequence[Passage]) -> Iterator[tuple[int, int]]:
    """Give the time from one chunk's commands to the next one's in which that one's slot was being staged."""
    since = 0
    results: dict[int, tuple[int, int] | None] = {}  # of each slot, when its last results were staged out
    for passage in sorted(log, key=lambda passage: passage.issued):
        for span in (results.get(passage.slot), passage.staged):
            if span is not None and (start := max(span[0], since)) < (end := min(span[1], passage.issued)):
                yield start, end
                since = end
        results[passage.slot] = passage.unstaged
        since = max(since, passage.given)


def _previous(end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give when the engine was free for each: the end before its own, of all. Chunks may have passed out of order."""
    order = np.argsort(end, kind="stable")
    before = np.empty_like(end)
    before[order] = np.concatenate(([np.iinfo(np.int64).min], end[order][:-1]))[: len(end)]
    return before


def _none(end: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.zeros(len(end), np.int64)


def _lane(timeline: Timeline, kind: OpKind) -> str:
    """Draw how full each slice of the run is with operations of one kind."""
    first, last = timeline.window()
    mine = timeline.ops.kind == kind
    edges = np.linspace(first, max(last, first + 1), LANE + 1)
    filled = np.zeros(LANE)
    for start, end in zip(timeline.ops.start[mine], timeline.ops.end[mine], strict=True):
        filled += np.clip(np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1]), 0, None)
    share = np.clip(filled / np.diff(edges), 0, 1)
    return "".join(BLOCKS[round(value * 8)] for value in share)
