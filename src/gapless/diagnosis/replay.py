"""Replay: a Script as a Program, run by the model, and what that says of the measured run.

Replaying a run unchanged must give its wall time back; the difference is the replay error, and stands beside every
prediction. A repaired run is replayed with the profiler's own cost taken out, and so is the run before it: a speed-up
speaks of the program without a profiler.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.model.errors import GaplessError
from gapless.model.kinds import CallKind, MemoryKind, OpKind, StreamKind
from gapless.model.machine import Machine
from gapless.model.program import Program
from gapless.model.schedule import Schedule, schedule
from gapless.model.things import Grid

from .script import FREE_CALLS, NEW_STREAM, Act, Script
from .work import Work

PS = 1_000  # ps in a ns
# The host's way from the end of the last operation to the return of the last synchronise (H200: 5 to 10 us).
LAST_RETURN = 8_000  # ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A script that has been run. Times in ns."""

    schedule: Schedule
    acts: NDArray[np.int32]  # row of the program for each act that puts an operation into a stream, in the acts' order
    device_wall: int  # from the first start to the last end of an operation
    host_wall: int  # from the first call (or, later, from when the device was free) to the last synchronise's return


def run(script: Script, work: Work, machine: Machine) -> Run:
    """Run a script on a machine."""
    program, rows = program_of(script, work)
    if not len(rows):
        raise GaplessError("The timeline does not say which calls issued the work, so it cannot be replayed.")
    if script.connections:
        machine = machine.with_knobs(queues=script.connections, copy_queues=script.connections)
    result = schedule(program, machine)
    first, last = int(result.start[rows].min()), int(result.end[rows].max())
    return Run(schedule=result, acts=rows, device_wall=(last - first) // PS,
               host_wall=max(last // PS - script.held, 1) + LAST_RETURN)  # fmt: skip


def program_of(script: Script, work: Work) -> tuple[Program, NDArray[np.int32]]:
    """Write a script as a Program; also give the rows of the acts that put operations into streams."""
    program = Program()
    program.threads = [f"thread{i}" for i in range(script.threads)] if script.threads > 1 else ["main"]
    for _ in range(script.events):
        program.event()
    table = _Table(program, script, work)
    if script.held:
        table.hold(script.held, dict.fromkeys(act.stream for act in script.acts if act.works))
    for act in script.acts:
        table.add(act)
    program.extend(**table.columns)
    return program, np.array(table.operations, np.int32)


class _Table:
    """Builds the program's columns, an act at a time: the host's work, the call, the host's work after its waiting."""

    def __init__(self, program: Program, script: Script, work: Work) -> None:
        self._program, self._script, self._work = program, script, work
        self.columns: dict[str, list[int]] = {
            name: [] for name in
            ("call", "op", "thread", "stream", "object", "duration", "bytes", "cost", "src", "dst", "grid", "name")
        }  # fmt: skip
        self.operations: list[int] = []
        self._streams: dict[int, int] = {}
        self._names: dict[int, int] = {}
        self._grids: dict[tuple[int, int, int, int] | None, int] = {None: 0}

    def hold(self, held: int, streams: Iterable[int]) -> None:
        """Keep all streams from beginning for a time: what ran before the script is not done yet."""
        event = self._program.event("free").row
        before = self._program.stream("before", StreamKind.NON_BLOCKING).row
        self._row(CallKind.HOST_FUNCTION, 0, op=OpKind.HOST_FUNCTION, stream=before, duration=held)
        self._row(CallKind.RECORD, 0, op=OpKind.RECORD, stream=before, object=event, duration=0)
        for stream in streams:
            self._row(CallKind.WAIT_EVENT, 0, op=OpKind.WAIT, stream=self._stream(stream), object=event, duration=0)

    def add(self, act: Act) -> None:
        if act.gap > 0:
            self._row(CallKind.HOST_WORK, act.thread, duration=act.gap)
        if act.works:
            self.operations.append(len(self.columns["call"]))
            self._operation(act)
        elif act.op >= 0:
            self._row(act.call, act.thread, op=act.op, stream=self._stream(act.stream), object=act.event, duration=0,
                      cost=act.cost)  # fmt: skip
        elif act.call == CallKind.SYNC_DEVICE or (act.call in FREE_CALLS):  # section 4: frees wait for all work too
            self._row(CallKind.SYNC_DEVICE, act.thread, cost=act.cost)
        elif act.call == CallKind.SYNC_EVENT and act.event >= 0:
            self._row(CallKind.SYNC_EVENT, act.thread, object=act.event, cost=act.cost)
        elif act.synchronises and act.stream >= 0:
            self._row(CallKind.SYNC_STREAM, act.thread, stream=self._stream(act.stream), cost=act.cost)
        elif act.cost > 0:
            self._row(CallKind.HOST_WORK, act.thread, duration=act.cost)
        if act.post > 0:
            self._row(CallKind.HOST_WORK, act.thread, duration=act.post)

    def _operation(self, act: Act) -> None:
        src, dst = act.src, act.dst
        if act.pageable and not act.waited and act.call == CallKind.COPY_ASYNC:
            # R3.12: staged without waiting; the staging is in the call's cost, and from then on it is as if pinned.
            src = MemoryKind.PINNED if act.op == OpKind.H2D else src
            dst = MemoryKind.PINNED if act.op == OpKind.D2H else dst
        grid = self._grid(act.grid) if act.op == OpKind.KERNEL else -1
        self._row(act.call, act.thread, op=act.op, stream=self._stream(act.stream), duration=act.duration,
                  size=act.bytes, cost=act.cost, src=src, dst=dst, grid=grid,
                  name=self._name(act.name) if grid >= 0 and act.name >= 0 else -1)  # fmt: skip

    def _row(self, call: int, thread: int, *, op: int = -1, stream: int = -1, object: int = -1,  # noqa: A002
             duration: float = -1, size: int = -1, cost: int = 0, src: int = 0, dst: int = 0,
             grid: int = -1, name: int = -1) -> None:  # fmt: skip
        columns = self.columns
        columns["call"].append(call)
        columns["op"].append(op)
        columns["thread"].append(thread)
        columns["stream"].append(stream)
        columns["object"].append(object)
        columns["duration"].append(round(duration * PS) if duration >= 0 else -1)
        columns["bytes"].append(size)
        columns["cost"].append(cost * PS)
        columns["src"].append(src)
        columns["dst"].append(dst)
        columns["grid"].append(grid)
        columns["name"].append(name)

    def _stream(self, stream: int) -> int:
        known = self._streams.get(stream)
        if known is None:
            known = self._streams[stream] = self._declare(stream)
        return known

    def _declare(self, stream: int) -> int:
        program = self._program
        if stream >= NEW_STREAM:
            return program.stream(f"new{stream - NEW_STREAM}", StreamKind.NON_BLOCKING).row
        info = self._work.timeline.streams[stream]
        if info.kind is StreamKind.LEGACY:
            return program.legacy().row
        kind = StreamKind.NON_BLOCKING if self._script.non_blocking or info.kind is StreamKind.UNKNOWN else info.kind
        return program.stream(f"s{info.id}", kind, priority=info.priority or 0).row

    def _name(self, name: int) -> int:
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = len(self._program.strings)
            self._program.strings.append(self._work.timeline.strings[name])
        return known

    def _grid(self, shape: tuple[int, int, int, int] | None) -> int:
        known = self._grids.get(shape)
        if known is None and shape is not None:
            blocks, threads, registers, shared = shape
            self._program.grids.append(
                Grid(blocks=blocks, block=None, threads=threads, registers=registers, shared=shared)
            )
            known = self._grids[shape] = len(self._program.grids) - 1
        return known or 0


__all__ = ["LAST_RETURN", "Run", "program_of", "run"]
