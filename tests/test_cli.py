"""The command line from outside: what goes where, and with which exit status."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gapless
from gapless import cli
from gapless.diagnosis.report import EngineUse, Finding, Report
from gapless.model.errors import GaplessError
from gapless.model.kinds import OpKind
from gapless.timeline.timeline import Device, Ops, Stream, Timeline

TIMELINE = Timeline(
    ops=Ops.build(kind=[OpKind.H2D, OpKind.KERNEL], device=[0, 0], stream=[0, 0], start=[1000, 3000], end=[3000, 9000]),
    devices=(Device(id=0, name="GPU"),),
    streams=(Stream(device=0, id=7),),
)


def report_named(source: str, cost_ms: float = 0.0) -> Report:
    finding = Finding(cause="host-synchronize", title="A wait", cost_ms=cost_ms, count=1, evidence="It waits.")
    return Report(
        source=source,
        device="GPU",
        wall_ms=10.0,
        engines={"sm": EngineUse(busy=0.5, bytes=0, gb_per_s=0.0)},
        overlapped=0.0,
        headline=f"Headline of {source}.",
        findings=(finding,) if cost_ms else (),
    )


class Readers:
    """Stand-ins for reading and explaining: a file's name says what happens to it."""

    def __init__(self) -> None:
        self.options: list[dict] = []

    def load(self, path, *, progress=None):
        name = Path(path).name
        if name.startswith("bad"):
            raise GaplessError(f"{path}: is \x1b[31m no timeline")
        if name.startswith("stop"):
            raise KeyboardInterrupt
        if name.startswith("gone"):
            raise OSError(5, "Input/output error")
        if name.startswith("fault"):
            raise KeyError("kind")
        return replace(TIMELINE, source=name)

    def explain(self, timeline, **options):
        self.options.append(options)
        return report_named(timeline.source, cost_ms=float(re.sub(r"\D", "", timeline.source) or 0))


@pytest.fixture
def readers(monkeypatch):
    stand_ins = Readers()
    monkeypatch.setattr("gapless.timeline.sources.load", stand_ins.load)
    monkeypatch.setattr("gapless.diagnosis.explain.explain", stand_ins.explain)
    return stand_ins


def run(capsys, *arguments):
    status = cli.main(arguments)
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


def test_one_timeline(readers, capsys):
    status, out, err = run(capsys, "explain", "a1.json")
    assert (status, err) == (0, "")
    assert out.startswith("a1.json  GPU, 10.0 ms\n\nHeadline of a1.json.")
    assert out.endswith("more: gapless explain --cause host-synchronize\n")


def test_several_timelines_are_summed_up_and_told_worst_first(readers, capsys):
    status, out, _ = run(capsys, "explain", "a1.json", "c.json", "b4.json")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["b4.json", "a1.json", "c.json"]
    assert re.findall(r"Headline of (\w+)", out) == ["b4", "a1", "c"]


def test_one_bad_file_among_several(readers, capsys):
    status, out, err = run(capsys, "explain", "a1.json", "bad.json", "b4.json")
    assert status == 2
    assert err == "gapless: bad.json: is \\x1b[31m no timeline\n"
    assert re.findall(r"Headline of (\w+)", out) == ["b4", "a1"]


def test_a_fault_of_gapless_itself_is_told_and_the_others_are_explained(readers, capsys):
    status, out, err = run(capsys, "explain", "fault.json", "a1.json")
    assert status == 2
    assert err.startswith("gapless: fault.json: gapless itself failed on this timeline (KeyError: 'kind').")
    assert "Headline of a1.json" in out


def test_a_file_that_cannot_be_read_further(readers, capsys):
    status, out, err = run(capsys, "explain", "gone.json", "a1.json")
    assert (status, err) == (2, "gapless: gone.json cannot be read: Input/output error\n")
    assert "Headline of a1.json" in out


def test_json_is_one_object_a_line_in_the_order_given(readers, capsys):
    status, out, err = run(capsys, "explain", "--json", "a1.json", "bad.json", "b4.json", "c.json")
    assert status == 2
    assert err.count("\n") == 1
    assert [json.loads(line)["source"] for line in out.splitlines()] == ["a1.json", "b4.json", "c.json"]


