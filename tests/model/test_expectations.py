"""Whether a run holds what a tape expects: each kind where it holds, and where it does not."""

from __future__ import annotations

import pytest

from gapless.model.expectations import evaluate
from gapless.model.schedule import schedule
from gapless.model.tape import read

TAPE = """
stream a b nonblocking
buffer q pageable
h2d in on a 1ms p -> X as copy
kernel k on a 2ms share=1/8 reads X writes Y
record e0 on a
kernel k2 on a 1ms share=1/8 reads Y
record e1 on a
kernel free1 on b 4ms share=1/8 writes Z
query a as early
sync event e1 as wait1
elapsed e0 e1 as took
elapsed e0 never as failed
d2h out on b 1ms Z -> q pageable
read q as look
query a as late
capture b
kernel g on b 1ms share=1/8
end-capture b as G
launch G on b
launch G on b
thread T
  kernel t on a 0ms share=1/8 writes W
end
"""


def judged(text: str) -> tuple[bool, str]:
    tape = read(f"{TAPE}expect {text}")
    (outcome,) = evaluate(tape.expectations, schedule(tape.program, tape.machine))
    assert outcome.line == TAPE.count("\n") + 1
    return outcome.holds, outcome.got


@pytest.mark.parametrize(
    ("text", "holds", "got"),
    [
        ("makespan 7ms", True, "7ms"),
        ("makespan 6.9ms", False, "7ms"),
        ("makespan >= 7ms", True, "7ms"),
        ("makespan <= 6ms", False, "7ms"),
        ("start k 1ms", True, "1ms"),
        ("start k 0.999999ms", True, "1ms"),  # within 1 ns
        ("start k 0.999998ms", False, "1ms"),
        ("end k <= 3ms", True, "3ms"),
        ("end k <= 2ms", False, "3ms"),
        ("start wait1 0ms", True, "0ms"),
        ("end wait1 4ms", True, "4ms"),
        ("return wait1 4ms", True, "4ms"),
        ("return copy 0ms", True, "0ms"),
        ("return copy 1ms", False, "0ms"),
        ("start g 6ms", True, "6ms"),
        ("start g.1 5ms", True, "5ms"),
        ("start g.3 5ms", False, "no operation or call is named 'g.3'"),
        ("elapsed took 1ms", True, "1ms"),
        ("elapsed took 2ms", False, "1ms"),
        ("elapsed failed 1ms", False, "InvalidResourceHandle"),
        ("order in k", True, "in before k"),
        ("order k in", False, "in before k"),
        ("order k free1", False, "k and free1 in no order"),
        ("order g.1 g.2", True, "g.1 before g.2"),
        ("order k look", True, "k before look"),
        ("unordered k free1", True, "k and free1 in no order"),
        ("unordered in k", False, "in before k"),
        ("overlap k free1", True, "k 1ms to 3ms, free1 0ms to 4ms"),
        ("overlap in k", False, "in 0ms to 1ms"),
        ("no overlap in k", True, "in 0ms to 1ms"),
        ("no overlap k free1", False, "k 1ms to 3ms"),
        ("race k free1", False, "no race"),
        ("warning out look", True, "warning"),
        ("warning look out on q", True, "warning"),
        ("warning look out on Z", False, "warning"),
        ("race look out", False, "warning"),
        ("nondeterminism k t", True, "nondeterminism"),
        ("nondeterminism k k2", False, "no race"),
        ("no race k k2", True, "no race"),
        ("no race out look", False, "warning"),
        ("no race", True, "warning"),
        ("error InvalidResourceHandle", True, "InvalidResourceHandle at elapsed"),
        ("error 400 at failed", True, "InvalidResourceHandle at elapsed"),
        ("error 900 at failed", False, "InvalidResourceHandle at elapsed"),
        ("error InvalidResourceHandle at took", False, "no error"),
        ("query early notready", True, "notready"),
        ("query early success", False, "notready"),
        ("query late success", True, "success"),
        ("busy h2d 1/7", True, "0.142857"),
        ("busy h2d 0.142857", True, "0.142857"),
        ("busy h2d 0.1428", False, "0.142857"),
        ("busy sm >= 0.8", True, "0.857143"),
        ("busy sm <= 0.8", False, "0.857143"),
        ("overlapped 1/7", True, "0.142857"),
        ("overlapped 0", False, "0.142857"),
    ],
)
def test_each_kind(text: str, holds: bool, got: str):
    outcome = judged(text)
    assert outcome[0] == holds, outcome
    assert got in outcome[1]


def test_a_race_is_one():
    program = "stream a b nonblocking\nkernel x on a 1 writes X\nkernel y on b 1 reads X\n"
    tape = read(program + "expect race y x on X\nexpect no race")
    outcomes = evaluate(tape.expectations, schedule(tape.program))
    assert [outcome.holds for outcome in outcomes] == [True, False]


def test_use_after_free_counts_as_a_race():
    tape = read("stream a\nmalloc p on a\nfree p on a as gone\nkernel x on a 1 reads p\nexpect race x gone on p")
    (outcome,) = evaluate(tape.expectations, schedule(tape.program))
    assert outcome.holds
    assert "unallocated" in outcome.got


def test_what_never_ran_holds_nothing():
    tape = read("stream a\ncapture a\nkernel x on a 1\nend-capture a as G\nexpect start x 0ms\nexpect order x x")
    outcomes = evaluate(tape.expectations, schedule(tape.program))
    assert [outcome.holds for outcome in outcomes] == [False, False]
    assert "did not run" in outcomes[0].got


def test_an_empty_program_has_no_busy_time():
    tape = read("expect makespan 0ms\nexpect busy sm 0\nexpect overlapped 0\nexpect no race")
    assert all(outcome.holds for outcome in evaluate(tape.expectations, schedule(tape.program)))
