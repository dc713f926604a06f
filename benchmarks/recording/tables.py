"""The tables of docs/record.md, from what benchmarks/recording.py left: recordings beside torch.profiler's traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import gapless
from gapless.model.kinds import OpKind
from gapless.timeline.timeline import Timeline

# What each mistake's program becomes when the mistake is repaired, and the repair's name.
REPAIRED = {
    "serial": ("streams4", "streams=4"), "legacy": ("streams4", "streams=4"), "trap": ("trap_nb", "off-default-stream"),
    "pageable": ("streams4", "pin"), "malloc": ("streams4", "pool"), "devsync": ("streams4", "no-sync"),
    "streamsync": ("streams4", "no-sync"), "eventsync": ("streams4", "no-sync"),
}  # fmt: skip


def show(out: Path) -> None:
    """Print every table that there are files for."""
    if (out / "overhead.jsonl").exists():
        _overhead(_lines(out / "overhead.jsonl"))
    if (out / "floor.jsonl").exists():
        _floor(_lines(out / "floor.jsonl"))
    if (out / "durations.jsonl").exists():
        _repeated(_lines(out / "durations.jsonl"))
    if (out / "walls.jsonl").exists():
        walls = {row["variant"]: row["wall_ns"] for row in _lines(out / "walls.jsonl")}
        _agreement(out, walls)
        _predictions(out, walls)
    if (out / "samples.jsonl").exists():
        _samples(out, [row["sample"] for row in _lines(out / "samples.jsonl")])


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _overhead(rows: list[dict[str, Any]]) -> None:
    print("\n| program | untraced | with | ns more | in % |\n|---|---|---|---|---|")
    for row in rows:
        base = row["tools"]["untraced"]["median_ns"]
        for tool, taken in row["tools"].items():
            if tool != "untraced":
                more = taken["median_ns"] - base
                print(f"| {row['program']} | {base:,.0f} ns | {tool} | {more:+,.0f} | {more / base:+.2%} |")
        print("bytes a record:", row.get("bytes_a_record"))


def _floor(rows: list[dict[str, Any]]) -> None:
    print("\n| an empty kernel's launch | each turn | quietest turn | more than untraced |\n|---|---|---|---|")
    alone = min(rows[0]["turns"])
    for row in rows:
        turns, least = ", ".join(f"{ns / 1e3:.2f}" for ns in row["turns"]), min(row["turns"])
        print(f"| {row['variant']} | {turns} | {least / 1e3:.2f} us | {(least - alone) / 1e3:+.2f} us |")


def _repeated(rows: list[dict[str, Any]]) -> None:
    print("\n| variant | what | untraced | gapless | torch.profiler | (us, each turn)\n|---|---|---|---|---|")
    for variant in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == variant]
        tools = ("untraced", "gapless", "torch.profiler")
        _row(variant, "the loop", [[row["wall_ns"][tool] for row in mine] for tool in tools])
        for kind in mine[0]["gapless"]:
            _row(variant, kind, [[], *([row[tool][kind] for row in mine] for tool in tools[1:])])


def _row(variant: str, what: str, turns: list[list[float]]) -> None:
    cells = (", ".join(f"{ns / 1e3:,.1f}" for ns in of_tool) for of_tool in turns)
    print(f"| `{variant}` | {what} | {' | '.join(cells)} |")


def _issued(timeline: Timeline) -> list[tuple[int, int, int]]:
    """Give (kind, stream by first use, bytes) of all operations in the order in which they were issued."""
    ops = timeline.ops
    order = np.argsort(ops.correlation, kind="stable")
    streams: dict[int, int] = {}
    return [(int(ops.kind[i]), streams.setdefault(int(ops.stream[i]), len(streams)), int(ops.bytes[i])) for i in order]


def _durations(timeline: Timeline) -> dict[str, float]:
    ops = timeline.ops
    return {
        kind.name: float(np.median((ops.end - ops.start)[ops.kind == kind]))
        for kind in (OpKind.H2D, OpKind.KERNEL, OpKind.D2H)
        if (ops.kind == kind).any()
    }


def _agreement(out: Path, walls: dict[str, float]) -> None:
    print("\nRecordings against torch's traces:")
    print("| variant | ops | kind, stream, order, bytes | H2D | kernel | D2H |\n|---|---|---|---|---|---|")
    for variant in walls:
        mine, theirs = (gapless.load(out / f"{variant}.{end}") for end in ("gapless", "json.gz"))
        same = "the same" if _issued(mine) == _issued(theirs) else "DIFFER"
        ours, other = _durations(mine), _durations(theirs)
        cells = " | ".join(f"{ours[kind] / other[kind] - 1:+.1%}" for kind in ours)
        print(f"| `{variant}` | {len(mine.ops)}, {len(theirs.ops)} | {same} | {cells} |")


def _predictions(out: Path, walls: dict[str, float]) -> None:
    print("\n| mistake, repair | measured | from the recording | from torch's trace |\n|---|---|---|---|")
    errors: dict[str, list[float]] = {"gapless": [], "json.gz": []}
    for variant, (repaired, repair) in REPAIRED.items():
        measured = walls[variant] / walls[repaired]
        cells = []
        for end, found in errors.items():
            prediction = gapless.explain(out / f"{variant}.{end}", apply=[repair]).to_dict()["prediction"]
            speedup = prediction["speedup"] if prediction else None
            if speedup:
                found.append(abs(speedup / measured - 1))
            cells.append(f"{speedup:.2f}" if speedup else "none")
        print(f"| `{variant}`, `{repair}` | {measured:.2f} | {' | '.join(cells)} |")
    print("median error:", {end: f"{median(found):.1%}" for end, found in errors.items() if found})


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
