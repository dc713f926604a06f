"""The ``{expressions}`` of a tape: whole numbers, counters of ``repeat`` blocks, and ``+ - * // % ( )``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TypeAlias

from .tape_line import did_you_mean

Counters: TypeAlias = dict[str, int]
Expression: TypeAlias = Callable[[Counters], int]

_LONGEST = 200  # characters
_LARGEST = 2**62
_TOKEN = re.compile(r"\s*(?:\d+|[A-Za-z_]\w*|//|[-+*%()])", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


class BadExpressionError(Exception):
    """An expression that cannot be read or calculated, and what could stand there."""

    def __init__(self, why: str, expected: str = "") -> None:
        super().__init__(why)
        self.expected = expected


def read_expression(text: str) -> Expression:
    """Read a sum of products of numbers, counters and parentheses, as Python would (``//`` rounds down)."""
    if len(text) > _LONGEST:
        raise BadExpressionError(f"an expression is longer than {_LONGEST} characters")
    tokens = _tokens(text)
    value, rest = _sum(tokens, 0, text)
    if rest != len(tokens):
        raise BadExpressionError(f"found {tokens[rest]!r} in {{{text}}}", "+ - * // % or }")
    return value


def _tokens(text: str) -> list[str]:
    tokens, at = list[str](), 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            wrong = text[at:].strip()[0]
            raise BadExpressionError(f"found {wrong!r} in {{{text}}}", "whole numbers, counters and + - * // % ( )")
        tokens.append(found[0].strip())
        at = found.end()
    return tokens


def _sum(tokens: list[str], at: int, text: str) -> tuple[Expression, int]:
    value, at = _product(tokens, at, text)
    while at < len(tokens) and tokens[at] in ("+", "-"):
        other, after = _product(tokens, at + 1, text)
        value, at = _binary(tokens[at], value, other), after
    return value, at


def _product(tokens: list[str], at: int, text: str) -> tuple[Expression, int]:
    value, at = _atom(tokens, at, text)
    while at < len(tokens) and tokens[at] in ("*", "//", "%"):
        other, after = _atom(tokens, at + 1, text)
        value, at = _binary(tokens[at], value, other), after
    return value, at


def _atom(tokens: list[str], at: int, text: str) -> tuple[Expression, int]:
    token = tokens[at] if at < len(tokens) else ""
    if _NUMBER.fullmatch(token):
        number = int(token)
        return lambda counters: number, at + 1
    if token == "-":
        value, after = _atom(tokens, at + 1, text)
        return lambda counters: -value(counters), after
    if token == "(":
        value, after = _sum(tokens, at + 1, text)
        if after >= len(tokens) or tokens[after] != ")":
            raise BadExpressionError(f"a parenthesis in {{{text}}} is not closed", ")")
        return value, after + 1
    if token.isidentifier():
        return lambda counters: _lookup(token, counters), at + 1
    found = f"found {token!r}" if token else "something is missing"
    raise BadExpressionError(f"{found} in {{{text}}}", "a whole number, a counter or (")


def _lookup(name: str, counters: Counters) -> int:
    if name not in counters:
        known = list(counters)
        expected = (
            f"a counter of a repeat around this line ({', '.join(known)})" if known else "repeat ... as NAME around"
        )
        raise BadExpressionError(f"no counter is called {name!r}{did_you_mean(name, known)}", expected)
    return counters[name]


def _binary(sign: str, left: Expression, right: Expression) -> Expression:
    def calculate(counters: Counters) -> int:
        a, b = left(counters), right(counters)
        if sign in ("//", "%") and b == 0:
            raise BadExpressionError(f"{a} {sign} 0 divides by zero")
        result = _OPERATORS[sign](a, b)
        if abs(result) >= _LARGEST:
            raise BadExpressionError(f"{a} {sign} {b} is too large")
        return result

    return calculate


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip
