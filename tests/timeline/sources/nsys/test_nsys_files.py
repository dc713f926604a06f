"""Files around an export: reports that nsys converts, gzip, and that nothing of the user's is touched."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gapless.model.errors import GaplessError
from gapless.timeline.sources import load, nsys

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def kernels(export: SimpleNamespace, count: int = 1) -> dict[str, list[object]]:
    return {KERNEL: [export.kernel(10 * row, 10 * row + 5, row) for row in range(count)]}


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir() if path.is_file()}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Put a program called nsys on the path."""
    folder.mkdir()
    program = folder / "nsys"
    program.write_text(f"#!{sys.executable}\nimport shutil, sys\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_nothing_is_written_beside_an_export(export: SimpleNamespace, tmp_path: Path) -> None:
    path = export.save(kernels(export))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    path.chmod(0o444)
    before = state(tmp_path)
    assert len(nsys.read(path).ops) == 1
    assert state(tmp_path) == before


def test_what_only_the_write_ahead_log_holds_is_said_to_be_left_out(export: SimpleNamespace) -> None:
    path = export.save(kernels(export))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"DELETE FROM {KERNEL}")
    connection.commit()
    try:
        timeline = nsys.read(path)
    finally:
        connection.close()
    assert len(timeline.ops) == 1
    assert timeline.lost == (f"Left out what is not yet merged into the database, in {path.name}-wal.",)


def test_a_gzipped_export_is_unpacked_for_reading(export: SimpleNamespace, tmp_path: Path) -> None:
    path = export.save(kernels(export))
    packed = tmp_path / "export.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    timeline = nsys.read(packed)
    assert export.contents(timeline) == export.contents(nsys.read(path))
    assert timeline.source == str(packed)


def test_progress_ends_at_the_files_size(export: SimpleNamespace) -> None:
    path = export.save(kernels(export, 3000))
    seen: list[tuple[int, int]] = []
    nsys.read(path, lambda done, total: seen.append((done, total)))
    size = path.stat().st_size
    assert seen == sorted(seen)
    assert seen[-1] == (size, size)


@pytest.mark.parametrize("suffix", [".nsys-rep", ".qdrep"])
def test_a_report_is_converted_by_nsys(
    export: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    made = export.save(kernels(export))
    report = tmp_path / f"my report{suffix}"
    report.write_bytes(b"a report")
    # As nsys does it: nsys export --type sqlite --output FILE REPORT
    install(
        tmp_path / "bin",
        monkeypatch,
        f"assert sys.argv[1:5] == ['export', '--type', 'sqlite', '--output'], sys.argv\n"
        f"assert open(sys.argv[6], 'rb').read() == b'a report'\nshutil.copy({str(made)!r}, sys.argv[5])",
    )
    before = state(tmp_path)
    timeline = nsys.read(report)
    assert len(timeline.ops) == 1
    assert timeline.source == str(report)
    assert state(tmp_path) == before


def test_what_nsys_says_when_it_fails_is_passed_on(
    export: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"a report")
    # It may have begun the export before it failed.
    install(
        tmp_path / "bin",
        monkeypatch,
        "open(sys.argv[5], 'w').close()\nprint('Generating...')\nsys.exit('Importer error: the report is broken')",
    )
    with pytest.raises(
        GaplessError,
        match=r"run\.nsys-rep is a report .* nsys could not export it: Importer error: the report is broken",
    ):
        nsys.read(report)


def test_without_nsys_the_command_to_run_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "my run.nsys-rep"
    report.write_bytes(b"a report")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GaplessError) as caught:
        nsys.read(report)
    assert f"nsys export --type sqlite --output '{tmp_path}/my run.sqlite' '{tmp_path}/my run.nsys-rep'" in str(
        caught.value
    )
    (tmp_path / "my run.sqlite").touch()
    with pytest.raises(GaplessError, match=r"Name its export instead: .*my run\.sqlite"):
        nsys.read(report)


def test_load_tells_exports_and_reports(
    export: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export.save(kernels(export))
    assert load(path).format == "nsys"
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert load(packed).format == "nsys"
    monkeypatch.setenv("PATH", "")
    report = tmp_path / "run.qdrep"
    report.write_bytes(b"a report")
    with pytest.raises(GaplessError, match="is a report of Nsight Systems"):
        load(report)
    stream = tmp_path / "run.qdstrm"
    stream.write_bytes(b"\0\1\2")
    with pytest.raises(GaplessError, match="QdstrmImporter"):
        load(stream)


def test_exports_are_recognised_by_their_first_bytes(export: SimpleNamespace) -> None:
    assert nsys.recognise(export.save({}).read_bytes()[:100])
    assert not nsys.recognise(b'{"traceEvents": []}')
    assert not nsys.recognise(b"")


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(GaplessError, match="no such file"):
        nsys.read(tmp_path / "none.sqlite")


def test_paths_of_any_kind_are_opened(export: SimpleNamespace, tmp_path: Path) -> None:
    odd = tmp_path / "100% sure? a#b&mode=rwc é.sqlite"
    shutil.copy(export.save(kernels(export)), odd)
    assert len(nsys.read(odd).ops) == 1
