"""gapless keeps a GPU's engines busy: see a timeline, explain the waits, predict the repairs.

The public names live here and nowhere else; each is loaded when first used, so that ``import gapless`` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike

    from gapless.diagnosis.report import Report
    from gapless.model.errors import GaplessError
    from gapless.timeline.sources import load
    from gapless.timeline.timeline import Timeline

__version__ = "0.1.0"

__all__ = ["GaplessError", "Report", "Timeline", "__version__", "explain", "load"]

# Where each name lives that is not written below.
_HOMES = {
    "GaplessError": "gapless.model.errors",
    "Report": "gapless.diagnosis.report",
    "Timeline": "gapless.timeline.timeline",
    "load": "gapless.timeline.sources",
}


def explain(
    source: str | PathLike[str] | Timeline,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    steps: tuple[int, int] | None = None,
    device: int | None = None,
) -> Report:
    """Explain what each engine of a device waited for, from a timeline or the file that holds one.

    *start_ns* and *end_ns* (on the timeline's clock) or *steps* ``(a, b)`` (the steps a to b - 1 that the program
    marks) choose a part of the run; *device* is the GPU's number, by default the one that worked most. The report
    prints itself, also in a notebook, and gives its facts as ``report.to_dict()``. Raises GaplessError where the file
    is no timeline or the part asked for is not in it.
    """
    from gapless.diagnosis.explain import explain as explain_timeline
    from gapless.timeline.sources import load
    from gapless.timeline.timeline import Timeline

    _show_reports()
    timeline = source if isinstance(source, Timeline) else load(source)
    return explain_timeline(timeline, start_ns=start_ns, end_ns=end_ns, steps=steps, device=device)


def _show_reports() -> None:
    """Teach reports to print themselves: what computes one does not know who draws it."""
    from gapless.views import register

    register()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gapless' has no attribute {name!r}")
    if name == "Report":
        _show_reports()
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
