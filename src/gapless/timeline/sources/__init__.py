"""The formats that gapless reads: one module each, with ``recognise(head)`` and ``read(path, progress)``."""

from __future__ import annotations

import os
from pathlib import Path

from gapless.model.errors import GaplessError
from gapless.timeline.sources import torch_profiler
from gapless.timeline.sources.feed import Progress, head
from gapless.timeline.timeline import Timeline

SOURCES = (torch_profiler,)

_HEAD = 64 << 10  # bytes a format is recognised by


def load(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Timeline:
    """Read a timeline file into a Timeline. What the file is, is found by its content; it may be gzipped.

    ``progress(done, total)`` is called with bytes of the file as they are read.

    Raises ``GaplessError`` where there is no such file, or it holds no timeline that gapless reads.
    """
    file = Path(path)
    start = head(file, _HEAD)
    for source in SOURCES:
        if source.recognise(start):
            return source.read(file, progress)
    raise GaplessError(f"{path}: not a timeline")
