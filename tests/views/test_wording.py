from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.views import wording as w


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.0123, "0.0123"), (0.999, "0.999"), (0.9996, "1.00"), (1, "1.00"), (9.996, "10.0"), (12.34, "12.3"),
        (99.96, "100"), (999.6, "1000"), (12345, "12345"), (-1.5, "-1.50"), (float("inf"), "inf"),
    ],
)  # fmt: skip
def test_figure(value, text):
    assert w.figure(value) == text


@given(st.floats(1e-6, 1e9))
def test_a_figure_is_within_half_a_percent(value):
    assert float(w.figure(value)) == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (0.0005, "500 ns"), (0.9, "900 µs"), (0.9996, "1.00 ms"), (63.31, "63.3 ms"), (999.6, "1.00 s"),
     (123456, "123 s")],
)  # fmt: skip
def test_duration(ms, text):
    assert w.duration(ms) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (4, "4 B"), (999, "999 B"), (1000, "1.00 kB"), (16 << 20, "16.8 MB"), (999_999_999, "1.00 GB"),
     (5 * 10**12, "5.00 TB")],
)  # fmt: skip
def test_size(count, text):
    assert w.size(count) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0, "0%"), (1, "100%"), (1e-9, "<0.1%"), (0.004, "0.4%"), (0.0996, "10%"), (0.5, "50%"), (0.993, "99.3%"),
     (0.9999, "99.9%"), (1.02, "102.0%")],
)  # fmt: skip
def test_percent(fraction, text):
    assert w.percent(fraction) == text


def test_times():
    assert w.times(2.134) == "2.13×"


def test_visible_writes_out_what_a_terminal_would_act_on():
    assert (
        w.visible("a\x1b[31mb\x07\r\n\tc\x9b\u202ed\u200b\ud800é日")
        == r"a\x1b[31mb\x07\r\n\tc\x9b\u202ed\u200b\ud800é日"
    )


@given(st.text(st.characters()))
def test_visible_text_can_be_written_anywhere(text):
    shown = w.visible(text)
    assert shown.isprintable() or not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown)
    shown.encode("utf-8")
    w.in_ascii(shown).encode("ascii")


def test_in_ascii():
    assert w.in_ascii("3×  5 µs – 7 … é") == "3x  5 us - 7 ... \\xe9"


@given(st.text(max_size=30), st.integers(0, 20), st.none() | st.integers(0, 25))
def test_shorten_keeps_both_ends_and_the_limit(text, limit, tail):
    short = w.shorten(text, limit, tail=tail)
    assert len(short) <= limit
    if len(text) <= limit:
        assert short == text
    elif limit:
        head, _, rest = short.partition("…") if "…" not in text else (short[: short.index("…")], "", "")
        assert text.startswith(head)
        assert text.endswith(rest)


def test_shorten_in_the_middle_and_by_words():
    assert w.shorten("abcdefghij", 7) == "abc…hij"
    assert w.shorten("/a/very/long/path/train.py", 12, tail=9) == "/a…/train.py"
    assert w.shorten_words("the kernel void_elementwise_kernel_float ran", 11) == "the kernel void_…float ran"


LOOP = ("/home/me/solver/src/loop.cu", 74)


@pytest.mark.parametrize(
    ("place", "limit", "shown"),
    [
        (("loop.cu", 74, "step → cudaMemcpy"), 40, "loop.cu:74 step → cudaMemcpy"),
        ((*LOOP, "step(float const*, int) → cudaFree"), 60, "/home/me/solver/src/loop.cu:74 step → cudaFree"),
        ((*LOOP, "step(float const*, int)"), 32, "…/me/solver/src/loop.cu:74 step"),
        ((*LOOP, "step(float const*, int)"), 19, "…/loop.cu:74 step"),
        (("/a/to/train.py", 15, "step (autograd) → cudaFree"), 40, "…/train.py:15 step (autograd) → cudaFree"),
        (("/all/to/f.cu", 3, "F::operator()(int) const → cudaFree"), 36, "…/to/f.cu:3 F::operator() → cudaFree"),
        (("", 0, "cudaMemcpy"), 40, "cudaMemcpy"),
        (("", 0, "void kernel<float>(float*, int)"), 20, "void kernel<float>"),
    ],
)
def test_places_keep_file_line_and_call(place, limit, shown):
    assert len(shown) <= limit
    assert w.place(*place, limit) == shown


def test_a_file_looks_alike_at_all_its_places():
    places = [(*LOOP, "step → cudaMemcpy", 50), (*LOOP, "step → cudaLaunchKernel", 44), ("x.cu", 1, "f", 60)]
    files = w.files(places)
    assert files == {LOOP[0]: "…/src/loop.cu", "x.cu": "x.cu"}
    assert [w.place(files[file], line, name, room) for file, line, name, room in places] == [
        "…/src/loop.cu:74 step → cudaMemcpy", "…/src/loop.cu:74 step → cudaLaunchKernel", "x.cu:1 f"
    ]  # fmt: skip


@given(st.text(max_size=60), st.integers(0, 999), st.text(max_size=60), st.integers(0, 80))
def test_places_keep_the_limit(file, line, function, limit):
    assert len(w.place(file, line, function, limit)) <= limit
