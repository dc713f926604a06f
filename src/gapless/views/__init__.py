"""How Reports and played tapes show themselves: views draw what is there and compute nothing of their own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

__all__ = ["register"]

# What shows itself, and the module that draws it.
_REPORTS = {
    "gapless.diagnosis.report.Report": "gapless.views.terminal",
    "gapless.diagnosis.compare.Comparison": "gapless.views.comparison",
}
_TAPES = {
    "gapless.model.schedule.Schedule": "gapless.views.schedule",
    "gapless.model.simulation.Simulation": "gapless.views.schedule",
    "gapless.model.simulation.Check": "gapless.views.races",
}


def register(*, tapes: bool = False) -> None:
    """Teach Report to show itself: ``print(report)``, rich's ``console.print(report)``, a notebook's cell.

    With *tapes* Schedule, Simulation and Check instead. Done here and not in the classes, because what computes does
    not know who draws it. Loads rich only when something is drawn.
    """
    for shown, view in (_TAPES if tapes else _REPORTS).items():
        module, _, name = shown.rpartition(".")
        for method, does in _methods(view).items():
            setattr(getattr(import_module(module), name), method, does)


def _methods(view: str) -> dict[str, Callable[..., Any]]:
    def to_text(self: Any) -> str:
        return import_module(view).to_text(self, width=shutil.get_terminal_size((100, 24)).columns)

    def rich_console(self: Any, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        return import_module(view).draw(self, console, options)

    def mimebundle(self: Any, **_: Any) -> dict[str, str]:
        return {"text/plain": to_text(self)}

    return {"__str__": to_text, "__rich_console__": rich_console, "_repr_mimebundle_": mimebundle}
