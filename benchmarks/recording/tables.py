"""The tables of docs/record.md, from what benchmarks/recording.py left: recordings beside torch.profiler's traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import gapless
from gapless.model.kinds import OpKind
from gapless.timeline.timeline import Timeline

# A pass had the core to itself where the core's arithmetic (core_ns of loops.cu) took at most this many times what it
# took at the run's quickest: a lower clock rate adds less than that, another busy thread on the core more.
OWN = 1.25
ENOUGH = 5  # passes of a stretch that a median is taken of
TOOLS = ("gapless", "torch.profiler")
# What each mistake's program becomes when the mistake is repaired, and the repair's name.
REPAIRED = {
    "serial": ("streams4", "streams=4"), "legacy": ("streams4", "streams=4"), "trap": ("trap_nb", "off-default-stream"),
    "pageable": ("streams4", "pin"), "malloc": ("streams4", "pool"), "devsync": ("streams4", "no-sync"),
    "streamsync": ("streams4", "no-sync"), "eventsync": ("streams4", "no-sync"),
}  # fmt: skip


def show(out: Path) -> None:
    """Print every table that there are files for."""
    show_costs(out)
    if (out / "beside.jsonl").exists():
        turns = _lines(out / "beside.jsonl")
        _same(out, turns)
        _durations(out, turns)
        _predictions(out, turns)
    if (out / "samples.jsonl").exists():
        _samples(out, [row["sample"] for row in _lines(out / "samples.jsonl")])


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Cost(NamedTuple):
    """What a program's passes take under a tool, in ns: medians of its stretches' medians."""

    all: float
    own: float | None  # of the passes that had the core to themselves; None where no stretch has enough of these
    share: float  # of the passes that had the core to themselves


def show_costs(out: Path) -> None:
    """Print what recording costs, as far as there are files for it."""
    for name in ("overhead", "costs", "floor"):
        if (out / f"{name}.jsonl").exists():
            _costs(_lines(out / f"{name}.jsonl"))


def costs_of(rows: list[dict[str, Any]]) -> dict[str, dict[str, Cost]]:
    """Give each program's cost under each tool. Nobody shared the run's quickest core, whichever tool ran on it."""
    quickest = _quickest_cores(rows)
    taken: dict[str, dict[str, list[list[tuple[float, bool]]]]] = {}
    for row in rows:
        most = OWN * quickest[row["run"]]
        for name, stretches in row["passes"].items():
            program, _, when = name.partition(", ")
            tool = f"{row['tool']}, {when}" if when else row["tool"]
            mine = taken.setdefault(program, {}).setdefault(tool, [])
            mine += [[(ns, core <= most) for ns, core in stretch] for stretch in stretches if stretch]
    return {
        program: {tool: _cost(stretches) for tool, stretches in by_tool.items() if stretches}
        for program, by_tool in taken.items()
    }


def _quickest_cores(rows: list[dict[str, Any]]) -> dict[int, int]:
    """Give, by run, the ns of the core's arithmetic at its quickest."""
    cores: dict[int, list[int]] = {}
    for row in rows:
        mine = cores.setdefault(row["run"], [])
        mine += [core for stretches in row["passes"].values() for stretch in stretches for _, core in stretch]
    return {run: min(ns, default=0) for run, ns in cores.items()}


def _cost(stretches: list[list[tuple[float, bool]]]) -> Cost:
    own = [[ns for ns, mine in stretch if mine] for stretch in stretches]
    medians = [median(ns) for ns in own if len(ns) >= ENOUGH]
    return Cost(
        all=median(median(ns for ns, _ in stretch) for stretch in stretches),
        own=median(medians) if medians else None,
        share=sum(map(len, own)) / sum(map(len, stretches)),
    )


def _costs(rows: list[dict[str, Any]]) -> None:
    print("\n| a launch, an operation, a step | with | all passes | more | core of their own | more | share of these |")
    print("|---|---|---|---|---|---|---|")
    for program, by_tool in costs_of(rows).items():
        alone = by_tool.get("untraced")
        for tool in sorted(by_tool, key=lambda tool: (tool != "untraced", tool)):
            cost = by_tool[tool]
            base = alone if tool != "untraced" else None
            cells = [_beside(cost.all, base and base.all), _beside(cost.own, base and base.own), f"{cost.share:.0%}"]
            print(f"| {program} | {tool} | {' | '.join(cells)} |")
    cores = ", ".join(f"{ns / 1e3:.1f} us" for ns in _quickest_cores(rows).values())
    print(f"the core's piece of arithmetic at its quickest: {cores}; a core of one's own: at most {OWN} times that")
    counted = [row for row in rows if "lost" in row]
    for tool in sorted({row["tool"] for row in counted}):
        mine = [row for row in counted if row["tool"] == tool]
        size = median(row["bytes_a_record"] for row in mine)
        print(f"{tool}: {size:.1f} bytes a record, {sum(row['lost'] for row in mine)} records lost")


def _beside(ns: float | None, alone: float | None) -> str:
    """Fill two cells: the time, and how much more than untraced it is where both are known."""
    if ns is None:
        return "none | "
    more = "" if alone is None else f"{_time(ns - alone, '+')}, {ns / alone - 1:+z.1%}"
    return f"{_time(ns)} | {more}"


def _time(ns: float, sign: str = "") -> str:
    return f"{ns / 1e3:{sign}z.2f} us" if abs(ns) < 1e5 else f"{ns / 1e6:{sign}z.3f} ms"


