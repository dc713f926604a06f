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

from playwright.sync_api import Browser, sync_playwright

from conftest import ARGUMENTS, million
from gapless.views.lane_page import to_html

# Zooms in and out again, painting each step; ms of each frame.
FRAMES = """() => {
    const { view } = globalThis.gapless, costs = [];
    for (const factor of [0.8, 1.25])
        for (let i = 0; i < 60; i++) {
            view.zoom(factor, view.t0 + (view.t1 - view.t0) * 0.37, false);
            view.paint();
            costs.push(view.cost);
        }
    return costs;
}"""


def seconds(*arguments: str, runs: int) -> float:
    """Give the shortest time of some runs of the command."""
    best = float("inf")
    for _ in range(runs):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "gapless", *arguments], check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - began)
    return best


def look(browser: Browser, page: Path, name: str, runs: int) -> None:
    """Print how long a page takes until it answers, and what its frames cost."""
    ready, costs = [], []
    for _ in range(runs):
        tab = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached", timeout=120_000)
        # The page notes the moment; waiting here would count the messages between the processes too.
        ready.append(float(tab.get_attribute("html", "data-ready") or "nan"))
        costs.append(tab.evaluate(FRAMES))
        tab.close()
    frames = min(costs, key=statistics.median)
    print(f"{name}: answers after {min(ready):.0f} ms; a frame takes {statistics.median(frames):.1f} ms (median), "
          f"{statistics.quantiles(frames, n=20)[18]:.1f} ms (19 of 20)")  # fmt: skip


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
