"""A program with the recorder in it: what reaches the file, however the program ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapless.recorder import library
from gapless.timeline.sources.recording_format import Block, Space

HERE = Path(__file__).parent
Content = Callable[[Path], Any]


def test_everything_of_a_program_that_ends_well(fake: Any, content: Content, tmp_path: Path) -> None:
    done = fake.record(tmp_path / "a.gapless", command=[fake.program, "200", "3", "exit"])
    assert done.returncode == 5, done.stderr  # the program's own status
    assert "2,000 records of 1 process" in done.stderr
    assert "gapless explain" in done.stderr
    found = content(tmp_path / "a.gapless")
    (process,) = found.process.values()
    assert process["command"][1:] == ["200", "3", "exit"]
    assert process["cupti"] == 130001
    assert (process["how"], process["begins"]) == ("injected", "start")
    assert len(found.records[5]) == len(found.records[10]) == 1000
    assert {int(row["correlationId"]) for row in found.records[10]} == set(range(1, 1001))
    assert set(found.names) == {"_Z4workPfmi"}
    pid = process["pid"]
    assert found.words[pid, Space.RUNTIME, 211] == "cudaLaunchKernel_v7000"
    threads = {int(row["threadId"]) for row in found.records[5]}
    assert len(threads) == 4
    assert all((pid, Space.THREAD, thread) in found.words for thread in threads)
    assert found.ends[pid] == {"reason": "exit", "records": 2000, "dropped": 0}
    assert found.ends[0] == {"status": 5, "signal": None}
    assert len(found.clocks) >= 2
    assert [note["what"] for note in found.notes] == ["kind-refused"]  # the fake knows no memory pools
    first, last = found.blocks[0], found.blocks[-1]
    assert (first, last) == ((Block.PROCESS, pid), (Block.END, 0))


def test_sizes_are_those_of_the_libcupti_that_runs(fake: Any, content: Content, tmp_path: Path) -> None:
    fake.record(tmp_path / "a.gapless", command=[fake.program, "3", "0", "exit"])
    found = content(tmp_path / "a.gapless")
    row = found.records[10][0]
    assert (int(row["streamId"]), int(row["gridX"]), int(row["blockX"])) == (7, 4, 128)
    assert row.dtype.itemsize > row.dtype.fields["clusterZ"][1] + 8  # the fake adds 8 bytes to what the headers know


@pytest.mark.parametrize(("end", "status"), [("abort", 128 + 6), ("kill", 128 + 9), ("_exit", 3)])
def test_a_crash_leaves_what_was_flushed(fake: Any, content: Content, tmp_path: Path, end: str, status: int) -> None:
    done = fake.record(tmp_path / "a.gapless", command=[fake.program, "200", "1", end])
    assert done.returncode == status
    assert "without closing" in done.stderr
    found = content(tmp_path / "a.gapless")
    assert 400 <= len(found.records[10]) <= 600
    (pid,) = found.process
    assert pid not in found.ends
    assert found.ends[0] == (
        {"status": 3, "signal": None} if end == "_exit" else {"status": None, "signal": status - 128}
    )


def recording(fake: Any, path: Path, *program: object) -> subprocess.Popen[str]:
    """Start the command in a session of its own, and give it once its program has said that it is ready."""
    line = [sys.executable, "-m", "gapless", "record", "-o", str(path), "--", *map(str, program)]
    command = subprocess.Popen(
        line, env=fake.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert command.stdout
    assert command.stdout.readline() == "ready\n"
    return command


def test_ctrl_c_is_the_programs_business(fake: Any, content: Content, tmp_path: Path) -> None:
    command = recording(fake, tmp_path / "a.gapless", fake.program, "50", "0", "wait")
    os.killpg(command.pid, signal.SIGINT)  # what a terminal does: to the command and to the program
    _, said = command.communicate(timeout=60)
    assert command.returncode == 128 + signal.SIGINT
    assert "records of 1 process" in said
    assert len(content(tmp_path / "a.gapless").records[10]) >= 50


def test_ctrl_c_ends_a_python_program_in_order(fake: Any, content: Content, tmp_path: Path) -> None:
    """Python unwinds, ends, and then ends itself with the signal: too late for anything else."""
    code = """
import ctypes, os, signal
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_init()
try:
    print("ready", flush=True)
    while True:
        signal.sigtimedwait([], 0.05)  # pause() would sleep through a signal that comes right before it
finally:
    cuda.fake_launch()
