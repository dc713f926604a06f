"""Exports from public repositories, read from beside the checkout."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gapless.diagnosis.explain import explain
from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.timeline.sources import nsys
from gapless.timeline.timeline import MarkKind, RangeKind, Timeline

TWO_GPUS = {
    "nsys-two-gpu-before": {
        OpKind.KERNEL: 4010, OpKind.D2D: 986, OpKind.H2D: 34, OpKind.MEMSET: 269,
        "calls": 7466, "marks": 332 + 366, "ranges": 19118 + 6, "linked": 5299 - 31,
    },
    "nsys-two-gpu-after": {
        OpKind.KERNEL: 3587, OpKind.D2D: 872, OpKind.H2D: 32, OpKind.MEMSET: 242,
        "calls": 6682, "marks": 300 + 334, "ranges": 17113 + 6, "linked": 4733 - 16,
    },
}  # fmt: skip


def read(shared: Path, export: SimpleNamespace, name: str) -> Timeline:
    timeline = nsys.read(shared / "traces" / f"{name}.sqlite")
    export.check(timeline)
    assert timeline.lost == ()
    return timeline


@pytest.mark.parametrize("name", TWO_GPUS)
def test_two_processes_with_a_gpu_each(shared: Path, export: SimpleNamespace, name: str) -> None:
    timeline, wanted = read(shared, export, name), TWO_GPUS[name]
    ops = timeline.ops
    counts = Counter(OpKind(kind) for kind in ops.kind.tolist())
    assert counts == {kind: count for kind, count in wanted.items() if isinstance(kind, OpKind)}
    assert len(timeline.calls) == wanted["calls"]
    assert len(timeline.marks) == wanted["marks"]
    assert len(timeline.ranges) == wanted["ranges"]
    uploads = ops.take(ops.kind == OpKind.H2D)
    assert set(zip(uploads.src.tolist(), uploads.dst.tolist(), uploads.bytes.tolist(), strict=True)) == {
        (MemoryKind.PAGEABLE, MemoryKind.DEVICE, 8)
    }
    # Each process has its own device, and issues all of its work.
    linked = ops.call >= 0
    assert int(linked.sum()) == wanted["linked"]
    pid = np.array([thread.pid for thread in timeline.threads])[timeline.calls.thread[ops.call[linked]]]
    assert len(set(zip(pid.tolist(), ops.device[linked].tolist(), strict=True))) == 2
    used = {
        (stream.id, stream.kind, stream.inferred) for stream in (timeline.streams[row] for row in np.unique(ops.stream))
    }
    assert used == {(7, StreamKind.LEGACY, True), (15, StreamKind.LEGACY, True)}
    others = [stream for stream in timeline.streams if stream.id not in (7, 15)]
    assert {stream.kind for stream in others} == {StreamKind.NON_BLOCKING}
    assert {(stream.id, stream.device, stream.priority) for stream in others} == {
        (24, 0, -1), (28, 0, -1), (153, 0, 0), (32, 1, -1), (36, 1, -1), (161, 1, 0),
    }  # fmt: skip
    kinds = Counter(RangeKind(kind) for kind in timeline.ranges.kind.tolist())
    assert kinds[RangeKind.OVERHEAD] == 6
    nvtx = {timeline.name_of(row) for row in timeline.ranges.name[timeline.ranges.kind == RangeKind.NVTX].tolist()}
    assert nvtx == {"ncclCommCount", "ncclGroupStart", "ncclGroupEnd", "ncclSend", "ncclRecv"}
    assert "cudaLaunchKernel_v7000" in timeline.strings
    assert "aten::copy_" in timeline.strings
    assert not any(text.startswith("#") for text in timeline.strings)
    # The stream that a synchronise names is the one on the right device, though its row says device 0.
    marks = timeline.marks.take(timeline.marks.kind == MarkKind.SYNC_STREAM)
    assert {(timeline.streams[row].id, timeline.streams[row].device) for row in marks.stream.tolist()} == {
        (7, 0),
        (15, 1),
    }
    assert (timeline.calls.kind[marks.call] == CallKind.SYNC_STREAM).all()
    assert {gap.what for gap in timeline.unknown} == {"host-calls", "event-waits", "buffers", "source-lines"}


def test_a_small_whole_export(shared: Path, export: SimpleNamespace) -> None:
    timeline = read(shared, export, "nsys-tiny-rtx3080")
    ops = timeline.ops
    assert ops.kind.tolist() == [OpKind.KERNEL, OpKind.KERNEL, OpKind.D2H]
    assert (ops.src[2], ops.dst[2], ops.bytes[2]) == (MemoryKind.DEVICE, MemoryKind.PINNED, 4)
    assert timeline.name_of(int(ops.name[0])).startswith("void at::native::vectorized_elementwise_kernel<(int)4, ")
    assert ops.correlation.tolist() == [143, 159, 171]
    assert ops.registers.tolist()[:2] == [16, 28]
    assert ops.shared.tolist() == [0, 16, -1]
    assert (ops.end - ops.start).tolist() == [1440, 2689, 1632]
    calls = [timeline.name_of(row) for row in timeline.calls.name[ops.call].tolist()]
    assert calls == ["cudaLaunchKernel_v7000", "cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020"]
    (device,) = timeline.devices
    assert (device.name, device.sms, device.compute_capability) == ("NVIDIA GeForce RTX 3080", 68, (8, 6))
    assert (device.memory_bytes, device.threads_per_sm) == (10_736_893_952, 1536)
    (stream,) = timeline.streams
    assert (stream.id, stream.kind, stream.inferred, stream.priority) == (7, StreamKind.LEGACY, False, 0)
    assert timeline.marks.kind.tolist() == [MarkKind.SYNC_STREAM]  # numbered 2 in the export, but the call is clear
    assert {gap.what for gap in timeline.unknown} == {"buffers", "source-lines"}
    assert timeline.info["EXPORT_SCHEMA_VERSION"] == "3.24.14"
    loading = timeline.ranges.name[timeline.ranges.kind == RangeKind.LOADING].tolist()
    assert {timeline.name_of(row) for row in loading} == {"Runtime Triggered Module Loading", "Lazy Function Loading"}
    overhead = timeline.ranges.name[timeline.ranges.kind == RangeKind.OVERHEAD].tolist()
    assert {"CUPTI Buffer flush", "Unknown"} < {timeline.name_of(row) for row in overhead}


def test_an_export_with_few_columns(shared: Path, export: SimpleNamespace) -> None:
    timeline = read(shared, export, "nsys-healthy")
    assert timeline.ops.kind.tolist() == [OpKind.KERNEL] * 400
    assert (timeline.ops.call >= 0).all()
    assert timeline.ops.start[0] == 3000  # the first call began 3 us before the session's zero
    assert [device.name for device in timeline.devices] == ["NVIDIA H100 80GB HBM3"]
    assert {gap.what for gap in timeline.unknown} == {"buffers", "source-lines"}


@pytest.mark.parametrize("name", [*TWO_GPUS, "nsys-tiny-rtx3080", "nsys-healthy"])
def test_every_device_can_be_explained(shared: Path, export: SimpleNamespace, name: str) -> None:
    timeline = read(shared, export, name)
    for device in timeline.devices:
        report = explain(timeline, device=device.id)
        assert report.wall_ms > 0
        assert report.findings
    if name == "nsys-healthy":
        assert report.findings[0].cause == "kernel-bound"
