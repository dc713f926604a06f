"""The race check on small programs: what races, in which class, and what would repair it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gapless.model.errors import GaplessError
from gapless.model.happens_before import Happened, happened_in, issue_order, order
from gapless.model.kinds import MemoryKind, OpKind, StreamKind
from gapless.model.machine import Machine
from gapless.model.program import Grid, Program, Word
from gapless.model.races import MOST, RaceClass, Races, find_races
from gapless.model.schedule import schedule
from gapless.model.tape import read
from gapless.model.units import ms

NON_BLOCKING = StreamKind.NON_BLOCKING


def races_of(text: str, **knobs: str) -> set[str]:
    """Play a tape; give its races as ``class first second buffer``."""
    tape = read(text)
    happened = happened_in(schedule(tape.program, tape.machine.with_knobs(**knobs) if knobs else tape.machine))
    return said(find_races(tape.program, happened))


def said(races: Races) -> set[str]:
    return {" ".join([r.kind.word, r.first.name, r.second.name, r.buffer]).strip() for r in races}


def whichever_is_first(races: set[str]) -> set[tuple[str, ...]]:
    return {tuple(sorted(race.split())) for race in races}


TWO = "stream a b nonblocking\n"

CASES: dict[str, tuple[str, set[str]]] = {
    "unordered kernels": (TWO + "kernel x on a 1 writes X\nkernel y on b 1 reads X writes Y", {"error x y X"}),
    "an event between": (
        TWO + "kernel x on a 1 writes X\nrecord e on a\nwait e on b\nkernel y on b 1 reads X writes Y",
        set(),
    ),
    "the event was recorded too early": (
        TWO + "record e on a\nkernel x on a 1 writes X\nwait e on b\nkernel y on b 1 reads X",
        {"error x y X"},
    ),
    "the wait came before the record": (
        TWO + "wait e on b\nkernel y on b 1 reads X\nkernel x on a 1 writes X\nrecord e on a",
        {"error y x X"},
    ),
    "recorded again elsewhere": (
        "stream a b c nonblocking\nkernel x on a 1 writes X\nrecord e on a\nrecord e on b\nwait e on c\n"
        "kernel y on c 1 reads X",
        {"error x y X"},
    ),
    "two readers": (TWO + "kernel x on a 1 reads X\nkernel y on b 1 reads X", set()),
    "one engine is no order": (TWO + "h2d h on a 1 p -> X\nh2d g on b 1 q -> X", {"error h g X"}),
    "one queue is no order": (
        "machine fermi\n" + TWO + "kernel x on a 1 writes X\nkernel y on b 1 reads X",
        {"error x y X"},
    ),
    "pinned source overwritten": ("stream a nonblocking\nh2d h on a 1 p -> X\nwrite p as w", {"error h w p"}),
    "pageable source overwritten": (
        "stream a nonblocking\nbuffer p pageable\nh2d h on a 1 p -> X pageable\nwrite p as w",
        {"warning h w p"},
    ),
    "pageable source overwritten by another thread": (
        "stream a nonblocking\nbuffer p pageable\nthread T1\nh2d h on a 1 p -> X pageable\nend\n"
        "thread T2\nwrite p as w\nend",
        {"error h w p"},
    ),
    "pageable result read": (
        "stream a nonblocking\nbuffer p pageable\nd2h d on a 1 X -> p pageable\nread p as r",
        {"warning d r p"},
    ),
    "pageable memory out and in again": (  # the second copy may read at its call; the first is complete by then today
        "stream a nonblocking\nbuffer p pageable\nd2h d on a 1 X -> p pageable\nh2d h on a 1 p -> Y pageable",
        {"warning d h p"},
    ),
    "pageable memory in and out again": (
        "stream a nonblocking\nbuffer p pageable\nh2d h on a 1 p -> Y pageable\nd2h d on a 1 X -> p pageable",
        set(),
    ),
    "pageable memory in two streams": (
        TWO + "buffer p pageable\nd2h d on a 1 X -> p pageable\nh2d h on b 1 p -> Y pageable",
        {"error d h p"},
    ),
    "a host function fills pageable memory": (
        "stream a nonblocking\nbuffer p pageable\nhostfn f on a 1 writes p\nh2d h on a 1 p -> Y pageable",
        {"error f h p"},
    ),
    "a host function fills pinned memory": (
        "stream a nonblocking\nhostfn f on a 1 writes p\nh2d h on a 1 p -> Y",
        set(),
    ),
    "a plain copy out is complete": ("d2h d 1 X -> p sync\nread p as r", set()),
    "a plain copy out does not wait for non-blocking streams": (
        "stream n nonblocking\nkernel k on n 1 writes X\nd2h d 1 X -> p sync\nread p as r",
        {"error k d X"},
    ),
    "a plain pageable copy in leaves its source alone": (
        "buffer p pageable\nh2d h 1 p -> X pageable sync\nwrite p as w",
        set(),
    ),
    "a plain pageable copy in may still be landing": (
        "stream n nonblocking\nbuffer p pageable\nh2d h 1 p -> X pageable sync\nkernel k on n 1 reads X",
        {"error h k X"},
    ),
    "a plain pinned copy in has landed": ("stream n nonblocking\nh2d h 1 p -> X sync\nkernel k on n 1 reads X", set()),
    "a plain copy inside the device has not": (
        "stream n nonblocking\nd2d c 1 X -> Y sync\nkernel k on n 1 reads Y",
        {"error c k Y"},
    ),
    "a plain memset has not": ("stream n nonblocking\nmemset m 1 -> X sync\nkernel k on n 1 reads X", {"error m k X"}),
    "a plain memset of pinned memory has": (
        "buffer p pinned\nmemset m 1 -> p pinned sync\nread p as r",
        set(),
    ),
    "a copy between host memory is complete": (
        "stream n nonblocking\nh2h c on n 1 p -> q\nread q as r\nwrite p as w",
        set(),
    ),
    "managed memory is uncertain": (
        "buffer m managed\nd2h d 1 X -> m sync\nread m as r",
        {"warning d r m"},
    ),
    "a record on the legacy stream covers the blocking streams": (
        "stream a blocking\nstream n nonblocking\nkernel x on a 1 writes X\nrecord e on default\nwait e on n\n"
        "kernel y on n 1 reads X",
        set(),
    ),
    "but it is no barrier between them": (
        "stream a b blocking\nkernel x on a 1 writes X\nrecord e on default\nkernel y on b 1 reads X",
        {"error x y X"},
    ),
    "nor is an allocation there": (
        "stream a b blocking\nkernel x on a 1 writes X\nmalloc Z on default\nkernel y on b 1 reads X",
        {"error x y X"},
    ),
    "nor a copy of nothing": (
        "stream a b blocking\nkernel x on a 1 writes X\nmemset m on default 0 0B\nkernel y on b 1 reads X",
        {"error x y X"},
    ),
    "a kernel is": (
        "stream a b blocking\nkernel x on a 1 writes X\nkernel m on default 1\nkernel y on b 1 reads X",
        set(),
    ),
    "an allocation on the legacy stream comes before its uses": (
        "stream a blocking\nmalloc Z 1KiB on default\nkernel x on a 1 writes Z",
        set(),
    ),
    "cudaMalloc and cudaFree order nothing": (
        TWO + "malloc Z\nkernel x on a 1 writes X\nfree Z\nmalloc Z2\nkernel y on b 1 reads X",
        {"error x y X"},
    ),
    "another thread's synchronise": (
        TWO + "thread T1\nkernel x on a 1 writes X\nsync a\nend\nthread T2\nkernel y on b 1 reads X\nend",
        {"error x y X"},
    ),
    "told of it": (
        TWO + "thread T2\nreceive done\nkernel y on b 1 reads X\nend\n"
        "thread T1\nkernel x on a 1 writes X\nsync a\nsend done\nend",
        set(),
    ),
    "a query that succeeds": ("stream a nonblocking\nd2h d on a 1 X -> p\nhost 2\nquery a\nread p as r", set()),
    "a query that does not": ("stream a nonblocking\nd2h d on a 1 X -> p\nquery a\nread p as r", {"error d r p"}),
    "devices have legacy streams of their own": (
        "kernel x on default 1 writes X\nkernel y on default.1 1 reads X",
        {"error x y X"},
    ),
    "a plain peer copy is of both": (
        "kernel x on default 1 writes X\nkernel y on default.1 1 reads Y\np2p c 1 X -> Y to=1 sync\n"
        "kernel z on default.1 1 reads Y\nkernel w on default 1 writes X",
        set(),
    ),
    "but not of non-blocking streams": (
        "stream s nonblocking\nkernel x on s 1 writes X\np2p c 1 X -> Y to=1 sync",
        {"error x c X"},
    ),
    "freed while in use": (
        "stream n nonblocking\nmalloc p 1MiB on n\nkernel x on n 3 writes p\nsync n\nkernel y on n 1 reads p\n"
        "free p as gone",
        {"unallocated y gone p"},
    ),
    "used after the free, in order": (
        "stream n nonblocking\nmalloc p 1MiB on n as m\nfree p on n as gone\nkernel x on n 1 writes p",
        {"unallocated gone x p"},
    ),
    "freed twice": (
        "stream n nonblocking\nmalloc p 1MiB on n\nfree p on n as once\nfree p on n as twice",
        {"unallocated once twice p"},
    ),
    "used before the allocation": (
        "stream n nonblocking\nkernel x on n 1 writes p\nmalloc p 1MiB on n as m",
        {"unallocated x m p"},
    ),
    "allocated by a thread that tells nobody": (
        "stream n nonblocking\nthread T2\nkernel x on n 1 writes p\nend\nthread T1\nmalloc p 1MiB as m\nend",
        {"unallocated x m p"},
    ),
    "the same name, allocated again": (  # is other memory: the pool hands memory out only where that is safe
        TWO + "malloc p 1MiB on a\nkernel x on a 1 writes p\nfree p on a\nmalloc p 1MiB on b\nkernel y on b 1 writes p",
        set(),
    ),
    "memory handed out again": (
        TWO + "kernel x on a 1 writes M\nreuse N of M\nkernel y on b 1 writes N",
        {"error x y M"},
    ),
    "handed out twice over": (
        TWO + "kernel x on a 1 writes M\nreuse N of M\nreuse O of N\nkernel y on b 1 writes O",
        {"error x y M"},
    ),
    "something else handed out in between": (
        TWO + "kernel x on a 1 writes M\nreuse N of M\nreuse N of O\nkernel y on b 1 writes N",
        set(),
    ),
    "handed out after some thread's synchronise": (  # R8.3: the pool knows, whoever synchronised
        TWO + "thread T1\nmalloc p 1KiB on a\nkernel x on a 1 writes p\nfree p on a\nsync a\nhost 1\nend\n"
        "thread T2\nhost 2\nmalloc q 1KiB on b\nreuse q of p\nkernel y on b 1 writes q\nend",
        set(),
    ),
    "pinned memory freed under a copy": (
        "stream s nonblocking\nhostalloc p 1KiB\nh2d h on s 1 p -> X\nhostfree p as gone",
        {"unallocated h gone p"},
    ),
    "one runs twice": (
        TWO + "capture a\nkernel x on a 1 writes X\nend-capture a as G\nlaunch G on a\nkernel y on b 1 reads X\n"
        "launch G on b",
        {"error x.1 y X"},
    ),
    "two graphs": (
        TWO + "capture a\nkernel x on a 1 writes X\nend-capture a as G\ncapture a\nkernel y on a 1 reads X\n"
        "end-capture a as H\nlaunch G on a\nlaunch H on b",
        {"error x y X"},
    ),
    "inside a graph": (
        TWO + "capture a\nrecord e on a\nwait e on b\nkernel x on a 1 writes X\nkernel y on b 1 reads X\n"
        "record f on b\nwait f on a\nend-capture a as G\nlaunch G on a",
        {"error x y X"},
    ),
    "the streams of a capture mean nothing when it runs": (
        TWO + "kernel x on a 1 writes X\ncapture a\nkernel y on a 1 reads X\nend-capture a as G\nlaunch G on b",
        {"error x y X"},
    ),
    "a graph on the legacy stream is a barrier": (
        "stream n nonblocking\nstream a b blocking\ncapture n\nkernel z on n 1\nend-capture n as G\n"
        "kernel x on a 1 writes X\nlaunch G on default\nkernel y on b 1 reads X",
        set(),
    ),
    "an empty graph is none": (
        "stream n nonblocking\nstream a b blocking\ncapture n\nend-capture n as G\n"
        "kernel x on a 1 writes X\nlaunch G on default\nkernel y on b 1 reads X",
        {"error x y X"},
    ),
    "an allocation that fails changes nothing": (
        "stream n b nonblocking\nkernel x on b 1 writes m\ncapture n thread\nmalloc m 1KiB\nend-capture n as G",
        set(),
    ),
    "what is captured does not run": (
        TWO + "capture a\nkernel x on a 1 writes X\nend-capture a as G\nkernel y on b 1 reads X",
        set(),
    ),
    "a copy that breaks the capture does nothing": (
        "stream a blocking\nstream n nonblocking\ncapture a\nh2d h 1 p -> X sync\nend-capture a as G\n"
        "kernel y on n 1 reads X",
        set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_small_programs(case: str):
    text, expected = CASES[case]
    assert races_of(text) == expected


def test_launch_blocking_and_synchronous_memory_operations_are_documented_order():
    """No other knob changes happens-before; these two are promises."""
    text = TWO + "kernel x on a 1 writes X\nkernel y on b 1 reads X"
    assert races_of(text) == {"error x y X"}
    assert races_of(text, launch_blocking="yes") == set()
    text = "stream n nonblocking\nmemset m 1 -> X sync\nkernel k on n 1 reads X"
    assert races_of(text, sync_memops="yes") == set()


@pytest.mark.parametrize(
    ("profile", "knobs"),
    [
        ("h200", {}),
        ("fermi", {}),
        ("teaching", {"malloc_sync": "yes", "free_sync": "no", "legacy_noop_barrier": "no"}),
        ("h200", {"hostfn_workers": "4", "legacy_noop_barrier": "yes", "driver_lock": "no", "queues": "1"}),
    ],
    ids=str,
)
def test_no_knob_changes_what_is_ordered(profile: str, knobs: dict[str, str]):
    for text, expected in CASES.values():
        if "query" not in text and "machine" not in text and " host " not in text:
            tape = read(text)
            happened = happened_in(schedule(tape.program, Machine.named(profile).with_knobs(**knobs)))
            found = said(find_races(tape.program, happened))
            assert whichever_is_first(found) == whichever_is_first(expected)


# ------------------------------------------------------------------------------------------- what a tape cannot say


def test_ranges_of_bytes():
    program = Program()
    a, b = program.stream("a", NON_BLOCKING), program.stream("b", NON_BLOCKING)
    buffer = program.buffer("X", 100)
    a.kernel(1, writes=[buffer[:50]], name="low")
    b.kernel(1, writes=[buffer[50:]], name="high")
    b.kernel(1, reads=[buffer[40:60]], name="middle")
    a.kernel(1, reads=[buffer], name="all")
    assert said(find_races(program)) == {"error low middle X", "error high all X"}


def test_a_range_of_memory_whose_size_is_not_known():
    program = Program()
    a, b = program.stream("a", NON_BLOCKING), program.stream("b", NON_BLOCKING)
    buffer = program.buffer("X")
    a.kernel(1, writes=[buffer[1000:]], name="tail")
    b.kernel(1, writes=[buffer[:1000]], name="head")
    b.kernel(1, reads=[buffer], name="all")
    assert said(find_races(program)) == {"error tail all X"}


def test_names_of_one_memory_may_differ_in_size():
    program = Program()
    a, b = program.stream("a", NON_BLOCKING), program.stream("b", NON_BLOCKING)
    large, small = program.buffer("large", 100), program.buffer("small", 50)
    a.kernel(1, writes=[large[50:]], name="x")
    a.kernel(1, writes=[large[:50]], name="w")
    program.reuse(small, large)
    b.kernel(1, writes=[small], name="y")
    races = find_races(program)
    assert said(races) == {"error w y large"}
    assert races[0].buffers == ("large", "small")


def programmatic(prologue: int) -> Program:
    program = Program()
    s, x = program.stream("s", NON_BLOCKING), program.buffer("X", 8)
    s.kernel(3, writes=[x], grid=Grid(trigger=1), name="first")
    s.kernel(2, reads=[x], grid=Grid(prologue=prologue), programmatic=True, name="second")
    s.kernel(1, reads=[x], name="third")
    program.sync_device()
    program.legacy().kernel(1, reads=[x], name="last")
    return program


def test_a_dependent_kernel_that_reads_before_it_waits():
    """R6.14, HB15: who comes after the dependent in the stream is ordered after it alone, a synchronise after both."""
    assert said(find_races(programmatic(1))) == set()
    assert said(find_races(programmatic(2))) == {"error first second X", "error first third X"}
    assert "without programmatic dependence on first" in str(find_races(programmatic(2))[0].repair)


def test_the_order_of_issue_decides():
    program = Program()
    a, b, e = program.stream("a", NON_BLOCKING), program.stream("b", NON_BLOCKING), program.event("e")
    x = program.buffer("X")
    with program.thread("T1"):
        rows = [a.kernel(1, writes=[x], name="x"), a.record(e)]
    with program.thread("T2"):
        rows += [b.wait(e), b.kernel(1, reads=[x], name="y")]
    assert [r.kind for r in find_races(program, Happened(issued=rows))] == [RaceClass.NONDETERMINISM]
    wait_first = [rows[2], *rows[:2], rows[3]]
    assert {r.kind for r in find_races(program, Happened(issued=wait_first))} == {
        RaceClass.ERROR,
        RaceClass.NONDETERMINISM,
    }


def test_the_text_is_the_order_of_issue_but_for_who_waits_for_a_message():
    program = Program()
    chain = 1500
    for i in range(chain, 0, -1):  # each thread waits for the one that stands below it in the text
        with program.thread(f"T{i}"):
            program.receive(f"m{i - 1}")
            program.host(1)
            program.send(f"m{i}")
    program.send("m0")
    issued = issue_order(program)
    assert sorted(issued) == list(range(len(program)))
    assert [program.rows.thread[row] for row in issued[1::3]] == list(range(chain, 0, -1))
    assert order(program).before(issued[0], issued[-1])


def test_a_query_orders_only_what_it_is_known_to_have_seen():
    program = Program()
    s, p = program.stream("s", NON_BLOCKING), program.buffer("p", 8, MemoryKind.PINNED)
    s.d2h(1, dst=p, name="d")
    query = s.query()
    program.read(p, label="r")
    assert said(find_races(program)) == {"error d r p"}
    assert said(find_races(program, Happened(errors={**dict.fromkeys(range(3), 0), query: 600}))) == {"error d r p"}
    assert said(find_races(program, Happened(errors=dict.fromkeys(range(3), 0)))) == set()


def test_a_wait_for_an_outside_event_inside_a_graph():
    program = Program()
    a, b, e, x = (program.stream("a", NON_BLOCKING), program.stream("b", NON_BLOCKING), program.event("e"),
                  program.buffer("X"))  # fmt: skip
    b.capture()
    b.wait(e, external=True)
    b.kernel(1, reads=[x], name="y")
    graph = b.end_capture()
    a.kernel(1, writes=[x], name="x")
    a.record(e)
    b.launch(graph)
    assert said(find_races(program)) == set()


def test_a_graph_inside_a_graph():
    program = Program()
    s, t, x = program.stream("s", NON_BLOCKING), program.stream("t", NON_BLOCKING), program.buffer("X")
    s.capture()
    s.kernel(1, writes=[x], name="inner")
    inner = s.end_capture()
    s.capture()
    s.kernel(1, reads=[x], name="before")
    s.launch(inner)
    s.kernel(1, reads=[x], name="after")
    outer = s.end_capture()
    t.launch(outer)
    t.kernel(1, writes=[x], name="last")
    assert said(find_races(program)) == set()
    order_ = order(program)
    assert order_.before(program.find("before"), program.find("inner"))
    assert order_.before(program.find("inner"), program.find("after"))


def test_another_instance_of_a_graph_may_overlap_it():
    program = Program()
    s, t, x = program.stream("s", NON_BLOCKING), program.stream("t", NON_BLOCKING), program.buffer("X")
    s.capture()
    s.kernel(1, writes=[x], name="k")
    graph = s.end_capture()
    other = program.instantiate(graph)
    s.launch(graph)
    t.launch(graph)
    assert said(find_races(program)) == set()
    t.launch(other)
    s.launch(graph)
    assert said(find_races(program)) == {"error k.3 k.4 X"}


# --------------------------------------------------------------------------------------------------------- chance


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("thread T1\nkernel x on default 1\nend\nthread T2\nkernel y on default 1\nend", {"nondeterminism x y"}),
        (
            "stream s blocking\nthread T1\nkernel x on default 1\nend\nthread T2\nkernel y on s 1\nend",
            {"nondeterminism x y"},
        ),
        (TWO + "thread T1\nkernel x on a 1\nend\nthread T2\nkernel y on b 1\nend", set()),
        (
            "stream s nonblocking\nthread T1\nkernel x on s 1\nsend m\nend\nthread T2\nreceive m\nkernel y on s 1\nend",
            set(),
        ),
        (
            TWO + "thread T1\nkernel x on a 1\nrecord e on a as r\nend\nthread T2\nwait e on b as w\nend",
            {"nondeterminism r w"},
        ),
        (
            TWO + "thread T1\nkernel x on a 1\nrecord e on a as r\nend\nthread T2\nsync event e as w\nend",
            {"nondeterminism r w"},
        ),
        (
            "stream s device=1\nthread T1\np2p c 1 to=1 sync\nend\nthread T2\nkernel y on default.1 1\nend",
            {"nondeterminism c y"},
        ),
        (  # a synchronise that happens to cover the kernel does not decide which thread comes first
            "stream s nonblocking\nthread T1\nkernel x on s 1\nend\nthread T2\nsync s\nkernel y on s 1\nend",
            {"nondeterminism x y"},
        ),
    ],
)  # fmt: skip
def test_what_is_left_to_chance(text: str, expected: set[str]):
    assert races_of(text) == expected


# --------------------------------------------------------------------------------------------------------- repairs


@pytest.mark.parametrize(
    ("text", "repair"),
    [
        (CASES["unordered kernels"][0], "record e on a after x; wait e on b before y"),
        (
            TWO + "kernel x on a 1 writes X\nrecord done on a\nkernel y on b 1 reads X",
            "wait done on b before y",
        ),
        (  # done no longer stands for x alone, but it stands; e does not
            TWO + "kernel x on a 1 writes X\nrecord e on a\nrecord done on a\nrecord e on b\nkernel y on b 1 reads X",
            "wait done on b before y",
        ),
        (CASES["pinned source overwritten"][0], "sync a before w"),
        (
            "stream a nonblocking\nh2d h on a 1 p -> X\nkernel k on a 5\nwrite p as w",
            "record e on a after h; sync event e before w",
        ),
        (
            "stream a nonblocking\nh2d h on a 1 p -> X\nrecord copied on a\nkernel k on a 5\nwrite p as w",
            "sync event copied before w",
        ),
        (CASES["used after the free, in order"][0], "move gone behind x"),
        (CASES["used before the allocation"][0], "move m before x"),
        (
            CASES["another thread's synchronise"][0],
            "record e on a, send m after x in thread T1; receive m, wait e on b before y in thread T2",
        ),
        (
            "thread T1\nwrite p as x\nend\nthread T2\nread p as y\nend",
            "send m after x in thread T1; receive m before y in thread T2",
        ),
        (CASES["inside a graph"][0], "record e1 on a after x; wait e1 on b before y"),
        (CASES["two graphs"][0], "record e on a after G; wait e on b before H"),
    ],
)
def test_the_shortest_repair(text: str, repair: str):
    tape = read(text)
    races = find_races(tape.program, happened_in(schedule(tape.program)))
    assert len(races) == 1
    assert (
        str(races[0].repair)
        .replace("launch on a (call 6 of thread main)", "G")
        .replace("launch on b (call 7 of thread main)", "H")
        == repair
    )


def drop(statement: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [line for line in lines if line.strip() != statement]


PIPELINE = """\
stream up compute down nonblocking
buffer in0 in1 1MiB pinned
repeat 4 as i
  sync event read{i%2}
  write in{i%2} as fill{i}
  wait used{i%2} on up
  h2d h{i} on up 1 in{i%2} -> d{i%2}
  record copied{i%2} on up
  record read{i%2} on up
  wait copied{i%2} on compute
  wait saved{i%2} on compute
  kernel k{i} on compute 1 reads d{i%2} writes r{i%2}
  record used{i%2} on compute
  record made{i%2} on compute
  wait made{i%2} on down
  d2h g{i} on down 1 r{i%2} -> out{i}
  record saved{i%2} on down
