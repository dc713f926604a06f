"""How Timelines and Reports show themselves: views draw what is there and compute nothing of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gapless.diagnosis.report import Report

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

__all__ = ["register"]


def register() -> None:
    """Teach Report to show itself: ``print(report)``, rich's ``console.print(report)``, a notebook's cell.

    Done here and not in the class, because what computes a report does not know who draws it. Loads rich only when
    something is drawn.
    """
    for name, method in _METHODS.items():
        setattr(Report, name, method)


def _to_text(report: Report) -> str:
    from gapless.views.terminal import to_text

    return to_text(report, width=shutil.get_terminal_size((100, 24)).columns)


def _rich_console(report: Report, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
    from gapless.views.terminal import draw

    return draw(report, console, options)


def _mimebundle(report: Report, **_: Any) -> dict[str, str]:
    return {"text/plain": _to_text(report)}


_METHODS = {"__str__": _to_text, "__rich_console__": _rich_console, "_repr_mimebundle_": _mimebundle}