"""
    command = recording(fake, tmp_path / "a.gapless", sys.executable, "-c", code)
    os.killpg(command.pid, signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert command.returncode == 128 + signal.SIGINT
    assert "without closing" not in said
    found = content(tmp_path / "a.gapless")
    assert len(found.records[10]) == 1
    assert [end.get("reason") for end in found.ends.values()] == ["exit", None]


def test_a_request_to_end_is_passed_on(fake: Any, tmp_path: Path) -> None:
    command = recording(fake, tmp_path / "a.gapless", fake.program, "5", "0", "wait")
    command.terminate()
    command.communicate(timeout=60)
    assert command.returncode == 128 + signal.SIGTERM


def test_a_forked_child_writes_nothing_into_its_parents_recording(fake: Any, content: Content, tmp_path: Path) -> None:
    done = fake.record(tmp_path / "a.gapless", command=[fake.program, "100", "0", "fork"])
    assert done.returncode == 5
    found = content(tmp_path / "a.gapless")
    assert len(found.process) == 1
    assert len(found.records[10]) == 200


def test_child_processes_share_the_file(fake: Any, content: Content, tmp_path: Path) -> None:
    one = f"{fake.program} 300 2 exit"
    done = fake.record(tmp_path / "a.gapless", command=["sh", "-c", f"{one} & {one} & {one}; wait; exit 7"])
    assert done.returncode == 7
    assert "4,500 records of 3 processes" not in done.stderr  # 3 x 2 x 1200
    found = content(tmp_path / "a.gapless")
    assert len(found.process) == 3
    assert len(found.records[10]) == 3 * 1200
    assert all(found.ends[pid]["records"] == 2400 for pid in found.process)


def test_force_takes_nothing_from_anybody(fake: Any, tmp_path: Path) -> None:
    """Not the recording that is there, where the program cannot start, nor a file that is none."""
    old, program, script = tmp_path / "old.gapless", tmp_path / "noexec", tmp_path / "my.py"
    before = b"\x93GAPLESS" + b"old" * 1000
    old.write_bytes(before)
    program.write_text("hi")
    program.chmod(0o755)
    script.write_text("print(1)")
    assert fake.record(old, "--force", command=[program]).returncode == 2
    assert old.read_bytes() == before
    done = fake.record(script, "--force", command=["true"])
    assert (done.returncode, script.read_text()) == (2, "print(1)")
    assert "is no recording" in done.stderr
    assert fake.record(old, "--force", command=["true"]).returncode == 0
    assert old.read_bytes() == before  # nothing came that could take its place
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.py", "noexec", "old.gapless"]


@pytest.mark.parametrize(
    "option", [["--after", "nan"], ["--for", "inf"], ["--for", "-1"], ["--max-size", "99999999999999999999999999"]]
)
def test_times_and_sizes_that_cannot_be(fake: Any, tmp_path: Path, option: list[str]) -> None:
    done = fake.record(tmp_path / "a.gapless", *option, command=["true"])
    assert done.returncode == 2
    assert option[0] in done.stderr or "size" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_program_without_cuda(fake: Any, tmp_path: Path) -> None:
    done = fake.record(tmp_path / "a.gapless", command=["true"])
    assert done.returncode == 0
    assert "did not use CUDA" in done.stderr
    assert not list(tmp_path.iterdir())
    assert ("no NVIDIA driver" in done.stderr) is bool(library.missing_driver())


def test_a_libcupti_that_cannot_be_loaded(fake: Any, tmp_path: Path) -> None:
    words = b"\x7fELF, and no library for all that\0cuptiActivityRegisterCallbacks\0"
    (tmp_path / "libcupti.so.13").write_bytes(words)
    environment = {**fake.environment, "GAPLESS_CUPTI": str(tmp_path / "libcupti.so.13")}
    line = [sys.executable, "-m", "gapless", "record", "-o", str(tmp_path / "a.gapless"), "--", str(fake.program)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5
    assert "libcupti cannot be loaded" in done.stderr


def test_max_size_stops_the_recording_and_not_the_program(fake: Any, content: Content, tmp_path: Path) -> None:
    done = fake.record(tmp_path / "a.gapless", "--max-size", "1MiB", command=[fake.program, "4000", "0", "exit"])
    assert done.returncode == 5
    assert "--max-size" in done.stderr
    assert (tmp_path / "a.gapless").stat().st_size <= 1 << 20
    found = content(tmp_path / "a.gapless")
    (pid,) = found.process
    assert found.ends[pid]["reason"] == "max-size"
    assert 0 < len(found.records[10]) < 8000
    assert found.ends[pid]["dropped"] > 0


@pytest.mark.parametrize("limit", [64, 1000])
def test_a_limit_on_file_sizes_is_no_death_for_the_program(fake: Any, tmp_path: Path, limit: int) -> None:
    """Below such a limit the kernel sends SIGXFSZ, which ends a program that does not expect it."""
    path = tmp_path / "a.gapless"
    line = f'ulimit -f {limit}; exec "$@"'
    record = [sys.executable, "-m", "gapless", "record", "-o", str(path), "--", str(fake.program), "4000", "1", "exit"]
    command = ["bash", "-c", line, "sh", *record]
    done = subprocess.run(command, env=fake.environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 5, done.stderr
    assert path.stat().st_size <= limit << 10


def test_a_program_that_closes_all_files(fake: Any, content: Content, tmp_path: Path) -> None:
    """The number of the recorder's file may become one of the program's own files: nothing is written into that."""
    code = """
