"""What the lab starts from: the points of the lesson and their programs, as ``presets.toml`` has them.

A preset is a chunk loop (``model/chunk_loop.py``), one of the example tapes, or several other presets side by side.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from gapless.model.chunk_loop import ChunkLoop

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One program to start from: a ``loop``, or the text of a ``tape``, or others ``beside`` each other (slugs)."""

    slug: str
    title: str
    why: str
    loop: ChunkLoop | None = None
    tape: str = ""
    beside: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Give the preset as the page gets it."""
        told: dict[str, Any] = {"slug": self.slug, "title": self.title, "why": self.why}
        if self.loop is not None:
            return told | {"loop": knobs(self.loop)}
        return told | ({"beside": list(self.beside)} if self.beside else {"tape": self.tape})


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of the lesson, and what makes it playable."""

    title: str
    presets: tuple[Preset, ...]


@cache
def lesson() -> tuple[Point, ...]:
    """Give all points with their presets, in the order of the lesson."""
    told = tomllib.loads((_HERE / "presets.toml").read_text(encoding="utf-8"))
    return tuple(
        Point(title=point["title"], presets=tuple(_preset(**values) for values in point["presets"]))
        for point in told["points"]
    )


def preset(slug: str) -> Preset:
    """Give a preset by its slug."""
    return next(one for point in lesson() for one in point.presets if one.slug == slug)


def knobs(loop: ChunkLoop) -> dict[str, Any]:
    """Give what a loop differs in from the loop of no options."""
    plain = ChunkLoop()
    values = {field.name: getattr(loop, field.name) for field in fields(loop)}
    return {name: value for name, value in values.items() if value != getattr(plain, name)}


def _preset(
    *, slug: str, title: str, why: str, loop: dict[str, Any] | None = None, tape: str = "", beside: tuple[str, ...] = ()
) -> Preset:
    return Preset(
        slug=slug,
        title=title,
        why=why,
        loop=None if loop is None else ChunkLoop(**loop),
        tape=_example(tape) if tape else "",
        beside=tuple(beside),
    )


def _example(number: str) -> str:
    """Give the text of an example tape by the number that its name begins with.

    The tapes lie beside this file where the package is installed, else in the working tree.
    """
    installed = _HERE / "tapes"
    folder = installed if installed.is_dir() else Path(__file__).parents[3] / "examples" / "tapes"
    (path,) = folder.glob(f"{number}-*.tape")
    return path.read_text(encoding="utf-8")
