"""Pages that hold everything they need: text that is never markup, data that ends no script, and no way out.

A page may run the scripts that it came with, named by their hashes, and load nothing from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from gapless.timeline.sinks.files import MARK
from gapless.views import wording

LANES = (
    "words.js", "scene.js", "looks.js", "arrows.js", "paint.js", "map.js", "furniture.js", "hands.js", "lanes.js",
)  # what lanes.js needs, in order  # fmt: skip

_EMPTY = frozenset({"input"})  # elements without an end tag


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | bool | None) -> Markup:
    """Give an element. Children that are no Markup are text; attributes lose a trailing ``_``, ``_`` becomes ``-``.

    Control characters and what turns the reading direction are written out, as in a terminal.
    """
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(wording.visible(str(value)))}"')
        for key, value in attributes.items()
        if value not in (None, False)
    )
    return Markup(f"<{name}{given}>{''.join(map(text, children))}" + ("" if name in _EMPTY else f"</{name}>"))


def text(words: str) -> Markup:
    """Give words as text of a page."""
    return words if isinstance(words, Markup) else Markup(escape(wording.visible(words), quote=False))


def data(name: str, value: Any) -> Markup:
    """Give a script element that holds JSON and is not run: no character in it can end the element."""
    dumped = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        dumped = dumped.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{escape(name)}">{dumped}</script>')


@cache
def web(name: str) -> str:
    """Give a file of the folder ``web``."""
    return (files("gapless.views") / "web" / name).read_text(encoding="utf-8")


@cache
def bundle(*names: str) -> str:
    """Give modules of the folder ``web`` as one, in an order in which each comes after what it needs when it loads."""
    parts = [
        re.sub(r"^(import [^;]*;\n|export \{[^;]*;\n|export )", "", web(name), flags=re.MULTILINE) for name in names
    ]
    return "\n".join(parts)


def page(title: str, *body: str, styles: Sequence[str], script: str) -> str:
    """Give a page of its own. *styles* (of the folder ``web``) and *script* are ours, the rest may be from anywhere."""
    style = "\n".join(map(web, styles))
    allowed = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    head = tag(
        "head",
        Markup(f'<meta charset="utf-8"><meta name="generator" content="{MARK}">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'),
        tag("title", title),
        Markup(f"<style>{style}</style>"),
    )
    run = Markup(f'<script type="module">{script}</script>')
    return f'<!doctype html>\n<html lang="en">\n{head}\n{tag("body", *body, run)}\n</html>\n'


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
