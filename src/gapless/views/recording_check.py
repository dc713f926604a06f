"""What the race check found in a recording, in a terminal: both accesses with their lines, and the lines to add."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions
from rich.text import Text

from gapless.checking.recordings import Finding, RecordingCheck
from gapless.checking.words import Side
from gapless.model.races import RaceClass
from gapless.views.outcome import RACE_WORDS
from gapless.views.page import FAULT, GAIN, GUTTER, Page, plain

MOST = 20  # findings that are told
_LABEL = 8  # columns for a label inside a finding


def to_text(checked: RecordingCheck, *, width: int) -> str:
    """Give what a check found as plain text, *width* columns wide."""
    return plain(lambda console, options: draw(checked, console, options), width=width)


def draw(checked: RecordingCheck, console: Console, options: ConsoleOptions) -> Iterator[Text]:
    """Draw what the check of one recording found, line by line."""
    page = _Page.on(console, options)
    yield page.title(checked.source, _facts(checked))
    for number, finding in enumerate(checked.findings[:MOST], 1):
        yield Text()
        yield from page.finding(number, finding)
    if len(checked.findings) > MOST:
        yield Text()
        yield page.line(f"and {len(checked.findings) - MOST:,} more kinds of them", "dim")
    if not checked.findings:
        yield Text()
        yield page.line("Nothing races in what was looked at.", GAIN)
    if checked.unknown:
        yield Text()
        yield page.line("Not looked at", "bold")
        for unknown in checked.unknown:
            yield from page.prose(page.foreign(unknown.text, "dim"), label="•", style="dim", indent=2)


def _facts(checked: RecordingCheck) -> str:
    def count(*, exact: bool, error: bool) -> int:
        alike = (f for f in checked.findings if f.exact is exact and (f.kind <= RaceClass.UNALLOCATED) is error)
        return sum(finding.count for finding in alike)

    races, warnings = count(exact=True, error=True), count(exact=True, error=False)
    possible = sum(finding.count for finding in checked.findings if not finding.exact)
    more = "more than " if checked.more else ""
    told = ((races, _plural(races, "race")), (warnings, _plural(warnings, "warning")), (possible, "possible"))
    counted = [f"{number:,} {word}" for number, word in told if number]
    return f"{more}{', '.join(counted) or 'no race'} in {checked.calls:,} {_plural(checked.calls, 'call')}"


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"


class _Page(Page):
    """Where findings are drawn."""

    def finding(self, number: int, finding: Finding) -> Iterator[Text]:
        """Say what one finding is, or several that come from the same lines."""
        sure = finding.exact and finding.kind <= RaceClass.UNALLOCATED
        word = RACE_WORDS[finding.kind] if finding.exact else f"possible {RACE_WORDS[finding.kind]}"
        first, second = finding.first, finding.second
        title = self.foreign(f"{word}: {first.what} {first.does}, {second.what} {second.does} the same memory", "bold")
        if finding.count > 1:
            title.append_text(self.text(f" ×{finding.count:,}", "dim"))
        yield from self.prose(title, label=str(number), style=FAULT if sure else "bold")
        for side in (first, second):
            yield from self.labelled("at", _side(side))
        yield from self.labelled("memory", finding.memory)
        yield from self.labelled("why", finding.why)
        if not finding.exact:
            yield from self.labelled("if", _condition(finding))
        if not finding.steps:
            yield from self.labelled("do", finding.repair)
        for i, step in enumerate(finding.steps):
            yield from self.labelled("add" if i == 0 else "", str(step))

    def labelled(self, label: str, words: str) -> Iterator[Text]:
        """Give running text with a label inside a finding."""
        indent = GUTTER + _LABEL
        yield from self.prose(self.foreign(words), label=f"{'':{GUTTER}}{label}", style="dim", indent=indent)


def _side(side: Side) -> str:
    place = f"{side.place}  " if side.place else ""
    stream = f", {side.stream}" if side.stream else ""
    argument = f", {side.argument}" if side.argument else ""
    return f"{place}{side.call}{stream}{argument}"


def _condition(finding: Finding) -> str:
    """Say what must be so for a possible finding to be a race."""
    kernels = [side.what for side in (finding.first, finding.second) if side.what.startswith("kernel ")]
    if not kernels:
        return "the rows that the two copies touch are the same, and do not lie beside each other"
    if len(kernels) == 2:
        return f"{kernels[0]} and {kernels[1]} touch the same bytes, and one of them writes"
    return f"{kernels[0]} touches these bytes: its argument points there, and how far it reaches is not recorded"
