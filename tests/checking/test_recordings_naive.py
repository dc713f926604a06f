"""Small random programs on two devices, judged by the check and by a reading of the rules that is slow and plain."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random
from typing import Any

import pytest

HOST, MEMORY = 0x50000, 0x900000
PINNED = 2
LEGACY, SECOND_LEGACY = 7, 27
DEVICE_OF = {LEGACY: 0, 13: 0, 14: 0, SECOND_LEGACY: 1, 33: 1, 34: 1}


class Judge:
    """What is known to be over before what, as a graph: an edge for each rule, and every path followed."""

    def __init__(self, *, blocking: bool) -> None:
        self._blocking = (13, 14) if blocking else ()
        self._before: list[set[int]] = []
        self._given: dict[int, list[int]] = {stream: [] for stream in DEVICE_OF}
        self._host: set[int] = set()
        self.touched: list[tuple[int, int, range, bool]] = []  # node, line, bytes, whether they are written

    def call(self, *waits_for: int) -> int:
        """Add a call of the host that returns when these are over."""
        node = self._node({*self._host, *waits_for})
        self._host = {node}
        return node

    def put(self, stream: int, *waits_for: int) -> int:
        """Add an operation: the stream is in order, and a default stream is with the blocking ones of its device."""
        legacy = LEGACY if DEVICE_OF[stream] == 0 else SECOND_LEGACY
        beside = self._fenced(stream) if stream == legacy else [legacy] if stream in self._blocking else []
        after = (op for other in (stream, *beside) for op in self._given[other])
        node = self._node({self.call(), *after, *waits_for})
        self._given[stream].append(node)
        return node

    def given(self, stream: int) -> list[int]:
        """Give what a synchronise of a stream waits for."""
        return [op for other in (stream, *self._fenced(stream)) for op in self._given[other]]

    def races(self) -> set[tuple[int, int]]:
        """Give the lines of all pairs that meet in a byte, one of them to write it, and have no order."""
        return {
            (one[1], other[1])
            for one, other in combinations(sorted(self.touched, key=lambda touch: touch[0]), 2)
            if one[0] != other[0] and (one[3] or other[3])
            and one[2].start < other[2].stop and other[2].start < one[2].stop
            and one[0] not in self._before[other[0]]
        }  # fmt: skip

    def _fenced(self, stream: int) -> list[int]:
        return [b for b in self._blocking if stream in (LEGACY, SECOND_LEGACY) and DEVICE_OF[b] == DEVICE_OF[stream]]

    def _node(self, after: set[int]) -> int:
        self._before.append(after.union(*(self._before[node] for node in after)))
        return len(self._before) - 1


def play(run: Any, random: Random, judge: Judge) -> None:
    """Make random calls, and tell the judge of each."""
    streams = random.choice([(13, 14), (LEGACY, 13, 14), (13, 14, 33, 34), tuple(DEVICE_OF)])
    created = [stream for stream in streams if stream not in (LEGACY, SECOND_LEGACY)]
    events: dict[str, int] = {}
    over: dict[int, int] = {}  # operation: when it was
    for line in range(1, random.randint(4, 15)):
        run.line, run.thread = line, random.choice((77, 88))
        stream, other, event = random.choice(streams), random.choice(created), random.choice("ef")
        sides = [
            range(start + 64 * at, start + 64 * at + 128) for start in (HOST, MEMORY) for at in [random.randrange(4)]
        ]
        asked = random.choice(
            ["copy"] * 8 + ["synchronous copy", "record", "wait", "event", "stream", "device", "query"]
        )
        if asked in ("copy", "synchronous copy"):
            upload = asked != "copy" or random.random() < 0.5
            source, target = sides if upload else reversed(sides)
            if asked == "synchronous copy":
                run.sync_h2d(source.start, target.start, 128, memory=PINNED)
                stream = LEGACY
            else:
                (run.h2d if upload else run.d2h)(stream, source.start, target.start, 128)
            op = judge.put(stream)
            over[op] = run._busy[stream]
            judge.touched += [(op, line, source, False), (op, line, target, True)]
            if asked == "synchronous copy":
                judge.call(op)
        elif asked == "record":
            run.record(event, other)
            events[event] = judge.put(other)
        elif asked == "wait" and event in events:
            run.wait(other, event)
            judge.put(other, events[event])
        elif asked == "event" and event in events:
            run.sync_event(event)
            judge.call(events[event])
        elif asked == "stream":
            run.sync(stream)
            judge.call(*judge.given(stream))
        elif asked == "device":
            device = random.randrange(2)
            run.sync_device(device)
            judge.call(*(op for s, of in DEVICE_OF.items() if of == device for op in judge.given(s)))
        elif asked == "query":
            run.until(run.now + random.choice((0, 60_000, 200_000)))
            run.query()
            seen = run.now - 500 + 10_000  # the call's end, and what the clocks may differ by
            judge.call(*(op for op, end in over.items() if end <= seen))


@pytest.mark.parametrize("seed", range(150))
def test_the_check_and_the_slow_judge_agree(program: Callable[..., Any], seed: int) -> None:
    random = Random(seed)
    blocking = random.random() < 0.5
    run, judge = program(kind=1 if blocking else 2), Judge(blocking=blocking)
    play(run, random, judge)
    if judge.touched:
        found = run.check().findings
        assert {(finding.first.line, finding.second.line) for finding in found} == judge.races()
        assert all(finding.exact for finding in found)
