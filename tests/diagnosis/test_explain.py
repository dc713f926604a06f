"""The report as a whole: its data, the order of findings, windows, devices, headline and notes."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from gapless.diagnosis.explain import explain
from gapless.model.errors import GaplessError
from gapless.model.kinds import StreamKind
from gapless.timeline.timeline import Device, RangeKind, Timeline, Unknown

US, MS, MIB = 1_000, 1_000_000, 1 << 20
NUMBER, OPTIONAL = (int, float), (int, float, type(None))

REPORT = {"version": int, "source": str, "device": str, "wall_ms": NUMBER, "engines": dict, "overlapped": NUMBER,
          "headline": str, "steps": (dict, type(None)), "replay": (dict, type(None)), "findings": list,
          "together": (dict, type(None)), "notes": list, "unknown": list, "lost": list}  # fmt: skip
FINDING = {"cause": str, "title": str, "cost_ms": NUMBER, "count": int, "evidence": str, "advice": str, "where": list,
           "repair": (dict, type(None)), "wall_ms": OPTIONAL, "speedup": OPTIONAL, "low": OPTIONAL,
           "high": OPTIONAL}  # fmt: skip
WHERE = {"file": str, "line": int, "function": str, "count": int}
REPAIR = {"name": str, "grade": str, "precondition": str}
ENGINE = {"busy": NUMBER, "bytes": int, "gb_per_s": NUMBER}


def check(values: dict, keys: dict) -> None:
    assert set(keys) <= set(values)
    for key, kinds in keys.items():
        assert isinstance(values[key], kinds), key


@pytest.fixture
def loop(made):
    gpu = made.Gpu()
    made.loop(gpu, each=lambda host, stream, i: host.sync())
    return gpu


def test_the_report_as_data(loop):
    values = json.loads(json.dumps(loop.explain().to_dict(), allow_nan=False))
    check(values, REPORT)
    assert values["version"] == 1
    assert list(values["engines"]) == ["h2d", "sm", "d2h"]
    for engine in values["engines"].values():
        check(engine, ENGINE)
        assert 0 <= engine["busy"] <= 1
    for finding in values["findings"]:
        check(finding, FINDING)
        for where in finding["where"]:
            check(where, WHERE)
        if finding["repair"]:
            check(finding["repair"], REPAIR)
            assert finding["repair"]["grade"] in {"sure", "likely", "needs care"}


def test_faults_that_cost_most_come_first(made):
    def each(host, stream, i):
        host.malloc(200 * US)
        host.free()
        host.work(100 * US)

    gpu = made.Gpu()
    made.loop(gpu, each=each, pinned=False)
    faults = [f.cost_ms for f in gpu.explain().findings if not f.verdict and (f.speedup or 2) > 1.02]
    assert faults == sorted(faults, reverse=True)


def test_the_verdict_stands_first_where_no_fault_is_worth_a_repair(made):
    gpu = made.Gpu()
    made.loop(gpu, kernel=500 * US, each=lambda host, stream, i: host.sync() if i == 15 else None)
    findings = gpu.explain().findings
    assert [f.verdict for f in findings] == [True, False]
    assert findings[0].cause == "kernel-bound"
    assert 0 < findings[1].cost_ms < 0.1 * gpu.explain().wall_ms


def test_the_verdict_comes_last_where_a_fault_is_worth_it(made):
    gpu = made.Gpu()
    made.loop(gpu, kernel=500 * US, each=lambda host, stream, i: host.sync())
    findings = gpu.explain().findings
    assert [f.verdict for f in findings] == [False, True]


def test_evidence_is_whole_sentences(made):
    for each in (lambda h, s, i: h.sync(), lambda h, s, i: h.kernel(0, US), lambda h, s, i: h.work(MS), None):
        gpu = made.Gpu()
        made.loop(gpu, each=each)
        report = gpu.explain()
        for finding in report.findings:
            for text in (finding.evidence, finding.advice):
                assert text.endswith(".")
                assert text[0].isupper() or text[0].isdigit() or text.startswith("cuda")
                assert not re.search(r"  |\bnan\b|\b0 times| ,|\(\)|None", text)
            assert not finding.title.endswith(".")
        assert report.headline.endswith(".")


# Windows and devices


def test_a_window_is_explained_for_itself(made):
    gpu = made.Gpu()
    host = made.loop(gpu, chunks=64)
    middle = host.now
    for i in range(32):
        stream = 1 + i % 4
        host.h2d(stream, 4 * MIB)
        host.kernel(stream, 80 * US)
        host.d2h(stream, 4 * MIB)
        host.sync()
    timeline = gpu.timeline()
    assert explain(timeline, end_ns=middle).findings[0].cause == "copy-bound"
    second = explain(timeline, start_ns=middle)
    assert second.findings[0].cause == "host-synchronize"
    assert second.window[0] == middle
    assert second.wall_ms == pytest.approx((timeline.window()[1] - middle) / 1e6)


def test_a_window_without_work_says_so(loop):
    timeline = loop.timeline()
    end = timeline.window()[1]
    report = explain(timeline, start_ns=end + MS, end_ns=end + 2 * MS)
    assert report.findings == ()
    assert report.headline == "No GPU activity in this window."
    assert report.wall_ms == 1.0


def test_steps_are_summed_up(made):
    gpu = made.Gpu()
    host = gpu.host()
    for i in range(10):
        with host.inside(f"ProfilerStep#{i}", RangeKind.STEP):
            host.kernel(0, MS)
            host.sync()
    report = gpu.explain(steps=(2, 6))
    assert report.steps is not None
    assert report.steps.count == 4


def test_a_device_that_is_not_there(loop):
    with pytest.raises(GaplessError, match="no device 3 in this timeline; it has: 0"):
        loop.explain(device=3)


def test_a_device_without_work_says_which_has_some(made):
    gpu = made.Gpu(devices=2)
    made.loop(gpu, streams=[1])
    report = gpu.explain(device=0)
    assert report.findings == ()
    assert report.headline == "No activity on device 0: what worked in this timeline is device 1."
    assert gpu.explain().device_row == 1  # the busiest is the default


def test_no_work_at_all():
    report = explain(Timeline(devices=(Device(id=0, name="NVIDIA H200"),)))
    assert report.findings == ()
    assert report.headline.startswith("No GPU activity in this timeline.")
    json.dumps(report.to_dict(), allow_nan=False)
    assert explain(Timeline()).headline.startswith("No GPU activity")


# Headline, notes, what is not known


def test_the_headline_says_how_busy_and_what_binds(made):
    gpu = made.Gpu()
    made.loop(gpu, streams=1)
    headline = gpu.explain().headline
    assert re.match(
        r"Of 7\.99 ms: H2D copies 34%, kernels 32%, D2H copies 34%; at least two engines at once 0%\.", headline
    )
    assert headline.endswith("Copies and kernels take turns in stream 13: 63% of the time.")


def test_a_start_that_distorts_the_whole_is_noted(made):
    gpu = made.Gpu()
    host = gpu.host()
    host.kernel(0, 10 * US, "load")
    host.work(50 * MS)
    for _ in range(50):
        host.kernel(0, MS)
    notes = " ".join(gpu.explain().notes)
    assert "The first 50" in notes
    assert "--from 50.0" in notes
    assert "start-up" not in " ".join(gpu.explain(start_ns=52 * MS).notes)


def test_what_the_source_cannot_tell_is_passed_on_with_what_was_inferred(made):
    gpu = made.Gpu(tells_kinds=False)
    made.loop(gpu, each=lambda host, stream, i: host.kernel(0, 2 * US))
    kinds = Unknown(what="stream-kinds", text="Nobody says which streams are blocking.", remedy="Ask.")
    report = explain(replace(gpu.timeline(), unknown=(kinds,)))
    assert [u.what for u in report.unknown] == ["stream-kinds"]
    assert report.unknown[0].text == (
        "Nobody says which streams are blocking. "
        "By the fencing seen: 4 streams (13, 14, 15, 16) inferred to be blocking."
    )


def test_one_default_stream_leaves_nothing_to_tell_apart(made):
    gpu = made.Gpu()
    host = gpu.host()
    host.kernel(0, MS)
    unknown = (Unknown(what="stream-kinds", text="Nobody says."),)
    report = explain(replace(gpu.timeline(), unknown=unknown))
    assert report.unknown == ()


def test_unexplained_waits_are_noted(made):
    gpu = made.Gpu()
    host = gpu.host()
    stream = gpu.stream(StreamKind.NON_BLOCKING)
    for _ in range(20):
        host.kernel(stream, 50 * US)
        for engine in gpu.engine_free:
            gpu.engine_free[engine] += 200 * US
    notes = " ".join(gpu.explain().notes)
    assert "an event wait that it does not show" in notes
