"""A GPU that is only computed: the model's engines and clock, and memory that is really written.

For tests and for teaching. Work is done late: a stream's work, and a copy by a crew, happens when somebody waits for it
(or, under exploration, at a random moment before). Who reads memory without having waited reads what was there before,
and the log of everything that was asked, a Program of the model, says by which rule the two had no order::

    device = Simulated(seed=7)                  # explore: seed 7 stands for one order of events
    pipe = gapless.Pipeline(kernel, device=device)
    y = pipe(x)
    assert not find_races(device.program())

Times are computed, in ns, from a Machine's curves: each copy at the rate it has alone, kernels one after another.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from gapless.model.kinds import MemoryKind, OpKind
from gapless.model.knobs import Curve
from gapless.model.machine import Machine

from . import Copied, Copies, DeviceArray, HostArray, Job, KernelOptions, Launch, Source
from .crew import copy
from .host import Memory, numpy_launch
from .simulated_log import Entry, Log

CALL_NS = 2_000  # a call of the host
HOST_COPY_NS = 0.1  # a byte copied by one thread: 10 GB/s
KERNEL_NS = 0.0005  # a byte that a kernel reads or writes: 2 TB/s


@dataclass(slots=True, eq=False)
class Item:
    """Work that is still to happen, or has."""

    engine: OpKind | None  # None: a host thread of the crew
    run: Callable[[], None]
    after: list[Item]
    given: int  # ns, when it was asked for
    duration: Callable[[], int]
    done: bool = False
    end: int = 0


class Event:
    """Stands for an item; for none, it is done."""

    __slots__ = ("_device", "item", "name")

    def __init__(self, device: Simulated, name: str) -> None:
        self._device = device
        self.name = name
        self.item: Item | None = None

    def wait(self) -> None:
        """Let the main thread wait."""
        self._device.reach(self.item)
        self._device.note(Entry("main", "sync", self.name))

    def done(self) -> bool:
        """Tell whether the work is over; a query that says so is as good as a wait (section 4)."""
        over = self.item is None or self.item.done
        if over:
            self._device.note(Entry("main", "sync", self.name))
        return over

    def time_ns(self) -> int:
        """Give when it was over."""
        return 0 if self.item is None else self.item.end


class Stream:
    """Work in order."""

    def __init__(self, device: Simulated, row: int) -> None:
        self._device = device
        self._row = row
        self._last: Item | None = None

    def submit(self, kind: OpKind, commands: Callable[[], None], event: Any, size: int = 0) -> None:
        """Add work, then record the event. The work happens later."""
        device = self._device
        device.advance(CALL_NS)
        entry = device.note(Entry("main", kind.name.lower(), device.number(kind), self._row, size))

        def run() -> None:
            with device.doing(entry):
                commands()

        after = [] if self._last is None else [self._last]
        self._last = device.add(kind, run, after, lambda: device.cost(kind, entry))
        if event is not None:
            event.item = self._last
            device.note(Entry("main", "record", event.name, self._row))
        device.explore()

    def h2d(self, target: DeviceArray, source: HostArray) -> None:
        """Copy to the device."""
        self._device.copy(cast(HostArray, target), source)

    def d2h(self, target: HostArray, source: DeviceArray) -> None:
        """Copy to the host."""
        self._device.copy(target, cast(HostArray, source))


@dataclass(slots=True, eq=False)
class Task:
    """What a lane was asked to do."""

    token: Any
    copies: Copies
    message: str  # names the asking and the answer in the log
    span: tuple[int, int] | None = None  # when it was copied
    problem: BaseException | None = None
    last: Item | None = None  # the copy it is at, or ended with

    def copied(self) -> Copied:
        """Say what has been done."""
        start, end = self.span or (0, 0)
        return Copied(self.token, self.span, end - start, self.problem)


class Crew:
    """Lanes whose copies happen later, each in order; where the device pools, a lane for each task."""

    def __init__(self, device: Simulated) -> None:
        self._device = device
        self._lanes: defaultdict[int, list[Task]] = defaultdict(list)  # the first of each is under way
        self._before: dict[int, Item] = {}
        self._asked: list[Task] = []
        self._count = 0

    def submit(self, lane: int, token: Any, copies: Copies) -> None:
        """Ask a lane to copy."""
        self._count += 1
        task = Task(token, copies, f"{self._device.names}.{id(self)}.{self._count}")
        self._device.note(Entry("main", "send", f"ask {task.message}"))
        self._asked.append(task)
        lane = self._count if self._device.pools else lane
        self._lanes[lane].append(task)
        if len(self._lanes[lane]) == 1:
            self._begin(lane, task)
        self._device.explore()

    def next(self) -> Copied:
        """Wait until some lane is done with something."""
        device = self._device
        while not (done := [task for task in self._asked if task.span is not None]):
            device.step([task.last for task in self._asked if task.last is not None])
        task = device.choose(done, key=_end)
        self._asked.remove(task)
        device.note(Entry("main", "receive", f"did {task.message}"))
        device.advance_to(_end(task))
        return task.copied()

    def close(self) -> list[Copied]:
        """Let what was begun happen."""
        for tasks in self._lanes.values():
            del tasks[1:]
            while tasks:
                self._device.reach(tasks[0].last)
        news = [task.copied() for task in self._asked if task.span is not None]
        self._asked.clear()
        return news

    def _begin(self, lane: int, task: Task) -> None:
        """Let a lane take its next task."""
        device, thread, event = self._device, f"lane{lane}", task.copies.after
        work = Entry(thread, "write", f"copy {task.message}")

        def run() -> None:
            device.note(Entry(thread, "receive", f"ask {task.message}"))
            if event is not None:
                device.note(Entry(thread, "sync", cast(Event, event).name))
            device.note(work)
            try:
                with device.doing(work):
                    for target, source in task.copies.pairs:
                        device.copy(target, source)
            except BaseException as problem:
                task.problem = problem
            end = device.begin(item) + device.cost(None, work)
            task.span = end - work.duration, end
            device.note(Entry(thread, "send", f"did {task.message}"))
            self._lanes[lane].remove(task)
            if self._lanes[lane]:
                self._begin(lane, self._lanes[lane][0])

        awaited: Item | None = getattr(event, "item", None)
        after = [item for item in (self._before.get(lane), awaited) if item is not None]
        item = device.add(None, run, after, lambda: work.duration)
        task.last = self._before[lane] = item


def _end(task: Task) -> int:
    return task.span[1] if task.span is not None else 0


class Simulated(Log):
    """A computed GPU. *seed* explores: it stands for one of the orders in which things may happen, and their lengths.

    *kernel_ns* is the time of a kernel as a function of the bytes it reads and writes. *pools*: copies that
    a crew is asked for have no order among each other, even of one lane.
    """

    real = False
    stages = True
    timing_costs = False

    def __init__(
        self,
        machine: Machine | None = None,
        *,
        seed: int | None = None,
        kernel_ns: Callable[[int], float] | None = None,
        pools: bool = False,
    ) -> None:
        super().__init__()
        self.machine = Machine.named("h200") if machine is None else machine
        self.name = f"simulated {self.machine.name}"
        self.key = self.name if seed is None else f"{self.name}, exploring"  # where nothing takes its usual time
        self._random = None if seed is None else random.Random(seed)
        self._kernel_ns = kernel_ns or (lambda size: 2_000 + KERNEL_NS * size)
        self.pools = pools
        self._now = 0
        self._pending: list[Item] = []
        self._free: dict[OpKind | None, int] = {}
        self.names = 0

    # ------------------------------------------------------------------------------------ what a device can do

    def stream(self, priority: int = 0) -> Stream:
        """Make a stream."""
        return Stream(self, self.new_stream())

    def event(self, *, spins: bool = True, timed: bool = True) -> Event:
        """Make an event."""
        return Event(self, self.new_event())

    def memory(self, nbytes: int) -> Memory:
        """Allocate device memory, full of rubbish."""
        memory = Memory(nbytes)
        block = cast(HostArray, memory.array(0, (nbytes,), np.dtype(np.uint8)))
        block[:] = 0xA5
        self.keep(block, MemoryKind.DEVICE)
        return memory

    def pinned(self, nbytes: int) -> HostArray:
        """Allocate pinned memory, full of rubbish."""
        block = np.full(nbytes, 0x5A, np.uint8)
        self.keep(block, MemoryKind.PINNED)
        return block

    def is_pinned(self, array: HostArray) -> bool:
        """Tell whether ``pinned`` gave this memory."""
        return self.kind_of(array) is MemoryKind.PINNED

    def register(self, array: HostArray) -> Callable[[], None] | None:
        """Pin nothing in place."""
        return None

    def crew(self, lanes: int, threads: int) -> Crew:
        """Make a crew."""
        self.names += 1
        return Crew(self)

    def kernel(self, kernel: Any, options: KernelOptions) -> Launch:
        """Call a function of NumPy arrays, and note what it reads and writes."""
        call = numpy_launch(kernel, "a simulated GPU")

        def launch(stream: Any, job: Job) -> tuple[Any, ...]:
            self.touch(*cast("tuple[HostArray, ...]", job.inputs))
            outputs = call(stream, job)
            for output in outputs:
                if self.find(output) is None:
                    self.keep(output, MemoryKind.DEVICE)
            self.touch(*outputs, write=True)
            return outputs

        return launch

    def now_ns(self) -> int:
        """Give the computed time."""
        return self._now

    def align_clock(self) -> None:
        """Have one clock."""

    def free_bytes(self) -> int:
        """Not tell."""
        return 0

    # -------------------------------------------------------------------------------------------- what happens

    def add(
        self, engine: OpKind | None, run: Callable[[], None], after: list[Item], duration: Callable[[], int]
    ) -> Item:
        """Add work that is to happen."""
        item = Item(engine, run, after, self._now, duration)
        self._pending.append(item)
        return item

    def reach(self, item: Item | None) -> None:
        """Let things happen until this has, and the host's clock come to its end."""
        while item is not None and not item.done:
            self.step([item])
        if item is not None:
            self.advance_to(item.end)

    def step(self, wanted: list[Item]) -> None:
        """Let one thing happen that some wanted item needs; under exploration, anything that can."""
        ready = self._ready()
        if not ready:
            raise RuntimeError("the simulated device waits for work that nobody has given: a deadlock")
        if self._random is None:
            needed = _needs(wanted)
            ready = [item for item in ready if item in needed] or ready
        self._happen(self.choose(ready, key=self.begin))

    def explore(self) -> None:
        """Under exploration, let some things happen now."""
        while self._random is not None and self._random.random() < 0.5 and (ready := self._ready()):
            self._happen(self.choose(ready, key=self.begin))

    def choose(self, among: list[Any], key: Callable[[Any], int]) -> Any:
        """Choose one: the first by *key*; under exploration, any."""
        return min(among, key=key) if self._random is None else self._random.choice(among)

    def copy(self, target: HostArray, source: Source) -> None:
        """Copy, and note what was read and written."""
        copy(target, source)
        self.touch(*([source] if isinstance(source, np.ndarray) else source))
        self.touch(target, write=True)

    def advance(self, duration: int) -> None:
        """Let the main thread work for a time."""
        self._now += duration

    def advance_to(self, time: int) -> None:
        """Let the main thread wait until a time."""
        self._now = max(self._now, time)

    def cost(self, kind: OpKind | None, entry: Entry) -> int:
        """Give how long work takes, from the bytes it touched."""
        moved = sum(high - low for _, low, high in entry.writes)
        if kind is None:
            duration = HOST_COPY_NS * moved
        elif kind is OpKind.KERNEL:
            touched = moved + sum(high - low for _, low, high in entry.reads)
            duration = self._kernel_ns(touched) if touched else 0
        else:
            curve = self.machine.h2d_curve if kind is OpKind.H2D else self.machine.d2h_curve
            duration = _on_curve(curve, moved) if moved else 0
            entry.bytes = moved
        if self._random is not None:
            duration *= self._random.choice((0.1, 1, 1, 10))
        entry.duration = round(duration)
        return entry.duration

    def _ready(self) -> list[Item]:
        return [item for item in self._pending if all(earlier.done for earlier in item.after)]

    def begin(self, item: Item) -> int:
        """Give when an item can begin: after what it follows, and when its engine is free."""
        earliest = max([item.given, *(earlier.end for earlier in item.after)])
        return earliest if item.engine is None else max(earliest, self._free.get(item.engine, 0))

    def _happen(self, item: Item) -> None:
        self._pending.remove(item)
        item.run()
        item.end = self.begin(item) + item.duration()
        if item.engine is not None:
            self._free[item.engine] = item.end
        item.after.clear()
        item.done = True


def _needs(wanted: list[Item]) -> set[Item]:
    found: set[Item] = set()
    rest = list(wanted)
    while rest:
        item = rest.pop()
        if item not in found:
            found.add(item)
            rest += item.after
    return found


def _on_curve(curve: Curve, size: int) -> float:
    """Read a curve of (bytes, ns): the first value before it, the last slope beyond it."""
    if not curve:
        return 0.0
    sizes, times = zip(*((point[0], point[1]) for point in curve), strict=True)
    if size > sizes[-1] and len(sizes) > 1:
        return times[-1] + (times[-1] - times[-2]) / (sizes[-1] - sizes[-2]) * (size - sizes[-1])
    return float(np.interp(size, sizes, times))
