"""What notebooks show: pages in frames that reach nothing, drawn by the same module as the report's page."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gapless
from gapless.views.notebook import MOST, WHOLE, framed

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMELINE = EXAMPLES / "timelines" / "one-stream.json.gz"


def pipeline_report() -> Any:
    with gapless.Pipeline(lambda x: 2 * x + 1, device="host") as pipe:
        pipe(np.ones(1 << 16, np.float32))
        return pipe.report()


SHOWN = {
    "timeline": lambda: gapless.load(TIMELINE),
    "report": lambda: gapless.explain(TIMELINE),
    "simulation": lambda: gapless.simulate(EXAMPLES / "tapes" / "10-event-between-two-streams.tape"),
    "schedule": lambda: gapless.simulate(EXAMPLES / "tapes" / "20-accident-default-stream.tape").schedule,
    "pipeline": pipeline_report,
}


@pytest.mark.parametrize("name", SHOWN)
def test_it_shows_itself_as_text_and_as_a_page(open_page: Any, tmp_path: Path, shots: Path, name: str) -> None:
    shown = SHOWN[name]()
    bundle = shown._repr_mimebundle_(include=None, exclude=None)
    assert bundle["text/plain"] == str(shown)
    assert set(bundle) == {"text/plain", "text/html"}
    path = tmp_path / "cell.html"
    path.write_text(f"<!doctype html><title>cell</title><body>{bundle['text/html']}")
    page = open_page(path, ready="iframe")
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for(state="attached")
    assert frame.locator(".gl-canvas").first.is_visible()
    frame.locator(".gl-stage").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert frame.locator("[aria-live]").first.text_content()
    page.screenshot(path=shots / f"notebook-{name}.png")


def test_the_frame_reaches_nothing(open_page: Any, tmp_path: Path) -> None:
    html = gapless.load(TIMELINE)._repr_mimebundle_()["text/html"]
    assert re.match(r'<iframe sandbox="allow-scripts" ', html)
    inner = re.search(r'srcdoc="([^"]*)"', html)
    assert inner is not None
    assert "default-src 'none'" in unescape(inner[1])


def test_what_is_too_long_for_a_notebook_is_text_alone() -> None:
    assert framed("x" * (MOST + 1), title="long") == ""
    assert f"height: {WHOLE}px" in framed("x", title="", height=10**6)


def test_a_timeline_without_anything_shows_itself() -> None:
    empty = gapless.Timeline()
    assert str(empty).startswith("timeline")
    assert "text/html" in empty._repr_mimebundle_()
