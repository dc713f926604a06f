"""Predictions against what was measured, and what must not be promised."""

from __future__ import annotations

import errno
import io
import json
import os
import re
from pathlib import Path

import pytest

import gapless
from gapless.diagnosis.as_tape import about, save
from gapless.model.errors import GaplessError
from gapless.model.simulation import simulate
from gapless.timeline.sources import load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "timelines"
# The repair, and how far from the measured gain its prediction may lie (relative).
PAIRS = [
    ("loop/balanced16M.serial1", ["streams=4"], "loop/balanced16M.four", 0.04),
    ("loop/balanced16M.trap4", ["off-default-stream"], "loop/balanced16M.trap4_nb", 0.03),
    ("loop/balanced16M.pageable1", ["pin", "streams=4"], "loop/balanced16M.four", 0.05),
    ("loop/kernelheavy16M.devsync4", ["no-sync"], "loop/kernelheavy16M.four", 0.03),
    ("loop/partialgpu4M.malloc4", ["pool"], "loop/partialgpu4M.four", 0.04),
    ("torch/nothing_to_overlap.before", ["streams=4"], "torch/nothing_to_overlap.after", 0.01),
]


@pytest.mark.parametrize(("before", "repairs", "after", "bound"), PAIRS)
def test_prediction_meets_the_measurement(measured: Path, before, repairs, after, bound):
    walls = json.loads((measured / "walls.json").read_text())
    report = gapless.explain(measured / f"{before}.json.gz", apply=repairs)
    assert report.prediction is not None
    measured = walls[before]["wall_ms"] / walls[after]["wall_ms"]
    assert report.prediction.speedup == pytest.approx(measured, rel=bound)
    assert report.prediction.low <= report.prediction.speedup <= report.prediction.high


def test_a_value_read_each_step_promises_nothing(measured: Path):
    report = gapless.explain(measured / "torch" / "item_each_step.before.json.gz")
    gains = [finding.speedup for finding in report.findings if finding.speedup]
    assert gains
    assert max(gains) < 1.1
    assert report.together is None


def test_the_profiler_is_taken_out(measured: Path):
    report = gapless.explain(measured / "torch" / "launch_bound.before.json.gz")
    walls = json.loads((measured / "walls.json").read_text())
    assert report.replay is not None
    assert report.wall_ms > 1.2 * walls["torch/launch_bound.before"]["wall_ms"]
    assert report.replay.untraced_ms == pytest.approx(walls["torch/launch_bound.before"]["wall_ms"], rel=0.05)


SAVED = [
    ("loop/balanced1M.trap_malloc4", ["pool", "off-default-stream"]),
    ("loop/kernelheavy16M.pageable4", ["pin"]),
    ("loop/partialgpu4M.serial1", ["streams=2"]),
    ("torch/cpu_results.before", ["pin", "no-sync", "streams=3"]),
]


@pytest.mark.parametrize(("before", "repairs"), SAVED)
def test_a_saved_prediction_plays_as_predicted(measured: Path, tmp_path: Path, before, repairs):
    report = gapless.explain(measured / f"{before}.json.gz", apply=repairs)
    assert report.repaired is not None
    saved = save(report.repaired, tmp_path / "repaired.tape", about=about(report))
    assert saved.machine.name == "repaired.machine.json"
    played = simulate(saved.tape).schedule.makespan / 1e9
    assert played == pytest.approx(report.prediction.wall_ms, rel=0.01)
    head = saved.tape.read_text().split("\n\n")[0]
    assert all(line.startswith("#") for line in head.splitlines())
    assert "What a tape cannot say" in head
    assert repairs[0] in head


def test_the_tape_of_a_window_says_what_it_holds(tmp_path: Path):
    timeline = load(EXAMPLES / "pytorch-training.json.gz")
    start = timeline.window()[0]
    report = gapless.explain(timeline, start_ns=start + 20_000_000, end_ns=start + 80_000_000, apply=["no-sync"])
    said = " ".join(about(report))
    whole = re.search(r"it cuts as wholes: ([\d.]+) ms\. Before it, the device is busy for ([\d.]+) ms", said)
    assert whole is not None
    saved = save(report.repaired, tmp_path / "window.tape", about=about(report))
    played = simulate(saved.tape).schedule.makespan / 1e9
    assert played == pytest.approx(float(whole[1]) + float(whole[2]), rel=0.01)
    assert float(whole[1]) > report.prediction.wall_ms


