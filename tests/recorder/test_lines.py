"""Source lines: every call is found at the line that made it, with the interpreter's lock released."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapless.timeline.frames import user_place
from gapless.timeline.sources import load

HERE = Path(__file__).parent
PROGRAM = HERE / "fake" / "program.py"


def pythons() -> list[str]:
    """The Pythons of this machine whose frames the recorder reads, one of each version."""
    found = {}
    places = [sys.executable, *(shutil.which(f"python3.{minor}") or "" for minor in (11, 12, 13, 14))]
    places += map(str, sorted(Path.home().glob(".pyenv/versions/3.1*/bin/python3")))
    for place in filter(None, places):
        code = "import sys; print(*sys.version_info[:2], sep='.')"
        said = subprocess.run([place, "-c", code], capture_output=True, text=True, check=False)
        found.setdefault(said.stdout.strip(), place)
    return [found[version] for version in sorted(found) if version in ("3.11", "3.12", "3.13", "3.14")]


@pytest.mark.parametrize("python", pythons())
def test_python(fake: Any, content: Callable[[Path], Any], tmp_path: Path, python: str) -> None:
    done = fake.record(tmp_path / "a.gapless", command=[python, str(PROGRAM)])
    assert done.returncode == 0, done.stderr
    found = content(tmp_path / "a.gapless")
    assert len(found.callsites) == len(found.records[10]) == 11
    text = PROGRAM.read_text().splitlines()

    def line(comment: str) -> int:
        return next(i for i, words in enumerate(text, 1) if words.endswith(f"# {comment}"))

    here = str(PROGRAM)
    in_thread = [frame for frame in found.lines_of(1) if frame[0] == here]
    assert in_thread == [(here, line("in helper"), "helper"), (here, line("calls helper"), "Größe.step")]
    assert found.lines_of(4)[0] == (here, line("in step"), "Größe.step")
    for call, comment in ((5, "first"), (6, "second")):
        assert found.lines_of(call) == [(here, line("in generator"), "generator"), (here, line(comment), "<module>")]
    assert found.lines_of(7) == [(here, line("calls lambda") - 1, "<lambda>"), (here, line("calls lambda"), "<module>")]
    assert found.lines_of(9) == [("<made>", 1, "<module>"), (here, line("in made code"), "<module>")]
    assert [frame[1] for frame in found.lines_of(10)] == [line("in helper"), line("through C"), line("through C")]


ENGINE = """
import ctypes, os, sys, threading
cuda, libc = ctypes.CDLL(os.environ["FAKE"]), ctypes.CDLL(None)
cuda.fake_init()
engine = {}
exec(compile("def _engine_run_backward(call, *how):\\n    call(*how)", "/lib/torch/autograd/graph.py", "exec"), engine)
def step(call, *how):
    engine["_engine_run_backward"](call, *how)  # line 8
def other():
    cuda.fake_launch_elsewhere()
cuda.fake_launch()
step(cuda.fake_launch_elsewhere)
step(cuda.fake_launch_elsewhere)
other()
read, write = os.pipe()
def wait():
    cuda.fake_launch()
    step(libc.read, read, ctypes.create_string_buffer(1), 1)
thread = threading.Thread(target=wait)
thread.start()
while sys._current_frames()[thread.ident].f_code.co_name != "_engine_run_backward":
    pass
step(cuda.fake_launch_elsewhere)
os.write(write, b".")
thread.join()
"""


def test_autograd_works_for_the_thread_that_waits_for_it(
    fake: Any, content: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Its own threads have no frames of Python. What works for no such thread, or for one of two, stays without."""
    here = tmp_path / "train.py"
    here.write_text(ENGINE)
    fake.record(tmp_path / "a.gapless", command=[sys.executable, here])
    found = content(tmp_path / "a.gapless")
    assert len(found.records[10]) == 14
    graph = ("/lib/torch/autograd/graph.py", 2, "_engine_run_backward")
    for call in range(2, 8):
        assert found.lines_of(call) == [graph, (str(here), 8, "step"), (str(here), 12 + (call > 4), "<module>")]
        assert {row["what"] for row in found.stack_rows if row["stack"] == found.callsites[call]} == {2}
    assert sorted(found.callsites) == [*range(1, 8), 11]
    places = {user_place(text) for text in load(tmp_path / "a.gapless").strings if "(autograd)" in text}
    assert places == {(str(here), 8, "step (autograd)")}


