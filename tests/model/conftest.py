"""What tests of the model share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def every_tape() -> list[Path]:
    """Every tape of the project that can be read: those that say why they are skipped cannot."""
    folders = (ROOT / "tests" / "litmus", ROOT / "tests" / "cases", ROOT / "examples" / "tapes")
    return [path for folder in folders for path in sorted(folder.glob("*.tape"))]
