"""A Report in a terminal, as a tired engineer wants it: what binds, when the engines work, what to change, its worth.

Everything from a timeline is text and nothing but text: no markup of rich's is interpreted in it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.text import Text

from gapless.diagnosis.report import Finding, Report, Where
from gapless.model.kinds import Engine
from gapless.timeline.timeline import Unknown
from gapless.views import telling, wording
from gapless.views.lanes import LABELS, Lanes, axis, cells, lanes_of, marks, predicted_lanes
from gapless.views.page import COLORS, FAULT, GAIN, GUTTER, NARROWEST_LANE, PROSE, VERDICT, WIDEST_LANE, Page, plain

NARROWEST_NAME = 24  # for a timeline's name in the summary; below that it stands above its figures

_LABEL = 5  # columns for a label inside a finding


def to_text(report: Report, *, width: int) -> str:
    """Give the report as plain text, *width* columns wide."""
    return plain(lambda console, options: draw(report, console, options), width=width)


def draw(report: Report, console: Console, options: ConsoleOptions) -> Iterator[Text]:
    """Draw one report, line by line."""
    page = _Page.on(console, options)
    yield from page.heading(report)
    if lanes := lanes_of(report):
        yield Text()
        yield from page.whole(report, lanes)
        yield from page.close_up(lanes)
        yield from page.predicted(report)
    yield from page.findings(report)
    yield from page.predictions(report)
    yield from page.bullets("Also", report.notes)
    yield from page.unknown(report.unknown)
    yield from page.bullets("Damaged, and left out", report.lost)
    if report.findings:
        yield Text()
        yield from page.prose(page.text(f"more: gapless explain --cause {report.findings[0].cause}", "dim"), indent=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One line about one of several reports."""

    source: str
    wall_ms: float
    busy: dict[str, float]
    cause: str  # of the first finding; empty where there is none
    verdict: bool  # the first finding is no fault
    share: float  # of the window that the first fault costs; 0 where there is none


def summarise(report: Report) -> Summary:
    """Say in short what a report says, without holding its timeline."""
    first = next(iter(report.findings), None)
    fault = next((finding for finding in report.findings if not finding.verdict), None)
    return Summary(
        source=report.source,
        wall_ms=report.wall_ms,
        busy={name: use.busy for name, use in report.engines.items()},
        cause=first.cause if first else "",
        verdict=first is not None and first.verdict,
        share=fault.cost_ms / report.wall_ms if fault and report.wall_ms else 0.0,
    )


