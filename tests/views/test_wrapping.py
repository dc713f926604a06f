"""Running text in lines: what is to be copied stays whole, and no line is too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from gapless.views.wrapping import wrapped


def lines(words: str, room: int) -> list[str]:
    return [line.plain for line in wrapped(Text(words), room)]


@pytest.mark.parametrize(
    ("words", "room", "expected"),
    [
        ("", 10, [""]),
        ("one two three", 7, ["one two", "three"]),
        ("Look at it: gapless check a.tape --replay t1", 36, ["Look at it:", "gapless check a.tape --replay t1"]),
        ("Record with gapless record --addresses. Then", 30, ["Record with", "gapless record --addresses.", "Then"]),
        ("Look at the rest with --from 118.929ms. Or not", 30, ["Look at the rest with", "--from 118.929ms. Or not"]),
        ("Write: pip install 'gapless[lab]'", 28, ["Write:", "pip install 'gapless[lab]'"]),
        # What fits nowhere is broken where a shell or Python still reads it, else anywhere.
        ("gapless explain a.json --cause x", 20, ["gapless explain", "a.json --cause x"]),
        ("x profile(config=torch.Config(a=True)).", 24, ["x profile(", "config=torch.Config(", "a=True))."]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
    ],
)
def test_where_lines_end(words, room, expected):
    assert lines(words, room) == expected


@given(st.text(st.sampled_from("ab -.,(=/世\n"), max_size=80), st.integers(2, 20))
def test_nothing_is_lost_and_no_line_is_too_long(words, room):
    found = lines(words, room)
    assert all(cell_len(line) <= room for line in found)
    assert "".join("".join(found).split()) == "".join(words.split())


def test_the_option_that_gives_event_waits_can_be_copied():
    option = "torch.profiler.profile(..., experimental_config=torch._C._profiler._ExperimentalConfig(enable_all=True))"
    assert lines(f"Record with {option}.", 70) == [
        "Record with torch.profiler.profile(...,",
        "experimental_config=torch._C._profiler._ExperimentalConfig(",
        "enable_all=True)).",
    ]


def test_styles_stay_where_they_were():
    words = Text("red blue")
    words.stylize("red", 0, 3)
    first, second = wrapped(words, 5)
    assert [(span.start, span.end, span.style) for span in first.spans] == [(0, 3, "red")]
    assert second.spans == []
