"""A program written as a tape reads back as the same program."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.model.errors import GaplessError
from gapless.model.expectations import Expectation
from gapless.model.kinds import CallKind, CaptureMode, MemoryKind, SourceOrder, StreamKind
from gapless.model.machine import Machine
from gapless.model.program import Buffer, Event, Grid, Program, Stream
from gapless.model.tape import read, write
from gapless.model.units import ms

EVENTS = (CallKind.RECORD, CallKind.WAIT_EVENT, CallKind.SYNC_EVENT, CallKind.QUERY, CallKind.ELAPSED)
MESSAGES = (CallKind.SEND, CallKind.RECEIVE)
GRAPHS = (CallKind.CAPTURE_END, CallKind.GRAPH_LAUNCH)
WORDS = (CallKind.WRITE_VALUE, CallKind.WAIT_VALUE, CallKind.STORE)
NUMBERS = ("call", "op", "duration", "bytes", "cost", "src", "dst", "device", "flags")


def content(program: Program) -> list[Any]:
    """Everything that a program says, by names instead of numbers of rows."""
    rows, accesses = program.rows, program.accesses

    def name_of(things: list[Any], number: int) -> Any:
        return None if number < 0 else getattr(things[number], "name", things[number])

    def things(call: int) -> list[Any]:
        if call in EVENTS:
            return program.events
        if call in WORDS:
            return program.words
        return program.messages if call in MESSAGES else program.graphs if call in GRAPHS else program.buffers

    def second(row: int) -> Any:
        call, number = int(rows.call[row]), int(rows.second[row])
        return name_of(things(call), number) if call in (CallKind.ELAPSED, CallKind.REUSE) else number

    calls = [
        (
            *(int(getattr(rows, column)[row]) for column in NUMBERS),
            program.threads[rows.thread[row]],
            program.streams[rows.stream[row]] if rows.stream[row] >= 0 else None,
            name_of(things(int(rows.call[row])), int(rows.object[row])),
            second(row),
            program.grids[rows.grid[row]] if rows.grid[row] >= 0 else None,
            name_of(program.strings, int(rows.name[row])),
            name_of(program.strings, int(rows.label[row])),
        )
        for row in range(len(program))
    ]
    touched = list(
        zip(*(getattr(accesses, c).tolist() for c in ("row", "buffer", "write", "low", "high")), strict=True)
    )
    created = [stream for stream in program.streams if stream.created]
    return [program.default_stream, program.threads, created, program.buffers, calls, touched]


# ------------------------------------------------------------------------------------------------- random programs

times = st.integers(0, 10**13)
sizes = st.just(-1) | st.integers(0, 2**40)
shares = st.fractions(min_value=Fraction(1, 1000), max_value=1, max_denominator=10**6)
MEMORY = [MemoryKind.DEVICE, MemoryKind.DEVICE, MemoryKind.PINNED, MemoryKind.PAGEABLE, MemoryKind.MANAGED]
CREATED = [StreamKind.BLOCKING, StreamKind.NON_BLOCKING, StreamKind.PER_THREAD]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs of everything that a tape has words for."""
    program = Program(draw(st.sampled_from(["legacy", "per-thread"])))
    for i in range(draw(st.integers(1, 4))):
        priority, device = draw(st.integers(-5, 2)), draw(st.integers(0, 1))
        program.stream(f"s{i}", draw(st.sampled_from(CREATED)), priority=priority, device=device)
    for i, kind in enumerate(MEMORY):
        program.buffer(f"b{i}", draw(sizes), kind)
    for i in range(2):
        program.event(f"e{i}")
    for thread in ("A", "B"):
        with program.thread(thread):
            pass
    for number in range(draw(st.integers(0, 25))):
        with program.thread(draw(st.sampled_from(program.threads))):
            draw(st.sampled_from(STATEMENTS))(draw, program, number)
    return program


def buffers(program: Program, *kinds: MemoryKind) -> list[Buffer]:
    return [Buffer(program, row) for row, info in enumerate(program.buffers) if not kinds or info.kind in kinds]


def device_memory(program: Program) -> list[Buffer]:
    return buffers(program, MemoryKind.DEVICE, MemoryKind.MANAGED)


def host_memory(program: Program) -> list[Buffer]:
    return buffers(program, MemoryKind.PINNED, MemoryKind.PAGEABLE, MemoryKind.MANAGED)


def a_stream(draw: st.DrawFn, program: Program) -> Stream:
    created = [Stream(program, row) for row, info in enumerate(program.streams) if info.created]
    return draw(st.sampled_from([*created, program.default, program.legacy(1)]))


