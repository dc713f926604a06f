"""A Comparison in a terminal: figures side by side, which causes went, came and stayed, what had been predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions
from rich.text import Text

from gapless.diagnosis.compare import Comparison, Gate
from gapless.diagnosis.report import Finding, Report
from gapless.timeline.timeline import missing
from gapless.views import wording
from gapless.views.page import FAULT, GAIN, GUTTER, Page, plain

_NAME = 12  # columns for what is compared
_VALUE = 12  # columns for each value


def to_text(comparison: Comparison, *, width: int) -> str:
    """Give the comparison as plain text, *width* columns wide."""
    return plain(lambda console, options: draw(comparison, console, options), width=width)


def draw(comparison: Comparison, console: Console, options: ConsoleOptions) -> Iterator[Text]:
    """Draw a comparison, line by line."""
    page = Page.on(console, options)
    before, after = comparison.before, comparison.after
    for label, report in (("before", before), ("after", after)):
        yield page.title(f"{label:<8}{report.source}", report.device)
    yield Text()
    yield from page.prose(page.text(_headline(comparison), "bold"), indent=0)
    for label, report in (("before", before), ("after", after)):
        if lost := missing(report):
            yield from page.prose(page.foreign(f"Part of {label} is missing. {' '.join(lost)}"), indent=0)
    yield Text()
    yield page.line(f"{'':{_NAME}}{'before':>{_VALUE}}{'after':>{_VALUE}}", "dim")
    for name, old, new in _figures(before, after):
        yield page.line(f"{name:<{_NAME}}{old:>{_VALUE}}{new:>{_VALUE}}", "")
    for heading, findings, report, style in (
        ("Went", comparison.went, before, GAIN), ("Came", comparison.came, after, FAULT),
    ):  # fmt: skip
        yield from _findings(page, heading, findings, report, style)
    for change in comparison.stayed:
        costs = f"{wording.duration(change.before_ms)} ({wording.percent(change.before_share)}) before, "
        costs += f"{wording.duration(change.after_ms)} ({wording.percent(change.after_share)}) now"
        yield from page.prose(page.text(f"{change.cause}: {costs}"), label="Stayed", indent=2 * GUTTER)
    if comparison.verdict:
        yield Text()
        yield from page.prose(page.foreign(comparison.verdict), indent=0)
    yield from draw_gates(comparison.gates, page)


def draw_gates(gates: Sequence[Gate], page: Page) -> Iterator[Text]:
    """Draw for each gate whether it holds, and what there is instead."""
    for gate in gates:
        yield from page.prose(page.text(gate.reason, "" if gate.holds else FAULT), label="Gate", indent=2 * GUTTER)


def _headline(comparison: Comparison) -> str:
    said = f"{comparison.speedup:.3g} times as fast, as traced"
    if comparison.untraced is not None:
        said += f"; {comparison.untraced:.3g} times with what the profiler costs taken out on both sides"
    return said + "."


def _figures(before: Report, after: Report) -> Iterator[tuple[str, str, str]]:
    yield "wall", wording.duration(before.wall_ms), wording.duration(after.wall_ms)
    for engine in before.engines:
        old, new = before.engines[engine].busy, after.engines[engine].busy
        yield f"{engine.upper()} busy", wording.percent(old), wording.percent(new)
    yield "overlapped", wording.percent(before.overlapped), wording.percent(after.overlapped)


def _findings(page: Page, heading: str, findings: tuple[Finding, ...], report: Report, style: str) -> Iterator[Text]:
    if findings:
        yield Text()
    for finding in findings:
        costs = f"{'binds' if finding.verdict else 'cost'} {wording.duration(finding.cost_ms)}"
        share = wording.percent(finding.cost_ms / report.wall_ms) if report.wall_ms else ""
        words = page.foreign(f"{finding.cause}: {finding.title}, {costs} ({share})")
        look = "bold blue" if finding.verdict else style
        yield from page.prose(words, label=heading, style=look, indent=2 * GUTTER)
