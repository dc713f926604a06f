"""Scenes: what the browser is given says exactly what the timeline says."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gapless
from gapless.model.kinds import CallKind, OpKind, StreamKind
from gapless.timeline.timeline import Calls, Device, MarkKind, Marks, Ops, RangeKind, Ranges, Stream, Thread, Timeline
from gapless.views.packing import Packer
from gapless.views.scene import DEEPEST, MOST_STREAMS, Highlight, scene_of
from gapless.views.tracks import nested, packed

EXAMPLES = Path(__file__).parents[2] / "examples"


def unpack(data: str, described: list[int]) -> list[int]:
    """Read a packed column by the words of its documentation."""
    raw = gzip.decompress(base64.b64decode(data))
    offset, count, width, differences = described
    values: list[int] = []
    for i in range(count):
        folded = sum(raw[offset + plane * count + i] << 8 * plane for plane in range(width))
        value = -(folded + 1) // 2 if folded % 2 else folded // 2
        values.append(value + (values[-1] if differences and values else 0))
    return values


@settings(deadline=None)
@given(st.lists(st.integers(-(2**51), 2**51 - 1)), st.booleans())
def test_what_is_packed_comes_back(values: list[int], differences: bool) -> None:
    packer = Packer()
    first = packer.add(np.array([7, 7], np.int64))
    described = packer.add(np.array(values, np.int64), differences=differences)
    assert unpack(packer.data, described) == values
    assert unpack(packer.data, first) == [7, 7]


def test_numbers_that_a_browser_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        Packer().add(np.array([2**52]))


intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1).map(sorted)


@settings(deadline=None)
@given(intervals)
def test_no_two_intervals_of_a_track_overlap_while_there_are_tracks(found: list[tuple[int, int]]) -> None:
    start = np.array([begin for begin, _ in found])
    end = start + np.array([length for _, length in found])
    track = packed(start, end, most=len(found))
    for number in np.unique(track):
        mine = track == number
        assert (start[mine][1:] >= end[mine][:-1]).all()
    assert packed(start, end, most=2).max() <= 1


def test_nested_calls_lie_as_deep_as_they_are_called() -> None:
    start, end = np.array([0, 0, 1, 3, 10]), np.array([10, 5, 2, 4, 11])
    assert nested(start, end).tolist() == [0, 1, 2, 2, 0]


def timeline() -> Timeline:
    return Timeline(
        ops=Ops.build(kind=[OpKind.H2D, OpKind.KERNEL, OpKind.D2H], name=[0, 1, 0], device=[0, 0, 0], stream=[0, 0, 1],
                      start=[1000, 1200, 1300], end=[1200, 1500, 1600], bytes=[64, -1, 32], call=[0, 1, -1]),
        calls=Calls.build(kind=[CallKind.COPY_ASYNC, CallKind.LAUNCH, CallKind.SYNC_DEVICE, CallKind.MALLOC],
                          name=[2, 3, 4, 5], thread=[0, 0, 0, 0], start=[990, 995, 1001, 5000],
                          end=[994, 1000, 1610, 5001]),
        marks=Marks.build(kind=[MarkKind.RECORD, MarkKind.WAIT], stream=[0, 1], start=[1200, 1205], end=[1200, 1205],
                          event=[9, 9]),
        ranges=Ranges.build(kind=[RangeKind.STEP, RangeKind.CPU_OP], name=[6, 7], thread=[0, 0], start=[900, 1001],
                            end=[1650, 1100]),
        devices=(Device(id=0),),
        streams=(Stream(device=0, id=7, kind=StreamKind.LEGACY), Stream(device=0, id=20, name="copies")),
        threads=(Thread(pid=1, tid=1, name="main"),),
        strings=("copy", "gemm", "cudaMemcpyAsync", "cudaLaunchKernel", "cudaDeviceSynchronize", "cudaMalloc", "step 1",
                 "aten::mm"),
        source="loop.json",
    )  # fmt: skip


def columns(scene: dict[str, Any]) -> dict[str, list[Any]]:
    """Give the columns of the items, with texts for numbers."""
    got = {name: unpack(scene["data"], described) for name, described in scene["items"].items()}
    got["name"] = [scene["strings"][number] for number in got["name"]]
    got["kind"] = [scene["kinds"][number][0] for number in got["kind"]]
    return got


def lane(scene: dict[str, Any], group: str, number: int = 0) -> tuple[str, list[str]]:
    names = columns(scene)["name"]
    found = [one for one in scene["lanes"] if one["group"] == group][number]
    return found["label"], [names[row] for row in unpack(scene["data"], found["rows"])]


def test_a_scene_says_what_the_timeline_says() -> None:
    scene = scene_of(timeline(), highlights=[Highlight(title="a fault", spans=np.array([[1050, 1100], [1090, 1150]]))])
    items = columns(scene)
    assert (scene["start"], scene["end"], scene["title"]) == (0, 600, "loop.json")
    assert items["start"] == [50, 0, 200, 300, 200, 205, -10, -5, 1, -60, 1]
    assert items["length"] == [100, 200, 300, 300, 0, 0, 4, 5, 609, 710, 99]
    assert items["kind"] == [
        "finding", "copy to the device", "kernel", "copy to the host", "event record", "event wait", "call", "call",
        "waiting call", "step", "operator",
    ]  # fmt: skip
    assert items["bytes"][1:4] == [64, -1, 32]
    assert lane(scene, "findings") == ("a fault", ["a fault"])
    assert [lane(scene, "engines", n) for n in range(3)] == [("H2D", ["copy"]), ("SM", ["gemm"]), ("D2H", ["copy"])]
    assert lane(scene, "streams", 0) == ("stream 7 (default)", ["copy", "gemm"])
    assert lane(scene, "streams", 1) == ("copies", ["copy"])
    assert lane(scene, "host") == ("main", ["cudaMemcpyAsync", "cudaLaunchKernel", "cudaDeviceSynchronize"])
    assert lane(scene, "ranges", 0) == ("ranges of main", ["step 1"])
    assert lane(scene, "ranges", 1) == ("operators of main", ["aten::mm"])
    arrows = [unpack(scene["data"], scene["arrows"][end]) for end in ("from", "to")]
    assert [(items["name"][a], items["name"][b]) for a, b in zip(*arrows, strict=True)] == [
        ("cudaMemcpyAsync", "copy"), ("cudaLaunchKernel", "gemm"),
    ]  # fmt: skip
    assert "cudaMalloc" not in scene["strings"]  # long after all device work


def test_without_host_only_the_device_is_drawn() -> None:
    scene = scene_of(timeline(), host=False)
    assert {one["group"] for one in scene["lanes"]} == {"engines", "streams"}
    assert unpack(scene["data"], scene["arrows"]["from"]) == []


def test_an_empty_timeline_is_an_empty_scene() -> None:
    scene = scene_of(Timeline())
    assert (scene["lanes"], scene["end"]) == ([], 1)
    json.dumps(scene)


def test_what_is_left_out_is_said() -> None:
    count = MOST_STREAMS + 3
    start = np.arange(count) * 10
    deep = DEEPEST + 2
    scene = scene_of(
        Timeline(
            ops=Ops.build(kind=[OpKind.KERNEL] * count, device=[0] * count, stream=range(count), start=start,
                          end=start + 9),
            ranges=Ranges.build(kind=[RangeKind.PYTHON] * deep, name=[0] * deep, thread=[0] * deep,
                                start=range(deep), end=range(300, 300 - deep, -1)),
            devices=(Device(id=0),), streams=[Stream(device=0, id=n) for n in range(count)], strings=("f",),
            threads=(Thread(pid=0, tid=0),),
        )
    )  # fmt: skip
    assert scene["notes"] == [
        "3 more streams with less work are not drawn.",
        f"2 Python frames nested more than {DEEPEST} deep are not drawn.",
    ]
    assert sum(one["group"] == "streams" for one in scene["lanes"]) == MOST_STREAMS


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("timelines/*.json.gz")), ids=lambda path: path.name)
def test_every_operation_of_the_examples_is_in_an_engine_lane_and_a_stream_lane(path: Path) -> None:
    loaded = gapless.load(path)
    scene = scene_of(loaded)
    for group in ("engines", "streams"):
        lanes = [one for one in scene["lanes"] if one["group"] == group]
        assert sum(one["rows"][1] for one in lanes) == len(loaded.ops)
