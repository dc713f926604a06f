"""What is measured, what is chosen from it, and what is said about why."""

from __future__ import annotations

import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapless.model.errors import GaplessError
from gapless.model.machine import Machine
from gapless.runtime import calibrate
from gapless.runtime.bench import bench, bench_pipeline
from gapless.runtime.calibrate import HOST, Costs, costs_of, measure
from gapless.runtime.devices.host import Host, Memory
from gapless.runtime.devices.simulated import Simulated
from gapless.runtime.pipeline import Pipeline
from gapless.runtime.report import timeline_of
from gapless.runtime.slots import RingMemoryError
from gapless.runtime.tune import Fixed, Work, choose, makespan
from staged_host import StagedHost

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# What an H200 with 16 cores told.
H200 = Costs(
    h2d_latency=7.7e3, h2d_rate=55.4, d2h_latency=5.8e3, d2h_rate=55.2, call=13.6e3, direct=55e3, staged=250e3,
    both=((MIB, 38.0, 38.0), (4 * MIB, 45.0, 46.0), (16 * MIB, 48.5, 48.5), (64 * MIB, 52.1, 50.3)),
    host_copy=((1, 9.1), (2, 16.0), (4, 28.0), (8, 45.0), (12, 50.0), (16, 49.0)), register=1 / 21.4,
)  # fmt: skip
LARGE = Work(rows=GIB // 2, bytes_in=2 * GIB, bytes_out=2 * GIB, pageable_in=False, pageable_out=False)
PAGEABLE = replace(LARGE, pageable_in=True, pageable_out=True)


def test_pinned_memory_takes_four_slots_and_large_chunks() -> None:
    plan = choose(LARGE, H200, Fixed(), cores=16)
    assert (plan.slots, plan.threads, plan.staging) == (4, 0, "none")
    assert 16 * MIB <= plan.chunk_bytes <= 64 * MIB
    assert H200.limit_ns(2 * GIB, 2 * GIB) < plan.predicted_ns < 1.1 * H200.limit_ns(2 * GIB, 2 * GIB)


def test_no_size_that_was_looked_at_is_better_than_the_chosen_one() -> None:
    for work in (LARGE, PAGEABLE):
        plan = choose(work, H200, Fixed(), cores=16)
        for size in (2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB):
            other = makespan(work, H200, size, plan.slots, plan.staging, 16)
            assert plan.predicted_ns <= 1.01 * other, f"{size} bytes are predicted to be better"


def test_pageable_memory_is_staged_by_threads_but_one_core_stays_the_callers() -> None:
    plan = choose(PAGEABLE, H200, Fixed(), cores=16)
    assert plan.staging == "threads"
    assert 8 <= plan.threads <= 15
    assert plan.threads == plan.slots
    assert "12 copy 50 GB/s together" in str(plan) or "15 copy" in str(plan)


def test_memory_is_pinned_in_place_where_that_is_faster() -> None:
    quick = replace(H200, register=1 / 200)
    assert choose(PAGEABLE, quick, Fixed(), cores=16).staging == "register"
    assert choose(PAGEABLE, quick, Fixed(staging="threads"), cores=16).staging == "threads"


def test_a_long_kernel_makes_chunks_smaller_not_larger() -> None:
    light = choose(LARGE, H200, Fixed(), cores=16)
    heavy = choose(replace(LARGE, kernel_ns=1.0), H200, Fixed(), cores=16)
    assert heavy.chunk_bytes < light.chunk_bytes
    assert "measured in the last run" in str(heavy)


def test_the_ring_keeps_within_the_memory_that_is_free() -> None:
    plan = choose(LARGE, H200, Fixed(), cores=16, free=64 * MIB)
    assert plan.memory <= 32 * MIB


def test_memory_that_holds_no_batch_is_refused() -> None:
    batch = Work(rows=10, bytes_in=MIB, bytes_out=MIB, pageable_in=False, pageable_out=False, whole=True)
    with pytest.raises(GaplessError, match="one batch alone takes 2 MiB"):
        choose(batch, H200, Fixed(memory=MIB), cores=4)


def test_the_host_gets_several_chunks_a_core() -> None:
    plan = choose(replace(LARGE, bytes_in=64 * MIB, bytes_out=64 * MIB), HOST, Fixed(), cores=4)
    assert (plan.slots, plan.chunk_bytes) == (5, 2 * MIB)


def test_costs_measured_on_a_simulated_gpu_are_those_it_was_made_of() -> None:
    costs = measure(Simulated(), largest=4 * MIB)
    curve = {int(size): time for size, time in Machine.named("h200").h2d_curve}
    rate = (4 * MIB - 256 * KIB) / (curve[4 * MIB] - curve[256 * KIB])
    assert costs.h2d_rate == pytest.approx(rate, rel=1e-3)
    assert costs.both_rates(4 * MIB)[0] == pytest.approx(rate, rel=0.1)
    assert dict(costs.host_copy)[1] == pytest.approx(10.0, rel=0.05)


class Small(StagedHost):
    """A GPU most of whose memory is another's, and nobody has measured."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.key = "a small GPU"
        self.room = room
        self.taken: list[weakref.ref[Any]] = []

    def memory(self, nbytes: int) -> Any:
        if nbytes + sum(memory.nbytes for memory in (one() for one in self.taken) if memory is not None) > self.room:
            raise MemoryError("on purpose")
        memory = Counted(nbytes)
        self.taken.append(weakref.ref(memory))
        return memory


class Counted(Memory):
    """Memory that is known until it is given back."""

    __slots__ = ("__weakref__",)


def test_costs_are_measured_in_as_much_memory_as_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "_known", {})
    x = np.arange(100_000, dtype=np.float32)
    with Pipeline(lambda a: a + 1, device=Small(24 * MIB), chunk="64 KiB", slots=2) as pipe:
        assert np.array_equal(pipe(x), x + 1)
    costs = calibrate._known["a small GPU"]
    assert costs.both[-1][0] == 4 * MIB
    assert not costs.trials
    assert not (tmp_path / "gapless").exists()  # where there is more, more is measured
    calibrate._known.clear()
    with pytest.raises(MemoryError, match="on purpose"):
        costs_of(Small(MIB))
    with pytest.raises(GaplessError, match="Memory ran out: gapless bench takes"):
        bench(Small(MIB))


@pytest.mark.parametrize("problem", [MemoryError("on purpose"), RingMemoryError(MemoryError("on purpose"), [], [])])
def test_doubt_for_which_there_is_no_memory_keeps_what_is_known(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when a run is over, whose results are there."""
    device = Small(MIB)
    monkeypatch.setattr(calibrate, "_known", {device.key: H200})
    monkeypatch.setattr(calibrate, "_renewed", set())

    def measure(device: Any, largest: int) -> Any:
        raise problem

    monkeypatch.setattr(calibrate, "measure", measure)
    assert not calibrate.renew(device)
    assert costs_of(device) is H200


def test_costs_are_kept_in_a_file_and_measured_anew_where_it_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "_known", {})
    measured: list[int] = []
    monkeypatch.setattr(calibrate, "measure", lambda device, largest: measured.append(largest) or H200)

    class Gpu(Host):
        stages = True
        name = key = "a GPU"

        def __init__(self) -> None: ...

    assert costs_of(Gpu()) == H200
    calibrate._known.clear()
    assert costs_of(Gpu()) == H200
    assert len(measured) == 1
    (path,) = (tmp_path / "gapless").iterdir()
    for broken in ("", "[]", "{}", json.dumps({"version": 99}), path.read_text()[:-20]):
        path.write_text(broken)
        calibrate._known.clear()
        assert costs_of(Gpu()) == H200
    assert len(measured) == 6