def test_json_holds_no_number_that_json_has_not(readers, capsys, monkeypatch):
    odd = replace(
        report_named("\ud800é", 1.0),
        wall_ms=np.float64("nan"),
        engines={"sm": EngineUse(busy=float("inf"), bytes=np.int64(3), gb_per_s=0.0)},
    )
    monkeypatch.setattr("gapless.diagnosis.explain.explain", lambda timeline, **_: odd)
    status, out, _ = run(capsys, "explain", "--json", "a1.json")
    values = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert status == 0
    assert out.isascii()
    assert (values["wall_ms"], values["engines"]["sm"]["busy"], values["engines"]["sm"]["bytes"]) == (None, None, 3)


@pytest.mark.parametrize(
    ("options", "passed"),
    [
        ([], {}),
        (["--device", "1"], {"device": 1}),
        (["--steps", "5:10"], {"steps": (5, 10)}),
        (["--from", "1.5us"], {"start_ns": 2500, "end_ns": None}),
        (["--from", "0", "--to", ".002"], {"start_ns": 1000, "end_ns": 3000}),
        (["--to", "2 s"], {"start_ns": None, "end_ns": 2_000_001_000}),
        (["--to", "3µs"], {"start_ns": None, "end_ns": 4000}),
        (["--from=250ns", "--to=1ms"], {"start_ns": 1250, "end_ns": 1_001_000}),
    ],
)
def test_options_that_choose_a_part(readers, capsys, options, passed):
    status, _, err = run(capsys, "explain", "a.json", *options)
    assert (status, err) == (0, "")
    assert readers.options == [{"device": None} | passed]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain"], "gapless explain TIMELINE"),
        (["explain", "a.json", "--from", "soon"], "--from soon is no time"),
        (["explain", "a.json", "--to", "1h"], "--to 1h is no time"),
        (["explain", "a.json", "--from", "-1"], "--from"),
        (["explain", "a.json", "--from", "nan"], "no time"),
        (["explain", "a.json", "--from", "3ms", "--to", "2ms"], "empty"),
        (["explain", "a.json", "--steps", "5"], "5:10"),
        (["explain", "a.json", "--steps", "5:10", "--to", "1"], "exclude each other"),
        (["explain", "a.json", "--device", "one"], "--device"),
        (["explain", "a.json", "--colour"], "--colour"),
        (["explain", "a.json", "--cause", "pageable-copy"], "takes no timelines"),
        (["explian", "a.json"], "explain"),
        (["explain", "--cause", "pagable-copy"], "Did you mean pageable-copy?"),
        (["explain", "--cause", "zzz"], "The causes are:"),
    ],
)
def test_wrong_calls(readers, capsys, arguments, words):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("gapless: ")
    assert words in err
    assert len(err.splitlines()) <= 4
    assert "╭" not in err


def test_ctrl_c(readers, capsys):
    assert run(capsys, "explain", "a.json", "stop.json") == (130, "", "")


def test_help_and_version(capsys):
    status, out, _ = run(capsys, "--version")
    assert (status, out) == (0, f"{gapless.__version__}\n")
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert "explain" in out
    status, out, _ = run(capsys, "explain", "--help")
    assert status == 0
    assert all(f"--{name}" in out for name in ("json", "from", "to", "steps", "device", "cause"))
    assert "--no-" not in out


