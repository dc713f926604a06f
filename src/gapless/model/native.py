"""Small parts in C: a wheel brings them, and where gapless runs from its source they are compiled once.

What is compiled lies in the user's cache, in a folder named after the sources, the compiler and its arguments.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gapless.model.errors import GaplessError

FLAGS = ("-std=c11", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-shared", "-Wl,-z,defs")


def find_compiler() -> str | None:
    """Give the C compiler: CC where it is set, else the first on the PATH."""
    return os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


def cache_folder() -> Path:
    """Give the folder that gapless keeps things in that it can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gapless"


def library_of(source: Path, root: Path, name: str, *, part: str, defines: Sequence[str] = ()) -> Path:
    """Give the library of one source file, in a folder of *root*; compile it if need be.

    *part* says which part of gapless it is; *defines* are macros. Raises GaplessError where there is no compiler, and
    as ``compile_library``.
    """
    compiler = find_compiler()
    if compiler is None:
        raise GaplessError(f"no C compiler is there to compile gapless's {part}")
    flags = [f"-D{name}" for name in defines]
    path = root / f"{source.stem}-{fingerprint([source], compiler, *FLAGS, *flags)}" / name
    if not is_whole(path):
        compile_library(path, compiler, [*flags, str(source)], part=part)
    return path


def is_whole(library: Path) -> bool:
    """Tell whether a library is there, and not cut off: to load one that is may end the process.

    What an ELF file has last is the table of its sections; its head says where that is, and how long.
    """
    try:
        with library.open("rb") as file:
            head = file.read(64)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return False
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        return False
    start, (length, count) = struct.unpack_from("<Q", head, 0x28)[0], struct.unpack_from("<HH", head, 0x3A)
    return bool(start) and start + length * count <= size


def fingerprint(sources: Iterable[Path], *words: str) -> str:
    """Give a name for what is made of these sources in a way that *words* tell."""
    digest = hashlib.sha256("\0".join(words).encode())
    for file in sources:
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def compile_library(
    target: Path,
    compiler: str,
    arguments: Sequence[str],
    *,
    part: str,
    texts: Mapping[str, str] | None = None,
    note: str = "",
) -> None:
    """Compile a library to *target*, all or nothing.

    *part* says which part of gapless it is. *texts* are files that are written beside it, where includes are looked
    for first. Raises GaplessError with the compiler's words (and *note* before them), and where the folder cannot be
    written to.
    """
    with _kept_in(target.parent, part), tempfile.TemporaryDirectory(dir=target.parent) as work:
        for name, text in (texts or {}).items():
            (Path(work) / name).write_text(text)
        made = Path(work) / target.name
        line = [*_command(compiler), *FLAGS, "-I", work, *arguments, "-o", str(made), "-ldl", "-lpthread"]
        try:
            done = subprocess.run(line, capture_output=True, text=True, errors="replace", check=False)
        except OSError as problem:
            raise GaplessError(f"The C compiler {compiler} cannot be run: {problem.strerror}") from None
        if done.returncode and "No space left on device" in done.stderr:
            raise OSError(errno.ENOSPC, "No space left on device")
        if done.returncode:
            said = "\n".join(done.stderr.strip().splitlines()[:8])
            raise GaplessError(f"{compiler} could not compile gapless's {part}{note}:\n{said}")
        if not made.is_file():
            raise GaplessError(
                f"{compiler} was to compile gapless's {part}, and made nothing, without a complaint. Is it a C "
                "compiler? CC names another one."
            )
        with made.open("rb") as file:
            os.fsync(file.fileno())  # its name must not outlive a crash that its content does not
        made.replace(target)


def _command(compiler: str) -> list[str]:
    """Give the words of CC: a program, whose path may hold spaces, or one with arguments, such as ccache gcc."""
    return [compiler] if shutil.which(compiler) else compiler.split()


@contextmanager
def _kept_in(folder: Path, part: str) -> Iterator[None]:
    """Make the folder; say of what cannot be written to it that it is the cache, and how to have another one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as problem:
        raise GaplessError(
            f"The library for the {part} is compiled once and kept in {folder}, and that cannot be written to: "
            f"{problem.strerror or problem}.\nXDG_CACHE_HOME names another folder for caches."
        ) from None
