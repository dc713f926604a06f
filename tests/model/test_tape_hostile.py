"""Whatever a tape holds, reading it ends soon, and only with a tape or a TapeError."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.model.errors import GaplessError
from gapless.model.schedule import schedule
from gapless.model.tape import TapeError, read

WORDS = [
    "kernel", "h2d", "memset", "stream", "buffer", "thread", "end", "repeat", "expect", "machine", "sync", "event",
    "device", "default", "legacy", "as", "on", "->", "{i}", "{", "}", '"', "#", "share=1/8", "blocks=3", "block=1/0",
    "to=1", "1ms", "1e999999ms", "99999999999999999999", "1/0", "-1", "nonblocking", "priority=99", "reads", "A,B",
    ",", "=", "h200", "fermi", "queues=8", "launch_cost=1e999999us", "makespan", "race", "no", ">=", "capture",
    "end-capture", "launch", "G", "s", "\x00", "\u2028", "٣", "{1//0}", "{9*9}", "repeat 9 as i", "default.300", "x.1",
]  # fmt: skip


def reads_or_refuses(text: str) -> None:
    error = None
    try:
        read(text)
    except TapeError as caught:
        error = caught
    if error:
        assert error.line >= 1
        assert error.column >= 1
        assert len(str(error)) < 2000


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), max_size=12).map("\n".join))
@settings(max_examples=300)
def test_random_words(text: str):
    reads_or_refuses(text)


@given(st.text(max_size=200))
def test_random_text(text: str):
    reads_or_refuses(text)


@given(st.data())
@settings(max_examples=300)
def test_mutated_tapes(every_tape: list[Path], data: st.DataObject):
    text = data.draw(st.sampled_from(every_tape)).read_text(encoding="utf-8")
    rng = data.draw(st.randoms(use_true_random=False))
    reads_or_refuses(mutated(text, rng))


def mutated(text: str, rng: random.Random) -> str:
    lines = text.splitlines()
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        words = lines[at].split() or [""]
        word = rng.randrange(len(words))
        change = rng.randrange(7)
        if change == 0:
            words[word] = rng.choice(WORDS)
        elif change == 1:
            words.insert(word, rng.choice(WORDS))
        elif change == 2:
            del words[word]
        elif change == 3:
            words[word] = words[word].replace("1", "9" * rng.choice([1, 5, 30]))
        elif change == 4:
            cut = rng.randrange(len(words[word]) + 1)
            words[word] = words[word][:cut] + rng.choice('{}"#/.-%\x7f€') + words[word][cut:]
        elif change == 5:
            lines.insert(at, rng.choice(lines))
        else:
            lines[at], lines[-1] = lines[-1], lines[at]
            continue
        lines[at] = " ".join(words)
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        "k" * 1_000_000,
        "kernel " + "x" * 1_000_000 + " on default 1",
        "host " + "9" * 1_000_000,
        "host 1." + "9" * 1_000_000,
        "kernel k on default 1 reads " + "A," * 100_000,
        "kernel k" + "{1}" * 100_000 + " on default 1",
        "kernel k{" + "1+" * 100_000 + "1} on default 1",
        "kernel k{" + "-" * 190 + "1} on default 1",
        "stream " + "s " * 20_000,
        "stream " + " ".join(f"s{i}" for i in range(20_000)) + "\nsync q",
        "\n" * 1_000_000 + "end",
        "repeat 1\n" * 10_000,
        "expect makespan " + ">= " * 100_000,
        "machine teaching queues=" + "9" * 100_000,
        "machine h200 launch_cost=1e999999999us",
        'machine "' + "x" * 100_000 + '"',
        'machine "\x00"',
        'machine "/"',
        "thread T\nsend m\nend\n" * 1000 + "expect return x 1",
    ],
)
def test_large_and_odd_tapes(text: str):
    reads_or_refuses(text)


@pytest.mark.parametrize(
    "text",
    [
        "machine teaching launch_cost=4000000s\nrepeat 5 as i\nkernel k{i} on default 1\nend",
        "machine teaching copy_overhead=4000000s\nrepeat 3 as i\nh2d h{i} on default 1\nend",
        "machine teaching duplex=1/1000000000000\nstream a b nonblocking\nh2d x on a 10s\nd2h y on b 100000s",
    ],
)
def test_runs_too_long_to_count_are_refused(text: str):
    tape = read(text)
    with pytest.raises(GaplessError, match="cannot count"):
        schedule(tape.program, tape.machine)


def test_a_tape_of_unknown_origin_names_no_file(tmp_path):
    (tmp_path / "m.json").write_text("{}")
    text = 'machine "m.json"\nkernel k on default 1'
    assert read(text, folder=tmp_path).machine.name
    with pytest.raises(TapeError, match="no files of machines are read here") as refused:
        read(text, folder=None)
    assert (refused.value.line, refused.value.column) == (1, 9)


@pytest.mark.parametrize(
    "text",
    [
        "repeat 1000000000 as i\nkernel k{i} on default 1\nend",
        "repeat 11\nquery default\nend",
        "stream s nonblocking\ncapture s\nkernel k on s 1\nend-capture s as G\nrepeat 8\nlaunch G on s\nend",
        "kernel k on default 1 blocks=12 block=1",
    ],
)
def test_a_tape_of_unknown_origin_is_bounded(text):
    with pytest.raises(TapeError, match="more than 10 "):
        read(text, most=10)
