"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Give the folder of shared material beside the checkout; skip where it is not there."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "groundtruth").is_dir():
        pytest.skip("the shared material is not beside this checkout")
    return folder
