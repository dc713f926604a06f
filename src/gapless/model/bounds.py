"""What a pipeline takes at best: closed forms of section 10, the best number of chunks, lower bounds on any schedule.

A chunk is copied in for ``h``, worked on for ``k``, copied out for ``d`` (any unit, as long as it is one: ps here).
The closed forms are exact on the ``teaching`` machine: kernels fill the device, calls cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil, floor, sqrt

import numpy as np
from numpy.typing import NDArray

from .columns import among
from .kinds import CallKind, Flag, OpKind, StreamKind
from .machine import Machine
from .plan import Place, Plan, plan
from .program import Program

_BATCHES = among(CallKind.BATCH, CallKind.BATCHED)
_GRAPHS = among(CallKind.CAPTURE, CallKind.GRAPH_LAUNCH)


def serial(chunks: int, h: int, k: int, d: int) -> int:
    """Give the makespan of one stream, of synchronous copies on the legacy stream, or of one slot."""
    return chunks * (h + k + d)


def slots(chunks: int, slots: int, h: int, k: int, d: int) -> int:
    """Give the makespan with an engine a stage and so many slots that each hold a chunk through all stages.

    The same as so many streams dealt round robin. Three always suffice: then it is ``h + k + d`` and one longest stage
    for each further chunk.
    """
    whole, longest = h + k + d, max(h, k, d)
    rounds, rest = divmod(chunks - 1, slots)
    return rounds * max(whole, slots * longest) + rest * longest + whole


def period(h: int, k: int, d: int, inputs: int, outputs: int) -> Fraction:
    """Give the time a further chunk takes with so many input slots (free after the kernel) and output slots."""
    return max(Fraction(h), Fraction(k), Fraction(d), Fraction(h + k, inputs), Fraction(k + d, outputs))


def one_copy_engine(chunks: int, h: int, k: int, d: int) -> int:
    """Give the makespan with one copy engine, a slot a chunk, all copies to the device issued first."""
    return max(chunks * (h + d), h + k + d + (chunks - 1) * max(h, k, d))


def two_stages(chunks: int, transfer: int, execute: int) -> Fraction:
    """Give the makespan of a total transfer and a total execution time, split into chunks (BPG 10.1.2)."""
    return max(transfer, execute) + Fraction(min(transfer, execute), chunks)


def chunked(chunks: int, totals: Sequence[int], overheads: Sequence[int]) -> Fraction:
    """Give T(n): total stage times split into n chunks, where each operation costs its engine a fixed overhead."""
    stages = [total + chunks * overhead for total, overhead in zip(totals, overheads, strict=True)]
    return Fraction(sum(stages) + (chunks - 1) * max(stages), chunks)


def best_chunks(totals: Sequence[int], overheads: Sequence[int], *, most: int = 1 << 20) -> int:
    """Give the number of chunks, up to *most*, with the least T(n); the smallest of several.

    Between the points where another stage becomes the longest, T(n) = a + b/n + c*n; its least values are at such
    points or where b/n = c*n.
    """
    whole = sum(totals)
    points = {1.0, float(most)}
    for total, overhead in zip(totals, overheads, strict=True):
        if overhead:
            points.add(sqrt(max(whole - total, 0) / overhead))
        for other, its in zip(totals, overheads, strict=True):
            if its != overhead and (total - other) * (its - overhead) > 0:
                points.add((total - other) / (its - overhead))
    candidates = {n for point in points for n in (floor(point), ceil(point)) if 1 <= n <= most}
    return min(candidates, key=lambda n: (chunked(n, totals, overheads), n))


def chunked_one_copy_engine(chunks: int, totals: tuple[int, int, int], overhead: int) -> Fraction:
    """Give T(n) with one copy engine: total H2D, kernel and D2H times, all copies to the device issued first."""
    copies = totals[0] + totals[2] + 2 * chunks * overhead
    return max(Fraction(copies), chunked(chunks, totals, (overhead,) * 3))


def most_chunks_by_issue(longest: int, cost: int, calls: int = 3) -> int:
    """Give the number of chunks beyond which issuing them takes longer than their longest stage (total time)."""
    return longest // (calls * cost) if cost else 1 << 20


def lower_bounds(program: Program, machine: Machine | None = None) -> dict[str, int]:
    """Give times in ps that no schedule of a program on a machine can beat, by what they are about.

    ``h2d``, ``d2h``, ``peer``, ``sm``: an engine's whole work, with the least that must come before its first operation
    and after its last one in their streams (``h + Nk + d`` for the chunk loop); ``stream``: the longest stream;
    ``issue``: the host thread that spends most in calls and own work. Of several devices the longest counts. Which
    operations a capture keeps from running is known only when the program runs: then there is no bound but ``issue``.
    """
    machine = Machine() if machine is None else machine
    laid_out, rows = plan(program, machine), program.rows
    spent = np.zeros(len(program.threads), np.int64)
    if laid_out.cost is not None:
        np.add.at(spent, rows.thread, laid_out.cost)
    bounds = {"issue": int(spent.max())}
    legacy = np.array([info.kind == StreamKind.LEGACY for info in program.streams] or [False])
    failing = _BATCHES[rows.call] & legacy[rows.stream]  # R3.9
    ops = np.flatnonzero((rows.op >= 0) & ~failing)
    if not len(ops) or np.any(_GRAPHS[rows.call]):
        return bounds
    ops = ops[np.argsort(rows.stream[ops], kind="stable")]
    work = laid_out.work[ops]
    work[(rows.flags[ops] & Flag.PROGRAMMATIC) != 0] = 0  # R6.14: may run beside the kernel before
    before, after = _around_in_streams(rows.stream[ops], ops, work, laid_out.batches)
    bounds["stream"] = int((before + work + after).max())
    threads = len(program.threads)
    pairs = np.unique(rows.stream[ops].astype(np.int64) * threads + rows.thread[ops]) // threads
    alone = np.bincount(pairs, minlength=len(program.streams)) == 1  # fed by one host thread: only then in known order
    before, after = before * alone[rows.stream[ops]], after * alone[rows.stream[ops]]
    place, size = laid_out.place[ops], rows.bytes[ops]
    inline = (rows.op[ops] == OpKind.H2D) & (size >= 0) & (size <= max(machine.inline_idle, machine.inline_pending))
    device = np.array([info.device for info in program.streams], np.int32)[rows.stream[ops]]
    for name, where, engines in (
        ("h2d", Place.H2D, 1 if machine.shared_copy_engine else machine.h2d_engines),
        ("d2h", Place.D2H, machine.d2h_engines),
        ("peer", Place.PEER, machine.peer_engines),
        ("sm", Place.SM, 1),
    ):
        for number in np.unique(device).tolist():
            mine = (place == where) & ~inline & (device == number)
            if mine.any():
                held = _held(laid_out, rows.grid[ops[mine]], work[mine]) if where == Place.SM else int(work[mine].sum())
                bound = int(before[mine].min()) + held // engines + int(after[mine].min())
                bounds[name] = max(bounds.get(name, 0), bound)
    return bounds


def _around_in_streams(
    stream: NDArray[np.int32], ops: NDArray[np.intp], work: NDArray[np.int64], batches: Mapping[int, list[int]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the work before and after each operation; a batch takes as long as its longest copy at least (R3.9)."""
    at = {row: i for i, row in enumerate(ops.tolist())} if batches else {}
    in_turn = work.copy()
    inside = [(at[batch], [at[copy] for copy in copies]) for batch, copies in batches.items() if batch in at]
    for batch, copies in inside:
        in_turn[batch] = work[copies].max(initial=0)
        in_turn[copies] = 0
    before, after = _around(stream, in_turn)
    for batch, copies in inside:
        before[copies], after[copies] = before[batch], after[batch]
    return before, after


def _around(stream: NDArray[np.int32], work: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the work before and after each operation in its stream; streams stand one after the other."""
    done = np.cumsum(work)
    first, last = (np.searchsorted(stream, stream, side=side) for side in ("left", "right"))
    before = done - work - (done - work)[first]
    return before, done[last - 1] - done


def _held(laid_out: Plan, grid: NDArray[np.int32], work: NDArray[np.int64]) -> int:
    """Give the time for which kernels together hold the whole device."""
    held = 0
    for number in np.unique(np.maximum(grid, 0)).tolist():
        time = int(work[np.maximum(grid, 0) == number].sum())
        time = time * laid_out.units[number] * laid_out.blocks[number] // (laid_out.rounds[number] * laid_out.capacity)
        held += floor(time * (1 - laid_out.tails[number])) if laid_out.tails[number] else time
    return held
