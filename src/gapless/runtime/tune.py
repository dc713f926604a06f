"""Choosing chunk size, slots and threads: the model's makespan over measured costs, and the words for why.

A chunk passes stages: staged in, H2D, kernel, D2H, staged out. With n chunks in k slots, each stage taking w/n + o
(work over all chunks, fixed cost a chunk) on s servers, the last chunk is through after

    T(n) = S + (n - 1) · max(m, S / k)      S: all stages of one chunk, m: the longest stage over its servers

(section 10: the closed form of a ring of k slots, and what it becomes with several threads in a stage). More chunks
shorten what is not overlapped, S, and pay o more often. Threads of a pool share each chunk: they are one server. Where
threads stage, the second part is corrected by trials: how often the ring really had a chunk through, over what the
model says (memory bandwidth and caches are no stage of their own).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log2

import numpy as np

from gapless.model import bounds
from gapless.model.errors import GaplessError

from .calibrate import Costs, Trial
from .cpus import stagers, usable

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = tuple(int(base * 2**power) for power in range(10, 28) for base in (1, 1.5))  # 1 KiB to 192 MiB
MOST_CHUNKS = 1 << 14  # more are never worth a thought
KERNEL_RATE = 500.0  # bytes in a ns that a kernel is taken for, before one has been seen
POOL_SLOTS = (6, 8, 12)  # where a pool stages: some are staged, some on the link; more would not stay in the cache
DIRECT_SLOTS = 4  # copies have 4 channels a direction (R6.5): a fifth stream's copy may be held behind another's
WORTH = 1.1  # times shorter that a run must be for buffers to be allocated anew
FREE_SHARE = 0.5  # of the device memory that is free: what a ring may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What the user has fixed by hand; None is chosen."""

    chunk: int | None = None  # bytes
    slots: int | None = None
    threads: int | None = None
    staging: str | None = None  # "threads", "register" or "none"
    memory: int | None = None  # bytes that the ring may take, host and device together
    ahead: int | None = None  # chunks in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What there is to do. Bytes that are ``pageable`` need staging."""

    rows: int
    bytes_in: int
    bytes_out: int
    pageable_in: bool
    pageable_out: bool
    kernel_ns: float | None = None  # a byte of input (or output, where there is no input); None: not seen yet
    call_ns: float = 0.0  # that the caller's thread takes to call the kernel for a chunk, beyond the ring's own
    whole: bool = False  # the chunks are the user's batches: not to be cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a run is cut and carried; ``print(plan)`` says why."""

    rows: int  # rows a chunk
    chunk_bytes: int  # input and output bytes of a chunk, the larger of both
    chunks: int
    slots: int
    streams: int
    threads: int  # that stage; 0: the caller, or nothing to stage
    staging: str  # "threads", "register", "none"
    ahead: int
    memory: int  # bytes of the ring, host and device
    predicted_ns: float
    why: tuple[str, ...]
    whole: bool = False  # the chunks are a stream's batches, of which the first is known

    def __str__(self) -> str:
        what = "batches like the first" if self.whole else _counted(self.chunks, "chunk")
        head = (
            f"{what} of {_size(self.chunk_bytes)} ({_counted(self.rows, 'row')}), {_counted(self.slots, 'slot')}, "
            f"{_counted(self.streams, 'stream')}, {_counted(self.threads, 'staging thread')}, "
            f"{_size(self.memory)} of memory"
        )
        return "\n".join((head, *(f"  {line}" for line in self.why)))


