"""Traces of real programs: what they hold was counted with another reader (the standard library's)."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapless.model.kinds import CallKind, MemoryKind, OpKind
from gapless.timeline.sources import load
from gapless.timeline.timeline import MarkKind, RangeKind, Timeline


def kinds(timeline: Timeline) -> dict[str, int]:
    return dict(Counter(OpKind(kind).name for kind in timeline.ops.kind.tolist()))


def memories(timeline: Timeline, kind: OpKind) -> dict[tuple[str, str], int]:
    rows = timeline.ops.kind == kind
    pairs = zip(timeline.ops.src[rows].tolist(), timeline.ops.dst[rows].tolist(), strict=True)
    return dict(Counter((MemoryKind(src).name, MemoryKind(dst).name) for src, dst in pairs))


def unknown(timeline: Timeline) -> set[str]:
    return {each.what for each in timeline.unknown}


def test_chunk_loop_with_a_forgotten_default_stream_copy(measured: Path) -> None:
    timeline = load(measured / "loop/balanced16M.trap4.json.gz")
    assert kinds(timeline) == {"H2D": 128, "KERNEL": 64, "D2H": 64}
    assert memories(timeline, OpKind.H2D) == {("PINNED", "DEVICE"): 64, ("PAGEABLE", "DEVICE"): 64}
    assert memories(timeline, OpKind.D2H) == {("DEVICE", "PINNED"): 64}
    assert len(timeline.calls) == 270
    assert (timeline.ops.call >= 0).all()
    assert sorted(stream.id for stream in timeline.streams) == [7, 251, 252, 253, 254]
    (device,) = timeline.devices
    assert (device.name, device.sms, device.compute_capability) == ("NVIDIA H200", 132, (9, 0))
    assert unknown(timeline) == {"stream-kinds", "sync-targets", "buffers", "source-lines"}
    assert timeline.info["cuda_driver_version"] == 13000
    assert timeline.info["overlaps"] == 0
    assert timeline.lost == ()
    # The first call of the file, at 5168488869742.786 µs after the base, and the first copy.
    assert timeline.clock_ns == 1790857026000000000 + 5168488869742786
    first = int(np.flatnonzero(timeline.ops.correlation == 16002)[0])
    assert timeline.ops.start[first] == 5168488872833731 - 5168488869742786
    assert timeline.ops.end[first] - timeline.ops.start[first] == 305117
    assert timeline.ops.bytes[first] == 16777216
    assert timeline.name_of(int(timeline.calls.name[timeline.ops.call[first]])) == "cudaMemcpyAsync"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch/training.naive", {"KERNEL": 408, "MEMSET": 120, "H2D": 24, "D2D": 24, "D2H": 24}),
        ("torch/item_each_step.before", {"KERNEL": 700, "MEMSET": 100, "D2H": 100}),
        ("torch/launch_bound.after", {"KERNEL": 4000}),
        ("torch/many_small_tensors.before", {"H2D": 2000}),
        ("loop/balanced16M.pageable4", {"H2D": 64, "KERNEL": 64, "D2H": 64}),
        ("loop/partialgpu4M.eight", {"H2D": 128, "KERNEL": 128, "D2H": 128}),
    ],
)
def test_counts_by_kind(measured: Path, name: str, expected: dict[str, int]) -> None:
    timeline = load(measured / f"{name}.json.gz")
    assert kinds(timeline) == expected
    assert (timeline.ops.call >= 0).all()
    assert timeline.lost == ()


def test_kernels_of_a_graph_belong_to_its_launch(measured: Path) -> None:
    timeline = load(measured / "torch/launch_bound.after.json.gz")
    assert set(timeline.calls.kind[timeline.ops.call].tolist()) == {CallKind.GRAPH_LAUNCH}
    assert len(set(timeline.ops.call.tolist())) == 5


def test_python_frames_and_threads(measured: Path) -> None:
    timeline = load(measured / "torch/training.naive.json.gz")
    ranges = Counter(RangeKind(kind).name for kind in timeline.ranges.kind.tolist())
    assert ranges == {"PYTHON": 4701, "CPU_OP": 2400, "ANNOTATION": 48, "OVERHEAD": 2}
    assert "torch_trace.py(35): <module>" in timeline.strings
    assert [(thread.pid, thread.tid) for thread in timeline.threads] == [(-1, 0), (675, 675), (675, 700)]
    assert all(thread.name for thread in timeline.threads[1:])


def test_old_dialect_of_2021(shared: Path) -> None:
    timeline = load(shared / "traces/torch-resnet50-v100-no-workers.json.gz")
    assert kinds(timeline) == {"KERNEL": 8772, "MEMSET": 312, "H2D": 12}
    assert memories(timeline, OpKind.H2D) == {("PAGEABLE", "DEVICE"): 12}
    assert (len(timeline.calls), len(timeline.ranges)) == (11923, 23646)
    assert int((timeline.ranges.stack >= 0).sum()) == 14994
    assert [device.name for device in timeline.devices] == ["Tesla V100-DGXS-32GB"] * 4
    assert timeline.clock_ns == 1623142623460072000
    assert timeline.lost == ()


def test_dialect_of_2022_with_eight_ranks(shared: Path) -> None:
    timeline = load(shared / "traces/torch-training-a100-109k-events.json.gz")
    assert kinds(timeline) == {"KERNEL": 8568, "MEMSET": 654, "H2D": 150, "D2H": 60, "D2D": 18}
    assert [(timeline.devices[stream.device].id, stream.id) for stream in timeline.streams] == [
        (3, 7), (3, 20), (3, 21), (3, 22),
    ]  # fmt: skip
    assert {name: timeline.info[name] for name in ("backend", "rank", "world_size")} == {
        "backend": "nccl", "rank": 3, "world_size": 8,
    }  # fmt: skip
    assert timeline.lost == ()


def test_synchronisation_rows(shared: Path) -> None:
    timeline = load(shared / "traces/torch-event-wait-two-streams-a100.json.gz")
    marks = timeline.marks
    assert Counter(MarkKind(kind).name for kind in marks.kind.tolist()) == {
        "WAIT": 1, "SYNC_EVENT": 3, "SYNC_DEVICE": 1, "RECORD": 4,
    }  # fmt: skip
    assert (marks.call >= 0).all()
    (wait,) = np.flatnonzero(marks.kind == MarkKind.WAIT)
    assert timeline.streams[marks.stream[wait]].id in {20, 24, 28}
    assert (timeline.streams[timeline.marks.waits_on[wait]].id, marks.record[wait] > 0) == (20, True)


def test_rocm(shared: Path) -> None:
    timeline = load(shared / "traces/torch-rocm-mi250.json.gz")
    assert kinds(timeline) == {"KERNEL": 14, "H2D": 2}
    assert memories(timeline, OpKind.H2D) == {("UNKNOWN", "DEVICE"): 2}
    assert timeline.ops.bytes[timeline.ops.kind == OpKind.H2D].tolist() == [2560, 2560]
    assert (timeline.ops.grid[timeline.ops.kind == OpKind.KERNEL] > 0).all()
    assert {device.vendor for device in timeline.devices} == {"amd"}
    assert timeline.devices[2].sms == 104
    copies = timeline.ops.kind == OpKind.H2D
    assert set(timeline.calls.kind[timeline.ops.call[copies]].tolist()) == {CallKind.COPY_SYNC}
    assert unknown(timeline) == {"stream-kinds", "buffers", "source-lines", "memory-kinds"}


def exact_times(folder: Path, name: str) -> tuple[Timeline, list[dict[str, Any]]]:
    path = folder / name
    trace = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return load(path), trace["traceEvents"]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("measured", "loop/balanced16M.malloc4.json.gz"),
        ("measured", "torch/cpu_results.after.json.gz"),
        ("shared", "traces/torch-rocm-mi250.json.gz"),
    ],
)
def test_every_time_is_exact(request: pytest.FixtureRequest, folder: str, name: str) -> None:
    timeline, events = exact_times(request.getfixturevalue(folder), name)
    gpu = {"kernel", "gpu_memcpy", "gpu_memset"}
    for table, categories in (
        (timeline.ops, gpu),
        (timeline.calls, {"cuda_runtime", "cuda_driver"}),
        (timeline.ranges, {"cpu_op", "python_function", "user_annotation", "overhead"}),
    ):
        expected = sorted(
            (int(Decimal(event["ts"]) * 1000), int(Decimal(event["ts"]) * 1000) + int(Decimal(event["dur"]) * 1000))
            for event in events
            if event.get("cat") in categories
        )
        zero = expected[0][0] - int(table.start[0])
        assert [(start - zero, end - zero) for start, end in expected] == sorted(
            zip(table.start.tolist(), table.end.tolist(), strict=True)
        )
        assert (table.start[1:] >= table.start[:-1]).all()


def test_the_large_one(shared: Path) -> None:
    timeline = load(shared / "groundtruth/large/launch-bound-60k-steps.json.gz")
    assert kinds(timeline) == {"KERNEL": 120000}
    assert (len(timeline.calls), len(timeline.ranges)) == (120003, 240023)
    assert (timeline.ops.call >= 0).all()
    assert len(set(timeline.ops.call.tolist())) == 120000
    assert timeline.info["overlaps"] == 0
    assert timeline.lost == ()
    first = int(np.flatnonzero(timeline.ops.correlation == 1577322)[0])
    assert (timeline.clock_ns or 0) + int(timeline.ops.start[first]) == 1790857026000000000 + 5168870776426096
    assert timeline.ops.end[first] - timeline.ops.start[first] == 3296
    assert (timeline.ops.grid[first].tolist(), timeline.ops.shared[first]) == ([2, 2, 1], 6528)
