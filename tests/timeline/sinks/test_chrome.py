"""Chrome traces that gapless writes, read back by gapless itself."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gapless.diagnosis.explain import explain
from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.model.simulation import simulate
from gapless.timeline.simulated import from_schedule
from gapless.timeline.sinks import chrome, gzipped, write
from gapless.timeline.sources import load
from gapless.timeline.timeline import (
    Calls,
    Device,
    MarkKind,
    Marks,
    Ops,
    RangeKind,
    Ranges,
    Stream,
    Thread,
    Timeline,
    Touches,
)  # fmt: skip

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TIMELINES = sorted((EXAMPLES / "timelines").glob("*.json.gz"))
TAPES = sorted((EXAMPLES / "tapes").glob("*.tape"))


def read_back(timeline: Timeline, folder: Path) -> Timeline:
    path = folder / "back.json"
    write(path, chrome.pieces(timeline))
    return load(path)


def plain(timeline: Timeline, table: str) -> list[tuple]:
    """Give the rows of a table in an order that does not depend on ties, with texts for the numbers of texts."""
    columns = []
    rows = getattr(timeline, table)
    for name in rows.__slots__:
        values = rows.column(name).tolist()
        if name in ("name", "stack"):
            values = [timeline.name_of(value) for value in values]
        if name == "occupancy":
            values = [f"{value:.4g}" for value in values]
        if name == "start":
            columns.insert(0, values)
        else:
            columns.append(list(map(str, values)))
    return sorted(zip(*columns, strict=True))


def work(timeline: Timeline, *, names: bool) -> Counter:
    """Give each operation's kind, place, times, bytes, memories and launching call, with how often it is there."""
    ops, first = timeline.ops, min(int(t.start.min()) for t in (timeline.ops, timeline.calls) if len(t))
    places = [(timeline.devices[stream.device].id, stream.id) for stream in timeline.streams]
    called = [int(timeline.calls.start[call]) - first if call >= 0 else None for call in ops.call.tolist()]
    return Counter(
        zip(
            ops.kind.tolist(), [places[stream] for stream in ops.stream.tolist()], (ops.start - first).tolist(),
            (ops.end - first).tolist(), ops.bytes.tolist(), ops.src.tolist(), ops.dst.tolist(), called,
            [timeline.name_of(name) if names else "" for name in ops.name.tolist()],
            strict=True,
        )
    )  # fmt: skip


@pytest.mark.parametrize("path", TIMELINES, ids=lambda path: path.name.partition(".")[0])
def test_measured_timeline_comes_back_as_it_was(path: Path, tmp_path: Path) -> None:
    timeline = load(path)
    back = read_back(timeline, tmp_path)
    for table in ("ops", "calls", "marks", "ranges"):
        assert plain(back, table) == plain(timeline, table)
    assert back.streams == timeline.streams
    assert back.devices == timeline.devices
    assert back.threads == timeline.threads
    assert back.clock_ns == timeline.clock_ns
    assert back.lost == ()
    assert explain(back).findings[0].to_dict() == explain(timeline).findings[0].to_dict()


@pytest.mark.parametrize("path", TAPES, ids=lambda path: path.stem)
def test_played_tape_comes_back_with_its_work_and_streams(path: Path, tmp_path: Path) -> None:
    timeline = from_schedule(simulate(path).schedule, source=path.name)
    back = read_back(timeline, tmp_path)
    assert work(back, names=False) == work(timeline, names=False)
    kept = set(timeline.ops.stream.tolist())
    kinds = {(s.id, s.kind) for row, s in enumerate(timeline.streams) if row in kept}
    assert {(s.id, s.kind) for s in back.streams} >= kinds
    assert not any(stream.inferred for stream in back.streams)
    assert "stream-kinds" not in {unknown.what for unknown in back.unknown}


