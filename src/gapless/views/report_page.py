"""A Report as one page that opens anywhere: what binds, lanes, findings with their evidence, measured and repaired.

The page's text is written here and stands without any script; ``web/report.js`` puts the lanes into it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gapless.diagnosis.causes import CAUSES
from gapless.diagnosis.critical import critical_path, path_times
from gapless.diagnosis.report import Finding, Prediction, Replayed, Report
from gapless.model.errors import GaplessError
from gapless.timeline.simulated import from_schedule
from gapless.timeline.sinks import files
from gapless.timeline.timeline import Timeline
from gapless.views import telling, wording
from gapless.views.html import LANES, Markup, bundle, data, page, tag, text
from gapless.views.lanes import LABELS, lanes_of
from gapless.views.links import of_schedule, of_work
from gapless.views.notebook import framed
from gapless.views.scene import Highlight, Scene, scene_of

SCRIPT = (*LANES, "report.js")
STYLES = ("lanes.css", "report.css")


def check_name(path: str | Path, *, never: Iterable[Path] = ()) -> Path:
    """Raise GaplessError for a file name that does not end in ``.html``, and as ``sinks.files.check`` does."""
    target = Path(path)
    if target.suffix not in (".html", ".htm") and not files.is_open_ended(target):
        raise GaplessError(f"{path} is no name for a page. Its name ends in .html, such as report.html.")
    files.check(target, never=never)
    return target


def write(report: Report, path: str | Path, *, never: Iterable[Path] = ()) -> Path:
    """Write a report as a page. Raises GaplessError as ``check_name`` does, and where it cannot be written."""
    target = check_name(path, never=never)
    files.write(target, [to_html(report).encode()], never=never)
    return target


def frame(report: Report) -> str:
    """Give the page in a frame for a notebook; empty where it is too long for one."""
    return framed(to_html(report), title=Path(report.source).name)


def to_html(report: Report) -> str:
    """Give the report as a page."""
    name = Path(report.source).name or report.source or "timeline"
    scene = _scene(report, name)
    repairs = [_Repair(report, replayed) for replayed in _in_order(report)]
    content = {"scene": scene, "repairs": [repair.scenes for repair in repairs]}
    return page(
        f"{name}: what the engines waited for",
        _header(report, name),
        tag(
            "main",
            _lanes(report),
            _findings(report, repairs),
            _comparison(report, repairs),
            _rest(report),
            class_="page",
        ),
        data("content", content),
        styles=STYLES,
        script=bundle(*SCRIPT),
    )


def _scene(report: Report, name: str) -> Scene:
    return scene_of(
        report.timeline,
        title=f"{name} on {report.device}",
        devices=[report.device_row],
        window=report.window if report.work is not None else None,
        highlights=[Highlight(title=finding.title, spans=finding.spans) for finding in report.findings],
        links=None if report.work is None else of_work(report.work),
    )


def _in_order(report: Report) -> list[Replayed]:
    """Give the replays in the order in which the report names the repairs: what was asked for, findings, sets."""
    named = [report.prediction.repairs] if report.prediction else []
    named += [(finding.repair.name,) for finding in report.findings if finding.repair]
    places = {tuple(repairs): place for place, repairs in reversed(list(enumerate(named)))}
    return sorted(report.replays, key=lambda replayed: places.get(replayed.repairs, len(named)))


class _Repair:
    """One set of repairs: its name, what it gives, and two scenes to the same scale."""

    def __init__(self, report: Report, replayed: Replayed) -> None:
        self.name = ", ".join(replayed.repairs)
        self.repairs = replayed.repairs
        run = replayed.run
        timeline = _named(from_schedule(run.schedule))
        start, end = timeline.window()
        measured = scene_of(
            report.timeline, title="measured", devices=[report.device_row], window=replayed.window, host=False
        )
        predicted = scene_of(timeline, title=f"predicted with {self.name}", window=(start, end),
                             links=of_schedule(run.schedule), host=False)  # fmt: skip
        length = max(measured["end"], predicted["end"])
        # One scale for both; how busy a lane is counts until its own run is done, not in the blank behind it.
        self.scenes = {
            side: scene | {"end": length, "done": scene["end"]}
            for side, scene in {"measured": measured, "predicted": predicted}.items()
        }
        self.is_part = replayed.window[1] - replayed.window[0] < 0.95 * (report.window[1] - report.window[0])
        self.prediction = _prediction(report, replayed.repairs)


def _named(timeline: Timeline) -> Timeline:
    """Call the streams that a repair adds new streams, and not by the replay's numbers."""
    own = [row for row, stream in enumerate(timeline.streams) if re.fullmatch(r"new\d+", stream.name)]
    names = {row: f"new {number}" for number, row in enumerate(own, 1)}
    streams = (replace(s, name=names[row]) if row in names else s for row, s in enumerate(timeline.streams))
    return timeline.with_streams(streams)


