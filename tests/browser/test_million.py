"""A million intervals: a frame takes less than an eye sees, at every zoom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapless.timeline.timeline import Timeline
from gapless.views.lane_page import to_html

# ms of a processor that a frame may take here; benchmarks/page.py measures what it does take.
MOST_MS = 50
FRAMES = 40
PAINT = """([factor, frames]) => {
    const { view } = globalThis.gapless;
    for (let i = 0; i < frames; i++) {
        view.zoom(factor, view.t0 + (view.t1 - view.t0) * 0.37, false);
        view.paint();
    }
}"""


def test_a_million_are_drawn_in_time(open_page: Any, a_million: Timeline, tmp_path: Path, shots: Path) -> None:
    path = tmp_path / "million.html"
    path.write_text(to_html(a_million))
    page = open_page(path)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def cost(factor: float) -> float:
        """Give the ms of each of some frames, each zoomed by a factor."""
        before = spent()
        page.evaluate(PAINT, [factor, FRAMES])
        return 1000 * (spent() - before) / FRAMES

    def spent() -> float:
        """Give the s that the page's thread has computed: what other programs take meanwhile is no part of it."""
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "ThreadTime")

    assert page.evaluate("gapless.view.scene.items.start.length") >= 999_000
    page.screenshot(path=shots / "million.png")
    costs = {"all of it": cost(1), "on the way in": cost(0.75)}
    assert page.evaluate("gapless.view.t1 - gapless.view.t0") < 1e6
    page.screenshot(path=shots / "million-near.png")
    costs["on the way out"] = cost(1 / 0.75)
    assert min(costs.values()) > 0
    assert max(costs.values()) < MOST_MS, costs
