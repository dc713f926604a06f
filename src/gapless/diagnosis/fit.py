"""What a timeline tells about its machine: how long operations take alone, hops between engines, turnaround.

Everything is fitted from operations that nothing else constrained. What the timeline has no sample of is taken from a
machine profile. The profiler distorts small work; what it costs was measured on an H200 by running the same programs
with and without it (``benchmarks/predictions.py`` prints both).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, Engine
from gapless.model.machine import Machine
from gapless.timeline.measure import Intervals, union
from gapless.timeline.timeline import RangeKind

from .work import LONG_AGO, Ints, Work

SAMPLES = 5
_WORDS = {Engine.SM: "sm", Engine.H2D: "h2d", Engine.D2H: "d2h"}
_LONGEST_HOP = 30_000  # ns: a longer pause between two dependent operations has another reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiler:
    """What torch.profiler adds, in ns. H200, driver 580, PyTorch 2.11."""

    cpu_op: int = 1_900  # an operator recorded on the host
    python: int = 500  # a Python frame
    launch: int = 2_000  # inside the call, from CUDA C++
    launch_in_framework: int = 3_500  # the same where operators are recorded, which tags every launch
    call: int = 1_000  # inside any other call
    synchronise: int = 2_500  # after the waiting
    hop: int = 850  # between an operation and one that waited for it
    h2d_turnaround: int = 1_800  # between back-to-back copies
    d2h_turnaround: int = 5_700
    first: int = 350_000  # inside the first traced call
    least_flush: int = 50_000  # a shorter overlap with the profiler's own work is not one

    @property
    def silent(self) -> bool:
        """Whether it adds nothing: the run as it was recorded."""
        return not self.call

    def at_speed(self, host: float) -> Profiler:
        """Give the same on a host that takes *host* times as long for the same work."""
        scaled = {name: round(getattr(self, name) * host) for name in _HOST_COSTS}
        return replace(self, **scaled)


_HOST_COSTS = ("cpu_op", "python", "launch", "launch_in_framework", "call", "synchronise")
UNTRACED = Profiler()
# gapless's own recorder on the same machine: what the device pays is CUPTI's doing and the same under both, a launch
# with its source line costs the host 2.0 us (without: 1.1 us), and no framework is asked to tag it.
RECORDED = Profiler(cpu_op=0, python=0, launch_in_framework=2_000, first=0)
TRACED = Profiler(cpu_op=0, python=0, launch=0, launch_in_framework=0, call=0, synchronise=0, hop=0, h2d_turnaround=0,
                  d2h_turnaround=0, first=0)  # fmt: skip

# Median duration in ns of a traced launch on the host on which the profiler's costs were measured: from a framework
# that records its operators, and from C++. Another host takes longer or shorter for both, the profiler less so: between
# two hosts of which one launched 1.6 times as fast, its costs differed by 1.2.
_LAUNCH_IN_FRAMEWORK, _LAUNCH = 7_300, 5_000


def host_speed(work: Work) -> float:
    """Tell how many times as long as the reference this run's host takes, from what its launches took."""
    calls = work.calls
    launches = (calls.end - calls.start)[calls.kind == CallKind.LAUNCH]
    if len(launches) < SAMPLES:
        return 1.0
    framework = bool((work.timeline.ranges.kind == RangeKind.CPU_OP).any())
    slower = float(np.median(launches)) / (_LAUNCH_IN_FRAMEWORK if framework else _LAUNCH)
    # Launches also take long for other reasons (a full queue, a busy device), so a slow one proves no slow host.
    return float(np.clip(np.sqrt(slower), 0.5, 1.0))


# Hops between engines in ns under the profiler: alone, with one other operation running, with more (H200).
_HOPS = {
    "h2d>sm": [5_500, 5_500, 9_000], "sm>d2h": [5_000, 6_800, 8_000], "d2h>h2d": [5_000, 6_600, 6_600],
    "h2d>d2h": [6_000, 6_000, 6_000], "sm>h2d": [5_000, 5_000, 5_000], "d2h>sm": [5_000, 5_000, 5_000],
}  # fmt: skip
# Rates of copies while the other direction runs too, by size, as their intervals in timelines show them (H200).
_DUPLEX = [
    [65_536, 0.76, 0.72],
    [1 << 20, 0.76, 0.76],
    [4 << 20, 0.87, 0.87],
    [16 << 20, 0.86, 0.895],
    [64 << 20, 0.93, 0.9],
]


