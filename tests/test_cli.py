"""The command line from outside: what goes where, and with which exit status."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gapless
from gapless import cli
from gapless.cli.output import complain, progress_of
from gapless.diagnosis.causes import CAUSES
from gapless.diagnosis.repairs import REPAIRS
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


ONE_STREAM = "examples/timelines/one-stream.json.gz"  # 63 ms


def flat(text: str) -> str:
    """Give text without its line breaks."""
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "wall", "beyond"),
    [
        (["--from", "20ms", "--to", "80ms"], 43.0, "ends 17.0 ms after the last work"),
        (["--to", "200ms"], 63.0, "ends 137 ms after the last work"),
        (["--to", "63.1ms"], 63.0, ""),  # as its own figures say it
        (["--from", "20ms", "--to", "60ms"], 40.0, ""),
    ],
)
def test_a_window_ends_with_the_timeline(capsys, options, wall, beyond):
    status, out, err = run(capsys, "explain", ONE_STREAM, *options, "--gate", "wall_ms<=70")
    assert (status, err) == (0, "")
    assert f"Of {wall:.1f} ms" in out
    assert ("The window asked for" in out) is bool(beyond)
    assert beyond in flat(out)
    said = json.loads(run(capsys, "explain", ONE_STREAM, *options, "--json")[1])
    assert said["wall_ms"] == pytest.approx(wall, abs=0.1)
    assert any(beyond in note for note in said["notes"]) or not beyond


def test_the_command_that_plays_what_was_saved_can_be_copied(capsys, tmp_path):
    path = tmp_path / "my repaired.tape"
    status, out, err = run(capsys, "explain", ONE_STREAM, "--apply", "streams=2", "--save", str(path))
    assert (status, err) == (0, "")
    said, play = out.splitlines()[-2:]
    assert said == f"Saved as {path}, with its machine in my repaired.machine.json."
    before, command = play.split(": ", 1)
    assert before == "Play it"
    assert run(capsys, *shlex.split(command)[1:])[0] == 0


@pytest.mark.parametrize("options", [["--from", "70ms"], ["--from", "70ms", "--to", "80ms"]])
def test_a_window_outside_of_the_timeline(capsys, options):
    status, out, err = run(capsys, "explain", ONE_STREAM, *options)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "outside of this timeline" in err
    assert "63.0145 ms long" in err


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_window_that_one_of_several_timelines_has_not_names_it(capsys, form):
    longer = "examples/timelines/pageable-memory.json.gz"  # 112 ms
    status, out, err = run(capsys, "explain", ONE_STREAM, longer, "--from", "70ms", *form)
    assert status == 2
    assert err.startswith(f"gapless: {ONE_STREAM}: The window from 70 ms on lies outside")
    assert err.count("\n") == 1
    assert "pageable-memory" in out


def test_gates_stand_behind_the_report_and_what_fails_is_told_after_it(capsys, monkeypatch):
    gates = ["--gate", "wall_ms<=70", "--gate", "no single-stream"]
    status, out, err = run(capsys, "explain", ONE_STREAM, *gates)
    assert status == 1
    assert "\n\nGate    wall_ms<=70: holds, 63.01\nGate    no single-stream: fails, " in out
    assert out.index("more: gapless explain") < out.index("Gate ")
    assert err.startswith("gapless: no single-stream: fails, ")
    assert "Gate" not in run(capsys, "explain", ONE_STREAM)[1]
    status, out, _ = run(capsys, "explain", ONE_STREAM, "--json", *gates)
    assert status == 1
    assert [(gate["gate"], gate["holds"]) for gate in json.loads(out)["gates"]] == [
        ("wall_ms<=70", True), ("no single-stream", False)
    ]  # fmt: skip
    assert "gates" not in json.loads(run(capsys, "explain", ONE_STREAM, "--json")[1])
    both = io.StringIO()
    monkeypatch.setattr(sys, "stdout", both)
    monkeypatch.setattr(sys, "stderr", both)
    assert cli.main(["explain", ONE_STREAM, *gates]) == 1
    assert both.getvalue().splitlines()[-1].startswith("gapless: no single-stream: fails, ")


def test_ctrl_c(readers, capsys):
    assert run(capsys, "explain", "a.json", "stop.json") == (130, "", "")


@pytest.mark.parametrize("columns", ["0", "1", "39"])
def test_help_where_the_width_is_none(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    for arguments in (["--help"], ["explain", "--help"], ["--version"], []):
        status, out, err = run(capsys, *arguments)
        assert (status, err) == (0, "")
        assert max(map(len, out.splitlines())) <= 40


def test_help_and_version(capsys):
    status, out, _ = run(capsys, "--version")
    assert (status, out) == (0, f"{gapless.__version__}\n")
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert all(name in out for name in ("explain", "simulate", "check"))
    for command, options in {
        "explain": ("json", "from TIME", "to TIME", "steps SPAN", "device", "cause SLUG"),
        "simulate": (
            "json",
            "machine PROFILE",
            "replay RUN",
            "chunks",
            "streams",
            "h2d TIME",
            "default-stream",
            "tape",
        ),
        "check": ("json", "machine PROFILE", "explore", "replay RUN"),
    }.items():
        status, out, _ = run(capsys, command, "--help")
        assert status == 0
        assert all(f"--{name}" in out for name in options)
        assert "--no-" not in out
        assert " STR" not in out


def test_causes(capsys):
    status, listed, _ = run(capsys, "explain", "--cause", "list")
    assert status == 0
    slugs = re.findall(r"^([a-z-]+)  ", listed, re.MULTILINE)
    assert set(slugs) == set(CAUSES)
    for slug in slugs:
        status, page, _ = run(capsys, "explain", "--cause", slug)
        assert status == 0
        assert page.startswith(slug)
        assert len(page.splitlines()) > 5


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["explain", "--cause", "list"], set(CAUSES)),
        (["explain", "--apply", "list"], {f"{name}=K" if REPAIRS[name].TAKES_VALUE else name for name in REPAIRS}),
        (["explain", "a.json", "--apply=list"], {"pin", "prefetch=K"}),
        (["explain", "--gate", "list"], {"wall_ms", "busy.h2d", "replay_error", "no CAUSE"}),
        (["compare", "--gate", "list"], {"wall_ms", "speedup", "no CAUSE"}),
    ],
)
def test_lists_of_what_options_take(capsys, monkeypatch, arguments, names):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, err = run(capsys, *arguments)
    assert (status, err) == (0, "")
    assert names <= set(re.findall(r"^((?:no )?[\w.=-]+)  ", out, re.MULTILINE))
    assert max(map(len, out.splitlines())) <= 80
    assert ("speedup" in out) is (arguments[0] == "compare")


def test_each_list_is_named_in_the_help(capsys):
    for command, options in {"explain": ("cause", "apply", "gate"), "compare": ("gate",)}.items():
        out = flat(run(capsys, command, "--help")[1].replace("│", ""))
        assert all(f"--{option} list shows all" in out for option in options)


def test_help_says_what_to_write_and_splits_nothing_to_copy(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = {command.__name__: run(capsys, command.__name__, "--help")[1] for command in cli.COMMANDS}
    assert not any("ARGS" in out or " STR" in out or " FLOAT" in out for out in said.values())
    for command in cli.COMMANDS:  # a paragraph over several lines would keep its line breaks at any width
        what, _, _ = command.__doc__.partition("    Parameters\n")
        assert all("\n" not in paragraph.strip() for paragraph in what.split("\n\n"))
    assert said["explain"].startswith("Usage: gapless explain TIMELINE... [OPTIONS]\n")
    assert "\ngapless simulate --chunks 4 --streams 3\n" in said["simulate"]
    assert "\ngapless check -- python train.py\n" in said["check"]
    assert "--after TIME" in said["record"]
    assert flat(said["record"].replace("│", "")).count("A bare number is seconds.") == 2
    assert "A bare number is ms." in flat(said["explain"].replace("│", ""))


@pytest.mark.parametrize(
    ("options", "after", "seconds"),
    [
        ([], 0, 0),
        (["--after", "10", "--for", "0.5"], 10, 0.5),  # a bare number is seconds here
        (["--after", "10ms", "--for", "200us"], 0.01, 0.0002),
        (["--after", "2 s", "--for=3s"], 2, 3),
    ],
)
def test_times_of_a_recording(capsys, monkeypatch, tmp_path, options, after, seconds):
    seen = []
    monkeypatch.setattr("gapless.recorder.command.record_command", lambda *given, **_: seen.append(given[2]) or (0, ""))
    status, _, err = run(capsys, "record", "-o", str(tmp_path / "a.gapless"), "--quiet", *options, "--", "true")
    assert (status, err) == (0, "")
    assert (seen[0].after, seen[0].seconds) == (after, seconds)


def test_a_time_that_is_none_is_told(capsys):
    status, _, err = run(capsys, "record", "--after", "soon", "--", "true")
    assert (status, err) == (
        2, "gapless: --after soon is no time, from 0 on. Write a number with s, ms, us or ns after it, such as 1.5ms; "
        "a number alone is seconds.\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "a.json", "b.json", "c"], "Too much stands there: c. Write: gapless compare BEFORE AFTER"),
        (["bench", "machine", "b"], "Too much stands there: b. Write: gapless bench [machine|pipeline]"),
        (["simulate", "--chunks", "many"], "--chunks many is no whole number."),
        (["explain", "a.json", "--device=1.5"], "--device 1.5 is no whole number."),
        (["record", "--forr", "5s", "--", "true"], "Unknown option: --forr. Did you mean --for?"),
        (["record", "--max-sise=5MiB", "true"], "Unknown option: --max-sise=5MiB. Did you mean --max-size?"),
        (["record", "true", "--quiet"], "Write -- before the program"),  # else it would not get its own option
        (["record", "--quiet", "true", "-v", "--output", "x"], "Write -- before the program"),
        (["check", "train.py"], "train.py is a program: write gapless check -- python train.py"),
        (["check", "python", "a.py", "--lr", "3"], "a.py is a program: write gapless check -- python a.py"),
        (["check", "--dry", "python", "a.py"], "a.py is a program: write gapless check --dry -- python a.py"),
    ],
)  # fmt: skip
def test_what_is_written_wrongly_is_told_in_the_words_of_the_help(capsys, arguments, said):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"gapless: {said}")


def test_a_program_without_options_may_stand_without_dashes(capsys, monkeypatch):
    seen = []
    monkeypatch.setattr("gapless.recorder.command.record_command", lambda *given, **_: seen.append(given[0]) or (0, ""))
    for given in (["true", "a"], ["true", "-v"], ["--", "true", "--quiet", "--help"]):
        assert run(capsys, "record", "--quiet", *given)[0] == 0
    assert [list(program) for program in seen] == [["true", "a"], ["true", "-v"], ["true", "--quiet", "--help"]]


def test_what_python_shows_of_an_object_is_one_short_line():
    report, played = gapless.explain(ONE_STREAM), gapless.simulate("examples/tapes/11-event-forgotten.tape")
    shown = {
        repr(report): "63.01 ms, single-stream",
        repr(report.timeline): "192 operations",
        repr(gapless.compare(report, report)): "1 times as fast",
        repr(played): "11-event-forgotten.tape",
        repr(played.schedule): "on teaching",
        repr(gapless.check("examples/tapes/11-event-forgotten.tape")): "11-event-forgotten.tape",
    }
    assert all(len(line) < 160 and words in line for line, words in shown.items()), shown


def test_comparing_takes_two_timelines(capsys):
    status, out, err = run(capsys, "compare", ONE_STREAM)
    assert (status, out) == (2, "")
    assert err == "gapless: Two timelines are compared. Write: gapless compare BEFORE AFTER\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_long_read_shows_its_progress_and_takes_it_away(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    clock = iter([0.0, 0.1, 1.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock, 2.0))
    with progress_of(Path("[red]big.json"), quiet=False) as progress:
        progress(10, 100)
        assert sys.stderr.getvalue() == ""
        progress(20, 100)
        progress(90, 100)
    shown = sys.stderr.getvalue()
    assert "[red]big.json" in shown
    assert shown.endswith("\x1b[2K")


def test_no_progress_where_nobody_sees_it(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_of(Path("big.json"), quiet=False) as progress:
        assert progress is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_of(Path("big.json"), quiet=True) as progress:
        assert progress is None


def test_quick_reads_show_no_progress(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_of(Path("small.json"), quiet=False) as progress:
        for done in range(100):
            progress(done, 100)
    assert sys.stderr.getvalue() == ""


# Tapes

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "tapes"
TAPE = "stream a b\nkernel x on a 1ms writes M\nkernel y on b 1ms reads M\n"
CHANCE = """\
stream a b nonblocking
thread T
  kernel x on a 1ms writes X
  record e on a
