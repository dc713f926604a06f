"""Rules of the schedule that no tape can say: shapes of kernels, dependent launches, first uses, measured costs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from gapless.model.errors import DeadlockError, GaplessError
from gapless.model.happens_before import order
from gapless.model.kinds import Bound, CallKind, CaptureMode, CudaError, Engine, StreamKind
from gapless.model.machine import Machine
from gapless.model.program import Flag, Grid, Program, Stream
from gapless.model.schedule import Schedule, schedule
from gapless.model.units import ms, us

MIB = 1 << 20


def nonblocking(program: Program, count: int, **options: Any) -> list[Stream]:
    return [program.stream(kind=StreamKind.NON_BLOCKING, **options) for _ in range(count)]


def h200_without_costs(**knobs: Any) -> Machine:
    """The H200's behaviour, every cost taken out."""
    free = {"launch_cost": 0, "call_cost": 0, "record_cost": 0, "sync_return": 0, "kernel_tail": 0, "duplex": 1}
    measured = {"hops": {}, "issue_latency": {}, "call_costs": {}, "late_costs": {}, "launch_contention": []}
    measured |= {"staging_curve": [], "pageable_lag_curve": [], "graph_node_cost": 0}
    return Machine.named("h200", **free | measured | knobs)


def starts(run: Schedule, *rows: int) -> list[float]:
    return [int(run.start[row]) / ms for row in rows]


# ------------------------------------------------------------------------------------------------- shapes of kernels


def shaped(blocks: int, threads: int = 256, **options: Any) -> Grid:
    return Grid(blocks=blocks, block=None, threads=threads, **options)


def test_a_kernel_takes_what_its_blocks_need():
    """R6.10: 132 SMs of 2048 threads hold 1056 blocks of 256 threads; half as many leave room for another kernel."""
    program = Program()
    a, b, c = nonblocking(program, 3)
    rows = [a.kernel(2 * ms, grid=shaped(528)), b.kernel(1 * ms, grid=shaped(528)), c.kernel(1 * ms, grid=shaped(528))]
    assert starts(schedule(program, h200_without_costs()), *rows) == [0, 0, 1]


@pytest.mark.parametrize(
    ("grid", "together"),
    [
        (shaped(132 * 32, 32), 1),  # 32 blocks an SM, whatever their size
        (shaped(132 * 16, 32), 2),
        (shaped(132, 256, registers=255), 1),  # 65536 registers hold one such block an SM
        (shaped(132, 256, shared=114 * 1024), 2),  # 228 KiB hold two
        (shaped(132, 256, shared=228 * 1024), 1),
    ],
)
def test_what_limits_the_blocks_of_an_sm(grid: Grid, together: int):
    program = Program()
    rows = [stream.kernel(1 * ms, grid=grid) for stream in nonblocking(program, 3)]
    run = schedule(program, h200_without_costs(smem_config_per_sm=False))
    assert sum(start == 0 for start in starts(run, *rows)) == together


def test_a_kernel_of_several_waves_takes_its_time_and_shares_its_tail():
    program = Program()
    a, b = nonblocking(program, 2)
    first, second = a.kernel(4 * ms, grid=shaped(1056 * 4)), b.kernel(1 * ms, grid=shaped(1056))
    run = schedule(program, h200_without_costs())
    assert (run.end[first], starts(run, second)) == (4 * ms, [4])
    tailed = schedule(program, h200_without_costs(kernel_tail="0.1"))
    assert tailed.end[first] == 4 * ms
    assert starts(tailed, second) == [3.9]  # the last of four waves falls off


def test_a_kernel_with_a_share_of_its_own_has_no_tail():
    program = Program()
    a, b = nonblocking(program, 2)
    a.kernel(4 * ms)
    second = b.kernel(1 * ms)
    assert starts(schedule(program, h200_without_costs(kernel_tail="0.1")), second) == [4]


def c13(first: Grid, second: Grid, machine: Machine) -> list[float]:
    program = Program()
    a, b, c = nonblocking(program, 3)
    a.kernel(1 * ms, grid=first)
    rows = [b.kernel(1 * ms, grid=second), c.kernel(1 * ms, grid=shaped(1, 32))]
    return starts(schedule(program, machine), *rows)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (shaped(132, 32), shaped(1, 32, shared=40_000), [1, 1]),  # held, and holds what comes behind
        (shaped(131, 32), shaped(1, 32, shared=40_000), [0, 0]),  # one SM is idle
        (shaped(132, 32, carveout=100), shaped(1, 32, shared=40_000), [0, 0]),
        (shaped(132, 32, shared=100_000), shaped(1, 32, carveout=0), [1, 1]),
        (shaped(132, 32, shared=100_000), shaped(1, 32), [0, 0]),
    ],
)
def test_an_sm_keeps_its_split_of_l1_and_shared_memory(first: Grid, second: Grid, expected: list[float]):
    """R6.17, C13."""
    assert c13(first, second, h200_without_costs()) == expected
    assert c13(first, second, h200_without_costs(smem_config_per_sm=False)) == [0, 0]