# Last part of a kernel that fills the GPU in which the next one already runs: 0.08 to 0.10 of kernels of 60 us to 1 ms
# with one whole wave of equal blocks, on two H200s. The timeline of a serial program does not show it.
_TAIL = "0.085"


@cache
def reference() -> Machine:
    """Give the machine that stands in for what a timeline has no sample of: the H200 as a profiler shows it."""
    known = Machine.named("h200")
    return known.with_knobs(hops={**known.hops, **_HOPS}, duplex_curve=_DUPLEX, kernel_tail=_TAIL)


# Turnaround of the copy engines under the profiler where the timeline has no back-to-back copies (H200).
_TURNAROUND = {"h2d": 2_800, "d2h": 6_700}
_LEAST_TURNAROUND, _LEAST_HOP = 700, 300


def machine_of(work: Work, base: Machine, profiler: Profiler) -> Machine:
    """Fit the machine of a measured run, starting from the profile *base*: its GPU, hops and turnaround.

    With ``UNTRACED`` the profiler's share is taken out; with ``TRACED`` the machine is the one that was recorded.
    """
    devices = work.timeline.devices
    device = devices[work.device] if work.device < len(devices) else None
    known: dict[str, object] = {}
    if device is not None and device.sms:
        known = {"sms": device.sms}
        for knob, value in (("threads_per_sm", device.threads_per_sm), ("regs_per_sm", device.registers_per_sm)):
            known |= {knob: value} if value else {}
        known |= {"smem_per_sm": f"{device.shared_per_sm}B"} if device.shared_per_sm else {}
    turnaround = {"h2d": max(_LEAST_TURNAROUND, found["h2d"] - profiler.h2d_turnaround),
                  "d2h": max(_LEAST_TURNAROUND, found["d2h"] - profiler.d2h_turnaround)} if (
        found := _TURNAROUND | turnarounds(work)) else {}  # fmt: skip
    fitted = hops(work, base.hops)
    return base.with_knobs(
        **known,
        hops={pair: [max(_LEAST_HOP, hop - profiler.hop) for hop in three] for pair, three in fitted.items()},
        turnaround=turnaround,
        # The script holds these as measured, call by call.
        sync_return="0us", record_cost="0us", first_launch_barrier="no", driver_lock="no", smem_config_per_sm="no",
        launch_contention=[],
    )  # fmt: skip


def hops(work: Work, known: Mapping[str, object]) -> dict[str, list[float]]:
    """Give the hops of ``Machine.hops`` in ns: medians of the timeline's own, *known* ones where it has too few.

    A sample is an operation that waited only for the one before it in its stream, on whatever engine that ran.
    """
    fitted = {
        pair: [float(hop) for hop in np.broadcast_to(np.asarray(three, float), 3)] for pair, three in known.items()
    }
    ops, engine = work.ops, work.engine
    rows = np.flatnonzero(work.stream_pred >= 0)
    before = work.stream_pred[rows]
    ready = ops.end[before]
    other_engine = np.where(work.engine_pred != work.stream_pred, work.engine_ready, LONG_AGO)
    others = np.maximum.reduce([work.launched, other_engine, work.fence_ready, work.event_ready])[rows]
    pause = ops.start[rows] - ready
    clean = (pause >= 0) & (pause < _LONGEST_HOP) & (others < ready - 3_000)
    rows, before, ready, pause = rows[clean], before[clean], ready[clean], pause[clean]
    running = np.searchsorted(np.sort(ops.start), ops.start[rows], "left") - np.searchsorted(
        np.sort(ops.end), ops.start[rows], "right"
    )
    load = np.clip(running, 0, 2)
    for first, first_word in _WORDS.items():
        after_first = engine[before] == first
        if np.count_nonzero(after_first) < SAMPLES:
            continue
        for then, then_word in _WORDS.items():
            for level in range(3):
                mine = after_first & (engine[rows] == then) & (load == level)
                if np.count_nonzero(mine) >= SAMPLES:
                    three = fitted.setdefault(f"{first_word}>{then_word}", [0.0, 0.0, 0.0])
                    three[level] = float(np.median(pause[mine]))
    return fitted


def turnarounds(work: Work) -> dict[str, float]:
    """Give the time between back-to-back copies of each direction in ns, where the timeline has enough of them."""
    found: dict[str, float] = {}
    ready = np.maximum.reduce([work.stream_ready, work.launched, work.event_ready, work.fence_ready])
    for engine in (Engine.H2D, Engine.D2H):
        rows = np.flatnonzero(work.engine == engine)
        ended = work.ops.end[rows][:-1]
        pause = work.ops.start[rows][1:] - ended
        clean = (ready[rows][1:] < ended - 8_000) & (pause >= 0) & (pause < 20_000)
        if np.count_nonzero(clean) >= SAMPLES:
            found[_WORDS[engine]] = float(np.median(pause[clean]))
    return found