def test_nothing_is_overwritten(measured: Path, tmp_path: Path):
    report = gapless.explain(measured / "loop" / "balanced16M.serial1.json.gz", apply=["streams=4"])
    for name in ("mine.tape", "mine.machine.json"):
        target = tmp_path / name
        target.write_text("mine")
        with pytest.raises(GaplessError, match="is there already"):
            save(report.repaired, tmp_path / "mine.tape")
        assert target.read_text() == "mine"
        target.unlink()
    save(report.repaired, tmp_path / "mine.tape")
    as_written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    save(report.repaired, tmp_path / "mine.tape")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == as_written
    for name, content in as_written.items():
        (tmp_path / name).write_bytes(content.replace(b"0", b"1", 1))
        with pytest.raises(GaplessError, match="is there already"):
            save(report.repaired, tmp_path / "mine.tape")
        (tmp_path / name).write_bytes(content)
    with pytest.raises(GaplessError, match=r"ends in \.tape"):
        save(report.repaired, tmp_path / "mine.txt")
    with pytest.raises(GaplessError, match="cannot be written"):
        save(report.repaired, tmp_path / "no" / "mine.tape")


def test_the_predicted_timeline_is_at_hand(measured: Path):
    report = gapless.explain(measured / "loop" / "balanced16M.serial1.json.gz", apply=["streams=4"])
    assert report.predicted is not None
    assert len(report.predicted.ops) == len(report.timeline.ops)
    start, end = report.predicted.window()
    assert (end - start) / 1e6 == pytest.approx(report.prediction.wall_ms, rel=0.02)
    assert "predicted with streams=4" in str(report)
    assert "predicted" not in report.to_dict()


def test_a_machine_of_ones_own(measured: Path):
    timeline = load(measured / "loop" / "balanced16M.pageable1.json.gz")
    slow = gapless.Machine.named("h200", duplex="0.5")
    usual = gapless.explain(timeline, apply=["pin", "streams=4"]).prediction.speedup
    assert gapless.explain(timeline, apply=["pin", "streams=4"], machine=slow).prediction.speedup < usual


class Full(io.BufferedWriter):
    """A file on a disk that is full."""

    def write(self, content: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_tape_that_does_not_fit_leaves_nothing(made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither of the two files, not even where the disk is full in the middle of the second."""
    gpu = made.Gpu()
    made.loop(gpu)
    report = gpu.explain(apply=["streams=2"])
    opened: list[int] = []

    def fdopen(number: int, how: str) -> io.IOBase:
        opened.append(number)
        return (Full if len(opened) == 2 else io.BufferedWriter)(io.FileIO(number, how))

    monkeypatch.setattr(os, "fdopen", fdopen)
    with pytest.raises(GaplessError, match=r"a\.tape cannot be written: No space left"):
        save(report.repaired, tmp_path / "a.tape")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("same", [True, False])
def test_another_device_of_the_same_thread_goes_on_working(made, same: bool):
    """The host has that work to wait for too, which no repair here makes shorter; another thread has its own."""
    gpu = made.Gpu(devices=2)
    here, there = (gpu.stream(device=device) for device in (0, 1))
    host = gpu.host()
    other = host if same else gpu.host()
    for _ in range(30):
        host.kernel(here, 200_000)
        other.kernel(there, 2_000_000)
        host.sync(device=1)
    report = gpu.explain(device=0, apply=["no-sync"])
    held = [note for note in report.notes if note.startswith("Device 1 works for")]
    assert report.prediction is not None
    if same:
        assert report.prediction.speedup == pytest.approx(1, abs=0.05)
        assert len(held) == 1
    else:
        assert report.prediction.speedup > 5
        assert held == []
