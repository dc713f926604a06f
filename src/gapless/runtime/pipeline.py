"""The pipeline: copy in, kernel, copy out of many chunks, all engines busy, at the limit of the link.

::

    pipe = gapless.Pipeline(kernel)          # kernel: device arrays -> device arrays
    y = pipe(x)                              # NumPy in, NumPy out, any size
    for y in pipe.stream(batches): ...       # iterator in, iterator out, in order
    print(pipe.report())                     # what bound it
    print(pipe.plan())                       # what was chosen, and why
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from time import perf_counter_ns
from typing import Any, Literal, Self

import numpy as np

from gapless.model.errors import GaplessError

from . import calibrate, sinks
from .arguments import Size, count_of, size_of, targets_of
from .batch_plans import SMALL_BATCH, bytes_of_pack, bytes_shared, plan_batches, within_memory
from .chunks import as_host, batches, cut, failing, rows_of, spans_of, unpack, without
from .devices import Device, HostArray, KernelOptions, Launch, open_device
from .flow import flow as pass_ring
from .gathering import Gathered
from .kernels import name_of, output_specs
from .report import PipelineReport, report
from .resume import Journal
from .running import Progress, Running, Timed, call_ns, kernel_ns, memory_note
from .slots import Chunk, Passage, Ring, RingMemoryError
from .stock import Stock
from .tune import Fixed, Plan, Work, choose

PLANS = 256  # that are kept for work like that of before
TELLING = 2e7  # ns that a run must be predicted to take for its time to tell anything
CONTRADICTION = 1.5  # times longer or shorter than predicted
DOUBT = 2  # runs in a row, after which costs are measured anew
NEWS = 1.5  # a kernel's time that differs by less from what is known changes no plan
SMALL = 1 << 20  # bytes below which a thread is not worth its start
ARRAYS = ("cupy", "torch", "numba", "numba_cuda_mlir", "cuda")  # the last as cuda.core gives them
PRIORITIES = {"low": 0, "normal": 0, "high": -100}  # clamped by the driver (R6.13)
LOW_AHEAD, LOW_CHUNK = 2, 4 << 20  # so few and so small copies that those of others get through between


class Pipeline:
    """A kernel with the ring that keeps the link busy around it. Thread-safe; every run in progress has its own ring.

    *kernel* maps device arrays to device arrays and must treat rows (the first dimension) alike: it gets a chunk of
    rows at a time. It may return None, one array or a tuple, in memory that no later call writes to. Results with a row
    for every row make up one array; small results of chunks (0-dimensional, or fewer rows) are put one after another,
    or folded with *reduce*, a function of two results. Without inputs the kernel is called with ``(first row, rows)``.
    A raw kernel (``cuda_kernel``, a cuda.core kernel, Numba, Triton) gets ``(inputs..., outputs..., n)``; *outputs*
    says what it writes (dtype, or ``(shape of a row, dtype)``, a list for several, a number for several like the input;
    default one like the input).

    *device*: ``"cuda"``, ``"cuda:1"``, ``"host"`` or a device; by default a GPU where there is one. *arrays*: which
    library's arrays a plain function works on (``"cupy"``, ``"torch"``, ``"numba"``); by default found out.

    All else is chosen and may be fixed: *chunk* (bytes, ``"16 MiB"``), *slots*, *threads* (that stage; 0: the caller
    does), *staging* (``"threads"``, ``"register"``), *memory* (bound of the ring, ``"2 GiB"``). *priority* ``"low"``
    keeps few, small copies in flight so that others get through; ``"high"`` puts kernels first.

    What goes wrong in the kernel or the input comes out unchanged, at its chunk, with a note that names it. Raises
    GaplessError for input that cannot be cut or copied. The memory of a large result is used again for a later one once
    nothing refers to it: up to two results' worth are kept. ``close()``, or leaving ``with``, gives all memory back.
    """

    def __init__(
        self,
        kernel: Any,
        *,
        device: str | Device | None = None,
        arrays: Literal["cupy", "torch", "numba", "cuda"] | None = None,
        outputs: Any = None,
        launch: Callable[..., None] | None = None,
        reduce: Callable[[Any, Any], Any] | None = None,
        chunk: Size | None = None,
        slots: int | None = None,
        threads: int | None = None,
        staging: Literal["threads", "register"] | None = None,
        memory: Size | None = None,
        priority: Literal["low", "normal", "high"] = "normal",
    ) -> None:
        if not isinstance(priority, str) or priority not in PRIORITIES:
            raise GaplessError(f"priority is low, normal or high, not {priority!r}.")
        if launch is not None and not callable(launch):
            raise GaplessError("launch= is a function that launches the kernel.")
        if reduce is not None and not callable(reduce):
            raise GaplessError("reduce= is a function of two results that gives one.")
        if staging not in (None, "threads", "register"):
            raise GaplessError(f"staging is threads or register, not {staging!r}.")
        if arrays is not None and arrays not in ARRAYS:  # said on the host too, where a program is tried first
            raise GaplessError(f"arrays is cupy, torch, numba or cuda, not {arrays!r}.")
        low = priority == "low"
        self._fixed = Fixed(
            chunk=size_of("chunk", chunk) or (LOW_CHUNK if low else None), slots=count_of("slots", slots, 1),
            threads=count_of("threads", threads, 0), staging=staging, memory=size_of("memory", memory),
            ahead=LOW_AHEAD if low else None,
        )  # fmt: skip
        self._device = open_device(device)
        options = KernelOptions(arrays=arrays, outputs=output_specs(outputs), launch=launch)
        self._launch: Launch = self._device.kernel(kernel, options)
        self._name = name_of(kernel)
        self._reduce = reduce
        self._priority = PRIORITIES[priority]
        self._lock = threading.Lock()
        self._stock = Stock()
        self._rings: list[tuple[Ring, Plan]] = []  # those at rest, and what each was last used for
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()  # iterators that hold a ring
        self._closed = False
        self._kernel_ns: float | None = None  # a byte
        self._call_ns = 0.0  # a chunk
        self._plan: Plan | None = None
        self._plans: dict[Work, Plan] = {}
        self._costs: calibrate.Costs | None = None  # of which the plans were made
        self._contradicted: tuple[Plan | None, int] = (None, 0)  # a plan, and runs in a row that were not as predicted
        self._report: PipelineReport | Callable[[], PipelineReport] | None = None

    def __call__(
        self,
        *inputs: Any,
        out: HostArray | tuple[HostArray, ...] | None = None,
        rows: int | None = None,
        resume: str | os.PathLike[str] | None = None,
        progress: Progress = False,
    ) -> Any:
        """Run the kernel over the inputs, chunk by chunk, and give its results as NumPy arrays.

        *inputs* have the same number of rows; a kernel without inputs needs *rows*. *out* takes the results (one array,
        a tuple for several; ``np.memmap`` too) and may be the input itself. *resume* names a journal with which a run
        into a memmap (apart from the input) goes on after a crash: chunks that were finished are not done again.
        *progress* shows a line on standard error, or is called with (rows done, rows).
        """
        self._check_open()
        arrays = [as_host(value, f"Input {number}") for number, value in enumerate(inputs)]
        rows = count_of("rows", rows, 0)
        if arrays and rows is not None:
            raise GaplessError("rows= is for kernels without inputs; with inputs the rows are theirs.")
        if not arrays and rows is None:
            raise GaplessError("A kernel without inputs needs rows=: how many rows it is to give.")
        count = rows_of(arrays) if arrays else rows or 0
        targets = targets_of(out, arrays)
        if resume is None:
            return self._run(arrays, targets, count, progress, None)
        with Journal(resume, arrays, targets, count, self._name) as journal:
            return self._run(arrays, targets, count, progress, journal)

    def stream(self, source: Iterable[Any], *, pack: bool | Size = False, progress: Progress = False) -> Iterator[Any]:
        """Run the kernel over what an iterator gives, and give the results in order.

        A batch is an array, a tuple of arrays for several inputs, or a list of many small items (arrays, or tuples)
        that are copied as one and whose result is a list. It must stay as it is until its result is given: a source
        that fills one buffer again and again must yield copies. *pack* gathers single items that way, into copies of
        the size that the plan chooses (*chunk*, where that is fixed), or of the bytes given. Without it, small batches
        of a list, a tuple or an array share a copy each way too, and the kernel still gets each by itself; not so where
        *slots* is fixed, which bounds the batches under way. An iterator is asked for a batch when a slot is free.
        A result lies in memory of the pipeline's own that is used again once nothing refers to the result any more.
        """
        self._check_open()
        pack_bytes = 0 if pack is False else self._pack_bytes() if pack is True else size_of("pack", pack) or 0
        flow = self._stream(source, pack_bytes, progress)
        self._open.add(flow)
        return flow

    def plan(self, *inputs: Any, out: HostArray | tuple[HostArray, ...] | None = None) -> Plan:
        """Give what was chosen for the last run, or what would be chosen for these inputs, and why."""
        if inputs:
            arrays = [as_host(value, f"Input {number}") for number, value in enumerate(inputs)]
            return self._make_plan(arrays, targets_of(out, arrays), rows_of(arrays))
        if self._plan is None:
            raise GaplessError("There is no plan yet: run the pipeline, or write plan(x).")
        return self._plan

    def report(self) -> PipelineReport:
        """Give what bound the last run that has ended. Raises GaplessError before there is one."""
        made = self._report
        if made is None:
            raise GaplessError("There is nothing to report yet: no run of this pipeline has ended.")
        if not isinstance(made, PipelineReport):
            made = self._report = made()
        return made

    def close(self) -> None:
        """End iterators that are still open and give the memory back. The pipeline cannot be used after it.

        Raises GaplessError while one of them is at work: in its source, its kernel, or another thread.
        """
        self._closed = True
        for flow in list(self._open):
            try:
                flow.close()
            except ValueError:  # what Python says of a generator that runs
                raise GaplessError(
                    "A stream of this pipeline is at work. Close it where its results are taken."
                ) from None
        self._drop_rings()
        self._stock.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------------- runs

    def _run(
        self, arrays: Sequence[HostArray], targets: Sequence[HostArray] | None, count: int, progress: Progress,
        journal: Journal | None,
    ) -> Any:  # fmt: skip
        plan = self._make_plan(arrays, targets, count)
        sink = sinks.Whole(count, targets, self._reduce, self._stock)
        open_spans = without(journal.done, count) if journal else [(0, count)]
        if targets is not None and not open_spans:
            return targets[0] if len(targets) == 1 else tuple(targets)
        spans = chain.from_iterable([spans_of(first, after, plan.rows) for first, after in open_spans])
        run = Running(plan, count, progress, self._device)
        with self._registered(plan, arrays, targets):
            run.straight = (
                self._all_straight(arrays),
                not self._device.stages if targets is None else self._all_straight(targets),
            )
            run.in_place = any(np.may_share_memory(one, other) for one in targets or () for other in arrays)
            run.is_telling = targets is not None and journal is None
            with closing(self._flow(run, cut(arrays, spans), sink)) as flow:
                for flight in flow:
                    sink.take(flight)
                    if journal is not None:
                        journal.add(flight.chunk.first, flight.chunk.first + flight.chunk.rows)
        return sink.result()

    def _stream(self, source: Iterable[Any], pack_bytes: int, progress: Progress) -> Iterator[Any]:
        chunks, prompt, gathered = batches(source, pack_bytes), isinstance(source, np.ndarray | list | tuple), None
        if prompt and self._device.stages and not pack_bytes and self._fixed.slots is None:
            gathered = Gathered(chunks, small=SMALL_BATCH, most_bytes=bytes_shared(self._fixed))
        timed = Timed(chunks if gathered is None else gathered)
        try:
            first = next(timed, None)
        except Exception as problem:
            problem.add_note("gapless: the input gave this in place of chunk 0")
            raise
        if first is None:
            return
        plan = self._plan_batches(first, gathered)
        if gathered is not None:
            gathered.most_bytes = within_memory(gathered.most_bytes, plan.slots, self._fixed)
        run = Running(plan, 0, progress, self._device, timed=timed, gathered=gathered)
        run.is_prompt = prompt
        flow = self._flow(run, chain([first], timed), sinks.Stream())
        try:
            for flight in flow:
                given = perf_counter_ns()
                results = flight.results
                if gathered is not None:
                    gathered.tell(flight.chunk, run.log[-1])
                if flight.counts:
                    flight.results, each = (), iter(results)
                    del results
                    for count in flight.counts:
                        yield _one(tuple(islice(each, count)))
                    del each
                elif flight.chunk.items is None:
                    flight.results = ()
                    yield _one(results)
                    del results
                else:
                    columns = [unpack(flight.chunk, result) for result in results]
                    flight.results = results = ()
                    items = columns[0] if len(columns) == 1 else [_one(item) for item in zip(*columns, strict=True)]
                    items = items or [None] * len(flight.chunk.items)
                    del columns
                    if flight.chunk.as_list:
                        yield items
                    else:
                        yield from items
                    del items
                run.caller_ns += perf_counter_ns() - given
        finally:
            flow.close()

    def _flow(self, run: Running, chunks: Iterator[Chunk], sink: Any) -> Any:
        """Let chunks pass a ring; when memory runs out, once, go on with a smaller one."""
        shrunk = False
        try:
            while True:
                with self._ring(run) as ring:
                    flow: Any = pass_ring(
                        ring, chunks, self._launch, sink, slots=run.plan.slots, ahead=run.plan.ahead,
                        threads=run.plan.threads, straight=run.straight, prompt=run.is_prompt, log=run.log,
                    )  # fmt: skip
                    try:
                        for flight in flow:
                            run.advance(flight)
                            yield flight
                        return
                    except RingMemoryError as problem:
                        if shrunk:
                            where = f" at {problem.chunks[0].where()}" if problem.chunks else ""
                            what = f"{memory_note(run.plan, again=True)} This time{where}: {problem}"
                            raise GaplessError(what) from problem.problem
                        if run.in_place and sink.ordered:  # the input of what is to be done again may be overwritten
                            raise problem.problem from None
                        unfinished, finished = problem.chunks, problem.finished
                        chunks = chunks if problem.after is None else failing(problem.after)
                    finally:
                        flow.close()
                for flight in finished:
                    run.advance(flight)
                    yield flight
                shrunk = True
                self._drop_rings()
                chunks = run.shrink(unfinished, chunks)
        finally:
            self._finish(run)

    @contextmanager
    def _ring(self, run: Running) -> Iterator[Ring]:
        """Lend a ring for the plan: one at rest, or a new one.

        Staging threads sleep while they wait for the GPU, so that others may have their CPU; the caller, where nobody
        stages, spins: what wakes it up late holds up the link. So there may be one ring at rest of each kind.
        """
        plan, spins, ring = run.plan, run.plan.threads == 0, None
        with self._lock:
            self._rings = [rest for rest in self._rings if rest[0].process == os.getpid()]
            if self._fixed.memory is not None:  # buffers that grew for another plan may be more than the bound allows
                self._rings = [rest for rest in self._rings if rest[1] == plan]
            for rest in self._rings:
                if rest[0].spins is spins:
                    ring = rest[0]
                    self._rings.remove(rest)
                    break
        if ring is None:
            ring = Ring(self._device, priority=self._priority, spins=spins)
        yield ring
        with self._lock:  # not after an error: its buffers may be what was wrong
            if not self._closed:
                self._rings.append((ring, plan))

    def _drop_rings(self) -> None:
        with self._lock:
            self._rings.clear()

    @contextmanager
    def _registered(
        self, plan: Plan, arrays: Sequence[HostArray], targets: Sequence[HostArray] | None
    ) -> Iterator[None]:
        """Pin the user's memory in place for the run, where the plan says so and it can be done."""
        with ExitStack() as stack:
            if plan.staging == "register":
                for array in {id(one): one for one in (*arrays, *(targets or ()))}.values():
                    if array.size and not self._device.is_pinned(array):
                        undo = self._device.register(array)
                        if undo is not None:
                            stack.callback(undo)
            yield

    # --------------------------------------------------------------------------------------------------- plans

    def _make_plan(self, arrays: Sequence[HostArray], targets: Sequence[HostArray] | None, rows: int) -> Plan:
        bytes_in = sum(array.nbytes for array in arrays)
        bytes_out = bytes_in if targets is None else sum(array.nbytes for array in targets)
        pinned_out = targets is not None and all(map(self._straight, targets))
        return self._choose(
            Work(
                rows=rows, bytes_in=bytes_in, bytes_out=bytes_out or rows,
                kernel_ns=self._kernel_ns, call_ns=self._call_ns,
                pageable_in=not all(map(self._straight, arrays)), pageable_out=self._device.stages and not pinned_out,
            )
        )  # fmt: skip

    def _plan_batches(self, first: Chunk, gathered: Gathered | None) -> Plan:
        size = sum(array.nbytes for source in first.inputs for array in _arrays(source))
        straight = all(isinstance(source, np.ndarray) and self._straight(source) for source in first.inputs)
        work = Work(rows=first.rows, bytes_in=size, bytes_out=size, pageable_in=not straight, pageable_out=False,
                    whole=True)  # fmt: skip
        shared_bytes = 0 if gathered is None else gathered.most_bytes
        return self._remember(plan_batches(self._choose(work), first, size, shared_bytes, self._fixed, self._device))

    def _choose(self, work: Work) -> Plan:
        costs = calibrate.costs_of(self._device)
        if costs is not self._costs:  # measured anew
            self._costs = costs
            self._plans.clear()
        known = self._plans.get(work)
        if known is not None:
            return self._remember(known)
        alike = replace(work, kernel_ns=None, call_ns=0.0)
        before = self._plans.get(alike)
        plan = choose(work, costs, self._fixed, free=self._device.free_bytes(), before=before)
        if plan.threads and self._fixed.threads is None and not work.whole and work.bytes_in + work.bytes_out < SMALL:
            plan = replace(plan, threads=0)
        if len(self._plans) >= PLANS:
            self._plans.clear()
        self._plans[work] = self._plans[alike] = plan
        return self._remember(plan)

    def _remember(self, plan: Plan) -> Plan:
        self._plan = plan
        return plan

    def _pack_bytes(self) -> int:
        """Give the bytes of a pack: a chunk of a run that has very many."""
        many = Work(rows=1 << 30, bytes_in=1 << 30, bytes_out=1 << 30, pageable_in=self._device.stages,
                    pageable_out=False)  # fmt: skip
        return bytes_of_pack(self._fixed, self._device, lambda: self._choose(many).chunk_bytes)

    def _all_straight(self, arrays: Sequence[HostArray]) -> bool | None:
        """Tell it of all of them; None where they differ."""
        told = {self._straight(array) for array in arrays}
        return told.pop() if len(told) == 1 else None

    def _straight(self, array: HostArray) -> bool:
        """Tell whether the device copies this memory without staging."""
        return not self._device.stages or (bool(array.flags.c_contiguous) and self._device.is_pinned(array))

    def _finish(self, run: Running) -> None:
        """Keep what the run tells: for the report, and for the next plan."""
        run.end()
        if run.batches > run.chunks:
            run.notes.append(
                f"Small batches shared chunks: {run.batches:,} batches. In the timeline all calls of a chunk are one."
            )
        if not run.log:
            return
        log = list(run.log)
        if self._device.stages and run.timed is None:  # of batches, what they are is not the plan's to choose
            self._learn(log)
        self._compare(run)
        name, costs = self._device.name, calibrate.costs_of(self._device) if self._device.stages else None
        self._report = partial(  # of values: the run would keep the user's input
            report, log, run.plan, device=name, costs=costs, start=run.started, end=run.ended,
            source_ns=run.timed.spent_ns if run.timed else 0, caller_ns=run.caller_ns, notes=run.notes,
        )  # fmt: skip

    def _learn(self, log: Sequence[Passage]) -> None:
        """Keep what a kernel takes, where that differs from what is known."""
        seen_ns, known = kernel_ns(log), self._kernel_ns
        if seen_ns is not None and (known is None or not known / NEWS < seen_ns < known * NEWS):
            self._kernel_ns = seen_ns
        called_ns = call_ns(log)
        if not self._call_ns / NEWS <= called_ns <= self._call_ns * NEWS:
            self._call_ns = called_ns

    def _compare(self, run: Running) -> None:
        """Doubt what was measured when runs of one plan contradict it again and again.

        The first of a plan does not count: it allocates the ring.
        """
        plan, took = run.plan, run.ended - run.started
        if not run.is_telling or run.notes or plan.predicted_ns < TELLING or len(run.log) < plan.chunks:
            return
        before, count = self._contradicted
        if before is not plan or plan.predicted_ns / CONTRADICTION < took < plan.predicted_ns * CONTRADICTION:
            self._contradicted = plan, 0
        else:
            self._contradicted = plan, count + 1
            if count + 1 >= DOUBT and calibrate.renew(self._device):
                self._contradicted = None, 0

    def _check_open(self) -> None:
        if self._closed:
            raise GaplessError("This pipeline is closed. Make a new one.")


def _one(results: tuple[Any, ...]) -> Any:
    return None if not results else results[0] if len(results) == 1 else results


def _arrays(source: Any) -> Sequence[HostArray]:
    return [source] if isinstance(source, np.ndarray) else source
