"""What a reader had to leave out or mend: one sentence for each kind, with a count."""

from __future__ import annotations


class Losses:
    """Counts by kind, in the order in which the kinds first came up."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @property
    def count(self) -> int:
        """How many losses there are, of all kinds."""
        return sum(self._counts.values())

    def add(self, sentence: str, count: int = 1) -> None:
        """Count a loss. ``sentence`` says what it is; ``{events}`` in it becomes "1 event", "2 events"."""
        if count:
            self._counts[sentence] = self._counts.get(sentence, 0) + count

    def sentences(self) -> tuple[str, ...]:
        """Give one sentence for each kind."""
        return tuple(
            sentence.replace("{events}", f"{count:,} event{'' if count == 1 else 's'}")
            for sentence, count in self._counts.items()
        )
