"""The assertions pass on what is so, and say what happened on what is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gapless.model.errors import GaplessError
from gapless.model.kinds import OpKind
from gapless.model.machine import Machine
from gapless.model.schedule import schedule
from gapless.model.simulation import simulate
from gapless.model.tape import read
from gapless.testing import (
    assert_busy,
    assert_holds,
    assert_no_overlap,
    assert_ordered,
    assert_overlaps,
    assert_race_free,
    assert_unordered,
    replay,
)
from gapless.timeline.simulated import from_schedule
from gapless.timeline.timeline import Ops, Timeline

LOOP = """\
stream a b nonblocking
h2d h on a 2ms p -> X
record e on a
wait e on b
kernel k on b 2ms reads X
kernel other on a 1ms share=1/2
"""


def test_every_kind_of_run():
    tape = read(LOOP)
    run = schedule(tape.program)
    for source in (LOOP, tape, tape.program, run, simulate(tape), from_schedule(run)):
        assert_no_overlap(source, "h", "k")
        with pytest.raises(AssertionError, match="h and k do not overlap: h runs from 0ms to 2ms, k from 2ms to 4ms"):
            assert_overlaps(source, "h", "k")
        assert_busy(source, "h2d", at_least=0.4)
        with pytest.raises(AssertionError, match=r"d2h is busy for 0\.0% of the run, not for 10\.0%"):
            assert_busy(source, "d2h", at_least=0.1)


def test_files(tmp_path: Path):
    file = tmp_path / "loop.tape"
    file.write_text(LOOP)
    for path in (file, str(file)):
        assert_no_overlap(path, "h", "k")
        assert_race_free(path)
    with pytest.raises(GaplessError, match="there is none: no such file"):
        assert_race_free("there is none")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("stream s nonblocking\nkernel x on s 1ms\nkernel y on s 1ms", "stream order: kernel x on s. Put the two into"),
        (
            "stream s blocking\nkernel x on s 1ms\nkernel y on default 1ms",
            "legacy default stream: kernel x on s. Make the streams non-blocking",
        ),
        ("stream a b nonblocking\nh2d x on a 1ms\nh2d y on b 1ms", "copy engine: h2d x on a. Copies of one direction"),
        (
            "stream a b nonblocking\nkernel x on a 1ms\nkernel y on b 1ms",
            "SMs: kernel x on a. The kernels before leave",
        ),
        (
            "stream a b nonblocking\nkernel x on a 1ms\nsync a\nkernel y on b 1ms",
            "host: kernel y on b. Issue it earlier",
        ),
    ],
)
def test_why_two_do_not_overlap(text: str, reason: str):
    with pytest.raises(AssertionError) as caught:
        assert_overlaps(text, "x", "y")
    assert f"y waited for {reason}" in str(caught.value)


def test_several_operations_of_one_name_in_a_timeline():
    def timeline(copies: list[tuple[int, int]], kernels: list[tuple[int, int]]) -> Timeline:
        both = [(0, *c) for c in copies] + [(1, *k) for k in kernels]
        name, start, end = np.array(both).T
        return Timeline(
            ops=Ops.build(kind=np.where(name == 0, OpKind.H2D, OpKind.KERNEL), name=name, start=start, end=end),
            strings=["copy", "gemm"],
        )

    beside = timeline([(0, 10), (20, 30)], [(12, 18), (25, 40)])
    assert_overlaps(beside, "copy", "gemm")
    with pytest.raises(AssertionError, match="copy and gemm overlap for 5ns: copy runs from 20ns to 30ns"):
        assert_no_overlap(beside, "copy", "gemm")
    apart = timeline([(0, 10), (20, 25)], [(12, 18), (28, 40)])
    assert_no_overlap(apart, "copy", "gemm")
    with pytest.raises(AssertionError, match=r"copy runs from 0ms to 10ns, gemm from 12ns to 18ns \(the closest of"):
        assert_overlaps(apart, "copy", "gemm")
    with pytest.raises(GaplessError, match="no operation of the timeline is called 'memset'"):
        assert_overlaps(apart, "copy", "memset")


def test_order():
    assert_ordered(LOOP, "h", "k")
    assert_unordered(LOOP, "other", "k")
    with pytest.raises(AssertionError, match="h is ordered before k"):
        assert_unordered(LOOP, "k", "h")
    with pytest.raises(AssertionError, match="k comes after h: h is over before k starts"):
        assert_ordered(LOOP, "k", "h")
    two = "stream a b nonblocking\nkernel x on a 1ms\nrecord e on a\nkernel z on a 1ms\nkernel y on b 1ms"
    with pytest.raises(AssertionError, match=r"nothing orders x before y\. To order them: wait e on b before y"):
        assert_ordered(two, "x", "y")
    with pytest.raises(AssertionError, match=r"To order them: record e1 on a after z; wait e1 on b before y"):
        assert_ordered(two, "z", "y")
    with pytest.raises(GaplessError, match="no operation or call is named 'kk'"):
        assert_ordered(LOOP, "h", "kk")


def test_order_of_runs_of_a_graph():
    text = "stream a b nonblocking\ncapture a\nkernel x on a 1\nend-capture a as G\nlaunch G on a\nlaunch G on b"
    assert_ordered(text, "x.1", "x.2")
    assert_ordered(text, "x.1", "x")


def test_races():
    assert_race_free(LOOP, runs=20)
    broken = LOOP.replace("wait e on b\n", "")
    with pytest.raises(AssertionError, match=r"1 race:\n  error: h writes X and k reads it.*wait e on b before k"):
        assert_race_free(broken)
    with pytest.raises(AssertionError, match="and 2 more"):
        assert_race_free("stream a b nonblocking\n" + "".join(
            f"kernel x{i} on a 1 writes X{i}\nkernel y{i} on b 1 writes X{i}\n" for i in range(7)
        ))  # fmt: skip


def test_races_in_other_runs_are_replayed():
    polled = "stream a nonblocking\nd2h d on a 1ms X -> p\nhost 5ms\nquery a\nread p as r\n"
    assert_race_free(polled)
    with pytest.raises(AssertionError, match=r"1 race in 30 runs:\n  t3: error: d writes p") as caught:
        assert_race_free(polled, runs=30)
    assert 'replay(program, "t3")' in str(caught.value)
    with pytest.raises(AssertionError):
        assert_race_free(replay(read(polled).program, "t3"))


def test_a_warning_is_no_failure():
    assert_race_free("stream a nonblocking\nbuffer p pageable\nh2d h on a 1 p -> X pageable\nwrite p")


def test_another_machine():
    text = "stream a b nonblocking\nh2d x on a 1ms\nd2h y on b 1ms\nexpect makespan 1ms"
    assert_holds(text)
    with pytest.raises(AssertionError, match="line 4: expect makespan 1ms: 2ms"):
        assert_holds(text, machine=Machine.named("one-copy-engine"))


def test_a_tape_that_expects_nothing_cannot_hold():
    with pytest.raises(GaplessError, match="expects nothing: add lines such as"):
        assert_holds(LOOP)


def test_an_engine_that_does_not_exist():
    with pytest.raises(GaplessError, match="no engine is called 'gpu'; there are h2d, sm, d2h, peer"):
        assert_busy(LOOP, "gpu", at_least=0.5)
