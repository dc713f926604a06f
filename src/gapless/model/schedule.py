"""The Schedule: when every operation and call of a program starts and ends on a machine, and what bound it.

    run = schedule(program, Machine.named("h200"))
    run.makespan                     ps
    run.start[run.op("k0")]          ps
    run.bound_by_text(run.op("k0"))  "stream order: h2d h0 on s0 (call 0 of thread main)"

Rules are those of sections 2 to 8 of the specification, all grades: this is timing, and promises nothing. What a
program may rely on is ``happens_before.py``'s matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from . import flow
from .errors import GaplessError
from .kinds import CALL, OP, Bound, Engine
from .machine import Machine
from .plan import PLACES, Place, Plan, plan
from .program import Program
from .simulator import Simulator

BOUND_WORDS: Mapping[Bound, str] = {
    Bound.NONE: "nothing",
    Bound.HOST: "host",
    Bound.STREAM: "stream order",
    Bound.FENCE: "legacy default stream",
    Bound.EVENT: "event",
    Bound.GRAPH: "graph",
    Bound.FIRST_USE: "first use of a kernel",
    Bound.COPY_ENGINE: "copy engine",
    Bound.SM: "SMs",
    Bound.GRID_SLOT: "grid slot",
    Bound.QUEUE: "hardware queue",
    Bound.WORKER: "host function worker",
    Bound.WORK: "work it waits for",
    Bound.LAUNCH_QUEUE: "launch queue full",
    Bound.LOCK: "driver lock",
    Bound.STAGING: "staging slot",
    Bound.MESSAGE: "message",
    Bound.POOL: "memory pool",
    Bound.VALUE: "value in memory",
    Bound.STORE: "value stored by a host thread",
}


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """One run. All times are ps from the start of the host threads.

    Operations are numbered by the row of their call; each node of a launched graph has a number of its own behind the
    last row (``node_row``, ``node_launch``). Columns by operation, -1 (``Bound.NONE``) where the row has none or it
    never ran:

    ``start``, ``end``
        On its engine. A kernel starts with its first block.
    ``bound``, ``bound_by``
        The binding constraint: of all that an operation had to wait for, what came last, and the operation that it was
        (for ``HOST``: the call itself, which is the same number). Following it from the last operation to the first
        gives the critical path.
    ``engine``
        ``Engine`` that served it; -1 none (a record, a copy that travelled inside its channel ...).

    Columns by row:

    ``begin``, ``issued``, ``returned``
        Of the call: when it began, when the driver took it (its cost is over, it has the driver's lock and a place in
        the launch queue), when it returned.
    ``error``
        The ``CudaError`` it returned; a query that found work pending has ``NOT_READY``.
    ``order``
        The rows in the order in which the driver took them: the issue order (R1.1).

    And by row, where there is anything to say:

    ``delays``, ``waits``
        ``(bound, by)``: what kept the call from acting before ``issued`` (launch queue, lock, staging slot ...), and
        what kept it from returning afterwards.
    ``saw``
        The record that a wait, a synchronise or a query of an event was about (-1: never recorded); the send that a
        receive got; the write or store that a wait for a value was about (-1: it held at the start, R5.9); the free
        that a stream-ordered allocation comes behind because the pool gave it that memory (R8.4).
    ``values``
        ps that ``elapsed`` gave.
    """

    program: Program
    machine: Machine
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    bound: NDArray[np.int8]
    bound_by: NDArray[np.int32]
    engine: NDArray[np.int8]
    begin: NDArray[np.int64]
    issued: NDArray[np.int64]
    returned: NDArray[np.int64]
    order: NDArray[np.int32]
    error: NDArray[np.int16]
    node_row: NDArray[np.int32]
    node_launch: NDArray[np.int32]
    delays: Mapping[int, tuple[Bound, int]]
    waits: Mapping[int, tuple[Bound, int]]
    saw: Mapping[int, int]
    values: Mapping[int, int]
    _runs: dict[str, list[int]] = field(default_factory=dict[str, "list[int]"])

    def __repr__(self) -> str:
        return f"<Schedule of {len(self.program):,} calls on {self.machine.name}: {self.makespan:,} ps>"

    @property
    def makespan(self) -> int:
        """Time from the start to the last end of an operation or return of a call, in ps."""
        return int(max(self.end.max(initial=0), self.returned.max(initial=0)))

    def row_of(self, op: int) -> int:
        """Give the row of an operation: its own, or for a node of a launched graph the row that was captured."""
        rows = len(self.program)
        return op if op < rows else int(self.node_row[op - rows])

    def op(self, name: str) -> int:
        """Give the number of an operation by its name.

        One that runs in a launched graph is ``NAME`` for its last run and ``NAME.1``, ``NAME.2``, ... for each. Raises
        ``GaplessError`` for a name that the program does not have, and for an operation that never ran.
        """
        whole, _, number = name.rpartition(".")
        runs = self._runs_by_name()
        if name in runs:
            return runs[name][-1]
        if whole in runs and number.isdecimal() and 1 <= int(number) <= len(runs[whole]):
            return runs[whole][int(number) - 1]
        row = self.program.find(name)
        if self.program.rows.op[row] >= 0 and self.start[row] >= 0:
            return row
        raise GaplessError(f"{self.program.describe(row)} did not run")

    def runs_of(self, row: int) -> list[int]:
        """Give the operations that ran for a row: itself, or its runs in launched graphs."""
        nodes = np.flatnonzero(self.node_row == row) + len(self.program)
        return nodes.tolist() if len(nodes) else [row] if self.start[row] >= 0 else []

    def elapsed(self, row: int) -> int | None:
        """Give what ``cudaEventElapsedTime`` measured, in ps; None if it failed."""
        return self.values.get(row)

    def busy(self, engine: Engine, device: int | None = None) -> int:
        """Give how long an engine (of one device, or of any) has something to do, in ps: its operations' union."""
        return _union(*self._intervals(engine, device))

    def overlapped(self, device: int | None = None) -> int:
        """Give how long at least two of the H2D engine, the SMs and the D2H engine are busy, in ps."""
        starts, ends = [], []
        for engine in (Engine.H2D, Engine.SM, Engine.D2H):
            start, end = _merge(*self._intervals(engine, device))
            starts.append(start)
            ends.append(end)
        times = np.concatenate(starts + ends)
        steps = np.concatenate([np.ones(len(times) // 2, np.int64), -np.ones(len(times) // 2, np.int64)])
        order = np.lexsort((steps, times))
        depth = np.cumsum(steps[order])[:-1]
        return int(np.diff(times[order])[depth >= 2].sum())

    def describe(self, op: int) -> str:
        """Say in a few words what an operation is."""
        text = self.program.describe(self.row_of(op))
        rows = len(self.program)
        return text if op < rows else f"{text}, in {self.program.describe(int(self.node_launch[op - rows]))}"

    def bound_by_text(self, op: int) -> str:
        """Say what bound an operation: the kind of constraint, and the operation or call that it was."""
        bound, by = Bound(int(self.bound[op])), int(self.bound_by[op])
        return BOUND_WORDS[bound] + (f": {self.describe(by)}" if by >= 0 else "")

    def _intervals(self, engine: Engine, device: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows = self.engine == engine
        if device is not None:
            devices = np.array([info.device for info in self.program.streams], np.int32)
            launched_from = np.concatenate([np.arange(len(self.program)), self.node_launch])
            rows &= devices[np.maximum(self.program.rows.stream[launched_from], 0)] == device
        return self.start[rows], self.end[rows]

    def _runs_by_name(self) -> dict[str, list[int]]:
        if not self._runs and len(self.node_row):
            for number, row in enumerate(self.node_row.tolist()):
                if name := self.program.name_of(row):
                    self._runs.setdefault(name, []).append(len(self.program) + number)
        return self._runs


def schedule(program: Program, machine: Machine | None = None) -> Schedule:
    """Run a program on a machine (default: profile ``teaching``).

    Raises ``GaplessError`` where an operation's time is known neither from the program nor from the machine, and for a
    run too long to count; ``DeadlockError`` if host threads wait for each other for ever. A CUDA error is a result of
    its call, in ``error``.
    """
    machine = Machine() if machine is None else machine
    laid_out = plan(program, machine)
    if flow.fits(program, machine, laid_out):
        return _from_flow(program, machine, laid_out, flow.run(program, machine, laid_out))
    try:
        sim = Simulator(program, machine, laid_out)
        sim.run()
        return collect(program, machine, sim)
    except OverflowError:
        raise GaplessError(
            f"on machine {machine.name} this program would run for more than 106 days, which picoseconds cannot count"
        ) from None


_ENGINE_OF = {
    Place.SM: Engine.SM, Place.H2D: Engine.H2D, Place.D2H: Engine.D2H, Place.PEER: Engine.PEER,
    Place.WORKER: Engine.HOST, Place.CALLER: Engine.HOST,
}  # fmt: skip


def collect(program: Program, machine: Machine, sim: Simulator) -> Schedule:
    """Make a schedule of what a simulation has found."""
    rows = len(program)
    launch = np.array(sim.launch, np.int32)
    nodes = np.flatnonzero(launch >= 0)
    kept = np.concatenate([np.arange(rows), rows + nodes])
    number = np.full(rows + len(launch), -1, np.int32)  # barriers have no number outside
    number[kept] = np.arange(len(kept), dtype=np.int32)
    start, end = (np.frombuffer(c, np.int64)[kept] for c in (sim.start, sim.end))
    bound_by = np.frombuffer(sim.bound_by, np.int32)
    through_barrier = bound_by >= rows
    if len(launch):
        bound_by = bound_by.copy()
        for op in np.flatnonzero(through_barrier).tolist():
            if launch[bound_by[op] - rows] < 0:  # a barrier stands for what it waited for
                bound_by[op] = bound_by[bound_by[op]]
        bound_by = np.where(bound_by >= 0, number[bound_by], -1).astype(np.int32)
    bound = np.frombuffer(bytes(sim.bound), np.int8)[kept]
    ran = start >= 0
    engine_of = np.array([_ENGINE_OF.get(place, Engine.NONE) for place in PLACES], np.int8)
    place = np.array(sim.place, np.int8)[kept]
    error = np.zeros(rows, np.int16)
    error[list(sim.hosts.errors)] = list(sim.hosts.errors.values())
    return Schedule(
        program=program,
        machine=machine,
        start=start,
        end=end,
        bound=np.where(ran, bound, 0).astype(np.int8),
        bound_by=np.where(ran, bound_by[kept], -1).astype(np.int32),
        engine=np.where(ran, engine_of[place], -1).astype(np.int8),
        begin=sim.hosts.begin,
        issued=sim.hosts.issued,
        returned=sim.hosts.returned,
        order=np.array(sim.hosts.order, np.int32),
        error=error,
        node_row=np.array(sim.source, np.int32)[nodes] if len(nodes) else np.zeros(0, np.int32),
        node_launch=launch[nodes] if len(nodes) else np.zeros(0, np.int32),
        delays={row: (bound, _outside(by, number)) for row, (bound, by) in sim.hosts.delays.items()},
        waits={row: (bound, _outside(by, number)) for row, (bound, by) in sim.hosts.waits.items()},
        saw={row: _outside(op, number) for row, op in sim.saw.items()},
        values=sim.hosts.values,
    )


def _from_flow(program: Program, machine: Machine, laid_out: Plan, columns: flow.Columns) -> Schedule:
    engine_of = np.array([_ENGINE_OF.get(place, Engine.NONE) for place in PLACES], np.int8)
    ran = columns.start >= 0
    none = np.zeros(0, np.int32)
    waited = np.flatnonzero(columns.waited_by >= 0).tolist()
    about = np.flatnonzero((program.rows.op == OP.WAIT) | (program.rows.call == CALL.SYNC_EVENT)).tolist()
    return Schedule(
        program=program,
        machine=machine,
        start=columns.start,
        end=columns.end,
        bound=columns.bound,
        bound_by=columns.bound_by,
        engine=np.where(ran, engine_of[laid_out.place], -1).astype(np.int8),
        begin=columns.begin,
        issued=columns.issued,
        returned=columns.returned,
        order=np.arange(len(program), dtype=np.int32),
        error=np.zeros(len(program), np.int16),
        node_row=none,
        node_launch=none,
        delays={},
        waits={row: (Bound.WORK, int(columns.waited_by[row])) for row in waited},
        saw={row: int(columns.saw[row]) for row in about},
        values={},
    )


def _outside(op: int, number: NDArray[np.int32]) -> int:
    return int(number[op]) if op >= 0 else -1


def _merge(start: NDArray[np.int64], end: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the union of intervals as disjoint ones."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order]) if len(end) else end
    first = np.concatenate([[True], start[1:] > end[:-1]]) if len(start) else np.zeros(0, np.bool_)
    last = np.concatenate([first[1:], [True]]) if len(start) else first
    return start[first], end[last]


def _union(start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    start, end = _merge(start, end)
    return int((end - start).sum())


assert set(BOUND_WORDS) == set(Bound)
