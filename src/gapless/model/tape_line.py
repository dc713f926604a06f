"""One line of a tape, read word by word, and the error that says where it cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice, takewhile
from typing import NoReturn

from .errors import GaplessError

_MOST_COMPARED = 5000  # names, in search of one that may have been meant
_MOST_SHOWN = 60  # characters of a word
_LONGEST_REASON = 600  # characters
_END_OF_LINE = "the end of the line"
_WORD = re.compile(r'#.*|"[^"]*"|(?:\{[^{}]*\}|[^\s#"{}])+|\S')
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)


class TapeError(GaplessError):
    """A tape that cannot be read: where, what was found, and what could stand there."""

    def __init__(self, message: str, *, name: str, line: int, column: int, found: str, expected: str) -> None:
        super().__init__(f"{name}:{line}:{column}: {message}")
        self.message = message
        self.name = name
        self.line = line
        self.column = column
        self.found = found
        self.expected = expected


def is_name(word: str) -> bool:
    """Tell whether a word can name something."""
    return _NAME.fullmatch(word) is not None


def alternatives(words: Iterable[str]) -> str:
    """Write a few words as a choice: ``a``, ``a or b``, ``a, b or c``."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Give the hint that ends an error message, or nothing if no known word is close."""
    by_lower = {k.lower(): k for k in islice(known, _MOST_COMPARED)}
    close = get_close_matches(word[:_MOST_SHOWN].lower(), by_lower, 1, 0.7)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""


def shown(word: str) -> str:
    """Quote what stands in the tape, shortened if it is long."""
    return repr(word if len(word) <= _MOST_SHOWN else word[:_MOST_SHOWN] + "...")


def split(written: str) -> list[str]:
    """Cut a line as written into words, without its comment."""
    if "#" in written or '"' in written or "{" in written or "}" in written:
        return [word[0] for word in takewhile(lambda word: word[0][0] != "#", _WORD.finditer(written))]
    return written.split()


class Line:
    """One statement: its words, read from left to right, and the line as written."""

    __slots__ = ("_at", "name", "number", "words", "written")

    def __init__(self, name: str, number: int, words: list[str], written: str) -> None:
        self.name = name
        self.number = number
        self.words = words
        self.written = written
        self._at = 0

    def again(self) -> Line:
        """Give the statement once more, to be read from its begin."""
        return Line(self.name, self.number, self.words.copy(), self.written)

    def column(self, at: int) -> int:
        """Give where word number *at* begins, from 1; of one that is not there, where the line ends."""
        places = [word.start() for word in _WORD.finditer(self.written) if not word[0].startswith("#")]
        return (places[at] if at < len(places) else len(self.written.rstrip())) + 1

    @property
    def at(self) -> int:
        """Number of the word that comes next."""
        return self._at

    def peek(self) -> str:
        """Give the next word without taking it; empty at the end."""
        return self.words[self._at] if self._at < len(self.words) else ""

    def next(self, expected: str) -> str:
        """Take the next word; *expected* says what it should be."""
        if self._at >= len(self.words):
            self.fail(self._at, expected)
        self._at += 1
        return self.words[self._at - 1]

    def take(self, word: str) -> bool:
        """Take the next word if it is this one, and say whether it was."""
        if self._at < len(self.words) and self.words[self._at] == word:
            self._at += 1
            return True
        return False

    def cut(self, at: int) -> None:
        """Drop the words from number *at* on: they have been read."""
        del self.words[at:]

    def finish(self, expected: str = "") -> None:
        """Make sure that no word is left over."""
        if self._at < len(self.words):
            self.fail(self._at, f"{expected} or {_END_OF_LINE}" if expected else _END_OF_LINE)

    def fail(self, at: int, expected: str, why: str = "", known: Iterable[str] = (), offset: int = 0) -> NoReturn:
        """Refuse word number *at*. *why* replaces the plain "found"; *known* are words it may have been meant as."""
        there = at < len(self.words)
        found = self.words[at] if there else _END_OF_LINE
        said = why[:_LONGEST_REASON] or f"found {shown(found) if there else found}"
        message = f"{said}; expected {expected}" if expected else said
        raise TapeError(
            message + (did_you_mean(found, known) if there else ""), name=self.name, line=self.number,
            column=self.column(min(at, len(self.words))) + offset, found=found, expected=expected,
        )  # fmt: skip
