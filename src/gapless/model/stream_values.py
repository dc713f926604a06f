"""Stream memory operations: streams and host threads that wait for each other by values in memory (R5.9).

A stream that waits for a value goes on as soon as the word holds one that satisfies the condition, whoever wrote it.
CUDA cannot see such an order. It may have put the wait and what leads to the write into one hardware queue; then they
wait for ever, and the run ends with a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .kinds import OP, Bound, Condition

if TYPE_CHECKING:
    from .simulator import Simulator

_SATISFIES: dict[int, Callable[[int, int], bool]] = {
    Condition.GEQ: lambda word, value: word >= value,
    Condition.EQ: lambda word, value: word == value,
    Condition.AND: lambda word, value: bool(word & value),
    Condition.NOR: lambda word, value: (word | value) & 0xFFFFFFFF != 0xFFFFFFFF,
}
_WRITE = int(OP.WRITE_VALUE)


class StreamValues:
    """The words of a run, what they hold, and which operations wait for that to change."""

    def __init__(self, sim: Simulator) -> None:
        self._sim = sim
        self._holds = [0] * len(sim.program.words)
        self._writer = [-1] * len(sim.program.words)  # the row that wrote it last
        self._waiting: list[list[int]] = [[] for _ in sim.program.words]
        self._values: list[int] = sim.program.rows.bytes.tolist()

    @property
    def waiting(self) -> list[int]:
        """The operations that are at the head of their stream and wait."""
        return [op for ops in self._waiting for op in ops]

    def reached(self, op: int) -> bool:
        """Take an operation at the head of its stream; tell whether it is over at once."""
        sim = self._sim
        if sim.op_kind[op] == _WRITE:
            self.write(op, Bound.VALUE)
        elif self._is_satisfied(op):
            sim.saw[op] = self._writer[sim.object[op]]
        else:
            self._waiting[sim.object[op]].append(op)
            return False
        return True

    def write(self, row: int, bound: Bound) -> None:
        """Write a value: as an operation, or by a host thread. What it satisfies goes on."""
        sim, word = self._sim, self._sim.object[row]
        self._holds[word], self._writer[word] = self._values[row], row
        for op in [op for op in self._waiting[word] if self._is_satisfied(op)]:
            self._waiting[word].remove(op)
            sim.saw[op] = row
            sim.ready[op] = sim.start[op] = sim.now
            sim.bound[op], sim.bound_by[op] = bound, row
            sim.completed.append(op)

    def _is_satisfied(self, op: int) -> bool:
        sim = self._sim
        return _SATISFIES[sim.second[op]](self._holds[sim.object[op]], self._values[op])
