"""How good are predictions? Recorded programs with a fault, what their repair was predicted to gain, and what it did.

    python benchmarks/predictions.py [--only TEXT] [--sizes FOLDER] [--markdown]

Two sets. The pairs of ``groundtruth``: timelines of programs with a fault, and untraced
wall times of these and of the repaired programs, on one H200. And nine programs of our own (``benchmarks/programs``):
their predictions were written down before the repaired programs were measured, on another H200 than the one that
recorded them, with a host about 1.6 times as fast; beside them stands what is predicted from the same timelines now.

The error of a pair is |predicted / measured - 1|, 0 inside the spread of the measured runs. "in" says whether the
measured spread meets the predicted range.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapless import explain
from gapless.diagnosis.report import Prediction, Report
from gapless.model.errors import GaplessError

HERE = Path(__file__).resolve().parent
TRUTH = HERE / "groundtruth"
OWN = HERE / "programs"
CLOSE, FAR = 0.03, 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One program, one set of repairs."""

    name: str
    repairs: tuple[str, ...]
    measured: float
    least: float  # of the measured runs
    most: float
    said: float  # predicted
    low: float
    high: float
    replay: float  # the replay error
    earlier: str = ""  # what had been predicted before measuring

    @property
    def error(self) -> float:
        """The error of the prediction."""
        return 0.0 if self.least <= self.said <= self.most else abs(self.said / self.measured - 1)

    @property
    def inside(self) -> bool:
        """Whether the predicted range meets the measured spread."""
        return self.low <= self.most and self.high >= self.least


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="programs whose name holds this")
    parser.add_argument("--sizes", type=Path, metavar="FOLDER", help="score what programs/sizes.py wrote instead")
    parser.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    options = parser.parse_args()
    sets = [("Pairs of the ground truth", ground_truth(options.only)), ("Programs of our own", own(options.only))]
    if options.sizes:
        sets = [("Loops in many sizes", sizes(options.sizes, options.only))]
    for title, rows in sets:
        known = list(rows)
        if known:
            show(title, known, markdown=options.markdown)


def ground_truth(only: str) -> Iterator[Row]:
    """The pairs recorded for this project."""
    walls = json.loads((TRUTH / "walls.json").read_text())
    for pair in json.loads((TRUTH / "pairs.json").read_text()):
        if only in pair["before"]:
            report = predicted(TRUTH / f"{pair['before']}.json.gz", pair["repairs"])
            yield row(pair["before"], pair["repairs"], walls[pair["before"]], walls[pair["after"]], report)


def own(only: str) -> Iterator[Row]:
    """The programs recorded in this repository."""
    walls = json.loads((OWN / "walls.json").read_text())
    for name, earlier in json.loads((OWN / "predicted.json").read_text()).items():
        if only in name:
            report = predicted(OWN / "recorded" / f"{name}.before.json.gz", earlier["repairs"])
            said = f"{earlier['speedup']:.3f} ({earlier['low']:.2f} to {earlier['high']:.2f})"
            yield row(name, earlier["repairs"], walls[name]["before"], walls[name]["after"], report, said)


def sizes(folder: Path, only: str) -> Iterator[Row]:
    """Loops that ``programs/sizes.py`` recorded: each variant against those that a repair makes of it."""
    steps = (("serial", "streams=2", "two"), ("serial", "streams=4", "four"), ("two", "streams=4", "four"),
             ("sync", "no-sync", "four"))  # fmt: skip
    for name, walls in json.loads((folder / "walls.json").read_text()).items():
        for before, repair, after in steps:
            if only in name:
                report = predicted(folder / f"{name}.{before}.json.gz", [repair])
                yield row(f"{name}.{before}", [repair], walls[before], walls[after], report)


def predicted(path: Path, repairs: list[str]) -> Report:
    """Explain a timeline with repairs applied."""
    try:
        return explain(path, apply=repairs)
    except GaplessError as problem:
        raise SystemExit(f"{path}: {problem}") from None


def row(name: str, repairs: list[str], before: Mapping[str, Any], after: Mapping[str, Any], report: Report,
        earlier: str = "") -> Row:  # fmt: skip
    """Hold a prediction against measured wall times."""
    prediction = report.prediction
    assert isinstance(prediction, Prediction)
    assert report.replay is not None
    least = before.get("wall_min_ms", before["wall_ms"]) / after.get("wall_max_ms", after["wall_ms"])
    most = before.get("wall_max_ms", before["wall_ms"]) / after.get("wall_min_ms", after["wall_ms"])
    return Row(
        name=name, repairs=tuple(repairs), measured=before["wall_ms"] / after["wall_ms"], least=least, most=most,
        said=prediction.speedup, low=prediction.low or prediction.speedup, high=prediction.high or prediction.speedup,
        replay=report.replay.error, earlier=earlier,
    )  # fmt: skip


def show(title: str, rows: list[Row], *, markdown: bool) -> None:
    """Print one table and what it comes to."""
    heads = ["program", "repairs", "measured", "predicted", "error", "in", "replay error"]
    heads += ["predicted before measuring"] if any(row.earlier for row in rows) else []
    table = [heads, *(cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in table if i < len(line)) for i in range(len(heads))]
    print(f"\n{'## ' if markdown else ''}{title}\n")
    for i, line in enumerate(table):
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        print("| " + " | ".join(padded) + " |" if markdown else "  ".join(padded).rstrip())
        if markdown and i == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    errors, replays = [row.error for row in rows], sorted(abs(row.replay) for row in rows)
    width = statistics.median((row.high - row.low) / row.said for row in rows)
    close, far = sum(e <= CLOSE for e in errors), sum(e > FAR for e in errors)
    print(
        f"\n{len(rows)} pairs: {close} within {CLOSE:.0%}, {far} beyond {FAR:.0%}, worst {max(errors):.1%}; the range "
        f"meets the measured spread in {sum(row.inside for row in rows)}, median width {width:.1%}; replay error: "
        f"median {statistics.median(replays):.2%}, worst {replays[-1]:.2%}."
    )


def cells(row: Row) -> list[str]:
    """Write one row."""
    line = [
        row.name, ", ".join(row.repairs), f"{row.measured:.3f} ({row.least:.2f} to {row.most:.2f})",
        f"{row.said:.3f} ({row.low:.2f} to {row.high:.2f})", f"{row.error:.1%}", "yes" if row.inside else "no",
        f"{row.replay:+.2%}",
    ]  # fmt: skip
    return line + ([row.earlier] if row.earlier else [])


if __name__ == "__main__":
    main()
