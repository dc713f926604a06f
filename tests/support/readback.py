"""Reads a recording by docs/recording-format.md and nothing else: the tests' own view of what the recorder wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gapless.timeline.sources import recording_format as form


@dataclass
class Read:
    blocks: list[tuple[form.Block, int]] = field(default_factory=list)  # type, process
    process: dict[int, dict[str, Any]] = field(default_factory=dict)
    notes: list[dict[str, Any]] = field(default_factory=list)
    ends: dict[int, dict[str, Any]] = field(default_factory=dict)
    records: dict[int, list[np.void]] = field(default_factory=dict)  # by kind
    tables: dict[int, list[np.ndarray]] = field(default_factory=dict)  # the same in pieces, as they stand in the file
    names: list[str] = field(default_factory=list)  # of kernels, in order
    words: dict[tuple[int, int, int], str] = field(default_factory=dict)
    stacks: dict[int, dict[int, tuple[str, str, int]]] = field(default_factory=dict)  # stack, depth
    stack_rows: list[np.void] = field(default_factory=list)
    callsites: dict[int, int] = field(default_factory=dict)
    clocks: list[np.void] = field(default_factory=list)
    dropped: int = 0

    def column(self, kind: int, name: str) -> list[int]:
        return np.concatenate([table[name] for table in self.tables[kind]]).tolist()

    def lines_of(self, correlation: int) -> list[tuple[str, int, str]]:
        frames = self.stacks[self.callsites[correlation]]
        return [(frames[depth][0], frames[depth][2], frames[depth][1]) for depth in sorted(frames)]


def blocks(data: bytes) -> Iterator[tuple[form.Block, int, bytes]]:
    head = np.frombuffer(data, form.FILE_HEADER, 1)[0]
    assert head["magic"] == form.MAGIC
    assert head["version"] == form.VERSION
    at = int(head["bytes"])
    while at < len(data):
        header = np.frombuffer(data, form.BLOCK_HEADER, 1, at)[0]
        assert header["mark"] == form.MARK
        at += form.BLOCK_HEADER.itemsize
        payload = data[at : at + int(header["length"])]
        assert len(payload) == header["length"]
        yield form.Block(int(header["type"])), int(header["process"]), payload
        at += len(payload)


def read(path: Path) -> Read:
    found = Read()
    dtypes: dict[tuple[int, int], np.dtype[Any]] = {}
    for kind, process, payload in blocks(path.read_bytes()):
        found.blocks.append((kind, process))
        if kind == form.Block.PROCESS:
            found.process[process] = json.loads(payload)
        elif kind == form.Block.LAYOUT:
            for number, layout in json.loads(payload)["kinds"].items():
                dtypes[process, int(number)] = np.dtype({k: v for k, v in layout.items() if k != "name"})
        elif kind == form.Block.STRINGS:
            for space, key, text in strings(payload):
                found.words[process, space, key] = text
        elif kind == form.Block.RECORDS:
            head = np.frombuffer(payload, form.RECORDS_HEAD, 1)[0]
            raw = payload[16 : 16 + int(head["raw"])]
            kinds = np.frombuffer(payload, np.uint8, int(head["count"]), 16 + int(head["raw"]))
            size_of = np.zeros(256, np.int64)
            for of_process, number in dtypes:
                if of_process == process:
                    size_of[number] = dtypes[process, number].itemsize
            sizes = size_of[kinds]
            assert sizes.all()
            assert sizes.sum() == len(raw)
            starts = np.cumsum(sizes) - sizes
            for record_kind in np.unique(kinds).tolist():
                dtype = dtypes[process, record_kind]
                of_kind = starts[kinds == record_kind, None] + np.arange(dtype.itemsize)
                rows = np.frombuffer(raw, np.uint8)[of_kind].view(dtype)[:, 0]
                assert (rows["kind"] == record_kind).all()
                found.records.setdefault(record_kind, []).extend(rows)
                found.tables.setdefault(record_kind, []).append(rows)
                if record_kind == 10:
                    names = rows["name"].tolist()
                    found.names += [found.words[process, form.Space.POINTER, name] for name in names]
        elif kind == form.Block.STACKS:
            for row in np.frombuffer(payload, form.STACK_ROW):
                found.stack_rows.append(row)
                file, function = (
                    found.words.get((process, form.Space.SOURCE, int(row[n])), "") for n in ("file", "function")
                )
                found.stacks.setdefault(int(row["stack"]), {})[int(row["depth"])] = (file, function, int(row["line"]))
        elif kind == form.Block.CALLSITES:
            found.callsites.update(
                (int(r["correlation"]), int(r["stack"])) for r in np.frombuffer(payload, form.CALLSITE_ROW)
            )
        elif kind == form.Block.CLOCK:
            found.clocks += list(np.frombuffer(payload, form.CLOCK_ROW))
        elif kind == form.Block.DROPPED:
            found.dropped += int(np.frombuffer(payload, form.DROPPED_ROW)["count"].sum())
        elif kind == form.Block.NOTE:
            found.notes.append(json.loads(payload))
        elif kind == form.Block.END:
            found.ends[process] = json.loads(payload)
    return found


def strings(payload: bytes) -> Iterator[tuple[int, int, str]]:
    at = 0
    while at < len(payload):
        entry = np.frombuffer(payload, form.STRING_ENTRY, 1, at)[0]
        at += form.STRING_ENTRY.itemsize
        size = int(entry["bytes"])
        yield int(entry["space"]), int(entry["key"]), payload[at : at + size].decode()
        at += size + -size % 8
