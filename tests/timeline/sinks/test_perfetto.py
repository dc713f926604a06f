"""Perfetto traces, taken apart by the classes that Perfetto's own package generates from its schema."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

from gapless.model.kinds import CallKind, OpKind, StreamKind
from gapless.model.simulation import simulate
from gapless.timeline.simulated import from_schedule
from gapless.timeline.sinks import Note, perfetto
from gapless.timeline.sources import load
from gapless.timeline.timeline import Calls, Device, Ops, RangeKind, Ranges, Stream, Thread, Timeline

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
Event = schema.TrackEvent


class Trace:
    """A trace as Perfetto reads it: tracks, and their slices and instants with names and facts looked up."""

    def __init__(self, timeline: Timeline, notes=()) -> None:
        self.packets = schema.Trace.FromString(b"".join(perfetto.pieces(timeline, notes))).packet
        self.tracks = {
            p.track_descriptor.uuid: p.track_descriptor for p in self.packets if p.HasField("track_descriptor")
        }
        self.first_event = next((row for row, p in enumerate(self.packets) if p.HasField("track_event")), 0)
        texts = next(p.interned_data for p in self.packets if p.HasField("interned_data"))
        self.names = {entry.iid: entry.name for entry in texts.event_names}
        self.categories = {entry.iid: entry.name for entry in texts.event_categories}
        self.values = {entry.iid: entry.str.decode() for entry in texts.debug_annotation_string_values}
        self.facts = {entry.iid: entry.name for entry in texts.debug_annotation_names}
        self.slices: dict[str, list[tuple[int, int, str, str, dict]]] = defaultdict(list)
        self.instants: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.begun: dict[int, tuple[str, str]] = {}  # where each arrow begins, and where it ends
        self.ended: dict[int, tuple[str, str]] = {}
        self._read()

    def _read(self) -> None:
        still: dict[int, list] = defaultdict(list)
        last = 0
        for packet in self.packets:
            assert packet.trusted_packet_sequence_id == 1
            if not packet.HasField("track_event"):
                continue
            assert packet.sequence_flags == schema.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            assert packet.timestamp >= last  # in order of time
            last, event = packet.timestamp, packet.track_event
            track = self.tracks[event.track_uuid].name
            if event.type == Event.TYPE_SLICE_END:
                begin = still[event.track_uuid].pop()
                self.slices[track].append((begin[0], last, *begin[1:]))
                continue
            name = self.names[event.name_iid]
            self.begun |= dict.fromkeys(event.flow_ids, (track, name))
            self.ended |= dict.fromkeys(event.terminating_flow_ids, (track, name))
            if event.type == Event.TYPE_INSTANT:
                self.instants[track].append((last, name))
                continue
            assert event.type == Event.TYPE_SLICE_BEGIN
            facts = {self.facts[a.name_iid]: self.value_of(a) for a in event.debug_annotations}
            still[event.track_uuid].append((last, name, self.categories[event.category_iids[0]], facts))
        assert not any(still.values())  # every slice ends

    def value_of(self, annotation):
        value = getattr(annotation, annotation.WhichOneof("value"))
        return self.values[value] if annotation.WhichOneof("value") == "string_value_iid" else value

    def path(self, uuid: int) -> tuple[str, ...]:
        track = self.tracks[uuid]
        above = self.path(track.parent_uuid) if track.parent_uuid else ()
        return (*above, track.name)


@pytest.mark.parametrize("name", ["forgotten-default-stream-copy", "pytorch-training"])
def test_every_operation_is_on_its_engine_and_its_stream(name: str) -> None:
    timeline = load(EXAMPLES / "timelines" / f"{name}.json.gz")
    trace, ops = Trace(timeline), timeline.ops
    first = min(int(table.start.min()) for table in (ops, timeline.calls, timeline.ranges))
    expected = sorted(zip((ops.start - first).tolist(), (ops.end - first).tolist(), strict=True))
    engines = [s[:2] for track in ("H2D copy engine", "SMs", "D2H copy engine") for s in trace.slices[track]]
    streams = [s[:2] for track, slices in trace.slices.items() if track.startswith("stream ") for s in slices]
    assert sorted(engines) == sorted(streams) == expected
    threads = [s for track, slices in trace.slices.items() if track.startswith("thread") for s in slices]
    assert len(threads) == len(timeline.calls) + len(timeline.ranges)
    assert sum(s[3] == "cuda call" for s in threads) == len(timeline.calls)


def test_tracks_are_in_groups_and_in_order() -> None:
    timeline = load(EXAMPLES / "timelines" / "four-streams-healthy.json.gz")
    trace = Trace(timeline, [Note(name="copies", spans=np.array([[0, 5]]))])
    paths = [trace.path(uuid) for uuid in trace.tracks if uuid]
    assert [path[-1] for path in paths if len(path) == 1] == [
        "findings of gapless", "GPU 0: NVIDIA H200", "host", f"host process {timeline.threads[1].pid}"
    ]  # fmt: skip
    lanes = [path[1] for path in paths if path[0].startswith("GPU 0") and len(path) == 2]
    assert list(dict.fromkeys(lanes)) == [
        "H2D copy engine",
        "SMs",
        "D2H copy engine",
        *(f"stream {s.id}" for s in timeline.streams),
    ]
    ranks = [(t.parent_uuid, t.sibling_order_rank) for t in trace.tracks.values() if t.uuid]
    assert len(set(ranks)) == len(ranks)
    explicit = schema.TrackDescriptor.EXPLICIT
    assert {t.child_ordering for t in trace.tracks.values()} == {explicit}


def test_arrows_lead_from_each_call_to_its_work() -> None:
    timeline = load(EXAMPLES / "timelines" / "one-stream.json.gz")
    trace, ops = Trace(timeline), timeline.ops
    assert (ops.call >= 0).all()
    called = [timeline.name_of(int(timeline.calls.name[call])) for call in ops.call]
    assert [trace.begun[row + 1][1] for row in range(len(ops))] == called
    assert [trace.ended[row + 1][1] for row in range(len(ops))] == [timeline.name_of(int(n)) for n in ops.name]
    assert {track.partition(" ")[0] for track, _ in trace.ended.values()} == {"stream"}


def test_events_of_a_tape_are_instants_tied_to_each_other() -> None:
    timeline = from_schedule(simulate(EXAMPLES / "tapes" / "10-event-between-two-streams.tape").schedule)
    trace = Trace(timeline)
    assert any("record event" in name for of in trace.instants.values() for _, name in of)
    tied = {(trace.begun[flow], trace.ended[flow]) for flow in trace.begun if "event" in trace.ended[flow][1]}
    assert tied
    for (_, begins), (_, ends) in tied:
        assert begins.replace("record event", "wait for event") == ends


def test_facts_of_operations() -> None:
    timeline = Timeline(
        ops=Ops.build(
            kind=[OpKind.KERNEL, OpKind.H2D], name=[0, 1], device=[0, 0], stream=[0, 0], start=[0, 100], end=[50, 200],
            bytes=[-1, 400], src=[0, 2], dst=[0, 3], grid=[(7, 2, 1), (-1, -1, -1)], block=[(256, 1, 1), (-1, -1, -1)],
            registers=[40, -1], shared=[0, -1], occupancy=[0.5, np.nan], graph=[9, -1], correlation=[3, 0],
        ),
        devices=(Device(id=0),), streams=(Stream(device=0, id=7),), strings=("k", "copy"),
    )  # fmt: skip
    trace = Trace(timeline)
    assert trace.slices["SMs"] == trace.slices["stream 7"][:1] == [
        (0, 50, "k", "kernel", {"stream": 7, "grid": "7 × 2 × 1", "block": "256 × 1 × 1", "registers": 40,
                                "shared memory": 0, "occupancy": 0.5, "graph": 9, "correlation": 3})
    ]  # fmt: skip
    assert trace.slices["H2D copy engine"] == [
        (100, 200, "copy", "h2d", {"stream": 7, "bytes": 400, "GB/s": 4.0, "from": "pinned", "to": "device"})
    ]


def test_findings_are_slices_with_what_was_found() -> None:
    spans = np.array([[0, 10], [5, 20], [30, 30]])
    facts = {"cause": "pageable-copy", "cost ms": 1.5, "count": -3}
    timeline = Timeline(
        ops=Ops.build(kind=[0], name=[0], device=[0], stream=[0], start=[0], end=[40]),
        devices=(Device(id=0),), streams=(Stream(device=0, id=7),), strings=("k",),
    )  # fmt: skip
    trace = Trace(timeline, [Note(name="3 slow copies", spans=spans, facts=facts)])
    found = trace.slices["3 slow copies"]
    assert sorted(s[:2] for s in found) == [(0, 10), (5, 20), (30, 30)]
    assert all(s[2:] == ("3 slow copies", "finding", facts) for s in found)


def test_overlapping_work_is_on_tracks_of_one_name() -> None:
    """Perfetto draws tracks of one name below each other as one; slices that overlap on one track it would drop."""
    rng = np.random.default_rng(5)
    start = np.sort(rng.integers(0, 1000, 300))
    end = start + rng.integers(0, 80, 300)
    timeline = Timeline(
        ops=Ops.build(kind=[0] * 300, name=[0] * 300, device=[0] * 300, stream=[0] * 300, start=start, end=end),
        calls=Calls.build(kind=[CallKind.LAUNCH] * 300, name=[0] * 300, thread=[0] * 300, start=start, end=end),
        ranges=Ranges.build(kind=[RangeKind.CPU_OP] * 300, name=[0] * 300, thread=[0] * 300, start=start - 9, end=end),
        devices=(Device(id=0),), streams=(Stream(device=0, id=7),), threads=(Thread(pid=1, tid=2),), strings=("k",),
    )  # fmt: skip
    trace = Trace(timeline)
    shift = 9 - int(start.min())
    expected = sorted(zip((start + shift).tolist(), (end + shift).tolist(), strict=True))
    assert sorted(s[:2] for s in trace.slices["SMs"]) == expected
    assert len(trace.slices["thread 2"]) == 600
    flat = [uuid for uuid, track in trace.tracks.items() if track.name == "SMs"]
    assert len(flat) > 1


def test_text_from_traces_is_text() -> None:
    name = 'k<"T">\x1b[31m\ud800\0'
    timeline = Timeline(
        ops=Ops.build(kind=[0], name=[0], device=[0], stream=[0], start=[-5], end=[40]),
        devices=(Device(id=0),), streams=(Stream(device=0, id=7),), strings=(name,),
    )  # fmt: skip
    assert Trace(timeline).slices["SMs"][0][:3] == (0, 45, 'k<"T">\x1b[31m?\0')


def test_texts_are_told_once_before_the_first_event() -> None:
    trace = Trace(load(EXAMPLES / "timelines" / "one-stream.json.gz"))
    assert trace.packets[0].sequence_flags == schema.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    assert trace.packets[0].first_packet_on_sequence
    assert [row for row, packet in enumerate(trace.packets) if packet.HasField("interned_data")] == [1]
    assert not any(packet.HasField("track_descriptor") for packet in trace.packets[trace.first_event :])


def test_every_kind_can_be_written() -> None:
    kinds, ranges = list(OpKind), list(RangeKind)
    timeline = Timeline(
        ops=Ops.build(kind=kinds, name=[0] * len(kinds), device=[0] * len(kinds), stream=[0] * len(kinds),
                      start=range(len(kinds)), end=range(1, len(kinds) + 1)),
        ranges=Ranges.build(kind=ranges, name=[0] * len(ranges), thread=[0] * len(ranges), start=range(len(ranges)),
                            end=range(1, len(ranges) + 1)),
        devices=(Device(id=0),), threads=(Thread(pid=1, tid=2),), strings=("k",),
        streams=tuple(Stream(device=0, id=row, kind=kind) for row, kind in enumerate(StreamKind)),
    )  # fmt: skip
    trace = Trace(timeline)
    on_streams = [s for track, slices in trace.slices.items() if track.startswith("stream") for s in slices]
    assert {s[3] for s in on_streams} == {kind.name.lower() for kind in OpKind}
    assert len({s[3] for s in trace.slices["thread 2"]}) == len(RangeKind)


def test_nothing_makes_an_empty_trace() -> None:
    assert Trace(Timeline()).slices == {}


def test_every_field_is_one_that_the_schema_knows() -> None:
    """What a parser does not know it skips: a wrong field number would show as an unknown field."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    timeline = from_schedule(simulate(EXAMPLES / "tapes" / "50-pytorch-two-streams.tape").schedule)
    trace = schema.Trace.FromString(b"".join(perfetto.pieces(timeline, [Note(name="n", spans=np.array([[0, 1]]))])))

    def check(message) -> None:
        assert len(UnknownFieldSet(message)) == 0
        for field, value in message.ListFields():
            if field.message_type is not None:
                for inner in value if field.is_repeated else [value]:
                    check(inner)

    check(trace)
