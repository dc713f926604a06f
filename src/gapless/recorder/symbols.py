"""Names and lines for native frames, looked up when the program has ended.

``addr2line`` reads them from the debug information of each module; without it, or without debug information, a frame
stays what the recorder saw: the module, the nearest exported name and the offset.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gapless.recorder import blocks
from gapless.timeline.sources.recording_format import STACK_ROW, STRING_ENTRY, Block, Space

_NATIVE = 1
_STUB = ("__device_stub__", "__wrapper__device_stub_")  # how nvcc names what launches a kernel
_FIRST_KEY = 1 << 24  # keys of the words that are added here; the recorder numbers its own from 1
_HEADER = re.compile(r"/include/|\.(h|hpp|hh|cuh|inl)$")
_AT_ONCE = 2000  # addresses a call of addr2line


class Place(NamedTuple):
    """Where an address is in the source; empty and -1 where that is not known."""

    function: str
    source: str
    line: int


def resolve(path: Path) -> None:
    """Write the native frames of a recording again with source file, function and line where they can be found."""
    tool = shutil.which("addr2line")
    if tool is None:
        return
    words: dict[tuple[int, int], str] = {}
    rows: dict[int, list[np.ndarray]] = {}
    with blocks.opened(path) as file:
        for kind, process, begin, length in blocks.walk(path):
            if kind not in (Block.STRINGS, Block.STACKS):
                continue
            file.seek(begin)
            payload = file.read(length)
            if kind == Block.STRINGS:
                words.update({(process, key): text for key, text in _source_words(payload)})
            else:
                whole = np.frombuffer(payload, STACK_ROW, len(payload) // STACK_ROW.itemsize)
                rows.setdefault(process, []).append(whole[whole["what"] == _NATIVE])
    for process, parts in rows.items():
        found = np.concatenate(parts)
        modules = {int(key): words.get((process, int(key)), "") for key in np.unique(found["file"])}
        _write(path, process, found, _places(tool, found, modules))


def _source_words(payload: bytes) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    at = 0
    while at + STRING_ENTRY.itemsize <= len(payload):
        entry = np.frombuffer(payload, STRING_ENTRY, 1, at)[0]
        at += STRING_ENTRY.itemsize
        size = int(entry["bytes"])
        if int(entry["space"]) == Space.SOURCE:
            found.append((int(entry["key"]), payload[at : at + size].decode("utf-8", "replace")))
        at += size + -size % 8
    return found


def _places(tool: str, rows: np.ndarray, modules: dict[int, str]) -> dict[tuple[int, int], list[Place]]:
    """Give the places by (module's key, address), where the module's debug information knows.

    Several where functions were inlined, innermost first.
    """
    found: dict[tuple[int, int], list[Place]] = {}
    for key, module in modules.items():
        if not Path(module).is_file():
            continue
        addresses = [int(address) for address in np.unique(rows["address"][rows["file"] == key])]
        for first in range(0, len(addresses), _AT_ONCE):
            part = addresses[first : first + _AT_ONCE]
            line = [tool, "-C", "-f", "-a", "-i", "-e", module, *map(hex, part)]
            try:
                said = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=60, check=False)
            except (OSError, subprocess.TimeoutExpired):
                break
            if said.returncode:
                break
            found.update({(key, address): chain for address, chain in _answers(said.stdout)})
    return found


def _answers(text: str) -> Iterator[tuple[int, list[Place]]]:
    """Give (address, places) for each address that ``addr2line -a -f -i`` knows something of."""
    for part in re.split(r"^0x(?=[0-9a-f]+$)", text, flags=re.MULTILINE)[1:]:
        address, *lines = part.splitlines()
        chain = [_place(function, where) for function, where in zip(lines[::2], lines[1::2], strict=False)]
        known = [place for place in chain if place.function or place.source]
        if known:
            yield int(address, 16), known


def _place(function: str, where: str) -> Place:
    source, _, number = where.split(" (discriminator")[0].rpartition(":")
    known = source not in ("", "??") and number.isdecimal() and int(number) > 0
    return Place("" if function == "??" else function, source if known else "", int(number) if known else -1)


def _choose(chain: list[Place], *, in_stub: bool) -> tuple[Place | None, bool]:
    """Choose the place to show of one frame, and say whether the frame outside of it is still nvcc's launch stub.

    Headers hide where a call was written, and so does the stub that nvcc makes of each kernel: it stands in the
    line of the kernel, not of its launch. None: nothing of this frame is worth showing.
    """
    rest = list(chain)
    while rest and (in_stub or rest[0].function.startswith(_STUB)):
        in_stub = rest[0].function.startswith(_STUB)  # then the function named like the kernel follows
        rest.pop(0)
    if not rest:
        return None, in_stub
    return next((place for place in rest if not _HEADER.search(place.source)), rest[0]), False


def _write(path: Path, process: int, rows: np.ndarray, places: dict[tuple[int, int], list[Place]]) -> None:
    keys: dict[str, int] = {}
    out = rows.copy()
    changed = np.zeros(len(rows), dtype=bool)
    in_stub = False
    for i, row in enumerate(rows):
        in_stub = in_stub and row["depth"] > 0
        chain = places.get((int(row["file"]), int(row["address"])))
        if chain is None:
            continue
        place, in_stub = _choose(chain, in_stub=in_stub)
        changed[i] = True
        texts = {"function": place.function, "file": place.source} if place else {"function": chain[0].function}
        out[i]["line"] = place.line if place else -1
        for name, text in texts.items():
            if text:
                out[i][name] = keys.setdefault(text, _FIRST_KEY + len(keys))
    if not changed.any():
        return
    payload = bytearray()
    for text, key in keys.items():
        raw = text.encode()
        payload += np.array([(key, Space.SOURCE, len(raw))], STRING_ENTRY).tobytes() + raw + bytes(-len(raw) % 8)
    blocks.append(path, Block.STRINGS, bytes(payload), process=process)
    blocks.append(path, Block.STACKS, out[changed].tobytes(), process=process)