# -------------------------------------------------------------------------------------- programmatic dependent launch


@pytest.mark.parametrize(
    ("share", "trigger", "programmatic", "expected"),
    [
        ("1/2", 1 * ms, True, (1, 4)),  # E14: the secondary's prologue beside the primary, its main part after
        ("1/2", 1 * ms, False, (3, 5)),
        ("1/2", -1, True, (3, 5)),  # the primary never triggers
        ("1", 1 * ms, True, (3, 5)),  # the primary fills the device
    ],
)
def test_dependent_launch(share: str, trigger: int, programmatic: bool, expected: tuple[int, int]):
    """R6.14."""
    program = Program()
    stream = program.stream()
    stream.kernel(3 * ms, grid=Grid(block=Fraction(share), trigger=trigger))
    second = stream.kernel(
        2 * ms, grid=Grid(block=Fraction("1/2"), prologue=1 * ms), programmatic=programmatic, name="second"
    )
    run = schedule(program)
    assert (run.start[second] / ms, run.end[second] / ms) == expected


def test_a_dependent_kernel_issued_after_the_trigger_starts_at_once():
    program = Program()
    stream = program.stream()
    stream.kernel(3 * ms, grid=Grid(block=Fraction("1/2"), trigger=1 * ms))
    program.host(2 * ms)
    second = stream.kernel(2 * ms, grid=Grid(block=Fraction("1/2"), prologue=1 * ms), programmatic=True)
    run = schedule(program)
    assert (run.start[second] / ms, run.end[second] / ms) == (2, 4)


# ---------------------------------------------------------------------------------------------- first uses and stacks


def busy_beside(act: Any, **knobs: Any) -> tuple[Schedule, int, int]:
    """A kernel of 4 ms, then a call, then a kernel in another stream."""
    program = Program()
    a, b = nonblocking(program, 2)
    a.kernel(4 * ms, share="1/8")
    program.host(1 * ms)
    call = act(program, b)
    after = b.kernel(1 * ms, share="1/8")
    return schedule(program, h200_without_costs(**knobs)), call, after


def test_a_first_use_without_launch_holds_later_work_back_too():
    """R4.1: cudaFuncGetAttributes of a kernel not yet used."""
    run, call, after = busy_beside(lambda p, _: p.call(CallKind.FUNCTION_ATTRIBUTES, flags=Flag.FIRST))
    assert run.returned[call] == 1 * ms
    assert (run.start[after], Bound(run.bound[after])) == (4 * ms, Bound.FIRST_USE)
    assert run.start[run.bound_by[after]] == 0  # what the barrier waited for, not the barrier
    run, call, after = busy_beside(lambda p, _: p.call(CallKind.FUNCTION_ATTRIBUTES))
    assert run.start[after] == 1 * ms


def test_the_first_launch_out_of_a_library_makes_the_host_wait():
    run, call, after = busy_beside(lambda _, s: s.kernel(1 * ms, share="1/8", flags=Flag.FIRST_OF_LIBRARY))
    assert (run.issued[call], run.delays[call]) == (4 * ms, (Bound.WORK, 0))
    assert run.start[after] == 5 * ms


def test_a_launch_that_needs_more_stack_makes_the_host_wait():
    """Section 4; stack_limit_sync."""
    run, call, _ = busy_beside(lambda _, s: s.kernel(1 * ms, share="1/8", flags=Flag.MORE_STACK))
    assert run.returned[call] == 4 * ms
    run, call, _ = busy_beside(lambda p, _: p.call(CallKind.DEVICE_LIMIT, flags=Flag.MORE_STACK))
    assert run.returned[call] == 4 * ms
    run, call, _ = busy_beside(
        lambda p, _: p.call(CallKind.DEVICE_LIMIT, flags=Flag.MORE_STACK), stack_limit_sync=False
    )
    assert run.returned[call] == 1 * ms


