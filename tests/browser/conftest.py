"""A browser for the pages: the system's Chromium, headless; without one these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
# Nothing glides, so that no test has to wait for it.
USUAL = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
SHOTS = Path(__file__).parents[2] / "artefacts" / "screenshots"

Opener = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Give the browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("there is no Chromium on this machine (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Opener]:
    """Give a function that opens a file or an address; any error in the page, or a way out of it, fails the test."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def opened(where: str | Path, *, ready: str = "html[data-ready]", **options: Any) -> Any:
        context = browser.new_context(**(USUAL | options))
        contexts.append(context)
        address = where.as_uri() if isinstance(where, Path) else where
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        own = address.rsplit("/", 1)[0]
        page.on(
            "request", lambda asked: None if asked.url.startswith((own, "data:", "blob:")) else wrong.append(asked.url)
        )
        page.goto(address)
        page.wait_for_selector(ready, state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="session")
def shots() -> Path:
    """Give the folder for pictures that people look at."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    return SHOTS
