"""Building programs: by the calls one by one, in bulk, and changed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from gapless.model.errors import GaplessError
from gapless.model.kinds import CallKind, MemoryKind, OpKind, SourceOrder, StreamKind
from gapless.model.program import Flag, Grid, Program, batches
from gapless.model.schedule import schedule
from gapless.model.units import format_size, format_time, ms, parse_size, parse_time


def chunk_loop(chunks: int) -> Program:
    program = Program()
    streams = [program.stream(f"s{i}", StreamKind.NON_BLOCKING) for i in range(3)]
    for i in range(chunks):
        stream = streams[i % 3]
        stream.h2d(1 * ms, name=f"h{i}")
        stream.kernel(1 * ms, name=f"k{i}")
        stream.d2h(1 * ms, name=f"d{i}")
    program.sync_device(label="end")
    return program


def test_one_row_a_call():
    program = chunk_loop(2)
    assert program.rows.op.tolist() == [OpKind.H2D, OpKind.KERNEL, OpKind.D2H] * 2 + [-1]
    assert program.rows.stream.tolist() == [0, 0, 0, 1, 1, 1, -1]
    assert program.find("k1") == 4
    assert program.find("end") == 6
    assert program.describe(4) == "kernel k1 on s1 (call 4 of thread main)"


def test_unknown_name_suggests():
    with pytest.raises(GaplessError, match="did you mean 'k1'"):
        chunk_loop(2).find("k11")


def test_rows_after_columns_were_taken():
    program = chunk_loop(1)
    before = program.rows
    program.sync_device()
    assert len(before) == 4
    assert len(program.rows) == 5


def test_bulk_equals_one_by_one():
    one_by_one, bulk = chunk_loop(100), Program()
    for info in one_by_one.streams:
        bulk.stream(info.name, info.kind)
    bulk.strings = one_by_one.strings
    given = one_by_one.rows
    assert bulk.extend(**{name: getattr(given, name) for name in given.__slots__}) == range(301)
    for name in given.__slots__:
        assert np.array_equal(getattr(bulk.rows, name), getattr(given, name))


def test_bulk_refuses_what_does_not_exist():
    program = Program()
    with pytest.raises(GaplessError, match="no column colour"):
        program.extend(call=[0], colour=[1])
    with pytest.raises(GaplessError, match="stream"):
        program.extend(call=[CallKind.LAUNCH], op=[OpKind.KERNEL], stream=[0])
    with pytest.raises(GaplessError, match="differ in length"):
        program.extend(call=[0, 0], op=[-1])


def test_default_stream_by_thread_and_device():
    program = Program("per-thread")
    first = program.default
    with program.thread("T1"):
        second = program.default
        program.set_device(1)
        third = program.default
    assert [program.streams[s.row].kind for s in (first, second, third)] == [StreamKind.PER_THREAD] * 3
    assert len({first.row, second.row, third.row}) == 3
    assert third.info.device == 1
    assert program.legacy().info.kind == StreamKind.LEGACY
    assert program.default.row == first.row


def test_synchronous_forms_go_to_the_default_stream():
    program = Program()
    row = program.h2d(1 * ms, pageable=True)
    rows = program.rows
    assert rows.call[row] == CallKind.COPY_SYNC
    assert rows.src[row] == MemoryKind.PAGEABLE
    assert program.streams[rows.stream[row]].kind == StreamKind.LEGACY


def test_free_knows_stream_ordered_memory():
    program = Program()
    plain, pooled, stream = program.buffer("plain"), program.buffer("pooled"), program.stream("s")
    program.malloc(plain)
    stream.malloc(pooled)
    program.free(plain)
    program.free(pooled)
    assert program.rows.flags.tolist() == [0, 0, 0, Flag.POOL]


def test_accesses_are_kept_with_their_rows():
    program, stream = Program(), None
    stream = program.stream("s")
    a, b = program.buffer("a", "1KiB", MemoryKind.PINNED), program.buffer("b", 1024)
    stream.h2d(1 * ms, src=a, dst=b[0:512])
    stream.kernel(1 * ms, reads=[b], writes=[b[512:]])
    accesses = program.accesses
    assert accesses.row.tolist() == [0, 0, 1, 1]
    assert accesses.buffer.tolist() == [0, 1, 1, 1]
    assert accesses.write.tolist() == [False, True, False, True]
    assert accesses.low.tolist() == [0, 0, 0, 512]
    assert accesses.high.tolist() == [-1, 512, -1, -1]
    kept = program.take([1])
    assert kept.accesses.row.tolist() == [0, 0]
    assert kept.rows.op.tolist() == [OpKind.KERNEL]


def test_replace_changes_one_column():
    program = chunk_loop(1)
    rows = program.rows
    changed = program.replace(src=np.where(rows.op == OpKind.H2D, MemoryKind.PAGEABLE, rows.src))
    assert changed.rows.src.tolist() == [MemoryKind.PAGEABLE, 0, MemoryKind.DEVICE, 0]
    assert program.rows.src[0] == MemoryKind.PINNED
    with pytest.raises(GaplessError, match="differ in length"):
        program.replace(src=[0])


def test_declared_memory_decides():
    program = Program()
    stream, device, pageable = program.stream("s"), program.buffer("d"), program.buffer("p", -1, MemoryKind.PAGEABLE)
    stream.h2d(1 * ms, src=pageable, dst=device)
    assert program.rows.src.tolist() == [MemoryKind.PAGEABLE]
    with pytest.raises(GaplessError, match="needs pinned memory on that side, but buffer p is pageable"):
        stream.h2d(1 * ms, src=pageable, pageable=False)
    with pytest.raises(GaplessError, match="needs host memory on that side, but buffer d is device"):
        stream.h2d(1 * ms, src=device)


def test_grids():
    program = Program()
    stream = program.stream("s")
    stream.kernel(1 * ms)
    stream.kernel(1 * ms, share="1/8")
    stream.kernel(1 * ms, share=0.125, blocks=12)
    stream.kernel(1 * ms, share=Fraction(1, 8))
    assert program.rows.grid.tolist() == [0, 1, 2, 1]
    assert program.grids[2] == Grid(12, Fraction(1, 8))
    with pytest.raises(GaplessError, match=r"lies in \(0, 1\]"):
        stream.kernel(1 * ms, share=2)


@pytest.mark.parametrize(
    ("text", "picoseconds"),
    [
        ("1ms", 10**9),
        ("1/3", 333_333_333),
        ("1/3ms", 333_333_333),
        ("0.5us", 500_000),
        ("2s", 2 * 10**12),
        ("7ns", 7000),
    ],
)
def test_times(text: str, picoseconds: int):
    assert parse_time(text) == picoseconds
    assert parse_time(format_time(picoseconds)) == picoseconds


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("64KiB", 65536), ("1.5MB", 1_500_000), ("3B", 3)])
def test_sizes(text: str, size: int):
    assert parse_size(text) == size
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", ["", "fast", "1 ms", "-1ms", "1/0", "5KiB", "nan", "1e30s"])
def test_no_times(text: str):
    with pytest.raises(GaplessError):
        parse_time(text)


def test_a_batch_is_one_call():
    program = Program()
    stream = program.stream("s", StreamKind.NON_BLOCKING)
    batch = stream.batch("b", order=SourceOrder.ANY_TIME)
    first, second = batch.h2d(1 * ms), batch.d2h(1 * ms)
    with program.thread("T"):
        stream.kernel(1 * ms)
    third = batch.d2d(1 * ms)  # another thread's call is between, none of its own
    assert batches(program) == {batch.row: [first, second, third]}
    program.host(1 * ms)
    with pytest.raises(GaplessError, match="a batch is one call"):
        batch.h2d(1 * ms)


def test_a_copy_of_a_batch_without_its_batch_is_refused():
    program = Program()
    batch = program.stream("s").batch()
    batch.h2d(1 * ms, name="h")
    with pytest.raises(GaplessError, match=r"h2d h on s .* follows no batch"):
        schedule(program.take([1]))