def choose(
    work: Work, costs: Costs, fixed: Fixed, *, cores: int = 0, free: int = 0, before: Plan | None = None
) -> Plan:
    """Choose a plan. *cores* are the host's, *free* the device memory that is free (0: no telling).

    *before* is the plan whose buffers are there: they are kept unless other ones are worth their allocation.

    Raises GaplessError where the memory bound does not hold two rows.
    """
    cores = cores or usable()
    if not costs.link:
        return _for_host(work, fixed, cores)
    staging = fixed.staging or _staging(work, costs, cores)
    best: tuple[float, int, int] | None = None
    for slots in _slot_counts(costs, fixed, staging, cores):
        for size in _chunk_sizes(work, fixed):
            if not _fits(work, size, slots, staging, fixed, free) and size > _row_bytes(work):
                continue
            time = makespan(work, costs, size, slots, staging, cores)
            if best is None or time < best[0] * 0.995:  # of equals the smaller chunk, the fewer slots
                best = (time, size, slots)
    if best is None:
        best = (0.0, _row_bytes(work), 1)
    time, size, slots = best
    if before is not None and before.staging == staging:
        as_before = makespan(work, costs, before.chunk_bytes, before.slots, staging, cores)
        if as_before < WORTH * time:
            time, size, slots = as_before, before.chunk_bytes, before.slots
    threads = 0 if staging != "threads" else _threads(costs, fixed, slots, cores)
    why = _reasons(work, costs, fixed, size, slots, staging, cores)
    return _plan(work, fixed, size, slots, threads, staging, time, why)


def makespan(work: Work, costs: Costs, size: int, slots: int, staging: str, cores: int) -> float:
    """Give T(n) in ns for chunks of *size* bytes of the larger direction."""
    chunks = _chunks(work, size)
    if staging != "threads":
        h2d, kernel, d2h, host = (time for time, _ in _per_chunk(work, costs, size, staging, 1))
        time = max(bounds.slots(chunks, slots, h2d, kernel, d2h), chunks * host)
        pinned = work.bytes_in * work.pageable_in + work.bytes_out * work.pageable_out
        return time + (pinned * costs.register if staging == "register" else 0.0)
    through, between = _staged(work, costs, size, slots, cores)
    return through + (chunks - 1) * between * _correction(costs, size, slots, cores)


