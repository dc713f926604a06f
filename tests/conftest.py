"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Prepare what this process's workers and the tests' programs inherit.

    Ctrl-C is heard even where the shell ignores it for what runs in the background. Where Python is told to keep no
    compiled modules, they are kept in pytest's cache: else each of some hundred programs compiles what it imports.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's threads would start for nothing
    cache = getattr(config, "cache", None)
    if cache is not None and os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ["PYTHONPYCACHEPREFIX"] = str(cache.mkdir("compiled"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep what was collected from being looked through at each of the collections of garbage to come."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # and collect less often: most of what tests make goes without


@pytest.fixture(scope="session")
def shared() -> Path:
    """Give the folder of shared material beside the checkout; skip where it is not there."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "groundtruth").is_dir():
        pytest.skip("this needs timelines of others, which are not in this repository")
    return folder


@pytest.fixture(scope="session")
def measured() -> Path:
    """Give the folder of timelines recorded on an H200 with the wall times of the same programs untraced."""
    return Path(__file__).resolve().parents[1] / "benchmarks" / "groundtruth"
