"""Figures and foreign text as people read them: three digits and a unit, no control characters, no endless names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

# What a terminal would act on or hide instead of show: control characters, line and paragraph separators, marks that
# turn the reading direction or take no space, and halves of surrogate pairs, which no encoding can write.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")

_IN_ASCII = str.maketrans(
    {
        "×": "x", "µ": "u", "μ": "u", "…": "...", "–": "-", "—": "-", "−": "-", "·": "-", "→": "->", "≥": ">=",
        "≤": "<=", "≈": "~", "‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " ", "◆": "*", "•": "-",
    }
)  # fmt: skip


def visible(text: str) -> str:
    """Give foreign text with every character that does not show as itself written out as its escape."""
    return _UNSEEN.sub(lambda match: _escaped(match[0]), text)


def _escaped(character: str) -> str:
    code = ord(character)
    return {9: "\\t", 10: "\\n", 13: "\\r"}.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def in_ascii(text: str) -> str:
    """Give text in ASCII alone, for outputs that know no other characters."""
    return text.translate(_IN_ASCII).encode("ascii", "backslashreplace").decode("ascii")


def shorten(text: str, limit: int, *, tail: int | None = None) -> str:
    """Give at most *limit* characters of a text, with the middle left out; *tail* characters are kept of its end.

    The end of a kernel's name tells its types and the end of a path the file, so half is kept of either end where
    nothing else is said.
    """
    if len(text) <= limit:
        return text
    if limit < 2:
        return "…"[:limit]
    tail = min((limit - 1) // 2 if tail is None else tail, limit - 1)
    return text[: limit - 1 - tail] + "…" + (text[-tail:] if tail else "")


def place(file: str, line: int, function: str, limit: int) -> str:
    """Give a place in a program in at most *limit* characters: first arguments go, then the path's folders, then more.

    ``/home/me/solver/src/loop.cu:74 step(float const*, int) → cudaMemcpy`` becomes
    ``…/src/loop.cu:74 step → cudaMemcpy``.
    """
    at, function = _fitted(file, line, function, limit)
    return shorten(f"{at} {function}".strip(), limit)


def files(places: Iterable[tuple[str, int, str, int]]) -> dict[str, str]:
    """Give for each file the shortest form in which ``place`` would show it, so that it can look alike everywhere."""
    shown: dict[str, str] = {}
    for file, line, function, limit in places:
        form = _fitted(file, line, function, limit)[0].removesuffix(f":{line}")
        shown[file] = min(shown.get(file, file), form, key=len)
    return shown


def _fitted(file: str, line: int, function: str, limit: int) -> tuple[str, str]:
    """Give file and line, and the function, with as little left out as fits."""
    at = f"{file}:{line}" if line else file
    if len(f"{at} {function}".strip()) <= limit:
        return at, function
    from gapless.timeline.frames import without_arguments  # only where it is needed: not every verb loads timelines

    name, arrow, call = function.partition(" → ")
    function = without_arguments(name) + arrow + call
    room = max(limit - len(function) - 1, 0)
    if len(at) > room and line:
        folders = at.split("/")
        while len(folders) > 1 and len("…/" + "/".join(folders)) > room:
            del folders[0]
        at = "…/" + "/".join(folders)
    return at, function


def shorten_words(text: str, limit: int) -> str:
    """Give a text in which no word is longer than *limit*."""
    return re.sub(rf"\S{{{limit + 1},}}", lambda match: shorten(match[0], limit), text)


def figure(value: float) -> str:
    """Give a number with three digits: 0.123, 1.23, 12.3, 123, 1234."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return f"{value:.{digits - 1}f}" if digits and len(text.lstrip("-").replace(".", "").lstrip("0")) > 3 else text


def duration(ms: float) -> str:
    """Give a time in the unit that suits it."""
    size = abs(ms)
    if size >= 999.5:
        return f"{figure(ms / 1e3)} s"
    if size >= 0.9995 or size == 0:
        return f"{figure(ms)} ms"
    return f"{figure(ms * 1e3)} µs" if size >= 0.9995e-3 else f"{figure(ms * 1e6)} ns"


def size(count: float) -> str:
    """Give a number of bytes in decimal units, as rates are."""
    for power, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= 0.9995 * power:
            return f"{figure(count / power)} {unit}"
    return f"{count:.0f} B"


def plural(count: int, word: str) -> str:
    """Give "1 run", "2 runs"."""
    return f"{count:,} {word}{'s' * (count != 1)}"


def percent(fraction: float) -> str:
    """Give a fraction in percent; a whole or nothing is said only where it is exactly that."""
    value = fraction * 100
    if value == 0 or value == 100:
        return f"{value:.0f}%"
    if 0 < value < 0.1:
        return "<0.1%"
    if 9.95 <= value <= 99:
        return f"{value:.0f}%"
    return f"{min(value, 99.9) if value < 100 else value:.1f}%"


def times(ratio: float) -> str:
    """Give a speed-up."""
    return f"{figure(ratio)}×"
