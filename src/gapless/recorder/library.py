"""The recorder's library: found where a wheel brings it, otherwise compiled once into the user's cache.

It needs CUPTI twice: the headers to be compiled, ``libcupti`` when a program runs. Both come with the extra ``record``
(the wheel nvidia-cuda-cupti) or with a CUDA toolkit.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from gapless.model import native
from gapless.model.errors import GaplessError
from gapless.model.extras import install_line
from gapless.recorder.layouts import layout_source

NAME = "libgapless-recorder.so"
_HERE = Path(__file__).parent
_ITS_FUNCTION = b"\0cuptiActivityRegisterCallbacks\0"  # in the table of names of every CUPTI


@dataclass(frozen=True, slots=True)
class Cupti:
    """A CUPTI on this machine: its library and the folder of its headers, where they are there."""

    library: Path
    headers: Path | None


def _no_cupti() -> str:
    return (
        f"gapless record needs NVIDIA's CUPTI and found none: {install_line('record')}, or set GAPLESS_CUPTI to a "
        "libcupti.so of your own."
    )


def cuptis() -> Iterator[Cupti]:
    """Give the CUPTIs of this machine, the one to be used first.

    That is GAPLESS_CUPTI where it is set, then the wheels of this Python, then CUDA toolkits.
    """
    if own := os.environ.get("GAPLESS_CUPTI"):
        library = Path(own)
        if wrong := _no_cupti_in(library):
            raise GaplessError(f"GAPLESS_CUPTI is {own}, and {wrong}.")
        yield Cupti(library, _headers(library))
    places: list[tuple[Path, str]] = []
    for entry in map(Path, sys.path):
        places += [(entry / "nvidia" / "cu13", "lib"), (entry / "nvidia" / "cuda_cupti", "lib")]
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for toolkit in [*filter(None, toolkits), *sorted(map(str, Path("/usr/local").glob("cuda-*")), reverse=True)]:
        places += [(Path(toolkit), "lib64"), (Path(toolkit), "lib"), (Path(toolkit) / "extras" / "CUPTI", "lib64")]
    for root, folder in places:
        found = [file for file in (root / folder).glob("libcupti.so*") if re.fullmatch(r"libcupti\.so\.\d+", file.name)]
        for library in sorted(found, reverse=True):
            yield Cupti(library, _headers(library))


def _no_cupti_in(path: Path) -> str:
    """Say why a file cannot be a CUPTI; nothing where it may be one. It is not loaded for that."""
    try:
        if not path.exists():
            return "there is no such file"
        if path.is_dir():
            return "that is a folder. Name the libcupti.so in it"
        if not path.is_file():
            return "that is no regular file. Name a libcupti.so"
        with path.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                return "that is no shared library. Name a libcupti.so"
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if content.find(_ITS_FUNCTION) < 0:
                    return "that is a library, but no CUPTI. Name a libcupti.so"
    except OSError as problem:
        return f"that cannot be read: {problem.strerror}"
    return ""


def _headers(library: Path) -> Path | None:
    for folder in (library.parent.parent / "include", library.resolve().parent.parent / "include"):
        if (folder / "cupti_activity.h").is_file():
            return folder
    return None


def find_cupti() -> Path:
    """Give the ``libcupti`` that records. Raises GaplessError where there is none."""
    for cupti in cuptis():
        return cupti.library
    raise GaplessError(_no_cupti())


def missing_driver() -> str:
    """Say that this machine has no driver for NVIDIA's GPUs; nothing where it has one."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "There is no NVIDIA driver on this machine (libcuda.so.1 is not found)."
    return ""


def find_library() -> Path:
    """Give the recorder's library: of the wheel, or compiled from the sources.

    Raises GaplessError with what to install where it cannot be compiled.
    """
    brought = _HERE / NAME
    return brought if brought.is_file() else compile_here(native.cache_folder())


def compile_here(root: Path) -> Path:
    """Give the library in a folder of *root* named after its sources, compiler and headers; compile it if need be.

    Raises GaplessError with what to install where it cannot be compiled.
    """
    headers = next((cupti.headers for cupti in cuptis() if cupti.headers), None)
    if headers is None:
        raise GaplessError(f"{_no_cupti()}\n(This gapless runs from its source, so it needs CUPTI's headers as well.)")
    compiler = native.find_compiler()
    if compiler is None:
        raise GaplessError(
            "gapless record has a small part in C, which is compiled once where gapless runs from its source, and "
            "found no C compiler: install one (on Debian or Ubuntu: apt install gcc), or install gapless from a wheel."
        )
    table = layout_source((headers / "cupti_activity.h").read_text(errors="replace"))
    folder = root / f"recorder-{native.fingerprint(_sources(), compiler, *native.FLAGS, table)}"
    if not native.is_whole(folder / NAME):
        compile_library(folder, compiler, headers, table)
    return folder / NAME


def compile_library(folder: Path, compiler: str, headers: Path, table: str) -> None:
    """Compile the library into *folder*, all or nothing. Raises GaplessError, see ``native.compile_library``."""
    includes = ["-ftls-model=initial-exec", "-I", str(_HERE / "native" / "shim"), "-isystem", str(headers)]
    sources = [str(file) for file in _sources() if file.suffix == ".c"]
    native.compile_library(
        folder / NAME, compiler, [*includes, *sources], part="recorder", texts={"layouts.inc": table},
        note=f" with the headers in {headers}",
    )  # fmt: skip


def _sources() -> list[Path]:
    return sorted((_HERE / "native").glob("*.[ch]")) + sorted((_HERE / "native" / "shim").glob("*.h"))


def version() -> str:
    """Give the version of gapless, for the recording; empty where it runs without being installed."""
    try:
        return metadata.version("gapless")
    except metadata.PackageNotFoundError:
        return ""
