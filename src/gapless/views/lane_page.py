"""A Timeline, a Schedule, a played tape or a pipeline's report as a page: a few facts, and the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from gapless.model.schedule import Schedule
from gapless.model.simulation import Simulation
from gapless.runtime.report import PipelineReport
from gapless.timeline.simulated import from_schedule
from gapless.timeline.timeline import Timeline
from gapless.views import timeline as timeline_view
from gapless.views import wording
from gapless.views.html import LANES, bundle, data, page, tag
from gapless.views.links import of_schedule
from gapless.views.notebook import framed
from gapless.views.outcome import expectations_held, races_found
from gapless.views.reasons import longest_chain
from gapless.views.scene import Scene, scene_of

Shown: TypeAlias = Timeline | Schedule | Simulation | PipelineReport

# px that a lane of one track takes, each track of several, and the rest of the page.
_LANE = {"findings": 13, "engines": 25, "streams": 21, "host": 21, "ranges": 17}
_TRACK = {"engines": 14, "streams": 12, "host": 12, "ranges": 13}
_GROUP, _SENTENCE, _AROUND = 18, 22, 190


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    title: str
    facts: str
    sentences: Sequence[str]
    scene: Scene

    def page(self) -> str:
        header = tag("header", tag("div", tag("h1", self.title), tag("p", self.facts, class_="facts"), class_="name"),
                     *(tag("p", sentence) for sentence in self.sentences))  # fmt: skip
        return page(
            self.title, header, tag("main", tag("div", id="lanes")), data("content", self.scene),
            styles=("lanes.css", "report.css"), script=bundle(*LANES, "lanes_page.js"),
        )  # fmt: skip

    def height(self) -> int:
        """Say how many px the page takes, about."""
        lanes = self.scene["lanes"]
        tall = sum(
            _LANE[lane["group"]] if lane["tracks"] == 1 else _TRACK[lane["group"]] * lane["tracks"] + 3
            for lane in lanes
        )
        groups = len({lane["group"] for lane in lanes})
        return tall + _GROUP * groups + _SENTENCE * len(self.sentences) + _AROUND


def to_html(shown: Shown) -> str:
    """Give the page."""
    return _told(shown).page()


def frame(shown: Shown) -> str:
    """Give the page in a frame for a notebook; empty where it is too long for one."""
    told = _told(shown)
    return framed(told.page(), title=told.title, height=told.height())


def _told(shown: Shown) -> _Told:
    if isinstance(shown, PipelineReport):
        return _pipeline(shown)
    if isinstance(shown, Timeline):
        title = Path(timeline_view.name_of(shown)).name
        facts = "; ".join(timeline_view.facts(shown))
        return _Told(title=title, facts=facts, sentences=(), scene=scene_of(shown, title=title))
    return _run(shown)


def _run(shown: Schedule | Simulation) -> _Told:
    run = shown.schedule if isinstance(shown, Simulation) else shown
    title, sentences, lines = "schedule", [longest_chain(run)], ()
    if isinstance(shown, Simulation):
        title, lines = Path(shown.name).name or shown.name, shown.lines
        sentences += [
            f"{said[:1].upper()}{said[1:]}." for said in (races_found(shown), expectations_held(shown)) if said
        ]
    timeline = from_schedule(run, source=title)
    scene = scene_of(timeline, title=title, links=of_schedule(run, lines), window=(0, max(run.makespan // 1000, 1)))
    facts = f"machine {run.machine.name}, {wording.duration(run.makespan / 1e9)}"
    return _Told(title=title, facts=facts, sentences=sentences, scene=scene)


def _pipeline(report: PipelineReport) -> _Told:
    percent = report.percent
    sentences = [] if percent is None else [f"{percent:.1f}% of the two-way link limit."]
    return _Told(
        title=f"pipeline on {report.device}",
        facts=f"{report.rows:,} rows in {report.chunks:,} chunks, {wording.duration(report.wall_ns / 1e6)}",
        sentences=[*sentences, report.binding, *report.notes],
        scene=scene_of(report.timeline),
    )
