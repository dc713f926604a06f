"""The state of devices and streams while a program runs, made from the program and the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .batches import BatchRunner
from .engines import CopyEngine, NoWaiting, Sms, Workers
from .graphs import GraphRunner
from .kinds import OP, StreamKind
from .machine import ENGINE_WORDS, Machine
from .ordering import fences, is_blocking
from .plan import PLACES, Place, Plan
from .program import Program
from .queues import Channel, Channels, LaunchQueue, Pool
from .sm_split import split_of
from .things import Grid

if TYPE_CHECKING:
    from .simulator import Simulator

WORD_OF_PLACE = {
    Place.SM: "sm", Place.INLINE: "inline", Place.H2D: "h2d", Place.D2H: "d2h", Place.PEER: "peer",
    Place.WORKER: "host",
}  # fmt: skip


class Server(Protocol):
    """Where operations run."""

    def add(self, sim: Simulator, op: int) -> None:
        """Take an operation that nothing else holds back any more."""
        ...


class StreamState(LaunchQueue):
    """A stream: its last operation, and how it stands to the others."""

    __slots__ = (
        "channel", "device", "fenced", "last", "legacy", "number", "priority", "row", "undispatched",
    )  # fmt: skip

    def __init__(self, row: int, kind: StreamKind, number: int, priority: int, device: DeviceState) -> None:
        super().__init__()
        self.row = row
        self.legacy = kind == StreamKind.LEGACY
        self.fenced = is_blocking(kind) and not self.legacy  # R2.1: later work waits for the legacy stream
        self.number = number  # among the created streams, -1 for default streams
        self.priority = priority
        self.device = device
        self.last = -1
        self.channel: dict[int, Channel] = {}  # by place
        self.undispatched: dict[int, int] = {}  # operations in that channel


class DeviceState:
    """A device: its engines, its queues, and what holds back all later work."""

    def __init__(self, index: int, machine: Machine, grids: list[Grid], plan: Plan, workers: Workers) -> None:
        self.index = index
        self.streams: list[StreamState] = []
        self.feeders: list[StreamState] = []  # streams that the legacy stream waits for (R2.1)
        self.legacy = StreamState(-1, StreamKind.LEGACY, -1, 0, self)  # until the program's own takes its place
        self.fence = -1  # the last operation of the legacy stream that blocking streams wait for
        self.barrier = -1  # what everything issued from now on waits for (R4.1, D1, R3.7)
        self.running = 0  # operations on engines now
        self.both_ways = False  # copies of both directions run and slow each other (R3.11)
        split = split_of(machine, grids, plan.units, plan.capacity)
        exclusive = machine.kernels == "exclusive"
        self.sms = Sms(plan.capacity, machine.resident_grids, exclusive=exclusive, split=split)
        drains = machine.copy_arbitration == "drain_channel"
        self.copies: dict[int, CopyEngine] = {
            place: CopyEngine(engines, drains=drains, turnaround=round(machine.turnaround.get(word, 0) * 1000))
            for place, word, engines in (
                (Place.H2D, "h2d", 1 if machine.shared_copy_engine else machine.h2d_engines),
                (Place.D2H, "d2h", machine.d2h_engines),
                (Place.PEER, "peer", machine.peer_engines),
            )
        }
        others: dict[int, Server] = {
            Place.SM: self.sms, Place.WORKER: workers, Place.GRAPH: GraphRunner(), Place.BATCH: BatchRunner(),
        }  # fmt: skip
        at_once = NoWaiting()
        self.engines: list[Server] = [(others | self.copies).get(place, at_once) for place in PLACES]
        self.pool: Pool | None = None
        self.queues = self._queues(machine)

    def _queues(self, machine: Machine) -> list[Channels | Pool | None]:
        """R6.4 to R6.7; None: no limit."""
        queues: list[Channels | Pool | None] = [None] * len(PLACES)
        compute, per_direction = machine.queues_of(copies=False), machine.queues_of(copies=True)
        sticky, own = machine.queue_policy == "sticky", machine.default_stream_queue == "own"
        if compute is not None and machine.queue_policy == "pool":
            queues[Place.SM] = self.pool = Pool(compute)
        elif compute is not None:
            queues[Place.SM] = Channels(compute, Place.SM, sticky=sticky, default_own=own)
            queues[Place.INLINE] = queues[Place.SM]  # R3.13: inside the compute channel
        if per_direction is not None:
            for place in (Place.H2D, Place.D2H):
                queues[place] = Channels(per_direction, place, sticky=sticky, default_own=own)
        return queues

    def all_streams(self) -> list[StreamState]:
        """Give all its streams, the legacy one too if the program does not use it itself."""
        return self.streams if self.legacy.row >= 0 else [*self.streams, self.legacy]

    def other_streams(self, *, blocking_only: bool) -> list[StreamState]:
        """Give all its streams, or the legacy one and those that wait for it."""
        return [self.legacy, *self.feeders] if blocking_only else self.all_streams()


def make_devices(program: Program, machine: Machine, plan: Plan) -> tuple[list[DeviceState], list[StreamState]]:
    """Make the devices that a program names, and its streams on them."""
    rows, infos = program.rows, program.streams
    peers = rows.second[rows.op == OP.P2P]
    named = [info.device for info in infos] + [int(rows.device.max(initial=0)), int(peers.max(initial=0))]
    workers = Workers(machine.hostfn_workers)
    devices = [DeviceState(index, machine, program.grids, plan, workers) for index in range(1 + max(named))]
    streams: list[StreamState] = []
    created = 0
    for row, info in enumerate(infos):
        device, number = devices[info.device], created if info.created else -1
        created += info.created
        stream = StreamState(row, info.kind, number, machine.clamped(info.priority), device)
        streams.append(stream)
        device.streams.append(stream)
        if stream.legacy:
            device.legacy = stream
        elif fences(info.kind, StreamKind.LEGACY):
            device.feeders.append(stream)
    return devices, streams


def hop_table(machine: Machine) -> list[list[tuple[int, ...] | None]] | None:
    """Give the machine's hops in ps, by the places of both operations; None if it has none."""
    if not machine.hops and not machine.graph_node_cost and not machine.device_hop:
        return None
    table: list[list[tuple[int, ...] | None]] = [[None] * len(PLACES) for _ in PLACES]
    places = {word: place for place, word in WORD_OF_PLACE.items()}
    for key, hops in machine.hops.items():
        before, _, after = key.partition(">")
        table[places[before]][places[after]] = tuple(round(hop * 1000) for hop in hops)
    return table


def latencies(machine: Machine) -> list[int]:
    """Give the time from the end of a call's cost to the earliest start of its operation, in ps, by place."""
    return [round(machine.issue_latency.get(WORD_OF_PLACE.get(place, ""), 0) * 1000) for place in PLACES]


assert set(WORD_OF_PLACE.values()) == set(ENGINE_WORDS)