end
thread U
  host 2ms
  wait e on b
  kernel y on b 1ms reads X
end
"""


@pytest.fixture
def tapes(tmp_path, monkeypatch):
    """Make the current folder one with tapes, named after how they go."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "good": TAPE + "expect makespan 2ms\n",
        "fails": TAPE + "expect makespan 1ms\n",
        "race": TAPE,
        "expected": TAPE + "expect race x y\n",
        "warning": "stream a\nh2d x on a 1 p -> d pageable\nwrite p\n",
        "chance": CHANCE,
        "bad": "stream a\nkernel k on aa 1ms\n",
        "dead": "thread A\nreceive m\nsend n\nend\nthread B\nreceive n\nsend m\nend\n",
        "empty": "",
        "once": "stream a\nkernel k on a 1ms\n",
    }.items():
        Path(f"{name}.tape").write_text(text)
    Path("binary.tape").write_bytes(bytes(range(256)))
    return tmp_path


@pytest.mark.parametrize(
    ("tape", "simulated", "checked"),
    [
        ("good", 0, 0),
        ("fails", 1, 1),
        ("race", 0, 1),
        ("expected", 0, 0),
        ("warning", 0, 0),
        ("chance", 0, 0),
        ("empty", 2, 2),
        ("dead", 1, 1),
        ("bad", 2, 2),
        ("binary", 2, 2),
        ("none", 2, 2),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_how_a_tape_goes_is_the_exit_status(tapes, capsys, tape, simulated, checked, options):
    for command, wanted in (("simulate", simulated), ("check", checked)):
        status, out, err = run(capsys, command, *options, f"{tape}.tape")
        assert status == wanted
        assert bool(err) == (wanted == 2 or tape == "dead")
        assert bool(out) == (wanted < 2 and (tape != "dead" or bool(options)))


def test_messages_name_the_tape_and_the_place(tapes, capsys):
    for command in ("simulate", "check"):
        assert run(capsys, command, "bad.tape")[2] == (
            "gapless: bad.tape:2:13: found 'aa'; expected a stream (default, legacy or a)\n"
        )
        assert run(capsys, command, "dead.tape")[2] == (
            "gapless: dead.tape: deadlock: these calls wait for ever: receive m (line 2, thread A); "
            "receive n (line 6, thread B)\n"
        )
        assert "binary.tape is no tape" in run(capsys, command, "binary.tape")[2]
        assert "none.tape: no such file." in run(capsys, command, "none.tape")[2]
        assert "directory" in run(capsys, command, ".")[2]


@pytest.mark.parametrize("text", ["", "# all gone\n", "machine h200\nstream a\n", "expect no race\n", "sync device\n"])
def test_a_tape_without_anything_to_check_is_not_right(tapes, capsys, text):
    Path("emptied.tape").write_text(text)
    status, out, err = run(capsys, "check", "emptied.tape")
    assert (status, out) == (2, "")
    assert "emptied.tape asks for no operation and touches no memory: there is nothing to check." in err
    assert run(capsys, "simulate", "emptied.tape")[0] == (0 if "sync" in text else 2)  # a call alone can be played


@pytest.mark.parametrize(
    "text", ["read A\n", "kernel k on default 1ms\n", "capture default as c\nexpect error 900 at c\n"]
)
def test_a_short_tape_is_checked(tapes, capsys, text):
    Path("short.tape").write_text(text)
    assert run(capsys, "check", "short.tape")[0] < 2


def test_several_tapes_are_summed_up_first(tapes, capsys):
    status, out, err = run(capsys, "simulate", "good.tape", "bad.tape", "fails.tape", "once.tape")
    assert status == 2
    assert err.startswith("gapless: bad.tape:2:13:")
    assert out.splitlines()[:3] == [
        "good.tape    2.00 ms  1 expectation holds",
        "fails.tape   2.00 ms  1 expectation fails",
        "once.tape    1.00 ms",
    ]
    assert re.findall(r"^(\w+)\.tape  machine", out, re.MULTILINE) == ["good", "fails", "once"]
    status, out, _ = run(capsys, "simulate", "good.tape", "fails.tape")
    assert status == 1


def test_several_tapes_are_checked_one_after_another(tapes, capsys):
    status, out, err = run(capsys, "check", "race.tape", "good.tape", "once.tape")
    assert (status, err) == (1, "")
    assert re.findall(r"^(\w+)\.tape  (.+)$", out, re.MULTILINE) == [
        ("race", "1 race"), ("good", "1 race"), ("once", "no race"),
    ]  # fmt: skip


def test_json_of_tapes_is_one_object_a_line(tapes, capsys):
    for command in ("simulate", "check"):
        status, out, err = run(capsys, command, "--json", "race.tape", "bad.tape", "dead.tape", "fails.tape")
        assert status == 2
        assert len(err.splitlines()) == 2
        race, dead, fails = map(json.loads, out.splitlines())
        assert (race["version"], race["makespan_ns"]) == (1, 2_000_000)
        assert race["ops"]["y"] == {"start_ns": 1_000_000, "end_ns": 2_000_000, "bound_by": "SMs: kernel x on a"}
        assert [(r["class"], r["first"], r["second"], r["buffer"]) for r in race["races"]] == [("error", "x", "y", "M")]
        assert race["expectations"] == []
        assert (dead["makespan_ns"], len(dead["deadlock"])) == (None, 2)
        assert [found["source"] for found in (race, dead, fails)] == ["race.tape", "dead.tape", "fails.tape"]
        assert fails["expectations"] == [{"line": 4, "holds": False, "got": "2ms"}]


def test_runs_are_explored_and_replayed(tapes, capsys):
    status, out, _ = run(capsys, "check", "chance.tape", "--explore", "60")
    assert status == 1
    choice = re.search(r"^([htm]+\d+) +error: x writes X", out, re.MULTILINE)[1]
    assert out.endswith(f"Look at it: gapless check chance.tape --replay {choice}\n")
    status, out, _ = run(capsys, "check", "chance.tape", "--replay", choice)
    assert status == 1
    assert "1 race, 1 nondeterminism" in out
    status, out, _ = run(capsys, "simulate", "chance.tape", "--replay", choice)
    assert status == 0
    assert (
        f"1 race, 1 nondeterminism. More: gapless check chance.tape --replay {choice}\n" in out
    )  # which says so too, see above
    on = ("--machine", "teaching launch_cost=1us")
    found = run(capsys, "check", "chance.tape", "--explore", "60", *on)[1].splitlines()[-1]
    assert re.search(r" --machine 'teaching launch_cost=1us' --replay [htm]+\d+$", found)
    played = run(capsys, "simulate", "chance.tape", *on, "--replay", found.split()[-1])[1]
    assert f"More:\n{found.removeprefix('Look at it: ')}\n" in played
    status, out, _ = run(capsys, "check", "--json", "chance.tape", "--explore", "60")
    assert json.loads(out)["explored"]["failures"][0]["replay"] == choice
    assert run(capsys, "check", "once.tape", "--explore", "5")[0] == 0


def test_a_tape_is_played_on_another_machine(tapes, capsys):
    (tapes / "mine.json").write_text('{"launch_cost": "5ms"}')
    for machine, makespan in (
        ("teaching", 1_000_000),
        ("teaching launch_cost=2ms", 3_000_000),
        ("mine.json", 6_000_000),
        ("./mine.json launch_cost=1ms", 2_000_000),
    ):
        status, out, _ = run(capsys, "simulate", "once.tape", "--json", "--machine", machine)
        assert (status, json.loads(out)["makespan_ns"]) == (0, makespan)


@pytest.mark.parametrize("command", ["simulate", "check"])
@pytest.mark.parametrize("tape", sorted(EXAMPLES.glob("*.tape")), ids=lambda path: path.stem)
def test_example_tapes(capsys, command, tape):
    status, out, err = run(capsys, command, str(tape))
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ([], r"N\+2 +6\.00 ms"),
        (["--streams", "1"], r"3N +12\.0 ms"),
        (["--streams", "2"], r"3N/2\+1 +7\.00 ms"),
        (["--default-stream", "copy"], r"3N +12\.0 ms"),
        (["--default-stream", "copy", "--nonblocking"], r"N\+2 +6\.00 ms"),
        (["--default-stream", "kernel"], r"2N\+1 +9\.00 ms"),
        (["--default-stream", "kernel", "--per-thread"], r"N\+2 +6\.00 ms"),
        (["--pageable"], r"3N +12\.0 ms"),
        (["--allocation", "malloc"], r"3N +12\.0 ms"),
        (["--allocation", "pool"], r"N\+2 +6\.00 ms"),
        (["--malloc"], r"3N +12\.0 ms"),
        (["--wait", "device"], r"3N +12\.0 ms"),
        (["--device-sync"], r"3N +12\.0 ms"),
        (["--device-sync", "--wait", "device"], r"3N +12\.0 ms"),
        (["--wait", "event"], r"N\+2 +6\.00 ms"),
        (["--copy-engines", "1", "--streams", "4"], r"2N +8\.00 ms"),
        (["--h2d", "2", "--kernel", "500us"], r"h\+k\+d\+\(N-1\)max +9\.50 ms"),
    ],
)
def test_the_loop_of_the_first_page(capsys, options, row):
    status, out, err = run(capsys, "simulate", "--chunks", "4", *options)
    assert (status, err) == (0, "")
    assert re.search(r"^serial +(3N|N\(h\+k\+d\)) +", out, re.MULTILINE)
    assert re.search(r"^pipelined +(N\+2|h\+k\+d\+\(N-1\)max) +", out, re.MULTILINE)
    assert re.search(rf"^this loop +{row} ", out, re.MULTILINE)


