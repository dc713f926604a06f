"""A timeline that was dropped on the lab, explained: the same page as ``gapless explain --html`` writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gapless.diagnosis.explain import explain
from gapless.timeline.sources import load
from gapless.views.report_page import to_html


def explain_to_page(file: Path, name: str, page: Path) -> dict[str, Any]:
    """Explain the timeline in a file that was called so, and write its page. Raises ``GaplessError``."""
    report = explain(replace(load(file), source=name))
    page.write_text(to_html(report), encoding="utf-8")
    return {"headline": report.headline}
