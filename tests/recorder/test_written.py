"""The writer of test recordings follows ``docs/recording-format.md``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

import written
from gapless.timeline.sources import recording_format as form

HERE = Path(__file__).parent
DOC = (HERE.parents[1] / "docs" / "recording-format.md").read_text()


def test_the_document_and_the_constants_agree() -> None:
    for block in form.Block:
        assert re.search(rf"\| {block.value} \| {block.name} \|", DOC), block
        assert re.search(rf"^### {block.value} {block.name}\b", DOC, re.MULTILINE), block
    for text, size in (("CLOCK", form.CLOCK_ROW), ("STACKS", form.STACK_ROW), ("CALLSITES", form.CALLSITE_ROW),
                       ("ACCESSES", form.ACCESS_ROW), ("DROPPED", form.DROPPED_ROW)):  # fmt: skip
        assert f"| {text} | rows of {size.itemsize} bytes |" in DOC
    assert form.FILE_HEADER.itemsize == form.BLOCK_HEADER.itemsize == 32


def test_a_record_comes_back_by_layout_and_kinds_alone() -> None:
    data = bytes(
        written.Recording()
        .start()
        .records([(37, {"streamId": 7}), (1, {"bytes": 5, "start": 3}), (1, {"bytes": 9})])
        .data
    )
    blocks, at = [], form.FILE_HEADER.itemsize
    while at < len(data):
        header = np.frombuffer(data, form.BLOCK_HEADER, 1, at)[0]
        assert header["mark"] == form.MARK
        at += form.BLOCK_HEADER.itemsize
        blocks.append((header["type"], data[at : at + int(header["length"])]))
        at += int(header["length"])
    layouts = {int(kind): dict(lay) for kind, lay in json.loads(blocks[1][1])["kinds"].items()}
    dtypes = {kind: np.dtype({k: v for k, v in lay.items() if k != "name"}) for kind, lay in layouts.items()}
    payload = blocks[3][1]
    head = np.frombuffer(payload, form.RECORDS_HEAD, 1)[0]
    raw = payload[16 : 16 + int(head["raw"])]
    kinds = np.frombuffer(payload, np.uint8, int(head["count"]), 16 + int(head["raw"]))
    assert kinds.tolist() == [37, 1, 1]
    sizes = np.array([dtypes[int(kind)].itemsize for kind in kinds])
    offsets = np.cumsum(sizes) - sizes
    assert int(sizes.sum()) == len(raw)
    copies = [np.frombuffer(raw, dtypes[1], 1, int(offset))[0] for offset in offsets[1:]]
    assert [int(copy["bytes"]) for copy in copies] == [5, 9]
