"""Tapes that play in a terminal, on a clock that the test moves."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

import gapless
from gapless import cli
from gapless.testing import Clock
from gapless.views.page import Page
from gapless.views.play import FRAMES, SECONDS, Film, play

TAPE = Path(__file__).resolve().parents[2] / "examples" / "tapes" / "20-accident-default-stream.tape"


def console(width: int, *, height: int = 24, encoding: str = "utf-8", **options) -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return Console(file=file, width=width, height=height, force_terminal=True, color_system=None, legacy_windows=False,
                   _environ={"TERM": "xterm"}, **options)  # fmt: skip


def frame(now: float, *, of: str | Path = TAPE, **options) -> list[str]:
    """Give the frame at a fraction of the run."""
    shown = gapless.simulate(gapless.read_tape(of) if "\n" in str(of) else of)
    page = Page.on(console(**({"width": 80} | options)))
    film = Film(shown, page, options.get("height", 24))
    return [line.plain for line in film.frame(int(shown.schedule.makespan * now))]


def test_a_frame_in_80_columns() -> None:
    lines = frame(0.3)
    assert lines[0].endswith("20-accident-default-stream.tape  3.61 ms of 12.0 ms")
    assert lines[1:] == [
        "",
        "H2D     ██████            ███▌",
        "SM           ▁██████",
        "D2H                ▁██████",
        "ms      ╵0         ╵2          ╵4          ╵6          ╵8          ╵10",
        "s0      ▐in0━▐k0━━━▐out0━",
        "s1                        ▐in1",
        "s2",
        "s3",
        "default                  ▐",
        "host    ▐d2h flag0━━━━━━━━▐d2h",
        "",
        "H2D     in1",
        "SM      idle: k1 waits for in1, before it in stream s1",
        "D2H     idle: out1 waits for k1, before it in stream s1",
    ]


def test_the_same_in_120_columns() -> None:
    lines = frame(0.3, width=120)
    assert max(map(len, lines)) <= 120
    assert lines[2] == "H2D     █████████▂                  █████▌"


def test_the_same_where_only_ascii_can_be_written() -> None:
    lines = frame(0.3, encoding="ascii")
    assert all(line.isascii() for line in lines)
    assert lines[2] == "H2D     @@@@@@            @@@@"


def test_an_engine_that_waits_says_for_what() -> None:
    said = "idle: in1 is issued late: the host is held by d2h flag0 on default (line 8) until the copy is done"
    assert frame(0.245, width=120)[-3] == f"H2D     {said}"
    assert frame(0.245)[-3] == f"H2D     {said[:71]}…"


def test_the_last_frame_shows_the_whole_run() -> None:
    lines = frame(1.0)
    assert lines[2] == "H2D     ██████            ██████            ██████            ██████"
    assert lines[-3:] == ["H2D     done", "SM      done", "D2H     done"]


def test_frames_only_ever_add() -> None:
    """What has happened stays: each frame's lanes start as the frame before, but for the cell that is filling."""
    frames = [frame(i / 40) for i in range(41)]
    assert {len(lines) for lines in frames} == {16}
    for before, after in pairwise(frames):
        for old, new in zip(before[2:12], after[2:12], strict=True):
            assert new.startswith(old[:-1].rstrip())


def test_low_terminals_show_fewer_lanes() -> None:
    lines = frame(0.5, height=14)
    assert len(lines) < 14
    assert "    and 4 more" in lines


def test_several_kernels_at_once_are_named() -> None:
    tape = "stream a b c d e\n" + "".join(f"kernel k{s} on {s} 1ms share=1/8\n" for s in "abcde")
    assert frame(0.5, of=tape)[-2:] == ["SM  ka, kb, kc and 2 more", "D2H idle"]


def test_a_run_that_takes_no_time_is_not_played() -> None:
    on = console(80)
    play(gapless.simulate(gapless.read_tape("stream a\nrecord e on a\n")), on, clock=lambda: pytest.fail("played"))
    on.file.flush()
    assert on.file.buffer.getvalue() == b""


def test_plays_for_eight_seconds_by_the_clock_and_leaves_nothing() -> None:
    clock, on = Clock(), console(80)
    play(gapless.simulate(TAPE), on, clock=clock.seconds, sleep=clock.sleep)
    assert SECONDS <= clock.seconds() < SECONDS + 2 / FRAMES
    on.file.flush()
    written = on.file.buffer.getvalue().decode()
    shown = re.findall(r"([\d.]+) [mµ]?s of 12\.0 ms", written)
    assert len(shown) == pytest.approx(SECONDS * FRAMES, abs=2)
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")  # the cursor is back
    assert "\x1b[2K" in written.rpartition("of 12.0 ms")[2]  # and the lanes are wiped away


def test_a_wider_window_is_filled() -> None:
    on, clock = console(80), Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.seconds() > 4:
            on.width = 120

    play(gapless.simulate(TAPE), on, clock=clock.seconds, sleep=sleep)
    on.file.flush()
    last = on.file.buffer.getvalue().decode().rpartition("H2D ")[0].rpartition("ms      ╵0")[2]
    assert 80 < max(map(len, last.splitlines())) <= 120


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "unknown"}])
def test_nothing_moves_on_a_dumb_terminal(environment) -> None:
    on = Console(file=io.StringIO(), force_terminal=True, width=80, _environ=environment)
    play(gapless.simulate(TAPE), on, clock=lambda: pytest.fail("it must not wait"))
    assert on.file.getvalue() == ""
    assert Page.on(on).ascii_only


def test_without_a_terminal_the_whole_run_is_drawn_once(capsys) -> None:
    assert cli.main(["simulate", "--play", str(TAPE)]) == 0
    played = capsys.readouterr().out
    assert cli.main(["simulate", str(TAPE)]) == 0
    assert played == capsys.readouterr().out
    assert cli.main(["simulate", "--play"]) == 0
    played = capsys.readouterr().out
    assert cli.main(["simulate", "--chunks", "4"]) == 0
    assert played == capsys.readouterr().out


@pytest.mark.parametrize("others", [["--json"], ["--svg", "x.svg"], [str(TAPE)]])
def test_play_shows_one_run_only(capsys, others) -> None:
    assert cli.main(["simulate", "--play", str(TAPE), *others]) == 2
    assert "--play shows one run" in capsys.readouterr().err


def test_ctrl_c_ends_it_and_brings_the_cursor_back() -> None:
    """In a real terminal: a child on a pseudo-terminal is interrupted as soon as the first lanes stand."""
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "gapless", "simulate", "--play", str(TAPE)],
        stdin=slave, stdout=slave, stderr=slave, close_fds=True, start_new_session=True,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
    )  # fmt: skip
    os.close(slave)
    seen = b""
    try:
        while b"H2D" not in seen:
            ready, _, _ = select.select([master], [], [], 60)
            assert ready, seen
            seen += os.read(master, 1 << 16)
        child.send_signal(signal.SIGINT)
        while True:
            try:
                more = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            seen += more
        assert child.wait(60) == 130
    finally:
        child.kill()
        child.wait()
        os.close(master)
    assert b"Traceback" not in seen
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")
