"""What a check found in a terminal, to the character."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gapless.model.simulation import check
from gapless.model.tape import read
from gapless.views.races import to_text

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


def said(text: str, width: int = 80, **options) -> str:
    return to_text(check(read(text, name="x.tape"), **options), width=width)


def test_nothing_to_say():
    assert said("stream a\nkernel x on a 1 writes M\nkernel y on a 1 reads M\n") == "x.tape  no race"


def test_two_streams():
    text = "stream copies work nonblocking\nh2d in on copies 1 src -> data\nkernel k on work 1 reads data\n"
    assert (
        said(text + "expect no race\n")
        == """\
x.tape  1 race

1   race: in writes data, k reads it, in no order
    line 2  h2d in on copies, writes data
    line 3  kernel k on work, reads data
    why     streams copies and work run side by side, and no event leads from in
            to k
    add     record e on copies  after line 2
            wait e on work      before line 3

1 expectation fails.
line 4    expect no race: got error: in writes data and k reads it, with no
          order between them. To repair: record e on copies after in; wait e on
          work before k"""
    )


def test_of_a_replay_it_is_said_what_is_asked():
    text = "stream a\nkernel x on a 1\nkernel x2 on a 1\nexpect order x x2\nexpect no race\n"
    for replay, asked in (("plain", False), ("h1", True)):
        told = said(text, replay=replay)
        assert ("Of a replayed run only what must hold in every run is asked." in told) is asked, told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # the host
        ("stream a\nd2h x on a 1 d -> p\nread p as look",
         "why the host does not wait for x (stream a) before it gets to look add sync a before line 3"),
        ("stream a\nh2d x on a 1 p -> d pageable\nwrite p as fill",
         "warning: x reads p, fill writes it, in no order line 2 h2d x on a, reads p line 3 write p"
         " why the copy x may still use its host memory when its call has returned"),
        # events that do not help
        ("stream a b\nwait e on b\nkernel x on a 1 writes M\nrecord e on a\nkernel y on b 1 reads M",
         "why stream b waits for event e before it is recorded, so for nothing"),
        ("stream a b\nrecord e on a\nkernel x on a 1 writes M\nwait e on b\nkernel y on b 1 reads M",
         "why stream b waits for event e, which was recorded before x"),
        # the default stream
        ("stream n nonblocking\nkernel x on default 1 writes M\nkernel y on n 1 reads M",
         "why stream n is non-blocking: the default stream does not fence it. No event orders x and y"),
        # host threads
        ("stream a b nonblocking\nthread T\nkernel x on a 1 writes M\nend\nthread U\nkernel y on b 1 reads M\nend",
         "why threads T and U issue them, and no event, wait or message orders the two"),
        (CHANCE, "nondeterminism: whether record e on a or wait e on b comes first is left to chance"),
        # memory
        ("stream a\nmalloc p\nkernel x on a 1 writes p\nfree p as gone\nkernel y on a 1 reads p",
         "unallocated use: gone frees p before y reads it line 4 free p line 5 kernel y on a, reads p"
         " why gone comes first, whatever the timing do move gone behind y"),
        ("stream a b\nmalloc p on a\nkernel x on b 1 writes p",
         "malloc p on a allocates p, x writes it, in no order"),
        # a graph
        ("stream a b\ncapture a\nrecord f on a\nwait f on b\nkernel x on a 1 writes M\nkernel y on b 1 reads M\n"
         "record g on b\nwait g on a\nend-capture a as G\nlaunch G on a",
         "why no path leads from x to y in the graph"),
    ],
)  # fmt: skip
def test_why_nothing_orders_them(text, words):
    assert words in " ".join(said(text).split())


def test_races_of_the_same_lines_are_told_once():
    text = "stream a b\nrepeat 5 as i\n  kernel x{i} on a 1 writes M{i}\n  kernel y{i} on b 1 reads M{i}\nend\n"
    shown = said(text)
    assert shown.startswith("x.tape  5 races\n\n1   race: x0 writes M0, y0 reads it, in no order ×5\n")
    assert "\n2  " not in shown


def test_a_program_without_lines_is_told_by_its_calls():
    program = read("stream a b\nkernel x on a 1 writes M\nkernel y on b 1 reads M\n").program
    shown = to_text(check(program), width=80)
    assert "            kernel x on a, writes M\n" in shown
    assert "add     record e on a  after kernel x on a\n" in shown


def test_explored_runs():
    shown = said(CHANCE, explore=60)
    failure = check(read(CHANCE), explore=60).explored.failures[0].choice
    assert f"\n{failure}" in shown
    assert "error: x writes X, y reads it, and nothing orders the two" in shown
    assert shown.endswith(f"Look at it: gapless check x.tape --replay {failure}")
    alone = said("stream a\nkernel x on a 1 writes M\n", explore=10)
    assert alone.endswith("\n\nNothing goes wrong in 10 runs, 1 order of calls.")


def test_the_headline_of_a_check_agrees_with_what_exploring_finds():
    tape = Path(__file__).parents[2] / "examples" / "tapes" / "53-pytorch-record-stream.tape"
    shown = to_text(check(tape, explore=100), width=120)
    assert re.match(r".*53-pytorch-record-stream.tape  fails in other runs\n\n", shown)
    assert "\n2 expectations hold in the run as it stands.\n" in shown
    alone = to_text(check(tape), width=120)
    assert "53-pytorch-record-stream.tape  no race\n\n2 expectations hold." in alone
    both = said(CHANCE + "kernel z on a 1 writes Z\nkernel w on b 1 reads Z\n", explore=60)
    assert re.match(r"x\.tape  1 race, \d nondeterminism; fails in other runs too\n", both)
    plain = said("stream a b nonblocking\nkernel z on a 1 writes Z\nkernel w on b 1 reads Z\n", explore=10)
    assert plain.startswith("x.tape  1 race\n")


def test_a_command_to_copy_is_whole_and_names_what_the_shell_reads():
    played = check(read(CHANCE, name="a tape/with blanks.tape"), explore=60)
    last = to_text(played, width=60).splitlines()[-1]
    assert last == f"gapless check 'a tape/with blanks.tape' --replay {played.explored.failures[0].choice}"


def test_narrow_terminals():
    shown = said(CHANCE, width=30)
    assert max(map(len, shown.splitlines())) <= 30
