"""Measure the report's page: time to write it, its size, time until it answers, and what a frame costs.

    uv run python benchmarks/page.py TIMELINE [--intervals 1000000]

Needs Chromium and the dependency group ``browser``.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))

from playwright.sync_api import Browser, CDPSession, sync_playwright

from conftest import ARGUMENTS, million
from gapless.views.lane_page import to_html

FRAMES = 60
# Paints some frames, each zoomed by a factor; ms of each.
PAINT = """([factor, frames]) => {
    const { view } = globalThis.gapless, costs = [];
    for (let i = 0; i < frames; i++) {
        view.zoom(factor, view.t0 + (view.t1 - view.t0) * 0.37, false);
        view.paint();
        costs.push(view.cost);
    }
    return costs;
}"""
STRETCHES = {"all of it": 1.0, "on the way in": 0.8, "on the way out": 1.25}


def seconds(*arguments: str, runs: int) -> float:
    """Give the shortest time of some runs of the command."""
    best = float("inf")
    for _ in range(runs):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "gapless", *arguments], check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - began)
    return best


def look(browser: Browser, page: Path, name: str, runs: int) -> None:
    """Print how long a page takes until it answers, and what its frames cost: by the clock, and of a processor."""
    ready: list[float] = []
    loaded: list[float] = []  # ms that the page's thread computed until then
    clock: dict[str, list[float]] = {stretch: [] for stretch in STRETCHES}
    own: dict[str, list[float]] = {stretch: [] for stretch in STRETCHES}
    for _ in range(runs):
        tab = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable")
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached", timeout=120_000)
        # The page notes the moment; waiting here would count the messages between the processes too.
        ready.append(float(tab.get_attribute("html", "data-ready") or "nan"))
        loaded.append(1000 * _thread_time(session))
        for stretch, factor in STRETCHES.items():
            before = _thread_time(session)
            clock[stretch].append(statistics.median(tab.evaluate(PAINT, [factor, FRAMES])))
            own[stretch].append(1000 * (_thread_time(session) - before) / FRAMES)
        tab.close()
    print(f"{name}: answers after {min(ready):.0f} ms, {min(loaded):.0f} ms of a processor")
    for stretch in STRETCHES:
        by_clock, of_processor = min(clock[stretch]), min(own[stretch])
        print(f"  {stretch}: a frame takes {by_clock:.1f} ms (median), {of_processor:.1f} ms of a processor")


def _thread_time(session: CDPSession) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in metrics if one["name"] == "ThreadTime")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the report's page.")
    parser.add_argument("timeline", type=Path)
    parser.add_argument("--intervals", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("There is no Chromium on this machine.")
    with tempfile.TemporaryDirectory() as folder:
        plain = seconds("explain", str(asked.timeline), runs=asked.runs)
        paths = [Path(folder) / f"{number}.html" for number in range(asked.runs)]
        with_page = min(seconds("explain", str(asked.timeline), "--html", str(path), runs=1) for path in paths)
        print(f"explain {plain:.2f} s, with --html {with_page:.2f} s ({with_page / plain:.2f} times), "
              f"{paths[0].stat().st_size / 1e6:.2f} MB")  # fmt: skip
        large = Path(folder) / "million.html"
        large.write_text(to_html(million(asked.intervals)), encoding="utf-8")
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
            look(browser, paths[0], asked.timeline.name, asked.runs)
            look(browser, large, f"{asked.intervals:,} intervals", asked.runs)
            browser.close()


if __name__ == "__main__":
    main()
