"""What copies and calls cost on this machine, measured in well under a second through the device protocol.

The figures are kept in the user's cache folder, a file for each device, driver and number of usable CPUs, so that a
program measures once a machine. A machine may have been busy just then: where runs contradict what was predicted from
the figures, ``renew`` measures again.
"""

from __future__ import annotations

import json
import os
from collections import deque
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from gapless.model import native
from gapless.model.kinds import OpKind

from .chunks import cut
from .cpus import stagers, usable
from .devices import Copies, Device, Event, HostArray, Job, out_of_memory
from .flow import flow
from .slots import Chunk, Passage, Ring, RingMemoryError

MIB = 1 << 20
ALL, LEAST = 64 * MIB, 4 * MIB  # bytes of the largest copy that is timed; each way, on the device and pinned
IN_A_ROW = 4  # copies that are timed together
VERSION = 6  # of the cache files
LANES = (1, 2, 4, 8, 12, 16)  # threads that copy, as far as there are CPUs
BLOCK = 4 * MIB  # that a thread copies at a time
# The ring's trials: bytes of a chunk, slots of a pool, part of the CPUs that are slots where each has a thread.
TRIALS = ((8 * MIB, 12, 1), (8 * MIB, 6, 1), (4 * MIB, 6, 1), (4 * MIB, 12, 2))
TRIED = 48  # chunks of a trial


# What the ring did from and to pageable memory: slots, bytes of a chunk, ns a chunk.
Trial = tuple[int, int, float]


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs that decide how to cut work into chunks. Times are ns, rates bytes a ns (GB/s)."""

    h2d_latency: float
    h2d_rate: float
    d2h_latency: float
    d2h_rate: float
    both: tuple[tuple[int, float, float], ...]  # (bytes of a copy, H2D rate, D2H rate) while both directions work
    call: float  # host time of the bare calls for a chunk
    direct: float  # host time of a chunk in the ring, where nothing is staged
    staged: float  # the same where a crew stages it in and out
    host_copy: tuple[tuple[int, float], ...]  # (threads, rate of all together) between pageable and pinned memory
    register: float  # ns a byte to pin memory in place and undo it; inf where it cannot be done
    trials: tuple[Trial, ...] = ()
    pools: bool = False  # whether the threads that stage share each chunk
    link: bool = True  # whether there is a link at all

    def both_rates(self, size: int) -> tuple[float, float]:
        """Give the rates of H2D and D2H copies of a size while both directions work."""
        for low, high in pairwise(self.both):
            if size < high[0]:
                share = max(size - low[0], 0) / (high[0] - low[0])
                return low[1] + share * (high[1] - low[1]), low[2] + share * (high[2] - low[2])
        return self.both[-1][1:]

    def staging_rate(self, threads: int) -> float:
        """Give the rate of so many copying threads together."""
        for low, high in pairwise(self.host_copy):
            if threads < high[0]:
                return low[1] + max(threads - low[0], 0) / (high[0] - low[0]) * (high[1] - low[1])
        return self.host_copy[-1][1]

    def limit_ns(self, bytes_in: int, bytes_out: int) -> float:
        """Give the least time for so many bytes each way at once: the yardstick of every report."""
        h2d, d2h = self.both_rates(self.both[-1][0])
        together = min(bytes_in / h2d, bytes_out / d2h)
        rest_in, rest_out = bytes_in - together * h2d, bytes_out - together * d2h
        return together + max(rest_in, 0) / self.h2d_rate + max(rest_out, 0) / self.d2h_rate


# Where nothing is copied over a link.
HOST = Costs(
    h2d_latency=1e3, h2d_rate=8.0, d2h_latency=1e3, d2h_rate=8.0, both=((MIB, 8.0, 8.0),), call=1e5, direct=1e5,
    staged=1e5, link=False, host_copy=((1, 8.0),), register=float("inf"),
)  # fmt: skip

_known: dict[str, Costs] = {}
_renewed: set[str] = set()


def costs_of(device: Device) -> Costs:
    """Give the device's costs: from memory, the cache file, or measured now."""
    if not device.stages:
        return HOST
    if device.key not in _known:
        costs = _read(_cache_file(device.key)) if device.real else None
        _known[device.key] = _measured(device) if costs is None else costs
    return _known[device.key]


