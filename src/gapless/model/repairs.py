"""The shortest repair of a race: which event, wait or message to add to the program, and where."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count

from .happens_before import Happened, Moment, Step, issue_order, order
from .host_order import HostOrder
from .kinds import CallKind
from .program import Program

_LOOK_AT = 16  # records after an operation that are looked at for one whose event still stands


@dataclass(frozen=True, slots=True)
class Insertion:
    """A statement, as a tape says it, to add to the program directly before or after the call of a row."""

    statement: str
    row: int
    after: bool


@dataclass(frozen=True, slots=True)
class Repair:
    """What to do, in words, and the statements to add; none where something has to move instead."""

    text: str
    add: tuple[Insertion, ...] = ()

    def __str__(self) -> str:
        return self.text


def to_order(program: Program, x: Moment, y: Moment, happened: Happened | None = None) -> Repair:
    """Say what to add so that *x* (a row, or a run of a row) is over before *y* starts, where nothing orders them yet.

    Raises ``GaplessError`` for what never runs.
    """
    happened = happened or Happened()
    issued = issue_order(program) if happened.issued is None else happened.issued
    order_ = order(program, happened)
    first, then = order_.step(x), order_.step(y)
    names = Names(program, {row: order_.step(row).run for row in range(len(program)) if order_.runs(row)})
    repairs = Repairs(program, issued, HostOrder(program, issued), names)
    by_host = [bool(program.rows.op[step.row] < 0) for step in (first, then)]
    return repairs.shortest(first, then, *by_host)


class Names:
    """What operations and calls are called in reports."""

    def __init__(self, program: Program, runs: Mapping[int, int]) -> None:
        self._program = program
        self._runs = runs
        rows = program.rows
        self._texts = [n if n >= 0 else x for n, x in zip(rows.name.tolist(), rows.label.tolist(), strict=True)]
        self._descriptions: dict[int, str] = {}

    def of(self, row: int, run: int = 0) -> str:
        """Give the name of an operation or the label of a call, else a description; ``x.2`` for one run of several."""
        text = self._texts[row]
        name = self._program.strings[text] if text >= 0 else self._descriptions.get(row)
        if name is None:
            name = self._descriptions[row] = self._program.describe(row)
        return f"{name}.{run}" if run and self._runs.get(row, 0) > 1 else name

    def runs_itself(self, row: int) -> bool:
        """Tell whether the call of a row does something then and there."""
        return self._runs.get(row) == 0

    def is_last(self, row: int, run: int) -> bool:
        """Tell whether it is the last run of an operation of a graph, or no such operation."""
        return run == self._runs.get(row, 0)


class Repairs:
    """Finds repairs in one program whose calls are issued in this order."""

    def __init__(self, program: Program, issued: Sequence[int], hosts: HostOrder, names: Names) -> None:
        self._program = program
        self._hosts = hosts
        self._names = names
        rows = program.rows
        self._streams: list[int] = rows.stream.tolist()
        self._threads: list[int] = rows.thread.tolist()
        self._ops: list[int] = rows.op.tolist()
        self._issued = issued
        self._events: list[int] = rows.object.tolist()
        self._at = {row: at for at, row in enumerate(issued)}
        self._in_stream: dict[int, list[int]] = {}  # places in issue order of the operations of each stream
        self._records: dict[int, list[int]] = {}  # of the records in each stream
        self._recorded: dict[int, list[int]] = {}  # of the records of each event
        calls = rows.call.tolist()
        for at, row in enumerate(issued):
            if not names.runs_itself(row):  # it belongs to a graph
                continue
            if self._ops[row] >= 0 and calls[row] != CallKind.BATCHED:
                self._in_stream.setdefault(self._streams[row], []).append(at)
            if calls[row] == CallKind.RECORD:
                self._records.setdefault(self._streams[row], []).append(at)
                self._recorded.setdefault(self._events[row], []).append(at)
        self._event = _unused("e", [event.name for event in program.events])
        self._message = _unused("m", program.messages)

    def shortest(self, x: Step, y: Step, x_by_host: bool, y_by_host: bool) -> Repair:
        """Put *x* before *y*. What a host thread does by itself needs a message, what a device does an event."""
        inside = x.run > 0 and y.run > 0 and x.by == y.by  # of one launch: repaired where they are captured
        first, second = (x.row, y.row) if inside else (x.by, y.by)
        if x.by == y.by and not x.run:  # R3.9
            return Repair(f"give {self._names.of(y.row)} a batch of its own, behind {self._name(first)}")
        if x_by_host:
            return self.tell(first, second)
        stream, waiting = self._streams[first], self._streams[second]
        if not y_by_host and stream == waiting:
            return Repair(f"launch {self._name(second)} without programmatic dependence on {self._name(first)}")
        told = inside or self._hosts.before(first, second)
        event = -1 if inside or not told else self._standing(first, second)
        by_sync = y_by_host and told and event < 0 and self._is_last(first, second)
        on, name = self._program.streams[stream].name, self._event if event < 0 else self._program.events[event].name
        add: list[Insertion] = []
        if event < 0 and not by_sync:
            add.append(Insertion(f"record {name} on {on}", first, after=True))
        if not told:
            add += self._messages(first, second)
        wait = f"wait {name} on {self._program.streams[waiting].name}" if not y_by_host else f"sync event {name}"
        add.append(Insertion(f"sync {on}" if by_sync else wait, second, after=False))
        return self._said(add, told)

    def tell(self, first: int, second: int) -> Repair:
        """Let the host thread of *first* tell that of *second* (rows)."""
        return self._said(self._messages(first, second), told=False)

    def move(self, x: Step, y: Step, *, first_frees: bool, second_frees: bool) -> Repair:
        """Say which of two has to move: the free behind the use, or the allocation before it."""
        first, second = self._names.of(x.row, x.run), self._names.of(y.row, y.run)
        if first_frees and second_frees:
            return Repair(f"drop {second}: {first} has freed the memory")
        return Repair(f"move {first} behind {second}" if first_frees else f"move {second} before {first}")

    def _standing(self, first: int, second: int) -> int:
        """Give an event recorded behind *first* that still stands for it when *second* is issued; -1 if none."""
        start, end = self._at[first], self._at[second]
        records = self._records.get(self._streams[first], [])
        begin = bisect_right(records, start)
        for at in records[begin : begin + _LOOK_AT]:
            if at >= end:
                break
            row = self._issued[at]
            again = self._recorded[self._events[row]]
            later = bisect_right(again, at)
            if (later == len(again) or again[later] > end) and self._hosts.before(row, second):
                return self._events[row]
        return -1

    def _is_last(self, first: int, second: int) -> bool:
        """Tell whether *first* is the last operation of its stream when *second* is issued."""
        places = self._in_stream[self._streams[first]]
        following = bisect_right(places, self._at[first])
        return following == len(places) or places[following] >= self._at[second]

    def _messages(self, first: int, second: int) -> list[Insertion]:
        return [
            Insertion(f"send {self._message}", first, after=True),
            Insertion(f"receive {self._message}", second, after=False),
        ]

    def _said(self, add: Sequence[Insertion], told: bool) -> Repair:
        """Say where each statement goes; where threads matter, in which."""
        parts: list[str] = []
        for row, after in dict.fromkeys((insertion.row, insertion.after) for insertion in add):
            statements = [i.statement for i in add if (i.row, i.after) == (row, after)]
            thread = "" if told else f" in thread {self._program.threads[self._threads[row]]}"
            parts.append(f"{', '.join(statements)} {'after' if after else 'before'} {self._name(row)}{thread}")
        return Repair("; ".join(parts), tuple(add))

    def _name(self, row: int) -> str:
        return self._names.of(row)


def _unused(name: str, taken: Sequence[str]) -> str:
    names = set(taken)
    return next(n for n in chain([name], (f"{name}{i}" for i in count(1))) if n not in names)
