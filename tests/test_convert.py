"""``gapless convert`` and ``gapless simulate --svg`` from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

import gapless
from gapless import cli
from gapless.timeline.sinks.files import MARK

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TRAP = EXAMPLES / "timelines" / "forgotten-default-stream-copy.json.gz"
TAPE = EXAMPLES / "tapes" / "20-accident-default-stream.tape"


def run(capsys, *arguments):
    status = cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


@pytest.mark.parametrize("source", [TRAP, TAPE], ids=["timeline", "tape"])
@pytest.mark.parametrize(("name", "start"), [
    ("out.pftrace", b"\n"), ("out.json", b"{\n"), ("OUT.JSON.GZ", b"\x1f\x8b"), ("out.svg", b"<svg "),
    ("out.png", b"\x89PNG"),
])  # fmt: skip
def test_formats_by_name(capsys, tmp_path, source, name, start) -> None:
    status, out, err = run(capsys, "convert", source, tmp_path / name)
    assert (status, err) == (0, "")
    assert out.startswith(f"Wrote {tmp_path / name}.")
    assert (tmp_path / name).read_bytes().startswith(start)
    assert run(capsys, "convert", source, tmp_path / name)[0] == 0  # its own file is replaced


def test_format_by_option(capsys, tmp_path) -> None:
    assert run(capsys, "convert", TAPE, tmp_path / "out", "--to", "svg")[0] == 0
    assert (tmp_path / "out").read_text().startswith("<svg ")


def test_findings_are_in_the_perfetto_trace(capsys, tmp_path) -> None:
    run(capsys, "convert", TRAP, tmp_path / "out.pftrace")
    trace = perfetto_trace_pb2.Trace.FromString((tmp_path / "out.pftrace").read_bytes())
    tracks = {packet.track_descriptor.name for packet in trace.packet if packet.HasField("track_descriptor")}
    assert "64 operations on the default stream fence 4 other streams" in tracks
    told = {value.str.decode() for p in trace.packet for value in p.interned_data.debug_annotation_string_values}
    assert {"default-stream-barrier", "off-default-stream"} <= told


def test_converted_timeline_is_explained_as_before(capsys, tmp_path) -> None:
    run(capsys, "convert", TRAP, tmp_path / "out.json")
    before, after = gapless.explain(TRAP), gapless.explain(tmp_path / "out.json")
    assert [finding.to_dict() for finding in after.findings] == [finding.to_dict() for finding in before.findings]


def test_converted_tape_is_a_timeline(capsys, tmp_path) -> None:
    run(capsys, "convert", TAPE, tmp_path / "out.json")
    assert gapless.explain(tmp_path / "out.json").wall_ms == pytest.approx(12.04)


@pytest.mark.parametrize(("arguments", "says"), [
    ([TRAP, "out.xyz"], "the name does not tell the format"),
    ([TRAP, "out.json", "--to", "pdf"], "there is no such format. The formats are perfetto, chrome, svg, png."),
    (["none.json", "out.svg"], "none.json"),
    (["none.tape", "out.svg"], "none.tape"),
    ([TRAP, "none/out.svg"], "none/out.svg cannot be written: No such file or directory."),
    ([TRAP, "/dev/full", "--to", "chrome"], "/dev/full cannot be written: No space left on device."),
    (["README.md", "out.svg"], "README.md is text that is not JSON."),
])  # fmt: skip
def test_what_cannot_be_done(capsys, tmp_path, monkeypatch, arguments, says) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("# A text\n")
    status, out, err = run(capsys, "convert", *arguments)
    assert (status, out) == (2, "")
    assert says in err
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_input_and_foreign_files_are_left_as_they_are(capsys, tmp_path) -> None:
    source, other = tmp_path / "trace.json.gz", tmp_path / "other.json"
    source.write_bytes(TRAP.read_bytes())
    other.write_text("{}")
    for target, says in ((source, "is the input"), (other, "gapless did not write it so")):
        status, _, err = run(capsys, "convert", source, target)
        assert status == 2
        assert says in err
    assert source.read_bytes() == TRAP.read_bytes()
    assert other.read_text() == "{}"


def test_a_file_that_only_speaks_of_gapless_is_left(capsys, tmp_path) -> None:
    note = tmp_path / "note.json"
    note.write_text(f'{{"note": "compare with the page {MARK} on Monday"}}')
    (tmp_path / "note.svg").symlink_to(note)
    (tmp_path / "note.html").symlink_to(note)
    before = note.read_text()
    for arguments in (
        ["convert", TAPE, note], ["simulate", TAPE, "--svg", tmp_path / "note.svg"],
        ["explain", TRAP, "--html", tmp_path / "note.html"],
    ):  # fmt: skip
        status, _, err = run(capsys, *arguments)
        assert (status, note.read_text()) == (2, before)
        assert "gapless did not write it so" in err


def test_a_saved_tape_that_was_changed_is_the_users(capsys, tmp_path) -> None:
    tape = tmp_path / "repaired.tape"
    assert run(capsys, "explain", TRAP, "--apply", "off-default-stream", "--save", tape)[0] == 0
    tape.write_text(tape.read_text() + "# by hand\n")
    for target in (tape, tape.with_suffix(".machine.json")):
        before = target.read_text()
        status, _, err = run(capsys, "convert", TAPE, target, "--to", "svg")
        assert (status, target.read_text()) == (2, before)
        assert "gapless did not write it so" in err


@pytest.mark.parametrize("name", ["both.tape", "both.machine.json"])
@pytest.mark.parametrize("there", [False, True])
def test_the_tape_and_the_page_are_two_files(capsys, tmp_path, name, there) -> None:
    save = ["--apply", "off-default-stream", "--save", tmp_path / "both.tape"]
    if there:
        assert run(capsys, "explain", TRAP, *save)[0] == 0
        (tmp_path / "both.html").hardlink_to(tmp_path / name)
    else:
        (tmp_path / "both.html").symlink_to(name)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.exists()}
    status, out, err = run(capsys, "explain", TRAP, *save, "--html", tmp_path / "both.html")
    assert (status, out) == (2, "")
    assert "is the same file" in err or "is there already" in err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.exists()} == before


def test_pages_are_replaced(capsys, tmp_path) -> None:
    for _ in range(2):
        assert run(capsys, "explain", TRAP, "--html", tmp_path / "page.html")[0] == 0


def test_a_tape_that_deadlocks_is_named(capsys, tmp_path) -> None:
    (tmp_path / "stuck.tape").write_text("thread A\nreceive m\nsend n\nend\nthread B\nreceive n\nsend m\nend\n")
    status, out, err = run(capsys, "convert", tmp_path / "stuck.tape", tmp_path / "out.svg")
    assert (status, out) == (1, "")
    assert err.startswith(f"gapless: {tmp_path / 'stuck.tape'}: deadlock: ")
    assert [path.name for path in tmp_path.iterdir()] == ["stuck.tape"]


def test_timeline_without_device_work_has_no_picture(capsys, tmp_path) -> None:
    (tmp_path / "empty.json").write_text('{"traceEvents": []}')
    status, _, err = run(capsys, "convert", tmp_path / "empty.json", tmp_path / "out.svg")
    assert status == 2
    assert "nothing worked on a device" in err


def test_simulate_draws_a_tape_and_a_loop(capsys, tmp_path) -> None:
    status, out, err = run(capsys, "simulate", TAPE, "--svg", tmp_path / "tape.svg")
    assert (status, out, err) == (0, f"Wrote {tmp_path / 'tape.svg'}.\n", "")
    status, out, err = run(capsys, "simulate", "--streams", "2", "--svg", tmp_path / "loop.svg")
    assert (status, out, err) == (0, f"Wrote {tmp_path / 'loop.svg'}.\n", "")
    assert "20-accident-default-stream.tape" in (tmp_path / "tape.svg").read_text()
    assert "loop" in (tmp_path / "loop.svg").read_text()


@pytest.mark.parametrize(("arguments", "says"), [
    ([TAPE, TAPE, "--svg", "out.svg"], "--svg draws one run"),
    ([TAPE, "--svg", "out.svg", "--json"], "--svg draws one run"),
    ([TAPE, "--svg", "out.pdf"], "ends in .svg"),
])  # fmt: skip
def test_simulate_svg_refuses(capsys, tmp_path, monkeypatch, arguments, says) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys, "simulate", *arguments)
    assert status == 2
    assert says in err
    assert list(tmp_path.iterdir()) == []


def test_simulate_svg_keeps_the_status_of_the_tape(capsys, tmp_path) -> None:
    (tmp_path / "wrong.tape").write_text("stream s nonblocking\nkernel k on s 1ms\nexpect makespan 2ms\n")
    assert run(capsys, "simulate", tmp_path / "wrong.tape", "--svg", tmp_path / "out.svg")[0] == 1
    assert (tmp_path / "out.svg").exists()


@pytest.mark.parametrize("arguments", [
    ["convert", TRAP, "/dev/stdout", "--to", "perfetto"], ["explain", TRAP, "--html", "/dev/stdout"],
    ["simulate", TAPE, "--svg", "/dev/stdout"],
])  # fmt: skip
def test_what_goes_to_standard_output_goes_there_alone(tmp_path: Path, arguments: list[Any]) -> None:
    """Into a pipe, and where the shell adds it to a file."""
    command = [sys.executable, "-m", "gapless", *map(str, arguments)]
    piped = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
    whole = tmp_path / f"file{arguments.index('/dev/stdout')}"
    whole.write_bytes(b"before\n")
    with whole.open("ab") as file:
        subprocess.run(command, stdout=file, stderr=subprocess.PIPE, timeout=60, check=True)
    assert whole.read_bytes() == b"before\n" + piped
    assert MARK.encode() in piped
    assert piped.endswith((b"</html>\n", b"</svg>\n")) == (arguments[0] != "convert")
    assert b"Wrote" not in piped


def test_a_page_and_json_do_not_mix() -> None:
    command = [sys.executable, "-m", "gapless", "explain", TRAP, "--json", "--html", "/dev/stdout"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Give the page a file" in done.stderr


@pytest.mark.parametrize("to", ["out.json", "/dev/null"])
def test_an_input_that_cannot_be_is_blamed_and_not_the_output(capsys, tmp_path, to) -> None:
    source = tmp_path / ("x" * 300)
    status, out, err = run(capsys, "convert", source, tmp_path / to, "--to", "chrome")
    assert (status, out) == (2, "")
    assert err == f"gapless: {source} cannot be read: File name too long.\n"
    assert not list(tmp_path.iterdir())
