"""The page of each cause, and what a cause must offer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gapless.diagnosis.causes
from gapless.diagnosis.causes import CAUSES

HEADINGS = [
    "What it finds",
    "Why engines wait",
    "Evidence needed",
    "What repairs it",
    "When the repair does not pay or is unsafe",
    "What it cannot see",
]
SLUGS = [
    "pageable-copy", "synchronous-copy", "default-stream-barrier", "single-stream", "host-synchronize",
    "allocation-in-loop", "too-few-buffers", "launch-bound", "small-copies", "host-bound", "first-use",
    "hardware-queue", "priority-inversion", "copy-bound", "kernel-bound", "several-processes", "several-devices",
]  # fmt: skip
REPAIRS = {"pin", "off-default-stream", "streams", "chunks", "no-sync", "prefetch", "pool", "graph", "batch-copies",
           "warm-up", "connections", "priority"}  # fmt: skip
FOLDER = Path(gapless.diagnosis.causes.__file__).parent


def test_every_cause_is_there_once():
    assert sorted(CAUSES) == sorted(SLUGS)
    assert sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__") == sorted(
        slug.replace("-", "_") for slug in SLUGS
    )


@pytest.mark.parametrize("slug", SLUGS)
def test_a_page_has_a_line_that_stands_alone_and_the_fixed_headings(slug):
    page = CAUSES[slug].__doc__ or ""
    lines = page.splitlines()
    assert lines[0].endswith(".")
    assert 20 < len(lines[0]) < 100
    assert lines[1] == ""
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == HEADINGS
    sections = re.split(r"^## .*$", page, flags=re.MULTILINE)[1:]
    assert all(len(section.strip()) > 10 for section in sections)


@pytest.mark.parametrize("slug", SLUGS)
def test_repairs_have_the_names_that_apply_takes(slug):
    source = (FOLDER / f"{slug.replace('-', '_')}.py").read_text()
    names = re.findall(r'(?:Repair\(\s*name=f?|repair = )"([a-z-]+)', source)
    assert set(names) <= REPAIRS
    if "verdict=True" in source or slug == "host-bound":
        assert not names
    else:
        assert names
        page = CAUSES[slug].__doc__ or ""
        assert any(f"``{name}" in page.split("## What repairs it")[1].split("## When")[0] for name in names)
