"""The recorder on a GPU, end to end: what is in a recording of a program that does a little of everything."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gapless.model.kinds import OpKind, StreamKind
from gapless.recorder import blocks, library
from gapless.timeline.frames import user_place
from gapless.timeline.sources import load
from gapless.timeline.timeline import MarkKind, Timeline, TouchKind

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(library.missing_driver()), reason="there is no driver of NVIDIA's"),
]
PROGRAMS = Path(__file__).parent / "gpu"


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"there is no {module}")


def record(path: Path, *options: str, program: str, words: tuple[str, ...] = ()) -> str:
    """Record a program and give what the command said."""
    line = [sys.executable, "-m", "gapless", "record", "-o", str(path), *options, "--", sys.executable]
    done = subprocess.run(
        [*line, str(PROGRAMS / program), *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def line_of(program: str, comment: str) -> int:
    text = (PROGRAMS / program).read_text().splitlines()
    return next(i for i, words in enumerate(text, 1) if words.endswith(f"# {comment}"))


def lines_by(timeline: Timeline, program: str, *names: str) -> set[int]:
    """Give the lines of the program that made calls whose names begin so."""
    calls = timeline.calls
    found = set()
    for row in range(len(calls)):
        if timeline.name_of(int(calls.name[row])).startswith(names):
            file, line, _ = user_place(timeline.name_of(int(calls.stack[row])))
            found |= {line} if file.endswith(program) else set()
    return found


def check_steps(timeline: Timeline) -> None:
    ops, marks = timeline.ops, timeline.marks
    assert timeline.devices[0].name
    assert timeline.devices[0].sms > 8
    kinds = [OpKind(kind) for kind in ops.kind.tolist()]
    assert kinds.count(OpKind.H2D) == kinds.count(OpKind.D2H) == 1
    assert kinds.count(OpKind.KERNEL) == 2
    assert ops.bytes[np.isin(ops.kind, (OpKind.H2D, OpKind.D2H))].tolist() == [4 << 20, 4 << 20]
    streams = [timeline.streams[row] for row in ops.stream[ops.kind == OpKind.KERNEL].tolist()]
    assert [stream.kind for stream in streams] == [StreamKind.BLOCKING, StreamKind.NON_BLOCKING]
    assert [stream.priority for stream in streams] == [0, 0]
    assert not [stream for stream in streams if stream.inferred]
    of = {kind: int((marks.kind == kind).sum()) for kind in MarkKind}
    assert of[MarkKind.RECORD] >= 1
    assert of[MarkKind.WAIT] == 1
    assert of[MarkKind.SYNC_STREAM] >= 1
    assert of[MarkKind.SYNC_DEVICE] >= 1
    (wait,) = np.flatnonzero(marks.kind == MarkKind.WAIT).tolist()
    assert timeline.streams[marks.waits_on[wait]].id == streams[0].id
    for comment, names in (
        ("upload", ("cudaMemcpy", "cuMemcpy")), ("download", ("cudaMemcpy", "cuMemcpy")),
        ("record", ("cudaEventRecord", "cuEventRecord")), ("wait", ("cudaStreamWait", "cuStreamWait")),
        ("wait for free", ("cudaStreamSync", "cuStreamSync")), ("wait for all", ("cudaDeviceSync", "cuCtxSync")),
        ("kernel", ("cudaLaunch", "cuLaunch")), ("other kernel", ("cudaLaunch", "cuLaunch")),
    ):  # fmt: skip
        assert line_of("steps.py", comment) in lines_by(timeline, "steps.py", *names), comment


def test_from_within(tmp_path: Path) -> None:
    """Device, context and streams are older than the recording here."""
    needs("cupy")
    path = tmp_path / "a.gapless"
    line = [sys.executable, str(PROGRAMS / "steps.py"), str(path)]
    subprocess.run(line, check=True, timeout=120)
    timeline = load(path)
    check_steps(timeline)
    kinds = timeline.touches.kind
    assert {TouchKind.READ, TouchKind.WRITE, TouchKind.ARGUMENT} <= set(kinds.tolist())


def test_the_whole_program(tmp_path: Path) -> None:
    needs("cupy")
    said = record(tmp_path / "a.gapless", program="steps.py")
    assert "lost" not in said
    timeline = load(tmp_path / "a.gapless")
    assert timeline.devices[0].name
    assert line_of("steps.py", "upload") in lines_by(timeline, "steps.py", "cudaMemcpy", "cuMemcpy")
    kinds = {stream.kind for row, stream in enumerate(timeline.streams) if (timeline.ops.stream == row).any()}
    assert kinds == {StreamKind.LEGACY, StreamKind.BLOCKING, StreamKind.NON_BLOCKING}


RANGES = ("pushed 3", "started 4", "of a domain 5", "begun 6")


@pytest.mark.parametrize("name", RANGES)
def test_a_range(tmp_path: Path, name: str) -> None:
    needs("torch")
    if RANGES.index(name) > 1:
        needs("nvtx")
    record(tmp_path / "a.gapless", "--range", name, program="ranges.py")
    timeline = load(tmp_path / "a.gapless")
    kernels = int((timeline.ops.kind == OpKind.KERNEL).sum())
    assert kernels == int(name[-1])
    assert timeline.devices[0].sms > 8  # older than the range
    assert {stream.kind for stream in timeline.streams} == {StreamKind.LEGACY}


def test_what_autograd_launches_has_the_line_that_waits_for_it(tmp_path: Path) -> None:
    needs("torch")
    record(tmp_path / "a.gapless", program="training.py")
    timeline = load(tmp_path / "a.gapless")
    calls = timeline.calls
    engine = [row for row, thread in enumerate(timeline.threads) if thread.name.startswith("pt_autograd")]
    launches = [row for row in np.flatnonzero(np.isin(calls.thread, engine)).tolist()
                if "Launch" in timeline.name_of(int(calls.name[row]))]  # fmt: skip
    assert launches
    places = [user_place(timeline.name_of(int(calls.stack[row]))) for row in launches]
    backward = line_of("training.py", "backward")
    waiting = [place for place in places if place[1:] == (backward, "step (autograd)")]
    assert len(waiting) > len(places) / 2
    assert {place for place in places if place[1] != backward} <= {("", 0, "")}


def test_torch_profiler_within(tmp_path: Path) -> None:
    """It says that it gets nothing, and the recording is whole and says so too."""
    needs("torch")
    alone = record(tmp_path / "a.gapless", program="training.py")
    said = record(tmp_path / "b.gapless", program="training.py", words=("profiled",))
    assert "torch.profiler" not in alone
    assert "The program ran torch.profiler while it was recorded" in said
    assert "on the GPU: 0" in said
    counts = [int((load(tmp_path / name).ops.kind == OpKind.KERNEL).sum()) for name in ("a.gapless", "b.gapless")]
    assert counts[0] == counts[1] > 10


@pytest.mark.parametrize("words", [(), ("alone",)])
def test_another_tool_that_asks_for_the_records(tmp_path: Path, words: tuple[str, ...]) -> None:
    """cupti-python registers functions of its own; the recorder takes CUPTI back and says so."""
    needs("cupti")
    said = record(tmp_path / "a.gapless", program="other.py", words=words)
    assert ("Another tool in the program asked" in said) is (not words)
    timeline = load(tmp_path / "a.gapless")
    kernels = int((timeline.ops.kind == OpKind.KERNEL).sum())
    assert 5 <= kernels < 20 if not words else kernels == 20
    assert ("calls-missing" in {unknown.what for unknown in timeline.unknown}) is (not words)


def test_a_crash_leaves_what_was_flushed(tmp_path: Path) -> None:
    needs("cupy")
    path = tmp_path / "a.gapless"
    line = [sys.executable, "-m", "gapless", "record", "-o", str(path), "--", sys.executable]
    done = subprocess.run(
        [*line, str(PROGRAMS / "forever.py"), "crash"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 128 + signal.SIGSEGV
    assert "without closing" in done.stderr
    assert (load(path).ops.kind == OpKind.KERNEL).sum() >= 100


def test_ctrl_c(tmp_path: Path) -> None:
    needs("cupy")
    path = tmp_path / "a.gapless"
    line = [sys.executable, "-m", "gapless", "record", "-o", str(path), "--", sys.executable]
    command = subprocess.Popen(
        [*line, str(PROGRAMS / "forever.py")], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    end = time.monotonic() + 60
    while time.monotonic() < end and not (path.exists() and blocks.content(path).records > 1000):
        assert command.poll() is None
        os.sched_yield()
    os.killpg(command.pid, signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert command.returncode == 128 + signal.SIGINT
    assert "records of 1 process" in said
    timeline = load(path)
    assert (timeline.ops.kind == OpKind.KERNEL).sum() >= 100
    assert not [unknown for unknown in timeline.unknown if unknown.what == "unfinished"]