def renew(device: Device) -> bool:
    """Measure again what runs have contradicted; once a process. Tells whether it has done so."""
    if not device.real or not device.stages or device.key in _renewed:
        return False
    _renewed.add(device.key)
    try:
        _known[device.key] = _measured(device)
    except Exception as problem:  # the run that gave the doubt is over, and its results are there
        if not ran_out(problem):
            raise
        return False
    return True


def ran_out(problem: Exception) -> bool:
    """Tell whether measuring failed for want of memory."""
    return isinstance(problem, RingMemoryError) or out_of_memory(problem)


def _measured(device: Device) -> Costs:
    """Measure with as much memory as there is: the device may be another's but for a little."""
    largest = ALL if device.real else LEAST
    while True:
        try:
            costs = measure(device, largest=largest)
            break
        except Exception as problem:
            if largest == LEAST or not ran_out(problem):
                raise
        largest //= 4
    if device.real and largest == ALL:  # what is measured in little memory is not for other processes
        _write(_cache_file(device.key), costs)
    return costs


def measure(device: Device, *, largest: int = ALL) -> Costs:
    """Measure, in less than a second on a GPU. Leaves nothing behind. Every figure is a median.

    *largest* is the bytes of the largest copy. With less than all, the ring is not tried, whose memory is as much.
    """
    bench = Bench(device, largest)
    small, large = 256 * 1024, largest
    h2d_latency, h2d_rate = _line(small, bench.copy(OpKind.H2D, small), large, bench.copy(OpKind.H2D, large))
    d2h_latency, d2h_rate = _line(small, bench.copy(OpKind.D2H, small), large, bench.copy(OpKind.D2H, large))
    both = tuple((size, *bench.both(size)) for size in (MIB, 4 * MIB, 16 * MIB, largest) if size <= largest)
    rates = tuple((count, bench.staging(count)) for count in LANES if count <= usable())
    return Costs(
        h2d_latency=h2d_latency, h2d_rate=h2d_rate, d2h_latency=d2h_latency, d2h_rate=d2h_rate, both=both,
        call=bench.call(), direct=bench.chunk(staged=False), staged=bench.chunk(staged=True), host_copy=rates,
        register=bench.register(), trials=bench.trials() if device.real and largest >= ALL else (), pools=device.pools,
    )  # fmt: skip


