"""Exports that are damaged, foreign or made to harm: one clear error, or what can be used and a word on the rest."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gapless.model.errors import GaplessError
from gapless.timeline.sources import nsys

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
STREAM = "TARGET_INFO_CUDA_STREAM"

HUGE = 2**63 - 1
FUZZ = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def everything(export: SimpleNamespace, rows: int = 3) -> dict[str, list[dict[str, Any]]]:
    """Give an export with rows in every table."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for table, columns in export.columns.items():
        if table not in ("StringIds", "META_DATA_EXPORT"):
            tables[table] = [dict.fromkeys(columns.split(), 1 + row) for row in range(rows)]
    tables[RUNTIME] = [dict(export.call(1 + row % 5, 100 * row, 100 * row + 50, row)) for row in range(rows)]
    tables[KERNEL] = [dict(export.kernel(100 * row + 60, 100 * row + 90, row)) for row in range(rows)]
    tables[MEMCPY] = [dict(export.copy(100 * row + 20, 100 * row + 30, row)) for row in range(rows)]
    tables["NVTX_EVENTS"] = [
        {
            "start": 10 * row,
            "end": 90 * row + 9,
            "eventType": 59,
            "globalTid": export.global_id(100, 101),
            "text": f"r{row}",
        }
        for row in range(rows)
    ]
    tables["META_DATA_EXPORT"] = [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.24.14"}]
    return tables


def is_refused_or_read(export: SimpleNamespace, path: Path) -> None:
    refusal = ""
    try:
        export.check(nsys.read(path))
    except GaplessError as problem:
        refusal = str(problem)
    assert not refusal or str(path) in refusal
    assert "\n" not in refusal


# Files that are no databases, or damaged ones


def test_a_foreign_database_is_refused(export: SimpleNamespace, tmp_path: Path) -> None:
    path = export.write(tmp_path / "users.sqlite", {"users": [{"id": 1, "name": "Ada"}]})
    with pytest.raises(GaplessError, match="is an SQLite database, but no export of Nsight Systems"):
        nsys.read(path)


def test_a_database_that_is_cut_off_is_refused_or_used_as_far_as_it_goes(
    export: SimpleNamespace, tmp_path: Path
) -> None:
    whole = export.save(everything(export, rows=400)).read_bytes()
    for kept in (16, 100, 512, 4096, 5000, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
        path = tmp_path / f"cut{kept}.sqlite"
        path.write_bytes(whole[:kept])
        is_refused_or_read(export, path)


def test_a_damaged_table_is_used_up_to_the_damage(export: SimpleNamespace) -> None:
    path = export.save({KERNEL: [export.kernel(10 * row, 10 * row + 5, row) for row in range(2000)]})
    with sqlite3.connect(path) as connection:
        pages = [number for (number,) in connection.execute(f"SELECT pageno FROM dbstat WHERE name = '{KERNEL}'")]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    data = bytearray(path.read_bytes())
    middle = sorted(pages)[len(pages) // 2]
    data[(middle - 1) * size : middle * size] = b"\xff" * size
    path.write_bytes(data)
    timeline = nsys.read(path)
    export.check(timeline)
    assert 0 < len(timeline.ops) < 2000
    assert any(sentence.startswith(f"{KERNEL} is damaged (") for sentence in timeline.lost)


def test_a_database_with_nothing_readable_is_refused(export: SimpleNamespace) -> None:
    path = export.save({KERNEL: [export.kernel(0, 1, 1)]})
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    with pytest.raises(GaplessError, match="damaged"):
        nsys.read(path)


@pytest.mark.parametrize("rest", [b"", b"\0" * 84, b"\xff" * 84, b"\x10\x00\x01\x01\x00\x40\x20\x20" + b"\0" * 5000])
def test_a_header_alone_is_refused(export: SimpleNamespace, tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "header.sqlite"
    path.write_bytes(b"SQLite format 3\0" + rest)
    is_refused_or_read(export, path)


@FUZZ
@given(data=st.data())
def test_bytes_overwritten_anywhere_end_in_no_traceback(export: SimpleNamespace, data: st.DataObject) -> None:
    path = export.save(everything(export, rows=20))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 30))):
        place = data.draw(st.integers(16, len(content) - 9))
        content[place : place + 8] = data.draw(st.binary(min_size=1, max_size=8)).ljust(8, b"\xff")
    path.write_bytes(content)
    is_refused_or_read(export, path)
    path.unlink()


# Cells


def test_tables_without_rows_make_an_empty_timeline(export: SimpleNamespace) -> None:
    timeline = export.read({table: [] for table in export.columns if table != "StringIds"})
    assert len(timeline.ops) == len(timeline.calls) == len(timeline.marks) == len(timeline.ranges) == 0
    assert timeline.lost == ()


def test_rows_of_nothing_but_null_are_left_out(export: SimpleNamespace) -> None:
    timeline = export.read(
        {table: [{}, {}] for table in export.columns if table not in ("StringIds", "META_DATA_EXPORT")}
    )
    assert len(timeline.ops) == len(timeline.calls) == len(timeline.marks) == len(timeline.ranges) == 0
    assert any("no usable time" in sentence for sentence in timeline.lost)


def test_times_that_cannot_be_are_left_out_and_lengths_mended(export: SimpleNamespace) -> None:
    spans = [(10, 20), (None, 30), (40, None), (60, 50), (HUGE, HUGE), (-HUGE, HUGE), (0, 2**60), (-(2**63), 5)]
    timeline = export.read({KERNEL: [export.kernel(start, end, 1) for start, end in spans]})
    assert timeline.ops.start.tolist() == [0, 30, 50]
    assert timeline.ops.end.tolist() == [10, 30, 50]
    assert timeline.lost == (
        "Left out 5 events: no usable time.",
        "Took the length of 1 event as zero: none is given.",
        "Took the length of 1 event as zero: it is negative.",
    )


def test_work_that_is_nowhere_is_left_out(export: SimpleNamespace) -> None:
    places = [(0, 7), (-1, 7), (0, -1), (40_000, 7), (0, 2**40), (2**40, 7), (0, 0)]
    timeline = export.read(
        {KERNEL: [export.kernel(0, 1, 1, device=device, stream=stream) for device, stream in places]}
    )
    assert [stream.id for stream in timeline.streams] == [0, 7]
    assert "Left out 5 events: no usable device or stream." in timeline.lost


def test_text_where_numbers_should_be_is_unknown(export: SimpleNamespace) -> None:
    rows = [
        export.kernel(0, 9, 1, registersPerThread="many", gridX=b"\x00\xff", demangledName="twenty"),
        export.kernel("12", 19, 1, registersPerThread=2.5, gridX="7", staticSharedMemory=float("inf")),
        export.kernel("soon", 29, 1),
    ]
    timeline = export.read({KERNEL: rows})
    assert timeline.ops.start.tolist() == [0, 12]
    assert timeline.ops.registers.tolist() == [-1, 2]
    assert timeline.ops.grid.tolist() == [[-1, -1, -1], [7, 2, 1]]
    assert timeline.ops.shared.tolist() == [1072, -1]
    assert f"Took {KERNEL}.registersPerThread as unknown in 1 event: what stands there is no number." in timeline.lost
    assert "Left out 1 event: no usable time." in timeline.lost


def test_numbers_that_do_not_fit_are_unknown(export: SimpleNamespace) -> None:
    row = export.kernel(0, 1, HUGE, registersPerThread=2**40, gridX=-(2**40), blockY=0, graphNodeId=HUGE)
    timeline = export.read({KERNEL: [row]})
    assert timeline.ops.registers.tolist() == [-1]
    assert timeline.ops.grid[0].tolist() == [-1, -1, -1]
    assert timeline.ops.block[0].tolist() == [-1, -1, -1]
    assert timeline.ops.correlation.tolist() == [0]


@pytest.mark.parametrize(
    "name", ["[red]x[/red]\x1b[31m", "\0\x07", "a;b" * 50_000, "", "日本\u202e語", b"\xff\xfe\x00"]
)
def test_names_of_any_kind_are_kept(export: SimpleNamespace, name: Any) -> None:
    tables = {"StringIds": [{"id": 20, "value": name}], KERNEL: [export.kernel(0, 1, 1)]}
    timeline = export.read(
        tables | {"NVTX_EVENTS": [{"start": 0, "end": 1, "eventType": 59, "globalTid": 0, "text": name}]}
    )
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    assert timeline.name_of(int(timeline.ops.name[0])) == text[: 64 << 10]
    assert timeline.name_of(int(timeline.ranges.name[0])) == (text[: 64 << 10] or "unnamed")


def test_many_processes_and_devices_are_no_trouble(export: SimpleNamespace) -> None:
    kernels = [export.kernel(row, row + 1, 1, pid=row, device=row % 9) for row in range(300)]
    streams = [{"streamId": row, "processId": row, "contextId": 1, "flag": 1, "priority": 0} for row in range(300)]
    timeline = export.read({KERNEL: kernels, STREAM: streams})
    assert len(timeline.streams) == 300
    assert len(timeline.devices) == 9


def test_more_devices_than_there_can_be_are_refused(export: SimpleNamespace) -> None:
    kernels = [export.kernel(row, row + 1, 1, pid=row + 1) for row in range(33_000)]
    with pytest.raises(GaplessError, match="names 33,000 devices"):
        export.read({KERNEL: kernels})


CELLS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-1, 0, 1, 2, 3, 7, 59, 60, 75, 0xFFFFFFFF, 2**31, 2**32, 2**61, 2**62, -(2**62)]),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=8),
)