def lone_durations(work: Work, tail: float, machine: Machine | None = None) -> NDArray[np.float64]:
    """Give how long each operation would take alone, in ns.

    Copies of both directions at once slow each other (R3.11), and kernels that fill the GPU run into each other's
    tails: durations in the timeline contain both. Here they are taken out, the model puts them back where they belong.
    """
    machine = machine or reference()
    ops, engine = work.ops, work.engine
    lone = (ops.end - ops.start).astype(np.float64)
    up, down = (np.flatnonzero(engine == e) for e in (Engine.H2D, Engine.D2H))
    for rows, others, column in ((up, down, 0), (down, up, 1)):
        shared = covered(ops.start[rows], ops.end[rows], union(ops.start[others], ops.end[others]))
        lone[rows] -= shared * (1 - duplex_factor(machine, ops.bytes[rows], column))
    _undo_tails(work, lone, tail)
    return lone


def duplex_factor(machine: Machine, sizes: Ints, direction: int) -> NDArray[np.float64]:
    """Give the rate of copies of some sizes while the other direction runs too, as a part of the rate alone."""
    if not machine.duplex_curve:
        return np.full(len(sizes), float(machine.duplex[direction]))
    points = np.asarray(machine.duplex_curve, float)
    return np.interp(sizes, points[:, 0], points[:, 1 + direction])


def _undo_tails(work: Work, lone: NDArray[np.float64], tail: float) -> None:
    """A kernel that began before the last one had ended waited for its SMs: count from where those fell free."""
    rows = np.flatnonzero(work.engine == Engine.SM)
    if len(rows) < 2 or not tail:
        return
    rows = rows[np.argsort(work.ops.end[rows], kind="stable")]
    ended = np.concatenate(([LONG_AGO], work.ops.end[rows][:-1]))
    waited = (ended > work.ops.start[rows]) & fills_gpu(work, rows)
    lone[rows[waited]] = np.minimum(lone[rows[waited]], (work.ops.end[rows] - ended)[waited] / (1 - tail))


def fills_gpu(work: Work, rows: Ints) -> NDArray[np.bool_]:
    """Tell for kernels whether their blocks fill (nearly) all SMs at once; those of unknown shape count as if."""
    return share_of_gpu(work, rows) >= 0.9


def share_of_gpu(work: Work, rows: Ints) -> NDArray[np.float64]:
    """Give the part of the GPU's room for blocks that each kernel takes, up to 1; 1 for those of unknown shape."""
    devices, ops = work.timeline.devices, work.ops
    device = devices[work.device] if work.device < len(devices) else None
    if device is None or not device.sms:
        return np.ones(len(rows))
    blocks, threads = ops.grid[rows].prod(axis=1, dtype=np.int64), ops.block[rows].prod(axis=1, dtype=np.int64)
    fit = np.minimum(32, (device.threads_per_sm or 2048) // np.maximum(threads, 1))
    registers, shared = np.maximum(ops.registers[rows], 1), np.maximum(ops.shared[rows], 0) + 1024
    fit = np.minimum(fit, (device.registers_per_sm or 65536) // np.maximum(registers * threads, 1))
    fit = np.maximum(np.minimum(fit, (device.shared_per_sm or 233472) // shared), 1)
    return np.where(ops.grid[rows, 0] < 0, 1.0, np.minimum(blocks / (fit * device.sms), 1.0))


def covered(starts: Ints, ends: Ints, by: Intervals) -> Ints:
    """Give how much of each ``[start, end]`` lies inside disjoint sorted intervals."""
    if not len(by):
        return np.zeros(len(starts), np.int64)
    return _inside(ends, by) - _inside(starts, by)


def _inside(times: Ints, by: Intervals) -> Ints:
    at = np.searchsorted(by[:, 0], times, side="right") - 1
    sums = np.concatenate(([0], np.cumsum(by[:, 1] - by[:, 0])))
    last = np.maximum(at, 0)
    return np.where(at >= 0, sums[last] + np.minimum(times, by[last, 1]) - by[last, 0], 0)


__all__ = [
    "TRACED",
    "UNTRACED",
    "Profiler",
    "duplex_factor",
    "fills_gpu",
    "hops",
    "host_speed",
    "lone_durations",
    "machine_of",
    "reference",
    "turnarounds",
]  # fmt: skip