def an_event(draw: st.DrawFn, program: Program) -> Event:
    return Event(program, draw(st.integers(0, len(program.events) - 1)))


def a_label(draw: st.DrawFn, number: int) -> str:
    return draw(st.sampled_from(["", f"call{number}"]))


def anything(draw: st.DrawFn, things: list[Any]) -> Any:
    return draw(st.sampled_from(things))


def host_copy(draw: st.DrawFn, program: Program, number: int) -> None:
    where, call = anything(draw, [(program, "h2d"), (program, "d2h"), *((a_stream(draw, program), c) for c in COPIES)])
    host, device = host_memory(program), device_memory(program)
    sources, targets = {"h2d": (host, device), "d2h": (device, host), "h2h": (host, host)}[call]
    memory = anything(draw, ["named", "pageable", "pinned"])
    options: dict[str, Any] = {"pageable": True} if memory == "pageable" else {}
    if memory == "named":
        options = {"src": anything(draw, sources), "dst": anything(draw, targets)}
    options |= {"name": f"op{number}", "label": a_label(draw, number)}
    getattr(where, call)(draw(times), draw(sizes), **options)


COPIES = ("h2d", "d2h", "h2h")


def device_copy(draw: st.DrawFn, program: Program, number: int) -> None:
    where = anything(draw, [program, a_stream(draw, program)])
    if draw(st.booleans()):
        where.d2d(draw(times), draw(sizes), name=f"op{number}")
    else:
        where.p2p(draw(times), draw(sizes), to=1, name=f"op{number}")


def batch(draw: st.DrawFn, program: Program, number: int) -> None:
    made = a_stream(draw, program).batch(f"op{number}", order=anything(draw, list(SourceOrder)))
    host, device = host_memory(program), device_memory(program)
    for i in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            made.h2d(
                draw(times), draw(sizes), src=anything(draw, host), dst=anything(draw, device), name=f"c{number}.{i}"
            )
        else:
            made.d2h(draw(times), draw(sizes), pageable=draw(st.booleans()), name=f"c{number}.{i}")


def memset(draw: st.DrawFn, program: Program, number: int) -> None:
    where, target = anything(draw, [program, a_stream(draw, program)]), anything(draw, [None, *buffers(program)[:3]])
    pinned = draw(st.booleans()) if target is None else target.info.kind == MemoryKind.PINNED
    where.memset(draw(times), draw(sizes), dst=target, pinned=pinned, name=f"op{number}")


def kernel(draw: st.DrawFn, program: Program, number: int) -> None:
    touched = st.lists(st.sampled_from(buffers(program)), max_size=2)
    a_stream(draw, program).kernel(
        draw(times), share=draw(shares), blocks=draw(st.integers(1, 40)), first=draw(st.booleans()),
        reads=draw(touched), writes=draw(touched), name=f"op{number}", label=a_label(draw, number),
    )  # fmt: skip


def host_function(draw: st.DrawFn, program: Program, number: int) -> None:
    touched = draw(st.lists(st.sampled_from(host_memory(program)), max_size=2))
    a_stream(draw, program).host_function(draw(times), writes=touched, name=f"op{number}")


def event(draw: st.DrawFn, program: Program, number: int) -> None:
    stream, thing, label = a_stream(draw, program), an_event(draw, program), a_label(draw, number)
    anything(draw, [
        lambda: stream.record(thing, timed=draw(st.booleans()), label=label),
        lambda: stream.wait(thing, label=label),
        lambda: thing.sync(label=label),
        lambda: thing.query(label=label),
        lambda: program.elapsed(thing, an_event(draw, program), label=label),
    ])()  # fmt: skip


def host(draw: st.DrawFn, program: Program, number: int) -> None:
    stream, label = a_stream(draw, program), a_label(draw, number)
    anything(draw, [
        lambda: stream.sync(label=label),
        lambda: stream.query(label=label),
        lambda: program.sync_device(label=label),
        lambda: program.set_device(draw(st.integers(0, 1)), label=label),
        lambda: program.host(draw(times), label=label),
        lambda: program.read(anything(draw, buffers(program)), label=label),
        lambda: program.write(anything(draw, buffers(program)), label=label),
        lambda: (program.send(f"m{number}", label=label), program.receive(f"m{number}")),
    ])()  # fmt: skip


def memory(draw: st.DrawFn, program: Program, number: int) -> None:
    on, device, pinned = a_stream(draw, program), device_memory(program), buffers(program, MemoryKind.PINNED)
    what = anything(draw, [program.malloc, program.free, on.malloc, on.free, program.host_alloc, program.host_free])
    thing = anything(draw, pinned if what in (program.host_alloc, program.host_free) else device)
    what(thing, label=a_label(draw, number))
    if draw(st.booleans()):
        program.reuse(thing, anything(draw, buffers(program)))


