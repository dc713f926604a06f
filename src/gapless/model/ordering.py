"""Which operation waits for which: the one table of stream ordering, and the bookkeeping that applies it.

Everything in gapless that needs to know who waits for whom asks here: the scheduler, the race checker
(``happens_before.py``), and the reading of measured timelines.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from .kinds import OP, StreamKind

# R2.1: must work on the second kind of stream wait for work issued earlier on the first (two *different* streams of
# one device)? Only the legacy default stream orders streams against each other, and only the blocking ones.
_ACROSS: dict[tuple[StreamKind, StreamKind], bool] = {
    (StreamKind.LEGACY, StreamKind.LEGACY): True,  # there is one legacy stream a device: the same stream
    (StreamKind.LEGACY, StreamKind.PER_THREAD): True,
    (StreamKind.LEGACY, StreamKind.BLOCKING): True,
    (StreamKind.LEGACY, StreamKind.NON_BLOCKING): False,
    (StreamKind.PER_THREAD, StreamKind.LEGACY): True,
    (StreamKind.PER_THREAD, StreamKind.PER_THREAD): False,
    (StreamKind.PER_THREAD, StreamKind.BLOCKING): False,
    (StreamKind.PER_THREAD, StreamKind.NON_BLOCKING): False,
    (StreamKind.BLOCKING, StreamKind.LEGACY): True,
    (StreamKind.BLOCKING, StreamKind.PER_THREAD): False,
    (StreamKind.BLOCKING, StreamKind.BLOCKING): False,
    (StreamKind.BLOCKING, StreamKind.NON_BLOCKING): False,
    (StreamKind.NON_BLOCKING, StreamKind.LEGACY): False,
    (StreamKind.NON_BLOCKING, StreamKind.PER_THREAD): False,
    (StreamKind.NON_BLOCKING, StreamKind.BLOCKING): False,
    (StreamKind.NON_BLOCKING, StreamKind.NON_BLOCKING): False,
}


def fences(earlier: StreamKind, later: StreamKind) -> bool:
    """Tell whether work on a *later*-kind stream waits for work issued before it on another, *earlier*-kind stream.

    Both streams belong to one device; streams of different devices never order each other (PGC 6.2.9.3), and work of
    one and the same stream is always in order (R1.3). An unknown kind fences nothing: who cannot know must not claim.
    Source: R2.1.
    """
    return _ACROSS.get((earlier, later), False)


def is_blocking(kind: StreamKind) -> bool:
    """Tell whether a stream of this kind takes part in the legacy default stream's fence (R2.1)."""
    return fences(StreamKind.LEGACY, kind)


_MOVES_BYTES = (OP.H2D, OP.D2H, OP.D2D, OP.P2P, OP.H2H, OP.MEMSET)


def is_empty_action(op: int, size: int = -1, *, empty: bool = False) -> bool:
    """Tell whether an operation is one of R2.3's empty actions, which let blocking streams pass the legacy stream.

    *op* is an OpKind, *size* its bytes (-1 unknown: taken for more than none). *empty*: the wait is for an event that
    was never recorded, the graph has no work. No happens-before edge leads from a blocking stream into such an action.
    """
    if op in (OP.WAIT, OP.GRAPH):
        return empty
    return op == OP.MALLOC or (size == 0 and op in _MOVES_BYTES)


class StreamOrder:
    """The last operation of every stream of one device, and from it what the next operation must wait for (R2.8).

    Feed operations in issue order; ``issue`` yields the operations whose completion the new one waits for by stream
    order and by the legacy default stream's fence. Exact for R2.1 and R2.2: later fences are covered by transitivity.
    """

    __slots__ = ("_blocking", "_last", "_legacy")

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}
        self._blocking: set[Hashable] = set()
        self._legacy: int | None = None

    def issue(self, op: int, stream: Hashable, kind: StreamKind) -> Iterator[tuple[int, bool]]:
        """Issue *op* (any number that names it) and give ``(predecessor, by_fence)`` for all it waits for."""
        previous = self._last.get(stream)
        waits: list[tuple[int, bool]] = [] if previous is None else [(previous, False)]
        if kind is StreamKind.LEGACY:
            waits += [(self._last[other], True) for other in self._blocking if other != stream]
            self._legacy = op
        elif is_blocking(kind):
            if self._legacy is not None:
                waits.append((self._legacy, True))
            self._blocking.add(stream)
        self._last[stream] = op
        return iter(waits)