def test_deep_recursion_is_cut_and_many_stacks_are_kept(
    fake: Any, content: Callable[[Path], Any], tmp_path: Path
) -> None:
    code = """
import ctypes, os
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_init()
def down(n):
    if n:
        down(n - 1)
    else:
        cuda.fake_launch()
for n in range(300):
    down(n)
"""
    fake.record(tmp_path / "a.gapless", command=[sys.executable, "-c", code])
    found = content(tmp_path / "a.gapless")
    depths = [len(found.lines_of(call)) for call in range(1, 301)]
    assert depths[:3] == [2, 3, 4]
    assert max(depths) == 48
    assert all(found.lines_of(call)[0][2] == "down" for call in range(1, 301))


def test_of_many_launches_a_part_is_asked(fake: Any, content: Callable[[Path], Any], tmp_path: Path) -> None:
    code = """
import ctypes, os, time
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_init()
def many(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            cuda.fake_launch()  # many
many(0.9)
cuda.fake_rename(b"a kernel that was never seen before")
many(0.7)
"""
    fake.record(tmp_path / "a.gapless", command=[sys.executable, "-c", code])
    found = content(tmp_path / "a.gapless")
    calls = found.column(5, "correlationId")
    asked = [call for call in calls if call in found.callsites]
    assert all(call in found.callsites for call in range(1, 20))  # from the first
    assert 0 < len(asked) < 0.8 * len(calls)
    kernels = zip(found.column(10, "correlationId"), found.names, strict=True)
    renamed = {call for call, name in kernels if name[0] == "a"}
    assert any(call in renamed for call in asked)


def test_no_lines(fake: Any, content: Callable[[Path], Any], tmp_path: Path) -> None:
    fake.record(tmp_path / "a.gapless", "--no-lines", command=[sys.executable, str(PROGRAM)])
    found = content(tmp_path / "a.gapless")
    assert len(found.records[10]) == 11
    assert not found.callsites


def test_native(fake: Any, content: Callable[[Path], Any], tmp_path: Path) -> None:
    if not shutil.which("addr2line"):
        pytest.skip("there is no addr2line")
    fake.record(tmp_path / "a.gapless", command=[fake.program, "5", "1", "exit"])
    found = content(tmp_path / "a.gapless")
    source = HERE / "fake" / "program.c"
    text = source.read_text().splitlines()
    call = next(i for i, words in enumerate(text, 1) if "void innermost" in words)
    loop = next(i for i, words in enumerate(text, 1) if "innermost();" in words)
    frames = found.lines_of(1)
    assert (str(source), call, "innermost") in frames
    assert (str(source), loop, "work") in frames
    # the loop is remembered, not unwound each time, and still told apart by the caller
    callers = [next(frame[1] for frame in found.lines_of(number) if frame[2] == "main") for number in (1, 5, 11, 15)]
    assert callers[0] == callers[1] != callers[2] == callers[3]
    assert not [frame for frame in found.lines_of(6) if frame[2] == "main"]  # the thread's


def test_native_without_debug_information(fake: Any, content: Callable[[Path], Any], tmp_path: Path) -> None:
    if not shutil.which("strip"):
        pytest.skip("there is no strip")
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", str(stripped), str(fake.program)], check=True)
    fake.record(tmp_path / "a.gapless", command=[str(stripped), "5", "0", "exit"])
    frames = content(tmp_path / "a.gapless").lines_of(1)
    assert any(frame[0] == str(stripped) and frame[1] == -1 for frame in frames)
