"""What the blocks of a recording say, process by process, gathered into columns.

What a block says holds for its own process and the blocks behind it: layouts, and the text behind pointers, which may
change its meaning when a library is unloaded. So names are looked up block by block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gapless.timeline.sources.columns import Columns, Numbering, joined
from gapless.timeline.sources.cupti import NONE
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.mending import MALFORMED
from gapless.timeline.sources.recording_blocks import Block
from gapless.timeline.sources.recording_format import (
    ACCESS_ROW,
    CALLSITE_ROW,
    CLOCK_ROW,
    DROPPED_ROW,
    STACK_ROW,
    STRING_ENTRY,
    Space,
)
from gapless.timeline.sources.recording_format import Block as Type
from gapless.timeline.sources.recording_records import Kind, columns_of, empty, layouts

_LONGEST = 64 << 10  # bytes kept of a text
_MOST_PROCESSES = 1 << 14

_ROWS = {
    Type.CLOCK: CLOCK_ROW, Type.STACKS: STACK_ROW, Type.CALLSITES: CALLSITE_ROW, Type.ACCESSES: ACCESS_ROW,
    Type.DROPPED: DROPPED_ROW,
}  # fmt: skip
# The columns of a kind that hold pointers to text, and where the row of the text goes.
_POINTERS = {Kind.KERNEL: ("name",), Kind.MARKER: ("name", "domain"), Kind.DEVICE: ("name",)}
_CALLS = {Kind.RUNTIME: Space.RUNTIME, Kind.DRIVER: Space.DRIVER}

_VERSION = re.compile(r"_v\d{4,}$")  # CUPTI's suffix for the runtime's version: cudaMemcpyAsync_v3020

_NOT_JSON = "Left out {events} of the recording's own notes: no readable JSON."
_CUT_ROWS = "Left out rows of a block that is cut short."


@dataclass(slots=True, eq=False)
class Process:
    """One process that was recorded. ``strings`` of the whole recording are referred to by number."""

    number: int  # in order of appearance, from 0
    pid: int
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    end: dict[str, Any] | None = None
    texts: dict[int, dict[int, str]] = field(default_factory=dict[int, "dict[int, str]"])  # space: key: text
    _dtypes: dict[int, np.dtype[Any]] = field(default_factory=dict[int, "np.dtype[Any]"])
    _tables: dict[int, list[Columns]] = field(default_factory=dict[int, "list[Columns]"])
    _rows: dict[int, list[NDArray[Any]]] = field(default_factory=dict[int, "list[NDArray[Any]]"])

    def text(self, space: int, key: int) -> str:
        """Give a text by its key; empty where the recording has none."""
        return self.texts.get(space, {}).get(key, "")

    def table(self, kind: int) -> Columns:
        """Give all records of a kind as columns."""
        parts = self._tables.get(kind)
        if not parts:
            return empty(kind) | {f"{name}Text": np.empty(0, np.int32) for name in _texts_of(kind)}
        if len(parts) > 1:
            parts[:] = [joined(parts)]
        return dict(parts[0])

    def rows(self, type_: Type) -> NDArray[Any]:
        """Give all rows of the blocks of a type."""
        return np.concatenate([np.empty(0, _ROWS[type_]), *self._rows.get(type_, ())])

    def add(self, block: Block, strings: Numbering, losses: Losses) -> None:
        """Take a block of this process."""
        if block.type == Type.RECORDS:
            for kind, columns in columns_of(block.payload, self._dtypes, losses).items():
                self._tables.setdefault(kind, []).append(columns | self._named(kind, columns, strings))
        elif block.type == Type.STRINGS:
            for space, key, text in _entries(block.payload, losses):
                self.texts.setdefault(space, {})[key] = text
        elif block.type in _ROWS:
            dtype = _ROWS[Type(block.type)]
            count = len(block.payload) // dtype.itemsize
            if count * dtype.itemsize < len(block.payload):
                losses.add(_CUT_ROWS)
            self._rows.setdefault(block.type, []).append(np.frombuffer(block.payload, dtype, count))
        elif block.type in (Type.LAYOUT, Type.NOTE, Type.END):
            told = json_of(block.payload, losses)
            if block.type == Type.LAYOUT and told is not None:
                self._dtypes |= layouts(told, losses)
            elif block.type == Type.NOTE and told is not None:
                self.notes.append(told)
            elif told is not None:
                self.end = told

    def _named(self, kind: int, columns: Columns, strings: Numbering) -> Columns:
        """Look up the texts that records refer to by pointer or number."""
        found: Columns = {}
        for name in _texts_of(kind):
            keys, row = np.unique(columns[name], return_inverse=True)
            space = _CALLS.get(Kind(kind), Space.POINTER)
            texts = [self.text(space, key & 0xFFFFFFFFFFFFFFFF) for key in keys.tolist()]
            if space == Space.RUNTIME:
                texts = [_VERSION.sub("", text) for text in texts]
            numbers = np.array([strings.of([text])[0] if text else NONE for text in texts], np.int32)
            found[f"{name}Text"] = numbers[row]
        return found


def _texts_of(kind: int) -> tuple[str, ...]:
    return ("cbid",) if kind in _CALLS else _POINTERS.get(Kind(kind), ())


class Processes:
    """The processes of a recording in order of appearance. A number used again is another process."""

    def __init__(self, losses: Losses) -> None:
        self.strings = Numbering()
        self.all: list[Process] = []
        self.end: dict[str, Any] | None = None  # of the whole recording
        self.notes: list[dict[str, Any]] = []
        self.demangled: dict[str, str] = {}  # names of C++ by what the compiler made of them
        self._now: dict[int, Process] = {}
        self._losses = losses

    def read(self, blocks: Iterable[Block]) -> None:
        """Take all blocks of a file."""
        for block in blocks:
            if block.type == Type.STRINGS:
                self.demangled |= _demangled(block.payload)
            if block.process == 0:
                self._of_all(block)
            elif block.type == Type.PROCESS:
                process = self._new(block.process)
                process.facts = json_of(block.payload, self._losses) or {}
            else:
                process = self._now.get(block.process) or self._new(block.process)
                process.add(block, self.strings, self._losses)

    def _of_all(self, block: Block) -> None:
        if block.type == Type.END:
            self.end = json_of(block.payload, self._losses)
        elif block.type == Type.NOTE and (told := json_of(block.payload, self._losses)) is not None:
            self.notes.append(told)

    def _new(self, pid: int) -> Process:
        process = self._now[pid] = Process(len(self.all), pid)
        if len(self.all) < _MOST_PROCESSES:
            self.all.append(process)
        else:
            self._losses.add(f"Left out all processes after the first {_MOST_PROCESSES:,}.")
        return process


def json_of(payload: bytes, losses: Losses) -> dict[str, Any] | None:
    """Decode a block that is a JSON object; None for one that is not."""
    try:
        told = msgspec.json.decode(payload)
    except MALFORMED:
        told = None
    if isinstance(told, dict):
        return told
    losses.add(_NOT_JSON)
    return None


def _demangled(payload: bytes) -> dict[str, str]:
    pairs = (text.partition("\0") for space, _, text in _entries(payload, Losses()) if space == Space.DEMANGLED)
    return {mangled: name for mangled, _, name in pairs if mangled and name}


def _entries(payload: bytes, losses: Losses) -> Iterator[tuple[int, int, str]]:
    """Give space, key and text of the entries of a STRINGS block."""
    at = 0
    head = STRING_ENTRY.itemsize
    while at + head <= len(payload):
        key = int.from_bytes(payload[at : at + 8], "little")
        space = int.from_bytes(payload[at + 8 : at + 12], "little")
        length = int.from_bytes(payload[at + 12 : at + 16], "little")
        if at + head + length > len(payload):
            break
        text = payload[at + head : at + head + min(length, _LONGEST)].decode("utf-8", "replace")
        yield space, key, text
        at += head + length + -length % 8
    if at < len(payload):
        losses.add("Left out texts of a block that is cut short.")
