"""Running text in lines: what is there to be copied, a command or an option with its value, stays in one piece."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

# A command with all that stands behind it up to the end of the sentence; an option with its value, where it has one.
_COPIED = re.compile(
    r"gapless (?:explain|compare|simulate|check|lab|record|convert|bench)\b(?: \S+)*?"
    r"(?=[.,;:)]*(?: [A-Z]|$)|,? (?:or|and) )"
    r"|pip install (?:-\S+ )*\S+"
    r"|--[a-z][a-z-]* [\w.:=]*\d[\w.:=]*"
)
_PLACES = (re.compile(r"[(,]"), re.compile(r"[=./\\]"))  # behind these a long word may be broken, and still be used


def wrapped(words: Text, room: int) -> Iterator[Text]:
    """Give *words* in lines of at most *room* cells, without the blanks between them."""
    for line in words.split("\n", allow_blank=True):
        for piece in line.divide(_breaks(line.plain, room)):
            piece.rstrip()
            yield piece


def _breaks(text: str, room: int) -> list[int]:
    """Give where the lines of a paragraph begin, without the first."""
    found: list[int] = []
    used = 0
    for start, end in _pieces(text, room):
        width = cell_len(text[start:end].rstrip())
        if used and used + width > room:
            found.append(start)
            used = 0
        used += cell_len(text[start:end])
    return found


def _pieces(text: str, room: int) -> Iterator[tuple[int, int]]:
    """Give from where to where each piece goes that stays whole, with the blanks behind it."""
    kept = [match.span() for match in _COPIED.finditer(text) if cell_len(match[0]) <= room]
    start = 0
    for match in re.finditer(r"\s*\S+\s*", text):
        end = match.end()
        if any(first < end < last for first, last in kept):
            continue  # inside of what is copied
        yield from _parts(text, start, end, room)
        start = end
    if start < len(text):
        yield start, len(text)


def _parts(text: str, start: int, end: int, room: int) -> Iterator[tuple[int, int]]:
    """Give a piece as it is where it fits, else broken where it may be, and only then anywhere."""
    while cell_len(text[start:end].rstrip()) > room:
        fits = start + 1
        while cell_len(text[start : fits + 1]) <= room:
            fits += 1
        ends = ([match.end() for match in places.finditer(text, start, fits)] for places in _PLACES)
        cut = next((found[-1] for found in ends if found), fits)
        yield start, cut
        start = cut
    if start < end:
        yield start, end


__all__ = ["wrapped"]