def graph(draw: st.DrawFn, program: Program, number: int) -> None:
    stream = a_stream(draw, program)
    stream.capture(draw(st.sampled_from(CaptureMode)), label=a_label(draw, number))
    stream.launch(stream.end_capture(program.graph(f"g{number}"), label=f"g{number}"))


STATEMENTS = [
    host_copy,
    device_copy,
    batch,
    memset,
    kernel,
    kernel,
    host_function,
    event,
    event,
    host,
    host,
    memory,
    graph,
]


@given(programs())
def test_a_program_reads_back_as_it_was_written(program: Program):
    assert content(read(write(program)).program) == content(program)


def test_every_tape_of_the_project_reads_back(every_tape):
    for path in every_tape:
        tape = read(path.read_text(encoding="utf-8"), name=path.name)
        if len(tape.program) > 400:
            continue
        again = read(write(tape.program, tape.machine, tape.expectations))
        assert content(again.program) == content(tape.program), path.name
        assert again.machine == tape.machine
        assert [replace(e, line=0) for e in again.expectations] == [replace(e, line=0) for e in tape.expectations]


# ------------------------------------------------------------------------------------------- names that are no names


def test_names_that_a_tape_cannot_have_are_changed():
    program = Program()
    stream = program.stream("stream 7", StreamKind.NON_BLOCKING)
    event = program.stream("default")
    buffer = program.buffer("x[0]")
    stream.kernel(1 * ms, name="void add<float>(float*, int)", writes=[buffer])
    stream.kernel(1 * ms, name="void add<float>(float*, int)")
    stream.kernel(1 * ms)
    event.kernel(1 * ms, name="9")
    tape = read(write(program, expectations=[Expectation(0, "start", ("9",), value=0)]))
    got = tape.program
    assert [s.name for s in got.streams] == ["_stream_7", "default_2"]
    assert [got.name_of(r) for r in range(4)] == [
        "_void_add_float_float_int",
        "_void_add_float_float_int_2",
        "kernel2",
        "_9",
    ]
    assert tape.expectations[0].names == ("_9",)


# ------------------------------------------------------------------------------------- what a tape has no words for


def refused(build: Any) -> str:
    program = Program()
    build(program, program.stream("s"))
    with pytest.raises(GaplessError) as caught:
        write(program)
    return str(caught.value)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda p, s: s.kernel(1 * ms, name="k", cost=5), "the host cost"),
        (lambda p, s: s.kernel(1 * ms, grid=Grid(4, None, threads=64)), "their threads"),
        (lambda p, s: s.kernel(1 * ms, programmatic=True), "PROGRAMMATIC"),
        (lambda p, s: s.kernel(1 * ms, reads=[p.buffer("b", 100)[0:10]]), "a part of a buffer"),
        (lambda p, s: s.h2d(1 * ms, src=p.buffer("b", kind=MemoryKind.PINNED)), "one side"),
        (lambda p, s: s.h2d(), "unknown length"),
        (lambda p, s: s.wait(p.event("e"), external=True), "EXTERNAL"),
        (lambda p, s: p.call(CallKind.MODULE), "module"),
        (lambda p, s: p.host_register(p.buffer("b", kind=MemoryKind.PINNED)), "host register"),
        (lambda p, s: p.instantiate(s.end_capture()), "graph build"),
        (lambda p, s: p.per_thread().kernel(1 * ms), "another thread"),
        (lambda p, s: p.buffer("b", kind=MemoryKind.ARRAY), "array memory"),
    ],
)
def test_what_a_tape_cannot_say_is_refused(build: Any, said: str):
    assert said in refused(build)


# ------------------------------------------------------------------------------------------------------------ machines


@pytest.mark.parametrize(
    "words", ["teaching", "fermi", "h200 duplex=0.9,0.8 queues=32", "one-copy-engine call_cost=2us"]
)
def test_machines_are_written_as_a_profile_and_its_changes(words: str):
    machine = read(f"machine {words}").machine
    assert write(Program(), machine) == f"machine {words}\n"


def test_a_machine_of_measured_curves_needs_a_file():
    machine = replace(Machine(), h2d_curve=((0.0, 10.0), (100.0, 20.0)))
    with pytest.raises(GaplessError, match="save it as a file"):
        write(Program(), machine)
    assert write(Program(), '"gpu.json"') == 'machine "gpu.json"\n'