class Bench:
    """Memory and streams of one device to measure with."""

    def __init__(self, device: Device, largest: int) -> None:
        self.device = device
        self.largest = largest
        self.pinned = device.pinned(largest)
        self.pinned_back = device.pinned(largest)
        self.pageable = np.empty(16 * largest if device.real else largest, np.uint8)  # more than caches would hold
        self._fill(self.pageable)
        self.streams = [device.stream(), device.stream()]
        self.memory = [device.memory(largest), device.memory(largest)]
        device.align_clock()

    def _fill(self, array: HostArray) -> None:
        """Write memory, so that its pages are there, by as many threads as there are CPUs."""
        lanes, part = usable(), self.pinned[: min(BLOCK, self.largest)]
        part[:] = 1
        crew = self.device.crew(lanes, lanes)
        try:
            starts = range(0, len(array), len(part))
            for lane, low in enumerate(starts):
                target = array[low : low + len(part)]
                crew.submit(lane % lanes, None, Copies([(target, part[: len(target)])]))
            for _ in starts:
                crew.next()
        finally:
            crew.close()

    def copy(self, kind: OpKind, size: int, *, host: HostArray | None = None, count: int = 3) -> float:
        """Give the ns of one copy between pinned (or *host*) memory and the device, among copies back to back."""
        stream, device = self.streams[0], self.device
        before, after = device.event(), device.event()
        memory = self.pinned if host is None else host

        def submit(nbytes: int, event: Event) -> None:
            array, part = self.memory[0].array(0, (nbytes,), np.dtype(np.uint8)), memory[:nbytes]
            move = (lambda: stream.h2d(array, part)) if kind is OpKind.H2D else (lambda: stream.d2h(part, array))
            stream.submit(kind, move, event, nbytes)

        times: list[float] = []
        for _ in range(count + 1):
            if host is None:
                submit(self.largest // 4, before)  # long enough that those to be timed are in the queue before it ends
            submit(size, before)
            for _ in range(IN_A_ROW):
                submit(size, after)
            after.wait()
            times.append((after.time_ns() - before.time_ns()) / IN_A_ROW)
        return float(median(times[1:]))

    def both(self, size: int) -> tuple[float, float]:
        """Give the rates of H2D and D2H copies of a size while both directions are at work.

        They are issued at once in both directions, and each is timed over its first three quarters: in the last one,
        the quicker direction may be through and leave the link to the other.
        """
        device = self.device
        count = max(4, min(64, 4 * self.largest // size))
        shared = 3 * count // 4
        events, ends = [device.event() for _ in range(4)], [device.event(), device.event()]
        one, other = self.streams
        to = self.memory[0].array(0, (size,), np.dtype(np.uint8))
        fro = self.memory[1].array(0, (size,), np.dtype(np.uint8))
        rates: list[tuple[float, float]] = []
        for _ in range(3):
            one.submit(OpKind.H2D, lambda: None, events[0])
            other.submit(OpKind.D2H, lambda: None, events[1])
            for number in range(count):
                part = slice((number * size) % self.largest, (number * size) % self.largest + size)
                marks = events[2:] if number == shared - 1 else ends if number == count - 1 else (None, None)
                one.submit(OpKind.H2D, lambda part=part: one.h2d(to, self.pinned[part]), marks[0], size)
                other.submit(OpKind.D2H, lambda part=part: other.d2h(self.pinned_back[part], fro), marks[1], size)
            for event in ends:
                event.wait()
            moved = shared * size
            rates.append((
                moved / max(events[2].time_ns() - events[0].time_ns(), 1),
                moved / max(events[3].time_ns() - events[1].time_ns(), 1),
            ))  # fmt: skip
        return float(median(rate for rate, _ in rates)), float(median(rate for _, rate in rates))

    def call(self) -> float:
        """Give the host's ns for the commands of one small chunk and the wait for it."""
        stream, device = self.streams[0], self.device
        events = [device.event() for _ in range(3)]
        array = self.memory[0].array(0, (4096,), np.dtype(np.uint8))
        times: list[int] = []
        for _ in range(20):
            start = device.now_ns()
            stream.submit(OpKind.H2D, lambda: stream.h2d(array, self.pinned[:4096]), events[0], 4096)
            stream.submit(OpKind.KERNEL, lambda: None, events[1])
            stream.submit(OpKind.D2H, lambda: stream.d2h(self.pinned_back[:4096], array), events[2], 4096)
            times.append(device.now_ns() - start)
            events[2].wait()
        return float(median(times))

    def chunk(self, *, staged: bool, count: int = 64, size: int = 16 * 1024) -> float:
        """Give the ns that the ring takes for a chunk so small that only the host's part counts."""
        slots = min(usable(), 8)
        ring, host = Ring(self.device, spins=not staged), self.pinned[: count * size]
        source, target = (self.pageable[: count * size], np.empty_like(host)) if staged else (host, self.pinned_back)
        spans = [(first, first + size) for first in range(0, count * size, size)]
        times: list[int] = []
        for _ in range(4):
            start = self.device.now_ns()
            chunks = cut([source], spans)
            threads = slots if staged else 0
            for _ in flow(ring, chunks, _kernel, _Into(target), slots=slots, threads=threads, log=deque()):
                pass
            times.append(self.device.now_ns() - start)
        return float(median(times[1:])) / count

    def staging(self, threads: int) -> float:
        """Give the rate at which so many threads together copy between pageable and pinned memory, both ways in turns.

        Each has a block of pinned memory of its own, as a slot's thread has.
        """
        block = min(BLOCK, self.largest // threads)
        crew, device = self.device.crew(threads, threads), self.device
        blocks = max(6 * threads, 12) if device.real else threads
        times: list[int] = []
        try:
            for _ in range(3 if device.real else 2):  # the threads are there before the clock counts
                start = device.now_ns()
                for number in range(blocks):
                    low = (number % (len(self.pageable) // block)) * block
                    lane = number % threads
                    ours, theirs = self.pinned[lane * block :][:block], self.pageable[low : low + block]
                    crew.submit(lane, None, Copies([(ours, theirs) if number // threads % 2 else (theirs, ours)]))
                for _ in range(blocks):
                    crew.next()
                times.append(device.now_ns() - start)
        finally:
            crew.close()
        return blocks * block / max(float(median(times[1:])), 1)

    def trials(self) -> tuple[Trial, ...]:
        """Let the ring itself run from and to pageable memory, in several ways.

        What counts is how often a chunk is through once the first ones are: a trial is short, and its begin is not.
        """
        found: list[Trial] = []
        ring, half = Ring(self.device, spins=False), len(self.pageable) // 2
        source, target = self.pageable[:half], self.pageable[half:]
        threads, begun = stagers(usable()) if self.device.pools else max(usable() - 1, 1), 0
        for size, slots, part in TRIALS:  # the first allocates for all
            slots = slots if self.device.pools else max(threads // part, 2)
            count = max(-(-TRIED // slots), 3) * slots
            times: list[float] = []
            for _ in range(2 if found else 3):
                log: deque[Passage] = deque()
                places = [(begun + number) * size % half for number in range(count)]  # where no cache has been lately
                spans, begun = [(low, low + size) for low in places], begun + count
                chunks = cut([source], spans)
                for _ in flow(ring, chunks, _kernel, _Into(target), slots=slots, threads=threads, log=log):
                    pass
                ends = sorted([passage.unstaged[1] for passage in log if passage.unstaged is not None])
                times.append((ends[-1] - ends[slots - 1]) / (len(ends) - slots))
            found.append((slots, size, min(times)))
        return tuple(found)

    def register(self) -> float:
        """Give the ns a byte of pinning pageable memory in place, and undoing it."""
        times: list[int] = []
        for _ in range(3):
            start = self.device.now_ns()
            undo = self.device.register(self.pageable[: self.largest])
            if undo is None:
                return float("inf")
            undo()
            times.append(self.device.now_ns() - start)
        return float(median(times)) / self.largest


def _kernel(stream: Any, job: Job) -> tuple[Any, ...]:
    """Stand for a kernel."""
    return job.inputs


class _Into:
    """Results go to their place in an array of bytes."""

    hands_over = ordered = False

    def __init__(self, whole: HostArray) -> None:
        self._whole = whole

    def target(self, chunk: Chunk, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """Give it."""
        return self._whole[chunk.first : chunk.first + chunk.rows]


def _line(small: int, small_ns: float, large: int, large_ns: float) -> tuple[float, float]:
    """Give latency and rate of a line through two points."""
    rate = (large - small) / max(large_ns - small_ns, 1)
    return max(small_ns - small / rate, 0), rate


def _cache_file(key: str) -> Path:
    safe = "".join(letter if letter.isalnum() else "-" for letter in key)
    return native.cache_folder() / f"costs-{safe}-{usable()}.json"


def _read(path: Path) -> Costs | None:
    """Read a cache file; whatever is wrong with it, the costs are measured anew."""
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if kept.pop("version") != VERSION:
            return None
        kept.update({key: tuple(tuple(row) for row in kept[key]) for key in ("both", "host_copy", "trials")})
        return Costs(**kept)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _write(path: Path, costs: Costs) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({"version": VERSION, **asdict(costs)}), encoding="utf-8")
        part.replace(path)
    except (OSError, RuntimeError):  # no home, no room: it is measured again next time
        return
