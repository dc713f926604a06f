"""``gapless check -- python SCRIPT``: a program in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from gapless.cli import main

RACES = """
import sys
import torch

side = torch.cuda.Stream()
x = torch.ones(1000, device="cuda")
with torch.cuda.stream(side):
    x * 2
print("arguments", sys.argv[1:], __name__)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gapless", "check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_script_with_its_arguments_that_fails_in_the_end(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(RACES + "raise ValueError('no data')\n")
    done = run("--dry", "--json", "--", "python", "-u", str(script), "--lr", "0.1", "--json")
    assert done.returncode == 1, done.stderr
    said, found = done.stdout.splitlines()
    assert said == "arguments ['--lr', '0.1', '--json'] __main__"
    values = json.loads(found)
    (finding,) = values["findings"]
    assert finding["cause"] == "missing-wait"
    assert finding["second"]["stack"][0] == {"file": str(script), "line": 8, "function": "<module>", "text": "x * 2"}
    assert finding["add"] == {
        "line": "side.wait_stream(torch.cuda.default_stream())", "place": "before", "file": str(script), "at": 8,
    }  # fmt: skip
    assert values["ended"] == f"The program ended at {script}:10 with ValueError: no data."
    assert "ValueError: no data" in done.stderr
    assert "What it did until then was checked" in done.stderr
    assert "no data. What" in done.stderr
    assert "runpy" not in done.stderr


def test_a_program_that_does_not_get_to_its_end_is_not_passed_as_clean(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nx = torch.ones(9, device='cuda')\nahead.record_stream(x)\n")
    done = run("--dry", "--", "python", str(script))
    assert done.returncode == 2
    said = " ".join(done.stdout.split())
    assert "no race so far in 1 operation" in said
    assert said.endswith("with NameError: name 'ahead' is not defined.")
    assert "Not looked at to its end: The program ended at" in said
    assert "Nothing races" not in said
    assert "defined. What it did until then was checked" in done.stderr


def test_what_a_dry_run_cannot_follow_is_said(tmp_path: Path) -> None:
    script = tmp_path / "sparse.py"
    script.write_text("import torch\nx = torch.eye(3).to_sparse().cuda()\ntorch.sparse.mm(x, x.to_dense())\n")
    done = run("--dry", "--", "python", str(script))
    assert done.returncode == 2
    assert "cannot follow aten._to_dense" in done.stderr
    assert "sparse.py:3" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--"], "the program to check"),
        (["--", "python"], "no script"),
        (["--", "python", "-m"], "no script"),
        (["--", "ls", "-l"], "no Python"),
        (["--dry"], "--dry is for a PyTorch program"),
        (["a.tape", "--", "python", "x.py"], "takes --dry and --json alone"),
        (["--explore", "3", "--", "python", "x.py"], "takes --dry and --json alone"),
        (["--", "/nowhere/python3.99", "-c", "pass"], "cannot be started"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *arguments]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_script_that_is_not_there() -> None:
    done = run("--dry", "--", "python", "nowhere.py")
    assert done.returncode == 2
    assert "nowhere.py: there is no such script" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_leaves_without_a_word(tmp_path: Path) -> None:
    script = tmp_path / "leaves.py"
    script.write_text("import os\nos._exit(7)\n")
    done = run("--dry", "--", str(script))
    assert done.returncode == 2
    assert "status 7" in done.stderr


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_program_that_does_nothing_on_a_gpu_has_passed_no_check(tmp_path: Path, form: tuple[str, ...]) -> None:
    script = tmp_path / "host.py"
    script.write_text("import torch\nassert torch.ones(3).sum() == 3\n")
    done = run("--dry", *form, "--", "python", str(script))
    assert done.returncode == 2
    assert done.stderr == f"gapless: {script}: no operation on a GPU was seen, so nothing was checked.\n"
    assert "no race" not in done.stdout
    assert [json.loads(line)["operations"] for line in done.stdout.splitlines()] == [0] * len(form)


def test_a_program_that_fails_before_it_does_anything_on_a_gpu(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import torch\nraise ValueError('no data')\n")
    done = run("--dry", "--", "python", str(script))
    assert (done.returncode, done.stdout) == (2, "")
    assert "ValueError: no data. No operation on a GPU was seen until then." in done.stderr


def test_what_was_not_followed_is_told_where_nothing_else_is() -> None:
    from gapless.cli.output import drawn, to_console
    from gapless.torch.findings import Checked
    from gapless.views.torch_check import draw

    console = to_console()
    checked = Checked(notes={"graphs are not looked into": ["a.py:3"]}, streams=["s"], dry=True)
    text = drawn(console, draw(checked, "a.py", console, console.options))
    assert text.splitlines()[0] == "a.py  no operation on a GPU, dry"
    assert "graphs are not looked into (a.py:3)" in text
    assert "race" not in text
