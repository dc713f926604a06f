"""A browser for the pages: the system's Chromium, headless; without one these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapless.model.kinds import CallKind, OpKind
from gapless.timeline.timeline import Calls, Device, Ops, RangeKind, Ranges, Stream, Thread, Timeline

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
# Nothing glides, so that no test has to wait for it.
USUAL = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
SHOTS = Path(__file__).parents[2] / "artefacts" / "screenshots"

Opener = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder: such tests have a run of their own, ``pytest -m browser``."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


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


@pytest.fixture(scope="session")
def a_million() -> Timeline:
    """Give a timeline of a million intervals."""
    return million()


EACH = 4  # streams


def million(count: int = 1_000_000) -> Timeline:
    """Give a timeline of *count* intervals: two fifths operations, as many calls, a fifth operators."""
    draw = np.random.default_rng(7)
    ops = count * 2 // 5
    kind = np.resize([OpKind.H2D, OpKind.KERNEL, OpKind.KERNEL, OpKind.D2H], ops)
    length = draw.integers(800, 9_000, ops) * np.where(draw.random(ops) < 0.001, 60, 1)
    start = np.cumsum(np.roll(length, 1) + draw.integers(100, 3_000, ops))
    call = np.arange(ops)
    ranges = count - 2 * ops
    since = start[:: max(1, ops // ranges)][:ranges]
    return Timeline(
        ops=Ops.build(kind=kind, name=kind, device=np.zeros(ops), stream=np.arange(ops) // 4 % EACH, start=start,
                      end=start + length, bytes=np.where(kind == OpKind.KERNEL, -1, length * 50), call=call),
        calls=Calls.build(kind=np.full(ops, CallKind.LAUNCH), name=np.full(ops, 4), thread=np.zeros(ops),
                          start=start - 3_000, end=start - 3_000 + draw.integers(300, 900, ops)),
        ranges=Ranges.build(kind=np.full(len(since), RangeKind.CPU_OP), name=np.full(len(since), 5),
                            thread=np.zeros(len(since)), start=since - 4_000, end=since - 1_500),
        devices=(Device(id=0, name="a million intervals"),),
        streams=tuple(Stream(device=0, id=number) for number in range(EACH)),
        threads=(Thread(pid=0, tid=0, name="main"),),
        strings=("gemm_kernel<float, 128>", "copy in", "copy out", "unused", "cudaLaunchKernel", "aten::mm"),
        source="million",
    )  # fmt: skip
