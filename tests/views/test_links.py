"""What a scene draws between intervals: arrows, reasons and the critical path, of played and of measured runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import gapless
from gapless.timeline.simulated import from_schedule
from gapless.views.links import MOST_SAID, Arrow, Links, of_schedule, of_work

EXAMPLES = Path(__file__).parents[2] / "examples"


def played(name: str) -> tuple[gapless.Timeline, Links]:
    shown = gapless.simulate(EXAMPLES / "tapes" / f"{name}.tape")
    return from_schedule(shown.schedule), of_schedule(shown.schedule, shown.lines)


def arrows(timeline: gapless.Timeline, links: Links, kind: Arrow) -> list[tuple[str, str]]:
    """Give where arrows of a kind lead from and to, by name."""
    targets = timeline.calls if kind is Arrow.BLOCK else timeline.ops
    return [
        (timeline.name_of(timeline.ops.name[by]), timeline.name_of(targets.name[to]))
        for arrow, source, target in links.waits
        if arrow is kind
        for by, to in zip(source.tolist(), target.tolist(), strict=True)
    ]


def test_an_event_leads_from_what_it_stands_for_to_what_waits() -> None:
    timeline, links = played("10-event-between-two-streams")
    assert arrows(timeline, links, Arrow.EVENT) == [("in", "k")]
    assert arrows(timeline, links, Arrow.FENCE) == []
    assert links.reason is not None
    kernel = [timeline.name_of(name) for name in timeline.ops.name.tolist()].index("k")
    assert links.reasons[links.reason[kernel]] == "k waits for in (stream copies), by an event"


def test_fences_and_calls_that_wait_are_drawn_as_what_they_are() -> None:
    timeline, links = played("20-accident-default-stream")
    assert arrows(timeline, links, Arrow.FENCE) == [(f"out{n}", f"flag{n}") for n in range(4)]
    assert arrows(timeline, links, Arrow.BLOCK) == [(f"flag{n}", "cudaMemcpy") for n in range(4)]


def test_the_path_of_a_played_run_is_the_model_s_chain() -> None:
    timeline, links = played("20-accident-default-stream")
    assert links.path is not None
    names = [timeline.name_of(timeline.ops.name[row]) for row in links.path.tolist() if row >= 0]
    assert names == [f"{what}{n}" for n in range(4) for what in ("in", "k", "out", "flag")]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("tapes/*.tape")), ids=lambda path: path.stem)
def test_links_of_every_example_lead_to_rows_that_are_there(path: Path) -> None:
    shown = gapless.simulate(path)
    timeline, links = from_schedule(shown.schedule), of_schedule(shown.schedule, shown.lines)
    for arrow, source, target in links.waits:
        assert ((source >= 0) & (source < len(timeline.ops))).all()
        assert (target < len(timeline.calls if arrow is Arrow.BLOCK else timeline.ops)).all()
    assert links.path is not None
    assert links.reason is not None
    assert len(links.reason) == len(timeline.ops)
    assert ((links.path < len(timeline.ops)) & (links.path >= -len(timeline.calls))).all()


def test_a_long_run_has_arrows_and_no_sentences() -> None:
    chunks = MOST_SAID // 3 + 1
    program = gapless.Program()
    streams = [program.stream(f"s{n}") for n in range(2)]
    for n in range(chunks):
        for _ in range(3):
            streams[n % 2].kernel("1us")
    run = gapless.simulate(program).schedule
    links = of_schedule(run)
    assert links.reasons == []


def test_a_measured_fence_leads_from_what_it_waits_for() -> None:
    report = gapless.explain(EXAMPLES / "timelines" / "forgotten-default-stream-copy.json.gz")
    assert report.work is not None
    links = of_work(report.work)
    fences = arrows(report.timeline, links, Arrow.FENCE)
    assert len(fences) == 64
    assert all(by.startswith("Memcpy DtoH") and to.startswith("Memcpy HtoD") for by, to in fences)
    assert len(arrows(report.timeline, links, Arrow.BLOCK)) == 65
    assert links.reason is not None
    said = [links.reasons[row] for row in links.reason.tolist() if row >= 0]
    assert said.count("it waited for the legacy default stream's fence") == 64
