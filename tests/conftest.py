"""What all tests share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """Take Ctrl-C even where the shell ignores it for what runs in the background: the tests' programs inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Give the folder of shared material beside the checkout; skip where it is not there."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "groundtruth").is_dir():
        pytest.skip("the shared material is not beside this checkout")
    return folder
