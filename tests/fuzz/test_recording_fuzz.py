"""Damaged recordings end in a consistent Timeline or in one clear sentence, never in a traceback.

``GAPLESS_FUZZ_INPUTS`` says how many inputs to try; ``benchmarks/fuzz.py --recordings`` tries many, with limits.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

import gapless
from damaged_recordings import damaged
from damaged_recordings import seed as sound
from gapless.model.errors import GaplessError
from gapless.timeline.sources import load

INPUTS = int(os.environ.get("GAPLESS_FUZZ_INPUTS", "200"))


def survives(fuzzing: SimpleNamespace, path: Path, data: bytes) -> bool:
    """Tell whether damaged bytes were read; check what came of them."""
    path.write_bytes(data)
    try:
        timeline = load(path)
    except GaplessError as problem:
        said = str(problem)
    else:
        fuzzing.check(timeline)
        return True
    assert said.startswith(str(path))
    assert "\n" not in said
    assert len(said) < len(str(path)) + 700
    return False


@pytest.mark.parametrize("part", range(4))
def test_a_damaged_recording(fuzzing: SimpleNamespace, tmp_path: Path, part: int) -> None:
    seed = sound()
    read = 0
    for number in range(INPUTS // 4):
        random = Random(f"{part}.{number}")
        read += survives(fuzzing, tmp_path / "run.gapless", damaged(seed, random))
    assert read > INPUTS // 16  # most damage leaves something to use


def test_what_is_read_of_a_damaged_recording_is_explained_and_checked(tmp_path: Path) -> None:
    seed, explained = sound(), 0
    for number in range(INPUTS // 16):
        path = tmp_path / "run.gapless"
        path.write_bytes(damaged(seed, Random(f"explained.{number}")))
        with suppress(GaplessError):
            timeline = load(path)
            assert str(gapless.explain(timeline))
            explained += 1
            assert str(gapless.check(timeline))
    assert explained


def test_any_bytes(fuzzing: SimpleNamespace, tmp_path: Path) -> None:
    random = Random(1)
    for _ in range(INPUTS // 6):
        junk = random.randbytes(random.randint(0, 300))
        for start in (
            b"",
            b"\x93GAPLESS\x01\0\0\0 \0\0\0" + bytes(16),
            b"\x93GAPLESS\x01\0\0\0 \0\0\0" + bytes(16) + b"GBLK",
        ):
            survives(fuzzing, tmp_path / "run.gapless", start + junk)


def test_the_seed_is_sound(fuzzing: SimpleNamespace, tmp_path: Path) -> None:
    assert survives(fuzzing, tmp_path / "run.gapless", sound())
    assert load(tmp_path / "run.gapless").lost == ()