end
sync device
repeat 4 as i
  read out{i} as take{i}
end
"""


def test_a_whole_pipeline_is_right_and_each_wait_of_it_needed():
    assert races_of(PIPELINE) == set()
    needed = {
        "sync event read{i%2}": "error h0 fill2 in0",
        "wait used{i%2} on up": "error k0 h2 d0",
        "wait copied{i%2} on compute": "error h0 k0 d0",
        "wait saved{i%2} on compute": "error g0 k2 r0",
        "wait made{i%2} on down": "error k0 g0 r0",
        "sync device": "error g0 take0 out0",
    }
    for statement, race in needed.items():
        broken = "\n".join(drop(statement)(PIPELINE.splitlines()))
        assert race in races_of(broken), statement


def test_the_repair_of_a_dropped_wait_is_that_wait():
    tape = read("\n".join(drop("wait copied{i%2} on compute")(PIPELINE.splitlines())))
    races = find_races(tape.program, happened_in(schedule(tape.program)))
    assert str(next(r for r in races if r.second.name == "k0").repair) == "wait copied0 on compute before k0"


# --------------------------------------------------------------------------------------------------- what is reported


def test_a_race_in_words_and_as_json():
    tape = read(CASES["unordered kernels"][0])
    (race,) = find_races(tape.program)
    assert str(race) == (
        "error: x writes X and y reads it, with no order between them. "
        "To repair: record e on a after x; wait e on b before y"
    )
    assert race.to_dict() == {
        "class": "error", "first": "x", "second": "y", "buffer": "X",
        "repair": "record e on a after x; wait e on b before y",
    }  # fmt: skip


def test_a_warning_and_chance_in_words():
    tape = read(CASES["pageable source overwritten"][0])
    assert "with no order between them that the documentation promises; today's drivers hide it" in str(
        find_races(tape.program)[0]
    )
    tape = read("thread T1\nkernel x on default 1\nend\nthread T2\nkernel y on default 1\nend")
    (race,) = find_races(tape.program)
    assert "which is first is left to chance" in str(race)
    assert race.to_dict()["buffer"] is None


def test_unnamed_accesses_are_described():
    tape = read("stream a nonblocking\nh2d h on a 1 p -> X\nwrite p")
    assert find_races(tape.program)[0].second.name == "write p (call 1 of thread main)"


def test_runs_of_a_graph_have_numbers():
    tape = read(CASES["one runs twice"][0])
    races, find = find_races(tape.program), tape.program.find
    assert races.between((find("x"), 1), find("y"))
    assert not races.between((find("x"), 2), find("y"))
    assert not races.between(find("x"), find("y"))  # the last run
    order_ = order(tape.program)
    assert order_.before((find("x"), 1), (find("x"), 2))
    assert order_.runs(find("x")) == 2


def test_worst_first():
    tape = read(
        "stream a b nonblocking\nbuffer p pageable\nd2h d on a 1 X -> p pageable\nread p as r\n"
        "kernel x on a 1 writes Y\nkernel y on b 1 writes Y"
    )
    races = find_races(tape.program)
    assert [race.kind for race in races] == [RaceClass.ERROR, RaceClass.WARNING]
    assert [race.first.name for race in races.errors] == ["x"]


def test_a_program_with_more_races_than_anyone_reads():
    program = Program()
    a, b, x = program.stream("a", NON_BLOCKING), program.stream("b", NON_BLOCKING), program.buffer("X")
    rows = [stream.kernel(1, writes=[x], name=f"{stream.info.name}{i}") for i in range(150) for stream in (a, b)]
    races = find_races(program)
    assert races.more
    assert len(races) == MOST
    last = races.between(rows[-2], rows[-1])  # not listed, and still answered
    assert [(race.first.name, race.second.name) for race in last] == [("a149", "b149")]
    assert not races.between(rows[0], rows[2])


def test_a_stream_fed_by_two_threads_without_end():
    program = Program()
    stream = program.stream("s", NON_BLOCKING)
    for thread in ("T1", "T2"):
        with program.thread(thread):
            for _ in range(2000):
                stream.kernel(1)
    races = find_races(program)
    assert races.more
    assert len(races) == MOST
    assert races.between(1999, 3999)


def test_an_event_that_is_not_known_promises_nothing():
    """A recording may tell that a stream waited, and not for which event."""
    program = Program()
    a, b, x = program.stream("a", NON_BLOCKING), program.stream("b", NON_BLOCKING), program.buffer("X")
    event = program.event("e")
    a.kernel(1, writes=[x], name="x")
    known = [a.record(event), b.wait(event), event.sync(), event.query()]
    b.kernel(1, reads=[x], name="y")
    assert said(find_races(program)) == set()
    column = program.rows.object.copy()
    column[known] = -1
    assert said(find_races(program.replace(object=column), Happened(errors=[0] * len(program)))) == {"error x y X"}


def test_memory_handed_on_many_times():
    program = Program()
    a, b = program.stream("a", NON_BLOCKING), program.stream("b", NON_BLOCKING)
    block = program.buffer("block0")
    a.kernel(1, writes=[block], name="x")
    for i in range(1, 3000):
        again = program.buffer(f"block{i}")
        program.reuse(again, block)
        block = again
    b.kernel(1, writes=[block], name="y")
    (race,) = find_races(program)
    assert (race.buffer, len(race.buffers)) == ("block0", 3000)


def test_streams_may_be_renamed_and_listed_in_another_order():
    tape = read(PIPELINE.replace("  wait copied{i%2} on compute\n", ""))
    program, rows = tape.program, tape.program.rows
    turned = program.replace(stream=len(program.streams) - 1 - rows.stream.clip(0), op=rows.op)
    turned.streams = list(reversed(program.streams))
    assert [(r.first.row, r.second.row, r.kind) for r in find_races(turned)] == [
        (r.first.row, r.second.row, r.kind) for r in find_races(program)
    ]


def test_what_never_runs_is_in_no_order():
    tape = read(
        "stream s nonblocking\nkernel x on s 1\ncapture s\nkernel c on s 1\nend-capture s as G\nkernel y on s 1"
    )
    order_, find = order(tape.program), tape.program.find
    assert order_.before(find("x"), find("y"))
    assert order_.runs(find("c")) == 0
    with pytest.raises(GaplessError, match=r"kernel c on s .* never runs"):
        order_.before(find("x"), find("c"))


def test_a_recorded_program_without_names_and_memory_kinds():
    """Unknown stream kinds fence nothing, unknown memory promises nothing."""
    program = Program()
    program.stream("a", NON_BLOCKING)
    program.streams[0] = type(program.streams[0])("a", StreamKind.UNKNOWN)
    x = program.buffer("X")
    row = program.extend(call=[1, 1], op=[OpKind.KERNEL, OpKind.KERNEL], stream=[0, program.legacy().row])
    program.access(list(row), x.row, True)
    assert [race.kind for race in find_races(program)] == [RaceClass.ERROR]


def test_an_order_by_a_value_alone_is_a_warning_and_its_repair_waits_for_nothing():
    """R5.9: a synchronise before the host's write would wait for the store behind that write."""
    program = Program()
    stream, go = program.stream("s", StreamKind.NON_BLOCKING), program.word("go")
    pinned, device = program.buffer("p", 4096, MemoryKind.PINNED), program.buffer("d", 4096)
    stream.wait_value(go, 1)
    stream.h2d(1 * ms, 4096, src=pinned, dst=device, name="h")
    program.write(pinned, label="filled")
    go.store(1)
    (race,) = find_races(program, happened_in(schedule(program)))
    assert (race.kind, race.unseen, race.repair.add) == (RaceClass.WARNING, True, ())
    assert "only a value in memory orders the two, which CUDA cannot see" in str(race)
    (race,) = find_races(program)  # no run: nothing says which store ended the wait
    assert race.kind is RaceClass.ERROR


