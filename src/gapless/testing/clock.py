"""Virtual time: for tests of what waits, polls and times out, without waiting."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from gapless.model.errors import GaplessError
from gapless.model.things import Time
from gapless.model.units import format_time, parse_time, s


class Clock:
    """A clock that stands still until it is told to go on. Times are whole picoseconds, or text such as ``"3ms"``.

    What is due on the way happens in order of time, and at one time in the order in which it was asked for:

    >>> clock = Clock()
    >>> clock.at("2ms", lambda: print("copied at", clock))
    >>> clock.at("1ms", lambda: print("launched at", clock))
    >>> clock.advance("5ms")
    launched at 1ms
    copied at 2ms
    >>> print(clock)
    5ms

    ``seconds`` and ``sleep`` stand in for ``time.perf_counter`` and ``time.sleep`` in code that is given them:

    >>> def poll(done, timer=clock.seconds, sleep=clock.sleep):
    ...     begun = timer()
    ...     while not done():
    ...         sleep(0.001)
    ...     return timer() - begun
    >>> poll(lambda: clock.now >= parse_time("8ms"))
    0.003
    """

    def __init__(self) -> None:
        self._now = 0
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._number = count()

    def __str__(self) -> str:
        return format_time(self._now)

    @property
    def now(self) -> int:
        """The time, in ps."""
        return self._now

    def seconds(self) -> float:
        """Give the time in seconds, as ``time.perf_counter`` does."""
        return self._now / s

    def at(self, time: Time, do: Callable[[], object]) -> None:
        """Have something done when the clock comes to a time. Raises ``GaplessError`` for a time that is over."""
        when = _picoseconds(time)
        if when < self._now:
            raise GaplessError(f"it is {self} already; {format_time(when)} is over. To wait from now on: clock.after")
        heappush(self._due, (when, next(self._number), do))

    def after(self, time: Time, do: Callable[[], object]) -> None:
        """Have something done when so much time has gone by."""
        self.at(self._now + _picoseconds(time), do)

    def advance(self, time: Time) -> None:
        """Let so much time go by, and everything happen that falls due, also what is asked for on the way."""
        until = self._now + _picoseconds(time)
        while self._due and self._due[0][0] <= until:
            self._now, _, do = heappop(self._due)
            do()
        self._now = until

    def advance_to_next(self) -> bool:
        """Go on to the next thing that is due and let it happen; tell whether there was one."""
        if not self._due:
            return False
        self.advance(self._due[0][0] - self._now)
        return True

    def sleep(self, seconds: float) -> None:
        """Let time go by, as ``time.sleep`` does."""
        self.advance(round(seconds * s))


def _picoseconds(time: Time) -> int:
    picoseconds = parse_time(time) if isinstance(time, str) else round(time)
    if picoseconds < 0:
        raise GaplessError(f"a clock does not go back: {time!r}")
    return picoseconds
