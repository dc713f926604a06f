"""``with gapless.record()``: recordings of a part of a running program, one after the other."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.model.extras import install_line
from gapless.model.kinds import StreamKind
from gapless.recorder.library import missing_driver
from gapless.recorder.recording import Recording
from gapless.timeline.sources import load
from gapless.timeline.sources.recording_format import Space

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
sys.modules["torch"] = None
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
        end = found.ends[process["pid"]]
        assert end["reason"] == "stop"
        assert found.records[10][-1]["start"] < end["until"]  # the wait for it is the recorder's own


def test_what_cannot_be_is_said(said: tuple[Path, dict[str, str]]) -> None:
    _, words = said
    assert "a recording is running" in words["nested"]
    assert "has not ended" in words["early"]
    assert "there already" in words["taken"]
    assert "records once" in words["again"]
    assert "another profiler holds CUPTI" in words["busy"]
    assert "torch.profiler" in words["busy"]
    assert (words["temporary"], words["gone"]) == ("True", "True")


OLDER = """
import ctypes, os, sys
import gapless
cuda = ctypes.CDLL(os.environ["FAKE"])
launch = cuda.fake_launch_in
launch.argtypes = [ctypes.c_void_p]
launch(0x5014)
with gapless.record(sys.argv[1], lines=sys.argv[2] == "lines", addresses=sys.argv[2] == "addresses"):
    for stream in (0, 1, 0x5014, 0x5115, 0x5014, 2):
        launch(stream)
"""


@pytest.mark.parametrize("kept", ["lines", "addresses", "neither"])
def test_what_is_older_than_the_recording_is_asked_of_the_driver(
    fake: Any, content: Callable[[Path], Any], tmp_path: Path, kept: str
) -> None:
    path = tmp_path / "a.gapless"
    line = [sys.executable, "-c", OLDER, str(path), kept]
    subprocess.run(line, env=fake.environment, check=True, timeout=120)
    found = content(path)
    assert len(found.records[10]) == 6
    (device,) = found.records[8]
    assert (device["numMultiprocessors"], device["maxWarpsPerMultiprocessor"], device["uuid.1"]) == (
        132,
        64,
        0x1111 * 0x1000100010001,
    )
    (context,) = found.records[9]
    assert (context["contextId"], context["deviceId"], context["nullStreamId"]) == (1, 0, 7)
    streams = [(int(row["streamId"]), int(row["flag"]), int(row["priority"])) for row in found.records[37]]
    assert streams == [(0x14, 1, 0), (0x15, 2, (1 << 32) - 5), (9, 1, 0)]
    (pid,) = found.process
    assert found.words[pid, Space.POINTER, int(device["name"])] == "A fake of a GPU"
    timeline = load(path)
    assert [(device.name, device.sms, device.compute_capability[0]) for device in timeline.devices] == [
        ("A fake of a GPU", 132, 9)
    ]
    kinds = {stream.id: (stream.kind, stream.priority, stream.inferred) for stream in timeline.streams}
    assert kinds == {
        7: (StreamKind.LEGACY, 0, False), 1: (StreamKind.UNKNOWN, None, False), 0x14: (StreamKind.BLOCKING, 0, False),
        0x15: (StreamKind.NON_BLOCKING, -5, False), 9: (StreamKind.BLOCKING, 0, False),
    }  # fmt: skip


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
        pytest.raises(gapless.GaplessError, match=re.escape(install_line("record"))),
        gapless.record(tmp_path / "a.gapless"),
    ):
        pass
    assert not list(tmp_path.iterdir())
