"""Reading a tape: what each statement means, and how a wrong one is refused."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from gapless.model.expectations import Expectation
from gapless.model.kinds import CallKind, CaptureMode, Condition, MemoryKind, OpKind, StreamKind
from gapless.model.machine import Machine
from gapless.model.program import Flag, Grid, Program
from gapless.model.tape import TapeError, read
from gapless.model.units import ms, us


def program(text: str) -> Program:
    return read(text).program


def row(text: str, number: int = -1) -> dict[str, int]:
    """The columns of one row of a program that has a stream s and a stream n."""
    rows = program(f"stream s blocking\nstream n nonblocking\n{text}").rows
    return {name: int(getattr(rows, name)[number]) for name in type(rows).__slots__}


def refused(text: str) -> TapeError:
    with pytest.raises(TapeError) as caught:
        read(text, name="x.tape")
    return caught.value


# --------------------------------------------------------------------------------------------------------- statements


def test_the_example_of_the_format_reads_as_the_fluent_program():
    tape = read("""
        # the chunk loop over three streams
        machine teaching
        stream s0 s1 s2 nonblocking

        repeat 4 as i
          h2d    h{i} on s{i%3} 1ms
          kernel k{i} on s{i%3} 1ms
          d2h    d{i} on s{i%3} 1ms
        end
        sync device

        expect makespan 6ms
        expect overlap h1 k0
    """)
    wanted = Program()
    streams = [wanted.stream(f"s{i}", StreamKind.NON_BLOCKING) for i in range(3)]
    for i in range(4):
        streams[i % 3].h2d(1 * ms, name=f"h{i}")
        streams[i % 3].kernel(1 * ms, name=f"k{i}")
        streams[i % 3].d2h(1 * ms, name=f"d{i}")
    wanted.sync_device()
    got = tape.program
    assert got.streams == wanted.streams
    assert [got.describe(r) for r in range(len(got))] == [wanted.describe(r) for r in range(len(wanted))]
    assert got.rows.duration.tolist() == wanted.rows.duration.tolist()
    assert tape.machine == Machine.named("teaching")
    assert tape.expectations == (
        Expectation(13, "makespan", value=6 * ms),
        Expectation(14, "overlap", ("h1", "k0")),
    )


@pytest.mark.parametrize(
    ("text", "call", "op"),
    [
        ("h2d x on s 1", CallKind.COPY_ASYNC, OpKind.H2D),
        ("h2d x 1 sync", CallKind.COPY_SYNC, OpKind.H2D),
        ("d2h x on s 1", CallKind.COPY_ASYNC, OpKind.D2H),
        ("d2d x on s 1", CallKind.COPY_ASYNC, OpKind.D2D),
        ("d2d x 1 sync", CallKind.COPY_SYNC, OpKind.D2D),
        ("p2p x on s 1 to=1", CallKind.COPY_ASYNC, OpKind.P2P),
        ("p2p x 1 to=1 sync", CallKind.COPY_SYNC, OpKind.P2P),
        ("h2h x on s 1", CallKind.COPY_ASYNC, OpKind.H2H),
        ("memset x on s 1", CallKind.MEMSET_ASYNC, OpKind.MEMSET),
        ("memset x 1 sync", CallKind.MEMSET_SYNC, OpKind.MEMSET),
        ("kernel x on s 1", CallKind.LAUNCH, OpKind.KERNEL),
        ("hostfn x on s 1", CallKind.HOST_FUNCTION, OpKind.HOST_FUNCTION),
        ("record e on s", CallKind.RECORD, OpKind.RECORD),
        ("wait e on s", CallKind.WAIT_EVENT, OpKind.WAIT),
        ("sync s", CallKind.SYNC_STREAM, None),
        ("sync default", CallKind.SYNC_STREAM, None),
        ("sync event e", CallKind.SYNC_EVENT, None),
        ("sync device", CallKind.SYNC_DEVICE, None),
        ("query s", CallKind.QUERY, None),
        ("query event e", CallKind.QUERY, None),
        ("elapsed e f", CallKind.ELAPSED, None),
        ("host 1", CallKind.HOST_WORK, None),
        ("read b", CallKind.HOST_READ, None),
        ("write b", CallKind.HOST_WRITE, None),
        ("malloc b", CallKind.MALLOC, None),
        ("free b", CallKind.FREE, None),
        ("malloc b on s", CallKind.MALLOC_ASYNC, OpKind.MALLOC),
        ("free b on s", CallKind.FREE_ASYNC, OpKind.FREE),
        ("hostalloc b", CallKind.HOST_MALLOC, None),
        ("hostfree b", CallKind.HOST_FREE, None),
        ("reuse b of a", CallKind.REUSE, None),
        ("destroy s", CallKind.STREAM_DESTROY, None),
        ("device 1", CallKind.DEVICE, None),
        ("capture s", CallKind.CAPTURE, None),
        ("end-capture s as G", CallKind.CAPTURE_END, None),
        ("send m", CallKind.SEND, None),
        ("send m\nreceive m", CallKind.RECEIVE, None),
        ("end-capture s as G\nlaunch G on s", CallKind.GRAPH_LAUNCH, OpKind.GRAPH),
        ("host 1\nstream later", CallKind.STREAM_CREATE, None),
    ],
)
def test_each_call_is_its_kind(text: str, call: CallKind, op: OpKind | None):
    got = row(text)
    assert (got["call"], got["op"]) == (call, -1 if op is None else op)


def test_a_call_can_have_a_label_beside_the_name_of_its_operation():
    got = program("stream s\nh2d in on s 1 as call\nsync s as done")
    assert (got.find("in"), got.find("call"), got.find("done")) == (0, 0, 1)


def test_times_and_sizes_stand_in_either_order_and_a_second_bare_number_is_the_size():
    for text in ("h2d x on s 2us 4KiB", "h2d x on s 4KiB 2us", "h2d x on s 0.002 4096", "h2d x on s 1/500ms 4096B"):
        got = row(text)
        assert (got["duration"], got["bytes"]) == (2 * us, 4096), text


def test_a_size_alone_leaves_the_time_to_the_machine():
    tape = read("machine h200\nstream s\nh2d x on s 1MiB")
    assert (int(tape.program.rows.duration[0]), int(tape.program.rows.bytes[0])) == (-1, 2**20)


def test_a_size_alone_is_refused_where_the_machine_has_no_cost_model():
    error = refused("stream s\nh2d x on s 1MiB")
    assert (error.line, error.column) == (2, 12)
    assert "teaching" in str(error)


def test_time_is_kept_in_whole_picoseconds():
    assert row("kernel x on s 1/3ms")["duration"] == 333_333_333
    assert row("kernel x on s 0ms")["duration"] == 0


@pytest.mark.parametrize(
    ("words", "grid"),
    [
        ("", Grid()),
        ("share=1/8", Grid(1, Fraction(1, 8))),
        ("share=0.125", Grid(1, Fraction(1, 8))),
        ("blocks=12 block=1/8", Grid(12, Fraction(1, 8))),
        ("block=6/8 blocks=1", Grid(1, Fraction(3, 4))),
    ],
)
def test_a_kernel_says_how_it_occupies_the_gpu(words: str, grid: Grid):
    got = program(f"stream s\nkernel k on s 1 {words}")
    assert got.grids[got.rows.grid[0]] == grid


def test_words_after_the_time_of_a_kernel():
    got = program("stream s\nkernel k on s 1 first reads A,B writes C,A")
    accesses = got.accesses
    assert got.rows.flags[0] == Flag.FIRST
    assert [b.name for b in got.buffers] == ["A", "B", "C"]
    assert list(zip(accesses.buffer.tolist(), accesses.write.tolist(), strict=True)) == [
        (0, False), (1, False), (2, True), (0, True),
    ]  # fmt: skip


def test_an_untimed_record():
    assert row("record e on s untimed")["flags"] == Flag.UNTIMED


def test_capture_modes():
    for word, mode in (("", 0), ("global", 0), ("thread", 1), ("relaxed", 2)):
        assert row(f"capture s {word}")["second"] == CaptureMode(mode)


# ------------------------------------------------------------------------------------------------------------ streams


def test_stream_declarations():
    got = program("stream a b\nstream n nonblocking priority=-5\nstream p per-thread device=1 priority=2")
    assert [(s.name, s.kind, s.priority, s.device) for s in got.streams] == [
        ("a", StreamKind.BLOCKING, 0, 0),
        ("b", StreamKind.BLOCKING, 0, 0),
        ("n", StreamKind.NON_BLOCKING, -5, 0),
        ("p", StreamKind.PER_THREAD, 2, 1),
    ]


def test_default_means_the_current_device_and_legacy_is_always_the_legacy_stream():
    got = program(
        "default-stream per-thread\nkernel a on default 1\nkernel b on legacy 1\ndevice 1\nkernel c on default 1"
    )
    kinds = [(got.streams[s].kind, got.streams[s].device) for s in got.rows.stream.tolist() if s >= 0]
    assert kinds == [(StreamKind.PER_THREAD, 0), (StreamKind.LEGACY, 0), (StreamKind.PER_THREAD, 1)]


def test_each_thread_has_a_default_stream_of_its_own_under_per_thread():
    got = program(
        "default-stream per-thread\nthread A\nkernel a on default 1\nend\nthread B\nkernel b on default 1\nend"
    )
    assert got.rows.stream[0] != got.rows.stream[1]


def test_a_destroyed_stream_s_name_may_be_used_again():
    got = program("repeat 3 as i\nhost 1\nstream s\nkernel k{i} on s 1\ndestroy s\nend")
    assert got.rows.stream[got.rows.op == OpKind.KERNEL].tolist() == [0, 1, 2]


def test_default_of_another_device():
    got = program("kernel x on default 1\nkernel y on default.1 1\nkernel z on default.0 1")
    assert [got.streams[s].device for s in got.rows.stream.tolist()] == [0, 1, 0]


def test_a_synchronous_copy_goes_to_the_default_stream():
    got = program("default-stream per-thread\nh2d x 1 sync")
    assert got.streams[got.rows.stream[0]].kind == StreamKind.PER_THREAD
    got = program("default-stream per-thread\np2p x 1 to=1 sync")
    assert got.streams[got.rows.stream[0]].kind == StreamKind.LEGACY  # R2.7


# ------------------------------------------------------------------------------------------------------------- memory


def kinds(text: str) -> dict[str, MemoryKind]:
    return {b.name: b.kind for b in program(text).buffers}


def test_buffers_get_the_kind_that_their_first_use_implies():
    text = """stream s
    h2d a on s 1 p -> X
    d2h b on s 1 X -> q pageable
    kernel k on s 1 reads Y
    hostfn f on s 1 writes r
    write w
    hostalloc h 4KiB
    malloc m"""
    pinned, pageable, device = MemoryKind.PINNED, MemoryKind.PAGEABLE, MemoryKind.DEVICE
    assert kinds(text) == {
        "p": pinned, "X": device, "q": pageable, "Y": device, "r": pinned, "w": pinned, "h": pinned, "m": device,
    }  # fmt: skip


def test_memory_that_only_the_host_has_touched_is_as_the_first_copy_says():
    assert kinds("stream s\nwrite p\nh2d x on s 1 p -> X pageable")["p"] == MemoryKind.PAGEABLE
    assert kinds("stream s\nwrite p\nh2d x on s 1 p -> X")["p"] == MemoryKind.PINNED


def test_a_declared_buffer_decides_what_a_copy_is():
    got = program("buffer p pageable\nstream s\nh2d x on s 1 p -> X")
    assert got.rows.src[0] == MemoryKind.PAGEABLE


@pytest.mark.parametrize(
    "text",
    [
        "buffer p pinned\nstream s\nh2d x on s 1 p -> X pageable",
        "buffer p device\nstream s\nh2d x on s 1 p -> X",
        "buffer X pinned\nstream s\nh2d x on s 1 p -> X",
        "buffer X pinned\nmalloc X",
        "buffer p pageable\nhostfree p",
        "buffer X device\nmemset m 1 -> X pinned sync",
    ],
)
def test_a_use_that_contradicts_the_kind_is_refused(text: str):
    assert refused(text).line == text.count("\n") + 1


def test_a_buffer_has_one_size():
    got = program("buffer a b 4KiB pinned\nmalloc c 1MiB")
    assert [b.bytes for b in got.buffers] == [4096, 4096, 2**20]
    assert "4KiB" in str(refused("buffer a 4KiB\nmalloc a 8KiB"))


# ------------------------------------------------------------------------------------------------------------ threads


def test_threads_stand_in_the_order_of_the_tape_and_a_second_block_goes_on():
    got = program("thread B\nhost 1\nend\nhost 2\nthread A\nhost 3\nend\nthread B\nhost 4\nend")
    assert got.threads == ["main", "B", "A"]
    assert got.rows.thread.tolist() == [1, 0, 2, 1]


def test_each_thread_has_its_own_current_device():
    got = program("thread A\ndevice 1\nkernel a on default 1\nend\nkernel b on default 1")
    assert [got.streams[s].device for s in got.rows.stream.tolist() if s >= 0] == [1, 0]


# ------------------------------------------------------------------------------------------------------------- repeat


def test_repeat_nests_and_expressions_stand_anywhere():
    got = program("""repeat 2 as i
        stream s{i}
    end
    repeat 2 as i
      repeat {i + 1} as j
        kernel k{i}.{j} on s{(i+j) % 2} {(i*10 + j) // 1 + 1}us as c{i*2+j}
      end
    end""")
    assert [got.name_of(r) for r in range(3)] == ["k0.0", "k1.0", "k1.1"]
    assert got.rows.duration.tolist() == [1 * us, 11 * us, 12 * us]
    assert got.rows.stream.tolist() == [0, 1, 0]
    assert got.find("c3") == 2


def test_expressions_count_as_python_does():
    for text, value in (("7//2", 3), ("-7//2", -4), ("-7%3", 2), ("2+3*4", 14), ("(2+3)*4", 20), ("10-2-3", 5)):
        got = program(f"kernel k{{{text}}} on default 1")
        assert got.name_of(0) == f"k{value}", text


def test_no_repeat_at_all():
    assert len(program("repeat 0 as i\nhost 1\nend")) == 0


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("kernel k{i} on s 1", 8),
        ("kernel k{1/2} on s 1", 8),
        ("kernel k{1//0} on s 1", 8),
        ("kernel k{ on s 1", 9),
        ("kernel k} on s 1", 9),
        ("kernel k{} on s 1", 8),
        ("kernel k{(1} on s 1", 8),
        ("kernel k{1**2} on s 1", 8),
        ("kernel k{__import__} on s 1", 8),
        (f"kernel k{{{'9' * 18}*{'9' * 18}}} on s 1", 8),
        (f"kernel k{{{'9' * 30}}} on s 1", 8),
        (f"kernel k{{{'(' * 300}}} on s 1", 8),
    ],
)
def test_bad_expressions(text: str, column: int):
    assert refused(text).column == column


@pytest.mark.parametrize(
    "text",
    [
        "repeat 99999999999\nend",
        "repeat 10000000 as i\nend",
        "repeat 3000 as i\nrepeat 3000 as j\nhost 1\nend\nend",
        "repeat 100000 as i\nrepeat {i} as j\nhost 1\nend\nend",
        "repeat 5000000 as i\nthread T{i}\nend\nend",
        "repeat 2\n" * 51 + "end\n" * 51,
        "repeat 1025 as i\nthread T{i}\nhost 1\nend\nend",
        "kernel k on default 0 blocks=2000000000 block=1/8",
        "repeat 5 as i\nkernel k{i} on default 0 blocks=1000000 block=1\nend",
    ],
)
def test_a_tape_too_large_is_refused_at_once(text: str):
    assert "more than" in str(refused(text))


CAPTURED = "capture s\nrepeat {nodes} as i\nkernel k{{i}} on s {time}\nend\nend-capture s as G\n"
LAUNCHED = "repeat {times}\nlaunch G on s\nend\n"


@pytest.mark.parametrize(
    "text",
    [
        CAPTURED.format(nodes=2000, time=0) + LAUNCHED.format(times=2001),
        LAUNCHED.format(times=2001) + CAPTURED.format(nodes=2000, time=0),
        CAPTURED.format(nodes=1, time="400000s") + LAUNCHED.format(times=12),
        CAPTURED.format(nodes=1, time=0).replace("as G", "as G0")
        + "repeat 30 as i\ncapture s\nrepeat 3\nlaunch G{i} on s\nend\nend-capture s as G{i + 1}\nend\n",
    ],
)
def test_graphs_launched_too_often_are_refused(text: str):
    assert "more than" in str(refused(f"stream s\n{text}"))


# ------------------------------------------------------------------------------------------------------- expectations


@pytest.mark.parametrize(
    ("text", "expectation"),
    [
        ("makespan 6ms", Expectation(4, "makespan", value=6 * ms)),
        ("makespan >= 6", Expectation(4, "makespan", relation=">=", value=6 * ms)),
        ("start x 1us", Expectation(4, "start", ("x",), value=1 * us)),
        ("end x <= 1/3ms", Expectation(4, "end", ("x",), "<=", 333_333_333)),
        ("return r 0", Expectation(4, "return", ("r",), value=0)),
        ("order x y", Expectation(4, "order", ("x", "y"))),
        ("unordered x y", Expectation(4, "unordered", ("x", "y"))),
        ("overlap x y", Expectation(4, "overlap", ("x", "y"))),
        ("no overlap x y", Expectation(4, "no overlap", ("x", "y"))),
        ("race x y", Expectation(4, "race", ("x", "y"))),
        ("race x y on B", Expectation(4, "race", ("x", "y"), buffer="B")),
        ("warning x y on B", Expectation(4, "warning", ("x", "y"), buffer="B")),
        ("nondeterminism x y", Expectation(4, "nondeterminism", ("x", "y"))),
        ("no race", Expectation(4, "no race")),
        ("no race x y", Expectation(4, "no race", ("x", "y"))),
        ("error StreamCaptureImplicit", Expectation(4, "error", value=906)),
        ("error cudaErrorNotReady at q", Expectation(4, "error", ("q",), value=600)),
        ("error 900 at q", Expectation(4, "error", ("q",), value=900)),
        ("elapsed t 2ms", Expectation(4, "elapsed", ("t",), value=2 * ms)),
        ("query q success", Expectation(4, "query", ("q",), value="success")),
        ("query q notready", Expectation(4, "query", ("q",), value="notready")),
        ("busy h2d 1/3", Expectation(4, "busy", ("h2d",), value=Fraction(1, 3))),
        ("busy sm >= 0.9", Expectation(4, "busy", ("sm",), ">=", Fraction(9, 10))),
        ("overlapped 0", Expectation(4, "overlapped", value=Fraction(0))),
    ],
)
def test_expectations(text: str, expectation: Expectation):
    tape = read(
        f"stream s\nkernel x on s 1 writes B as r\nkernel y on s 1\nexpect {text}\nelapsed e f as t\nquery s as q"
    )
    assert tape.expectations == (expectation,)


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "line", "column", "found", "said"),
    [
        # words that mean nothing, with a hint where one is close
        ("kernal k on s 1", 1, 1, "kernal", "did you mean 'kernel'?"),
        ("Kernel k on s 1", 1, 1, "Kernel", "did you mean 'kernel'?"),
        ("stream s0\nkernel k onn s0 1", 2, 10, "onn", "on STREAM; did you mean 'on'?"),
        ("stream copies\nkernel k on copeis 1", 2, 13, "copeis", "default, legacy or copies); did you mean 'copies'?"),
        ("stream s0\nkernel k on s0 1 shared=1/2", 2, 18, "shared=1/2", "share=F"),
        ("stream s0\nkernel k on s0 1 frist", 2, 18, "frist", "did you mean 'first'?"),
        ("stream s0\nh2d h on s0 1 pagable", 2, 15, "pagable", "did you mean 'pageable'?"),
        ("stream s0 s1 nonbloking", 1, 14, "nonbloking", "did you mean 'nonblocking'?"),
        ("buffer a pined", 1, 10, "pined", "did you mean 'pinned'?"),
        ("machine teching", 1, 9, "teching", "teaching"),
        ("machine teaching queus=8", 1, 18, "queus=8", "queues="),
        ("machine teaching queues=99", 1, 18, "queues=99", "1 to 32"),
        ("machine teaching queues", 1, 18, "queues", "KEY=VALUE"),
        ("host 1\nexpect makespam 1ms", 2, 8, "makespam", "did you mean 'makespan'?"),
        ("expect no ovrlap a b", 1, 11, "ovrlap", "did you mean 'overlap'?"),
        ("stream s\nsync s\nexpect error StreamCaptureImplict", 3, 14, "StreamCaptureImplict", "StreamCaptureImplicit"),
        # things that are missing
        ("kernel", 1, 7, "the end of the line", "a name for the operation"),
        ("stream s\nkernel k on s", 2, 14, "the end of the line", "a time"),
        ("stream s\nh2d h on s", 2, 11, "the end of the line", "a time"),
        ("h2d h 1", 1, 7, "1", "on STREAM"),
        ("stream s\np2p h on s 1", 2, 13, "the end of the line", "to=DEVICE"),
        ("stream", 1, 7, "the end of the line", "a name for the stream"),
        ("stream s\nkernel k on s 1 blocks=3", 2, 25, "the end of the line", "block=F"),
        ("stream s\nh2d h on s 1 p ->", 2, 18, "the end of the line", "a buffer"),
        ("host 1 as", 1, 8, "as", "the end of the line"),
        ("stream s\nend-capture", 2, 12, "the end of the line", "a stream"),
        # things too many
        ("stream s\nh2d h on s 1 sync", 2, 7, "on", "default stream"),
        ("stream s\nh2d h on s 1 2 3", 2, 16, "3", "a second size"),
        ("stream s\nsync s 1", 2, 8, "1", "the end of the line"),
        ("stream s\nkernel k on s 1 share=1/2 blocks=2 block=1/4", 2, 45, "the end of the line", "one or the other"),
        ("host 1\nend", 2, 1, "end", "no block is open"),
        ("thread T\nthread U\nend\nend", 2, 1, "thread", "stands in another"),
        ("host 1 as a\nhost 1 as a", 2, 11, "a", "already stands in line 1"),
        ("stream s\nkernel k on s 1 as k", 2, 8, "k", "already stands in line 2"),
        ("stream s\nrepeat 2\nkernel k on s 1\nend", 3, 8, "k", "put the counter into it"),
        ("stream s\nstream s", 2, 8, "s", "there already"),
        ("buffer b\nbuffer b", 2, 8, "b", "there already"),
        ("machine teaching\nmachine h200", 2, 1, "machine", "twice"),
        # blocks
        ("repeat 2", 1, 1, "repeat", "never closed"),
        ("repeat x\nend", 1, 8, "x", "a whole number"),
        ("repeat -1\nend", 1, 8, "-1", "a whole number"),
        ("repeat 2 as 3\nend", 1, 13, "3", "a name for the counter"),
        ("thread 5\nend", 1, 8, "5", "a name"),
        # declarations after the first call
        ("host 1\nmachine h200", 2, 1, "machine", "before the first call"),
        ("host 1\nbuffer b", 2, 1, "buffer", "before the first call"),
        ("host 1\ndefault-stream legacy", 2, 1, "default-stream", "before the first call"),
        # numbers
        ("host 1mss", 1, 6, "1mss", "a time"),
        ("host -1ms", 1, 6, "-1ms", "a time"),
        ("host 1/0", 1, 6, "1/0", "divides by zero"),
        ("host 1e3", 1, 6, "1e3", "a time"),
        ("host 60000000s", 1, 6, "60000000s", "too long"),
        (f"host {'9' * 50}", 1, 6, "9" * 50, "a time"),
        ("host 4KiB", 1, 6, "4KiB", "a time"),
        ("repeat 2\nhost 3000000s\nend", 2, 6, "3000000s", "add up"),
        ("stream s\nkernel k on s 1000s blocks=5000000 block=1/2", 2, 36, "block=1/2", "add up"),
        ("malloc b 1ms", 1, 10, "1ms", "a size"),
        ("stream s priority=high", 1, 19, "priority=high", "a whole number"),
        ("stream s device=9999", 1, 17, "device=9999", "0 to 255"),
        ("device -1", 1, 8, "-1", "0 to 255"),
        ("stream s\nkernel k on s 1 share=0", 2, 23, "share=0", "a share of the GPU"),
        ("stream s\nkernel k on s 1 share=9/8", 2, 23, "share=9/8", "a share of the GPU"),
        ("stream s\nkernel k on s 1 share=half", 2, 23, "share=half", "a share of the GPU"),
        ("stream s\nkernel k on s 1 blocks=0 block=1", 2, 24, "blocks=0", "1 to 2147483647"),
        # names
        ("stream 9s", 1, 8, "9s", "letters"),
        ("stream default", 1, 8, "default", "cannot be called"),
        ("stream device", 1, 8, "device", "cannot be called"),
        ("stream s\nkernel 1k on s 1", 2, 8, "1k", "letters"),
        ("stream s\nkernel k on s 1 reads A, B", 2, 25, "A,", "no spaces"),
        ("stream s\nh2d h on s 1 p->X", 2, 14, "p->X", "spaces around"),
        ("host 1 as 2", 1, 11, "2", "a label"),
        # streams, events, graphs and messages
        ("stream s\nrecord e on s\nsync e", 3, 6, "e", "e is an event, not a stream"),
        ("stream s\nwait s on s", 2, 6, "s", "is a stream, not an event"),
        ("stream s\ndestroy s\nsync s", 3, 6, "s", "destroyed in line 2"),
        ("destroy default", 1, 9, "default", "cannot be destroyed"),
        ("thread T\nreceive m\nend", 2, 9, "m", "no thread sends"),
        ("send done\nreceive dona", 2, 9, "dona", "did you mean 'done'?"),
        ("stream s\nlaunch G on s", 2, 8, "G", "no graph"),
        # names in expectations
        ("host 1 as work\nexpect return wrok 1ms", 2, 15, "wrok", "did you mean 'work'?"),
        ("host 1 as work\nexpect elapsed work 1ms", 2, 16, "work", "no elapsed"),
        ("stream s\nkernel k on s 1\nkernel j on s 1 writes B\nexpect race k j on C", 4, 20, "C", "no buffer"),
        ("stream s\nkernel k on s 1\nexpect start k.1 0ms", 3, 14, "k.1", "nothing is called"),
    ],
)
def test_errors_say_where_what_and_what_could_stand_there(text: str, line: int, column: int, found: str, said: str):
    error = refused(text)
    assert (error.line, error.column, error.found) == (line, column, found), str(error)
    assert said in str(error)
    assert str(error).startswith(f"x.tape:{line}:{column}: ")


def test_a_label_names_one_call():
    assert refused("host 1\nstream a b as made").column == 10


def test_a_machine_file_is_looked_for_beside_the_tape(tmp_path):
    (tmp_path / "my gpu.json").write_text(json.dumps({"queues": 3}))
    tape = read('machine "my gpu.json" copy_queues=2', folder=tmp_path)
    assert (tape.machine.queues, tape.machine.copy_queues) == (3, 2)
    error = refused('machine "nowhere.json"')
    assert (error.column, "nowhere.json" in str(error)) == (9, True)


def test_comments_blank_lines_tabs_and_line_ends():
    got = program("\ufeff# first\r\n\r\n\tstream s # a stream\r\n\thost  1ms#work\r\n")
    assert len(got) == 1


def test_graphs_may_be_launched_by_a_thread_that_stands_before_the_capture():
    got = program("""stream a
    thread T
      receive ready
      launch G on a
    end
    capture a
    kernel k on a 1
    end-capture a as G
    send ready
    expect start k.2 1ms""")
    assert got.graphs == ["G"]


# ------------------------------------------------------------------------------------- beyond the tape format: batches


def test_a_batch_has_its_copies_and_ends():
    got = program("stream s\nbatch b on s any-time as call\n  h2d h 1\n  d2d c 1 X -> Y\nend\nkernel k on s 1")
    assert got.rows.call.tolist() == [CallKind.BATCH, CallKind.BATCHED, CallKind.BATCHED, CallKind.LAUNCH]
    assert got.rows.flags.tolist() == [0, Flag.ANY_TIME, Flag.ANY_TIME, 0]
    assert got.find("call") == got.find("b") == 0


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("kernel k on s 1", "'kernel' stands in a batch; expected h2d, d2h, d2d or end"),
        ("h2d h on s 1", "the batch has the stream"),
        ("h2d h 1 sync", "the batch has the stream"),
        ("h2d h 1 as x", "the label belongs to the batch"),
        ("batch c on s\nend", "'batch' stands in a batch"),
    ],
)
def test_only_plain_copies_stand_in_a_batch(inside: str, said: str):
    with pytest.raises(TapeError) as caught:
        read(f"stream s\nbatch b on s\n{inside}\nend")
    assert said in str(caught.value)
    assert caught.value.line == 3


def test_values_in_memory():
    got = program("stream s\nwait-value F nor 7 on s\nwrite-value F 8 on s\nwrite-value F 9")
    assert got.rows.call.tolist() == [CallKind.WAIT_VALUE, CallKind.WRITE_VALUE, CallKind.STORE]
    assert got.rows.bytes.tolist() == [7, 8, 9]
    assert got.rows.second[0] == Condition.NOR
    assert got.words == ["F"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("wait-value F > 1 on s", ">=, =, & or nor"),
        ("wait-value F >= -1 on s", "a whole number from 0 to 4294967295"),
        ("wait-value F >= 1", "on STREAM"),
        ("write-value F 4294967296", "a whole number from 0 to 4294967295"),
    ],
)
def test_values_in_memory_that_cannot_be(statement: str, said: str):
    with pytest.raises(TapeError) as caught:
        read(f"stream s\n{statement}")
    assert said in str(caught.value)
