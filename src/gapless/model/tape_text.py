"""The text under a tape: lines cut into words with their places, ``repeat`` unrolled, ``{expressions}`` replaced.

What the words mean is not known here; ``tape.py`` knows it. Every error says file, line, column, what was found and
what could stand there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .tape_expression import BadExpressionError, Counters, Expression, read_expression
from .tape_line import Line, split

MOST_LINES = 4_000_000  # of an unrolled tape: a larger program is built in Python, not read from text
_DEEPEST = 50  # blocks in blocks

_COUNT = re.compile(r"\d{1,18}", re.ASCII)


def unroll(text: str, name: str, most: int = MOST_LINES) -> Iterator[Line]:
    """Give the statements of a tape in order, ``repeat`` blocks unrolled and expressions replaced.

    A ``thread`` or ``batch`` line and the ``end`` that closes it are given as they stand; ``repeat`` and its ``end``
    are not. Raises ``TapeError`` for blocks that do not match, bad expressions, and more than *most* lines.
    """
    body = _blocks(_lines(text, name))
    _Size(most).of(body, {})
    return _run(body, {})


# ------------------------------------------------------------------------------------------------ lines and blocks


@dataclass(frozen=True, slots=True)
class _Template:
    """A line with braces. ``parts`` holds, for each word that has some, its number and the pieces to put together."""

    line: Line
    parts: tuple[tuple[int, tuple[str | Expression, ...]], ...]

    def fill(self, names: Counters) -> Line:
        line = self.line.again()
        for at, pieces in self.parts:
            try:
                line.words[at] = "".join([piece if isinstance(piece, str) else str(piece(names)) for piece in pieces])
            except BadExpressionError as error:
                self.line.fail(at, error.expected, str(error))
        return line


@dataclass(frozen=True, slots=True)
class _Block:
    """``repeat``, ``thread`` or ``batch`` with the lines between it and its ``end``."""

    head: Line | _Template
    body: list[Line | _Template | _Block]
    end: Line

    @property
    def repeats(self) -> bool:
        """Tell whether it stands for its lines so many times."""
        return _line(self.head).words[0] == "repeat"


def _line(part: Line | _Template) -> Line:
    return part if isinstance(part, Line) else part.line


def _filled(part: Line | _Template, names: Counters) -> Line:
    return part.again() if isinstance(part, Line) else part.fill(names)


def _lines(text: str, name: str) -> Iterator[Line | _Template]:
    for number, written in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        words = split(written)
        if words:
            line = Line(name, number, words, written)
            if "{" in written or "}" in written or '"' in written:
                parts = tuple(_pieces(line, at) for at, word in enumerate(words) if _is_special(word))
                yield _Template(line, parts) if parts else line
            else:
                yield line


def _is_special(word: str) -> bool:
    return "{" in word or word in ("}", '"')


def _pieces(line: Line, at: int) -> tuple[int, tuple[str | Expression, ...]]:
    word = line.words[at]
    if len(word) == 1:
        wanted = 'a file name in " "' if word == '"' else "an expression in { }"
        line.fail(at, wanted, f"this {word} has no partner")
    pieces: list[str | Expression] = []
    for text in re.split(r"(\{[^{}]*\})", word):
        try:
            pieces.append(read_expression(text[1:-1]) if text.startswith("{") else text)
        except BadExpressionError as error:
            line.fail(at, error.expected, str(error))
    return at, tuple(pieces)


def _blocks(lines: Iterator[Line | _Template]) -> list[Line | _Template | _Block]:
    body: list[Line | _Template | _Block] = []
    opened: list[tuple[Line | _Template, list[Line | _Template | _Block]]] = []
    for part in lines:
        line = _line(part)
        word = line.words[0]
        if word in ("repeat", "thread", "batch"):
            if len(opened) == _DEEPEST:
                line.fail(0, "", f"more than {_DEEPEST} blocks stand in each other")
            opened.append((part, body))
            body = []
        elif word == "end":
            if not opened:
                line.fail(0, "a statement", "found 'end', but no block is open")
            line.next("end")
            line.finish()
            head, outer = opened.pop()
            outer.append(_Block(head, body, line))
            body = outer
        else:
            body.append(part)
    if opened:
        line = _line(opened[-1][0])
        line.fail(0, "end", f"the block {' '.join(line.words)!r} is never closed")
    return body


def _run(body: list[Line | _Template | _Block], names: Counters, *, once: bool = True) -> Iterator[Line]:
    """Give the lines of a body; *once*: it is the only time, so that they need not be kept as they are."""
    for part in body:
        if isinstance(part, Line) and once:
            yield part
        elif not isinstance(part, _Block):
            yield _filled(part, names)
        elif part.repeats:
            count, name = _repeat(_filled(part.head, names))
            for i in range(count):
                yield from _run(part.body, names | {name: i} if name else names, once=False)
        else:
            yield _filled(part.head, names)
            yield from _run(part.body, names, once=once)
            yield part.end.again()


def _repeat(line: Line) -> tuple[int, str]:
    """Read ``repeat N [as i]``: how often, and the name of the counter (empty if it has none)."""
    line.next("repeat")
    word = line.next("how often")
    if _COUNT.fullmatch(word) is None:
        line.fail(1, "a whole number, how often to repeat")
    name = ""
    if line.take("as"):
        name = line.next("a name for the counter")
        if not name.isidentifier() or not name.isascii():
            line.fail(3, "a name for the counter (letters, digits and _)")
    line.finish("" if name else "as NAME")
    return int(word), name


class _Size:
    """Counts the lines of an unrolled tape before any is unrolled, so that a huge one is refused at once."""

    def __init__(self, most: int) -> None:
        self._steps, self._most = 0, most

    def of(self, body: list[Line | _Template | _Block], names: Counters) -> int:
        total = 0
        for part in body:
            if not isinstance(part, _Block):
                total += 1
            elif part.repeats:
                total += self._of_repeat(part, names)
            else:
                total += 2 + self.of(part.body, names)
            self._steps += 1
            if total > self._most or self._steps > self._most:
                line = _line(part.head if isinstance(part, _Block) else part)
                instead = "; build it in Python instead" if self._most == MOST_LINES else ""
                line.fail(0, "", f"unrolled, the tape has more than {self._most:,} lines{instead}")
        return total

    def _of_repeat(self, block: _Block, names: Counters) -> int:
        count, name = _repeat(_filled(block.head, names))
        if count > self._most:  # an empty body repeated so often takes its time as well
            return count
        if count == 0 or not _has_counted_repeat(block.body):
            return count * max(1, self.of(block.body, names | {name: 0})) if count else 0
        return sum(self.of(block.body, names | {name: i}) for i in range(count))


def _has_counted_repeat(body: list[Line | _Template | _Block]) -> bool:
    """Tell whether a ``repeat`` inside takes its count from an expression."""
    blocks = [part for part in body if isinstance(part, _Block)]
    return any((b.repeats and isinstance(b.head, _Template)) or _has_counted_repeat(b.body) for b in blocks)
