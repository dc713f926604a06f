"""What a check found, in a terminal: each race with its two accesses, why nothing orders them, and the repair."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions
from rich.text import Text

from gapless.model.explore import Choice, Exploration
from gapless.model.races import Access, Race, RaceClass
from gapless.model.simulation import Check, Simulation
from gapless.model.unordered import called, why
from gapless.views import wording
from gapless.views.outcome import RACE_WORDS, draw_expectations, races_found, to_check
from gapless.views.page import FAULT, GAIN, GUTTER, MOST_RACES, Page, plain


def to_text(check: Check, *, width: int) -> str:
    """Give what a check found as plain text, *width* columns wide."""
    return plain(lambda console, options: draw(check, console, options), width=width)


def draw(check: Check, console: Console, options: ConsoleOptions, *, machine: str | None = None) -> Iterator[Text]:
    """Draw what the check of one tape found, line by line. *machine*: what was asked for instead of the tape's."""
    page, played = _Page.on(console, options), check.played
    groups = alike(played)
    yield page.title(played.name, _facts(check))
    yield from page.numbered(groups, lambda number, group: page.race(number, group, played))
    yield from draw_expectations(page, played, alone=check.explored is None)
    if check.explored is not None:
        yield from page.explored(check.explored, played, machine)


def _facts(check: Check) -> str:
    """Say what was found in the run as the tape stands, and whether others go wrong."""
    found, explored = races_found(check.played), check.explored
    if explored is None or all(failure.choice == Choice() for failure in explored.failures):
        return found
    return f"{found}; fails in other runs too" if len(check.played.races) else "fails in other runs"


class _Page(Page):
    """Where races are drawn."""

    def race(self, number: int, group: list[Race], played: Simulation) -> Iterator[Text]:
        """Say what one race is, or several that come from the same lines."""
        race = group[0]
        style = FAULT if race.kind <= RaceClass.UNALLOCATED else "bold"
        title = self.foreign(f"{RACE_WORDS[race.kind]}: {said(played, race)}", "bold")
        if len(group) > 1:
            title.append_text(self.text(f" ×{len(group):,}", "dim"))
        yield from self.prose(title, label=str(number), style=style)
        for access in (race.first, race.second):
            yield from self.detail(_line(played, access.row), _accesses(played, access, race.buffer))
        yield from self.detail("why", why(played.schedule, race))
        if not race.repair.add:
            yield from self.detail("do", race.repair.text)
        statements = max((len(add.statement) for add in race.repair.add), default=0)
        for i, add in enumerate(race.repair.add):
            place = _line(played, add.row) or played.schedule.program.brief(add.row)
            words = f"{add.statement:<{statements}}  {'after' if add.after else 'before'} {place}"
            yield from self.detail("add" if i == 0 else "", words)

    def explored(self, explored: Exploration, played: Simulation, machine: str | None) -> Iterator[Text]:
        """Say what goes wrong in other runs, and how to look at one."""
        yield Text()
        runs = f"{wording.plural(explored.runs, 'run')}, {wording.plural(explored.orders, 'order')} of calls"
        if not explored.failures:
            yield from self.prose(self.text(f"Nothing goes wrong in {runs}.", GAIN), indent=0)
            return
        yield from self.prose(
            self.text(f"Explored {runs}. What goes wrong, and the run that shows it:", FAULT), indent=0
        )
        indent = max(GUTTER, 2 + max(len(str(failure.choice)) for failure in explored.failures[:MOST_RACES]))
        for failure in explored.failures[:MOST_RACES]:
            yield from self.prose(self.foreign(failure.what), label=str(failure.choice), indent=indent)
        if len(explored.failures) > MOST_RACES:
            yield self.line(f"and {len(explored.failures) - MOST_RACES:,} more", "dim")
        command = to_check(played.name, machine, str(explored.failures[0].choice))
        yield from self.prose(self.text(f"Look at it: {command}", "dim"), indent=0)


def alike(played: Simulation) -> list[list[Race]]:
    """Put races together that come from the same lines of the tape, in the order in which they were found."""
    groups: dict[tuple[object, ...], list[Race]] = {}
    for number, race in enumerate(played.races):
        places = (played.line_of(race.first.row), played.line_of(race.second.row))
        key = (race.kind, *places, race.misplaced) if all(places) else (number,)
        groups.setdefault(key, []).append(race)
    return list(groups.values())


def _line(played: Simulation, row: int) -> str:
    line = played.line_of(row)
    return f"line {line}" if line else ""


def _accesses(played: Simulation, access: Access, buffer: str) -> str:
    """Say what an access is; what a host thread does to memory says itself which."""
    program = played.schedule.program
    does = f", {access.does} {buffer}" if buffer and program.rows.op[access.row] >= 0 else ""
    return program.brief(access.row) + does


def said(played: Simulation, race: Race) -> str:
    """Say in a sentence what a race is."""
    x, y = (called(played.schedule, access) for access in (race.first, race.second))
    if race.kind is RaceClass.NONDETERMINISM:
        return f"whether {x} or {y} comes first is left to chance"
    if race.misplaced:
        return f"{x} {race.first.does} {race.buffer} before {y} {race.second.does} it"
    return f"{x} {race.first.does} {race.buffer}, {y} {race.second.does} it, in no order"