def run_of(program: Program, go: Word) -> Races:
    """The races of a run in which the host ends all waits for a word at last."""
    with program.thread("GO"):
        program.host(10 * ms)
        go.store(9)
    return find_races(program, happened_in(schedule(program)))


def test_a_peer_copy_that_is_put_off_holds_up_both_devices():
    """R3.7, R5.9: it waits for what waits for a value, and what comes later waits for it, on the other device too."""
    program = Program()
    b, go, x = program.stream("b", StreamKind.BLOCKING), program.word("go"), program.buffer("X", 100)
    b.wait_value(go, 9)
    program.set_device(1)
    program.p2p(1 * ms, 100, to=0, src=program.buffer("Y", 100), dst=x)
    b.kernel(1 * ms, reads=[x])
    assert not run_of(program, go)


def test_a_query_of_what_is_not_over_keeps_nobody_waiting():
    """R5.9: the store comes after it, and so does what the store ends."""
    program = Program()
    s, go, x = program.stream("s", NON_BLOCKING), program.word("go"), program.buffer("X", 100, MemoryKind.PINNED)
    s.wait_value(go, 1)
    s.h2d(1 * ms, 100, src=x, dst=program.buffer("D", 100))
    program.write(x)
    s.query()
    go.store(1)
    (race,) = run_of(program, go)
    assert (race.kind, race.unseen) == (RaceClass.WARNING, True)


