"""Files are written whole or not at all."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from gapless.model.errors import GaplessError
from gapless.timeline.sinks import gzipped, write
from gapless.timeline.sinks.files import MARK, write_all

OURS = f'{{\n  "gapless": {{"about": "{MARK}", "streams": []}},\n'.encode()  # as a Chrome trace of ours begins


def test_written_whole(tmp_path: Path) -> None:
    write(tmp_path / "out", [b"a", b"b"])
    assert (tmp_path / "out").read_bytes() == b"ab"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    def pieces():
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(GaplessError, match=r"out cannot be written: No space left on device\. Nothing of it was kept"):
        write(tmp_path / "out", pieces())
    assert [path.name for path in tmp_path.iterdir()] == []


def test_interrupt_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(OURS)

    def pieces():
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "out", pieces())
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_bytes() == OURS


def test_what_gapless_wrote_is_replaced(tmp_path: Path) -> None:
    for made in (OURS, b"".join(gzipped([OURS])), b""):
        (tmp_path / "out").write_bytes(made)
        write(tmp_path / "out", [b"new"])
        assert (tmp_path / "out").read_bytes() == b"new"


def test_what_others_wrote_is_not(tmp_path: Path) -> None:
    quoted = f'{{"note": "compare with the page {MARK} on Monday"}}'.encode()
    comment = f"<svg>\n<!-- {MARK} -->\n</svg>".encode()
    tape = f"# {MARK}, and replaced by it only as long as nothing is changed: 00000000\n# hand edit\n".encode()
    packed = b"".join(gzipped([quoted]))
    for made in (
        b"mine",
        b"\x1f\x8bnot gzip after all",
        b" " + OURS,
        b"x" * (1 << 17) + OURS,
        quoted,
        comment,
        tape,
        packed,
    ):
        (tmp_path / "out").write_bytes(made)
        with pytest.raises(GaplessError, match="is there already, and gapless did not write it so"):
            write(tmp_path / "out", [b"new"])
        assert (tmp_path / "out").read_bytes() == made


def test_input_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(OURS)
    (tmp_path / "link").symlink_to(tmp_path / "in")
    (tmp_path / "hard").hardlink_to(tmp_path / "in")
    for name in ("in", "link", "hard"):
        with pytest.raises(GaplessError, match="is the input"):
            write(tmp_path / name, [b"new"], never=[tmp_path / "in"])
    assert (tmp_path / "in").read_bytes() == OURS


def test_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(OURS)
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", [b"new"])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_permissions_are_those_of_a_new_file_or_of_the_old_one(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write(tmp_path / "new", [OURS])
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    write(tmp_path / "new", [b"new"])
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(GaplessError, match="cannot be written"):
        write(tmp_path / "a", [b"x"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(("name", "why"), [
    ("none/out", "No such file or directory"), ("a\0b", "null"), (".", "Is a directory"), ("n" * 300, "too long"),
])  # fmt: skip
def test_places_that_take_no_file(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(GaplessError, match=why):
        write(f"{tmp_path}/{name}", [b"x"])


def test_several_files_are_written_all_or_none(tmp_path: Path) -> None:
    (tmp_path / "two").write_bytes(OURS)

    def fails():
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(GaplessError, match="two cannot be written"):
        write_all({tmp_path / "one": [b"1"], tmp_path / "two": fails()})
    assert [path.name for path in tmp_path.iterdir()] == ["two"]
    assert (tmp_path / "two").read_bytes() == OURS
    write_all({tmp_path / "one": [b"1"], tmp_path / "two": [b"2"]})
    assert [(tmp_path / name).read_bytes() for name in ("one", "two")] == [b"1", b"2"]


def test_a_pipe_is_written_to_directly(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write(tmp_path / "pipe", [b"a", b"b"])
    reader.join()
    assert read == [b"ab"]
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_pipe_whose_reader_has_gone_is_said(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def pieces():
        yield b"a" * (1 << 17)  # more than a pipe holds: the reader has it when this has gone through
        gone.wait()
        yield b"b" * (1 << 17)

    def read() -> None:
        with (tmp_path / "pipe").open("rb", buffering=0) as file:
            left = 1 << 17
            while left:
                left -= len(file.read(left))
        gone.set()

    gone = threading.Event()
    reader = threading.Thread(target=read)
    reader.start()
    with pytest.raises(GaplessError, match=r"pipe cannot be written: Broken pipe\.$"):
        write(tmp_path / "pipe", pieces())
    reader.join()


def test_what_is_neither_a_file_nor_a_pipe_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(tmp_path / "there"))
        with pytest.raises(GaplessError, match="there cannot be written: it is neither a file nor a pipe"):
            write(tmp_path / "there", [b"x"])


def test_devices_are_written_to_directly() -> None:
    write("/dev/null", [b"x"])
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(GaplessError, match="/dev/full cannot be written: No space left on device"):
        write("/dev/full", [b"x" * (1 << 20)])