def test_a_graph_with_an_unseen_kernel_is_a_first_use_when_it_is_built():
    program = Program()
    a, b = nonblocking(program, 2)
    a.kernel(4 * ms, share="1/8")
    b.capture(CaptureMode.RELAXED)
    b.kernel(1 * ms, share="1/8", first=True)
    graph = b.end_capture()
    after = b.kernel(1 * ms, share="1/8")
    launch = b.launch(graph)
    run = schedule(program, h200_without_costs())
    assert starts(run, after, launch) == [4, 5]


# --------------------------------------------------------------------------------------------------- events, devices


def test_an_event_belongs_to_one_device():
    """D12, R5.5: the record fails and the event stays what it was."""
    program = Program()
    here, there = program.stream(), program.stream(device=1)
    event = program.event(device=0)
    there.kernel(3 * ms)
    wrong = there.record(event)
    here.wait(event)
    kernel = here.kernel(1 * ms)
    run = schedule(program)
    assert run.error[wrong] == CudaError.INVALID_RESOURCE_HANDLE
    assert run.start[kernel] == 0


def test_elapsed_between_devices_fails():
    program = Program()
    here, there, first, second = program.stream(), program.stream(device=1), program.event(), program.event()
    here.record(first)
    there.record(second)
    assert (
        schedule(program).error[program.elapsed(first, second)] == CudaError.INVALID_RESOURCE_HANDLE if False else True
    )
    row = program.elapsed(first, second)
    run = schedule(program)
    assert run.error[row] == CudaError.INVALID_RESOURCE_HANDLE
    assert run.elapsed(row) is None


def test_each_device_has_its_own_engines_but_all_host_functions_share_a_worker():
    program = Program()
    streams = [program.stream(device=i) for i in range(2)]
    kernels = [stream.kernel(1 * ms) for stream in streams]
    copies = [stream.h2d(1 * ms) for stream in streams]
    functions = [stream.host_function(1 * ms) for stream in streams]
    run = schedule(program)
    assert starts(run, *kernels, *copies, *functions) == [0, 0, 1, 1, 2, 3]
    assert run.busy(Engine.SM) == run.busy(Engine.SM, device=1) == 1 * ms


# ------------------------------------------------------------------------------------------------------ launch queue


def test_bytes_of_arguments_fill_the_launch_queue():
    """R6.9."""
    program = Program()
    stream = program.stream()
    rows = [stream.kernel(1 * ms, bytes=4000) for _ in range(3)]
    run = schedule(program, h200_without_costs(launch_bytes="8000B"))
    assert run.returned[rows].tolist() == [0, 0, 1 * ms]
    assert run.delays[rows[2]] == (Bound.LAUNCH_QUEUE, rows[0])


def test_a_full_launch_queue_holds_other_threads_allocations():
    program = Program()
    stream, memory = program.stream(), program.buffer("m", 4096)
    for _ in range(3):
        stream.kernel(1 * ms)
    with program.thread("T1"):
        program.host(us)
        malloc = program.malloc(memory)
        query = stream.query()
    run = schedule(program, h200_without_costs(launch_depth=2))
    assert (run.returned[malloc], run.delays[malloc]) == (1 * ms, (Bound.LAUNCH_QUEUE, 0))
    assert run.error[query] == CudaError.NOT_READY
    free = schedule(program, h200_without_costs(launch_depth=2, driver_lock=False))
    assert free.returned[malloc] == us


# ----------------------------------------------------------------------------------------------------------- copies


def test_a_synchronous_pageable_upload_returns_before_its_data_land():
    """R3.12: by the lag of the machine."""
    program = Program()
    row = program.h2d(1 * ms, 4 * MIB, pageable=True)
    run = schedule(program, h200_without_costs(pageable_lag_curve=[[1 * MIB, 20_000]]))
    assert (run.end[row], run.returned[row]) == (1 * ms, 1 * ms - 20 * us)


def test_staging_slots_come_back_piece_by_piece():
    """R3.12: two slots; the next copy's only piece gets the one whose piece has landed half way."""
    program = Program()
    a, b = nonblocking(program, 2)
    a.kernel(1 * ms)
    a.h2d(2 * ms, 2 * MIB, pageable=True)
    waits = b.h2d(1 * ms, 1 * MIB, pageable=True)
    run = schedule(program, h200_without_costs())
    assert (run.returned[waits], Bound(run.delays[waits][0])) == (2 * ms, Bound.STAGING)


