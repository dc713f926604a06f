"""Machines: profiles, knobs as text, files of the user's own."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from gapless.model.errors import GaplessError
from gapless.model.machine import PROFILES, Machine, interpolate
from gapless.model.units import us

TEACHING = """
h2d_engines=1 d2h_engines=1 peer_engines=1 shared_copy_engine=no copy_arbitration=ready duplex=1 queues=ideal
copy_queues=same queue_policy=pool launch_depth=none launch_depth_per=stream launch_bytes=none kernels=leftover
resident_grids=128 sms=none blocks_per_sm=none threads_per_sm=none regs_per_sm=none smem_per_sm=none
smem_config_per_sm=no priorities=any d2d_engine=sm memset_engine=sm memset_no_sm=0 pageable=blocks
small_pageable=64KiB staging_slots=2 staging_slot=1MiB inline_idle=0 inline_pending=0 sync_memops=no
peer_barrier_all=no legacy_noop_barrier=yes malloc_sync=no free_sync=yes hostfree_sync=yes hostunregister_sync=yes
stack_limit_sync=no first_launch_barrier=no driver_lock=no launch_blocking=no hostfn_workers=1 launch_cost=0
call_cost=0 copy_overhead=0 record_cost=0
"""
H200 = """
copy_arbitration=drain_channel duplex=0.85,0.935 queues=8 copy_queues=4 queue_policy=sticky launch_depth=1021
launch_depth_per=channel launch_bytes=3.9MiB sms=132 blocks_per_sm=32 threads_per_sm=2048 regs_per_sm=65536
smem_per_sm=228KiB smem_config_per_sm=yes priorities=0,-5 memset_no_sm=4KiB pageable=staged inline_idle=24KiB
inline_pending=1KiB legacy_noop_barrier=listed stack_limit_sync=yes first_launch_barrier=yes driver_lock=yes
launch_cost=3.4us call_cost=measured record_cost=1.3us
"""


def listed(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ("teaching", ""),
        ("one-copy-engine", "shared_copy_engine=yes"),
        ("fermi", "shared_copy_engine=yes queues=1 copy_queues=1 queue_policy=mod resident_grids=16"),
        ("h200", H200),
    ],
)
def test_profiles_have_the_listed_knobs(profile: str, text: str):
    machine, expected = Machine.named(profile), Machine().with_knobs(**listed(TEACHING) | listed(text))
    for knob in listed(TEACHING):
        assert getattr(machine, knob) == getattr(expected, knob), knob


def test_teaching_costs_nothing():
    machine = Machine.named("teaching")
    assert machine == Machine()
    assert {f.name for f in fields(Machine) if not getattr(machine, f.name)} >= {
        "launch_cost", "call_cost", "copy_overhead", "record_cost", "sync_return", "h2d_curve", "call_costs",
        "late_costs", "hops", "issue_latency", "launch_contention", "duplex_curve", "staging_curve", "graph_node_cost",
        "kernel_tail",
    }  # fmt: skip


@pytest.mark.parametrize("profile", PROFILES)
def test_files_hold_everything(profile: str, tmp_path: Path):
    machine = Machine.named(profile)
    path = tmp_path / "mine.json"
    path.write_text(machine.to_json())
    assert Machine.load(path) == machine
    assert machine.with_knobs(**machine.knobs()) == (
        machine if not machine.duplex_curve else machine.with_knobs(duplex_curve=())
    )


def test_values_as_text_and_as_in_python_are_the_same():
    text = Machine().with_knobs(
        launch_cost="3.4us", queues="ideal", duplex="0.85,0.935", free_sync="no", priorities="0,-5"
    )
    python = Machine().with_knobs(
        launch_cost=3_400_000,
        queues=None,
        duplex=(Fraction(85, 100), Fraction(935, 1000)),
        free_sync=False,
        priorities=(0, -5),
    )
    assert text == python
    assert text.launch_cost == 3.4 * us


def test_setting_the_duplex_factor_means_every_size():
    assert Machine.named("h200").duplex_curve
    assert not Machine.named("h200", duplex=1).duplex_curve


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"queue": 3}, "did you mean 'queues'"),
        ({"queues": 40}, "queues is ideal or a whole number from 1 to 32"),
        ({"queues": True}, "queues=yes cannot be"),
        ({"duplex": "2"}, "a factor in"),
        ({"pageable": "stage"}, "pageable is blocks or staged"),
        ({"launch_cost": "3 furlongs"}, "launch_cost is a time"),
        ({"priorities": "-5,0"}, "lowest,highest"),
        ({"free_sync": "maybe"}, "yes or no"),
        ({"h2d_curve": 5}, "list of points"),
        ({"h2d_curve": [[2, 1], [1, 2]]}, "must grow"),
        ({"hops": {"h2d>smm": [1, 2, 3]}}, "did you mean 'h2d>sm'"),
        ({"call_costs": {"launch": -1}}, "at least 0"),
        ({"staging_slot": 0}, "larger than 0"),
    ],
)
def test_what_cannot_be_is_refused(knobs: dict[str, object], message: str):
    with pytest.raises(GaplessError, match=message):
        Machine().with_knobs(**knobs)


def test_unknown_profile():
    with pytest.raises(GaplessError, match="did you mean 'h200'"):
        Machine.named("h20")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "one JSON object"),
        ('{"queus": 3}', r"mine.json: .*did you mean 'queues'"),
        ('{"launch_cost": 3.4}', "has no unit"),
        ('{"profile": "h100"}', r"mine.json: no machine is named 'h100'"),
    ],
)
def test_files_that_cannot_be_read(text: str, message: str, tmp_path: Path):
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(GaplessError, match=message):
        Machine.load(path)
    with pytest.raises(GaplessError, match="cannot read"):
        Machine.load(tmp_path / "absent.json")


def test_a_file_can_start_from_a_profile(tmp_path: Path):
    path = tmp_path / "mine.json"
    path.write_text('{"profile": "h200", "queues": 32, "launch_cost": "5us"}')
    machine = Machine.load(path)
    assert machine.name == "mine"
    assert (machine.queues, machine.launch_cost, machine.copy_queues) == (32, 5 * us, 4)


def test_curves_interpolate_and_go_on():
    curve = ((100.0, 10.0), (200.0, 20.0), (400.0, 60.0))
    assert interpolate(curve, np.array([0, 100, 150, 400, 500])).tolist() == [10_000, 10_000, 15_000, 60_000, 80_000]


def test_h200_copies_are_those_measured(measured: Path):
    facts = json.loads((measured / "h200-facts.json").read_text())
    machine = Machine.named("h200")
    for curve, table in (("h2d_curve", "h2d_pinned"), ("d2h_curve", "d2h_pinned")):
        rows = np.array(facts["copy"][table])
        assert machine.time_of(curve, rows[:, 0].astype(np.int64)) == pytest.approx(rows[:, 1] * us)


@pytest.mark.parametrize(
    ("curve", "bytes_per_ns"),
    [("h2d_curve", 55), ("d2h_curve", 55), ("d2d_curve", 2100), ("memset_curve", 4490), ("p2p_curve", 392)],
)
def test_h200_bandwidths(curve: str, bytes_per_ns: float):
    """What a large operation takes beyond the curve's points goes on at the measured rate."""
    one, two = Machine.named("h200").time_of(curve, np.array([1 << 32, 1 << 33]))
    assert (1 << 32) / ((two - one) / 1000) == pytest.approx(bytes_per_ns, rel=0.05)


def test_a_pipe_is_no_machine(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(GaplessError, match=f"^{path} is no regular file"):
            Machine.load(path)
    with pytest.raises(GaplessError, match="Is a directory"):
        Machine.load(tmp_path)