def test_the_loop_as_a_tape_does_the_same(capsys, tmp_path):
    options = ["--chunks", "5", "--streams", "2", "--default-stream", "kernel", "--machine", "h200"]
    status, tape, _ = run(capsys, "simulate", "--tape", *options)
    assert status == 0
    assert "machine h200\n" in tape
    path = tmp_path / "loop.tape"
    path.write_text(tape)
    _, from_options, _ = run(capsys, "simulate", "--json", *options)
    _, from_tape, _ = run(capsys, "simulate", "--json", str(path))
    played, read = json.loads(from_options), json.loads(from_tape)
    assert (played.pop("source"), read.pop("source")) == ("loop", str(path))
    assert played == read


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate"], "gapless simulate --chunks 4 --streams 3"),
        (["check"], "gapless check TAPE"),
        (["simulate", "--chunks", "0"], "at least one chunk"),
        (["simulate", "--chunks", "x"], "--chunks"),
        (["simulate", "--chunks", "4.5"], "--chunks"),
        (["simulate", "--streams", "0"], "1 to 1024 streams"),
        (["simulate", "--h2d", "1h"], "'1h' is not a time"),
        (["simulate", "--default-stream", "both"], "--default-stream"),
        (["simulate", "--copy-engines", "3"], "--copy-engines"),
        (["simulate", "--device-sync", "--wait", "event"], "--device-sync means --wait device"),
        (["simulate", "--chunks", "4", "x.tape"], "--chunks makes a loop"),
        (["simulate", "--default-stream", "copy", "x.tape"], "--default-stream makes a loop"),
        (["simulate", "--tape", "x.tape"], "--tape makes a loop"),
        (["simulate", "--tape", "--json"], "Leave one of the two out"),
        (["simulate", "--chunks", "4", "--replay", "h1"], "--replay plays a run of a tape"),
        (["simulate", "--chunks", "4", "--machine", "h100"], "gapless: --machine: no machine is named 'h100'"),
        (["simulate", "x.tape", "--machine", "h200 qeues=2"], "queues="),
        (["simulate", "x.tape", "--machine", "none.json"], "gapless: --machine: cannot read the machine file"),
        (["simulate", "x.tape", "--machine", "h200 qeues=2"], "gapless: --machine: found 'qeues=2'"),
        (["simulate", "x.tape", "--machine", ""], "--machine names no machine"),
        (["simulate", "x.tape", "--machine", "teaching\nkernel other on default 1"], "KEY=VALUE"),
        (["simulate", "x.tape", "--replay", ""], "'' is no run"),
        (["explain", "-"], "'-' is no file here. Name a file."),
        (["convert", ONE_STREAM, "-"], "'-' is no file here. Write /dev/stdout"),
        (["simulate", "-"], "'-' is no file here. Write /dev/stdin"),
        (["check", "x.tape", "-"], "'-' is no file here. Write /dev/stdin"),
        (["check", "x.tape", "--explore", "2.5"], "--explore"),
        (["check", "x.tape", "--explore", "-1"], "--explore"),
        (["check", "x.tape", "--explore", "3", "--replay", "h1"], "Leave one of the two out"),
    ],
)
def test_wrong_calls_about_tapes(tapes, capsys, arguments, words):
    Path("x.tape").write_text(TAPE)
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("gapless: ")
    assert words in err
    assert len(err.splitlines()) <= 4


