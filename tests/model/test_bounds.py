"""Closed forms against the schedule, against brute force, and against each other."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.model import bounds
from gapless.model.kinds import StreamKind
from gapless.model.machine import Machine
from gapless.model.program import Program
from gapless.model.schedule import schedule
from gapless.model.units import ms, us

times = st.integers(1, 9)
often = settings(max_examples=200, deadline=None)


def depth_first(
    chunks: int, streams: int, h: int, k: int, d: int, kind: StreamKind = StreamKind.NON_BLOCKING
) -> Program:
    program = Program()
    made = [program.stream(kind=kind) for _ in range(streams)]
    for i in range(chunks):
        stream = made[i % streams]
        stream.h2d(h * ms)
        stream.kernel(k * ms)
        stream.d2h(d * ms)
    return program


def breadth_first(chunks: int, h: int, k: int, d: int, *, pageable: bool = False) -> Program:
    program = Program()
    made = [program.stream(kind=StreamKind.NON_BLOCKING) for _ in range(chunks)]
    for stream in made:
        stream.h2d(h * ms, pageable=pageable)
    for stream in made:
        stream.kernel(k * ms)
    for stream in made:
        stream.d2h(d * ms, pageable=pageable)
    return program


def slotted(chunks: int, inputs: int, outputs: int, h: int, k: int, d: int) -> Program:
    """Three streams, one a stage; input slots are free after the kernel, output slots after the copy back."""
    program = Program()
    copy_in, compute, copy_out = (program.stream(kind=StreamKind.NON_BLOCKING) for _ in range(3))
    loaded, computed, stored = ([program.event() for _ in range(chunks)] for _ in range(3))
    for i in range(chunks):
        if i >= inputs:
            copy_in.wait(computed[i - inputs])
        copy_in.h2d(h * ms)
        copy_in.record(loaded[i])
        compute.wait(loaded[i])
        if i >= outputs:
            compute.wait(stored[i - outputs])
        compute.kernel(k * ms)
        compute.record(computed[i])
        copy_out.wait(computed[i])
        copy_out.d2h(d * ms)
        copy_out.record(stored[i])
    return program


def makespan(program: Program, profile: str = "teaching", **knobs: object) -> Fraction:
    return Fraction(schedule(program, Machine.named(profile, **knobs)).makespan, ms)


@often
@given(st.integers(1, 12), st.integers(1, 5), times, times, times)
def test_slots(chunks: int, streams: int, h: int, k: int, d: int):
    assert makespan(depth_first(chunks, streams, h, k, d)) == bounds.slots(chunks, streams, h, k, d)
    assert bounds.slots(chunks, 1, h, k, d) == bounds.serial(chunks, h, k, d)
    assert bounds.slots(chunks, 3, h, k, d) == h + k + d + (chunks - 1) * max(h, k, d)


@pytest.mark.parametrize(("chunks", "expected"), [(4, 7), (5, 9), (6, 10), (7, 12)])
def test_two_slots_of_unit_stages(chunks: int, expected: int):
    assert bounds.slots(chunks, 2, 1, 1, 1) == expected == makespan(depth_first(chunks, 2, 1, 1, 1))


@often
@given(st.integers(1, 3), st.integers(1, 3), times, times, times)
def test_period_of_input_and_output_slots(inputs: int, outputs: int, h: int, k: int, d: int):
    """Over many chunks the time a chunk takes is the period, on average."""
    some, more = (makespan(slotted(n, inputs, outputs, h, k, d)) for n in (30, 60))
    assert abs((more - some) / 30 - bounds.period(h, k, d, inputs, outputs)) <= Fraction(h + k + d, 30)


@pytest.mark.parametrize(("inputs", "outputs", "expected"), [(1, 1, 11), (2, 2, 7), (1, 2, 11), (2, 1, 11)])
def test_five_chunks_in_unit_slots(inputs: int, outputs: int, expected: int):
    assert makespan(slotted(5, inputs, outputs, 1, 1, 1)) == expected


@often
@given(st.integers(1, 10), times, times, times)
def test_one_copy_engine(chunks: int, h: int, k: int, d: int):
    expected = bounds.one_copy_engine(chunks, h, k, d)
    assert makespan(breadth_first(chunks, h, k, d), "one-copy-engine") == expected


@pytest.mark.parametrize(("chunks", "expected"), [(1, 3), (2, 4), (4, 8), (8, 16)])
def test_one_copy_engine_of_unit_stages(chunks: int, expected: int):
    assert makespan(breadth_first(chunks, 1, 1, 1), "one-copy-engine") == expected
    assert makespan(depth_first(chunks, chunks, 1, 1, 1), "one-copy-engine") == expected  # readiness order
    assert makespan(depth_first(chunks, chunks, 1, 1, 1), "fermi") == bounds.serial(chunks, 1, 1, 1)


@often
@given(st.integers(1, 12), times, times)
def test_two_stages(chunks: int, transfer: int, execute: int):
    program = Program()
    for _ in range(chunks):
        stream = program.stream(kind=StreamKind.NON_BLOCKING)
        stream.h2d(transfer * ms)
        stream.kernel(execute * ms)
    assert makespan(program) == bounds.two_stages(chunks, transfer * chunks, execute * chunks)


@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_forms_that_lose_overlap(chunks: int):
    def kernel_on_legacy() -> Program:
        program = Program()
        made = [program.stream() for _ in range(chunks)]
        for stream in made:
            stream.h2d(1 * ms)
            program.legacy().kernel(1 * ms)
            stream.d2h(1 * ms)
        return program

    def synchronous() -> Program:
        program = Program()
        for _ in range(chunks):
            program.h2d(1 * ms)
            program.default.kernel(1 * ms)
            program.d2h(1 * ms)
        return program

    assert makespan(kernel_on_legacy()) == 2 * chunks + 1
    assert makespan(synchronous()) == 3 * chunks
    assert makespan(breadth_first(chunks, 1, 1, 1, pageable=True)) == 2 * chunks + 1


def test_host_issue_cost_bounds_the_period():
    """Section 10: four unit chunks with three calls each of 1 and of 1/3."""
    program = depth_first(4, 4, 1, 1, 1)
    assert makespan(program, launch_cost=1 * ms, call_cost=1 * ms) == 13
    third = makespan(program, launch_cost=ms // 3, call_cost=ms // 3)
    assert abs(third - Fraction(19, 3)) < Fraction(1, 10**6)


@often
@given(st.integers(2, 6), st.integers(6, 12), times, times, times)
def test_small_kernels_are_parallel_servers(kernels: int, chunks: int, h: int, k: int, d: int):
    """Kernels that take 1/c of the device each make the compute stage c servers: the period is max(h, k/c, d)."""

    def loop(n: int) -> Fraction:
        program = Program()
        for _ in range(n):
            stream = program.stream(kind=StreamKind.NON_BLOCKING)
            stream.h2d(h * ms)
            stream.kernel(k * ms, share=Fraction(1, kernels))
            stream.d2h(d * ms)
        return makespan(program)

    period = (loop(4 * chunks) - loop(2 * chunks)) / (2 * chunks)
    assert abs(period - max(Fraction(h), Fraction(k, kernels), Fraction(d))) <= Fraction(h + k + d, 2 * chunks)


# ------------------------------------------------------------------------------------------------------ chunk counts

works = st.tuples(*[st.integers(0, 10_000)] * 3)


@often
@given(works, st.tuples(*[st.integers(0, 50)] * 3))
def test_best_chunks_is_the_best(totals: tuple[int, int, int], overheads: tuple[int, int, int]):
    best = bounds.best_chunks(totals, overheads, most=400)
    least = min(bounds.chunked(n, totals, overheads) for n in range(1, 401))
    assert bounds.chunked(best, totals, overheads) == least


@often
@given(works, st.integers(1, 50))
def test_best_chunks_is_next_to_the_square_root(totals: tuple[int, int, int], overhead: int):
    root = ((sum(totals) - max(totals)) / overhead) ** 0.5
    assert abs(bounds.best_chunks(totals, (overhead,) * 3) - max(root, 1)) <= 1


def test_the_example_of_the_specification():
    assert bounds.best_chunks((100, 100, 100), (1, 1, 1)) == 14
    assert round(float(bounds.chunked(14, (100, 100, 100), (1, 1, 1))), 1) == 130.3
    assert bounds.chunked(1, (100, 100, 100), (1, 1, 1)) == 303


@often
@given(st.integers(1, 12), works, st.integers(0, 50))
def test_chunked_is_the_schedule_of_equal_chunks(chunks: int, totals: tuple[int, int, int], overhead: int):
    h, k, d = (total * 12 * us // chunks * chunks for total in totals)
    program = Program()
    for _ in range(chunks):
        stream = program.stream(kind=StreamKind.NON_BLOCKING)
        stream.h2d(h // chunks)
        stream.kernel(k // chunks + overhead * us)
        stream.d2h(d // chunks)
    expected = bounds.chunked(chunks, (h, k, d), (overhead * us,) * 3)
    assert schedule(program, Machine().with_knobs(copy_overhead=overhead * us)).makespan == expected


@often
@given(st.integers(1, 8), st.tuples(*[st.integers(1, 500)] * 3), st.integers(0, 20))
def test_chunked_with_one_copy_engine(chunks: int, totals: tuple[int, int, int], overhead: int):
    h, k, d = (total * chunks * us for total in totals)
    program = Program()
    made = [program.stream(kind=StreamKind.NON_BLOCKING) for _ in range(chunks)]
    for stream in made:
        stream.h2d(h // chunks)
    for stream in made:
        stream.kernel(k // chunks + overhead * us)
        stream.d2h(d // chunks)
    expected = bounds.chunked_one_copy_engine(chunks, (h, k, d), overhead * us)
    assert schedule(program, Machine.named("one-copy-engine", copy_overhead=overhead * us)).makespan == expected


def test_issue_caps_the_chunks():
    assert bounds.most_chunks_by_issue(longest=300, cost=2) == 50
    assert bounds.most_chunks_by_issue(longest=300, cost=0) > 10**6


# ------------------------------------------------------------------------------------------------------- lower bounds


def shortest(chunks: list[tuple[int, int, int]], streams: int, *, one_copy_engine: bool) -> int:
    """The least makespan of any schedule, by trying every order of service on every engine."""
    count = len(chunks)
    engine_of = (0, 1, 0) if one_copy_engine else (0, 1, 2)

    @cache
    def least(stage: tuple[int, ...], free: tuple[int, ...], ready: tuple[int, ...]) -> int:
        """Least time from here on: stages done of each chunk, when engines and chunks are free (relative)."""
        if all(s == 3 for s in stage):
            return max(ready)
        best = 1 << 60
        for i in range(count):
            held = i >= streams and stage[i - streams] < 3  # the chunk before it in its stream
            if stage[i] == 3 or held:
                continue
            engine = engine_of[stage[i]]
            before = ready[i - streams] if i >= streams else 0
            end = max(free[engine], ready[i], before) + chunks[i][stage[i]]
            after = (
                tuple(s + (j == i) for j, s in enumerate(stage)),
                tuple(end if e == engine else t for e, t in enumerate(free)),
                tuple(end if j == i else t for j, t in enumerate(ready)),
            )
            best = min(best, least(*after))
        return best

    return least((0,) * count, (0,) * 3, (0,) * count)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=4), st.integers(1, 3), st.booleans())
def test_no_schedule_at_all_is_under_a_lower_bound(chunks: list[tuple[int, int, int]], streams: int, one_engine: bool):
    """Brute force over all orders of service: bound <= the best there is <= what the machine does."""
    program = Program()
    made = [program.stream(kind=StreamKind.NON_BLOCKING) for _ in range(streams)]
    for i, (h, k, d) in enumerate(chunks):
        made[i % streams].h2d(h * ms)
        made[i % streams].kernel(k * ms)
        made[i % streams].d2h(d * ms)
    machine = Machine.named("one-copy-engine" if one_engine else "teaching")
    best = shortest(chunks, streams, one_copy_engine=one_engine)
    assert max(bounds.lower_bounds(program, machine).values()) <= best * ms
    assert best * ms <= schedule(program, machine).makespan


@often
@given(st.integers(1, 8), times, times, times)
def test_lower_bounds_of_the_chunk_loop(chunks: int, h: int, k: int, d: int):
    found = bounds.lower_bounds(depth_first(chunks, chunks, h, k, d))
    assert found == {
        "issue": 0,
        "stream": (h + k + d) * ms,
        "h2d": (chunks * h + k + d) * ms,
        "sm": (h + chunks * k + d) * ms,
        "d2h": (h + k + chunks * d) * ms,
    }
    assert max(found.values()) == makespan(depth_first(chunks, chunks, h, k, d)) * ms


def test_lower_bounds_count_calls_and_own_work():
    program = depth_first(2, 2, 1, 1, 1)
    program.host(5 * ms)
    machine = Machine().with_knobs(launch_cost=2 * ms, call_cost=1 * ms)
    assert bounds.lower_bounds(program, machine)["issue"] == (2 * 2 + 4 * 1 + 5) * ms


def test_no_bounds_but_issue_where_operations_are_captured():
    program = Program()
    stream = program.stream()
    stream.capture()
    stream.kernel(1 * ms)
    stream.end_capture()
    assert bounds.lower_bounds(program) == {"issue": 0}
