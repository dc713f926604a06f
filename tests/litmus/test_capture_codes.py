"""R7.4: which calls a capture forbids, with which error, and what becomes of the capture, as driver 580 answered."""

from __future__ import annotations

import pytest

from gapless.model.machine import Machine
from gapless.model.schedule import schedule
from gapless.model.tape import read

# kind of the capturing stream, mode of the capture, whether the call comes from another thread
COLUMNS = [
    ("blocking", "global", False),
    ("nonblocking", "global", False),
    ("nonblocking", "thread", False),
    ("nonblocking", "relaxed", False),
    ("nonblocking", "global", True),
    ("nonblocking", "thread", True),
]
IMPLICIT = [906, 0, 0, 0, 0, 0]
IMPLICIT_OR_UNSAFE = [906, 900, 900, 0, 900, 0]
UNSAFE = [900, 900, 900, 0, 900, 0]
ALWAYS = [900] * 6
CAPTURED = [907] * 6
ISOLATED = [905] * 6
NEVER = [0] * 6

CALLS = {
    "h2d x 1ms sync": IMPLICIT,
    "h2d x 1ms pageable sync": IMPLICIT,
    "d2d x 1ms sync": IMPLICIT,
    "memset x 1ms sync": IMPLICIT,
    "kernel x on default 1ms": IMPLICIT,
    "record e on default": IMPLICIT,
    "query default": IMPLICIT_OR_UNSAFE,
    "sync default": IMPLICIT_OR_UNSAFE,
    "query self": ALWAYS,
    "sync self": ALWAYS,
    "sync device": ALWAYS,
    "query event inside": CAPTURED,
    "sync event inside": CAPTURED,
    "query event outside": UNSAFE,
    "sync event outside": UNSAFE,
    "query other": UNSAFE,
    "sync other": UNSAFE,
    "wait outside on self": ISOLATED,
    "malloc b": UNSAFE,
    "free b": UNSAFE,
    "hostalloc p": UNSAFE,
    "hostfree p": UNSAFE,
    "malloc b on self": NEVER,
    "malloc b on other": UNSAFE,
    "stream new": NEVER,
    "h2d x on self 1ms 4MiB pageable": NEVER,
    "d2h x on self 1ms pageable": NEVER,
    "kernel x on self 1ms first": NEVER,
    "kernel x on other 1ms": NEVER,
    "device 0": NEVER,
    "host 1ms": NEVER,
}
CASES = [
    pytest.param(call, *column, code, id=f"{call}-{'-'.join(map(str, column))}")
    for call, codes in CALLS.items()
    for column, code in zip(COLUMNS, codes, strict=True)
]
TAPE = """
stream self {kind}
stream other nonblocking
record outside on other
thread one
  capture self {mode}
  kernel first on self 1ms
  record inside on self
  {here}
  end-capture self as end1
end
thread two
  {there}
end
"""


@pytest.mark.parametrize("profile", ["teaching", "h200"])
@pytest.mark.parametrize(("call", "kind", "mode", "other", "code"), CASES)
def test_call_during_a_capture(call: str, kind: str, mode: str, other: bool, code: int, profile: str) -> None:
    here, there = f"{call} as call", ""
    if other:
        here, there = "send begun\nreceive called", f"receive begun\n{call} as call\nsend called"
    program = read(TAPE.format(kind=kind, mode=mode, here=here, there=there)).program
    run = schedule(program, Machine.named(profile))
    assert run.error[program.find("call")] == code
    assert run.error[program.find("end1")] == (901 if code else 0)


@pytest.mark.parametrize(
    ("calls", "codes"),
    [
        ("capture default as a", [900]),
        ("capture s\ncapture s as a", [401]),
        ("end-capture s as a", [401]),
        ("capture s\nrecord e on s\nwait e on t\nkernel k on t 1\nend-capture s as a", [904]),
        ("capture s\nrecord e on s\nwait e on t\nend-capture t as a\nend-capture s as b", [903, 901]),
        (
            "capture s\ncapture t\nrecord e on t\nwait e on s as a\nend-capture s as b\nend-capture t as c",
            [902, 901, 901],
        ),
        ("capture s\nsync s\nkernel k on s 1 as a\nend-capture s as b", [901, 901]),
        ("capture s\nkernel k on s 1\nrecord e on s\nend-capture s as G\nquery event e as a", [1]),
        ("capture s\nkernel k on s 1\nrecord e on s\nend-capture s as G\nsync event e as a", [1]),
        ("capture s\nkernel k on s 1\nrecord e on s\nend-capture s as G\nwait e on t as a", [1]),
        ("capture s\nrecord e on s\nrecord f on s\nend-capture s as G\nelapsed e f as a", [1]),
    ],
)
def test_wrong_captures(calls: str, codes: list[int]) -> None:
    program = read(f"stream s t nonblocking\n{calls}").program
    run = schedule(program)
    assert [int(run.error[program.find(label)]) for label in "abc"[: len(codes)]] == codes


def test_ending_the_capture_of_another_thread() -> None:
    text = """stream s nonblocking
    thread one
      capture s {mode}
      send begun
      receive tried
      end-capture s as b
    end
    thread two
      receive begun
      end-capture s as a
      send tried
    end"""
    for mode, codes in (("global", (908, 401)), ("thread", (908, 401)), ("relaxed", (0, 401))):
        program = read(text.format(mode=mode)).program
        run = schedule(program)
        assert (run.error[program.find("a")], run.error[program.find("b")]) == codes, mode
