"""What a reader had to leave out or mend: one sentence for each kind, with a count."""

from __future__ import annotations


class Losses:
    """Counts by kind, in the order in which the kinds first came up."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._gone: set[str] = set()

    @property
    def count(self) -> int:
        """How many losses there are, of all kinds."""
        return sum(self._counts.values())

    def add(self, sentence: str, count: int = 1, *, kept: bool = False) -> None:
        """Count a loss. ``sentence`` says what it is; ``{events}`` in it becomes "1 event", "2 events".

        ``kept``: what the program asked of the GPU is all there; a name, a range or a mark of it is not.
        """
        if count:
            self._counts[sentence] = self._counts.get(sentence, 0) + count
            if not kept:
                self._gone.add(sentence)

    def sentences(self) -> tuple[str, ...]:
        """Give one sentence for each kind."""
        return tuple(map(self._said, self._counts))

    def mended(self) -> tuple[str, ...]:
        """Give the sentences for those kinds of which everything is kept."""
        return tuple(self._said(sentence) for sentence in self._counts if sentence not in self._gone)

    def _said(self, sentence: str) -> str:
        count = self._counts[sentence]
        return sentence.replace("{events}", f"{count:,} event{'' if count == 1 else 's'}")
