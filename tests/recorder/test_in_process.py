"""``with gapless.record()``: recordings of a part of a running program, one after the other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.recorder.library import missing_driver
from gapless.recorder.recording import Recording

SCRIPT = """
import ctypes, os, sys
import gapless
cuda = ctypes.CDLL(os.environ["FAKE"])
folder = sys.argv[1]
cuda.fake_launch()
for name in ("first", "second"):
    with gapless.record(f"{folder}/{name}.gapless") as recording:
        for _ in range(5):
            cuda.fake_launch()  # recorded
        if name == "first":
            try:
                with gapless.record():
                    pass
            except gapless.GaplessError as problem:
                print("nested:", problem)
            try:
                recording.explain()
            except gapless.GaplessError as problem:
                print("early:", problem)
    cuda.fake_launch()
try:
    with gapless.record(f"{folder}/first.gapless"):
        pass
except gapless.GaplessError as problem:
    print("taken:", problem)
try:
    with recording:
        pass
except gapless.GaplessError as problem:
    print("again:", problem)
with gapless.record() as recording:
    cuda.fake_launch()
path = recording.path
print("temporary:", path.exists())
del recording
print("gone:", not path.exists())
os.environ["FAKE_BUSY"] = "1"
try:
    with gapless.record() as recording:
        pass
except gapless.GaplessError as problem:
    print("busy:", problem)
"""


@pytest.fixture(scope="module")
def said(fake: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("in_process")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], env=fake.environment, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, dict(line.split(": ", 1) for line in done.stdout.splitlines())


def test_two_recordings_one_after_the_other(said: tuple[Path, dict[str, str]], content: Callable[[Path], Any]) -> None:
    folder, _ = said
    for name, first in (("first", 2), ("second", 8)):
        found = content(folder / f"{name}.gapless")
        (process,) = found.process.values()
        assert process["how"] == "attached"
        assert [int(row["correlationId"]) for row in found.records[10]] == list(range(first, first + 5))
        assert found.names == ["_Z4workPfmi"] * 5  # told again to the second file
        assert [found.lines_of(first)[0][2] for first in (first, first + 4)] == ["<module>", "<module>"]
        assert found.ends[process["pid"]]["reason"] == "stop"


def test_what_cannot_be_is_said(said: tuple[Path, dict[str, str]]) -> None:
    _, words = said
    assert "a recording is running" in words["nested"]
    assert "has not ended" in words["early"]
    assert "there already" in words["taken"]
    assert "records once" in words["again"]
    assert "another profiler holds CUPTI" in words["busy"]
    assert (words["temporary"], words["gone"]) == ("True", "True")


def test_explaining_is_registered_from_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = gapless.record(tmp_path / "a.gapless")
    assert isinstance(recording, Recording)
    assert Recording.explained_by is gapless.explain
    with pytest.raises(gapless.GaplessError, match="has not ended"):
        recording.timeline()


def test_without_a_driver_entering_says_so(fake: Any) -> None:
    """Without it CUPTI is not even asked: some versions call themselves without end then."""
    script = (
        "import gapless\ntry:\n    gapless.record().__enter__()\nexcept gapless.GaplessError as why:\n    print(why)"
    )
    environment = {name: value for name, value in fake.environment.items() if name != "LD_LIBRARY_PATH"}
    if not missing_driver():
        pytest.skip("this machine has a driver")
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "no NVIDIA driver" in done.stdout


def test_without_cupti_entering_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gapless.recorder import library, recording

    monkeypatch.setattr(library, "cuptis", lambda: iter(()))
    monkeypatch.setattr(library, "NAME", "libnone.so")
    recording._library.cache_clear()
    with (
        pytest.raises(gapless.GaplessError, match=r"pip install 'gapless\[record\]'"),
        gapless.record(tmp_path / "a.gapless"),
    ):
        pass
    assert not list(tmp_path.iterdir())
