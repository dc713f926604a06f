"""Each cause on timelines recorded on an H200: one that has it, and one that looks alike but has not."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from gapless.diagnosis.explain import explain
from gapless.diagnosis.report import Report
from gapless.timeline.sources import load

RECORDED = Path(__file__).parent / "recorded"

# What must stand first, and what it may cost, as a fraction of the window: around what the same program without the
# fault takes less.
FIRST = [
    ("d2hheavy8M.serial1", "single-stream", 0.15, 0.25),
    ("h2donly8M.serial1", "single-stream", 0.06, 0.16),
    ("one.big", "single-stream", 0.35, 0.50),
    ("partial1M.two", "too-few-buffers", 0.10, 0.25),
    ("copyheavy16M.one_slot4", "too-few-buffers", 0.40, 0.52),
    ("events1.blind", "too-few-buffers", 0.20, 0.28),
    ("d2hheavy8M.trap4", "default-stream-barrier", 0.18, 0.28),
    ("balanced64M.trapkernel4", "default-stream-barrier", 0.40, 0.55),
    ("balanced64K.trap4", "default-stream-barrier", 0.35, 0.65),
    ("balanced64K.pageable4", "pageable-copy", 0.65, 0.85),
    ("d2honly8M.malloc4", "allocation-in-loop", 0.45, 0.60),
    ("copyheavy16M.hostalloc4", "allocation-in-loop", 0.90, 1.00),
    ("h2donly8M.devsync4", "host-synchronize", 0.08, 0.20),
    ("multi4.item", "host-synchronize", 0.10, 0.22),
    ("balanced64M.sync1", "synchronous-copy", 0.40, 0.52),
    ("copyheavy16M.hostwork4", "host-bound", 0.30, 0.45),
    ("hostbound.nostack", "host-bound", 0.75, 0.90),
    ("balanced64K.four", "launch-bound", 0.20, 0.60),
    ("small.back", "small-copies", 0.50, 1.00),
    ("first", "first-use", 0.60, 0.95),
]

# What has the outward signs of a fault and is none the slower for it, and the verdict that must stand first instead.
HEALTHY = [
    ("d2hheavy8M.four", "copy-bound"),
    ("h2donly8M.four", "copy-bound"),
    ("balanced64M.two", "copy-bound"),
    ("balanced64M.ring4", "copy-bound"),
    ("balanced64M.threads_devsync4", "copy-bound"),
    ("copyheavy16M.mallocasync4", "copy-bound"),
    ("events2.blind", "kernel-bound"),
    ("big.item", "kernel-bound"),
]


@cache
def explained(name: str) -> Report:
    return explain(load(RECORDED / f"{name}.json.gz"))


@pytest.mark.parametrize(("name", "cause", "low", "high"), FIRST, ids=[row[0] for row in FIRST])
def test_what_is_wrong_stands_first_and_costs_what_its_repair_wins(name, cause, low, high):
    report = explained(name)
    first = report.findings[0]
    assert first.cause == cause
    assert low <= first.cost_ms / report.wall_ms <= high
    assert not first.verdict
    assert first.spans.shape[1] == 2


@pytest.mark.parametrize(("name", "verdict"), HEALTHY, ids=[row[0] for row in HEALTHY])
def test_what_only_looks_wrong_leaves_the_verdict_first(name, verdict):
    report = explained(name)
    assert report.findings[0].cause == verdict
    assert all(f.cost_ms < 0.04 * report.wall_ms for f in report.findings if not f.verdict)


@pytest.mark.parametrize("name", sorted({row[0] for row in FIRST + HEALTHY} | {"cupy.good"}))
def test_costs_add_up_to_no_more_than_the_window(name):
    report = explained(name)
    assert sum(f.cost_ms for f in report.findings if not f.verdict) <= report.wall_ms


def test_harmless_waits_are_named_and_said_to_cost_nothing():
    report = explained("balanced64M.ring4")
    waits = next(f for f in report.findings if f.cause == "host-synchronize")
    assert waits.cost_ms < 0.001 * report.wall_ms
    assert waits.count > 2


def test_a_buffer_shared_by_an_event_is_not_called_too_few_streams():
    finding = explained("copyheavy16M.one_slot4").findings[0]
    assert "buffer" in finding.title
    assert "stream" not in finding.title


def test_the_upload_that_asks_for_chunks_is_told_to_be_cut():
    finding = explained("one.big").findings[0]
    assert finding.repair is not None
    assert finding.repair.name == "chunks=8"


def test_compiling_inside_an_operator_is_a_first_use():
    finding = explained("first").findings[0]
    assert "special_i0" in finding.evidence  # 326 ms before its first launch
    assert finding.where[0].file == "record.py"
