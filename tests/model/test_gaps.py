"""Why engines wait: the cause of each gap, and the chain behind the makespan."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.model.chunk_loop import ChunkLoop
from gapless.model.gaps import Cause, alike, chain, gaps
from gapless.model.kinds import Bound, Engine
from gapless.model.program import Program
from gapless.model.simulation import Simulation, simulate
from gapless.model.tape import read
from gapless.model.units import ms


def played(text: str) -> Simulation:
    return simulate(read(text))


def said(run: Simulation, cause: Cause) -> tuple[str, str, str]:
    """A cause in words: constraint, what was waited for, call that held the host."""
    program = run.schedule.program

    def name(op: int) -> str:
        return program.brief(run.schedule.row_of(op)) if op >= 0 else ""

    return cause.bound.name, name(cause.by), program.brief(cause.call) if cause.call >= 0 else ""


@pytest.mark.parametrize(
    ("tape", "op", "cause"),
    [
        ("stream a\nh2d x on a 1\nkernel y on a 1", "y", ("STREAM", "h2d x on a", "")),
        ("stream a b\nh2d x on a 1\nrecord e on a\nwait e on b\nkernel y on b 1", "y", ("EVENT", "h2d x on a", "")),
        ("stream a\nh2d x on default 1\nkernel y on a 1", "y", ("FENCE", "h2d x on default", "")),
        ("stream a b\nh2d x on a 1\nh2d y on b 1", "y", ("COPY_ENGINE", "h2d x on a", "")),
        ("stream a b\nkernel x on a 1\nkernel y on b 1", "y", ("SM", "kernel x on a", "")),
        ("stream a\nh2d x on a 1\nsync a\nkernel y on a 1", "y", ("WORK", "h2d x on a", "sync a")),
        ("stream a\nh2d x on a 1 pageable\nkernel y on a 1", "y", ("WORK", "h2d x on a", "h2d x on a")),
        ("stream a\nhost 2\nkernel y on a 1", "y", ("HOST", "", "host")),
        ("machine teaching launch_cost=1ms\nstream a\nkernel y on a 1", "y", ("HOST", "", "kernel y on a")),
        ("machine teaching queues=1\nstream a b\nkernel x on a 1\nkernel z on a 1\nkernel y on b 1 share=1/2", "y",
         ("SM", "kernel z on a", "")),
        ("stream a\nthread T\nhost 3\nsend m\nend\nthread U\nreceive m\nkernel y on a 1\nend", "y",
         ("MESSAGE", "send m", "receive m")),
        # What waited itself passes on what it waited for; a call that takes no time is passed over.
        ("stream a b\nkernel x on a 1\nrecord e on a\nrecord f on a\nwait e on b\nwait f on b\nh2d y on b 1", "y",
         ("EVENT", "kernel x on a", "")),
        ("stream a\nh2d x on a 1\nsync device\nquery a\nread p\nkernel y on a 1", "y",
         ("WORK", "h2d x on a", "sync device")),
    ],
)  # fmt: skip
def test_the_cause_of_a_wait(tape, op, cause):
    run = played(tape)
    links = {link.op: link for link in chain(run.schedule)}
    row = run.schedule.op(op)
    assert said(run, links[row].cause) == cause


def test_gaps_are_put_together_by_the_lines_they_come_from():
    run = played("stream a\nrepeat 3 as i\n  h2d x{i} on a 1\n  kernel y{i} on a 2\nend")
    groups = alike(gaps(run.schedule), run.schedule, run.lines)
    shown = [
        (g.first.engine, g.number, g.time // ms, run.schedule.program.name_of(g.first.op) if g.first.op >= 0 else "end")
        for g in groups
    ]
    assert shown == [
        (Engine.H2D, 2, 4, "x1"),
        (Engine.H2D, 1, 2, "end"),
        (Engine.SM, 3, 3, "y0"),
    ]
    assert len(alike(gaps(run.schedule), run.schedule)) == 3


def test_a_program_that_does_nothing_has_no_gaps_and_no_chain():
    assert gaps(simulate(Program()).schedule) == []
    assert chain(simulate(Program()).schedule) == []


loops = st.builds(
    ChunkLoop,
    chunks=st.integers(1, 8),
    streams=st.integers(1, 4),
    h2d=st.integers(1, 4).map(str),
    kernel=st.integers(1, 4).map(str),
    d2h=st.integers(1, 4).map(str),
    pageable=st.booleans(),
    default_stream=st.sampled_from([None, "copy", "kernel"]),
    nonblocking=st.booleans(),
    allocation=st.sampled_from([None, "malloc", "pool"]),
    copy_engines=st.sampled_from([None, 1]),
)


@settings(max_examples=60, deadline=None)
@given(loops)
def test_the_chain_leads_from_the_start_to_the_end_without_a_gap(loop):
    run = played(loop.tape()).schedule
    links = [link for link in chain(run) if link.end > link.start]
    assert links[0].start == 0
    assert links[-1].end == run.makespan
    assert all(earlier.end == later.start for earlier, later in pairwise(links))


@settings(max_examples=60, deadline=None)
@given(loops)
def test_gaps_and_work_fill_the_whole_time_of_each_engine(loop):
    run = played(loop.tape()).schedule
    engines = (Engine.H2D, Engine.SM) if loop.copy_engines == 1 else (Engine.H2D, Engine.SM, Engine.D2H)
    for engine in engines:
        mine = [gap for gap in gaps(run) if gap.engine == engine]
        assert sum(gap.end - gap.start for gap in mine) + run.busy(engine) == run.makespan
        assert all(gap.cause.bound != Bound.NONE for gap in mine if gap.op >= 0)
