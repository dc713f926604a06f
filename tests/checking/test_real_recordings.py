"""Races in recordings of an H200 with addresses: right programs, and the same with their waits taken out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gapless.checking.recordings import check
from gapless.model.kinds import CallKind, OpKind, StreamKind
from gapless.timeline.sources import load
from gapless.timeline.timeline import MarkKind, Timeline, TouchKind

FOLDER = Path(__file__).resolve().parents[1] / "recorder" / "recordings"
WAITS = (CallKind.SYNC_DEVICE, CallKind.SYNC_STREAM, CallKind.SYNC_EVENT, CallKind.WAIT_EVENT, CallKind.QUERY)


def recording(name: str) -> Timeline:
    return load(FOLDER / f"{name}_addresses.gapless.gz")


def without_waits(timeline: Timeline) -> Timeline:
    """Give the same run as if nothing had waited for anything, in streams that do not fence each other."""
    waits = np.isin(timeline.calls.kind, WAITS)
    calls = replace(timeline.calls, kind=np.where(waits, CallKind.OTHER, timeline.calls.kind).astype(np.int8))
    marks = timeline.marks.take(timeline.marks.kind == MarkKind.RECORD)
    apart = [replace(s, kind=StreamKind.NON_BLOCKING) if s.kind is StreamKind.BLOCKING else s for s in timeline.streams]
    return replace(timeline, calls=calls, marks=marks).with_streams(apart)


@pytest.mark.parametrize("name", ["trap", "cupy", "torch"])
def test_programs_that_are_right_have_no_race(name: str) -> None:
    found = check(recording(name))
    assert found.findings == ()
    assert found.calls > 30


@pytest.mark.parametrize("name", ["trap", "cupy", "torch"])
def test_every_copy_tells_both_sides_and_every_launch_its_pointers(name: str) -> None:
    timeline = recording(name)
    ops, touches = timeline.ops, timeline.touches
    single = ops.graph < 0
    for kinds, told in (
        ((OpKind.H2D, OpKind.D2H), (TouchKind.READ, TouchKind.WRITE)), ((OpKind.KERNEL,), (TouchKind.ARGUMENT,)),
    ):  # fmt: skip
        calls = np.unique(ops.call[np.isin(ops.kind, kinds) & single & (ops.call >= 0)])
        for kind in told:
            assert np.isin(calls, touches.call[touches.kind == kind]).mean() > 0.95
    copies = np.flatnonzero(np.isin(ops.kind, (OpKind.H2D, OpKind.D2H)) & single & (ops.call >= 0))
    size = dict(zip(ops.call[copies].tolist(), ops.bytes[copies].tolist(), strict=True))
    written = np.flatnonzero((touches.kind == TouchKind.WRITE) & np.isin(touches.call, list(size)))
    assert all(size[int(touches.call[row])] == int(touches.bytes[row]) for row in written.tolist())


def test_without_its_waits_the_cupy_program_races_exactly() -> None:
    found = check(without_waits(recording("cupy")))
    assert not found.ok
    assert any(finding.exact and finding.first.what.startswith("D2H copy of") for finding in found.findings)
    assert all(finding.first.file.endswith("cupy_prog.py") for finding in found.findings)


def test_without_its_waits_the_pytorch_program_may_race_in_kernels() -> None:
    found = check(without_waits(recording("torch")))
    possible = [finding for finding in found.findings if not finding.exact]
    assert any(f.first.what.startswith("H2D copy") and f.second.what.startswith("kernel ") for f in possible)
    assert all(finding.steps for finding in possible if finding.second.stream)