def test_a_large_pageable_copy_holds_every_slot():
    program = Program()
    a, b = nonblocking(program, 2)
    a.kernel(1 * ms)
    a.h2d(2 * ms, 8 * MIB, pageable=True)
    with program.thread("T1"):
        program.host(us)
        upload = b.h2d(1 * ms, 1 * MIB, pageable=True)
        download = b.d2h(1 * ms, 1 * MIB, pageable=True)
    run = schedule(program, h200_without_costs())
    assert run.returned[upload] == 3 * ms
    assert starts(run, upload, download) == [3, 4]


def test_duplex_goes_by_size_where_the_machine_knows_it():
    """R3.11: the smaller copy is slowed more; a copy without a size takes the knob."""

    def both(size: int, **knobs: Any) -> list[float]:
        program = Program()
        a, b = nonblocking(program, 2)
        rows = [a.h2d(1 * ms, size), b.d2h(1 * ms, size)]
        run = schedule(program, Machine().with_knobs(**knobs))
        return [round(int(run.end[row]) / ms, 6) for row in rows]

    curve = {"duplex": "0.8", "duplex_curve": [[1 * MIB, 0.5, 0.5], [2 * MIB, 1, 1]]}
    assert both(1 * MIB, **curve) == [2, 2]
    assert both(2 * MIB, **curve) == [1, 1]
    assert both(-1, **curve) == [1.25, 1.25]
    assert both(-1, duplex="0.5,1") == [1.5, 1]  # half done when the other has ended


# --------------------------------------------------------------------------------------------------- measured costs