@FUZZ
@given(data=st.data())
def test_cells_of_any_kind_end_in_no_traceback(export: SimpleNamespace, data: st.DataObject) -> None:
    tables = everything(export)
    for _ in range(data.draw(st.integers(1, 25))):
        table = data.draw(st.sampled_from(sorted(tables)))
        row = tables[table][data.draw(st.integers(0, len(tables[table]) - 1))]
        row[data.draw(st.sampled_from(export.columns[table].split()))] = data.draw(CELLS)
    path = export.save(tables)
    is_refused_or_read(export, path)
    path.unlink()


@FUZZ
@given(data=st.data())
def test_the_order_of_rows_does_not_matter(export: SimpleNamespace, data: st.DataObject) -> None:
    tables = everything(export, rows=5)
    paths = [export.save(tables)]
    shuffled = {name: data.draw(st.permutations(rows)) if "ENUM" not in name else rows for name, rows in tables.items()}
    paths.append(export.save(shuffled))
    first, second = (nsys.read(path) for path in paths)
    for table in ("ops", "calls", "marks", "ranges"):
        for column in ("kind", "start", "end"):
            assert np.array_equal(getattr(first, table).column(column), getattr(second, table).column(column))
    assert sorted(first.strings) == sorted(second.strings)
    for path in paths:
        path.unlink()


