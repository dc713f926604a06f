from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.timeline.sources.decimals import LIMIT, UNREADABLE, Microseconds, nanoseconds

EXACT = Context(prec=400, rounding=ROUND_HALF_EVEN)


def exactly(text: str) -> int:
    """The ns of a decimal number of µs, by the decimal module."""
    return int(EXACT.to_integral_value(EXACT.multiply(Decimal(text), Decimal(1000))))


def parse(*texts: str) -> list[int]:
    return nanoseconds(",".join(texts).encode()).tolist()


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("1", 1000),
        ("0.001", 1),
        ("5168870772105.144", 5168870772105144),
        ("1714176000123456.789", 1714176000123456789),
        ("1714176000123456", 1714176000123456000),
        ("12.5", 12500),
        ("12.50", 12500),
        ("3.2960", 3296),
        ("0.0005", 0),  # half to even
        ("0.0015", 2),
        ("0.00150000000000001", 2),
        ("0.0014999999999999999", 1),
        ("0.0025", 2),
        ("1.6e15", 1600000000000000000),
        ("1.6E+15", 1600000000000000000),
        ("15e-4", 2),
        ("-3.25", -3250),
        ("-0", 0),
        ('"4203669604595.407"', 4203669604595407),
        ("007", 7000),
    ],
)
def test_a_time_is_read_to_the_nanosecond(text: str, ns: int) -> None:
    assert parse(text) == [ns]


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "true", "inf", "-inf", "nan", "Infinity", "[1]", "{}", "abc", "1.2.3", "1_000", "--1", "1e400",
        "1e999999999", "9" * 16, "9223372036854776", "9999999999999999.999", "9" * 19, "9" * 50, "1" + "0" * 100, '""',
        "0x10", "1 2", "١",
    ],
)  # fmt: skip
def test_what_is_no_time_is_unreadable(text: str) -> None:
    assert parse(text, "1.5") == [UNREADABLE, 1500]


def test_the_limit_is_kept() -> None:
    most = (LIMIT - 1) // 1000
    assert parse(str(most), str(-most), str(most + 2), "4611686018427387.903", "4611686018427387.904") == [
        most * 1000, -most * 1000, UNREADABLE, LIMIT - 1, UNREADABLE,
    ]  # fmt: skip


@given(
    st.lists(
        st.one_of(
            st.decimals(min_value=0, max_value=4 * 10**15, places=3).map(str),
            st.decimals(min_value=-(10**15), max_value=10**15, allow_nan=False).map(str),
            st.integers(-4 * 10**15, 4 * 10**15).map(str),
            st.floats(-1e15, 1e15).map(repr),
            st.tuples(st.integers(0, 10**12), st.text("0123456789", min_size=1, max_size=25)).map(
                lambda t: f"{t[0]}.{t[1]}"
            ),
        ).filter(lambda text: len(text) <= 60),
        min_size=1,
        max_size=40,
    )
)
def test_any_spelling_is_exact(texts: list[str]) -> None:
    assert parse(*texts) == [exactly(text) for text in texts]


def test_a_column_grows_over_many_batches() -> None:
    column = Microseconds()
    values = [f"{number}.{number % 1000:03}" for number in range(1000)]
    for _ in range(150):
        column.add([value.encode() for value in values])
    expected = [number * 1000 + number % 1000 for number in range(1000)] * 150
    assert np.array_equal(column.column(), expected)


def test_a_text_with_a_comma_does_not_shift_the_others() -> None:
    column = Microseconds()
    column.add([b"1.5", b'"2,5"', b"[1,2]", b"", b"3"])
    column.add([b"4"])
    assert column.column().tolist() == [1500, UNREADABLE, UNREADABLE, UNREADABLE, 3000, 4000]


def test_no_text_gives_an_empty_column() -> None:
    assert Microseconds().column().tolist() == []
    column = Microseconds()
    column.add([])
    assert column.column().tolist() == []
