"""``gapless check -- python SCRIPT``: the process of its own, how it is stopped. Needs no PyTorch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gapless.cli import main
from gapless.torch import Checked

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _not_ignored() -> Iterator[None]:
    """Let started programs have these signals, though the tests may run where they are ignored (nohup, &)."""
    before = {number: signal.signal(number, lambda *_: None) for number in STOPS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def start(folder: Path, when_stopped: str = "raise") -> tuple[subprocess.Popen[str], int]:
    """Start a check whose interpreter says its process and then blocks until it is stopped."""
    (folder / "temporary").mkdir()
    (folder / "train.py").touch()
    python = folder / "python-that-blocks"
    python.write_text(
        f"#!{sys.executable}\nimport os, sys\nfrom pathlib import Path\n"
        "try:\n    print(os.getpid(), flush=True)\n    sys.stdin.read()\n"
        f"except KeyboardInterrupt:\n    {when_stopped}\n"
    )
    python.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "gapless", "check", "--dry", "--json", "--", str(python), str(folder / "train.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"TMPDIR": str(folder / "temporary")},
    )  # fmt: skip
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Give status, output and complaints. The input stays open until it has ended: only a signal can have ended it."""
    try:
        status = process.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        output, complaints = process.communicate()
    return status, output, complaints


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_reaches_the_program_and_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    process, child = start(tmp_path)
    assert list((tmp_path / "temporary").iterdir())
    process.send_signal(number)
    status, output, complaints = finish(process)
    assert (status, output) == (128 + number, "")
    assert f"The program was stopped ({number.name}) before there was a report." in complaints
    assert not list((tmp_path / "temporary").iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_what_was_checked_until_ctrl_c_is_reported(tmp_path: Path) -> None:
    said = json.dumps({"checked": Checked(operations=3).to_dict(), "ended": "The program was interrupted."})
    process, _ = start(tmp_path, f"Path(sys.argv[3]).write_text({said!r}); sys.exit(130)")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    status, output, complaints = finish(process)
    assert status == 130
    assert json.loads(output)["operations"] == 3
    assert "The program was interrupted. What it did until then was checked; what would" in complaints
    assert "Traceback" not in complaints
    assert not list((tmp_path / "temporary").iterdir())


def test_ctrl_c_before_there_is_anything_to_report(tmp_path: Path) -> None:
    process, _ = start(tmp_path, "sys.exit(130)")
    os.killpg(process.pid, signal.SIGINT)
    status, output, complaints = finish(process)
    assert (status, output) == (130, "")
    assert complaints.splitlines() == ["gapless: The program was stopped (SIGINT) before there was a report."]


def test_ctrl_c_while_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "gapless.torch", str(tmp_path / "report.json"), "dry", "-c", "pass"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("command", [["python", "nosuch.py"], ["nosuch.py"], ["python", "-u", "nosuch.py", "--lr"]])
def test_a_script_that_is_not_there_is_said_before_anything_runs(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr(subprocess, "Popen", started)
    assert main(["check", "--dry", "--", *command]) == 2
    assert capsys.readouterr().err == "gapless: nosuch.py: there is no such script.\n"
