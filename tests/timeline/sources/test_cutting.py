"""How a file is cut and laid out never changes what is read of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.timeline.sources import torch_profiler
from gapless.timeline.sources.chrome_file import Events, _extents
from gapless.timeline.sources.losses import Losses


def mixed(kineto: SimpleNamespace, count: int) -> list[dict[str, Any]]:
    """Events of every category, many with equal starts, some repeated, some odd."""
    events: list[dict[str, Any]] = []
    for n in range(count):
        start = 10 * (n // 4)
        events += [
            kineto.host("cpu_op", f"aten::{n % 5}", start, n % 7),
            kineto.call("cudaLaunchKernel", start, 2, n),
            kineto.call("cuLaunchKernel", start, 1, n, cat="cuda_driver"),
            kineto.call("hipMemcpyAsync", start, 1, n % 9) | {"args": {"correlation": n, "size": 64 + n}},
            kineto.flow("s", n),
            kineto.kernel(f"k{n % 3}", start + 3, n % 4, n, stream=7 + n % 3),
            kineto.copy("Memcpy HtoD (Pinned -> Device)", start + 3, 1, 100_000 + n % 11, stream=20),
            kineto.sync("Stream Sync", start, 1, n, stream=7),
            kineto.host("python_function", "a.py(3): f", start, 5, tid=str(200 + n % 2)),
            {"name": "thread_name", "ph": "M", "pid": 100, "tid": 200 + n % 2, "args": {"name": f"t{n}"}},
            kineto.kernel("k", None if n % 10 else start, 1, n),
        ]
    return events


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 30), block=st.integers(1, 20_000), layout=st.sampled_from(["kineto", "apart", "windows"]))
def test_blocks_of_any_size(kineto: SimpleNamespace, count: int, block: int, layout: str) -> None:
    data = kineto.text(mixed(kineto, count), layout)
    assert kineto.contents(kineto.read_bytes(data, block)) == kineto.contents(kineto.read_bytes(data))


@settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 30), block=st.integers(1, 20_000), damage=st.integers(0, 10**6), data=st.data())
def test_blocks_of_any_size_in_a_damaged_file(
    kineto: SimpleNamespace, count: int, block: int, damage: int, data: st.DataObject
) -> None:
    text = bytearray(kineto.text(mixed(kineto, count)))
    start = text.index(b'"ph"')
    at = start + damage % (len(text) - start - 100)
    text[at : at + data.draw(st.integers(0, 3))] = data.draw(
        st.sampled_from([b"", b'"', b"\\", b"\xff", b"\0", b"inf"])
    )
    assert kineto.contents(kineto.read_bytes(bytes(text), block)) == kineto.contents(kineto.read_bytes(bytes(text)))


def test_blocks_and_the_whole(kineto: SimpleNamespace) -> None:
    events = mixed(kineto, 25)
    told = [kineto.contents(kineto.read(events, layout)) for layout in kineto.layouts if layout != "list"]
    assert all(other == told[0] for other in told[1:])


@pytest.mark.parametrize("block", [1, 1000, 50_000, 1 << 30])
@pytest.mark.parametrize("name", ["torch-rocm-mi250", "torch-event-wait-two-streams-a100", "torch-alexnet-a100"])
def test_real_traces_in_blocks_and_whole(shared: Path, kineto: SimpleNamespace, name: str, block: int) -> None:
    path = shared / "traces" / f"{name}.json.gz"
    trace = json.loads("".join(chunk.decode() for chunk in torch_profiler.pieces(path, None, Losses())))
    blocks = kineto.contents(torch_profiler.read(path, block=block))
    assert kineto.contents(kineto.read_bytes(json.dumps(trace).encode())) == blocks


def test_bytes_may_come_in_any_pieces(kineto: SimpleNamespace) -> None:
    data = kineto.text(mixed(kineto, 5))
    whole = [repr(event) for batch in Events(iter([data]), "", Losses()) for event in batch]
    for size in (1, 2, 3, 7, 100, 1001):
        pieces = iter([data[at : at + size] for at in range(0, len(data), size)])
        events = Events(pieces, "", Losses(), block=500)
        assert len([repr(event) for batch in events for event in batch]) == len(whole)
        assert events.facts == {"schemaVersion": 1, "traceName": "trace.json"}


def test_another_list_behind_the_events_is_none_of_theirs(kineto: SimpleNamespace) -> None:
    """The other list is laid out as the events are, and larger than a block."""
    other = [{"ph": "X", "cat": "kernel", "name": "no", "ts": n} for n in range(50)]
    rows = ",\n".join("  {\n    " + json.dumps(event)[1:-1] + "\n  }" for event in other)
    data = kineto.text([kineto.kernel("yes", n, 0.5, n) for n in range(1, 30)])
    data = data[:-2] + b',\n  "others": [\n' + rows.encode() + b'\n  ],\n  "last": 3\n}'
    for block in (1, 300, 5000, 1 << 20):
        timeline = kineto.read_bytes(data, block)
        assert {timeline.name_of(row) for row in timeline.ops.name.tolist()} == {"yes"}
        assert (timeline.info["traceName"], timeline.info["last"], timeline.lost) == ("trace.json", 3, ())


def test_events_that_no_border_cuts(kineto: SimpleNamespace) -> None:
    """The first events are laid out as Kineto does, the others are not."""
    first = kineto.text([kineto.kernel("a", 1, 1, 1), kineto.kernel("a", 3, 1, 2)])
    others = ", ".join(json.dumps(kineto.kernel("b", 10 * n, 1, 10 + n)) for n in range(1, 50))
    end = first.rindex(b"\n  ]")
    timeline = kineto.read_bytes(first[:end] + b", " + others.encode() + first[end:], 100)
    assert len(timeline.ops) == 51
    assert (timeline.info["traceName"], timeline.lost) == ("trace.json", ())


@pytest.mark.parametrize(
    ("text", "events", "rest"),
    [
        (b'{"a": 1}, {"b": 2}], "x": 3}', [b'{"a": 1}', b'{"b": 2}'], b'], "x": 3}'),
        (b'{"a": [{"b": 1}, {"b": 2}]}, {"c": 1}]', [b'{"a": [{"b": 1}, {"b": 2}]}', b'{"c": 1}'], b"]"),
        (b'{"a": "}, {"}, {"b": 1}]', [b'{"a": "}, {"}', b'{"b": 1}'], b"]"),
        (b'{"a": inf}, {"b": 1}]', [b'{"a": inf}', b'{"b": 1}'], b"]"),
        (b'{"a": 1} {"b": 2}, 3, "x", {"c": 1}]', [b'{"a": 1}', b'{"b": 2}', b"3", b'"x"', b'{"c": 1}'], b"]"),
        (b'{"a": 1}, {"b"', [b'{"a": 1}'], b'{"b"'),
        (b'{"a": 1},,, {"b": 2},]', [b'{"a": 1}', b'{"b": 2}'], b"]"),
        (b"", [], b""),
        (b"]", [], b"]"),
    ],
)  # fmt: skip
def test_where_the_events_of_a_damaged_list_are(text: bytes, events: list[bytes], rest: bytes) -> None:
    extents = list(_extents(text))
    assert [text[start:end] for start, end in extents] == events
    assert text[extents[-1][1] if extents else 0 :].lstrip(b" ,") == rest


def test_the_layout_of_2026(kineto: SimpleNamespace) -> None:
    """One field a line, a comma on a line of its own before the args, facts right behind the list's bracket."""

    def event(cat: str, name: str, ts: str, dur: str, pid: int, tid: int, args: str) -> str:
        fields = f'"ph": "X",\n    "cat": "{cat}",\n    "name": "{name}",\n    "pid": {pid},\n    "tid": {tid},\n    '
        return f'\n  {{\n    {fields}"ts": {ts},\n    "dur": {dur}\n    ,\n    "args": {{\n      {args}\n    }}\n  }},'

    head = ' {\n    "schemaVersion": 1,\n    "deviceProperties": [{"id": 0,"name": "NVIDIA H200"}],\n    '
    head += (
        '\n    "displayTimeUnit": "ms",\n    "baseTimeNanoseconds": 1790857026000000000,\n    "traceEvents": [\n    '
    )
    flow = '\n  {\n    "ph": "s",\n    "id": 5,\n    "ts": 1.000,\n    "cat": "ac2g",\n    "name": "ac2g"\n    \n  },'
    last = '\n  {\n    "ph": "i",\n    \n    "s": "g",\n    "name": "Record Window End",\n    "ts": 9.000\n    \n  }'
    tail = (
        '\n  ],\n  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [{"pg_name": "0"}]},'
    )
    tail += '"traceName": "x.json" }'
    for count in (1, 40):
        events = [
            event("cuda_runtime", "cudaLaunchKernel", f"{n}.250", "0.500", 1, 2, f'"cbid": 211,"correlation": {n}')
            + flow
            + event(
                "kernel", "k", f"{n}.500", "0.125", 0, 7, f'"stream": 7,"correlation": {n},"graph id": 0,"priority": 0'
            )
            for n in range(1, count + 1)
        ]
        data = (head + "".join(events) + last + tail).encode()
        for block in (1, 700, 1 << 20):
            timeline = kineto.read_bytes(data, block)
            assert timeline.ops.call.tolist() == list(range(count))
            assert timeline.ops.start.tolist() == [250 + 1000 * n for n in range(count)]
            assert (timeline.info["rank"], timeline.info["traceName"], timeline.lost) == (3, "x.json", ())
            assert timeline.clock_ns == 1790857026000000000 + 1250
            assert timeline.streams[0].priority == 0
