"""A played tape in words: names of operations and engines, and the sentence that says why an engine waited."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gapless.model.gaps import OF_CALLS, Gap, Link, chain
from gapless.model.kinds import Bound, CallKind, Engine
from gapless.model.schedule import Schedule
from gapless.views import wording
from gapless.views.lanes import LABELS

MOST_LINKS = 7  # of the longest chain that are named


def op_name(run: Schedule, op: int) -> str:
    """Give the name of an operation; where it has none, what its call is."""
    return wording.visible(run.program.name_of(run.row_of(op))) or call_text(run, run.row_of(op))


def call_text(run: Schedule, row: int) -> str:
    """Say what a call is, without its number."""
    return wording.visible(run.program.brief(row))


def link_name(run: Schedule, link: Link) -> str:
    """Say what a link of the longest chain is."""
    return op_name(run, link.op) if link.op >= 0 else call_text(run, link.call)


def engine_name(run: Schedule, engine: int) -> str:
    """Say what an engine is called; one copy engine for both directions is neither H2D nor D2H."""
    if engine == Engine.H2D and run.machine.shared_copy_engine:
        return "copy"
    return LABELS.get(Engine(engine), "host" if engine == Engine.HOST else "graph")


def engine_label(run: Schedule, engine: Engine, device: int, several: bool) -> str:
    """Say what an engine is called; of several devices also whose it is."""
    return engine_name(run, engine) + (f".{device}" if several else "")


def longest_chain(run: Schedule) -> str:
    """Say what makes the run as long as it is: the chain's links, and what its time goes to."""
    links = [link for link in chain(run) if link.end > link.start]
    times: dict[str, int] = {}
    engine = run.engine.tolist()
    for link in links:
        what = engine_name(run, engine[link.op]) if link.op >= 0 else "host"
        times[what] = times.get(what, 0) + link.end - link.start
    between = run.makespan - sum(times.values())
    if between > run.makespan // 100:
        times["between"] = between
    left_out = len(links) > MOST_LINKS
    named = [*links[: MOST_LINKS - 3], *links[-2:]] if left_out else links
    names = [link_name(run, link) for link in named]
    if left_out:
        names.insert(MOST_LINKS - 3, "...")
    parts = ", ".join(f"{wording.duration(time / 1e9)} {what}" for what, time in times.items())
    return f"Longest chain: {', '.join(names)}. In it: {parts}."


def why(run: Schedule, gap: Gap, lines: Sequence[int] | NDArray[np.int32] = ()) -> str:
    """Say in a sentence what ended a gap."""
    bound, by, call = gap.cause
    if gap.op < 0:
        return "nothing more to do"
    op = op_name(run, gap.op)
    if call == gap.op and by < 0:
        return f"{op} waits for its own call" + (f" (line {lines[call]})" if len(lines) else "")
    if call >= 0:
        return f"{op} is issued late: the host {_held(run, gap, lines)}"
    if bound == Bound.NONE or by < 0:
        return f"{op} takes time to reach the engine"
    if bound == Bound.STORE:
        return f"{op} waits for a value in memory: {call_text(run, by)}"
    other = op_name(run, by)
    stream, its = (run.program.streams[_stream(run, number)].name for number in (gap.op, by))
    return f"{op} waits for {other}" + {
        Bound.STREAM: f", before it in stream {stream}",
        Bound.EVENT: f" (stream {its}), by an event",
        Bound.FENCE: f" (stream {its}): the default stream's fence",
        Bound.GRAPH: ", before it in the graph",
        Bound.FIRST_USE: ": a first use or an allocation between them waits for all work",
        Bound.COPY_ENGINE: ", which has the copy engine",
        Bound.SM: ", which fills the SMs",
        Bound.GRID_SLOT: ": no more kernels can be resident",
        Bound.QUEUE: f" (stream {its}): both streams share a hardware queue",
        Bound.WORKER: ", which has the thread for host functions",
        Bound.VALUE: f" (stream {its}), by a value in memory",
        Bound.POOL: f" (stream {its}): the pool is at its limit and hands out the memory that this frees",
    }.get(bound, "")


def _held(run: Schedule, gap: Gap, lines: Sequence[int] | NDArray[np.int32]) -> str:
    """Say what held the host thread."""
    bound, by, call = gap.cause
    place = f" (line {lines[call]})" if len(lines) else ""
    held = call_text(run, call) + place
    if bound == Bound.HOST or by < 0:
        return f"works{place}" if run.program.rows.call[call] == CallKind.HOST_WORK else f"is busy with {held}"
    if bound in OF_CALLS:
        what = "a message" if bound == Bound.MESSAGE else "the driver's lock"
        return f"waits in {held} for {what}: {call_text(run, by)}"
    if by == call or bound == Bound.STAGING:
        return f"is held by {held} until the copy is done" if by == call else f"waits in {held} for a staging slot"
    other = op_name(run, by)
    return f"waits in {held} for {'room in the launch queue: ' if bound == Bound.LAUNCH_QUEUE else ''}{other}"


def _stream(run: Schedule, op: int) -> int:
    rows = len(run.program)
    return int(run.program.rows.stream[op if op < rows else int(run.node_launch[op - rows])])