def _issued(timeline: Timeline) -> list[tuple[int, int, int]]:
    """Give (kind, stream by first use, bytes) of all operations in the order in which they were issued."""
    ops = timeline.ops
    order = np.argsort(ops.correlation, kind="stable")
    streams: dict[int, int] = {}
    return [(int(ops.kind[i]), streams.setdefault(int(ops.stream[i]), len(streams)), int(ops.bytes[i])) for i in order]


def _by_variant(turns: list[dict[str, Any]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for turn in turns:
        found.setdefault(turn["variant"], {tool: [] for tool in TOOLS})[turn["tool"]].append(turn)
    return found


def _same(out: Path, turns: list[dict[str, Any]]) -> None:
    print("\n| variant | operations | kind, stream, order, bytes |\n|---|---|---|")
    for variant in _by_variant(turns):
        files = [out / turn["file"] for turn in turns if turn["variant"] == variant]
        files += [path for path in [out / f"{variant}.gapless"] if path.exists()]
        issued = [_issued(gapless.load(path)) for path in files]
        same = "the same" if all(ops == issued[0] for ops in issued) else "DIFFER"
        print(f"| `{variant}` | {len(issued[0])} in each of {len(files)} files | {same} |")


def _durations(out: Path, turns: list[dict[str, Any]]) -> None:
    """Print the medians of a kind's durations: the median of all turns, and the least and greatest of a turn."""
    print("\n| variant | what | recorded | under torch.profiler | differ by |\n|---|---|---|---|---|")
    for variant, by_tool in _by_variant(turns).items():
        medians = {
            tool: [_medians(gapless.load(out / turn["file"])) for turn in mine] for tool, mine in by_tool.items()
        }
        for kind in medians["gapless"][0]:
            ns = [[of_turn[kind] for of_turn in medians[tool]] for tool in TOOLS]
            print(f"| `{variant}` | {kind} | {' | '.join(_spread(mine, 1e3, 'us') for mine in ns)} | {_more(*ns)} |")
        more = [[median(turn["ns"]) / median(turn["untraced_ns"]) for turn in by_tool[tool]] for tool in TOOLS]
        cells = " | ".join(_spread(mine, 1, "times untraced", places=3) for mine in more)
        print(f"| `{variant}` | the loop | {cells} | {_more(*more)} |")


def _medians(timeline: Timeline) -> dict[str, float]:
    ops = timeline.ops
    return {
        kind.name: float(np.median((ops.end - ops.start)[ops.kind == kind]))
        for kind in (OpKind.H2D, OpKind.KERNEL, OpKind.D2H)
        if (ops.kind == kind).any()
    }


def _spread(values: list[float], divisor: float, unit: str, *, places: int = 1) -> str:
    low, middle, high = (f"{value / divisor:.{places}f}" for value in (min(values), median(values), max(values)))
    return f"{middle} {unit} ({low}..{high}, n={len(values)})"


def _more(mine: list[float], other: list[float]) -> str:
    return f"{median(mine) / median(other) - 1:+.1%}"


def _predictions(out: Path, turns: list[dict[str, Any]]) -> None:
    """Print gains that were predicted from each turn's file beside the gain that was measured around those turns."""
    print("\n| mistake, repair | measured | from recordings | from torch's traces |\n|---|---|---|---|")
    by_variant = _by_variant(turns)
    errors: dict[str, list[float]] = {tool: [] for tool in TOOLS}
    wanders: dict[str, list[float]] = {tool: [] for tool in TOOLS}
    for variant, (repaired, repair) in REPAIRED.items():
        walls = {name: [median(turn["untraced_ns"]) for tool in TOOLS for turn in by_variant[name][tool]]
                 for name in (variant, repaired)}  # fmt: skip
        measured = median(walls[variant]) / median(walls[repaired])
        cells: list[str] = []
        for tool in TOOLS:
            gains = [_gain(out / turn["file"], repair) for turn in by_variant[variant][tool]]
            errors[tool].append(abs(median(gains) / measured - 1))
            wanders[tool].append((max(gains) - min(gains)) / median(gains))
            cells.append(_spread(gains, 1, "x", places=2))
        print(f"| `{variant}`, `{repair}` | {measured:.2f} x | {' | '.join(cells)} |")
    for tool, found in errors.items():
        print(f"{tool}: median error of {len(found)} repairs {median(found):.1%} ({min(found):.1%}..{max(found):.1%}); "
              f"from turn to turn a prediction wanders by {median(wanders[tool]):.1%}")  # fmt: skip


def _gain(path: Path, repair: str) -> float:
    prediction = gapless.explain(path, apply=[repair]).to_dict()["prediction"]
    return float(prediction["speedup"]) if prediction and prediction["speedup"] else 1.0


def _samples(out: Path, names: list[str]) -> None:
    print("\n| sample | window | what it says first | where |\n|---|---|---|---|")
    for name in names:
        report = gapless.explain(out / f"{name}.gapless").to_dict()
        first = report["findings"][0] if report["findings"] else None
        where = ", ".join(_places(first)) if first else ""
        print(f"| {name} | {report['wall_ms']:.1f} ms | {first['cause'] if first else 'nothing'} | {where} |")


def _places(finding: dict[str, Any]) -> Iterator[str]:
    for place in finding["where"][:3]:
        if place.get("file"):
            yield f"{Path(place['file']).name}:{place['line']}"