def test_the_way_between_engines():
    """machine.hops: by both engines, by how many others run; issue_latency: from the call to an idle engine."""
    machine = Machine().with_knobs(
        hops={"h2d>sm": [1000, 2000, 3000], "sm>sm": [500, 500, 500]}, issue_latency={"h2d": 4000, "sm": 5000}
    )
    program = Program()
    a, b = nonblocking(program, 2)
    event = program.event()
    copy = a.h2d(1 * ms)
    kernel = a.kernel(1 * ms, share="1/2")
    a.record(event)
    b.wait(event)
    after = b.kernel(1 * ms, share="1/2")  # through the event: still a way from SM to SM
    run = schedule(program, machine)
    assert run.start[[copy, kernel, after]].tolist() == [4 * us, ms + 5 * us, 2 * ms + 5 * us + us // 2]
    a.d2h(1 * ms)
    beside = program.stream(kind=StreamKind.NON_BLOCKING).kernel(3 * ms, share="1/4")
    run = schedule(program, machine)
    assert run.start[[copy, beside, kernel]].tolist() == [4 * us, 5 * us, ms + 6 * us]


def test_the_host_notices_late():
    program = Program()
    stream = program.stream()
    stream.kernel(1 * ms)
    waits = stream.sync()
    idle = stream.sync()
    run = schedule(program, Machine().with_knobs(sync_return="2us"))
    assert run.returned[[waits, idle]].tolist() == [ms + 2 * us, ms + 2 * us]


def test_calls_cost_what_was_measured():
    """call_cost=measured: by kind, kind of operation and size; work after the waiting comes after it."""
    machine = Machine().with_knobs(
        call_cost="measured",
        call_costs={
            "copy_async": 1000,
            "copy_async_d2h": 2000,
            "record": 900,
            "record_untimed": 100,
            "malloc": [[0, 0], [1 << 30, 1e6]],
        },
        late_costs={"free": 30_000},
    )
    program = Program()
    stream, event, memory = program.stream(), program.event(), program.buffer("m", 1 << 29)
    rows = [
        stream.h2d(0),
        stream.d2h(0),
        stream.record(event),
        stream.record(event, timed=False),
        program.malloc(memory),
    ]
    kernel = stream.kernel(1 * ms)
    free = program.free(memory)
    stated = stream.h2d(0, cost=7 * us)
    run = schedule(program, machine)
    spent = (run.returned - run.begin)[rows].tolist()
    assert spent == [1 * us, 2 * us, us * 9 // 10, us // 10, 500 * us]
    assert run.returned[free] == run.end[kernel] + 30 * us
    assert run.returned[stated] - run.begin[stated] == 7 * us


def test_small_blocks_share_a_pool():
    """Section 4: cheap to allocate while another small block is there."""
    machine = Machine().with_knobs(
        call_cost="measured",
        call_costs={"malloc": 35_000, "malloc_pooled": 2_000},
        late_costs={"free": 30_000, "free_pooled": 1_000},
    )
    program = Program()
    first, second = program.buffer("a", 4096), program.buffer("b", 4096)
    rows = [program.malloc(first), program.malloc(second), program.free(second), program.free(first)]
    run = schedule(program, machine)
    assert (run.returned - run.begin)[rows].tolist() == [35 * us, 2 * us, 1 * us, 30 * us]


def test_threads_that_launch_together_slow_each_other_down():
    """R4.2."""
    program = Program()
    stream = program.stream()
    alone = stream.kernel(0)
    program.send("go")
    together = []
    for name in ("main", "T1"):
        with program.thread(name):
            if name == "T1":
                program.receive("go")
            together.append(stream.kernel(0))
    machine = Machine().with_knobs(launch_cost="3us", launch_contention=[[1, 1], [2, 1.5]])
    run = schedule(program, machine)
    assert (run.returned - run.begin)[[alone, *together]].tolist() == [3 * us, 3 * us, 4.5 * us]


def test_building_a_graph_holds_the_lock_for_half_its_time():
    """R4.2."""
    program = Program()
    stream = program.stream(kind=StreamKind.NON_BLOCKING)
    stream.capture()
    stream.kernel(1 * ms)
    graph = stream.end_capture()
    program.send("built")
    program.instantiate(graph, cost=8 * ms)
    with program.thread("T1"):
        program.receive("built")
        program.host(1 * ms)
        other = stream.kernel(1 * ms)
    run = schedule(program, h200_without_costs())
    assert (run.issued[other], Bound(run.delays[other][0])) == (4 * ms, Bound.LOCK)


# ------------------------------------------------------------------------------------------------------------ graphs


def captured(program: Program, stream: Stream, *times: int) -> Any:
    stream.capture()
    for i, time in enumerate(times):
        stream.kernel(time, share="1/8", name=f"n{i}")
    return stream.end_capture()


def test_nodes_have_numbers_of_their_own():
    program = Program()
    stream = program.stream("s")
    graph = captured(program, stream, 1 * ms, 2 * ms)
    launches = [stream.launch(graph, name=f"g{i}") for i in range(2)]
    run = schedule(program)
    assert [run.start[run.op(name)] / ms for name in ("n0.1", "n0.2", "n0", "n1")] == [0, 3, 3, 4]
    assert run.runs_of(1) == [run.op("n0.1"), run.op("n0.2")]
    assert run.node_launch.tolist() == [launches[0], launches[0], launches[1], launches[1]]
    assert [run.end[row] / ms for row in launches] == [3, 6]
    assert (
        run.bound_by_text(run.op("n1.1"))
        == "graph: kernel n0 on s (call 1 of thread main), in launch g0 on s (call 4 of thread main)"
    )
    with pytest.raises(GaplessError, match=r"no operation or call is named 'n0\.3'"):
        run.op("n0.3")


def test_a_graph_that_was_never_captured_cannot_be_launched():
    program = Program()
    row = program.stream().launch(program.graph("g"))
    run = schedule(program)
    assert run.error[row] == CudaError.INVALID_VALUE
    assert run.start[row] == -1


def test_a_captured_launch_becomes_its_nodes():
    program = Program()
    stream = program.stream()
    inner = captured(program, stream, 1 * ms, 1 * ms)
    stream.capture()
    stream.kernel(1 * ms, share="1/8")
    stream.launch(inner)
    stream.kernel(1 * ms, share="1/8")
    outer = stream.end_capture()
    row = stream.launch(outer)
    assert schedule(program).end[row] == 4 * ms


def test_copies_in_graphs_use_the_copy_engine():
    program = Program()
    a, b = nonblocking(program, 2)
    a.capture()
    a.h2d(1 * ms)
    graph = a.end_capture()
    outside = b.h2d(1 * ms)
    launch = a.launch(graph)
    run = schedule(program)
    assert (run.end[outside], run.end[launch]) == (1 * ms, 2 * ms)
    assert Bound(run.bound[run.runs_of(1)[0]]) == Bound.COPY_ENGINE


# ------------------------------------------------------------------------------------------------------------ results


def test_a_deadlock_names_the_calls():
    program = Program()
    program.receive("a")
    program.send("b")
    with program.thread("T1"):
        program.receive("b")
        program.send("a")
    with pytest.raises(
        DeadlockError, match=r"receive a \(call 0 of thread main\); receive b \(call 0 of thread T1\)"
    ) as caught:
        schedule(program)
    assert caught.value.rows == [0, 2]


def test_an_operation_without_a_time_is_refused():
    program = Program()
    program.stream("s").h2d(bytes=MIB, name="h")
    with pytest.raises(GaplessError, match=r"h2d h on s .* gives only a size, and machine teaching has no h2d_curve"):
        schedule(program)
    program = Program()
    program.stream("s").h2d(name="h")
    with pytest.raises(GaplessError, match="neither a time nor a size"):
        schedule(program, Machine.named("h200"))


def test_an_empty_program():
    run = schedule(Program())
    assert (run.makespan, run.busy(Engine.SM), run.overlapped()) == (0, 0, 0)


def test_busy_and_overlapped_are_unions():
    program = Program()
    a, b = nonblocking(program, 2)
    a.h2d(3 * ms)
    b.kernel(2 * ms)
    b.d2h(2 * ms)
    program.stream(kind=StreamKind.NON_BLOCKING).kernel(1 * ms, share="1/8")
    run = schedule(program)
    assert [run.busy(engine) / ms for engine in (Engine.H2D, Engine.SM, Engine.D2H)] == [3, 3, 2]
    assert run.overlapped() == 3 * ms


def test_a_million_waits_in_a_row_do_not_overflow_the_stack():
    program = Program()
    stream, event = program.stream(), program.event()
    stream.kernel(1 * ms)
    for _ in range(5000):
        stream.record(event, timed=False)
        stream.wait(event)
    last = stream.kernel(1 * ms)
    machine = Machine().with_knobs(queues=8)  # not the short way
    assert schedule(program, machine).start[last] == schedule(program).start[last] == 1 * ms


def test_h200_times_by_size_follow_its_curves():
    program = Program()
    a, b = nonblocking(program, 2)
    sizes = [64 * 1024, MIB, 16 * MIB]
    rows = [a.h2d(bytes=size) for size in sizes]
    run = schedule(program, Machine.named("h200"))
    times = (run.end - run.start)[rows] / us
    assert times == pytest.approx([3.933, 21.768, 306.926])
    assert b.row
    assert np.all(np.diff(run.end[rows]) > 0)


# ------------------------------------------------------------------------------------- values in memory (R5.9)


def handed_over() -> Program:
    program = Program()
    first, second = (program.stream(name, StreamKind.NON_BLOCKING) for name in ("first", "second"))
    flag = program.word("flag")
    first.wait_value(flag, 1)
    first.kernel(1 * ms, name="after", share="1/8")
    second.kernel(2 * ms, name="before", share="1/8")
    second.write_value(flag, 1)
    program.sync_device()
    return program


def test_a_wait_for_a_value_says_what_ended_it():
    run = schedule(handed_over())
    assert run.start[run.op("after")] == 2 * ms
    assert run.bound_by_text(0) == "value in memory: write-value flag on second (call 3 of thread main)"


def test_what_cuda_cannot_see_may_wait_for_ever_in_one_queue():
    """R5.9: the kernel that leads to the write stands behind the one that waits for it."""
    with pytest.raises(DeadlockError, match=r"sync device .* wait-value flag on first"):
        schedule(handed_over(), Machine.named("fermi"))


def test_a_value_that_nobody_writes_is_a_deadlock_without_a_host_that_waits():
    program = Program()
    program.stream("s").wait_value(program.word("flag"), 1)
    with pytest.raises(DeadlockError, match="wait-value flag on s"):
        schedule(program)


def test_values_inside_a_graph_are_not_modelled_and_say_so():
    program = Program()
    stream = program.stream("s", StreamKind.NON_BLOCKING)
    stream.capture()
    stream.wait_value(program.word("flag"), 1)
    stream.end_capture()
    with pytest.raises(GaplessError, match="values in memory inside a graph are not modelled"):
        schedule(program)


def test_an_update_of_a_graph_takes_effect_at_the_next_launch():
    """R7.3: a launch that waits in its stream does what the graph was when it was launched."""
    program = Program()
    stream = program.stream("s", StreamKind.NON_BLOCKING)
    stream.capture()
    stream.kernel(1 * ms, name="old")
    graph = stream.end_capture()
    stream.capture()
    stream.kernel(2 * ms, name="new")
    other = stream.end_capture()
    stream.kernel(5 * ms)
    stream.launch(graph)
    program.update(graph, other)
    stream.launch(graph)
    run = schedule(program)
    assert (run.start[run.op("old")], run.start[run.op("new")]) == (5 * ms, 6 * ms)
    assert len(run.runs_of(program.find("new"))) == 1
    assert order(program).before(program.find("old"), program.find("new"))
    failed = program.update(graph, program.graph("never made"))
    assert schedule(program).error[failed] == CudaError.INVALID_VALUE
