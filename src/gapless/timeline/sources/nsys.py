"""Nsight Systems: SQLite exports of schema 2 and 3, and the reports they are made from.

The vendor changes the schema at will, so every table and column is optional that a timeline can do without.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from gapless.model.errors import GaplessError
from gapless.timeline.sources.feed import Progress, open_file, pieces
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.nsys_database import Database
from gapless.timeline.sources.nsys_tables import timeline
from gapless.timeline.timeline import Timeline

EXPECTED = "an export or a report of Nsight Systems (.sqlite, .nsys-rep)"
REPORTS = (".nsys-rep", ".qdrep")  # what nsys export converts

_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"


def recognise(head: bytes) -> bool:
    """Tell whether a file that starts so may be an export: an SQLite database. Reports are told by their names."""
    return head.startswith(_SQLITE)


def read(path: Path, progress: Progress | None = None) -> Timeline:
    """Read an export, or a report by way of ``nsys export``, into a Timeline.

    Raises ``GaplessError`` for a file that is neither, and for a report where there is no ``nsys`` to convert it.
    """
    with open_file(path) as file:
        start = file.read(len(_SQLITE))
    losses = Losses()
    if start.startswith(_SQLITE):
        return _read(path, path, losses, progress)
    with tempfile.TemporaryDirectory(prefix="gapless-") as folder:
        export = Path(folder, "export.sqlite")
        if start.startswith(_GZIP):
            with export.open("wb") as unpacked:
                unpacked.writelines(pieces(path, progress, losses))
            return _read(path, export, losses, None)
        _convert(path, export)
        return _read(path, export, losses, progress)


def _read(path: Path, file: Path, losses: Losses, progress: Progress | None) -> Timeline:
    if (log := file.with_name(f"{file.name}-wal")).is_file() and log.stat().st_size:
        losses.add(f"Left out what is not yet merged into the database, in {log.name}.")
    with Database(file, str(path), losses, progress) as export:
        return timeline(export, losses)


def _convert(report: Path, export: Path) -> None:
    """Let nsys write the export of a report into a folder of our own. Nothing is written beside the report."""
    nsys = shutil.which("nsys")
    if nsys is None:
        beside = report.with_suffix(".sqlite")
        command = shlex.join(["nsys", "export", "--type", "sqlite", "--output", str(beside), str(report)])
        if beside.exists():
            raise GaplessError(f"{report} is a report of Nsight Systems. Name its export instead: {beside}")
        raise GaplessError(
            f"{report} is a report of Nsight Systems, and there is no nsys here to read it. Where there is one, run "
            f"{command} and name {beside} instead."
        )
    arguments = [nsys, "export", "--type", "sqlite", "--output", str(export), str(report)]
    try:
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as problem:
        raise GaplessError(
            f"{report} is a report of Nsight Systems, but {nsys} cannot be run: {problem.strerror or problem}."
        ) from None
    if done.returncode or not export.is_file():
        lines = (done.stderr.strip() or done.stdout.strip()).decode("utf-8", "replace").splitlines()
        said = lines[-1][:300] if lines else f"exit status {done.returncode}"
        raise GaplessError(f"{report} is a report of Nsight Systems, but nsys could not export it: {said}")
