"""The chunk loop: its tape does what its closed forms say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.model.chunk_loop import ChunkLoop
from gapless.model.errors import GaplessError
from gapless.model.simulation import simulate
from gapless.model.tape import read
from gapless.model.units import ms


def makespan(loop: ChunkLoop) -> int:
    return simulate(read(loop.tape())).schedule.makespan


loops = st.builds(
    ChunkLoop,
    chunks=st.integers(1, 12),
    streams=st.integers(1, 6),
    h2d=st.integers(1, 5).map(str),
    kernel=st.integers(1, 5).map(str),
    d2h=st.integers(1, 5).map(str),
    pageable=st.booleans(),
    default_stream=st.sampled_from([None, "copy", "kernel"]),
    nonblocking=st.booleans(),
    per_thread=st.booleans(),
    wait=st.sampled_from([None, "device", "stream", "event", "query"]),
    allocation=st.sampled_from([None, "malloc", "pool"]),
    urgent=st.sampled_from([None, None, "same", "high"]),
    copy_engines=st.sampled_from([None, 1, 2]),
)


@settings(max_examples=120, deadline=None)
@given(loops)
def test_the_tape_takes_what_the_closed_form_says(loop):
    serial, pipelined, this = loop.forms()
    took = makespan(loop)
    request = sum(loop.stages()) // 4 + loop.stages()[0] // 2 if loop.urgent else 0
    assert pipelined.value <= took <= serial.value + request
    if this.value is not None:
        assert took == this.value


@settings(max_examples=30, deadline=None)
@given(loops)
def test_the_tape_has_no_race_and_keeps_each_chunk_in_order(loop):
    run = simulate(read(loop.tape()))
    assert not run.races
    for i in range(loop.chunks):
        (_, first), (second, done), (third, _) = (
            (run.schedule.start[op], run.schedule.end[op])
            for op in (run.schedule.op(f"{name}{i}") for name in ("in", "k", "out"))
        )
        assert first <= second
        assert done <= third


@pytest.mark.parametrize(
    ("options", "units", "reads"),
    [
        ({"streams": 1}, 12, "3N"),
        ({"streams": 2}, 7, "3N/2+1"),
        ({"streams": 3}, 6, "N+2"),
        ({"streams": 8}, 6, "N+2"),
        ({"pageable": True}, 12, "3N"),
        ({"default_stream": "copy"}, 12, "3N"),
        ({"default_stream": "copy", "nonblocking": True}, 6, "N+2"),
        ({"default_stream": "copy", "per_thread": True}, 6, "N+2"),
        ({"default_stream": "kernel"}, 9, "2N+1"),
        ({"default_stream": "kernel", "nonblocking": True}, 6, "N+2"),
        ({"wait": "device"}, 12, "3N"),
        ({"wait": "stream"}, 12, "3N"),
        ({"wait": "event"}, 6, "N+2"),
        ({"wait": "query"}, 6, "N+2"),
        ({"wait": "stream", "default_stream": "copy", "nonblocking": True}, 9, "2N+1"),
        ({"allocation": "malloc"}, 12, "3N"),
        ({"allocation": "pool"}, 6, "N+2"),
        ({"streams": 4, "copy_engines": 1}, 8, "2N"),
        ({"streams": 2, "chunks": 5}, 9, "(3N+3)/2"),
    ],
)
def test_the_first_page_of_the_lesson(options, units, reads):
    loop = ChunkLoop(**options)
    assert loop.forms()[2].reads == reads
    assert loop.forms()[2].value == makespan(loop) == units * ms


def test_the_tape_reads_as_one_would_write_it():
    loop = ChunkLoop(chunks=8, streams=4, kernel="1/2ms", default_stream="kernel", nonblocking=True, machine="h200")
    assert (
        loop.tape()
        == """\
# 8 chunks over 4 streams: 1ms to the device, 500us kernel, 1ms back, each kernel on the default
# stream, non-blocking streams.
# serial N(h+k+d) = 20ms, pipelined h+k+d+(N-1)max = 9.5ms
# this loop: h+k+d+(N-1)max = 9.5ms
machine h200
stream s0 s1 s2 s3 nonblocking

repeat 8 as i
  h2d    in{i}  on s{i%4} 1ms
  record copied{i} on s{i%4} untimed
  wait   copied{i} on default
  kernel k{i}   on default 1/2ms
  record done{i} on default untimed
  wait   done{i} on s{i%4}
  d2h    out{i} on s{i%4} 1ms
end
sync device
"""
    )


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": 0},
        {"streams": 0},
        {"streams": 2000},
        {"default_stream": "copies"},
        {"copy_engines": 3},
        {"h2d": "x"},
        {"wait": "long"},
        {"allocation": "new"},
        {"urgent": "low"},
    ],
)
def test_what_is_no_loop_is_refused(options):
    with pytest.raises(GaplessError):
        ChunkLoop(**options)


def answered(**options) -> int:
    run = simulate(read(ChunkLoop(chunks=8, streams=4, kernel="2ms", **options).tape())).schedule
    return int(run.end[run.op("reply")])


def test_priority_lets_the_urgent_kernel_pass_those_that_wait_but_not_the_one_that_runs():
    assert answered(urgent="same") > answered(urgent="high")
    run = simulate(read(ChunkLoop(chunks=8, streams=4, kernel="2ms", urgent="high").tape())).schedule
    assert run.start[run.op("reply")] == run.end[run.op("k1")]
    assert run.start[run.op("ask")] == run.end[run.op("in3")]  # the copy before it waits its turn
