"""The benchmark of what recording costs tells passes that had their CPU core to themselves from the others."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables_of_recording", BENCHMARKS / "recording" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(tool: str, *stretches: list[list[float]], run: int = 1, program: str = "launches") -> dict[str, Any]:
    return {"run": run, "tool": tool, "turn": 0, "passes": {program: list(stretches)}}


def test_a_core_is_judged_by_the_quickest_of_all_tools(tables: ModuleType):
    """No pass of the recorder had a core like the untraced program's quickest: none had its core to itself."""
    alone = row("untraced", [[3000, 13_500]] * 6 + [[3500, 23_600]] * 6)
    recorded = row("gapless", [[5600, 23_600]] * 12)
    found = tables.costs_of([recorded, alone])["launches"]
    assert found["untraced"] == (3250, 3000, 0.5)
    assert found["gapless"] == (5600, None, 0)


def test_a_core_may_take_a_quarter_longer(tables: ModuleType):
    stretch = [[3000.0, 10_000], *[[3100.0, 12_500]] * 5, *[[9000.0, 12_501]] * 6]
    assert tables.costs_of([row("untraced", stretch)])["launches"]["untraced"] == (6050, 3100, 0.5)


def test_a_stretch_with_few_passes_on_a_core_of_their_own_gives_no_median_of_them(tables: ModuleType):
    """What they are is in the share all the same."""
    found = tables.costs_of([
        row("untraced", [[4000, 10_000]] * 5 + [[6000, 17_500]] * 5, [[1000, 10_000]] * 4 + [[6000, 17_500]] * 6),
        row("untraced", [[4400, 10_000]] * 10),
    ])["launches"]["untraced"]  # fmt: skip
    assert found.all == 5000
    assert found.own == 4200
    assert found.share == pytest.approx(19 / 30)


def test_each_run_is_judged_by_its_own_quickest_core(tables: ModuleType):
    """Another machine's cores are slower: its passes had them to themselves. A program that failed left nothing."""
    rows = [
        row("untraced", run=1),
        row("untraced", [[3000, 10_000]] * 5, run=1),
        row("untraced", [[5000, 27_000]] * 5, run=2),
    ]
    assert tables.costs_of(rows)["launches"]["untraced"] == (4000, 4000, 1)


def test_the_tables_put_each_tool_beside_untraced(
    tables: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Passes in which lines are asked for are a tool of their own; a program without untraced passes stands alone."""
    rows = [
        row("gapless", [[5000, 10_000]] * 5 + [[7000, 17_500]] * 6),
        row("gapless", [[8000, 17_500]] * 5, program="launches, at first"),
        row("untraced", [[4000, 10_000]] * 6 + [[5000, 17_500]] * 5),
        {**row("gapless", [[8.5e6, 10_000]] * 5, program="training"), "bytes_a_record": 126.0, "lost": 3},
    ]
    (tmp_path / "costs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tables.show(tmp_path)
    said = capsys.readouterr().out.splitlines()
    assert said[3:] == [
        "| launches | untraced | 4.00 us |  | 4.00 us |  | 55% |",
        "| launches | gapless | 7.00 us | +3.00 us, +75.0% | 5.00 us | +1.00 us, +25.0% | 45% |",
        "| launches | gapless, at first | 8.00 us | +4.00 us, +100.0% | none |  | 0% |",
        "| training | gapless | 8.500 ms |  | 8.500 ms |  | 100% |",
        "the core's piece of arithmetic at its quickest: 10.0 us; a core of one's own: at most 1.25 times that",
        "gapless: 126.0 bytes a record, 3 records lost",
    ]


def test_a_tool_that_is_none_is_refused(tmp_path: Path):
    words = [
        sys.executable,
        str(BENCHMARKS / "recording.py"),
        "overhead",
        "--out",
        str(tmp_path),
        "--tools",
        "gapless,nsys",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--tools: there is no 'nsys'; it takes gapless, gapless --no-lines, torch.profiler" in done.stderr