def _prediction(report: Report, repairs: Sequence[str]) -> Prediction | None:
    """Find what a report says of a set of repairs."""
    for known in (report.prediction, report.together):
        if known is not None and tuple(known.repairs) == tuple(repairs):
            return known
    for finding in report.findings:
        if finding.repair and (finding.repair.name,) == tuple(repairs) and finding.wall_ms and finding.speedup:
            return Prediction(repairs=tuple(repairs), wall_ms=finding.wall_ms, speedup=finding.speedup,
                              low=finding.low, high=finding.high)  # fmt: skip
    return None


# Parts


def _header(report: Report, name: str) -> Markup:
    facts = tag("p", f"{report.device}, {wording.duration(report.wall_ms)}", class_="facts")
    theme = tag("button", "Dark", type="button", id="theme", aria_pressed="false", class_="theme")
    lines = [tag("p", report.headline, class_="headline")] if report.headline else []
    if report.steps:
        lines.append(tag("p", telling.step_times(report.steps), class_="facts"))
    return tag("header", tag("div", tag("h1", name), facts, theme, class_="name"), *lines, _figures(report))


def _figures(report: Report) -> Markup:
    lanes = lanes_of(report)
    if lanes is None:
        return Markup()
    rows = telling.figures(report, lanes)
    head = tag("tr", tag("th", "engine", scope="col"), *(tag("th", cell, scope="col") for cell in rows[None]))
    body = [
        tag(
            "tr",
            tag("th", LABELS[engine], scope="row", class_=LABELS[engine].lower()),
            *(tag("td", cell) for cell in rows[engine]),
        )
        for engine in lanes.busy
    ]
    both = tag(
        "tr", tag("th", "two at once", scope="row"), tag("td", wording.percent(report.overlapped)), tag("td"), tag("td")
    )
    caption = tag("caption", "The engines in this time", class_="unseen")
    return tag("table", caption, tag("thead", head), tag("tbody", *body, both), class_="figures")


def _lanes(report: Report) -> Markup:
    words = [tag("h2", "Timeline", id="timeline"), tag("div", id="lanes")]
    if report.work is not None and len(report.work.ops):
        path = critical_path(report.work)
        on_engines, host, between = path_times(report.work, path)
        times = [(LABELS[engine], time) for engine, time in on_engines.items()] + [("host", host), ("between", between)]
        whole = sum(time for _, time in times)
        if whole > 0:
            said = ", ".join(f"{what} {wording.duration(time / 1e6)}" for what, time in times if time >= whole / 1000)
            calls = int((path < 0).sum())
            along = f"{_count(len(path) - calls, 'operation')} and {_count(calls, 'call')}"
            words.append(tag("p", f"Critical path: {along}. In it: {said}.", class_="facts"))
    return tag("section", *words, class_="timeline", aria_labelledby="timeline")


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _comparison(report: Report, repairs: Sequence[_Repair]) -> Markup:
    """Measured beside predicted, one repair at a time."""
    if not repairs:
        return Markup()
    choices = [
        tag(
            "label",
            tag("input", type="radio", name="repair", value=str(number), checked=number == 0),
            text(f" {repair.name}"),
        )
        for number, repair in enumerate(repairs)
    ]
    said = [
        tag("p", _compared(report, repair), class_="facts", data_repair=str(number), hidden=number > 0)
        for number, repair in enumerate(repairs)
    ]
    return tag(
        "section",
        tag("h2", "Measured, and predicted with a repair made", id="repaired"),
        tag("fieldset", tag("legend", "Repair", class_="unseen"), *choices, class_="choices"),
        *said,
        tag("h3", "measured"), tag("div", id="measured"), tag("h3", "predicted"), tag("div", id="predicted"),
        class_="comparison", aria_labelledby="repaired",
    )  # fmt: skip


def _compared(report: Report, repair: _Repair) -> str:
    words = ["To the same scale."]
    if repair.prediction:
        words.insert(0, f"With {telling.predicted(repair.prediction)}.")
    if telling.counted_from(report) and telling.without_profiler(report):
        words.append("The prediction is of the program without the profiler.")
    if repair.is_part:
        words.append("It is made from a stretch in the middle of the run, and the measured lanes show that stretch.")
    return " ".join(words)


def _findings(report: Report, repairs: Sequence[_Repair]) -> Markup:
    if not report.findings:
        return Markup()
    numbers = {repair.repairs: number for number, repair in enumerate(repairs)}
    entries = [_finding(report, number, finding, numbers) for number, finding in enumerate(report.findings)]
    heading = tag("h2", "Findings", id="findings")
    return tag("section", heading, tag("ol", *entries), class_="findings", aria_labelledby="findings")