def test_a_run_that_no_text_names(tapes, capsys):
    status, out, err = run(capsys, "check", "once.tape", "--replay", "17")
    assert (status, out) == (2, "")
    assert "'17' is no run" in err


def test_a_fault_of_gapless_itself_on_a_tape(tapes, capsys, monkeypatch):
    def fail(*_, **__):
        raise KeyError("row")

    monkeypatch.setattr("gapless.model.simulation.find_races", fail)
    for command in ("simulate", "check"):
        status, _, err = run(capsys, command, "once.tape")
        assert status == 2
        assert err.startswith("gapless: once.tape: gapless itself failed on this tape (KeyError: 'row').")
        assert f"python -X dev -m gapless {command} once.tape" in err


def test_a_machine_in_a_file_with_spaces_in_its_name(tapes, capsys):
    Path("my gpu.json").write_text('{"launch_cost": "1ms"}')
    status, out, _ = run(capsys, "simulate", "--tape", "--machine", "my gpu.json queues=2  priorities=0,-5")
    assert status == 0
    assert f'machine "{Path.cwd() / "my gpu.json"}" queues=2 priorities=0,-5\n' in out
    status, out, _ = run(capsys, "simulate", "--json", "once.tape", "--machine", "my gpu.json")
    assert (status, json.loads(out)["version"]) == (0, 1)


