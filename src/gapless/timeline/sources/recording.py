"""Recordings of ``gapless record``: `.gapless` files, described in ``docs/recording-format.md``.

They hold CUPTI's activity records as they came, with the layout of the records and the text behind pointers, so files
of any CUPTI and of any process are read alike, without CUPTI. Nothing in them is code.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import BinaryIO

from gapless.model.errors import GaplessError
from gapless.timeline.sources.feed import Progress, head, open_file, pieces
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.recording_blocks import blocks
from gapless.timeline.sources.recording_format import MAGIC
from gapless.timeline.sources.recording_process import Processes
from gapless.timeline.sources.recording_tables import timeline
from gapless.timeline.timeline import Timeline

EXPECTED = "a recording of gapless (.gapless)"

_GZIP = b"\x1f\x8b"


def recognise(head: bytes) -> bool:
    """Tell whether a file that starts so may be a recording."""
    return head.startswith(MAGIC)


def is_recording(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file is a recording, by its name or how it starts; False for one that cannot be read."""
    file = Path(path)
    if file.name.endswith((".gapless", ".gapless.gz")):
        return True
    try:
        return recognise(head(file, len(MAGIC)))
    except GaplessError:
        return False


def read(path: Path, progress: Progress | None = None) -> Timeline:
    """Read a recording into a Timeline. Raises ``GaplessError`` for a file that holds none."""
    losses = Losses()
    try:
        with open_file(path) as file:
            if not file.read(len(_GZIP)).startswith(_GZIP):
                return _read(file, path, losses, progress)
        with tempfile.TemporaryFile(prefix="gapless-") as unpacked:
            unpacked.writelines(pieces(path, progress, losses))
            return _read(unpacked, path, losses, None)
    except MemoryError:
        raise GaplessError(f"{path}: not enough memory to read it.") from None


def _read(file: BinaryIO, path: Path, losses: Losses, progress: Progress | None) -> Timeline:
    processes = Processes(losses)
    size = file.seek(0, 2)
    processes.read(blocks(file, size, str(path), losses, progress))
    if not processes.all:
        raise GaplessError(_nothing(path, processes, losses))
    found = timeline(processes, str(path), losses)
    if not len(found.ops) and not len(found.calls) and found.lost:
        raise GaplessError(f"{path} is a damaged recording, and nothing of use could be read of it. {found.lost[0]}")
    return found


def _nothing(path: Path, processes: Processes, losses: Losses) -> str:
    """Say why a recording has no process in it."""
    if losses.count:
        return f"{path} is a damaged recording, and nothing of use could be read of it. {losses.sentences()[0]}"
    said = next((str(note["text"]) for note in processes.notes if isinstance(note.get("text"), str)), "")
    return (
        f"{path} is a recording without any CUDA activity: the program never used CUDA, or the recorder could not "
        f"start in it.{' ' + said if said else ''}"
    )
