"""What a program may rely on: the happens-before order of section 9, as vector clocks.

``walk`` goes through a program once, in issue order, and says for everything that runs what is known to be over when it
starts. Only documented rules make an edge (grade D); engines, queues, allocations, the driver's locks and everything
else that merely happens to order work on today's hardware make none. ``order`` keeps what ``walk`` says, to be asked::

    order(program).before(program.find("h0"), program.find("k0"))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from .clocks import Step
from .errors import GaplessError
from .happened import Happened, happened_in, issue_order
from .kinds import OpKind
from .order_walk import Walk
from .program import Program
from .value_order import ValueWalk

__all__ = ["Happened", "Moment", "Order", "Step", "happened_in", "issue_order", "order", "walk"]

Moment: TypeAlias = "int | tuple[int, int]"  # a row; (row, n) is the n-th run of an operation of a graph, n from 1


class Order:
    """The happens-before order of one program, for questions about its rows."""

    def __init__(self, program: Program, steps: Iterable[Step]) -> None:
        self._program = program
        self._steps: dict[tuple[int, int], Step] = {}
        self._last: dict[int, Step] = {}
        for step in steps:
            self._steps[step.row, step.run] = self._last[step.row] = step

    def before(self, x: Moment, y: Moment) -> bool:
        """Tell whether *x* is over before *y* starts, whatever the timing.

        A row means the operation that its call puts into a stream, or the call itself where it puts none there.
        Raises ``GaplessError`` for what never runs.
        """
        first, second = self.step(x), self.step(y)
        return second.knows(first.line, first.tick)

    def unordered(self, x: Moment, y: Moment) -> bool:
        """Tell whether neither is ordered before the other. Raises ``GaplessError`` for what never runs."""
        return not self.before(x, y) and not self.before(y, x)

    def runs(self, row: int) -> int:
        """Give how often the operation or call of a row runs: more than once only in a graph."""
        last = self._last.get(row)
        return 0 if last is None else max(1, last.run)

    def step(self, moment: Moment) -> Step:
        """Give what runs at a row (its last run), or at a run of it. Raises ``GaplessError`` for what never runs."""
        step = self._last.get(moment) if isinstance(moment, int) else self._steps.get(moment)
        if step is None:
            row = moment if isinstance(moment, int) else moment[0]
            raise GaplessError(f"{self._program.describe(row)} never runs, so nothing is ordered before or after it")
        return step


def order(program: Program, happened: Happened | None = None) -> Order:
    """Give the happens-before order of a program (section 9, grade D only)."""
    return Order(program, walk(program, happened))


def walk(program: Program, happened: Happened | None = None) -> Iterator[Step]:
    """Go through the program in issue order and give every operation and call that runs (section 9.4)."""
    happened = happened or Happened()
    if any(program.rows.op[row] == OpKind.WAIT_VALUE for row in happened.behind):
        return ValueWalk(program, happened).steps()
    return Walk(program, happened).steps()