class Gpu(Host):
    """A device with costs of its own."""

    stages = True

    def __init__(self) -> None:
        super().__init__()
        self.name = self.key = "another GPU"


def test_runs_that_contradict_what_was_measured_have_it_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and not for the run that allocates, nor for one whose result's pages are new."""
    monkeypatch.setattr(calibrate, "_known", {"another GPU": replace(H200, h2d_rate=1e-3, d2h_rate=1e-3)})
    monkeypatch.setattr(calibrate, "_renewed", set())
    monkeypatch.setattr("gapless.runtime.pipeline.TELLING", 0)
    monkeypatch.setattr("gapless.runtime.pipeline.NEWS", 1e9)  # the plan stays: how long the kernel takes is no news
    measured: list[int] = []
    monkeypatch.setattr(calibrate, "_measured", lambda device: measured.append(1) or H200)
    x = np.zeros(100_000, np.float32)
    out = np.zeros_like(x)
    with Pipeline(lambda a: a, device=Gpu(), threads=0) as pipe:
        counts = []
        for fresh in (True, True, True, False, False, False, False, False, False):
            pipe(x, out=None if fresh else out)
            counts.append(len(measured))
    assert counts[:4] == [0] * 4
    assert counts[-1] == 1


def test_trials_correct_what_the_model_says() -> None:
    """A ring that took twice as long as the model says for some chunks is not given those."""
    plain = choose(PAGEABLE, H200, Fixed(slots=8), cores=16)
    one, two = (
        makespan(replace(PAGEABLE, kernel_ns=0.0, bytes_in=n * MIB, bytes_out=n * MIB), H200, MIB, 8, "threads", 16)
        for n in (1, 2)
    )
    between = two - one
    as_said, twice = (replace(H200, trials=((8, MIB, between * factor),)) for factor in (1.0, 2.0))
    said = makespan(PAGEABLE, H200, MIB, 8, "threads", 16)
    assert makespan(PAGEABLE, as_said, MIB, 8, "threads", 16) == pytest.approx(said, rel=1e-6)
    first = makespan(replace(PAGEABLE, bytes_in=MIB, bytes_out=MIB), H200, MIB, 8, "threads", 16)
    assert makespan(PAGEABLE, twice, MIB, 8, "threads", 16) == pytest.approx(2 * said - first, rel=1e-3)
    bad = (8, plain.chunk_bytes, 1e12)
    good = (8, plain.chunk_bytes // 8, between)
    assert choose(PAGEABLE, replace(H200, trials=(bad, good)), Fixed(slots=8), cores=16).chunk_bytes < plain.chunk_bytes


def test_a_pool_needs_few_slots_and_leaves_some_cpus() -> None:
    pool = replace(H200, pools=True, staged=90e3)
    plan = choose(PAGEABLE, pool, Fixed(), cores=16)
    assert plan.threads == 12
    assert plan.slots <= 8
    assert "share each chunk" in str(plan)
    assert choose(PAGEABLE, pool, Fixed(threads=3, slots=5), cores=16).threads == 3
    slow = replace(pool, trials=((plan.slots, plan.chunk_bytes, 1e12), (12, plan.chunk_bytes, 1e5)))
    assert choose(PAGEABLE, slow, Fixed(), cores=16).slots > plan.slots


class Costly(Simulated):
    """A GPU that timed events slow down."""

    timing_costs = True


@pytest.mark.parametrize("pools", [False, True])
@pytest.mark.parametrize("pinned", [False, True])
def test_what_was_not_timed_is_interpolated_and_said(pools: bool, pinned: bool) -> None:
    """It is not far from what would have been measured."""
    found = []
    for device in (Simulated(pools=pools), Costly(pools=pools)):
        x = device.pinned(1 << 18).view(np.float32) if pinned else np.zeros(1 << 16, np.float32)
        x[:] = 0
        with Pipeline(lambda a: a + 1, device=device, chunk=1 << 12, slots=2, threads=2) as pipe:
            pipe(x)
            found.append(pipe.report())
    exact, interpolated = found
    timeline = interpolated.timeline
    assert len(timeline.ops) == 3 * 64
    assert (timeline.ops.end >= timeline.ops.start).all()
    assert not [one for one in exact.timeline.unknown if one.what == "stage-ends"]
    (said,) = [one.text for one in timeline.unknown if one.what == "stage-ends"]
    assert "42 of 64" in said
    for engine in ("H2D", "kernels", "D2H"):
        assert interpolated.busy[engine] == pytest.approx(exact.busy[engine], abs=0.1), engine


def test_bench_gives_a_profile_that_the_model_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.runtime.bench.CURVE", (4, 64 * KIB, MIB))
    monkeypatch.setattr("gapless.runtime.bench.DUPLEX", (64 * KIB, MIB))
    monkeypatch.setattr("gapless.runtime.bench.LARGEST", 4 * MIB)
    found = bench(Simulated())
    assert "both ways at once" in str(found)
    path = tmp_path / "machine.json"
    path.write_text(found.to_json())
    machine = Machine.load(path)
    assert [size for size, _ in machine.h2d_curve] == [4, 64 * KIB, MIB]
    assert machine.h2d_curve[-1][1] == pytest.approx(dict(Machine.named("h200").h2d_curve)[MIB], rel=1e-3)


def test_bench_needs_a_gpu() -> None:
    with pytest.raises(GaplessError, match="no GPU to measure"):
        bench("host")
    with pytest.raises(GaplessError, match="no GPU"):
        next(bench_pipeline("host"))


def test_a_timeline_of_no_chunks_is_empty() -> None:
    plan = choose(LARGE, H200, Fixed(), cores=16)
    timeline = timeline_of([], plan, device="none", engines=True, origin=0)
    assert len(timeline.ops) == len(timeline.calls) == len(timeline.ranges) == 0


def test_the_report_says_which_stage_binds() -> None:
    x = np.zeros(1 << 20, np.float32)
    for kernel_ns, words in ((lambda size: 1.0 * size, "The kernel binds"), (lambda size: 0.0, "Staging binds")):
        with Pipeline(lambda a: a + 1, device=Simulated(kernel_ns=kernel_ns), chunk=1 << 18, slots=2) as pipe:
            pipe(x)
            assert words in str(pipe.report())
    device = Simulated(kernel_ns=lambda size: 0.0)
    pinned = device.pinned(4 << 20).view(np.float32)
    with Pipeline(lambda a: None, device=device, chunk=1 << 18) as pipe:
        pipe(pinned)
        assert "The link to the device binds" in str(pipe.report())
