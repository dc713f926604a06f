"""Whatever asks the lab, and however: an answer, in bounds, that says what is wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.lab.asked import LONGEST, MOST, Asked, understand
from gapless.lab.played import play
from gapless.model.errors import GaplessError


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{}", b"\xff\xfe", b'{"loop": {}, "tape": ""}', b'{"tape": 1}', b'{"loop": []}',
        b'{"other": 1}', b'{"tape": "x", "machine": "h200"}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(body):
    with pytest.raises(GaplessError, match="no request of the lab's page"):
        understand(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"loop":' * 50_000, "nested too deeply"),
        (b'{"loop": {"chunks": ' + b"[" * 50_000, "nested too deeply"),
        (b'{"tape": "\\ud800"}', "not valid Unicode"),
        (b'{"tape": "\\ud800x\\n"}', "not valid Unicode"),
        (b'{"tape": "\\udc00"}', "not valid Unicode"),
        (b'{"tape": "\\ud800\\u0041"}', "not valid Unicode"),
        (b'{"loop": {"\\ud800": 1}}', "not valid Unicode"),
        (b'{"tape": "\xff"}', "not UTF-8"),
        (b'{"tape": "x', "truncated"),
        (b'{"tape": "\\\\ud800', "truncated"),
    ],
)
def test_a_request_that_cannot_be_read_says_why(body, said):
    with pytest.raises(GaplessError, match=f"no request of the lab's page: .*{said}"):
        understand(body)


def test_any_character_may_be_escaped():
    assert understand(b'{"tape": "# \\ud83d\\ude00 \\\\ud800"}').tape == "# \U0001f600 \\ud800"


def test_a_tape_has_a_length():
    assert understand(json.dumps({"tape": "#" * LONGEST}).encode()).tape
    with pytest.raises(GaplessError, match="longer than 256 Ki"):
        understand(json.dumps({"tape": "#" * (LONGEST + 1)}).encode())


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ({"chunks": 10**9}, "up to 64 chunks"),
        ({"streams": 33}, "32 streams"),
        ({"chunks": "4"}, "Expected `int`"),
        ({"chunks": 0}, "at least one chunk"),
        ({"h2d": "-1ms"}, "-1ms"),
        ({"h2d": "1ms\nkernel x on s0 1"}, "time"),
        ({"wait": "forever"}, "device, stream, event or query"),
        ({"machine": '"/etc/passwd"'}, "a loop of the lab runs on teaching"),
        ({"machine": "h200 queues=1\nstream x"}, "a loop of the lab runs on teaching"),
        ({"threads": 4}, "a loop has no 'threads'"),
    ],
)
def test_a_wrong_loop_is_answered_with_what_is_wrong(loop, said):
    assert said in play(Asked(loop=loop))["error"]["said"]


@pytest.mark.parametrize(
    ("tape", "line", "column", "length", "hint"),
    [
        ("kernle k on default 1ms", 1, 1, 6, "kernel"),
        ("stream copies\n  kernel k on copis 1ms", 2, 15, 5, "copies"),
        ("kernel k on default", 1, 20, 0, ""),
        ("repeat 1000000000\nquery default\nend", 1, 1, 6, ""),
        ('machine "/etc/passwd"', 1, 9, 13, ""),
        ("kernel <b>x</b> on default 1", 1, 8, 8, ""),
    ],
)
def test_a_tape_that_cannot_be_read_says_where(tape, line, column, length, hint):
    error = play(Asked(tape=tape))["error"]
    assert (error["line"], error["column"], error["length"]) == (line, column, length)
    assert error["hint"] == hint
    assert not error["said"].startswith("tape:")


def test_no_file_of_this_machine_is_read():
    error = play(Asked(tape='machine "/etc/passwd"'))["error"]
    assert "no files of machines are read here" in error["said"]
    assert "root" not in error["said"]


def test_a_program_as_large_as_the_lab_takes():
    half = MOST // 2
    run = play(Asked(tape=f"stream s nonblocking\nrepeat {half - 1} as i\nkernel k{{i}} on s 1us\nend"))
    assert (run["more_ops"], len(run["ops"])) == (True, 2000)
    error = play(Asked(tape=f"repeat {MOST + 1} as i\nkernel k{{i}} on default 1us\nend"))["error"]
    assert "more than 20,000 lines" in error["said"]


def test_more_reasons_than_are_told_are_counted():
    lines = [f"host 2us\nkernel k{i} on default 1us" for i in range(60)]
    run = play(Asked(tape="\n".join(lines)))
    assert (len(run["reasons"]), run["more_reasons"]) == (40, 20)


def test_a_deadlock_names_its_lines():
    tape = "thread a\nreceive x\nsend y\nend\nthread b\nreceive y\nsend x\nend"
    error = play(Asked(tape=tape))["error"]
    assert error["lines"] == [2, 6]
    assert "deadlock" in error["said"]


def test_calls_that_fail_are_told():
    tape = "stream s\ncapture s\nsync s\nend-capture s as G"
    assert play(Asked(tape=tape))["failed"][0]["line"] == 3


WORDS = [
    "kernel", "h2d", "d2h", "stream", "s", "t", "end", "repeat", "expect", "sync", "device", "default", "on", "as",
    "1ms", "1/0", "0ms", "x", "y", "reads", "writes", "->", "{i}", "\n", "\n", "3", "record", "wait", "e", "query",
    "elapsed", "malloc", "free", "capture", "end-capture", "launch", "G", "thread", "host", "pageable",
    "<script>", "\x00", "\u202e", "blocks=9", "block=1/8", "share=1/2", "h200", "machine", "makespan", "race", "event",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_any_text_gives_an_answer_that_json_can_hold(words):
    answer = play(Asked(tape=" ".join(words)))
    assert json.loads(json.dumps(answer)) is not None
    assert ("error" in answer) != ("wall" in answer)


def test_an_empty_tape_is_a_run_of_nothing():
    run = play(Asked(tape=""))
    assert (run["wall"], run["ops"], run["chain"]) == (0, [], "")
