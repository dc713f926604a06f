"""Work queues (connections, channels): how streams share them, and the launch queue in each (section 6.2)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .kinds import Bound

if TYPE_CHECKING:
    from .devices import StreamState
    from .hosts import HostThread
    from .simulator import Simulator


class LaunchQueue:
    """Entries and bytes that calls have taken and completed operations give back (R6.9)."""

    __slots__ = ("blocked", "bytes", "entries")

    def __init__(self) -> None:
        self.entries = 0
        self.bytes = 0
        self.blocked: deque[HostThread] = deque()


class Channel(LaunchQueue):
    """An in-order sequence of operations of one engine that have not been dispatched yet (R6.4)."""

    __slots__ = ("held", "number", "waiting")

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.waiting: deque[int] = deque()
        self.held: set[int] = set()  # operations that are ready but not at the head


class Channels:
    """The channels of one engine kind of a device, under ``mod`` or ``sticky`` (R6.6).

    With one channel and one copy engine for both directions the order of issue decides what overlaps (R6.7, R6.8).
    """

    def __init__(self, channels: int, place: int, *, sticky: bool, default_own: bool) -> None:
        self._channels = [Channel(number) for number in range(channels)]
        self._place = place
        self._sticky = sticky
        self._default_own = default_own
        self._turn = deque(self._channels)  # the one given out longest ago first
        self._own: dict[int, Channel] = {}  # `mod`: default streams have a queue each

    def choose(self, stream: StreamState) -> Channel:
        """Give the channel that the next operation of a stream will go into."""
        if not self._sticky:
            if stream.number < 0 and self._default_own:
                return self._own.setdefault(stream.row, Channel(len(self._channels) + len(self._own)))
            return self._channels[max(stream.number, 0) % len(self._channels)]
        current = stream.channel.get(self._place)
        if current is not None and stream.undispatched[self._place]:
            return current  # it stays until its own work there has been dispatched
        return next((channel for channel in self._turn if not channel.waiting), self._turn[0])

    def admit(self, sim: Simulator, stream: StreamState, op: int) -> None:
        """Put an operation into its stream's channel."""
        channel, place = self.choose(stream), self._place
        if self._sticky:
            if not stream.undispatched.get(place):
                self._turn.remove(channel)
                self._turn.append(channel)
                stream.channel[place] = channel
            stream.undispatched[place] = stream.undispatched.get(place, 0) + 1
        channel.waiting.append(op)
        sim.channel[op] = channel

    def may_go(self, sim: Simulator, op: int) -> bool:
        """Tell whether an operation whose stream lets it go is at the head of its channel, too (R6.1, R6.7)."""
        channel = sim.channel[op]
        if channel.waiting[0] == op:
            return True
        channel.held.add(op)
        return False

    def dispatched(self, sim: Simulator, op: int) -> None:
        """Take an operation out of its channel; the next one may go if its stream lets it."""
        channel = sim.channel.pop(op)
        channel.waiting.popleft()
        if self._sticky:
            sim.stream(op).undispatched[self._place] -= 1
        if channel.waiting and channel.waiting[0] in channel.held:
            follower = channel.waiting[0]
            channel.held.discard(follower)
            sim.let_go(follower, op)


class Pool:
    """Compute queues under ``pool``: a stream with kernels holds one until the last of them is dispatched (R6.6).

    A stream whose next operation waits for another stream (event, fence, barrier) gives its queue back meanwhile; a
    free queue goes to the stream whose waiting kernel was issued first. ``settle`` brings this about; it is called when
    all is known that happens at an instant.
    """

    def __init__(self, queues: int) -> None:
        self._queues = queues
        self._pending: dict[StreamState, deque[int]] = {}  # kernels issued and not dispatched
        self._holders: set[StreamState] = set()
        self._next: dict[StreamState, int] = {}  # operations at the head of their stream that wait for another stream
        self._held: set[int] = set()  # kernels whose stream lets them go but holds no queue
        self._given_by = -1  # the operation that made a queue free last
        self.unsettled = False

    def admit(self, sim: Simulator, stream: StreamState, op: int) -> None:
        """Note a kernel; its stream takes a queue if one is free."""
        self._pending.setdefault(stream, deque()).append(op)
        self.settle(sim)

    def may_go(self, sim: Simulator, op: int) -> bool:
        """Tell whether a kernel whose stream lets it go has a queue, too."""
        if sim.stream(op) in self._holders:
            return True
        self._held.add(op)
        self.unsettled = True
        return False

    def dispatched(self, sim: Simulator, op: int) -> None:
        """Take a kernel out of its queue; after the last one the queue goes to another stream."""
        stream = sim.stream(op)
        self._pending[stream].popleft()
        if not self._pending[stream]:
            del self._pending[stream]
            self._given_by = op
            self.settle(sim)

    def waits(self, stream: StreamState, op: int, by: int) -> None:
        """Note that a stream's next operation waits for another stream."""
        self._next[stream] = op
        self._given_by = by
        self.unsettled = True

    def settle(self, sim: Simulator) -> None:
        """Take queues from the streams that cannot use them now, and hand out those that are free."""
        self.unsettled = False
        if self._next:
            self._next = {stream: op for stream, op in self._next.items() if sim.left[op] > 0}
        self._holders = {s for s in self._holders if s in self._pending and s not in self._next}
        while len(self._holders) < self._queues:
            waiting = [
                (sim.rank[kernels[0]], stream.row, stream)
                for stream, kernels in self._pending.items()
                if stream not in self._holders and stream not in self._next
            ]
            if not waiting:
                return
            stream = min(waiting)[2]
            self._holders.add(stream)
            head = self._pending[stream][0]
            if head in self._held:
                self._held.discard(head)
                sim.let_go(head, self._given_by)


class Staging:
    """The staging slots of the process, and who waits for one, first come first served (R3.12)."""

    def __init__(self, slots: int) -> None:
        self._slots = self._free = slots
        self._waiting: deque[tuple[HostThread, int]] = deque()
        self._held: dict[int, int] = {}  # slots of each operation
        self.last = -1  # the operation that gave one back last

    def take(self, thread: HostThread, slots: int) -> bool:
        """Take slots (-1: all of them) for a call of a thread, or let it wait its turn; tell whether it has them."""
        wanted = self._slots if slots < 0 else slots
        if self._waiting or wanted > self._free:
            self._waiting.append((thread, wanted))
            return False
        self._free -= wanted
        return True

    def hold(self, op: int, slots: int) -> None:
        """Note that the taken slots are an operation's."""
        self._held[op] = self._slots if slots < 0 else slots

    def give_back(self, sim: Simulator, op: int, slots: int | None = None) -> None:
        """Give back some slots of an operation, or all it still has; threads whose turn it is go on."""
        if op not in self._held:
            return
        given = self._held[op] if slots is None else slots
        self._held[op] -= given
        if not self._held[op]:
            del self._held[op]
        self._free += given
        self.last = op
        while self._waiting and self._waiting[0][1] <= self._free:
            thread, wanted = self._waiting.popleft()
            self._free -= wanted
            thread.has_slots = True
            sim.hosts.delays[thread.row] = (Bound.STAGING, op)
            sim.hosts.wake(thread)
