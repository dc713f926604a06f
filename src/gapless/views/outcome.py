"""How a tape went, in a few words: races found, expectations that hold or fail."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import join

from rich.text import Text

from gapless.model.races import RaceClass
from gapless.model.simulation import Simulation
from gapless.views.page import FAULT, GAIN, Page

RACE_WORDS = {
    RaceClass.ERROR: "race",
    RaceClass.UNALLOCATED: "unallocated use",
    RaceClass.WARNING: "warning",
    RaceClass.NONDETERMINISM: "nondeterminism",
}


def races_found(played: Simulation) -> str:
    """Say how many races of which class there are."""
    races = played.races
    if not races:
        return "no race"
    counted = [(word, sum(race.kind is kind for race in races)) for kind, word in RACE_WORDS.items()]
    more = "more than " if races.more else ""
    return more + ", ".join(f"{count:,} {_plural(word, count)}" for word, count in counted if count)


def to_check(name: str, machine: str | None, run: str) -> str:
    """Give the command that checks a run of a tape (``plain`` or as exploring calls it), on the machine asked for."""
    asked = [] if machine is None else ["--machine", machine]
    return join(["gapless", "check", name, *asked, *([] if run == "plain" else ["--replay", run])])


def expectations_held(played: Simulation) -> str:
    """Say how many expectations hold or fail; empty where there are none."""
    whole = len(played.outcomes)
    failed = sum(not outcome.holds for outcome in played.outcomes)
    if failed:
        of = f"{failed} of {whole}" if whole > 1 else "1"
        return f"{of} {_plural('expectation', whole)} fail{'s' if failed == 1 else ''}"
    return f"{whole} {_plural('expectation', whole)} hold{'s' if whole == 1 else ''}" if whole else ""


def draw_expectations(page: Page, played: Simulation, *, alone: bool = True) -> Iterator[Text]:
    """Say whether what a tape expects holds, and what came instead; nothing where it expects nothing.

    Where other runs were looked at too, it is not *alone*: that the expectations hold is said of this run.
    """
    if not played.outcomes:
        return
    failed = [pair for pair in zip(played.expectations, played.outcomes, strict=True) if not pair[1].holds]
    yield Text()
    where = "" if alone else " in the run as it stands"
    yield page.line(f"{expectations_held(played)}{where}.", FAULT if failed else GAIN)
    if played.replay != "plain":
        asked = Text("Of a replayed run only what must hold in every run is asked.")
        yield from page.prose(asked, style="", indent=0)
    for expectation, outcome in failed:
        label = f"line {outcome.line}"
        words = page.foreign(f"{expectation}: got {outcome.got}")
        yield from page.prose(words, label=f"{label:<8}  ", style="", indent=10)


def _plural(word: str, count: int) -> str:
    return word if count == 1 or word == RACE_WORDS[RaceClass.NONDETERMINISM] else f"{word}s"
