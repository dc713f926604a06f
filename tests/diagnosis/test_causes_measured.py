"""The measured timelines with known causes: what stands first, what is not blamed, and what healthy programs hear."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from gapless.diagnosis.explain import explain
from gapless.diagnosis.report import Report
from gapless.timeline.sources import load

VARIANTS = {
    "balanced16M": ("serial1", "legacy", "two", "four", "trap4", "trap4_nb", "pageable1", "malloc4", "devsync4"),
    "balanced1M": ("serial1", "two", "four", "trap4", "pageable4", "eventsync4", "trap_malloc4", "breadth4"),
    "kernelheavy16M": ("two", "trap4", "three"),
    "partialgpu4M": ("two", "trap4", "malloc4"),
}
TORCH = ("cpu_results.before", "item_each_step.before", "pageable_inference.before", "many_small_tensors.before",
         "nothing_to_overlap.before", "training.naive", "training.fixed")  # fmt: skip
NAMES = [
    *(f"loop/{group}.{variant}" for group, variants in VARIANTS.items() for variant in variants),
    *(f"torch/{name}" for name in TORCH),
]


@pytest.fixture(scope="module")
def report_on(measured: Path) -> Callable[[str], Report]:
    return cache(lambda name: explain(load(measured / f"{name}.json.gz")))


@pytest.fixture(scope="module")
def verdicts(measured: Path) -> dict:
    return json.loads((measured / "verdicts.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_the_true_cause_stands_first_and_nothing_innocent_is_blamed(name, report_on, verdicts):
    verdict, report = verdicts[name], report_on(name)
    assert report.findings[0].cause in verdict["top"]
    limit = verdict.get("not_over", 0.02) * report.wall_ms
    assert not [f.cause for f in report.findings if f.cause in verdict.get("not", ()) and f.cost_ms > limit]
    assert all(word in json.dumps(report.to_dict()["findings"][0]).lower() for word in verdict.get("says", ()))


@pytest.mark.parametrize("group", ["balanced16M", "balanced1M"])
@pytest.mark.parametrize("variant", ["serial1", "two", "trap4"])
def test_a_fault_costs_about_what_the_program_without_it_takes_less(group, variant, report_on):
    faulty, sound = report_on(f"loop/{group}.{variant}"), report_on(f"loop/{group}.four")
    cost = sum(f.cost_ms for f in faulty.findings if not f.verdict)
    assert cost == pytest.approx(faulty.wall_ms - sound.wall_ms, abs=0.15 * faulty.wall_ms)
