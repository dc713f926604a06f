"""What the race check found in a recording, in a terminal: both accesses with their lines, and the lines to add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions
from rich.text import Text

from gapless.checking.recordings import Finding, RecordingCheck
from gapless.checking.words import Side
from gapless.model.races import RaceClass
from gapless.views.outcome import RACE_WORDS
from gapless.views.page import FAULT, GAIN, Page, plain


def to_text(checked: RecordingCheck, *, width: int) -> str:
    """Give what a check found as plain text, *width* columns wide."""
    return plain(lambda console, options: draw(checked, console, options), width=width)


def draw(checked: RecordingCheck, console: Console, options: ConsoleOptions) -> Iterator[Text]:
    """Draw what the check of one recording found, line by line."""
    page = _Page.on(console, options)
    yield page.title(checked.source, _facts(checked))
    if checked.missing:
        yield from page.bullets("Missing from this recording", checked.missing, "")
        waits = ", and so may a wait between two accesses below" if checked.findings else ""
        yield from page.prose(page.text(f"A race may be among it{waits}."), indent=2)
    yield from page.numbered(checked.findings, page.finding)
    if not checked.findings:
        yield Text()
        seen = (
            ("Nothing races in what is left of it.", "")
            if checked.missing
            else ("Nothing races in what was looked at.", GAIN)
        )
        yield page.line(*seen)
    others = [unknown.text for unknown in checked.unknown if not unknown.is_missing]
    yield from page.bullets("Not looked at", others, "dim")


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

    def bullets(self, heading: str, sentences: Sequence[str], style: str) -> Iterator[Text]:
        """Give a heading and sentences under it; nothing where there are none."""
        if sentences:
            yield Text()
            yield self.line(heading, "bold")
        for sentence in sentences:
            yield from self.prose(self.foreign(sentence, style), label="•", style=style, indent=2)

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
            yield from self.detail("at", _side(side))
        yield from self.detail("memory", finding.memory)
        yield from self.detail("why", finding.why)
        if not finding.exact:
            yield from self.detail("if", _condition(finding))
        if not finding.steps:
            yield from self.detail("do", finding.repair)
        for i, step in enumerate(finding.steps):
            yield from self.detail("add" if i == 0 else "", str(step))


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