def test_recorded_events_come_back(tmp_path: Path) -> None:
    timeline = from_schedule(simulate(EXAMPLES / "tapes" / "10-event-between-two-streams.tape").schedule)
    back = read_back(timeline, tmp_path)

    def told(of: Timeline) -> list[tuple]:
        streams = [stream.id for stream in of.streams] + [-1]
        marks = of.marks
        return sorted(
            (int(kind), streams[stream], streams[waits_on], int(start), int(end), int(event))
            for kind, stream, waits_on, start, end, event in zip(
                marks.kind, marks.stream, marks.waits_on, marks.start, marks.end, marks.event, strict=True
            )
        )

    assert MarkKind.WAIT in timeline.marks.kind
    assert told(back) == told(timeline)


def odd() -> Timeline:
    """Give a timeline with everything that torch's own traces do not have."""
    return Timeline(
        ops=Ops.build(
            kind=[OpKind.H2D, OpKind.KERNEL, OpKind.GRAPH, OpKind.HOST_FUNCTION, OpKind.MEMSET, OpKind.P2P],
            name=[0, 1, 2, 3, 0, 4], device=[0, 0, 1, 0, 0, 1], stream=[0, 0, 1, 0, 0, 1],
            start=[10, 20, 30, 40, 50, 60], end=[20, 20, 90, 41, 55, 61], src=[1, 0, 0, 0, 0, 3],
            dst=[3, 0, 0, 0, 3, 3], bytes=[8, -1, -1, -1, 4, 2], correlation=[5, 5, 0, 0, 7, 7],
            call=[0, 1, -1, -1, 2, -1],
        ),
        calls=Calls.build(kind=[2, 1, 6], name=[5, 6, 7], thread=[0, 1, 2], start=[-5, 1, 2], end=[0, 2, 99],
                          correlation=[5, 5, 7]),
        ranges=Ranges.build(kind=[RangeKind.NVTX], name=[0], thread=[0], start=[-20], end=[300]),
        devices=(Device(id=0, name='a "GPU"'), Device(id=3)),
        streams=(Stream(device=0, id=7, kind=StreamKind.NON_BLOCKING), Stream(device=1, id=0)),
        threads=(Thread(pid=0, tid=7), Thread(pid=-1, tid=-1, name="Iteration"), Thread(pid=3, tid=0)),
        strings=("HtoD DtoH (Pinned -> Device) </script>\x1b[31m\ud800", "k<T, \"x\">\\", "", "f",
                 "Memcpy DtoH (Pageable)",
                 "cudaMemcpyAsync", "cuLaunchKernel", "cuCtxSynchronize"),
        clock_ns=1_700_000_000_000_000_123,
    )  # fmt: skip


def test_odd_timelines_keep_their_work(tmp_path: Path) -> None:
    timeline = odd()
    assert chrome.left_out(timeline) == (
        "Left out 1 host function: the format has no such operation.",
        "Wrote 1 graph recorded as a whole as kernels.",
        "Wrote 1 NVTX range as annotations.",
    )
    back = read_back(timeline, tmp_path)
    kept = timeline.ops.take(timeline.ops.kind != OpKind.HOST_FUNCTION)
    kinds = np.where(kept.kind == OpKind.GRAPH, OpKind.KERNEL, kept.kind)
    expected = work(replace(timeline, ops=replace(kept, kind=kinds)), names=False)
    assert work(back, names=False) == expected
    assert [(stream.id, stream.kind) for stream in back.streams] == [
        (7, StreamKind.NON_BLOCKING),
        (0, StreamKind.UNKNOWN),
    ]
    assert back.clock_ns == timeline.clock_ns - 20  # when the first of all began, which is the new 0
    assert len(set(back.calls.thread.tolist())) == 3


def test_lines_of_calls_are_said_to_be_left_out() -> None:
    timeline = odd()
    calls = replace(timeline.calls, stack=np.array([3, -1, 3], np.int32))
    assert "Left out from which lines 2 calls came: the format has no place for it." in chrome.left_out(
        replace(timeline, calls=calls)
    )


