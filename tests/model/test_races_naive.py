"""The race check agrees with a slow and simple one on random programs.

The simple one is written from section 9 alone: it draws every happens-before edge between the begin and the end of
every call and operation, closes the relation, and looks at every pair of accesses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gapless.model.errors import DeadlockError
from gapless.model.explore import replay
from gapless.model.happens_before import Happened, Order, Step, happened_in, order, walk
from gapless.model.kinds import CALL, FLAG, MEMORY, OP, SourceOrder, StreamKind
from gapless.model.machine import Machine
from gapless.model.ordering import is_empty_action
from gapless.model.program import Buffer, Event, Program, Stream, Word
from gapless.model.races import Race, RaceClass, find_races
from gapless.model.repairs import Insertion
from gapless.model.schedule import Schedule, schedule
from gapless.model.value_order import ValueWalk

# ------------------------------------------------------------------------------------------------- the simple checker

Job = tuple[int, int]  # row, and which run of it
ALLOCATIONS = (CALL.MALLOC, CALL.MALLOC_ASYNC)
FREES = (CALL.FREE, CALL.FREE_ASYNC)
NO_BYTES = (OP.KERNEL, OP.WRITE_VALUE, OP.WAIT_VALUE)


@dataclass
class Naive:
    program: Program
    happened: Happened
    edges: dict[int, set[int]] = field(default_factory=dict)
    numbers: dict[object, int] = field(default_factory=dict)
    behind: dict[int, int] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows = self.program.rows
        self.r = {name: getattr(rows, name).tolist() for name in rows.__slots__}
        self.infos = self.program.streams
        self.stream_ops: list[tuple[Job, int, bool, bool]] = []  # job, stream, is it empty, is it a record
        self.build()

    def number(self, node: object) -> int:
        return self.numbers.setdefault(node, len(self.numbers))

    def edge(self, a: object, b: object) -> None:
        self.edges.setdefault(self.number(a), set()).add(self.number(b))

    def reached(self, a: int) -> int:
        """All nodes behind one, as the bits of a number."""
        if a not in self.behind:
            bits = 0
            for b in self.edges.get(a, ()):
                bits |= 1 << b | self.reached(b)
            self.behind[a] = bits
        return self.behind[a]

    def is_ordered(self, a: object, b: object) -> bool:
        return bool(self.reached(self.number(a)) >> self.number(b) & 1)

    def kind(self, stream: int) -> StreamKind:
        return self.infos[stream].kind

    def is_fenced(self, a: int, b: int) -> bool:
        """R2.1: the legacy stream on one side, a blocking one on the other, of one device."""
        blocking = (StreamKind.BLOCKING, StreamKind.PER_THREAD)
        legacy = StreamKind.LEGACY
        x, y = self.kind(a), self.kind(b)
        return self.infos[a].device == self.infos[b].device and (
            (x == legacy and y in blocking) or (y == legacy and x in blocking)
        )

    def build(self) -> None:
        issued, batch = self.happened.issued, (-1, 0)
        last_call: dict[int, int] = {}
        events: dict[int, int | None] = {}  # event -> record row
        waits_of: dict[int, list[int]] = {}
        sent: dict[int, list[int]] = {}
        received: dict[int, list[int]] = {}
        captures: dict[int, dict] = {}
        captured: dict[int, tuple[dict, list[int]]] = {}
        graphs: dict[int, dict] = {}
        for row in issued:
            call, op, stream, thing = (self.r[n][row] for n in ("call", "op", "stream", "object"))
            self.edge(("begin", row), ("return", row))
            thread = self.r["thread"][row]
            if thread in last_call:
                self.edge(("return", last_call[thread]), ("begin", row))  # HB1
            last_call[thread] = row
            if call == CALL.BATCH and self.happened.errors[row]:
                batch = (row, 0)  # R3.9: refused, with its copies
                continue
            error = 0 if self.happened.errors is None else self.happened.errors[row]
            if op >= 0:
                if op == OP.WAIT and thing in captured:
                    capture, tips = captured[thing]
                    if capture["open"]:
                        captures[stream] = capture
                        capture["tips"].setdefault(stream, [])
                        capture["tips"][stream] = capture["tips"][stream] + tips
                elif stream in captures:
                    capture = captures[stream]
                    if op == OP.RECORD:
                        captured[thing] = (capture, list(capture["tips"][stream]))
                        events[thing] = None
                    elif op != OP.WAIT:
                        capture["nodes"].append((row, list(capture["tips"][stream])))
                        capture["tips"][stream] = [row]
                elif op == OP.GRAPH:
                    if thing in graphs:
                        self.launch(row, stream, graphs[thing], waits_of)
                elif op == OP.WAIT and events.get(thing) is None:
                    pass  # R5.3
                else:
                    if op == OP.WAIT:
                        waits_of.setdefault(stream, []).append(events[thing])
                    if call != CALL.BATCHED:
                        batch = (row, 0)
                        self.operation(batch, stream, waits_of)
                    elif not self.happened.errors[batch[0]]:
                        self.copy_of_a_batch((row, 0), batch)
                    if op == OP.RECORD:
                        events[thing] = row
                        captured.pop(thing, None)
                    if self.completes(row):
                        self.edge(("done", (row, 0)), ("return", row))  # HB6
            elif call == CALL.SEND:
                self.jobs.append((row, 0))
                sent.setdefault(thing, []).append(row)
            elif call == CALL.RECEIVE:
                self.jobs.append((row, 0))
                received.setdefault(thing, []).append(row)  # it may be called before the send
            else:
                self.jobs.append((row, 0))
                self.call(row, call, stream, thing, error, events, captures, graphs)
        for message, receives in received.items():
            for send, receive in zip(sent[message], receives, strict=False):
                self.edge(("return", send), ("return", receive))  # HB14

    def call(self, row, call, stream, thing, error, events, captures, graphs) -> None:
        is_query = call == CALL.QUERY and self.happened.errors is not None and error == 0
        if call == CALL.SYNC_DEVICE:
            for job, s, _, _ in self.stream_ops:
                if self.r["device"][row] in self.devices(job, s):
                    self.edge(("done", job), ("return", row))
        elif call == CALL.SYNC_EVENT or (is_query and stream < 0):
            if events.get(thing) is not None:
                self.edge(("snapshot", (events[thing], 0)), ("return", row))
        elif call == CALL.SYNC_STREAM or is_query:
            for job, s, _, _ in self.stream_ops:
                with_blocking = self.kind(stream) == StreamKind.LEGACY and self.is_fenced(stream, s)  # R2.5
                if stream in self.legacies(job, s) or with_blocking:
                    self.edge(("done", job), ("return", row))
        elif call == CALL.CAPTURE:
            captures[stream] = {"open": True, "nodes": [], "tips": {stream: []}}
        elif call == CALL.CAPTURE_END and stream in captures:
            capture = captures[stream]
            capture["open"] = False
            for s in [s for s, other in captures.items() if other is capture]:
                del captures[s]
            graphs[thing] = {"nodes": capture["nodes"], "runs": {}, "before": None}

    def devices(self, job: Job, stream: int) -> set[int]:
        here = {self.infos[stream].device}
        return here | {self.r["second"][job[0]]} if self.is_peer(job) else here

    def is_peer(self, job: Job) -> bool:
        return self.r["op"][job[0]] == OP.P2P and self.r["call"][job[0]] == CALL.COPY_SYNC

    def legacies(self, job: Job, stream: int) -> set[int]:
        """The streams that an operation stands in: a synchronous peer copy in both legacy streams (HB12)."""
        there = {
            s for s, i in enumerate(self.infos) if i.kind == StreamKind.LEGACY and i.device in self.devices(job, stream)
        }
        return there if self.is_peer(job) else {stream}

    def operation(self, job: Job, stream: int, waits_of: dict[int, list[int]], empty: bool = False) -> None:
        row = job[0]
        op = self.r["op"][row]
        empty = empty or op == OP.MALLOC or (self.r["bytes"][row] == 0 and op not in NO_BYTES)
        record = op == OP.RECORD
        self.jobs.append(job)
        self.edge(("begin", row), ("start", job))  # HB2
        self.edge(("start", job), ("done", job))
        self.edge(("source read", job), ("return", row))  # HB8
        self.edge(("source read", job), ("done", job))  # what is not read cannot have been copied
        if record:  # an event is complete when the record is, and all that it covers
            self.edge(("start", job), ("covered", job))
            self.edge(("covered", job), ("snapshot", job))
            self.edge(("done", job), ("snapshot", job))
        mine = self.legacies(job, stream)
        for other, s, _, was_record in self.stream_ops:
            theirs = self.legacies(other, s)
            if mine & theirs:
                self.edge(("done", other), ("start", job))  # HB3
            elif any(self.fenced_pair(a, b) for a in theirs for b in mine):
                into_legacy = any(self.kind(m) == StreamKind.LEGACY for m in mine)
                out_of_legacy = any(self.kind(t) == StreamKind.LEGACY for t in theirs)
                if record and into_legacy:
                    self.edge(("done", other), ("covered", job))  # R2.3: covered, and it orders nothing else
                elif not (empty and into_legacy) and not (was_record and out_of_legacy):  # R2.3
                    self.edge(("done", other), ("start", job))  # HB4
            if self.is_peer(job) and not empty and self.is_peer_fenced(job, stream, s):
                self.edge(("done", other), ("start", job))  # HB12
            if self.is_peer(other) and self.is_peer_fenced(other, s, stream):
                self.edge(("done", other), ("start", job))  # HB12
        if op == OP.WAIT_VALUE and row in self.happened.behind:  # R5.9
            writer = self.happened.behind[row]
            by_stream = self.r["op"][writer] >= 0
            self.edge(("done", (writer, 0)) if by_stream else ("return", writer), ("start", job))
        for recorded in waits_of.get(stream, ()):
            self.edge(("snapshot", (recorded, 0)), ("start", job))  # HB5
        self.stream_ops.append((job, stream, empty, record))

    def copy_of_a_batch(self, job: Job, batch: Job) -> None:
        """R3.9: behind what is before the batch, before what is behind it, in no order with the other copies."""
        self.jobs.append(job)
        self.edge(("start", batch), ("start", job))
        self.edge(("start", job), ("done", job))
        self.edge(("done", job), ("done", batch))
        self.edge(("begin", batch[0]), ("begin", job[0]))
        self.edge(("begin of call", job), ("start", job))
        self.edge(("begin", batch[0]), ("begin of call", job))
        self.edge(("source read", job), ("return", batch[0]))
        self.edge(("source read", job), ("done", job))

    def fenced_pair(self, a: int, b: int) -> bool:
        return self.is_fenced(a, b)

    def is_peer_fenced(self, job: Job, stream: int, other: int) -> bool:
        kinds = (StreamKind.LEGACY, StreamKind.BLOCKING, StreamKind.PER_THREAD)
        return self.infos[other].device in self.devices(job, stream) and self.kind(other) in kinds

    def launch(self, row: int, stream: int, graph: dict, waits_of: dict[int, list[int]]) -> None:
        job = (row, 0)
        self.operation(job, stream, waits_of, empty=not graph["nodes"])
        if graph["before"] is not None:
            self.edge(("done", graph["before"]), ("start", job))  # R7.1
        graph["before"] = job
        runs = {}
        for node, after in graph["nodes"]:
            run = graph["runs"][node] = graph["runs"].get(node, 0) + 1
            runs[node] = (node, run)
            self.jobs.append((node, run))
            self.edge(("start", job), ("start", (node, run)))
            self.edge(("start", (node, run)), ("done", (node, run)))
            self.edge(("done", (node, run)), ("done", job))
            for other in after:
                self.edge(("done", runs[other]), ("start", (node, run)))

    def completes(self, row: int) -> bool:
        call, op, src, dst = (self.r[n][row] for n in ("call", "op", "src", "dst"))
        if call == CALL.COPY_SYNC:
            return op in (OP.D2H, OP.H2H) or (op == OP.H2D and src == MEMORY.PINNED)
        return (call == CALL.MEMSET_SYNC and dst == MEMORY.PINNED) or (call == CALL.COPY_ASYNC and op == OP.H2H)

    # ----------------------------------------------------------------------------------------------- what it answers

    def start_of(self, job: Job) -> object:
        op = self.r["op"][job[0]]
        return ("covered", job) if op == OP.RECORD else ("start", job) if op >= 0 else ("begin", job[0])

    def end_of(self, job: Job) -> object:
        return ("done", job) if self.r["op"][job[0]] >= 0 else ("return", job[0])

    def before(self, x: Job, y: Job) -> bool:
        return self.is_ordered(self.end_of(x), self.start_of(y))

    def accesses(self) -> Iterator[Access]:
        """All accesses in issue order, allocations and frees among them."""
        table = self.program.accesses
        touched = list(
            zip(*(getattr(table, n).tolist() for n in ("row", "buffer", "write", "low", "high")), strict=True)
        )
        for job in self.jobs:
            row = job[0]
            call, op, src, dst = (self.r[n][row] for n in ("call", "op", "src", "dst"))
            start, end, by_host = self.start_of(job), self.end_of(job), op < 0
            if call in ALLOCATIONS or call in FREES:
                yield Access(job, self.r["object"][row], True, (0, 100), start, end, by_host, lifetime=True)
            for at, buffer, write, low, high in touched:
                if at != row:
                    continue
                size = self.program.buffers[buffer].bytes
                access = Access(job, buffer, write, (low, high if high >= 0 else size), start, end, by_host)
                if call == CALL.BATCHED:
                    yield from self.of_batch(access)
                    continue
                if op == OP.H2D and not write and src == MEMORY.PAGEABLE:
                    access.start = ("begin", row)
                    if call == CALL.COPY_SYNC:
                        access.end, access.by_host = ("source read", job), True
                    else:
                        access.hidden = access.from_call_on = True
                elif op == OP.D2H and write and dst == MEMORY.PAGEABLE and call == CALL.COPY_ASYNC:
                    access.hidden = True
                yield access

    def of_batch(self, access: Access) -> Iterator[Access]:
        """R3.9: when a copy of a batch may read its source."""
        flags = self.r["flags"][access.job[0]]
        if not access.write and flags & (FLAG.DURING_CALL | FLAG.ANY_TIME):
            begin = ("begin of call", access.job)
            end = access.end if flags & FLAG.ANY_TIME else ("source read", access.job)
            yield replace(access, start=begin, end=end, by_host=True)
        else:
            yield access

    def races(self) -> dict[tuple[Job, Job], RaceClass]:
        """Unordered conflicting pairs, first issued first, and uses on the wrong side of an allocation or a free."""
        found: dict[tuple[Job, Job], RaceClass] = {}
        seen: list[Access] = []
        now: dict[int, int] = {}  # buffer -> which of its memories
        touched, freed = set(), {}

        def race(x: Access, y: Access, kind: RaceClass) -> None:
            if x.job != y.job:
                found[x.job, y.job] = min(kind, found.get((x.job, y.job), kind))

        for y in self.accesses():
            buffer, call = y.buffer, self.r["call"][y.job[0]]
            first_malloc = y.lifetime and call in ALLOCATIONS and buffer not in touched
            if y.lifetime and call in ALLOCATIONS and buffer in touched:
                now[buffer] = now.get(buffer, 0) + 1
            y.memory = (buffer, now.get(buffer, 0))
            for x in seen:
                if x.memory == y.memory:
                    turned = self.is_ordered(y.end, x.start)  # by a value, what was issued first may come last
                    if (first_malloc and not turned) or (y.lifetime and call in FREES and turned):
                        race(x, y, RaceClass.UNALLOCATED)
                    shared = x.bytes[0] < y.bytes[1] and y.bytes[0] < x.bytes[1]
                    if shared and (x.write or y.write) and not turned and not self.is_ordered(x.end, y.start):
                        race(x, y, self.kind_of(x, y))
            for free in freed.get(y.memory, ()):
                if self.is_ordered(free.end, y.start):
                    race(free, y, RaceClass.UNALLOCATED)
            if y.lifetime:
                touched.add(buffer)
                if call in FREES:
                    freed.setdefault(y.memory, []).append(y)
            seen.append(y)
        return found

    def kind_of(self, x: Access, y: Access) -> RaceClass:
        behind_call = self.is_ordered(("return", x.job[0]), ("begin", y.job[0]))
        only_at_call = y.from_call_on and self.is_ordered(x.end, ("start", y.job))
        if x.hidden and behind_call and (y.by_host or only_at_call):
            return RaceClass.WARNING
        return RaceClass.UNALLOCATED if x.lifetime or y.lifetime else RaceClass.ERROR


@dataclass
class Access:
    job: Job
    buffer: int
    write: bool
    bytes: tuple[int, int]
    start: object
    end: object
    by_host: bool
    lifetime: bool = False
    hidden: bool = False  # by today's drivers
    from_call_on: bool = False
    memory: tuple[int, int] = (0, 0)


# --------------------------------------------------------------------------------------------------- random programs

KINDS = (
    StreamKind.NON_BLOCKING,
    StreamKind.NON_BLOCKING,
    StreamKind.BLOCKING,
    StreamKind.BLOCKING,
    StreamKind.PER_THREAD,
)
STATEMENTS = (
    "kernel", "kernel", "h2d", "d2h", "sync copy", "memset", "record", "record", "wait", "wait", "sync", "sync event",
    "sync device", "query", "read", "write", "send", "receive", "graph", "launch", "peer", "malloc", "free", "empty",
)  # fmt: skip
numbers = st.integers(0, len(STATEMENTS) * 6**4 - 1)
statements = st.lists(numbers, min_size=2, max_size=24)


VALUES = (*STATEMENTS, *("wait value", "write value", "store", "batch") * 3)


def decoded(number: int, of: tuple[str, ...] = STATEMENTS) -> tuple[str, int, int, int, int]:
    """What a drawn number says: a statement and four small numbers for its thread, stream, buffers and so on."""
    what, *digits = (number // 6**i for i in (4, 3, 2, 1, 0))
    thread, a, b, c = (digit % 6 for digit in digits)
    return of[what], thread, a, b, c


class Builder:
    """Turns drawn numbers into a program over a few streams, events, buffers and threads."""

    def __init__(self, devices: int, threads: int) -> None:
        self.program = program = Program()
        self.streams: list[Stream] = []
        for device in range(devices):
            self.streams += [
                program.stream(f"s{device}{i}", kind, device=device) for i, kind in enumerate(KINDS[device:])
            ]
            self.streams.append(program.legacy(device))
        self.events: list[Event] = [program.event() for _ in range(3)]
        self.device: list[Buffer] = [program.buffer(f"d{i}", 100) for i in range(2)]
        self.pinned: list[Buffer] = [program.buffer(f"p{i}", 100, MEMORY.PINNED) for i in range(2)]
        self.pageable: list[Buffer] = [program.buffer(f"q{i}", 100, MEMORY.PAGEABLE) for i in range(2)]
        self.threads = threads
        self.devices = devices
        self.graphs = []
        self.words: list[Word] = [program.word() for _ in range(2)]
        self.sent: list[tuple[str, int]] = []

    def part(self, buffer: Buffer, at: int):
        return (buffer, buffer[0:50], buffer[50:], buffer[25:75], buffer, buffer)[at]

    def add(self, statement: tuple[str, int, int, int, int]) -> None:
        what, thread, a, b, c = statement
        with self.program.thread(["main", "T1", "T2"][thread % self.threads]):
            self.say(what, self.streams[a % len(self.streams)], thread, a, b, c)

    def say(self, what: str, stream: Stream, thread: int, a: int, b: int, c: int) -> None:
        program = self.program
        host = (self.pinned, self.pinned, self.pageable)[b % 3][c % 2]
        device = self.part(self.device[b % 2], c)
        match what:
            case "kernel":
                reads, writes = ([device], []) if a % 2 else ([], [device])
                stream.kernel(1000, reads=reads, writes=writes)
            case "h2d":
                stream.h2d(1000, src=host, dst=device)
            case "d2h":
                stream.d2h(1000, src=device, dst=host)
            case "sync copy":
                program.set_device(0)
                (program.h2d(1000, src=host, dst=device), program.d2h(1000, src=device, dst=host)) if c % 3 == 0 else (
                    program.h2d(1000, src=host, dst=device) if a % 2 else program.d2h(1000, src=device, dst=host)
                )
            case "memset":
                program.memset(1000, dst=self.pinned[b % 2]) if a % 2 else stream.memset(1000, dst=device)
            case "record":
                stream.record(self.events[b % 3])
            case "wait":
                stream.wait(self.events[b % 3])
            case "sync":
                stream.sync()
            case "sync event":
                self.events[b % 3].sync()
            case "sync device":
                program.set_device(a % self.devices)
                program.sync_device()
            case "query":
                stream.query() if c % 2 else self.events[b % 3].query()
            case "read":
                program.read(host)
            case "write":
                program.write(host)
            case "send":
                message = f"m{len(program.messages)}"
                program.send(message)
                self.sent.append((message, thread % self.threads))
            case "receive":
                open_ = [(m, t) for m, t in self.sent if t != thread % self.threads]
                if open_:
                    self.sent.remove(open_[0])
                    program.receive(open_[0][0])
            case "graph":
                self.capture(stream, a, b, c)
            case "launch":
                if self.graphs:
                    stream.launch(self.graphs[b % len(self.graphs)])
            case "peer":
                if self.devices > 1:
                    program.set_device(a % 2)
                    program.p2p(1000, 0 if c == 5 else 8, to=1 - a % 2, src=device, dst=self.device[1 - b % 2])
            case "malloc":
                stream.malloc(self.device[b % 2]) if c % 2 else program.malloc(self.device[b % 2])
            case "free":
                stream.free(self.device[b % 2]) if c % 2 else program.free(self.device[b % 2])
            case "wait value":
                stream.wait_value(self.words[c % 2], b % 3)
            case "write value":
                stream.write_value(self.words[c % 2], b % 3)
            case "store":
                self.words[c % 2].store(b % 3)
            case "batch":
                batch = stream.batch(order=SourceOrder(a % 3))
                batch.h2d(1000, src=host, dst=device)
                if b % 2:
                    batch.d2d(1000, src=self.device[0], dst=self.device[1])
            case _:
                stream.memset(0, 0)

    def capture(self, stream: Stream, a: int, b: int, c: int) -> None:
        """A fork, some work on both sides, and a join."""
        others = [s for s in self.streams if s.info.kind == StreamKind.NON_BLOCKING and s.row != stream.row]
        if stream.info.kind == StreamKind.LEGACY or not others:
            return
        side, fork, join = others[a % len(others)], self.program.event(), self.program.event()
        stream.capture()
        if b % 3:
            stream.kernel(1000, writes=[self.device[0]])
            stream.record(fork)
            side.wait(fork)
            side.kernel(1000, reads=[self.part(self.device[b % 2], c)])
            stream.kernel(1000, writes=[self.part(self.device[c % 2], a)])
            if b % 3 == 2:
                side.record(join)
                stream.wait(join)
                stream.kernel(1000, reads=[self.device[1]])
            side.record(join)
            stream.wait(join)
        elif c:
            stream.kernel(1000, reads=[self.device[1]])
        self.graphs.append(stream.end_capture())


def interleaved(program: Program, seed: int) -> list[int]:
    """An order of issue that the threads may have. A receive stands behind its send, a capture stays in one piece."""
    random, sent = Random(seed), set[int]()
    calls, objects, threads = (c.tolist() for c in (program.rows.call, program.rows.object, program.rows.thread))
    left = [deque(row for row, t in enumerate(threads) if t == thread) for thread in range(len(program.threads))]
    order: list[int] = []
    going_on: deque[int] | None = None
    while any(left):
        queue = going_on or random.choice([queue for queue in left if queue])
        call, message = calls[queue[0]], objects[queue[0]]
        if call == CALL.RECEIVE and message not in sent:
            continue
        if call == CALL.SEND:
            sent.add(message)
        going_on = queue if call == CALL.CAPTURE or (going_on and call != CALL.CAPTURE_END) else None
        order.append(queue.popleft())
    return order


def build(drawn, devices: int, threads: int, seed: int) -> tuple[Program, Happened]:
    builder = Builder(devices, threads)
    for statement in drawn:
        builder.add(decoded(statement))
    program = builder.program
    queries = program.rows.call == CALL.QUERY
    errors = [600 * ((row * 7 + len(drawn)) % 2) if query else 0 for row, query in enumerate(queries.tolist())]
    return program, Happened(errors=errors, issued=interleaved(program, seed))


@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(statements, st.integers(1, 2), st.integers(1, 3), st.integers(0, 3))
def test_agrees_with_the_transitive_closure(drawn, devices, threads, seed):
    program, happened = build(drawn, devices, threads, seed)
    naive = Naive(program, happened)
    fast = order(program, happened)
    for x in naive.jobs:
        for y in naive.jobs:
            if x != y:
                assert fast.before(x, y) == naive.before(x, y), (program.describe(x[0]), x, program.describe(y[0]), y)
    races = find_races(program, happened)
    assert not races.more
    found: dict[tuple[Job, Job], RaceClass] = {}  # the worst of each pair, which may race for several buffers
    for race in races:
        if race.kind != RaceClass.NONDETERMINISM:
            pair = (race.first.row, race.first.run), (race.second.row, race.second.run)
            found[pair] = min(race.kind, found.get(pair, race.kind))
    assert found == naive.races()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.integers(0, len(VALUES) * 6**4 - 1), min_size=2, max_size=16), st.integers(1, 2), st.integers(1, 3),
    st.booleans(),
)  # fmt: skip
def test_values_and_batches_agree_with_the_transitive_closure(drawn, devices, threads, free):
    """R3.9, R5.9: with the waits and writes of a run; the walk that puts off agrees where nothing has to be."""
    builder = Builder(devices, threads)
    for number in drawn:
        builder.add(decoded(number, VALUES))
    program = builder.program
    with program.thread("GO"):  # every wait ends
        program.host(10**9)
        for word in builder.words:
            word.store(2)
    try:
        run = schedule(program)
    except DeadlockError:
        return
    happened = happened_in(run)
    ops = program.rows.op.tolist()
    naive, put_off = Naive(program, happened), Order(program, ValueWalk(program, happened).steps())
    for fast in [order(program, happened), put_off] if free else [put_off]:
        for x in naive.jobs:
            for y in naive.jobs:
                if x != y and ops[x[0]] != OP.BATCH:
                    got, wanted = fast.before(x, y), naive.before(x, y)
                    assert got == wanted, (program.describe(x[0]), x, program.describe(y[0]), y)
    found: dict[tuple[Job, Job], RaceClass] = {}
    for race in find_races(program, happened):
        if race.kind != RaceClass.NONDETERMINISM and not race.unseen:
            pair = (race.first.row, race.first.run), (race.second.row, race.second.run)
            found[min(pair), max(pair)] = min(race.kind, found.get((min(pair), max(pair)), race.kind))
    wanted = {(min(pair), max(pair)): kind for pair, kind in naive.races().items()}
    assert found.keys() == wanted.keys()


# ---------------------------------------------------------------------------------------------------------- repairs


def repaired(program: Program, happened: Happened, race: Race) -> tuple[Program, Happened, dict[int, int]]:
    """The program with the statements of a repair put in; and where each row of it is now."""
    new = program.take(list(range(len(program))))
    added: list[tuple[Insertion, int]] = []
    for insertion in race.repair.add:
        thread = program.threads[program.rows.thread[insertion.row]]
        with new.thread(thread):
            added.append((insertion, said(new, insertion.statement)))

    def with_added(rows: list[int]) -> list[int]:
        put: list[int] = []
        for row in rows:
            put += [at for i, at in added if i.row == row and not i.after]
            put.append(row)
            put += [at for i, at in added if i.row == row and i.after]
        return put

    rows = with_added(list(range(len(program))))
    moved = {row: at for at, row in enumerate(rows)}
    errors = [happened.errors[row] if row < len(program) else 0 for row in rows]
    return new.take(rows), Happened(errors, [moved[row] for row in with_added(happened.issued)]), moved


def said(program: Program, statement: str) -> int:
    """Make the call that a statement of a repair asks for."""
    match statement.split():
        case [("record" | "wait") as what, event, "on", stream]:
            return getattr(stream_called(program, stream), what)(event_called(program, event))
        case ["sync", "event", event]:
            return event_called(program, event).sync()
        case ["sync", stream]:
            return stream_called(program, stream).sync()
        case ["send", message]:
            return program.send(message)
        case ["receive", message]:
            return program.receive(message)
    raise AssertionError(statement)


def stream_called(program: Program, name: str) -> Stream:
    return Stream(program, next(row for row, info in enumerate(program.streams) if info.name == name))


def event_called(program: Program, name: str) -> Event:
    row = next((row for row, info in enumerate(program.events) if info.name == name), -1)
    return program.event(name) if row < 0 else Event(program, row)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(numbers, min_size=2, max_size=12), st.integers(1, 2), st.integers(1, 3), st.integers(0, 3))
def test_every_repair_repairs(drawn, devices, threads, seed):
    program, happened = build(drawn, devices, threads, seed)
    for race in find_races(program, happened)[:: max(1, len(drawn) // 4)]:
        new, then, moved = repaired(program, happened, race)
        left = find_races(new, then).between(
            *((moved[a.row], a.run) if a.run else moved[a.row] for a in (race.first, race.second))
        )
        if race.repair.add:
            assert race.kind not in [r.kind for r in left], (str(race), [new.describe(row) for row in then.issued])
        else:
            assert race.misplaced


# ------------------------------------------------------------------------------------------------ order and timing


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(statements, st.integers(1, 2), st.integers(1, 3), st.integers(0, 10**6), st.sampled_from(["teaching", "h200"]))
def test_whatever_is_varied_the_documented_order_is_kept(drawn, devices, threads, seed, profile):
    """What happens-before promises holds in every run that exploring comes up with."""
    program, _ = build(drawn, devices, threads, 0)
    run = replay(program, f"htm{seed}", Machine.named(profile))
    steps = list(walk(run.program, happened_in(run)))
    rows = run.program.rows
    for x in steps:
        for y in steps:
            if x is not y and y.knows(x.line, x.tick) and not is_empty_action(rows.op[x.row], rows.bytes[x.row]):
                assert interval(run, x)[1] <= interval(run, y)[0], (program.describe(x.row), program.describe(y.row))


def interval(run: Schedule, step: Step) -> tuple[int, int]:
    if run.program.rows.op[step.row] < 0:
        return int(run.begin[step.row]), int(run.returned[step.row])
    op = run.runs_of(step.row)[step.run - 1] if step.run else step.row
    assert run.start[op] >= 0
    return int(run.start[op]), int(run.end[op])
