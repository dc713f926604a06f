"""The text under a tape: lines cut into words with their places, ``repeat`` unrolled, ``{expressions}`` replaced.

What the words mean is not known here; ``tape.py`` knows it. Every error says file, line, column, what was found and
what could stand there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .tape_expression import BadExpressionError, Counters, Expression, read_expression
from .tape_line import Line

MOST_LINES = 4_000_000  # of an unrolled tape: a larger program is built in Python, not read from text
_DEEPEST = 50  # blocks in blocks

_WORD = re.compile(r'#.*|"[^"]*"|(?:\{[^{}]*\}|[^\s#"{}])+|\S')
_COUNT = re.compile(r"\d{1,18}", re.ASCII)


def unroll(text: str, name: str, most: int = MOST_LINES) -> Iterator[Line]:
    """Give the statements of a tape in order, ``repeat`` blocks unrolled and expressions replaced.

    A ``thread`` or ``batch`` line and the ``end`` that closes it are given as they stand; ``repeat`` and its ``end``
    are not. Raises ``TapeError`` for blocks that do not match, bad expressions, and more than *most* lines.
    """
    body = _blocks(_templates(text, name))
    _Size(most).of(body, {})
    return _run(body, {})


# ------------------------------------------------------------------------------------------------ lines and blocks


@dataclass(frozen=True, slots=True)
class _Template:
    """A line as written. ``parts`` holds, for each word with braces, its number and the pieces to put together."""

    line: Line
    parts: tuple[tuple[int, tuple[str | Expression, ...]], ...]

    def fill(self, names: Counters) -> Line:
        line = self.line
        words = line.words.copy()
        for at, pieces in self.parts:
            try:
                words[at] = "".join([piece if isinstance(piece, str) else str(piece(names)) for piece in pieces])
            except BadExpressionError as error:
                line.fail(at, error.expected, str(error))
        return Line(line.name, line.number, words, line.columns)


@dataclass(frozen=True, slots=True)
class _Block:
    """``repeat``, ``thread`` or ``batch`` with the lines between it and its ``end``."""

    head: _Template
    body: list[_Template | _Block]
    end: _Template


def _templates(text: str, name: str) -> Iterator[_Template]:
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        words: list[str] = []
        columns: list[int] = []
        for found in _WORD.finditer(raw):
            if found[0].startswith("#"):
                break
            words.append(found[0])
            columns.append(found.start() + 1)
        if words:
            line = Line(name, number, words, [*columns, len(raw.rstrip()) + 1])
            yield _Template(line, tuple(_pieces(line, at) for at, word in enumerate(words) if _is_special(word)))


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


def _blocks(templates: Iterator[_Template]) -> list[_Template | _Block]:
    body: list[_Template | _Block] = []
    opened: list[tuple[_Template, list[_Template | _Block]]] = []
    for template in templates:
        line, word = template.line, template.line.words[0]
        if word in ("repeat", "thread", "batch"):
            if len(opened) == _DEEPEST:
                line.fail(0, "", f"more than {_DEEPEST} blocks stand in each other")
            opened.append((template, body))
            body = []
        elif word == "end":
            if not opened:
                line.fail(0, "a statement", "found 'end', but no block is open")
            line.next("end")
            line.finish()
            head, outer = opened.pop()
            outer.append(_Block(head, body, template))
            body = outer
        else:
            body.append(template)
    if opened:
        line = opened[-1][0].line
        line.fail(0, "end", f"the block {' '.join(line.words)!r} is never closed")
    return body


def _run(body: list[_Template | _Block], names: Counters) -> Iterator[Line]:
    for part in body:
        if isinstance(part, _Template):
            yield part.fill(names)
        elif part.head.line.words[0] == "repeat":
            count, name = _repeat(part.head.fill(names))
            for i in range(count):
                yield from _run(part.body, names | {name: i} if name else names)
        else:
            yield part.head.fill(names)
            yield from _run(part.body, names)
            yield part.end.fill(names)


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

    def of(self, body: list[_Template | _Block], names: Counters) -> int:
        total = 0
        for part in body:
            if isinstance(part, _Template):
                total += 1
            elif part.head.line.words[0] == "repeat":
                total += self._of_repeat(part, names)
            else:
                total += 2 + self.of(part.body, names)
            self._steps += 1
            if total > self._most or self._steps > self._most:
                line = part.line if isinstance(part, _Template) else part.head.line
                instead = "; build it in Python instead" if self._most == MOST_LINES else ""
                line.fail(0, "", f"unrolled, the tape has more than {self._most:,} lines{instead}")
        return total

    def _of_repeat(self, block: _Block, names: Counters) -> int:
        count, name = _repeat(block.head.fill(names))
        if count > self._most:  # an empty body repeated so often takes its time as well
            return count
        if count == 0 or not _has_counted_repeat(block.body):
            return count * max(1, self.of(block.body, names | {name: 0})) if count else 0
        return sum(self.of(block.body, names | {name: i}) for i in range(count))


def _has_counted_repeat(body: list[_Template | _Block]) -> bool:
    """Tell whether a ``repeat`` inside takes its count from an expression."""
    blocks = [part for part in body if isinstance(part, _Block)]
    return any((b.head.line.words[0] == "repeat" and b.head.parts) or _has_counted_repeat(b.body) for b in blocks)
