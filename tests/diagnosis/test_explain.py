"""The report as a whole: its data, the order of findings, windows, devices, headline and notes."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from gapless.diagnosis.explain import explain
from gapless.diagnosis.repairs import REPAIRS
from gapless.diagnosis.words import each_of, size
from gapless.model.errors import GaplessError
from gapless.model.kinds import StreamKind
from gapless.timeline.timeline import Device, RangeKind, Timeline, Unknown
from gapless.views.terminal import to_text

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


def test_gains_are_those_of_a_window_that_cuts_operations(made):
    gpu = made.Gpu()
    host = gpu.host()
    streams = [gpu.stream(), gpu.stream()]
    for i in range(8):
        host.kernel(streams[i % 2], 10 * MS)
        host.sync()
    timeline = gpu.timeline()
    first = int(timeline.ops.start.min())
    window = {"start_ns": first + 6 * MS, "end_ns": first + 47 * MS}  # 41 ms of five kernels
    report = explain(timeline, **window, apply=["no-sync"])
    assert report.wall_ms == 41
    assert report.replay is not None
    assert report.prediction is not None
    assert report.replay.wall_ms == pytest.approx(41, rel=0.01)
    assert report.replay.untraced_ms == pytest.approx(41, rel=0.01)
    assert report.prediction.wall_ms * report.prediction.speedup == pytest.approx(report.replay.untraced_ms)
    assert re.search(
        r"The window cuts operations: they are replayed whole, 50(\.\d)? ms in all, and gains told for the 41.0 ms",
        " ".join(report.notes),
    )


def test_what_lies_around_a_windows_work_is_in_its_time(made):
    """A window that begins and ends while the device does nothing: no repair makes that shorter."""
    gpu = made.Gpu()
    host = gpu.host()
    host.kernel(0, MS)
    host.work(20 * MS)
    for _ in range(16):
        host.h2d(0, 4 * MIB)
        host.kernel(0, 80 * US)
        host.d2h(0, 4 * MIB)
    host.sync()
    timeline = gpu.timeline()
    begins = int(timeline.ops.start[1])
    busy = explain(timeline, start_ns=begins, apply=["streams=4"])
    wide = explain(timeline, start_ns=begins - 10 * MS, apply=["streams=4"])
    assert wide.wall_ms == pytest.approx(busy.wall_ms + 10)
    for one, other in ((wide.replay.untraced_ms, busy.replay.untraced_ms), (wide.prediction.wall_ms,
                                                                            busy.prediction.wall_ms)):  # fmt: skip
        assert one == pytest.approx(other + 10, rel=0.001)
    assert 1 < wide.prediction.speedup < busy.prediction.speedup
    assert not any("cuts" in note for note in wide.notes)


def test_a_window_without_work_says_so(made):
    gpu = made.Gpu()
    host = gpu.host()
    host.kernel(0, MS)
    host.work(10 * MS)
    host.kernel(0, MS)
    timeline = gpu.timeline()
    start = timeline.ops.start[0] + 3 * MS
    report = explain(timeline, start_ns=start, end_ns=start + MS)
    assert report.findings == ()
    assert report.headline == "No GPU activity in this window."
    assert report.wall_ms == 1.0


def test_a_window_outside_of_the_work_is_refused(loop):
    timeline = loop.timeline()
    start, end = timeline.ops.start.min(), timeline.ops.end.max()
    for since, until in ((end + MS, end + 2 * MS), (start - 2 * MS, start - MS)):
        with pytest.raises(GaplessError, match=r"outside of this timeline: .* 8\.157 ms long"):
            explain(timeline, start_ns=since, end_ns=until)


def test_a_window_beyond_the_work_is_cut_and_says_so(loop):
    timeline = loop.timeline()
    start, end = int(timeline.ops.start.min()), int(timeline.ops.end.max())
    whole = explain(timeline)
    report = explain(timeline, start_ns=start - 2 * MS, end_ns=end + 3 * MS)
    assert report.window == whole.window == (start, end)
    assert report.to_dict()["findings"] == whole.to_dict()["findings"]
    assert report.notes[0].startswith(
        "The window asked for begins 2.00 ms before the first work on the device and ends 3.00 ms after the last "
    )
    assert explain(timeline, start_ns=start - 10, end_ns=end + 10).notes == whole.notes


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
    host.work(20 * MS)
    for _ in range(50):
        host.kernel(0, MS)
    report = gpu.explain()
    notes = " ".join(report.notes)
    assert "The first 20" in notes
    assert "--from 20ms." in notes  # no digits that nobody needs
    assert "start-up" not in report.headline
    assert "start-up" not in " ".join(gpu.explain(start_ns=22 * MS).notes)


def test_an_option_that_leaves_out_first_uses_is_rounded_to_later(made):
    gpu = made.Gpu()
    host = gpu.host()
    host.kernel(0, MS, "warm")
    host.kernel(0, MS, "cold", first=10 * MS + 123_456)
    for _ in range(50):
        host.kernel(0, MS)
    said = re.search(r"are first uses .*--from ([\d.]+)ms\.", " ".join(gpu.explain().notes))
    assert said is not None
    timeline = gpu.timeline()
    end = (int(timeline.calls.end[1]) - int(timeline.ops.start[0])) / 1e6
    assert end <= float(said[1]) <= end + 0.01
    assert len(said[1].replace(".", "")) <= 4


def test_a_start_that_takes_most_of_the_run_is_said_first(made):
    gpu = made.Gpu()
    host = gpu.host()
    host.kernel(0, 10 * US, "load")
    host.work(100 * MS)
    for _ in range(50):
        host.kernel(0, MS)
    report = gpu.explain()
    assert re.search(r"0%\. The first 100 ms \(67%\) are start-up: .* --from 100ms\. ", report.headline)
    assert "start-up" not in " ".join(report.notes)
    top = report.findings[0]
    assert top.cause == "host-bound"
    assert top.advice.startswith("Look at what comes after the start with --from 100ms. ")
    later = gpu.explain(start_ns=102 * MS)
    assert "start-up" not in later.headline + " ".join(later.notes)


def test_a_start_ends_with_the_first_kernel_though_copies_ran_before(made):
    gpu = made.Gpu()
    host = gpu.host()
    host.h2d(0, 5 * MIB)
    host.work(100 * MS)
    for _ in range(5):
        host.kernel(0, 10 * US)
        host.h2d(0, MIB)
    assert "are start-up: the device works" in gpu.explain().headline


def test_a_pause_in_the_middle_is_no_start(made):
    gpu = made.Gpu()
    host = gpu.host()
    for _ in range(2):
        for _ in range(5):
            host.kernel(0, MS)
        host.work(100 * MS)
    host.kernel(0, MS)
    report = gpu.explain()
    assert "start-up" not in report.headline + " ".join(report.notes) + report.findings[0].evidence
    assert report.findings[0].advice.startswith("Move that work off")


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ([3 * MS], "3.00 ms"),
        ([3 * MS] * 4, "3.00 ms each time, 12.0 ms in all"),
        ([2 * MS, 3 * MS, 5 * MS], "3.33 ms each time, 10.0 ms in all"),
        ([1_000_000 * US, 2 * MS, MS, 1 * MS, MS], "1.00 s once and at most 2.00 ms the other 4 times, 1.00 s in all"),
        ([20 * MS, 2 * MS], "20.0 ms once and 2.00 ms the other time, 22.0 ms in all"),
        ([MS] * 60 + [20 * MS] * 6, "1.00 ms (median) to 20.0 ms each time, 180 ms in all"),
        ([20 * US] * 3000 + [200 * US], "20.1 µs each time, 60.2 ms in all"),
    ],
)
def test_what_each_time_cost_is_a_mean_only_of_like_times(costs, said):
    assert each_of(np.array(costs)) == said


def test_waits_for_nothing_do_not_lower_the_mean(made):
    gpu = made.Gpu()
    host = gpu.host()
    for _ in range(10):
        host.kernel(0, MS)
        host.sync()
        host.sync()  # by now there is nothing to wait for
        host.work(50 * US)
    finding = next(f for f in gpu.explain().findings if f.cause == "host-synchronize")
    assert finding.count == 18
    said = re.search(r"then wait ([0-9.]+) µs each time, ([0-9.]+) µs in all, after 9 of them", finding.evidence)
    assert said is not None
    assert float(said[1]) * 9 == pytest.approx(float(said[2]), rel=0.01)


def test_the_place_of_the_longest_wait_is_told_first(made):
    gpu = made.Gpu()
    host = gpu.host()
    for i in range(12):
        with host.inside("train.py(7): load" if i != 6 else "train.py(9): save", RangeKind.PYTHON):
            host.work(MS if i != 6 else 100 * MS)
            host.kernel(0, MS)
    finding = next(f for f in gpu.explain().findings if f.cause == "host-bound")
    assert [(place.line, place.count > 1) for place in finding.where] == [(9, False), (7, True)]
    assert " once and " in finding.evidence


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


def test_what_is_counted_in_the_whole_timeline_is_said_to_be_where_a_part_is_explained(loop):
    texts = ("For 32 calls, it says nothing.", "The trace says nothing of 3 calls.", "7 of 9 were not timed.",
             "The trace says nothing of memory.", "If streams wait, it is silent.", "CUPTI lost 3.")  # fmt: skip
    timeline = replace(loop.timeline(), unknown=tuple(Unknown(what=f"w{i}", text=text) for i, text in enumerate(texts)))
    assert [unknown.text for unknown in explain(timeline).unknown] == list(texts)
    assert [unknown.text for unknown in explain(timeline, end_ns=int(timeline.ops.end[40])).unknown] == [
        "In the whole timeline, for 32 calls, it says nothing.",
        "In the whole timeline, the trace says nothing of 3 calls.",
        "In the whole timeline, 7 of 9 were not timed.",
        *texts[3:],
    ]


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


# What repairs have nothing to change


def test_a_repair_that_finds_nothing_to_change_is_told_apart(made):
    gpu = made.Gpu()
    made.loop(gpu, streams=1)
    both = explain(gpu.timeline(), apply=["pin", "streams=4"])
    alone = explain(gpu.timeline(), apply=["streams=4"])
    assert both.prediction is not None
    assert alone.prediction is not None
    assert both.prediction.repairs == ("pin", "streams=4")
    assert list(both.prediction.idle) == ["pin"]
    assert both.prediction.speedup == alone.prediction.speedup > 1.5
    assert both.to_dict()["prediction"]["idle"] == dict(both.prediction.idle)
    assert "idle" not in alone.to_dict()["prediction"]
    assert re.search(
        r"Asked for: streams=4: .* faster .*\. pin changes nothing: there is nothing to pin",
        " ".join(to_text(both, width=100).split()),
    )
    assert "predicted with streams=4" in to_text(both, width=100)
    nothing = to_text(explain(gpu.timeline(), apply=["pin"]), width=100)
    assert "Asked for: pin changes nothing: there is nothing to pin" in nothing
    assert "predicted with" not in nothing


def test_a_repair_that_adds_nothing_to_the_others_is_told_apart(made):
    gpu = made.Gpu()
    made.loop(gpu, each=lambda host, stream, i: host.sync())
    alone = explain(gpu.timeline(), apply=["no-sync"]).prediction
    both = explain(gpu.timeline(), apply=["no-sync", "streams=4"]).prediction  # the chunks are in four streams already
    assert alone is not None
    assert both is not None
    assert dict(both.idle) == {"streams=4": "the time is the same with no-sync alone"}
    assert both.wall_ms == pytest.approx(alone.wall_ms, rel=0.001)
    fewer = explain(gpu.timeline(), apply=["no-sync", "streams=1"]).prediction
    assert fewer is not None
    assert not fewer.idle


@pytest.mark.parametrize("repair", sorted(set(REPAIRS) - {"connections", "streams"}))
def test_every_repair_says_why_it_changes_nothing(made, repair):
    gpu = made.Gpu()
    host = gpu.host()
    host.kernel(gpu.stream(), MS)
    report = explain(gpu.timeline(), apply=[repair])
    assert report.prediction is not None
    assert report.prediction.speedup == 1
    assert report.prediction.idle == {repair: REPAIRS[repair].IDLE}


def test_bytes_are_told_in_the_units_of_rates():
    said = [size(count) for count in (12, 999, 64 << 10, 1 << 20, 1 << 30)]
    assert said == ["12 bytes", "999 bytes", "65.5 kB", "1.05 MB", "1.07 GB"]
