"""One played program as the page gets it: the drawing, figures, reasons, races, answers and expectations.

Everything is worked out here; the page only shows it. Times are ns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from gapless.lab.answers import MOST_TOLD, answers, failed, ns
from gapless.lab.asked import NAME, Asked, loop_of, tape_of
from gapless.model.bounds import lower_bounds
from gapless.model.chunk_loop import ChunkLoop
from gapless.model.errors import DeadlockError, GaplessError
from gapless.model.gaps import Causes, Gap, alike, gaps, held_up
from gapless.model.kinds import Bound, CallKind, Engine, OpKind
from gapless.model.schedule import Schedule
from gapless.model.simulation import Simulation, simulate
from gapless.model.tape import TapeError
from gapless.model.unordered import why as why_unordered
from gapless.timeline.simulated import from_schedule
from gapless.views import wording
from gapless.views.links import of_schedule
from gapless.views.outcome import RACE_WORDS, expectations_held, races_found
from gapless.views.races import alike as alike_races
from gapless.views.races import said
from gapless.views.reasons import call_text, engine_label, longest_chain, op_name, why
from gapless.views.scene import scene_of

MOST_OPS = 2_000  # that are told one by one, to be stepped through

_HINT = re.compile(r"; did you mean '([^']+)'\?$")
_BOUND_WORDS = {
    "h2d": "all copies to the device, and what must come before and after",
    "d2h": "all copies to the host, and what must come before and after",
    "peer": "all copies between devices, and what must come before and after",
    "sm": "all kernels, and what must come before and after",
    "stream": "the longest stream",
    "issue": "the host's calls and its own work",
}


def play(asked: Asked) -> dict[str, Any]:
    """Play what the page asks for. What is wrong with it is an answer as well: ``error``."""
    loop = None
    try:
        if asked.loop is not None:
            loop = loop_of(asked.loop)
        text = loop.tape() if loop is not None else asked.tape or ""
        played = simulate(tape_of(text))
        return {"tape": text, **told(played, loop)}
    except TapeError as problem:
        return {"error": _unreadable(problem)}
    except DeadlockError as problem:
        lines = [int(played_line) for played_line in re.findall(r"\(line (\d+),", str(problem))]
        return {"error": {"said": str(problem), "lines": lines}}
    except GaplessError as problem:
        return {"error": {"said": str(problem)}}


def told(played: Simulation, loop: ChunkLoop | None = None) -> dict[str, Any]:
    """Tell all there is to tell about a run."""
    run = played.schedule
    return {
        "title": f"{loop.title()}." if loop is not None else "",
        "machine": run.machine.name,
        "wall": ns(run.makespan),
        "scene": _scene(played),
        "engines": _engines(run),
        "numbers": _numbers_of_loop(loop, run) if loop is not None else _numbers(run),
        "ops": list(_ops(played)),
        "more_ops": bool(_served(run)[MOST_OPS:].size),
        "idle": list(_idle(played)),
        "issued": _issued(run),
        "reasons": (reasons := list(_reasons(played)))[:MOST_TOLD],
        "more_reasons": len(reasons[MOST_TOLD:]),
        "chain": longest_chain(run) if run.makespan else "",
        "races": list(_races(played)),
        "races_found": races_found(played),
        "expected": [
            {"line": outcome.line, "holds": outcome.holds, "said": str(expectation), "got": outcome.got}
            for expectation, outcome in zip(played.expectations, played.outcomes, strict=True)
        ],
        "expectations_held": expectations_held(played),
        "answers": list(answers(played)),
        "failed": list(failed(played)),
    }


def _unreadable(problem: TapeError) -> dict[str, Any]:
    """Tell where a tape cannot be read, and what may have been meant."""
    said = str(problem).removeprefix(f"{NAME}:{problem.line}:{problem.column}: ")
    hint = _HINT.search(said)
    at_end = problem.found == "the end of the line"
    return {
        "said": said,
        "line": problem.line,
        "column": problem.column,
        "length": 0 if at_end else len(problem.found),
        "hint": hint[1] if hint and not at_end else "",
    }


# Figures


def _numbers_of_loop(loop: ChunkLoop, run: Schedule) -> list[dict[str, Any]]:
    """Give the wall time beside 3N and N+2, and the closed form where it fits."""
    serial, pipelined, this = loop.forms()
    fits = this.value is not None and abs(run.makespan - this.value) <= 1000
    about = this.about
    if this.value is not None and not fits:
        about = f"the closed form of the teaching machine: {wording.duration(this.value / 1e9)} ({this.about})"
    stage = "one stage" if len(set(loop.stages())) == 1 else "the longest stage"
    pace = f"{stage} of each chunk, plus filling and draining"
    return [
        _number("serial", serial.reads, serial.value or 0, f"one stage after another, N = {loop.chunks} chunks"),
        _number("this loop", this.reads if fits else "", run.makespan, about),
        _number("pipelined", pipelined.reads, pipelined.value or 0, f"all engines busy at once: {pace}"),
    ]


def _numbers(run: Schedule) -> list[dict[str, Any]]:
    """Give the wall time beside the sum of all operations and the time that no schedule of them can beat."""
    ops = _served(run)
    whole = int((run.end[ops] - run.start[ops]).sum())
    bounds = lower_bounds(run.program, run.machine)
    name = max(bounds, key=lambda one: bounds[one])
    return [
        _number("one by one", "sum", whole, "all operations, one after another"),
        _number("this tape", "", run.makespan, ""),
        _number("at best", "bound", bounds[name], _BOUND_WORDS[name]),
    ]


def _number(name: str, reads: str, value: int, about: str) -> dict[str, Any]:
    return {"name": name, "reads": reads, "time": ns(value), "text": wording.duration(value / 1e9), "about": about}


# What happened, and why


def _scene(played: Simulation) -> dict[str, Any]:
    """Give what the page draws, from time 0 of the host threads on."""
    run = played.schedule
    links = of_schedule(run, played.lines)
    return scene_of(from_schedule(run), title="The run", window=(0, max(1, -(-run.makespan // 1000))), links=links)


def _engines(run: Schedule) -> list[str]:
    """Give the engines that are drawn, as they are called."""
    several = _several(run)
    devices = sorted({info.device for info in run.program.streams}) or [0]
    used = set(run.engine[_served(run)].tolist())
    return [
        engine_label(run, engine, device, several)
        for device in devices
        for engine in (Engine.H2D, Engine.SM, Engine.D2H, Engine.PEER)
        if (engine is not Engine.PEER or engine in used)
        and not (engine is Engine.D2H and run.machine.shared_copy_engine)
    ]


def _issued(run: Schedule) -> list[dict[str, Any]]:
    """Give when the first host thread issued operations in no time, which no interval shows: how many at once."""
    rows = run.program.rows
    quick = (
        (rows.op >= 0)
        & (rows.op <= OpKind.HOST_FUNCTION)
        & (rows.thread == 0)
        & (run.begin >= 0)
        & (run.returned == run.begin)
    )
    times, counts = np.unique(run.begin[quick], return_counts=True)
    told = zip(times[:MOST_OPS].tolist(), counts.tolist(), strict=False)
    return [{"time": ns(time), "count": count} for time, count in told]


def _idle(played: Simulation) -> Iterator[dict[str, Any]]:
    """Give the gaps of each engine: why in a sentence, and in a word or two for the picture."""
    run = played.schedule
    several = _several(run)
    for gap in gaps(run)[:MOST_OPS]:
        yield {
            "engine": engine_label(run, gap.engine, gap.device, several),
            "start": ns(gap.start),
            "end": ns(gap.end),
            "why": _why(run, gap, played),
            "words": _words(run, gap),
        }


_WORDS = {
    Bound.STREAM: ["stream order", "order"],
    Bound.EVENT: ["event wait", "event"],
    Bound.FENCE: ["default stream", "fence"],
    Bound.GRAPH: ["order in the graph", "graph"],
    Bound.FIRST_USE: ["first use"],
    Bound.COPY_ENGINE: ["copy engine taken", "engine"],
    Bound.SM: ["SMs full"],
    Bound.GRID_SLOT: ["no kernel slot"],
    Bound.QUEUE: ["shared queue", "queue"],
    Bound.WORKER: ["host function thread"],
    Bound.POOL: ["pool at its limit", "pool"],
}


def _words(run: Schedule, gap: Gap) -> list[str]:
    """Say in a word or two what an engine waits for: the longest first, of which the picture takes what fits."""
    bound, by, call = gap.cause
    if gap.op < 0:
        return ["nothing more to do", "nothing more", "nothing"]
    if call < 0:
        return _WORDS.get(bound, [])
    kind = run.program.rows.call[call]
    if kind == CallKind.HOST_WORK:
        return ["host works", "host"]
    if bound == Bound.HOST or by < 0:
        return ["host is issuing", "host"]
    if by == call:
        return ["host held", "host"]
    return [f"host waits in {call_text(run, call)}", "host waits", "host"]


def _served(run: Schedule) -> np.ndarray[Any, Any]:
    """Give the operations that took time on an engine, in order of start."""
    ops = np.flatnonzero((run.engine >= 0) & (run.start >= 0) & (run.end > run.start))
    return ops[np.argsort(run.start[ops], kind="stable")]


def _ops(played: Simulation) -> Iterator[dict[str, Any]]:
    run, causes = played.schedule, Causes(played.schedule)
    several, rows = _several(run), len(run.program)
    for op in _served(run)[:MOST_OPS].tolist():
        issued_by = op if op < rows else int(run.node_launch[op - rows])
        info = run.program.streams[int(run.program.rows.stream[issued_by])]
        gap = Gap(info.device, Engine(int(run.engine[op])), 0, 0, op, causes.of(op))
        yield {
            "name": op_name(run, op),
            "line": played.line_of(run.row_of(op)),
            "stream": info.name,
            "engine": engine_label(run, gap.engine, info.device, several),
            "start": ns(int(run.start[op])),
            "end": ns(int(run.end[op])),
            "why": _why(run, gap, played),
        }


def _reasons(played: Simulation) -> Iterator[dict[str, Any]]:
    """Say for each engine how long it waits and for what, the longest first; then what else is held up."""
    run, several = played.schedule, _several(played.schedule)
    for group in alike([*gaps(run), *held_up(run)], run, played.lines):
        gap = group.first
        label = engine_label(run, gap.engine, gap.device, several) if gap.engine is not Engine.NONE else ""
        yield {
            "engine": label,
            "time": ns(group.time),
            "text": wording.duration(group.time / 1e9) if group.time else "",
            "count": group.number,
            "why": _why(run, gap, played),
            "op": op_name(run, gap.op) if gap.op >= 0 else "",
            "idle": [ns(gap.start), ns(gap.end)],
            "line": played.line_of(run.row_of(gap.op)) if gap.op >= 0 else 0,
            "by": _line_of_cause(played, gap),
        }


def _line_of_cause(played: Simulation, gap: Gap) -> int:
    """Give the line of what a gap waited for: the call that held the host, else the operation."""
    if gap.op < 0 or (gap.cause.call < 0 and gap.cause.by < 0):
        return 0
    run = played.schedule
    return played.line_of(gap.cause.call if gap.cause.call >= 0 else run.row_of(gap.cause.by))


def _why(run: Schedule, gap: Gap, played: Simulation) -> str:
    return wording.shorten_words(why(run, gap, played.lines), 60)


def _races(played: Simulation) -> Iterator[dict[str, Any]]:
    for group in alike_races(played)[:MOST_TOLD]:
        race = group[0]
        yield {
            "kind": RACE_WORDS[race.kind],
            "bad": race.kind.word in ("error", "unallocated"),
            "said": said(played, race),
            "count": len(group),
            "why": why_unordered(played.schedule, race),
            "lines": [played.line_of(access.row) for access in (race.first, race.second)],
            "ops": [op_name(played.schedule, access.row) for access in (race.first, race.second)],
            "do": race.repair.text if not race.repair.add else "",
            "add": [
                {
                    "statement": add.statement,
                    "place": "after" if add.after else "before",
                    "line": played.line_of(add.row),
                }
                for add in race.repair.add
            ],
        }


def _several(run: Schedule) -> bool:
    return len({info.device for info in run.program.streams}) > 1