def every_kind() -> Timeline:
    """Give a timeline with each kind of operation, memory, call, mark and range that there is."""
    kinds, ranges, marks = len(OpKind), len(RangeKind), len(MarkKind)
    names = ("Lazy Function Loading", "aten::mm", "cudaMemcpyAsync")
    return Timeline(
        ops=Ops.build(kind=list(OpKind), name=[1] * kinds, device=[0] * kinds, stream=[0] * kinds, start=range(kinds),
                      end=range(1, kinds + 1), src=[row % len(MemoryKind) for row in range(kinds)],
                      dst=[(row + 1) % len(MemoryKind) for row in range(kinds)]),
        calls=Calls.build(kind=list(CallKind), name=[2] * len(CallKind), thread=[0] * len(CallKind),
                          start=range(len(CallKind)), end=range(1, len(CallKind) + 1)),
        marks=Marks.build(kind=list(MarkKind), stream=[0] * marks, start=range(marks), end=range(1, marks + 1)),
        ranges=Ranges.build(kind=list(RangeKind), name=[0] * ranges, thread=[0] * ranges, start=[0] * ranges,
                            end=range(1, ranges + 1)),
        touches=Touches.build(kind=[0], call=[0], address=[4096], bytes=[8]),
        devices=(Device(id=0),),
        streams=tuple(Stream(device=0, id=row, kind=kind) for row, kind in enumerate(StreamKind)),
        threads=(Thread(pid=1, tid=1),), strings=names,
    )  # fmt: skip


def test_every_kind_can_be_written(tmp_path: Path) -> None:
    back = read_back(every_kind(), tmp_path)
    written = {OpKind.KERNEL, OpKind.H2D, OpKind.D2H, OpKind.D2D, OpKind.P2P, OpKind.H2H, OpKind.MEMSET}
    assert set(back.ops.kind.tolist()) == {int(kind) for kind in written}
    assert set(back.marks.kind.tolist()) == {int(kind) for kind in MarkKind}
    assert {int(RangeKind.LOADING), int(RangeKind.CPU_OP)} <= set(back.ranges.kind.tolist())
    said = " ".join(chrome.left_out(every_kind()))
    for what in (
        "host function",
        "of kinds that the format does not have",
        "graph",
        "NVTX",
        "memory each call touches",
    ):
        assert what in said


def test_file_is_json_that_others_read(tmp_path: Path) -> None:
    write(tmp_path / "odd.json", chrome.pieces(odd()))
    events = json.loads((tmp_path / "odd.json").read_bytes())["traceEvents"]
    assert {event["ph"] for event in events} == {"X", "M", "s", "f"}
    arrows = {phase: {event["id"] for event in events if event["ph"] == phase} for phase in "sf"}
    assert arrows["s"] == arrows["f"] != set()


def test_hostile_words_about_streams_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "own.json", chrome.pieces(odd()))
    text = (tmp_path / "own.json").read_text()
    known = json.loads(text)["gapless"]
    for told in (None, 7, [], {"streams": 7}, {"streams": [7, {"device": "0"}, {"device": 0, "stream": 7, "kind": 4}]}):
        path = tmp_path / "other.json"
        path.write_text(text.replace(json.dumps(known), json.dumps(told)))
        assert [stream.kind for stream in load(path).streams] == [StreamKind.LEGACY, StreamKind.UNKNOWN]


def test_gzipped_file_is_read_back(tmp_path: Path) -> None:
    timeline = load(TIMELINES[0])
    write(tmp_path / "back.json.gz", gzipped(chrome.pieces(timeline)))
    assert work(load(tmp_path / "back.json.gz"), names=True) == work(timeline, names=True)


def test_marks_alone_make_a_file(tmp_path: Path) -> None:
    timeline = Timeline(marks=Marks.build(kind=[MarkKind.RECORD], start=[0], end=[0]))
    write(tmp_path / "marks.json", chrome.pieces(timeline))
    assert json.loads((tmp_path / "marks.json").read_bytes())["traceEvents"][0]["cat"] == "cuda_event"