def draw_summaries(summaries: Sequence[Summary], console: Console) -> Iterator[Text]:
    """Draw one line for each report, in the order given; names above the figures where there is no room beside them."""
    page = _Page.on(console)
    names = _without_common_folder([wording.visible(row.source) for row in summaries])
    engines = list(dict.fromkeys(name for row in summaries for name in row.busy))
    table = [("time", *(name.upper() for name in engines), "first cause")]
    for row in summaries:
        busy = (wording.percent(row.busy[name]) if name in row.busy else "" for name in engines)
        share = "" if row.verdict or not row.cause else f" {wording.percent(row.share)}"
        first = row.cause + share if row.cause or row.wall_ms else "no GPU activity"
        table.append((wording.duration(row.wall_ms), *busy, first))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    longest, needed = max(map(len, names)), sum(widths) + 2 * len(widths)
    if needed > page.width:
        table, widths = [(line[0], line[-1]) for line in table], [widths[0], widths[-1]]
        yield from page.prose(page.text(f"In {needed} columns the engines' figures stand here too.", "dim"), indent=0)
    room = min(longest, page.width - sum(widths) - 2 * len(widths))
    short = [_shortened(name, room) for name in names]
    stacked = room < min(longest, NARROWEST_NAME) or len(set(short)) < len(set(names))
    room = 0 if stacked else room
    for i, (name, (*figures, cause)) in enumerate(zip(("", *names), table, strict=True)):
        look = "" if i else "dim"
        if stacked and name:
            yield page.line(wording.shorten(name, page.width, tail=page.width * 3 // 4), look)
        shown = short[i - 1] if i and not stacked else ""
        beside = "".join(f"  {figure:>{width}}" for figure, width in zip(figures, widths, strict=False))
        fault = i > 0 and summaries[i - 1].share
        yield page.line(f"{shown:<{room}}{beside}  ", look, (cause, FAULT if fault else look))


def _shortened(name: str, room: int) -> str:
    """Shorten a name in its middle; where that would be its folders, before the file's own name."""
    return wording.shorten(name, room, tail=room * 3 // 4 if "/" in name else None)


def _without_common_folder(names: Sequence[str]) -> list[str]:
    """Leave out the folders that all paths begin with."""
    folders = [name.split("/")[:-1] for name in names]
    alike = zip(*folders, strict=False)
    depth = next((i for i, parts in enumerate(alike) if len(set(parts)) > 1), min(map(len, folders)))
    return ["/".join(name.split("/")[depth:]) for name in names]


def draw_page(title: str, text: str, console: Console) -> Iterator[Text]:
    """Draw a docstring: paragraphs, headings after ``##``, points after a dash, names in double back quotes."""
    page = _Page.on(console)
    yield page.line(title, "bold blue")
    for block in inspect.cleandoc(text).split("\n\n"):
        yield Text()
        for part in re.sub(r"^(##.*)\n|\n(?!- )\s*", lambda m: f"{m[1]}\n" if m[1] else " ", block).split("\n"):
            yield from page.part(part)


def draw_list(rows: Sequence[tuple[str, str]], closing: Sequence[str], console: Console) -> Iterator[Text]:
    """Draw names with what each means, and sentences below."""
    page = _Page.on(console)
    wide = max((len(name) for name, _ in rows), default=0) + 2
    for name, means in rows:
        yield from page.prose(page.text(means), label=name, indent=wide)
    for sentence in closing:
        yield Text()
        yield from page.prose(page.text(sentence), indent=0)


class _Page(Page):
    """Where a report is drawn."""

    # Pieces

    def part(self, words: str) -> Iterator[Text]:
        """Give one heading, point or paragraph of a docstring."""
        if words.startswith("##"):
            yield self.line(words.lstrip("# "), "bold")
            return
        point = words.startswith("- ")
        pieces = words.removeprefix("- ").split("``")
        text = Text.assemble(*(self.text(piece, "cyan" if i % 2 else "") for i, piece in enumerate(pieces)))
        yield from self.prose(text, label="-" if point else "", indent=2 if point else 0)

    # Parts

    def heading(self, report: Report) -> Iterator[Text]:
        """Say what was measured and the answer in a sentence."""
        facts = f"{report.device}, {wording.duration(report.wall_ms)}"
        yield self.title(report.source, facts)
        if report.headline:
            yield Text()
            yield from self.prose(self.foreign(report.headline, "bold"), indent=0)
        if report.steps:
            yield from self.prose(self.foreign(telling.step_times(report.steps)), indent=0)

    def whole(self, report: Report, lanes: Lanes) -> Iterator[Text]:
        """Draw the engines over the whole window, with their figures."""
        figures = telling.figures(report, lanes)
        columns = [max(map(len, column)) for column in zip(*figures.values(), strict=True)]
        if self.width - GUTTER - sum(columns) - 2 * len(columns) < NARROWEST_LANE:
            columns = columns[:1]
        room = min(WIDEST_LANE, self.width - GUTTER - sum(columns) - 2 * len(columns))

        def beside(row: Engine | None) -> str:
            return "".join(f"  {cell:>{wide}}" for cell, wide in zip(figures[row], columns, strict=False))

        yield self.line(" " * (GUTTER + room) + beside(None), "dim")
        yield from self.lanes(lanes, *lanes.window, room, {engine: beside(engine) for engine in lanes.busy})
        if lanes.marked and not lanes.close_up:
            yield from self.marks(lanes, *lanes.window, room)
        overlapped = f"  {wording.percent(report.overlapped):>{columns[0]}}  overlapped" if len(columns) > 1 else ""
        yield from self.axis(lanes, *lanes.window, room, overlapped)

    def close_up(self, lanes: Lanes) -> Iterator[Text]:
        """Draw a stretch of the window enlarged."""
        if not lanes.close_up:
            return
        room = min(WIDEST_LANE, self.width - GUTTER)
        yield Text()
        shown = wording.duration((lanes.close_up[1] - lanes.close_up[0]) / 1e6)
        yield self.line(f"{'':{GUTTER}}{shown} of it enlarged", "dim")
        yield from self.lanes(lanes, *lanes.close_up, room, {})
        yield from self.marks(lanes, *lanes.close_up, room)
        yield from self.axis(lanes, *lanes.close_up, room, "")

    def predicted(self, report: Report) -> Iterator[Text]:
        """Draw the program with the repairs asked for, as predicted."""
        lanes = predicted_lanes(report)
        if lanes is None or report.prediction is None or not telling.made(report.prediction):
            return
        room = min(WIDEST_LANE, self.width - GUTTER)
        made = wording.shorten(", ".join(telling.made(report.prediction)), self.width - GUTTER - 16)
        yield Text()
        yield self.line(f"{'':{GUTTER}}predicted with {made}", "dim")
        yield from self.lanes(lanes, *lanes.window, room, {})
        yield from self.axis(lanes, *lanes.window, room, "")

    def lanes(self, lanes: Lanes, start: int, end: int, room: int, beside: dict[Engine, str]) -> Iterator[Text]:
        """Draw one lane for each engine."""
        for engine, intervals in lanes.busy.items():
            drawn = cells(intervals, start, end, room, ascii_only=self.ascii_only)
            yield self.row(LABELS[engine], COLORS[engine], drawn, beside.get(engine, ""))

    def marks(self, lanes: Lanes, start: int, end: int, room: int) -> Iterator[Text]:
        """Mark where the costliest finding shows."""
        if lanes.marked:
            number, finding = lanes.marked
            drawn = marks(finding.spans, start, end, room, ascii_only=self.ascii_only)
            yield self.row(str(number), VERDICT if finding.verdict else FAULT, drawn, "")

    def axis(self, lanes: Lanes, start: int, end: int, room: int, beside: str) -> Iterator[Text]:
        """Draw the time axis."""
        unit, ticks = axis(start, end, lanes.origin, room, ascii_only=self.ascii_only)
        unit = wording.in_ascii(unit) if self.ascii_only else unit
        yield self.line(f"{unit:<{GUTTER}}{ticks:<{room}}", "dim", (beside, ""))

    def findings(self, report: Report) -> Iterator[Text]:
        """Say every cause, the negligible ones in a line each."""
        brief, files = False, self.files(report)
        for number, finding in enumerate(report.findings, 1):
            was_brief, brief = brief, number > 1 and telling.negligible(finding, report.wall_ms)
            if not (brief and was_brief):
                yield Text()
            yield from self.finding_title(number, finding, report.wall_ms, brief=brief)
            if not brief:
                yield from self.prose(self.foreign(finding.evidence))
                yield from self.places(finding.where, files)
                yield from self.cure(finding, report)

    def finding_title(self, number: int, finding: Finding, wall_ms: float, *, brief: bool) -> Iterator[Text]:
        """Say what a cause is and what it costs or its repair gains."""
        style = VERDICT if finding.verdict else "" if brief else FAULT
        mark = ("*" if self.ascii_only else "◆") if finding.verdict else str(number)
        worth = telling.worth(finding, wall_ms)
        title = self.foreign(finding.title, "" if brief else "bold")
        said = re.search(rf"\b({finding.count}|{finding.count:,})\b", finding.title)
        if finding.count > 1 and not finding.verdict and not said:
            title.append_text(self.text(f" ×{finding.count:,}", "dim"))
        room = min(self.width, PROSE + GUTTER)
        beside = room - GUTTER - len(worth) - 2
        worth = self.text(worth, GAIN if finding.speedup else style)
        for i, line in enumerate(self.prose(title, label=mark, style=style, room=beside if beside >= 24 else None)):
            if i == 0 and worth and beside >= 24:
                line.append(" " * (room - line.cell_len - len(worth)))
                line.append_text(worth)
            yield line
        if worth and beside < 24:
            yield from self.prose(worth)

    def files(self, report: Report) -> dict[str, str]:
        """Give the form in which each file is shown in all findings."""
        places = [place for finding in report.findings for place in finding.where]
        return wording.files(
            (wording.visible(place.file), place.line, wording.visible(place.function), self.room_of(place))
            for place in places
        )

    def room_of(self, place: Where) -> int:
        """Give the columns for a place beside its count."""
        return self.width - GUTTER - _LABEL - len(_count(place))

    def places(self, where: Sequence[Where], files: Mapping[str, str]) -> Iterator[Text]:
        """Say where in the source it comes from."""
        for i, place in enumerate(where):
            count, file = _count(place), wording.visible(place.file)
            shown = wording.visible(place.function)
            name = wording.place(files.get(file, file), place.line, shown, self.room_of(place))
            label = "at" if i == 0 else ""
            yield self.line(f"{'':{GUTTER}}{label:<{_LABEL}}", "dim", (name, ""), (count, "dim"))

    def cure(self, finding: Finding, report: Report) -> Iterator[Text]:
        """Say what to do about it, when that is safe, and what it is worth; no advice that does not pay."""
        repair = finding.repair
        if repair and telling.gains_nothing(finding, report):
            yield from self.labelled("do", self.text(f"nothing: {repair.name} alone would not make this run faster."))
            return
        if repair:
            words = self.text(repair.name, "bold")
            words.append_text(self.text(f" ({repair.grade})"))
            if finding.advice:
                words.append_text(self.text(f": {finding.advice}"))
            yield from self.labelled("do", words)
            if repair.precondition:
                yield from self.labelled("if", self.text(repair.precondition))
        elif finding.advice:
            yield from self.labelled("do", self.text(finding.advice))
        if change := telling.then(finding, report):
            yield from self.labelled("then", self.text(change))

    def labelled(self, label: str, words: Text) -> Iterator[Text]:
        """Give running text with a label inside a finding."""
        yield from self.prose(words, label=f"{'':{GUTTER}}{label}", style="dim", indent=GUTTER + _LABEL)

    def predictions(self, report: Report) -> Iterator[Text]:
        """Say what repairs together give, and how far to trust predictions."""
        lines = telling.predictions(report)
        if lines:
            yield Text()
        for line in lines:
            yield from self.prose(self.foreign(line), indent=0)

    def bullets(self, heading: str, sentences: Iterable[str]) -> Iterator[Text]:
        """Give a heading and sentences under it; nothing where there are none."""
        for i, sentence in enumerate(sentences):
            if i == 0:
                yield Text()
                yield self.line(heading, "bold")
            yield from self.bullet(sentence)

    def bullet(self, sentence: str, more: str = "") -> Iterator[Text]:
        """Give one sentence with a dot before it, and more behind it in another look."""
        words = self.foreign(sentence)
        if more:
            words.append(" ").append_text(self.text(more, "dim"))
        yield from self.prose(words, label="-" if self.ascii_only else "•", style="dim", indent=2)

    def unknown(self, unknown: Sequence[Unknown]) -> Iterator[Text]:
        """Say what the source cannot tell, and once for each way to record better."""
        if unknown:
            yield Text()
            yield self.line("This timeline cannot tell", "bold")
        for remedy in dict.fromkeys(gap.remedy for gap in unknown):
            *others, last = (gap.text for gap in unknown if gap.remedy == remedy)
            for text in others:
                yield from self.bullet(text)
            yield from self.bullet(last, remedy)


def _count(place: Where) -> str:
    return f" ×{place.count:,}" if place.count > 1 else ""
