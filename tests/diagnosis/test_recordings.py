"""Explanations from recordings of an H200: the chunk loop with each of its mistakes, and Python programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gapless
from gapless.diagnosis.known_events import known_events, tells_events
from gapless.diagnosis.report import Report
from gapless.diagnosis.work import gather
from gapless.model.kinds import CallKind

FOLDER = Path(__file__).resolve().parents[1] / "recorder" / "recordings"


def explained(name: str) -> Report:
    return gapless.explain(FOLDER / f"{name}.gapless.gz")


@pytest.mark.parametrize(
    ("name", "cause", "line"),
    [
        ("serial", "single-stream", 71), ("legacy", "single-stream", 71), ("trap", "default-stream-barrier", 74),
        ("pageable", "pageable-copy", 71), ("devsync", "host-synchronize", None),
        ("streamsync", "host-synchronize", None), ("eventsync", "host-synchronize", None),
    ],
)  # fmt: skip
def test_the_mistake_is_found_first_and_at_its_line(name: str, cause: str, line: int | None) -> None:
    report = explained(name)
    assert report.findings[0].cause == cause
    assert report.replay is not None
    assert abs(report.replay.error) < 0.05
    where = report.findings[0].where[0]
    assert where.file.endswith("loops.cu")
    assert where.function.startswith("chunks → ")
    assert line in (None, where.line)


def test_allocations_in_the_loop() -> None:
    finding = explained("malloc").findings[0]
    assert finding.cause == "allocation-in-loop"
    assert finding.where[0].function.endswith("main → cudaMalloc")


def test_the_repaired_loop_has_no_fault_that_is_worth_a_repair() -> None:
    for name in ("streams4", "trap_nb"):
        report = explained(name)
        assert all((finding.speedup or 1) < 1.1 for finding in report.findings)
        assert "default-stream-barrier" not in {finding.cause for finding in report.findings}


def test_a_place_is_the_users_line_and_no_stub_of_the_compiler() -> None:
    files = {where.file for name in ("streams4", "trap_nb") for f in explained(name).findings for where in f.where}
    assert files
    assert all("/usr/" not in file for file in files)


def test_python_programs_are_placed_by_their_own_lines() -> None:
    causes = {finding.cause: finding for finding in explained("cupy").findings}
    pageable = causes["pageable-copy"].where[0]
    assert (Path(pageable.file).name, pageable.line) == ("cupy_prog.py", 9)


def test_a_wait_that_may_be_for_a_compiler_says_so() -> None:
    finding = explained("triton").findings[0]
    assert finding.cause == "host-bound"
    assert "the code of a kernel was loaded that had not run before (cuModuleLoadData)" in finding.evidence
    assert "compiling" in finding.advice
    others = [finding for name in ("torch", "cupy", "numba") for finding in explained(name).findings]
    assert not [finding for finding in others if "code of a kernel was loaded" in finding.evidence]  # told as start-up


def test_what_the_recording_tells_of_events_is_not_guessed_beside_it() -> None:
    timeline = gapless.load(FOLDER / "eventsync.gapless.gz")
    assert tells_events(timeline)
    work = gather(timeline, 0, *timeline.window())
    events = known_events(work)
    assert not events.before
    assert not events.waits  # the streams of this loop wait for nothing
    asked = np.flatnonzero(timeline.calls.kind == CallKind.SYNC_EVENT)
    assert set(events.syncs) == set(asked.tolist())
