"""Checks of recordings, drawn in a terminal."""

from __future__ import annotations

from gapless.checking.recordings import Finding, RecordingCheck
from gapless.checking.words import Side, Step
from gapless.model.races import RaceClass
from gapless.timeline.timeline import Unknown
from gapless.views.recording_check import to_text


def side(what: str, does: str, line: int, **more: str) -> Side:
    return Side(
        what=what, call=more.pop("call", "cudaMemcpyAsync"), stream=more.pop("stream", "stream 13"), does=does,
        file=more.pop("file", "/home/user/ring.cu"), line=line, function="main", time_ns=0, **more,
    )  # fmt: skip


def finding(
    *, exact: bool = True, kind: RaceClass = RaceClass.ERROR, count: int = 1, second: Side | None = None
) -> Finding:
    step = Step(
        add="cudaStreamWaitEvent(stream 14, e)", where="before", call="cudaMemcpyAsync", file="ring.cu", line=42
    )
    return Finding(
        exact=exact, kind=kind, first=side("H2D copy of 4 KiB", "writes", 40),
        second=second or side("D2H copy of 4 KiB", "reads", 42, stream="stream 14"), memory="1 MiB of device memory",
        why="nothing orders them", steps=(step,), repair=str(step), count=count,
    )  # fmt: skip


def drawn(*findings: Finding, width: int = 100, **more: object) -> str:
    checked = RecordingCheck(source="run.gapless", findings=findings, calls=14, **more)  # type: ignore[arg-type]
    return to_text(checked, width=width)


def test_an_exact_finding() -> None:
    assert (
        drawn(finding(count=4))
        == """\
run.gapless  4 races in 14 calls

1   race: H2D copy of 4 KiB writes, D2H copy of 4 KiB reads the same memory ×4
    at      /home/user/ring.cu:40  cudaMemcpyAsync, stream 13
    at      /home/user/ring.cu:42  cudaMemcpyAsync, stream 14
    memory  1 MiB of device memory
    why     nothing orders them
    add     cudaStreamWaitEvent(stream 14, e) before cudaMemcpyAsync (ring.cu:42)"""
    )


def test_a_possible_finding_says_what_must_be_so() -> None:
    kernel = side("kernel scale", "may write", 41, argument="argument 0 (float*)", call="cudaLaunchKernel")
    text = drawn(finding(exact=False, second=kernel))
    assert "1 possible in 14 calls" in text
    assert "1   possible race: H2D copy of 4 KiB writes, kernel scale may write the same memory" in text
    assert "cudaLaunchKernel, stream 13, argument 0 (float*)" in text
    assert "if      kernel scale touches these bytes: its argument points there" in text


def test_nothing_found_and_what_was_not_looked_at() -> None:
    text = drawn(unknown=(Unknown(what="host-accesses", text="The recording does not say it."),))
    assert (
        text
        == """\
run.gapless  no race in 14 calls

Nothing races in what was looked at.

Not looked at
• The recording does not say it."""
    )


def test_warnings_are_no_races() -> None:
    assert "run.gapless  1 warning in 14 calls" in drawn(finding(kind=RaceClass.WARNING))


def test_names_from_outside_are_text_and_nothing_but_text() -> None:
    evil = side("kernel \x1b[31m[bold]x", "may read", 41, file="\x1b]0;title\x07.cu")
    text = drawn(finding(second=evil), width=60)
    assert "\x1b" not in text
    assert "[bold]x" in text
    assert all(len(line) <= 60 for line in text.splitlines())


def test_many_findings_are_cut() -> None:
    assert "and 5 more kinds of them" in drawn(*[finding() for _ in range(25)], more=True)
