"""A run in progress: its plan, its log, how far it is, and what its log tells of the kernel."""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from statistics import median
from time import monotonic, perf_counter_ns

from gapless.model.errors import GaplessError

from .devices import Device
from .gathering import Gathered
from .slots import TIMED, Chunk, Flight, Passage
from .tune import Plan

KEPT = 1 << 16  # chunks of a run that the report knows
SAMPLED = 32  # chunks whose calls tell what a call takes

Progress = bool | Callable[[int, int], None]


class Running:
    """One run: its plan, its log, its progress."""

    def __init__(
        self,
        plan: Plan,
        rows: int,
        progress: Progress,
        device: Device,
        *,
        timed: Timed | None = None,
        gathered: Gathered | None = None,
    ) -> None:
        self.plan = plan
        self.log: deque[Passage] = deque(maxlen=KEPT)
        self.notes: list[str] = []
        self.timed = timed
        self.gathered = gathered
        self.chunks = self.batches = 0  # that are through
        self.caller_ns = 0
        self.straight: tuple[bool | None, bool | None] = (None, None)
        self.in_place = False  # results are put where the input is
        self.is_prompt = True  # nobody waits for the input
        self.is_telling = False  # nothing but the plan decides how long it takes: no caller, no new pages
        self.started = self.ended = device.now_ns()
        self._device = device
        self._rows = rows
        self._done = self._moved = 0
        self._progress: Callable[[int, int], None] | None = None
        if progress:
            if progress is not True and not callable(progress):
                raise GaplessError("progress= is True, or a function of the rows done and all rows.")
            self._progress = self._show if progress is True else progress
        self._shown = monotonic()

    def advance(self, flight: Flight) -> None:
        """Take note of a chunk that is through."""
        self._done += flight.chunk.rows
        self.chunks += 1
        self.batches += len(flight.counts) or 1
        self._moved += flight.bytes_in + flight.bytes_out
        if self._progress is not None:
            self._progress(self._done, self._rows)

    def shrink(self, unfinished: list[Chunk], rest: Iterator[Chunk]) -> Iterator[Chunk]:
        """Take a ring of half the size, and give what is left to do: chunks of one run's arrays in halves."""
        plan = self.plan
        slots = max(plan.slots // 2, 1)
        note = memory_note(plan, again=False)
        self.notes.append(note)
        warnings.warn(note, RuntimeWarning, stacklevel=4)
        threads = plan.threads if self._device.pools else min(plan.threads, slots)
        self.plan = replace(plan, slots=slots, streams=slots, threads=threads, memory=plan.memory // 4,
                            ahead=min(plan.ahead, slots), why=(*plan.why, note))  # fmt: skip
        left = chain(chain.from_iterable([chunk.batches or [chunk] for chunk in unfinished]), rest)
        if self.gathered is not None:
            self.gathered.most_bytes //= 2
        return left if self.timed is not None else _halves(left)

    def end(self) -> None:
        """Note the end, and leave the line of the progress."""
        self.ended = self._device.now_ns()
        if self._progress == self._show and self._done:
            self._show(self._done, self._rows, last=True)

    def _show(self, done: int, rows: int, *, last: bool = False) -> None:
        now = monotonic()
        if (now - self._shown < 0.1 and not last) or sys.stderr is None:
            return
        self._shown = now
        wall = max(self._device.now_ns() - self.started, 1)
        share = f"{done / rows:4.0%}" if rows else f"{done} rows"
        left = f", {wall * (rows - done) / max(done, 1) / 1e9:.0f} s left" if rows and done < rows else ""
        line = f"\r{share}  {self._moved / wall:.3g} GB/s{left}   "
        try:
            print(line, end="\n" if last else "", file=sys.stderr, flush=True)
        except (OSError, ValueError):  # full, or closed: no reason to end a run
            self._progress = None


class Timed:
    """An iterator that knows how long it was waited for."""

    def __init__(self, source: Iterator[Chunk]) -> None:
        self._source = source
        self.spent_ns = 0

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        start = perf_counter_ns()
        try:
            return next(self._source)
        finally:
            self.spent_ns += perf_counter_ns() - start


def kernel_ns(log: Sequence[Passage]) -> float | None:
    """Give the ns a byte that a kernel takes when nothing holds it up: what a tenth of the chunks stays below.

    A kernel begins when it is launched, its input is there, and the one before it is through. How long it is held up
    between its parts by a host that launches late shows in most chunks, but not in the quickest.
    """
    first = [passage for passage in log[: 2 * TIMED] if passage.index < TIMED]  # all timed
    previous: int | None = 0
    rates: list[float] = []
    for passage in sorted(first, key=lambda passage: passage.computed or 0) or log:
        moved = passage.bytes_in or passage.bytes_out
        if moved and previous is not None and passage.copied is not None and passage.computed is not None:
            rates.append(max(passage.computed - max(passage.copied, passage.launched, previous), 0) / moved)
        previous = passage.computed
    return sorted(rates)[len(rates) // 10] if rates else None


def call_ns(log: Sequence[Passage]) -> float:
    """Give the ns that a call of the kernel takes: the median, which what a first call compiles does not touch."""
    return float(median([passage.returned - passage.launched for passage in log[:: len(log) // SAMPLED + 1]]))


def _halves(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Cut each chunk in two; they keep their number."""
    for chunk in chunks:
        middle = chunk.rows // 2
        for start, after in ((0, middle), (middle, chunk.rows)):
            if after > start or not chunk.rows:
                inputs = tuple(source[start:after] for source in chunk.inputs)
                yield Chunk(chunk.index, chunk.first + start, after - start, inputs)
            if not chunk.rows:
                break


def memory_note(plan: Plan, *, again: bool) -> str:
    """Say that memory ran out, and what becomes of it."""
    taken = f"{plan.slots} slots of {plan.chunk_bytes / 2**20:.3g} MiB chunks"
    if again:
        return f"Memory ran out a second time, with {taken}. Give a smaller chunk=, slots= or memory=."
    return f"Memory ran out with {taken}; the pipeline goes on with half of the slots and, where it cuts, half chunks."