# Schemas made to harm


def view(export: SimpleNamespace, table: str, body: str) -> Path:
    path = export.save({})
    with sqlite3.connect(path) as connection:
        connection.execute(f'CREATE VIEW "{table}" AS {body}')
    connection.close()
    return path


def test_a_view_may_stand_for_a_table(export: SimpleNamespace) -> None:
    path = view(export, KERNEL, 'SELECT 0 AS start, 5 AS "end", 0 AS deviceId, 7 AS streamId, 20 AS demangledName')
    assert nsys.read(path).ops.end.tolist() == [5]


def test_a_view_on_a_table_that_is_not_there_is_said(export: SimpleNamespace) -> None:
    with pytest.raises(GaplessError, match=rf"{KERNEL}: no such table"):
        nsys.read(view(export, KERNEL, "SELECT * FROM nowhere"))


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (KERNEL, 'n AS start, n AS "end", 0 AS deviceId, 7 AS streamId, n AS demangledName'),
        ("NVTX_EVENTS", 'n AS start, n AS "end", 59 AS eventType, 0 AS globalTid, printf("%.60000d", n) AS text'),
        (STREAM, "n AS streamId, n AS processId, n AS contextId, n AS priority, n AS flag"),
    ],
)
def test_a_view_without_end_is_cut_off(export: SimpleNamespace, table: str, columns: str) -> None:
    endless = "WITH RECURSIVE counting(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counting)"
    path = view(export, table, f"{endless} SELECT {columns} FROM counting")
    if table == STREAM:  # cut off quietly: streams describe, and the rest is enough
        assert len(nsys.read(path).ops) == 0
    else:
        with pytest.raises(GaplessError, match=r"gives more than the file can hold|takes far longer"):
            nsys.read(path)


def test_a_view_that_only_works_is_stopped(export: SimpleNamespace) -> None:
    body = """WITH RECURSIVE counting(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counting)
        SELECT n AS start, n AS "end", 0 AS deviceId, 7 AS streamId, 20 AS demangledName FROM counting WHERE n < 0"""
    with pytest.raises(GaplessError, match="takes far longer than its size explains"):
        nsys.read(view(export, KERNEL, body))


def test_names_of_tables_and_columns_cannot_speak_sql(export: SimpleNamespace) -> None:
    path = export.save({KERNEL: [export.kernel(0, 1, 1)]})
    with sqlite3.connect(path) as connection:
        connection.execute("""CREATE TABLE "x""; DROP TABLE StringIds; --" ("a""b" INTEGER)""")
    connection.close()
    assert len(nsys.read(path).ops) == 1
