"""Exploration finds the run that goes wrong, and a short text runs it again."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.model.errors import DeadlockError, GaplessError
from gapless.model.explore import Choice, explore, replay, runs, vary
from gapless.model.happens_before import happened_in
from gapless.model.kinds import CallKind
from gapless.model.machine import Machine
from gapless.model.program import Program
from gapless.model.races import find_races
from gapless.model.schedule import Schedule, schedule
from gapless.model.tape import read

# The record usually comes first, and then all is well.
HANDED_OVER = """\
stream a b nonblocking
thread T1
  kernel x on a 1ms writes X
  record e on a
end
thread T2
  host 1ms
  wait e on b
  kernel y on b 1ms reads X
end
"""

# Right as long as the query finds the copy done.
POLLED = """\
stream a nonblocking
d2h d on a 1ms X -> p
host 5ms
query a
read p as r
"""

RIGHT = """\
stream a b nonblocking
thread T1
  kernel x on a 1ms writes X
  record e on a
  send recorded
end
thread T2
  receive recorded
  wait e on b
  kernel y on b 1ms reads X
  sync b
end
"""


def test_finds_the_order_of_threads_that_races():
    program = read(HANDED_OVER).program
    assert not find_races(program, happened_in(schedule(program))).errors
    found = explore(program, n=50)
    assert [failure.what for failure in found.failures] == ["error: x writes X, y reads it, and nothing orders the two"]
    assert found.orders > 1
    assert found.failures[0].choice.varied == "h"  # the least that shows it: the host threads alone


def test_finds_the_answer_of_a_query_that_races():
    found = explore(read(POLLED).program, n=50)
    assert [failure.what for failure in found.failures] == ["error: d writes p, r reads it, and nothing orders the two"]


def test_a_failing_run_is_run_again_by_its_text():
    program = read(HANDED_OVER).program
    (failure,) = explore(program, n=50).failures
    again = replay(program, str(failure.choice))
    assert find_races(again.program, happened_in(again)).errors
    other = replay(program, failure.choice)
    for column in ("start", "end", "begin", "returned", "order", "error"):
        assert np.array_equal(getattr(again, column), getattr(other, column))


def test_a_right_program_stays_right():
    found = explore(read(RIGHT).program, n=100)
    assert found.failures == ()
    assert str(found).startswith("nothing went wrong in 100 runs")


def test_the_first_run_is_the_program_as_it_stands():
    program = read(HANDED_OVER).program
    choice, run = next(runs(program))
    assert str(choice) == "plain"
    assert isinstance(run, Schedule)
    assert np.array_equal(run.order, schedule(program).order)


def test_the_seed_decides_which_runs():
    program = read(HANDED_OVER).program

    def orders(seed: int) -> list[list[int]]:
        return [run.order.tolist() for _, run in runs(program, n=20, seed=seed) if isinstance(run, Schedule)]

    assert orders(0) == orders(0)
    assert orders(0) != orders(1000)


def test_a_deadlock_in_one_order_only():
    """A message is taken by whoever receives first; then the other waits for ever."""
    program = Program()
    for name, works in (("T1", 1), ("T2", 2)):
        with program.thread(name):
            program.host(works)
            program.call(CallKind.OTHER)
            program.receive("go")
            if name == "T1":
                program.send("go")
    program.send("go")
    assert isinstance(schedule(program), Schedule)
    found = explore(program, n=60)
    (failure,) = found.failures
    assert "deadlock" in failure.what
    with pytest.raises(DeadlockError):
        replay(program, str(failure.choice))


def test_an_error_that_the_first_run_has_not():
    tape = read(
        "stream n nonblocking\nthread T1\nhost 1\ncapture n\nhost 1\nend-capture n\nend\n"
        "thread T2\nmalloc B 1KiB as m\nend"
    )
    assert not schedule(tape.program).error.any()
    what = [failure.what for failure in explore(tape.program, n=100).failures]
    assert "malloc B (call 0 of thread T2) fails: StreamCaptureUnsupported" in what


def test_expectations_of_order_are_judged_and_times_are_not():
    tape = read(HANDED_OVER + "expect order x y\nexpect makespan 2ms\nexpect start y 1ms\n")
    found = explore(tape.program, n=50, expectations=tape.expectations)
    assert [failure.what for failure in found.failures] == ["line 11: expect order x y: x and y in no order"]
    expected = read(HANDED_OVER.replace("  record e on a\n", "") + "expect race x y on X\n")
    assert not explore(expected.program, n=50, expectations=expected.expectations).failures


def test_choices_are_written_and_read():
    for choice in (Choice(), Choice("h", 0), Choice("htm", 17), Choice("tm", 3)):
        assert Choice.parse(str(choice)) == choice
    for text in ("", "h", "17", "x1", "mth1", "h-1", "h1.5", "plain1"):
        with pytest.raises(GaplessError, match="is no run; write plain"):
            Choice.parse(text)


@pytest.mark.parametrize("machine", [Machine(), Machine.named("h200")], ids=["teaching", "h200"])
def test_what_is_varied(machine: Machine):
    program = read(
        "stream a nonblocking\nkernel x on a 1ms\nh2d h on a 1ms 1MiB\nhost 1ms\nrecord e on a\nsync a\nwrite p\n"
    ).program
    hosts, same = vary(program, Choice("h", 5), machine)
    assert same is machine
    assert np.array_equal(hosts.rows.duration[:2], program.rows.duration[:2])
    assert (hosts.rows.cost[[0, 1, 3, 4]] >= 0).all()
    times, same = vary(program, Choice("t", 5), machine)
    assert same is machine
    assert np.array_equal(times.rows.cost, program.rows.cost)
    assert not np.array_equal(times.rows.duration, program.rows.duration)
    same, other = vary(program, Choice("m", 5), machine)
    assert same is program
    assert other != machine
    assert (other.launch_blocking, other.sync_memops) == (machine.launch_blocking, machine.sync_memops)


def test_sizes_without_times_are_varied_too():
    machine = Machine.named("h200")
    program = read("machine h200\nstream a nonblocking\nh2d h on a 1MiB\n").program
    times = {replay(program, f"t{seed}", machine).end[0] - replay(program, f"t{seed}", machine).start[0]
             for seed in range(5)}  # fmt: skip
    assert len(times) > 1


def test_an_empty_program():
    assert explore(Program(), n=5).failures == ()
