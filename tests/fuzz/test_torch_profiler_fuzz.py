"""Damaged traces of torch.profiler end in a consistent Timeline or in one clear sentence, never in a traceback.

``GAPLESS_FUZZ_INPUTS`` says how many inputs to try; ``benchmarks/fuzz.py`` tries real traces too, with limits.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gapless.model.errors import GaplessError
from gapless.timeline.sources import load, torch_profiler

INPUTS = int(os.environ.get("GAPLESS_FUZZ_INPUTS", "200"))


def survives(fuzzing: SimpleNamespace, path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        timeline = load(path)
    except GaplessError as problem:
        said = str(problem)
        assert said.startswith(str(path))
        assert "\n" not in said
        assert len(said) < len(str(path)) + 600
        return
    fuzzing.check(timeline)


@settings(max_examples=INPUTS, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=False), layout=st.sampled_from(["kineto", "one line", "indented"]))
def test_a_damaged_trace(fuzzing: SimpleNamespace, tmp_path: Path, random: Random, layout: str) -> None:
    survives(fuzzing, tmp_path / "trace.json", fuzzing.damaged(fuzzing.trace(layout), random))


@settings(max_examples=INPUTS // 3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=False), block=st.integers(1, 5000))
def test_a_damaged_trace_in_small_blocks(fuzzing: SimpleNamespace, tmp_path: Path, random: Random, block: int) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(fuzzing.damaged(fuzzing.trace(), random))
    with suppress(GaplessError):
        fuzzing.check(torch_profiler.read(path, block=block))


@settings(max_examples=INPUTS // 3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300))
def test_any_bytes(fuzzing: SimpleNamespace, tmp_path: Path, data: bytes) -> None:
    for start in (b"", b"{", b"[", b'{"traceEvents": [', b"\x1f\x8b\x08"):
        survives(fuzzing, tmp_path / "trace.json", start + data)


def test_the_seeds_are_sound(fuzzing: SimpleNamespace, tmp_path: Path) -> None:
    for layout in fuzzing.layouts:
        (tmp_path / "trace.json").write_bytes(fuzzing.trace(layout))
        timeline = load(tmp_path / "trace.json")
        fuzzing.check(timeline)
        assert (len(timeline.ops), len(timeline.calls), timeline.lost) == (20, 28, ())
