"""One profiler at a time: what becomes of it when another tool is in the program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Content = Callable[[Path], Any]


def test_cupti_held_by_another(fake: Any, content: Content, tmp_path: Path) -> None:
    fake.environment["FAKE_BUSY"] = "1"
    try:
        done = fake.record(tmp_path / "a.gapless", command=[fake.program, "5", "0", "exit"])
    finally:
        del fake.environment["FAKE_BUSY"]
    assert done.returncode == 5  # the program runs as it would alone
    assert "another profiler holds CUPTI" in done.stderr
    assert [note["what"] for note in content(tmp_path / "a.gapless").notes] == ["cupti-busy"]


def test_a_program_ends_where_cupti_never_answers(fake: Any, content: Content, tmp_path: Path) -> None:
    """Another tool's functions may wait for a lock that the ending thread holds: no reason to hold the program."""
    code = """
import ctypes, os
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_init()
cuda.fake_launch()
cuda.fake_time_to_flush()
"""
    fake.environment["FAKE_STUCK"] = "1"
    try:
        done = fake.record(tmp_path / "a.gapless", command=[sys.executable, "-c", code])
    finally:
        del fake.environment["FAKE_STUCK"]
    assert done.returncode == 0
    assert "did not give its last records back" in done.stderr
    assert "without closing" in done.stderr
    found = content(tmp_path / "a.gapless")
    assert [note["what"] for note in found.notes] == ["kind-refused", "stuck"]
    assert len(found.records[10]) == 1


def test_another_tool_that_takes_the_records_is_told_of(fake: Any, content: Content, tmp_path: Path) -> None:
    code = """
import ctypes, os
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_init()
cuda.fake_launch()
if len(os.sys.argv) > 1:
    cuda.fake_take()
cuda.fake_launch()
"""
    for words, notes in (([], ["kind-refused"]), (["take"], ["kind-refused", "records-taken"])):
        path = tmp_path / f"{len(words)}.gapless"
        done = fake.record(path, command=[sys.executable, "-c", code, *words])
        found = content(path)
        assert [note["what"] for note in found.notes] == notes
        assert len(found.records[10]) == 2  # also what it had not got yet
        assert ("Another tool" in done.stderr) is bool(words)


def test_another_tool_frees_the_buffer_that_was_being_filled(fake: Any, content: Content, tmp_path: Path) -> None:
    """CUPTI gives it to whoever has registered functions since, and that tool takes it for its own."""
    code = """
import ctypes, os
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_init()
for _ in range(3):
    cuda.fake_launch()
    cuda.fake_take_and_free()
"""
    path = tmp_path / "a.gapless"
    done = fake.record(path, command=[sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert "records-taken" in [note["what"] for note in content(path).notes]


@pytest.mark.parametrize(
    ("file", "name", "told"),
    [("torch/profiler/profiler.py", "_KinetoProfile", True), ("torch/autograd/profiler.py", "profile", True),
     ("torch/autograd/profiler.py", "emit_nvtx", False), ("my/profiler.py", "profile", False)],
)  # fmt: skip
def test_torch_profiler_in_a_recorded_program_is_told_of(
    fake: Any, content: Content, tmp_path: Path, file: str, name: str, told: bool
) -> None:
    code = """
import ctypes, os, sys
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_init()
text = "class NAME:\\n    def __exit__(self):\\n        cuda.fake_launch()\\nNAME().__exit__()"
exec(compile(text.replace("NAME", sys.argv[2]), sys.argv[1], "exec"), {"cuda": cuda})
"""
    done = fake.record(tmp_path / "a.gapless", command=[sys.executable, "-c", code, f"/lib/{file}", name])
    assert ("torch.profiler" in done.stderr) is told
    assert ("torch-profiler" in [note["what"] for note in content(tmp_path / "a.gapless").notes]) is told
