"""What is drawn on in a terminal: lines, running text and lanes, in as many columns and such characters as there are.

Text from outside is text and nothing but text: no markup of rich's is interpreted in it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, TypeVar

from rich.console import Console, ConsoleOptions
from rich.text import Text

from gapless.model.kinds import Engine
from gapless.views import wording
from gapless.views.wrapping import wrapped

PROSE = 100  # columns of running text at most: longer lines are hard to read
GUTTER = 4  # columns left of a lane and of running text
MOST_RACES = 20  # that are told, alike ones as one
WIDEST_LANE = 160
NARROWEST_LANE = 24  # with figures beside it; below that the figures give way
COLORS = {Engine.H2D: "cyan", Engine.SM: "green", Engine.D2H: "magenta", Engine.PEER: "yellow"}
T = TypeVar("T")
FAULT, VERDICT, GAIN = "bold red", "bold blue", "bold green"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is drawn on: so many columns, in which characters."""

    label_room: ClassVar[int] = 8  # columns for a label inside what is told of a race
    console: Console
    width: int
    ascii_only: bool

    @classmethod
    def on(cls, console: Console, options: ConsoleOptions | None = None) -> Self:
        """Give the page that a console offers."""
        options = options or console.options
        ascii_only = options.ascii_only or console.is_dumb_terminal
        return cls(console=console, width=max(20, options.max_width), ascii_only=ascii_only)

    def text(self, words: str, style: str = "") -> Text:
        """Give words as they may stand in a terminal."""
        words = wording.visible(words)
        return Text(wording.in_ascii(words) if self.ascii_only else words, style)

    def line(self, words: str, style: str, *more: tuple[str, str]) -> Text:
        """Give one line of differently styled pieces, cut at the right edge."""
        line = Text(no_wrap=True, overflow="crop")
        for piece, look in ((words, style), *more):
            line.append_text(self.text(piece, look))
        line.rstrip()
        line.truncate(self.width, overflow="crop")
        return line

    def prose(
        self, words: Text, *, label: str = "", style: str = "bold", indent: int = GUTTER, room: int | None = None
    ) -> Iterator[Text]:
        """Give running text, wrapped, with a label before its first line."""
        room = room or max(8, min(self.width, PROSE + indent) - indent)
        for i, line in enumerate(wrapped(words, room)):
            yield Text.assemble((label.ljust(indent) if i == 0 else " " * indent, style), line)

    def foreign(self, words: str, style: str = "") -> Text:
        """Give a sentence that may hold names from outside, which may be endless."""
        return self.text(wording.shorten_words(wording.visible(words), min(60, self.width - GUTTER)), style)

    def title(self, name: str, facts: str) -> Text:
        """Give the name of what is reported on, shortened to leave room for a few facts."""
        room = max(12, self.width - len(facts) - 2)
        shown = wording.shorten(wording.visible(name), room, tail=room * 3 // 4)
        return self.line(shown, "bold", (f"  {facts}", "dim"))

    def numbered(self, found: Sequence[T], tell: Callable[[int, T], Iterator[Text]]) -> Iterator[Text]:
        """Tell the first of the races found, numbered, and how many more there are."""
        for number, race in enumerate(found[:MOST_RACES], 1):
            yield Text()
            yield from tell(number, race)
        if len(found) > MOST_RACES:
            yield Text()
            yield self.line(f"and {len(found) - MOST_RACES:,} more kinds of them", "dim")

    def detail(self, label: str, words: str) -> Iterator[Text]:
        """Give running text with a label inside what is told of a race."""
        indent = GUTTER + max(self.label_room, len(label) + 1)
        yield from self.prose(self.foreign(words), label=f"{'':{GUTTER}}{label}", style="dim", indent=indent)

    def row(self, label: str, style: str, drawn: str | Text, beside: str = "", *, gutter: int = GUTTER) -> Text:
        """Give one lane; what is drawn is no foreign text."""
        lane = drawn if isinstance(drawn, Text) else Text(drawn, style)
        line = Text.assemble((f"{label:<{gutter}}", style), lane, beside, no_wrap=True, overflow="crop")
        line.rstrip()
        return line


def plain(draw: Callable[[Console, ConsoleOptions], Iterator[Text]], *, width: int) -> str:
    """Give what is drawn as plain text, *width* columns wide."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False, _environ={})
    with console.capture() as capture:
        for line in draw(console, console.options):
            console.print(line, soft_wrap=True)
    return capture.get().rstrip("\n")
