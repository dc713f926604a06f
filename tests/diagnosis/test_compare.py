"""Compare two timelines, and gates."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

import gapless
from gapless import cli
from gapless.diagnosis.compare import compare, hold
from gapless.diagnosis.report import Prediction
from gapless.model.errors import GaplessError

ONE_STREAM = "examples/timelines/one-stream.json.gz"


@pytest.fixture(scope="module")
def reports(made):
    serial, four = made.Gpu(), made.Gpu()
    made.loop(serial, streams=1)
    made.loop(four, streams=4)
    return serial.explain(), four.explain()


def test_what_changed(reports):
    found = compare(*reports)
    assert [finding.cause for finding in found.went] == ["single-stream"]
    assert "single-stream" not in [finding.cause for finding in found.came]
    assert found.speedup == pytest.approx(reports[0].wall_ms / reports[1].wall_ms)
    assert found.prediction is not None
    assert found.prediction.repairs == ("streams=4",)
    assert "streams=4 was predicted" in found.verdict


def test_a_repair_with_nothing_to_change_is_not_credited(reports):
    before, after = reports
    assert before.together is None
    asked = replace(
        next(f for f in before.findings if f.cause == "single-stream"), repair=None, speedup=None
    )  # so that what was asked for is what there is to hold against
    idle = Prediction(repairs=("pin", "streams=4"), wall_ms=3.0, speedup=2.0, idle={"pin": "there is nothing to pin"})
    found = compare(replace(before, findings=(asked,), prediction=idle), after)
    assert found.prediction == idle
    assert "From before, streams=4 was predicted" in found.verdict
    alone = replace(idle, repairs=("pin",))
    assert compare(replace(before, findings=(asked,), prediction=alone), after).verdict == ""


def test_the_other_way_round(reports):
    found = compare(reports[1], reports[0])
    assert "single-stream" in [finding.cause for finding in found.came]
    assert found.speedup < 1


def test_the_same_twice(reports):
    found = compare(reports[0], reports[0])
    assert (found.went, found.came) == ((), ())
    assert [change.cause for change in found.stayed] == ["single-stream"]
    assert found.speedup == found.untraced == 1
    assert found.prediction is None


def test_plain_values(reports):
    values = json.loads(json.dumps(compare(*reports, gates=["overlapped>=0.3", "no single-stream"]).to_dict()))
    assert {"version", "before", "after", "went", "came", "stayed", "speedup", "gates"} <= values.keys()
    assert values["went"] == ["single-stream"]
    assert [gate["holds"] for gate in values["gates"]] == [True, True]
    assert values["gates"][0]["got"] == pytest.approx(reports[1].overlapped)


@pytest.mark.parametrize(
    ("gate", "holds"),
    [("overlapped>=0.3", False), ("overlapped < 1%", True), ("wall_ms<=1000", True), ("wall_ms>1e3", False),
     ("busy.sm>=20%", True), ("no single-stream", False), ("no pageable-copy", True), ("gb_per_s.h2d>1", True),
     ("step_ms<5", False), ("replay_error<5%", True)],
)  # fmt: skip
def test_gates(reports, gate, holds):
    (held,) = hold(reports[0], [gate])
    assert held.holds is holds
    assert held.reason.startswith(gate)
    assert "\n" not in held.reason


@pytest.mark.parametrize(
    ("gate", "says"),
    [("overlaped>=0.6", "Did you mean overlapped"), ("overlapped", "cannot be read"), ("overlapped>=x", "is no number"),
     ("no pageable-cpy", "Did you mean pageable-copy"), ("", "cannot be read"), ("no", "cannot be read"),
     ("wall_ms<=nan", "is no number"), ("speedup>=1", "The names are")],
)  # fmt: skip
def test_a_gate_that_cannot_be_read(reports, gate, says):
    with pytest.raises(GaplessError, match=says):
        hold(reports[0], [gate])


def test_it_prints_itself(reports):
    text = str(gapless.compare(*reports, gates=["speedup>=1.5"]))
    assert "Went" in text
    assert "speedup>=1.5: holds" in text


@pytest.fixture
def idle(tmp_path: Path) -> Path:
    path = tmp_path / "idle.json"
    path.write_text('{"traceEvents": []}')
    return path


def test_of_nothing_no_gate_holds(idle: Path):
    held = hold(gapless.explain(idle), ["no pageable-copy", "wall_ms<=1", "overlapped<1"])
    assert [gate.holds for gate in held] == [False] * 3
    assert held[0].reason == "no pageable-copy: fails, nothing worked on the GPU"
    with pytest.raises(GaplessError, match="cannot be read"):
        hold(gapless.explain(idle), ["overlapped"])


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("gates", [(), ("--gate", "no pageable-copy"), ("--gate", "wall_ms<=3")])
@pytest.mark.parametrize("sides", ["before", "after", "both"])
def test_with_nothing_there_is_nothing_to_compare(idle: Path, capsys, sides, gates, form):
    names = [idle if sides in (side, "both") else ONE_STREAM for side in ("before", "after")]
    status, out, err = run(capsys, "compare", *names, *gates, *form)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{idle}: nothing to compare. No GPU activity" in err


def test_a_cut_timeline_is_said_to_be_cut(capsys, tmp_path: Path):
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(Path(ONE_STREAM).read_bytes()[:4_000])
    for names, label in (((ONE_STREAM, cut), "after"), ((cut, ONE_STREAM), "before")):
        status, out, err = run(capsys, "compare", *names)
        assert (status, err) == (0, "")
        assert out.count("is missing.") == 1
        assert f"Part of {label} is missing. The gzip data is cut short" in " ".join(out.split())
    assert "is missing" not in run(capsys, "compare", ONE_STREAM, ONE_STREAM)[1]


def test_no_gate_holds_of_a_cut_timeline(capsys, tmp_path: Path):
    """What is left of it is quicker than the whole, and has no causes that the rest had."""
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(Path(ONE_STREAM).read_bytes()[:4_000])
    for call in (
        ("compare", ONE_STREAM, cut, "--gate", "speedup>=1.1"),
        ("compare", cut, ONE_STREAM, "--gate", "no default-stream-barrier"),
        ("explain", cut, "--gate", "no default-stream-barrier"),
    ):
        status, out, err = run(capsys, *call)
        assert status == 1
        assert f"part of {cut} is missing" in " ".join((out + err).split())
    assert run(capsys, "compare", ONE_STREAM, ONE_STREAM, "--gate", "speedup>=0.9")[0] == 0


def test_a_window_without_work_holds_no_gate(made, capsys, monkeypatch):
    gpu = made.Gpu()
    host = gpu.host()
    host.kernel(0, 1_000_000)
    host.work(10_000_000)
    host.kernel(0, 1_000_000)
    timeline, window = gpu.timeline(), ["--from=3ms", "--to=4ms"]
    monkeypatch.setattr("gapless.timeline.sources.load", lambda path, progress=None: timeline)
    status, out, _ = run(capsys, "explain", "made.json", *window)
    assert (status, "No GPU activity in this window" in out) == (0, True)
    for form in ((), ("--json",)):
        status, out, err = run(capsys, "explain", "made.json", *window, "--gate", "no single-stream", *form)
        assert status == 2
        assert "No GPU activity in this window" in err


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    status = cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_from_the_shell(measured: Path, capsys, tmp_path: Path):
    loops = measured / "loop"
    before, after = loops / "balanced16M.serial1.json.gz", loops / "balanced16M.four.json.gz"
    status, out, err = run(
        capsys, "compare", before, after, "--json", "--gate", "speedup>=2", "--gate", "no single-stream"
    )
    assert (status, err) == (0, "")
    assert json.loads(out)["went"] == ["single-stream"]
    status, out, err = run(capsys, "compare", before, after, "--gate", "wall_ms<=20")
    assert status == 1
    assert err.count("\n") == 1
    assert "wall_ms<=20" in err
    status, out, err = run(capsys, "compare", before, after, "--gate", "wal_ms<=20")
    assert (status, out) == (2, "")
    assert "Did you mean wall_ms" in err
    status, out, err = run(capsys, "explain", before, "--gate", "no single-stream", "--json")
    assert status == 1
    assert json.loads(out)["findings"][0]["cause"] == "single-stream"
    tape = tmp_path / "repaired.tape"
    status, out, err = run(capsys, "explain", before, "--apply", "streams=4", "--save", tape)
    assert (status, err) == (0, "")
    assert tape.exists()
    assert run(capsys, "explain", before, "--apply", "streams=4", "--save", tape)[0] == 0  # nothing is changed
    tape.write_text(tape.read_text() + "# mine\n")
    status, out, err = run(capsys, "explain", before, "--apply", "streams=4", "--save", tape)
    assert (status, out) == (2, "")
    assert "is there already" in err
    status, out, err = run(capsys, "explain", before, "--apply", "stream=4")
    assert (status, out) == (2, "")
    assert "Did you mean streams" in err
    status, out, err = run(capsys, "explain", before, "--save", tmp_path / "x.tape")
    assert status == 2
    assert "--apply" in err


def test_gates_hold_of_a_timeline_in_which_a_text_was_mended(capsys, tmp_path: Path):
    """A number that JSON does not have in what stands beside an event: all the work is there."""
    whole = gzip.decompress(Path(ONE_STREAM).read_bytes()).decode()
    mended = tmp_path / "mended.json"
    mended.write_text(whole.replace('"args": {', '"args": {"loss": nan, ', 1))
    report = gapless.explain(mended)
    assert (len(report.lost), report.mended) == (1, report.lost)
    assert report.lost[0].startswith("Mended 1 event")
    assert report.wall_ms == gapless.explain(ONE_STREAM).wall_ms
    assert run(capsys, "explain", mended, "--gate", "no default-stream-barrier")[0] == 0
    assert run(capsys, "compare", ONE_STREAM, mended, "--gate", "no default-stream-barrier")[0] == 0