import ctypes, os, sys
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_init()
cuda.fake_launch()
os.closerange(3, 4096)
own = open(sys.argv[1], "wb")
while own.fileno() < 800:
    own = os.fdopen(os.dup(own.fileno()), "wb")
    kept = globals().setdefault("kept", [])
    kept.append(own)
cuda.fake_launch()
cuda.fake_time_to_flush()
cuda.fake_launch()
"""
    own = tmp_path / "own"
    fake.record(tmp_path / "a.gapless", command=[sys.executable, "-c", code, str(own)])
    assert own.read_bytes() == b""
    assert len(content(tmp_path / "a.gapless").records[10]) == 3


def test_after_and_for(fake: Any, content: Content, tmp_path: Path) -> None:
    path = tmp_path / "a.gapless"
    code = """
import ctypes, os, select, sys
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_init()
cuda.fake_launch()
for _ in range(600):  # until the recording has ended
    select.select([], [], [], 0.05)
    cuda.fake_launch()
    if b'"reason"' in open(sys.argv[1], "rb").read():
        break
last = cuda.fake_launch()
print(last, file=open(sys.argv[2], "w"))
"""
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "last")]
    fake.record(path, "--after", "0.2", "--for", "0.2", command=command)
    found = content(path)
    numbers = [int(row["correlationId"]) for row in found.records[10]]
    assert numbers[0] > 1
    assert numbers[-1] < int((tmp_path / "last").read_text())
    (pid,) = found.process
    assert found.ends[pid]["reason"] == "for"
    assert found.process[pid]["begins"] == "after"
    asked = [row for row in found.records[5] if row["start"] < found.ends[pid]["until"]]
    assert 1 <= len(asked) < len(found.records[5])  # what was launched had a second to come to its end


def test_text_that_changes_behind_a_pointer(fake: Any, content: Content, tmp_path: Path) -> None:
    code = """
import ctypes, os
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_init()
for name in (b"first", b"second", b"first"):
    cuda.fake_rename(name)
    cuda.fake_launch()
    cuda.fake_time_to_flush()
"""
    fake.record(tmp_path / "a.gapless", command=[sys.executable, "-c", code])
    assert content(tmp_path / "a.gapless").names == ["first", "second", "first"]


def test_a_program_that_removes_its_recording_keeps_its_status(fake: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.gapless"
    done = fake.record(path, command=["sh", "-c", f"rm {path}; exit 7"])
    assert done.returncode == 7
    assert "cannot be read any more" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("code", [
    "open(path, 'w').write('[1, 2, 3]')", "os.unlink(path); open(path, 'w').write('[1, 2, 3]')",
    "os.unlink(path); os.mkfifo(path)", "os.unlink(path); os.mkdir(path)",
    "open(path, 'wb').write(b'\\x93GAPLESS' + bytes(24))",
])  # fmt: skip
def test_what_a_program_puts_in_place_of_its_recording_is_left(
    fake: Any, tmp_path: Path, code: str, older: bool
) -> None:
    path, before = tmp_path / "a.json", b"\x93GAPLESS" + b"old" * 100
    if older:
        path.write_bytes(before)
    line = [sys.executable, "-c", f"import os; path = {str(path)!r}; {code}; os._exit(3)"]
    done = fake.record(path, "--force", command=line)
    assert done.returncode == 3
    assert "The program replaced" in done.stderr
    assert path.exists()
    if path.is_file():
        assert path.read_bytes() in (b"[1, 2, 3]", b"\x93GAPLESS" + bytes(24), b"")
    kept = [file for file in tmp_path.iterdir() if file != path]
    assert [file.read_bytes() for file in kept] == [before] * older
    assert all(str(file) in done.stderr for file in kept)


def test_a_program_that_removes_its_recording_gives_the_older_one_back(fake: Any, tmp_path: Path) -> None:
    path, before = tmp_path / "a.gapless", b"\x93GAPLESS" + b"old" * 100
    path.write_bytes(before)
    assert fake.record(path, "--force", command=["rm", path]).returncode == 0
    assert [(file, file.read_bytes()) for file in tmp_path.iterdir()] == [(path, before)]


def test_nothing_is_recorded_into_what_replaced_the_recording(fake: Any, tmp_path: Path) -> None:
    """Neither by the process that did it, nor by one that starts later."""
    path = tmp_path / "a.json"
    code = f"""
import ctypes, os, subprocess, sys
cuda = ctypes.CDLL(os.environ["FAKE"])
cuda.fake_launch()
with open({str(path)!r}, "w") as file:
    file.write("[1, 2, 3]")
cuda.fake_launch()
cuda.fake_time_to_flush()
subprocess.run([{str(fake.program)!r}, "3", "0", "exit"])
"""
    done = fake.record(path, command=[sys.executable, "-c", code])
    assert done.returncode == 0
    assert "The program replaced" in done.stderr
    assert path.read_bytes() == b"[1, 2, 3]"