def test_a_fault_of_gapless_itself_beside_any_tape(capsys, monkeypatch):
    def fail(*_, **__):
        raise KeyError("row")

    monkeypatch.setattr("gapless.model.simulation.simulate", fail)
    status, out, err = run(capsys, "simulate", "--chunks", "4", "--machine", "h200 queues=2")
    assert (status, out) == (2, "")
    assert err.startswith("gapless: gapless itself failed (KeyError: 'row').")
    assert "python -X dev -m gapless simulate --chunks 4 --machine 'h200 queues=2'" in err


@pytest.mark.parametrize("columns", ["0", "20"])
def test_figures_are_whole_on_a_terminal_of_hardly_any_width(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    status, out, _ = run(capsys, "simulate", "--chunks", "4")
    assert status == 0
    assert "12.0 ms" in out
    assert "6.00 ms" in out


def test_too_little_memory(tapes, capsys, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr("gapless.model.simulation.simulate", fail)
    status, out, err = run(capsys, "simulate", "once.tape")
    assert (status, out, err) == (2, "", "gapless: once.tape takes more memory than there is.\n")
    status, out, err = run(capsys, "simulate", "--chunks", "4")
    assert (status, out, err) == (2, "", "gapless: This takes more memory than there is.\n")


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


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_timeline_without_gpu_work_is_no_healthy_one(tmp_path, form):
    path = tmp_path / "cpu.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    done = command("explain", path, *form)
    assert done.returncode == 2
    assert "No GPU activity" in done.stderr
    assert done.stdout  # the report all the same, with what the timeline cannot tell
    if form:
        assert json.loads(done.stdout)["findings"] == []


@pytest.mark.parametrize("arguments", [["explain"], ["--help"], ["explain", "--help"], ["--version"]])
def test_a_closed_pipe_ends_quietly(trace, arguments):
    arguments = [*arguments, trace] if arguments == ["explain"] else arguments
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = command(*arguments, capture_output=False, stdout=writing, stderr=subprocess.PIPE)
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


@pytest.fixture
def interrupted_import(tmp_path):
    """An import of the command line during which Ctrl-C is pressed."""
    (tmp_path / "cyclopts.py").write_text(
        "import os, signal, sys\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        f"sys.path.remove({str(tmp_path)!r})\n"
        "del sys.modules['cyclopts']\n"
        "import cyclopts\n"
    )
    return {"PYTHONPATH": str(tmp_path)}


def test_ctrl_c_during_the_first_imports_is_silent(interrupted_import):
    done = command("--version", env=interrupted_import)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_that_the_shell_ignores_is_ignored_from_the_first_import_on(interrupted_import):
    done = subprocess.run(
        f'trap "" INT; exec "{sys.executable}" -m gapless --version', shell=True, capture_output=True, text=True,
        timeout=60, check=False, env=os.environ | interrupted_import,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, gapless.__version__, "")


_GOES_ON = """
    began = time.monotonic()
    try:
        threading.Event().wait(30)
        print("went on")
    finally:
        print("late" * (time.monotonic() - began > 20), end="")
"""
_DROPPED = """
import os, signal, sys, threading, time, weakref
import gapless.cli
from gapless.__main__ import main

class Lock:
    pass

def run():
    lock = Lock()
    kept = weakref.ref(lock, lambda _: os.kill(os.getpid(), signal.SIGINT))  # as every import keeps one
    del lock  # Ctrl-C comes inside the callback
    {then}
    return 0

gapless.cli.main = run
sys.exit(main())
"""


@pytest.mark.parametrize("then", [_GOES_ON, "pass"], ids=["goes on", "is over"])
def test_ctrl_c_that_python_drops_is_heard(then):
    done = subprocess.run(
        [sys.executable, "-c", _DROPPED.replace("{then}", then)], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_what_else_python_drops_is_shown():
    then = "kept = weakref.ref(lock := Lock(), lambda _: 1 / 0); del lock"
    done = subprocess.run(
        [sys.executable, "-c", _DROPPED.replace("os.kill(os.getpid(), signal.SIGINT)", "None").replace("{then}", then)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "ZeroDivisionError" in done.stderr


def test_ctrl_c_that_python_wraps_is_one_all_the_same(monkeypatch, capsys):
    def interrupted(arguments):
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr("gapless.cli._run", interrupted)
    assert cli.main(["--version"]) == 130
    assert capsys.readouterr() == ("", "")


def test_json_loads_no_rich(trace, tapes):
    done = command("explain", "--json", trace, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0
    assert "gapless.diagnosis.report" in done.stderr
    assert "rich.console" not in done.stderr
    done = command("simulate", "--json", "once.tape", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0
    assert "gapless.model.schedule" in done.stderr
    assert not any(room in done.stderr for room in ("rich.console", "gapless.diagnosis", "gapless.timeline"))


def test_a_tape_from_the_shell(tapes):
    done = command("simulate", "once.tape")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    piped = subprocess.run(
        f'"{sys.executable}" -m gapless check /dev/stdin < race.tape', shell=True, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert (piped.returncode, piped.stderr) == (1, "")
    assert "/dev/stdin  1 race" in piped.stdout
    for verb in ("simulate", "check"):
        ascii_only = command(verb, "race.tape", env={"PYTHONIOENCODING": "ascii"})
        assert ascii_only.stdout.isascii()
        assert ascii_only.stderr == ""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with a name")
@pytest.mark.parametrize("verb", ["simulate", "check"])
def test_a_pipe_into_which_nobody_writes_is_told_of_and_read_when_somebody_does(tapes, capsys, monkeypatch, verb):
    os.mkfifo("pipe.tape")
    said = threading.Event()
    monkeypatch.setattr("gapless.cli.tapes.PATIENCE", 0.0)
    monkeypatch.setattr("gapless.cli.tapes.complain", lambda message: (complain(message), said.set()))

    def write() -> None:
        assert said.wait(60)
        Path("pipe.tape").write_text(Path("once.tape").read_text())

    writer = threading.Thread(target=write)
    writer.start()
    status, out, err = run(capsys, verb, "pipe.tape")
    writer.join()
    assert status == 0
    assert "pipe.tape" in out
    assert err == "gapless: Waiting for the end of the tape that comes through pipe.tape.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("verb", ["simulate", "check"])
def test_a_full_disk_or_a_closed_pipe_is_met_by_tapes_too(tapes, verb):
    with Path("/dev/full").open("w") as full:
        done = command(verb, "once.tape", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, "gapless: the output: No space left on device\n")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = command(verb, "once.tape", capture_output=False, stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


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


def test_tapes_are_played_and_checked_from_python(tapes):
    played = gapless.simulate("race.tape")
    assert isinstance(played, gapless.Simulation)
    assert played.to_dict()["makespan_ns"] == 2_000_000
    assert str(played).startswith("race.tape  machine teaching, 2.00 ms\n")
    assert str(played.schedule).startswith("schedule  machine teaching, 2.00 ms\n")
    assert played._repr_mimebundle_()["text/plain"] == str(played)
    checked = gapless.check(gapless.read_tape(TAPE, name="mine"), explore=3)
    assert isinstance(checked, gapless.Check)
    assert not checked.ok
    assert [race.buffer for race in checked.races] == ["M"]
    assert str(checked).startswith("mine  1 race\n")
    assert isinstance(played.schedule, gapless.Schedule)
    program = gapless.Program()
    program.stream("s").kernel("1ms")
    assert gapless.simulate(program, machine=gapless.Machine.named("h200")).schedule.makespan > 10**9
    with pytest.raises(gapless.GaplessError, match="no machine is named"):
        gapless.simulate(program, machine="h100")
    with pytest.raises(gapless.GaplessError, match="deadlock"):
        gapless.check("dead.tape")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# soon\n", b"machine h200\n", gzip.compress(b"", mtime=0)])
def test_an_empty_tape_is_not_played(tmp_path, capsys, content):
    tape = tmp_path / "empty.tape"
    tape.write_bytes(content)
    for options in ([], ["--json"], ["--svg", str(tmp_path / "a.svg")]):
        status, out, err = run(capsys, "simulate", str(tape), *options)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "is no tape" in err if content.startswith(b"\x1f") else "there is nothing to play" in err
    assert not (tmp_path / "a.svg").exists()
    fine = tmp_path / "fine.tape"
    fine.write_text("stream s\nsync s\n")
    assert run(capsys, "simulate", str(fine))[0] == 0


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="this system has no /proc")
@pytest.mark.parametrize("verb", ["check", "simulate", "explain"])
def test_a_file_that_fails_when_it_is_read_is_blamed_itself(capsys, verb):
    status, out, err = run(capsys, verb, "/proc/self/mem")
    assert (status, out) == (2, "")
    assert err.startswith("gapless: /proc/self/mem cannot be read: Input/output error")