def _chunks(work: Work, size: int) -> int:
    return max(-(-max(work.bytes_in, work.bytes_out, 1) // max(size, 1)), 1)


def _staged(work: Work, costs: Costs, size: int, slots: int, cores: int) -> tuple[float, float]:
    """Give the ns that a chunk takes through a ring whose threads stage, and those from one chunk to the next."""
    stages = _per_chunk(work, costs, size, "threads", _stagers(costs, slots, cores))
    through = sum(time for time, _ in stages)
    return through, max(through / slots, *(time / servers for time, servers in stages))


def _per_chunk(work: Work, costs: Costs, size: int, staging: str, threads: int) -> list[tuple[int, int]]:
    """Give (ns that a chunk is in it, servers) of each stage."""
    chunks = _chunks(work, size)
    stages = _stages(work, costs, size, staging, threads)
    return [(round(work_ns / chunks + fixed_ns), servers) for work_ns, fixed_ns, servers in stages]


def _correction(costs: Costs, size: int, slots: int, cores: int) -> float:
    """Give how many times longer than the model says the ring took for each chunk: in the trials of the nearest number
    of slots, between their sizes of a chunk.
    """
    if not costs.trials:
        return 1.0
    sizes, factors = _tried(costs, slots, cores)
    return float(np.interp(log2(max(size, 1)), sizes, factors))


@lru_cache(maxsize=64)
def _tried(costs: Costs, slots: int, cores: int) -> tuple[list[float], list[float]]:
    """Give sizes (as powers of two) and how many times longer their trials took than the model says."""
    nearest = min({trial[0] for trial in costs.trials}, key=lambda count: abs(log2(slots / count)))
    tried = sorted((log2(trial[1]), _missed(costs, trial, cores)) for trial in costs.trials if trial[0] == nearest)
    return [size for size, _ in tried], [factor for _, factor in tried]


def _missed(costs: Costs, trial: Trial, cores: int) -> float:
    slots, size, took = trial
    work = Work(rows=1, bytes_in=size, bytes_out=size, pageable_in=True, pageable_out=True, kernel_ns=0.0)
    return took / _staged(work, costs, size, slots, cores)[1]


def _stages(work: Work, costs: Costs, size: int, staging: str, threads: int) -> list[tuple[float, float, int]]:
    """Give (ns of all work, ns more a chunk, servers) of each stage."""
    h2d, d2h = costs.both_rates(size) if work.bytes_in and work.bytes_out else (costs.h2d_rate, costs.d2h_rate)
    kernel = work.kernel_ns if work.kernel_ns is not None else 1 / KERNEL_RATE
    stages = [
        (work.bytes_in / h2d, costs.h2d_latency, 1),
        (kernel * (work.bytes_in or work.bytes_out), 2e3, 1),
        (work.bytes_out / d2h, costs.d2h_latency, 1),
        (0.0, work.call_ns + (costs.staged if staging == "threads" else costs.direct), 1),
    ]
    if staging == "threads":
        servers = 1 if costs.pools else threads
        rate = costs.staging_rate(threads) / servers
        moved = work.bytes_in * work.pageable_in + work.bytes_out * work.pageable_out
        stages.append((moved / rate, 0.0, servers))
    return stages


def _staging(work: Work, costs: Costs, cores: int) -> str:
    """Choose how pageable memory is brought to the link: by threads that copy, or pinned in place."""
    if not (work.pageable_in or work.pageable_out):
        return "none"
    copied = 1 / costs.staging_rate(cores)
    return "register" if costs.register < copied else "threads"


def _stagers(costs: Costs, slots: int, cores: int) -> int:
    """Give how many threads stage: of a pool most CPUs have one, else one a slot."""
    return stagers(cores) if costs.pools else min(slots, cores)


def _threads(costs: Costs, fixed: Fixed, slots: int, cores: int) -> int:
    """Give how many threads a plan has."""
    if fixed.threads is not None:
        return fixed.threads
    return _stagers(costs, slots, cores) if costs.pools else slots


def _slot_counts(costs: Costs, fixed: Fixed, staging: str, cores: int) -> Sequence[int]:
    if fixed.slots is not None:
        return (fixed.slots,)
    if staging != "threads":
        return (DIRECT_SLOTS,)
    if costs.pools:
        return POOL_SLOTS
    if fixed.threads:
        return (fixed.threads,)
    return sorted({count for count in (2, 4, 8, 12, 16, cores - 1) if 2 <= count < cores} or {2})  # one is the caller's


def _chunk_sizes(work: Work, fixed: Fixed) -> Sequence[int]:
    whole = max(work.bytes_in, work.bytes_out, 1)
    if work.whole:
        return (whole,)
    if fixed.chunk is not None:
        return (min(fixed.chunk, whole),)
    return tuple(size for size in SIZES if size < whole <= size * MOST_CHUNKS) or (whole,)


def _row_bytes(work: Work) -> int:
    return -(-max(work.bytes_in, work.bytes_out, 1) // max(work.rows, 1))


def _memory(work: Work, size: int, slots: int, staging: str) -> tuple[int, int]:
    """Give (device bytes, host bytes) of a ring whose chunks have *size* bytes in the larger direction."""
    whole = max(work.bytes_in, work.bytes_out, 1)
    size_in, size_out = size * work.bytes_in // whole, size * work.bytes_out // whole
    staged = 0 if staging != "threads" else size_in * work.pageable_in + size_out * work.pageable_out
    return slots * (size_in + size_out), slots * staged


def _fits(work: Work, size: int, slots: int, staging: str, fixed: Fixed, free: int) -> bool:
    device, host = _memory(work, size, slots, staging)
    if fixed.memory is not None and device + host > fixed.memory:
        return False
    return not free or device <= FREE_SHARE * free


def _plan(
    work: Work, fixed: Fixed, size: int, slots: int, threads: int, staging: str, time: float, why: tuple[str, ...]
) -> Plan:
    row = _row_bytes(work)
    rows = max(size // row, 1) if not work.whole else max(work.rows, 1)
    size = rows * row
    memory = sum(_memory(work, size, slots, staging))
    if fixed.memory is not None and memory > fixed.memory:
        slots = max(fixed.memory * slots // max(memory, 1), 1)
        memory = sum(_memory(work, size, slots, staging))
        if memory > fixed.memory:
            what = "one batch" if work.whole else "one row"
            raise GaplessError(f"memory= is {_size(fixed.memory)}, and {what} alone takes {_size(memory)} in the ring.")
    return Plan(
        rows=rows, chunk_bytes=size, chunks=max(-(-work.rows // rows), 1), slots=slots, streams=slots, threads=threads,
        staging=staging, ahead=min(fixed.ahead or slots, slots), memory=memory, predicted_ns=time, why=why,
        whole=work.whole,
    )  # fmt: skip


def _for_host(work: Work, fixed: Fixed, cores: int) -> Plan:
    """Cut for threads and NumPy: several chunks a core, none too small to be worth a thread's while."""
    whole = max(work.bytes_in, work.bytes_out, 1)
    size = fixed.chunk or min(max(whole // (8 * cores), 256 * KIB), 8 * MIB)
    slots = fixed.slots or cores + 1
    if fixed.memory is not None:
        size = min(size, max(fixed.memory // (2 * slots), 1))
    why = (
        f"chunk: about 8 a core for {cores} cores, 256 KiB to 8 MiB{_by_hand(fixed.chunk)}",
        f"slots: one a core and one that waits{_by_hand(fixed.slots)}",
    )
    return _plan(work, fixed, min(size, whole), slots, 0, "none", 0.0, why)


def _reasons(
    work: Work, costs: Costs, fixed: Fixed, size: int, slots: int, staging: str, cores: int
) -> tuple[str, ...]:
    chunks = _chunks(work, size)
    time = makespan(work, costs, size, slots, staging, cores)
    limit = costs.limit_ns(work.bytes_in, work.bytes_out)
    lines = []
    if work.whole:
        lines.append("chunk: each batch as it comes")
    else:
        lines.append(
            f"chunk: {_size(size)}{_by_hand(fixed.chunk)}: {chunks} chunks are predicted to take {time / 1e6:.3g} ms, "
            f"{_neighbours(work, costs, size, slots, staging, cores)}; the link's limit is {limit / 1e6:.3g} ms"
        )
    if staging == "threads":
        count = _stagers(costs, slots, cores)
        kind = "by threads that share each chunk" if costs.pools else "by threads of Python, one a slot"
        lines.append(
            f"staging: {kind}{_by_hand(fixed.staging)}: {count} copy {costs.staging_rate(count):.3g} GB/s together; "
            f"pinning in place takes {_rate(costs.register)}"
        )
        lines.append(
            f"slots: {slots}, some to stage, some on the link{_by_hand(fixed.slots)}"
            if costs.pools
            else f"slots: {slots}, as many as threads that pay on {cores} cores{_by_hand(fixed.slots)}"
        )
    elif staging == "register":
        lines.append(
            f"staging: pinned in place{_by_hand(fixed.staging)}, {_rate(costs.register)}; "
            f"threads copy {costs.staging_rate(cores):.3g} GB/s"
        )
    if staging != "threads":
        lines.append(f"slots: {slots}: 3 keep all engines busy, a fourth bridges the host{_by_hand(fixed.slots)}")
    kernel = "measured in the last run" if work.kernel_ns is not None else "not seen yet, taken for a light one"
    lines.append(f"kernel: {kernel}")
    if fixed.memory is not None:
        lines.append(f"memory: bound to {_size(fixed.memory)} by hand")
    if fixed.ahead is not None:
        lines.append(f"in flight: at most {fixed.ahead} chunks, so that copies of others wait for few")
    return tuple(lines)


def _neighbours(work: Work, costs: Costs, size: int, slots: int, staging: str, cores: int) -> str:
    half, double = (makespan(work, costs, other, slots, staging, cores) / 1e6 for other in (size // 2, size * 2))
    return f"half the size {half:.3g} ms, twice {double:.3g} ms"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _by_hand(value: object) -> str:
    return " (by hand)" if value is not None else ""


def _rate(ns_a_byte: float) -> str:
    return f"{1 / ns_a_byte:.3g} GB/s" if ns_a_byte and ns_a_byte != float("inf") else "no time: it cannot be done here"


def _size(count: float) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} B"
