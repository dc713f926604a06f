"""Small recordings, built record by record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import recordings
import written as writer
from gapless.timeline.sources import recording
from gapless.timeline.timeline import Timeline


@pytest.fixture(scope="session")
def written() -> ModuleType:
    """Give the module that writes recordings."""
    return writer


@pytest.fixture
def made(tmp_path: Path) -> SimpleNamespace:
    """Give functions that make recordings and read them."""

    def read(recorded: Any) -> Timeline:
        return recording.read(recorded.save(tmp_path / "run.gapless"))

    names = (
        "call",
        "kernel",
        "copy",
        "recorded",
        "sync",
        "memory",
        "marker",
        "stream",
        "contents",
        "begun",
        "pipeline",
    )
    functions: dict[str, Callable[..., Any]] = {name: getattr(recordings, name) for name in names}
    functions |= {"read": read, "bare": writer.Recording, "layout": writer.layout}
    known = {name: getattr(recordings, name) for name in ("B", "H2D", "D2H", "D2D", "NOWHERE")}
    return SimpleNamespace(**functions, **known, device=recordings.DEVICE, context=recordings.CONTEXT)
