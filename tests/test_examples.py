"""The bundled timelines are explained as their README says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gapless.diagnosis.explain import explain
from gapless.timeline.sources import load

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "timelines"
ROW = re.compile(
    r"^\| `(?P<file>[\w-]+\.(?:json|gapless)\.gz)` \|.*\| `(?P<cause>[a-z-]+)` \| (?P<ms>[\d.]+) \|$", re.MULTILINE
)
ROWS = [(m["file"], m["cause"], m["ms"]) for m in ROW.finditer((FOLDER / "README.md").read_text())]


def test_every_timeline_has_its_row() -> None:
    assert {file for file, _, _ in ROWS} == {path.name for path in FOLDER.glob("*.gz")}


@pytest.mark.parametrize(("file", "cause", "ms"), ROWS)
def test_explained_as_the_readme_says(file: str, cause: str, ms: str) -> None:
    report = explain(load(FOLDER / file))
    assert report.findings[0].cause == cause
    assert f"{report.wall_ms:.1f}" == ms
