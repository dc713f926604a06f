"""What the lanes of a picture are: the engines, streams and host threads of a timeline, with names and colours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import Engine, OpKind
from gapless.timeline.measure import DEVICE_ENGINES, clip, engine_of, total, union
from gapless.timeline.timeline import Timeline
from gapless.views import wording
from gapless.views.lanes import LABELS
from gapless.views.palette import CALL, ENGINES

MOST_STREAMS, MOST_THREADS = 16, 4
_NOT_XML = re.compile("[\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Operations or calls that are drawn in one row."""

    label: str
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    rows: NDArray[np.int64]  # of the table that the intervals come from
    names: Sequence[Sequence[str]]  # of each all that it may be called, longest first
    colors: Sequence[str]
    figure: str = ""


class _Names(Sequence[Sequence[str]]):
    """What operations or calls are called, worked out for those that are drawn one by one."""

    def __init__(self, timeline: Timeline, rows: NDArray[np.int64], names: NDArray[np.int32], words: Mapping[int, str],
                 kinds: NDArray[np.int8]) -> None:  # fmt: skip
        self._timeline, self._rows, self._names, self._words, self._kinds = timeline, rows, names, words, kinds

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: int) -> Sequence[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        row = int(self._rows[at])
        name = clean(self._timeline.name_of(int(self._names[row])))
        return [known for known in (name, self._words.get(int(self._kinds[row]), "")) if known] or [""]


_WORDS: Mapping[int, str] = {OpKind.H2D: "H2D", OpKind.D2H: "D2H", OpKind.P2P: "P2P", OpKind.D2D: "D2D"}
_NO_WORDS: Mapping[int, str] = {}


def _words(timeline: Timeline) -> Mapping[int, str]:
    """Give what copies are called whose own names do not fit: a recorded name says no more than the direction."""
    return _NO_WORDS if timeline.format == "simulated" else _WORDS


def engine_lanes(timeline: Timeline, start: int, end: int) -> Iterator[Lane]:
    """Give a lane for each engine that works, and always for the three that ought to."""
    ops = timeline.ops
    engine = engine_of(ops)
    used = sorted(set(ops.device.tolist()))
    for device in used:
        for served in DEVICE_ENGINES:
            rows = np.flatnonzero((ops.device == device) & (engine == served))
            if not len(rows) and served == Engine.PEER:
                continue
            busy = total(clip(union(ops.start[rows], ops.end[rows]), start, end))
            yield Lane(
                label=LABELS[served] + (f" {timeline.devices[device].id}" if len(used) > 1 else ""),
                starts=ops.start[rows], ends=ops.end[rows], rows=rows,
                names=_Names(timeline, rows, ops.name, _words(timeline), ops.kind),
                colors=[ENGINES[served]] * len(rows),
                figure=wording.percent(busy / (end - start)),
            )  # fmt: skip


def stream_lanes(timeline: Timeline) -> tuple[dict[int, Lane], int]:
    """Give a lane for each stream that has work, by its row, and how many more there are."""
    ops = timeline.ops
    engine = engine_of(ops).tolist()
    busy = [number for number in range(len(timeline.streams)) if (ops.stream == number).any()]
    lanes: dict[int, Lane] = {}
    for number in busy[:MOST_STREAMS]:
        rows, stream = np.flatnonzero(ops.stream == number), timeline.streams[number]
        lanes[number] = Lane(
            label=clean(stream.name) or f"stream {stream.id}", starts=ops.start[rows], ends=ops.end[rows], rows=rows,
            names=_Names(timeline, rows, ops.name, _words(timeline), ops.kind),
            colors=[ENGINES.get(Engine(engine[row]), CALL) for row in rows.tolist()],
        )  # fmt: skip
    return lanes, len(busy) - len(lanes)


def thread_lanes(timeline: Timeline, start: int, end: int) -> Iterator[Lane]:
    """Give a lane for each of the first host threads that call CUDA in the window."""
    calls = timeline.calls
    within = (calls.end > start) & (calls.start < end)
    busy = [number for number in range(len(timeline.threads)) if (within & (calls.thread == number)).any()]
    for number in busy[:MOST_THREADS]:
        rows, thread = np.flatnonzero(within & (calls.thread == number)), timeline.threads[number]
        named = clean(thread.name) if thread.name else f"thread {thread.tid}" if thread.tid > 0 else "host"
        yield Lane(
            label="host" if len(busy) == 1 else named, starts=calls.start[rows], ends=calls.end[rows], rows=rows,
            names=_Names(timeline, rows, calls.name, {}, calls.kind), colors=[CALL] * len(rows),
        )  # fmt: skip


def clean(text: str) -> str:
    """Give foreign text as XML may hold it: what does not show stands as its escape."""
    return _NOT_XML.sub("\ufffd", wording.visible(text))
