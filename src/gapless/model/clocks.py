"""Vector clocks: what whoever stands on one line knows of the events of all others.

Events lie on **lines**: one line for every stream, every host thread and every strand of a graph; what lies on one line
is in order. A clock holds, for every line, how many of its events are over. Who knows an event of a line knows
everything which that event knew; so one comparison tells whether there is anything to learn.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Clock: TypeAlias = list[int]  # never changed once another line has it
State: TypeAlias = tuple[Clock, int, int]  # a clock, and how many events of which line besides; line -1: none besides

NOTHING: State = ([], -1, 0)


class Step(NamedTuple):
    """Something that runs: an operation, or a call that puts none into a stream.

    ``line`` and ``tick`` name it as the tick-th event of its line; ``clock`` holds what is over when it starts
    (other lines only). ``call_line``, ``call_tick`` and ``call_clock`` say the same of the begin of its call; they are
    an event of their own only where ``stamped``.
    """

    row: int
    run: int  # 0; the n-th run of an operation of a graph, from 1
    by: int  # the row of the call: the launch of a graph for its operations, else the row itself
    line: int
    tick: int
    clock: Clock
    call_line: int
    call_tick: int
    call_clock: Clock
    stamped: bool = False

    def knows(self, line: int, tick: int) -> bool:
        """Tell whether the tick-th event of a line is over when this starts."""
        if line == self.line:
            return tick < self.tick
        return line < len(self.clock) and self.clock[line] >= tick

    def call_knows(self, line: int, tick: int) -> bool:
        """Tell whether the tick-th event of a line is over when the call begins."""
        if line == self.call_line:
            return tick < self.call_tick
        return line < len(self.call_clock) and self.call_clock[line] >= tick


class Line:
    """Events in order. ``clock`` is what the line knows of others; replaced, never changed."""

    __slots__ = ("clock", "count", "index", "settled")

    def __init__(self, index: int) -> None:
        self.index = index
        self.count = 0
        self.clock: Clock = []
        self.settled = True  # nothing was learnt since the last event

    def tick(self) -> None:
        """Let an event happen."""
        self.count += 1
        self.settled = True

    def state(self) -> State:
        """Give what someone knows who knows all of this line."""
        return self.clock, self.index, self.count

    def learn(self, state: State) -> bool:
        """Take over what a state knows; tell whether there was anything new."""
        clock, index, count = state
        mine = self.clock
        if index >= 0:
            if index == self.index or (index < len(mine) and mine[index] >= count) or not (count or clock):
                return False
        elif not clock:
            return False
        if self.settled and 0 <= self.index < len(clock) and clock[self.index] >= self.count:
            merged = clock + [0] * (index + 1 - len(clock))  # it knows all that this line knows
        else:
            longest = max(len(mine), len(clock), index + 1)
            both = zip(_padded(mine, longest), _padded(clock, longest), strict=True)
            merged = [m if m > c else c for m, c in both]  # noqa: FURB136 - a call of max takes four times as long
        if index >= 0 and merged[index] < count:
            merged[index] = count
        self.settled = False
        self.clock = merged
        return True


def _padded(clock: Clock, length: int) -> Clock:
    return clock if len(clock) == length else clock + [0] * (length - len(clock))
