"""The short way through common programs gives what the simulator gives, in plain Python and compiled."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gapless.model import flow
from gapless.model.kinds import MemoryKind, StreamKind
from gapless.model.machine import Machine
from gapless.model.plan import plan
from gapless.model.program import Program
from gapless.model.schedule import Schedule, collect, schedule
from gapless.model.simulator import Simulator
from gapless.model.units import us
from picks import Picks, choices, several_choices

COLUMNS = ("start", "end", "bound", "bound_by", "engine", "begin", "issued", "returned", "error", "order")
numba = importlib.util.find_spec("numba")


def simulated(program: Program, machine: Machine) -> Schedule:
    sim = Simulator(program, machine, plan(program, machine))
    sim.run()
    return collect(program, machine, sim)


KNOBS: dict[str, list[str]] = {
    "shared_copy_engine": ["no", "yes"],
    "kernels": ["leftover", "exclusive"],
    "resident_grids": ["128", "1", "2"],
    "d2d_engine": ["sm", "ce"],
    "sync_memops": ["no", "yes"],
    "malloc_sync": ["no", "no", "yes"],
    "free_sync": ["yes", "no"],
    "launch_blocking": ["no", "no", "yes"],
    "launch_cost": ["0", "4us"],
    "call_cost": ["0", "4us"],
    "copy_overhead": ["0", "4us"],
    "copy_arbitration": ["ready", "ready", "drain_channel"],
}


def machine_of(choices: bytes) -> Machine:
    pick = Picks(choices)
    turned = {name: pick([None] * len(values) + values) for name, values in KNOBS.items()}
    return Machine().with_knobs(**{name: value for name, value in turned.items() if value is not None})


def machines() -> st.SearchStrategy[Machine]:
    return choices(2).map(machine_of)


def program_of(first: bytes, then: Sequence[bytes]) -> Program:
    pick = Picks(first)
    program = Program(pick(["legacy", "per-thread"]))
    kinds = [StreamKind.BLOCKING, StreamKind.NON_BLOCKING, StreamKind.PER_THREAD]
    streams = [program.stream(kind=pick(kinds), priority=pick([0, -1])) for _ in range(pick(range(1, 5)))]
    streams += [program.default, program.legacy()]
    events = [program.event() for _ in range(2)]
    memory = program.buffer("m", 64, MemoryKind.DEVICE)
    for of_call in then:
        pick = Picks(of_call)
        stream, event, time = pick(streams), pick(events), pick(range(5)) * us
        match pick(range(18)):
            case 0 | 1:
                stream.h2d(time, pageable=pick([False, True]))
            case 2 | 3:
                stream.d2h(time)
            case 4 | 5 | 6 | 14 | 15 | 16:
                stream.kernel(time, share=Fraction(1, pick(range(1, 5))), blocks=pick([1, 1, 2, 3, 5]))
            case 7:
                stream.record(event)
            case 8:
                stream.wait(event)
            case 9:
                pick([stream.sync, event.sync, program.sync_device])()
            case 10:
                program.host(time)
            case 11:
                pick([stream.memset, stream.d2d, program.d2h, program.memset])(time)
            case 12:
                stream.host_function(time)
            case 13:
                pick([program.malloc, program.free, stream.malloc])(memory)
            case _:
                program.p2p(time, to=0) if pick([False, True]) else stream.query()
    program.sync_device()
    return program


def programs() -> st.SearchStrategy[Program]:
    return st.builds(program_of, choices(1), several_choices(20, 1))


def same(one: Schedule, other: Schedule) -> None:
    for column in COLUMNS:
        assert np.array_equal(getattr(one, column), getattr(other, column)), column
    assert one.waits == other.waits
    assert one.saw == other.saw
    assert one.delays == other.delays


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), machines())
def test_the_short_way_is_the_simulator(program: Program, machine: Machine):
    same(schedule(program, machine), simulated(program, machine))


def chunk_loop(chunks: int, streams: int) -> Program:
    program = Program()
    made = [program.stream(kind=StreamKind.NON_BLOCKING) for _ in range(streams)]
    for i in range(chunks):
        stream = made[i % streams]
        stream.h2d(3 * us)
        stream.kernel(2 * us)
        stream.d2h(4 * us)
    program.sync_device()
    return program


def test_the_chunk_loop_takes_the_short_way():
    program, machine = chunk_loop(8, 4), Machine()
    assert flow.fits(program, machine, plan(program, machine))
    assert not flow.fits(program, Machine.named("h200"), plan(program, Machine.named("h200")))


def test_times_that_could_overflow_do_not():
    program, machine = Program(), Machine()
    stream = program.stream()
    for _ in range(3):
        stream.kernel(1 << 61)
    assert not flow.fits(program, machine, plan(program, machine))


@pytest.mark.skipif(numba is None, reason="needs Numba: install gapless[fast]")
@pytest.mark.filterwarnings("ignore")
def test_compiled_is_the_same():
    rng = np.random.default_rng(7)
    program = Program()
    streams = [program.stream(kind=StreamKind(kind), priority=-int(kind % 2)) for kind in (3, 4, 3, 4)] + [
        program.legacy()
    ]
    done = program.event()
    for _ in range(3000):
        stream, time = streams[rng.integers(len(streams))], int(rng.integers(0, 5)) * us
        call = (stream.h2d, stream.d2h, stream.memset, stream.host_function)[rng.integers(4)]
        call(time)
        stream.kernel(time, share=Fraction(1, int(rng.integers(1, 5))), blocks=int(rng.integers(1, 6)))
        if rng.integers(3) == 0:
            stream.record(done)
            streams[rng.integers(len(streams))].wait(done)
        if rng.integers(20) == 0:
            stream.sync()
    machine = Machine().with_knobs(launch_cost=us)
    laid_out = plan(program, machine)
    assert flow.fits(program, machine, laid_out)
    compiled, plain = (flow.run(program, machine, laid_out, compiled=way) for way in (True, False))
    for column in ("start", "end", "bound", "bound_by", "begin", "issued", "returned", "saw", "waited_by"):
        assert np.array_equal(getattr(compiled, column), getattr(plain, column)), column
