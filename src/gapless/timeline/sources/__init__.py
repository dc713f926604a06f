"""The timeline formats that gapless reads.

Each is one module with ``EXPECTED`` (what it reads, in words), ``recognise(head)`` (may a file that starts so be one?)
and ``read(path, progress)``, and one entry in ``SOURCES``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from gapless.model.errors import GaplessError
from gapless.timeline.sources import nsys, recording, torch_profiler
from gapless.timeline.sources.feed import Progress, head
from gapless.timeline.timeline import Timeline

SOURCES = (torch_profiler, nsys, recording)

_HEAD = 64 << 10  # bytes by which a format is recognised

# What else people hand in: how it starts, what it is.
_STRANGERS = (
    (rb"PK\x03\x04", "a zip archive (or a file that is one inside, such as .pt and .npz)"),
    (rb"\x80[\x02-\x05]", "a Python pickle"),
    (rb"\x28\xb5\x2f\xfd", "packed with zstd: unpack it first"),
    (rb"\xfd7zXZ\0", "packed with xz: unpack it first"),
    (rb"BZh[1-9]", "packed with bzip2: unpack it first"),
    (rb"\x1f\x8b", "gzip within gzip: unpack it first"),
    (rb"[\s\S]{257}ustar", "a tar archive"),
    (rb"\x7fELF", "a program: gapless record makes a timeline of what it does"),
    (rb"\xff\xfe|\xfe\xff|[\[{]\0|\0[\[{]", "UTF-16 text: save it as UTF-8"),
    (rb"\s*<", "a web page or XML"),
    (rb"\0+\Z", "nothing but zero bytes"),
    (rb"(?:\s|#.*\n)*(?:machine|stream|buffer|thread|kernel|[hd]2[hd]|repeat) ", "a tape: gapless simulate plays it"),
    (rb"[^\0-\x08\x0e-\x1f]*\Z", "text that is not JSON"),
)


def load(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Timeline:
    """Read a timeline file into a Timeline. What the file is, is found by its content; it may be gzipped.

    ``progress(done, total)`` is called with bytes of the file as they are read.

    Raises ``GaplessError`` where there is no such file, or it holds no timeline that gapless reads.
    """
    file = Path(path)
    start = head(file, _HEAD)
    if start and file.suffix in nsys.REPORTS:
        return nsys.read(file, progress)
    for source in SOURCES:
        if source.recognise(start):
            return source.read(file, progress)
    what = next((what for pattern, what in _STRANGERS if re.match(pattern, start)), "no format that gapless knows")
    if not start:
        what = "empty"
    elif file.suffix == ".qdstrm":
        what = "an unfinished report of Nsight Systems: its QdstrmImporter finishes it"
    elif file.suffix == ".py":
        what = "a program: gapless record makes a timeline of what it does"
    elif file.suffix == ".tape":
        what = "a tape: gapless simulate plays it"
    raise GaplessError(f"{path} is {what}. Expected {' or '.join(source.EXPECTED for source in SOURCES)}.")
