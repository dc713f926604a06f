"""What a check of a PyTorch program found, in a terminal: both accesses with their lines, and the line to add."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions
from rich.text import Text

from gapless.views import wording
from gapless.views.page import FAULT, GAIN, Page

if TYPE_CHECKING:
    from gapless.torch.findings import Checked, Finding, Side
    from gapless.torch.stacks import Place

_FRAMES = 3  # lines of a stack that are told
_PLACES = 3  # places of a note that are told


def draw(checked: Checked, name: str, console: Console, options: ConsoleOptions, *, ended: str = "") -> Iterator[Text]:
    """Draw what the check of one program found, line by line. *ended*: how the program ended, if not well."""
    page = _Page.on(console, options)
    yield page.title(name, _facts(checked, so_far=bool(ended)))
    yield from page.numbered(checked.findings, page.finding)
    if ended:
        yield Text()
        yield from page.prose(page.foreign(f"Not looked at to its end: {ended}", "bold"), indent=0)
    elif checked.operations and not checked.findings:
        yield Text()
        yield page.line("Nothing races in what was looked at.", GAIN)
    if checked.notes:
        yield Text()
        yield page.line("Not checked", "bold")
        for what, places in checked.notes.items():
            at = f" ({', '.join(places[:_PLACES])}{', ...' if len(places) > _PLACES else ''})" if places else ""
            yield from page.prose(page.foreign(what + at, "dim"))


def _facts(checked: Checked, *, so_far: bool) -> str:
    errors = sum(finding.error for finding in checked.findings)
    warnings = len(checked.findings) - errors
    counted = [f"{n:,} {word}{'s' if n > 1 else ''}" for n, word in ((errors, "race"), (warnings, "warning")) if n]
    streams = len(checked.streams)
    seen = f"{wording.plural(checked.operations, 'operation')}, {wording.plural(streams, 'stream')}"
    if not checked.operations:
        return f"no operation on a GPU{' so far' if so_far else ''}{', dry' if checked.dry else ''}"
    found = ", ".join(counted) or "no race"
    return f"{found}{' so far' if so_far else ''} in {seen}{', dry' if checked.dry else ''}"


class _Page(Page):
    """Where findings are drawn."""

    label_room = 10

    def finding(self, number: int, finding: Finding) -> Iterator[Text]:
        """Say what is used by whom, where, and what to add."""
        word = "" if finding.error else " (warning: today's drivers hide it)"
        title = self.foreign(f"{finding.cause.slug}: {finding.buffer} is {finding.cause.words}{word}", "bold")
        yield from self.prose(title, label=str(number), style=FAULT if finding.error else "bold")
        yield from self.side("first", finding.first)
        yield from self.side("then", finding.second)
        for word, stack in (("allocated", finding.allocated), ("first used", finding.first_used)):
            if stack:
                yield from self.detail("memory", f"{word} at {_at(stack[0])}")
        if finding.released:
            yield from self.detail("", f"released at {_at(finding.released[0])}")
        advice = finding.advice
        if advice.line:
            where = f"  {'before' if advice.before else 'after'} {advice.where}" if advice.where else ""
            yield from self.detail("add", advice.line + where)
        if advice.words:
            yield from self.detail("" if advice.line else "do", advice.words)

    def side(self, label: str, side: Side) -> Iterator[Text]:
        """Say what an access is, and its stack."""
        by = f"the host ({side.name})" if side.stream == "host" else f"{side.name} on {side.stream}"
        yield from self.detail(label, f"{by} {side.does} it")
        for place in side.stack[:_FRAMES]:
            yield from self.detail("", _at(place))


def _at(place: Place) -> str:
    text = f"  {place.text}" if place.text else ""
    return f"{place}{text}"
