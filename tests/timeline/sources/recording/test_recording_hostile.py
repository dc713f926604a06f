"""Damaged recordings: what can be read is used and the rest is said, or one sentence says why nothing can."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gapless.model.errors import GaplessError
from gapless.timeline.sources import load, recording
from gapless.timeline.sources.recording_format import BLOCK_HEADER, MARK, Block
from gapless.timeline.timeline import Timeline

CUT = "The recording ends in the middle of a block: used what comes before the cut."
TORN = "A block was torn when its process was killed, or damaged since: used its beginning."
GARBAGE = "Skipped bytes that are no block: the file is damaged there."


def blocks_of(data: bytes) -> list[tuple[int, int, int]]:
    """Give type, start and end of each block."""
    found, at = [], 32
    while at < len(data):
        header = np.frombuffer(data, BLOCK_HEADER, 1, at)[0]
        end = at + 32 + int(header["length"])
        found.append((int(header["type"]), at, end))
        at = end
    return found


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def of(data: bytes) -> Timeline:
        path = tmp_path / "run.gapless"
        path.write_bytes(data)
        return recording.read(path)

    return of


def test_cut_anywhere_gives_what_comes_before_or_one_sentence(made: SimpleNamespace, read: Any) -> None:
    data = bytes(made.pipeline(2).data)
    whole = len(read(data).calls)
    most = 0
    for end in range(0, len(data), 61):
        try:
            timeline = read(data[:end])
        except GaplessError:
            continue
        assert len(timeline.calls) >= most  # more of the file never tells less
        most = len(timeline.calls)
        assert timeline.lost or any(unknown.what == "unfinished" for unknown in timeline.unknown)
    assert most == whole


def test_a_cut_block_of_records_gives_the_records_that_are_whole(made: SimpleNamespace, read: Any) -> None:
    recorded = made.begun()
    start = len(recorded.data)
    recorded.records([made.kernel(10 * n, 10 * n + 5, n + 1) for n in range(10)])
    end = start + 32 + 16 + 3 * (len(recorded.data) - start - 48 - 10) // 10 + 50  # in the middle of the fourth
    timeline = read(bytes(recorded.data[:end]))
    assert len(timeline.ops) == 3
    assert timeline.lost == (CUT, "Left out 7 events: their block of records ends too early.")


def test_a_block_torn_by_a_kill_with_another_process_behind_it(made: SimpleNamespace, read: Any) -> None:
    recorded = made.begun(1000)
    start = len(recorded.data)
    recorded.records([made.kernel(10 * n, 10 * n + 5, n + 1) for n in range(10)])
    torn = bytes(recorded.data[: start + 700])
    other = made.begun(2000).records([made.kernel(5, 6, 1)]).end()
    timeline = read(torn + bytes(other.data[32:]))
    assert TORN in timeline.lost
    assert sorted(thread.pid for thread in timeline.threads) == []
    processes = {timeline.streams[row].name for row in timeline.ops.stream.tolist()}
    assert processes == {"process 1000", "process 2000"}
    assert len(timeline.ops) > 3


def test_a_damaged_length_loses_nothing_but_its_block(made: SimpleNamespace, read: Any) -> None:
    data = bytearray(made.pipeline(3).data)
    plain = read(bytes(data))
    third = [start for kind, start, _ in blocks_of(bytes(data)) if kind == Block.CALLSITES][1]
    for length in (0, 1, 40, 1 << 40, (1 << 64) - 1):
        changed = bytearray(data)
        changed[third + 16 : third + 24] = length.to_bytes(8, "little")
        timeline = read(bytes(changed))
        assert len(timeline.ops) == len(plain.ops)
        assert timeline.lost


def test_a_damaged_mark_costs_its_block_only(made: SimpleNamespace, read: Any) -> None:
    data = bytearray(made.pipeline(3).data)
    plain = read(bytes(data))
    (start, *_) = [start for kind, start, _ in blocks_of(bytes(data)) if kind == Block.ACCESSES]
    data[start] ^= 1
    timeline = read(bytes(data))
    assert GARBAGE in timeline.lost
    assert len(timeline.ops) == len(plain.ops)
    assert len(timeline.touches) == len(plain.touches) - 3


def test_bytes_between_blocks_are_skipped(made: SimpleNamespace, read: Any) -> None:
    data = bytes(made.pipeline(2).data)
    plain = made.contents(read(data))
    _, at, _ = blocks_of(data)[5]
    changed = made.contents(read(data[:at] + b"\x00" * 1000 + MARK * 3 + b"x" + data[at:]))
    assert changed.pop("lost") == (GARBAGE,)
    plain.pop("lost")
    assert changed == plain


def test_kinds_that_do_not_fit_the_records_are_told(made: SimpleNamespace, read: Any) -> None:
    recorded = made.begun().records([made.kernel(0, 5, 1), made.kernel(6, 9, 2), made.copy(10, 20, 3)])
    data = bytearray(recorded.end().data)
    end = next(end for kind, _, end in reversed(blocks_of(bytes(data))) if kind == Block.RECORDS)
    data[end - 1] = 2  # says that the copy is a memset
    timeline = read(bytes(data))
    assert len(timeline.ops) == 2
    assert timeline.lost == ("Left out records of a damaged block: they are not of the kinds that stand beside them.",)


def test_records_without_a_layout_are_told(made: SimpleNamespace, read: Any) -> None:
    recorded = made.bare().json(Block.PROCESS, pid=1000).json(Block.LAYOUT, kinds={"5": made.layout(5)})
    recorded.records([made.call("cudaLaunchKernel", 0, 5, 1), made.kernel(6, 9, 2), made.call("cudaFree", 7, 8, 3)])
    timeline = read(bytes(recorded.data))
    assert (len(timeline.calls), len(timeline.ops)) == (1, 0)
    assert timeline.lost[0].startswith("Left out records whose layout the recording does not tell")


@pytest.mark.parametrize(
    "layout",
    [
        None, 5, [], {}, {"itemsize": 40}, {"itemsize": 1 << 40, "names": [], "formats": [], "offsets": []},
        {"itemsize": 64, "names": ["kind"], "formats": ["O"], "offsets": [0]},
        {"itemsize": 64, "names": ["kind"], "formats": ["<u4"], "offsets": [62]},
        {"itemsize": 64, "names": ["kind"], "formats": ["<u4"], "offsets": [-4]},
        {"itemsize": 64, "names": ["kind", "kind"], "formats": ["<u4", "<u4"], "offsets": [0, 4]},
        {"itemsize": 64, "names": ["kind"], "formats": ["<u4", "<u4"], "offsets": [0]},
        {"itemsize": 64, "names": [7], "formats": ["<u4"], "offsets": [0]},
        {"itemsize": 2, "names": ["kind"], "formats": ["<u2"], "offsets": [0]},
        {"itemsize": 64, "names": ["kind"], "formats": ["(2,)<u4"], "offsets": [0]},
    ],
)  # fmt: skip
def test_layouts_that_make_no_sense_are_left_out(made: SimpleNamespace, read: Any, layout: Any) -> None:
    recorded = made.begun().json(Block.LAYOUT, kinds={"2": layout, "x": made.layout(1), "999": made.layout(1)})
    timeline = read(bytes(recorded.records([made.kernel(0, 5, 1)]).end().data))
    assert len(timeline.ops) == 1
    assert timeline.lost == ("Left out layouts of records that make no sense.",)


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b'{"a": ' + b"[" * 100_000, b"\xff\xfe", b"null"])
def test_notes_that_are_no_json_are_left_out(made: SimpleNamespace, read: Any, text: bytes) -> None:
    recorded = made.begun().block(Block.NOTE, text).block(Block.LAYOUT, text).records([made.kernel(0, 5, 1)])
    timeline = read(bytes(recorded.end().data))
    assert len(timeline.ops) == 1
    assert timeline.lost == ("Left out 2 events of the recording's own notes: no readable JSON.",)


def test_rows_with_odd_values_are_left_out_or_unknown(made: SimpleNamespace, read: Any) -> None:
    most = (1 << 64) - 1
    records = [
        made.kernel(0, 5, 1), made.kernel(0, 5, 2, deviceId=0x7FFFFFFF), made.kernel(0, 5, 3, streamId=made.NOWHERE),
        (10, dict(made.kernel(0, 5, 4)[1]) | {"start": most}),
        (10, dict(made.kernel(0, 5, 5)[1]) | {"start": 0, "end": 0}),
        made.kernel(0, 5, 6, gridX=-1), (1, dict(made.copy(0, 5, 7)[1]) | {"bytes": most}),
    ]  # fmt: skip
    timeline = read(bytes(made.begun().records(records).end().data))
    assert len(timeline.ops) == 3
    assert set(timeline.lost) == {
        "Left out 2 events: no usable time.", "Left out 2 events: no usable device or stream.",
    }  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"\x93GAPLESS", b"\x93GAPLESS" + bytes(24), b"\x93GAPLESS\x01" + bytes(5000)])
def test_files_without_anything_in_them(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "run.gapless"
    path.write_bytes(data)
    with pytest.raises(GaplessError, match=r"run\.gapless is .*(empty|cut off|without any CUDA|damaged)"):
        load(path)


def test_a_directory_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(GaplessError, match="is a directory"):
        recording.read(tmp_path)
    with pytest.raises(GaplessError, match="no such file"):
        recording.read(tmp_path / "none.gapless")


@pytest.mark.parametrize("lost", range(1, 40, 3))
def test_a_block_behind_a_torn_one_is_found_wherever_the_tear_is(made: SimpleNamespace, read: Any, lost: int) -> None:
    """The header of the one behind may lie across the end that the torn one's header tells."""
    data = bytes(made.begun().records([made.kernel(0, 5, 1)]).data)
    behind = bytes(made.begun().records([made.kernel(10, 15, 2), made.kernel(20, 25, 3)]).data)
    _, start, end = blocks_of(behind)[-1]
    timeline = read(data[: len(data) - lost] + behind[start:end])
    assert timeline.ops.correlation.tolist()[-2:] == [2, 3]
    assert TORN in timeline.lost


@pytest.mark.parametrize("lost", [0, 5, 300])
def test_a_second_recording_in_the_file_is_left_out(made: SimpleNamespace, lost: int) -> None:
    """Put behind each other, also where the first was cut: what both number alike would be taken for one thing."""
    first, second = bytes(made.pipeline(3).data), bytes(made.pipeline(5).data)
    both = made.begun()
    both.data = bytearray(first[: len(first) - lost] + second)
    timeline = made.read(both)
    assert 0 < len(timeline.calls) <= 15
    assert timeline.lost[-1] == "Another recording stands behind the first in this file: used the first alone."
