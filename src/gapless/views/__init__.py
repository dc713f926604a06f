"""How Reports and played tapes show themselves: views draw what is there and compute nothing of their own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

__all__ = ["register"]

# What shows itself, the module that draws it as text, and the one that makes its page; empty where there is none.
_SHOWN: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "reports": {
        "gapless.diagnosis.report.Report": ("gapless.views.terminal", "gapless.views.report_page"),
        "gapless.diagnosis.compare.Comparison": ("gapless.views.comparison", ""),
    },
    "tapes": {
        "gapless.model.schedule.Schedule": ("gapless.views.schedule", "gapless.views.lane_page"),
        "gapless.model.simulation.Simulation": ("gapless.views.schedule", "gapless.views.lane_page"),
        "gapless.model.simulation.Check": ("gapless.views.races", ""),
    },
    "recordings": {"gapless.checking.recordings.RecordingCheck": ("gapless.views.recording_check", "")},
    "timelines": {"gapless.timeline.timeline.Timeline": ("gapless.views.timeline", "gapless.views.lane_page")},
    "pipelines": {"gapless.runtime.report.PipelineReport": ("", "gapless.views.lane_page")},
}


def register(what: Literal["reports", "tapes", "recordings", "timelines", "pipelines"] = "reports") -> None:
    """Teach Reports (or tapes, checks of recordings, timelines, reports of pipelines) to show themselves.

    In ``print(report)``, rich's ``console.print(report)`` and a notebook's cell: text, and an interactive page in a
    frame. Done here and not in the classes, because what computes does not know who draws it. Nothing that draws is
    loaded before something is drawn.
    """
    for shown, (text, html) in _SHOWN[what].items():
        module, _, name = shown.rpartition(".")
        for method, does in _methods(text, html).items():
            setattr(getattr(import_module(module), name), method, does)


def _methods(text: str, html: str) -> dict[str, Callable[..., Any]]:
    def to_text(self: Any) -> str:
        return import_module(text).to_text(self, width=shutil.get_terminal_size((100, 24)).columns)

    def rich_console(self: Any, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        return import_module(text).draw(self, console, options)

    def mimebundle(self: Any, **_: Any) -> dict[str, str]:
        framed = import_module(html).frame(self) if html else ""
        return {"text/plain": str(self)} | ({"text/html": framed} if framed else {})

    drawn = {"__str__": to_text, "__rich_console__": rich_console} if text else {}  # else it has a text of its own
    return drawn | {"_repr_mimebundle_": mimebundle}