def _finding(report: Report, number: int, finding: Finding, repairs: dict[tuple[str, ...], int]) -> Markup:
    title = finding.title
    if finding.count > 1 and not finding.verdict and not re.search(rf"\b({finding.count}|{finding.count:,})\b", title):
        title += f" ×{finding.count:,}"
    worth = telling.worth(finding, report.wall_ms)
    parts = [tag("h3", title), tag("p", worth, class_=_look(finding))] if worth else [tag("h3", title)]
    parts += [tag("p", finding.evidence)] if finding.evidence else []
    if finding.where:
        places = [
            tag("li", tag("code", str(place)), f" ×{place.count:,}" if place.count > 1 else "")
            for place in finding.where
        ]
        parts.append(tag("ul", *places, class_="places"))
    parts += _cure(report, finding)
    buttons: list[str] = []
    if len(finding.spans):
        shown = tag("button", "Show on the timeline", type="button", data_show=str(number), aria_pressed="false")
        steps = [
            tag(
                "button",
                sign,
                type="button",
                data_step=step,
                data_of=str(number),
                aria_label=f"{words} place of finding {number + 1}",
            )
            for sign, step, words in (("‹", "-1", "Previous"), ("›", "1", "Next"))
        ]
        buttons += [shown, *steps, tag("span", "", class_="count", data_count=str(number), aria_live="polite")]
    if finding.repair and (finding.repair.name,) in repairs:
        number_of = repairs[(finding.repair.name,)]
        buttons.append(tag("button", f"Compare with {finding.repair.name}", type="button", data_compare=str(number_of)))
    if buttons:
        parts.append(tag("p", *buttons, class_="buttons"))
    parts.append(tag("details", tag("summary", f"About {finding.cause}"), *_cause(finding.cause)))
    return tag("li", *parts, class_="verdict" if finding.verdict else "fault", id=f"finding-{number + 1}")


def _look(finding: Finding) -> str:
    if finding.speedup:
        return "gain" if finding.speedup >= telling.WORTH else "facts"
    return "cost" if finding.cost_ms else "facts"


def _cure(report: Report, finding: Finding) -> list[Markup]:
    """Say what to do about it; no advice that does not pay."""
    repair = finding.repair
    if repair and telling.gains_nothing(finding, report):
        return [tag("p", f"Nothing to do: {repair.name} alone would not make this run faster.")]
    lines: list[Markup] = []
    if repair:
        advice = f" ({repair.grade})" + (f": {finding.advice}" if finding.advice else "")
        lines.append(tag("p", tag("b", repair.name), advice))
        if repair.precondition:
            lines.append(tag("p", f"If {repair.precondition.rstrip('.')}.", class_="facts"))
    elif finding.advice:
        lines.append(tag("p", finding.advice))
    if then := telling.then(finding, report):
        lines.append(tag("p", f"Then {then}.", class_="facts"))
    return lines


def _cause(slug: str) -> Iterator[Markup]:
    """Give the page about a cause: its docstring."""
    cause = CAUSES.get(slug)
    for block in inspect.cleandoc(cause.__doc__ or "" if cause else "").split("\n\n"):
        points: list[Markup] = []
        for part in re.sub(r"^(##.*)\n|\n(?!- )\s*", lambda m: f"{m[1]}\n" if m[1] else " ", block).split("\n"):
            if part.startswith("- "):
                points.append(tag("li", *_code(part.removeprefix("- "))))
            elif part.startswith("##"):
                yield tag("h4", part.lstrip("# "))
            elif part:
                yield tag("p", *_code(part))
        if points:
            yield tag("ul", *points)


def _code(words: str) -> Iterator[Markup]:
    for i, piece in enumerate(words.split("``")):
        yield tag("code", piece) if i % 2 else text(piece)


def _rest(report: Report) -> Markup:
    """What else there is to say: how sure predictions are, notes, what is not known, what was damaged."""
    parts: list[Markup] = []
    for heading, lines in (("Predictions", telling.predictions(report)), ("Also", report.notes)):
        if lines:
            parts += [tag("h2", heading), tag("ul", *(tag("li", line) for line in lines))]
    if report.unknown:
        parts += [tag("h2", "This timeline cannot tell"), tag("ul", *(
            tag("li", gap.text, *([tag("span", f" {gap.remedy}", class_="facts")] if gap.remedy else []))
            for gap in report.unknown
        ))]  # fmt: skip
    if report.lost:
        parts += [tag("h2", "Damaged, and left out"), tag("ul", *(tag("li", line) for line in report.lost))]
    parts.append(tag("p", "Made by gapless. This page holds all it shows and loads nothing.", class_="facts"))
    return tag("section", *parts, class_="rest", aria_label="What else there is to say")
