"""The library is built where a compiler is, found where it was built, and says what is missing."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gapless.cli import main
from gapless.model import native
from gapless.model.errors import GaplessError
from gapless.model.extras import install_line
from gapless.recorder import blocks, library
from gapless.recorder.layouts import KINDS, layout_source


def test_it_loads_without_cuda_and_says_what_is_missing(fake: Any, tmp_path: Path) -> None:
    os.environ["XDG_CACHE_HOME"], before = fake.environment["XDG_CACHE_HOME"], os.environ.get("XDG_CACHE_HOME")
    try:
        built = library.find_library()
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before
    needs = subprocess.run(["readelf", "-d", str(built)], capture_output=True, text=True, check=True).stdout
    assert "cuda" not in needs
    assert "cupti" not in needs
    loaded = ctypes.CDLL(str(built))
    path = tmp_path / "a.gapless"
    path.write_bytes(b"\x93GAPLESS" + bytes(24))
    problem = ctypes.create_string_buffer(1024)
    missing = os.fsencode(tmp_path / "libcupti.so.99")
    assert loaded.gapless_recorder_start(os.fsencode(path), missing, b"", ctypes.c_uint64(0), 1, 0, problem, 1024) == 1
    assert b"libcupti cannot be loaded" in problem.value
    assert loaded.InitializeInjection() == 1  # without GAPLESS_RECORD_FILE: nothing to do


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.shutil, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(GaplessError, match="no C compiler: install one"):
        library.find_library()


def test_no_cupti(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "cuptis", lambda: iter(()))
    for find in (library.find_library, library.find_cupti):
        with pytest.raises(GaplessError, match=re.escape(install_line("record"))):
            find()


def test_gapless_cupti_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAPLESS_CUPTI", "/nowhere/libcupti.so")
    with pytest.raises(GaplessError, match="no such file"):
        library.find_cupti()


@pytest.mark.parametrize("content", [b"", b"not a library"])
def test_gapless_cupti_that_is_no_library(content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libcupti.so").write_bytes(content)
    monkeypatch.setenv("GAPLESS_CUPTI", str(tmp_path / "libcupti.so"))
    with pytest.raises(GaplessError, match="is no shared library"):
        library.find_cupti()


@pytest.mark.parametrize(("name", "says"), [
    ("/dev/null", "is no regular file"), ("folder", "is a folder"), ("pipe", "is no regular file"),
    ("other.so", "is a library, but no CUPTI"),
])  # fmt: skip
def test_gapless_cupti_that_is_something_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, says: str
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "other.so").write_bytes(b"\x7fELF" + bytes(100))
    monkeypatch.setenv("GAPLESS_CUPTI", str(tmp_path / name))
    with pytest.raises(GaplessError, match=f"{name}, and that {says}"):
        library.find_cupti()


def test_a_compiler_that_makes_nothing(headers: Path, tmp_path: Path) -> None:
    with pytest.raises(GaplessError, match=r"^true was to compile .* made nothing.* CC names another one"):
        library.compile_library(tmp_path / "out", "true", headers, "")
    assert not list((tmp_path / "out").iterdir())


def test_a_cache_that_cannot_be_written_to(headers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where a file is in its place, where the disk is full before or when the compiler writes."""
    (tmp_path / "file").touch()
    full = tmp_path / "cc"
    full.write_text("#!/bin/sh\necho 'ld: final link failed: No space left on device' >&2\nexit 1\n")
    full.chmod(0o755)
    said = r"kept in .*/recorder, and that cannot be written to: {}\.\nXDG_CACHE_HOME names another folder"
    with pytest.raises(GaplessError, match=said.format("Not a directory")):
        library.compile_library(tmp_path / "file" / "recorder", "cc", headers, "")
    with pytest.raises(GaplessError, match=said.format("No space left on device")):
        library.compile_library(tmp_path / "recorder", str(full), headers, "")

    def no_space(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", no_space)
    with pytest.raises(GaplessError, match=said.format("No space left on device")):
        library.compile_library(tmp_path / "recorder", "cc", headers, "")


def test_a_compiler_that_fails(headers: Path, tmp_path: Path) -> None:
    with pytest.raises(GaplessError, match=r"could not compile"):
        library.compile_library(tmp_path / "out", "cc", headers, "nonsense\n")
    with pytest.raises(GaplessError, match="cannot be run"):
        library.compile_library(tmp_path / "out", str(tmp_path / "cc"), headers, "")
    assert not list((tmp_path / "out").iterdir())


def test_a_compiler_whose_path_holds_a_space(headers: Path, tmp_path: Path) -> None:
    compiler = tmp_path / "my tools" / "cc"
    compiler.parent.mkdir()
    compiler.symlink_to(shutil.which("cc") or "")
    source = tmp_path / "part.c"
    source.write_text("int part(void) { return 1; }\n")
    for name, command in (("one.so", str(compiler)), ("two.so", "cc -pipe")):
        native.compile_library(tmp_path / "made" / name, command, [str(source)], part="part")
        assert native.is_whole(tmp_path / "made" / name)


def test_a_compiler_that_speaks_in_another_encoding(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\nprintf 'caf\\351: erreur\\n' >&2\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(GaplessError, match="could not compile gapless's part:\ncaf\ufffd: erreur"):
        native.compile_library(tmp_path / "made" / "a.so", str(compiler), [], part="part")


def test_a_library_is_on_the_disk_before_it_has_its_name(
    headers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, synced = tmp_path / "part.c", tmp_path / "made" / "a.so", []
    source.write_text("int part(void) { return 1; }\n")
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (synced.append(target.exists()), real(number)))
    native.compile_library(target, "cc", [str(source)], part="part")
    assert synced == [False]
    assert target.exists()


def test_layouts_are_found_in_the_headers(headers: Path) -> None:
    table = layout_source((headers / "cupti_activity.h").read_text())
    for kind, (label, struct, _) in KINDS.items():
        assert f'KIND({kind}, "{label}", CUpti_Activity{struct}' in table
    assert "CONCURRENT_KERNEL" in table
    assert "clusterZ)" in table
    with pytest.raises(GaplessError, match="declares no CUpti_ActivityMemcpy"):
        layout_source("typedef struct { int kind; } CUpti_ActivityNothing;")


def wrong(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["record", *arguments]) == 2
    return capsys.readouterr().err


def test_bad_calls_run_nothing(
    fake: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    proof = tmp_path / "ran"
    run = ["--", sys.executable, "-c", f"open({str(proof)!r}, 'w')"]
    taken = tmp_path / "taken.gapless"
    taken.write_text("mine")
    assert "no program to record" in wrong(capsys)
    assert "no program nonesuch" in wrong(capsys, "-o", str(tmp_path / "a.gapless"), "--", "nonesuch")
    (tmp_path / "train.py").write_text("print()")
    assert f"gapless record -- python {tmp_path}/train.py" in wrong(capsys, "--", f"{tmp_path}/train.py")
    assert "the file is there, and may not be executed" in wrong(capsys, "--", str(taken))
    assert f"{tmp_path} is a directory, not a program." in wrong(capsys, "--", str(tmp_path))
    (tmp_path / "solver").write_text("#!/bin/sh\n")
    (tmp_path / "solver").chmod(0o755)
    with monkeypatch.context() as here:
        here.chdir(tmp_path)
        assert "no program solver on the PATH. The one here is ./solver." in wrong(capsys, "--", "solver")
    assert "there already" in wrong(capsys, "-o", str(taken), *run)
    assert taken.read_text() == "mine"
    assert "cannot be written" in wrong(capsys, "-o", str(tmp_path / "no" / "a.gapless"), *run)
    assert "1MiB or more" in wrong(capsys, "--max-size", "1KiB", *run)
    assert "from 0 on" in wrong(capsys, "--for", "-1", *run)
    assert "seconds, from 0" in wrong(capsys, "--for", "99999999", *run)
    for option in ("--for", "--max-size"):
        assert f"{option} names no" in wrong(capsys, option, "0", *run)
    assert "--range names no range" in wrong(capsys, "--range", "", *run)
    assert "--range and --after exclude each other" in wrong(capsys, "--range", "step", "--after", "1s", *run)
    assert "is a profiler" in wrong(capsys, "--", "/opt/bin/nsys", "profile", "x")
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/nsight/libToolsInjection64.so")
    assert "another tool watches" in wrong(capsys, *run)
    assert not proof.exists()
    assert not list(tmp_path.glob("a.gapless"))


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_what_is_no_file_of_its_own_holds_no_recording(
    fake: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: list[str]
) -> None:
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "terminal").symlink_to("/dev/null")
    (tmp_path / "folder").mkdir()
    for name, says in (
        ("a", "Too many levels of symbolic links"), ("pipe", "is not a file of its own"),
        ("terminal", "is not a file of its own"), ("folder", "is not a file of its own"),
    ):  # fmt: skip
        assert says in wrong(capsys, "-o", str(tmp_path / name), *force, "--", "true")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "pipe", "terminal", "folder"}


def test_what_the_command_prints_to_holds_no_recording(fake: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        line = [sys.executable, "-m", "gapless", "record", "--force", "-o", out, "--", "echo", "hi"]
        done = subprocess.run(line, stdout=file, stderr=subprocess.PIPE, env=fake.environment, check=False)
    assert (done.returncode, out.read_bytes()) == (2, b"")
    assert b"is not a file of its own" in done.stderr


def test_names_of_recordings(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gapless.recorder.command import file_name

    assert file_name(["python", "-u", "train.py", "--x"], tmp_path).name == "train.gapless"
    assert file_name(["./solver"], tmp_path).name == "solver.gapless"
    (tmp_path / "solver.gapless").touch()
    assert file_name(["./solver"], tmp_path).name == "solver-2.gapless"


def test_force_overwrites(fake: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.gapless"
    path.write_bytes(b"\x93GAPLESS" + b"\xffold" * 1000)  # a recording; --force leaves other files alone
    assert fake.record(path, "--force", command=[fake.program, "3", "0", "exit"]).returncode == 5
    assert b"\xffold" not in path.read_bytes()
    assert list(tmp_path.iterdir()) == [path]


def fail(half: Path) -> None:
    with half.open("ab") as file:
        file.write(b"half")
    raise GaplessError("stopped")


def test_a_link_stays_a_link_to_the_recording(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for force in (False, True):
        with blocks.made(tmp_path / "link", force=force):
            pass
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_bytes().startswith(b"\x93GAPLESS")
    with pytest.raises(GaplessError, match="is there already"), blocks.made(tmp_path / "link", force=False):
        pass
    with pytest.raises(GaplessError, match="stopped"), blocks.made(tmp_path / "link", force=True):
        fail(tmp_path / "real")
    assert (tmp_path / "real").read_bytes().startswith(b"\x93GAPLESS")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]