def test_causes(capsys):
    status, listed, _ = run(capsys, "explain", "--cause", "list")
    assert status == 0
    slugs = [line.split()[0] for line in listed.splitlines()]
    assert "pageable-copy" in slugs
    for slug in slugs:
        status, page, _ = run(capsys, "explain", "--cause", slug)
        assert status == 0
        assert page.startswith(slug)
        assert len(page.splitlines()) > 5


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_long_read_shows_its_progress_and_takes_it_away(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    clock = iter([0.0, 0.1, 1.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock, 2.0))
    with cli._progress(Path("[red]big.json"), quiet=False) as progress:
        progress(10, 100)
        assert sys.stderr.getvalue() == ""
        progress(20, 100)
        progress(90, 100)
    shown = sys.stderr.getvalue()
    assert "[red]big.json" in shown
    assert shown.endswith("\x1b[2K")


def test_no_progress_where_nobody_sees_it(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with cli._progress(Path("big.json"), quiet=False) as progress:
        assert progress is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    with cli._progress(Path("big.json"), quiet=True) as progress:
        assert progress is None


def test_quick_reads_show_no_progress(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with cli._progress(Path("small.json"), quiet=False) as progress:
        for done in range(100):
            progress(done, 100)
    assert sys.stderr.getvalue() == ""


# A process of its own

KINETO = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA Test GPU"}],
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": [
        event
        for i in range(4)
        for event in (
            {
                "ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 0, "tid": 7,
                "ts": 100.0 + 50 * i, "dur": 20.0,
                "args": {"device": 0, "context": 1, "stream": 7, "correlation": 2 * i + 1, "bytes": 1_000_000},
            },
            {
                "ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 9, "tid": 9,
                "ts": 90.0 + 50 * i, "dur": 5.0, "args": {"cbid": 41, "correlation": 2 * i + 1},
            },
            {
                "ph": "X", "cat": "kernel", "name": "work(float*)", "pid": 0, "tid": 7,
                "ts": 121.0 + 50 * i, "dur": 25.0,
                "args": {"device": 0, "context": 1, "stream": 7, "correlation": 2 * i + 2, "grid": [132, 1, 1],
                         "block": [256, 1, 1]},
            },
            {
                "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
                "ts": 96.0 + 50 * i, "dur": 5.0, "args": {"cbid": 211, "correlation": 2 * i + 2},
            },
        )
    ],
}  # fmt: skip


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(KINETO))
    return path


def command(*arguments, **options):
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR")} | options.pop("env", {})
    return subprocess.run(
        [sys.executable, "-m", "gapless", *map(str, arguments)], env=environment, timeout=60, check=False,
        **({"capture_output": True, "text": True} | options),
    )  # fmt: skip


def test_a_file_from_the_shell(trace, tmp_path):
    done = command("explain", trace)
    assert (done.returncode, done.stderr) == (0, "")
    assert "NVIDIA Test GPU" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    as_json = command("explain", "--json", trace)
    assert json.loads(as_json.stdout)["wall_ms"] == pytest.approx(0.196)
    ascii_only = command("explain", trace, env={"PYTHONIOENCODING": "ascii"})
    assert ascii_only.returncode == 0
    assert ascii_only.stdout.isascii()
    missing = command("explain", tmp_path / "none.json")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "none.json" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_a_closed_pipe_ends_quietly(trace):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = command("explain", trace, capture_output=False, stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [["--json"], []])
def test_a_full_disk_is_told_once(trace, arguments):
    with Path("/dev/full").open("w") as full:
        done = command("explain", trace, *arguments, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == "gapless: the output: No space left on device\n"


def test_no_output_at_all(trace):
    shell = f'"{sys.executable}" -m gapless explain "{trace}"'
    done = subprocess.run(f"{shell} >&-", shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "gapless: Standard output is closed: there is nowhere to print to.\n")
    done = subprocess.run(f"{shell}.none 2>&-", shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")


def test_json_loads_no_rich(trace):
    done = command("explain", "--json", trace, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0
    assert "gapless.diagnosis.report" in done.stderr
    assert "rich.console" not in done.stderr


# The package's face


def test_public_names(trace):
    assert dir(gapless) == sorted(gapless.__all__)
    for name in gapless.__all__:
        assert getattr(gapless, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = gapless.nothing
    assert issubclass(gapless.GaplessError, ValueError)


def test_importing_the_package_is_cheap():
    code = "import sys, gapless; dir(gapless); print([m for m in ('numpy', 'rich', 'cyclopts') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_explain_takes_a_file_or_a_timeline_and_gives_a_report_that_prints(trace):
    from_file = gapless.explain(str(trace))
    from_timeline = gapless.explain(gapless.load(trace))
    assert isinstance(from_file, gapless.Report)
    assert from_file.to_dict() == from_timeline.to_dict()
    assert "NVIDIA Test GPU" in str(from_file)
    with pytest.raises(gapless.GaplessError, match="no steps"):
        gapless.explain(trace, steps=(0, 1))
