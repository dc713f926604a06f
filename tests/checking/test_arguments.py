"""Kernels' signatures: which arguments point to what may not be written."""

from __future__ import annotations

import pytest

from gapless.checking.arguments import parameters, read_only


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("scale(float*, float const*)", {1}), ("scale(const float *, float *)", {0}), ("scale", set()), ("f()", set()),
        ("void k<float, (int)4>(T1 const*, int, std::array<char*, 3ul>)", {0}),
        ("f(float const* __restrict__, float* const)", {0}), ("f(float* const*, int)", set()),
        ("f(float const**)", set()), ("f(void (*)(int const*), float*)", set()), ("f(int const)", set()),
        ("(anonymous namespace)::f(float const*)", {0}), (")", set()), ("f(((", set()), ("a)b(c const*)", {0}),
    ],
)  # fmt: skip
def test_pointers_to_const(name: str, expected: set[int]) -> None:
    assert read_only(name) == expected


def test_parameters_are_told_apart_at_the_outer_level() -> None:
    assert parameters("f(a<b, c>, d (*)(e, f), g)") == ["a<b, c>", "d (*)(e, f)", "g"]