def test_a_launch_waits_for_no_stream_but_those_before_it():
    """R7.1, R5.9: a graph launched while another stream waits for a value may be what the value comes after."""
    program = Program()
    a, b, go = program.stream("a", NON_BLOCKING), program.stream("b", NON_BLOCKING), program.word("go")
    x = program.buffer("X", 100)
    b.capture()
    b.kernel(1 * ms, writes=[x])
    graph = b.end_capture()
    a.wait_value(go, 1)
    a.kernel(1 * ms, reads=[x])
    b.launch(graph)
    b.write_value(go, 1)
    (race,) = run_of(program, go)
    assert (race.kind, race.unseen) == (RaceClass.WARNING, True)


def test_launches_of_a_graph_keep_their_order_where_the_first_waits_for_a_value():
    """R7.1, R5.9: the second one stands in another stream."""
    program = Program()
    a, b, go = program.stream("a", NON_BLOCKING), program.stream("b", NON_BLOCKING), program.word("go")
    b.capture()
    b.kernel(1 * ms, writes=[program.buffer("X", 100)])
    graph = b.end_capture()
    a.wait_value(go, 9)
    a.launch(graph)
    b.launch(graph)
    assert not run_of(program, go)


def test_synchronising_the_default_stream_covers_what_a_later_operation_of_it_took_over():
    """R2.5, R5.9: another thread issues that operation while this one waits."""
    program = Program()
    b, go, x = program.stream("b", StreamKind.BLOCKING), program.word("go"), program.buffer("X", 100, MemoryKind.PINNED)
    b.wait_value(go, 9)
    b.d2h(1 * ms, 100, src=program.buffer("D", 100), dst=x)
    with program.thread("T"):
        program.host(1 * ms)
        program.legacy().sync()
        program.read(x)
    with program.thread("U"):
        program.host(2 * ms)
        program.legacy().kernel(1 * ms)
    assert not run_of(program, go).errors


def test_a_name_means_the_memory_that_it_had_when_a_call_was_made():
    """R5.9, R8.2: the free has its turn after the name has new memory."""
    program = Program()
    a, b, go = program.stream("a", NON_BLOCKING), program.stream("b", NON_BLOCKING), program.word("go")
    x = program.buffer("X", 100)
    program.malloc(x)
    a.wait_value(go, 9)
    a.free(x)
    program.malloc(x)
    b.kernel(1 * ms, writes=[x])
    assert not run_of(program, go)


def test_every_free_is_remembered():
    """A second free does not hide what comes after the first; one that came early not what comes after both."""
    program = Program()
    x = program.buffer("X", 100)
    program.malloc(x)
    first, second = program.free(x), program.free(x)
    used = program.stream("s", NON_BLOCKING).kernel(1 * ms, reads=[x])
    found = {(race.first.row, race.second.row) for race in find_races(program).errors}
    assert found == {(first, second), (first, used), (second, used)}
    program = Program()
    s, go, x = program.stream("s", NON_BLOCKING), program.word("go"), program.buffer("X", 100)
    s.wait_value(go, 9)
    allocated, freed, used = s.malloc(x), program.free(x), s.kernel(1 * ms, reads=[x])
    found = {tuple(sorted((race.first.row, race.second.row))) for race in run_of(program, go).errors}
    assert found == {(allocated, freed), (freed, used)}


def test_synchronising_with_an_event_is_about_the_record_that_it_stood_for():
    """R5.2, R5.9: another thread records it once more, and that record is over first."""
    program = Program()
    a, b, go = program.stream("a", NON_BLOCKING), program.stream("b", NON_BLOCKING), program.word("go")
    x, event = program.buffer("X", 100, MemoryKind.PINNED), program.event("e")
    a.wait_value(go, 9)
    a.d2h(1 * ms, 100, src=program.buffer("D", 100), dst=x)
    a.record(event)
    event.sync()
    program.read(x)
    with program.thread("T"):
        program.host(1 * ms)
        b.record(event)
    assert not run_of(program, go).errors
