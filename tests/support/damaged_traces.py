"""Damage for traces, and what must hold of whatever a reader makes of them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from gapless.model.kinds import CallKind, MemoryKind, OpKind
from gapless.timeline.timeline import MarkKind, RangeKind, Table, Timeline, TouchKind

_BYTES = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\n",
    b"\0",
    b"\x01",
    b"\xff",
    b"\xc3",
    b"-",
    b"e",
    b".",
    b"9",
]
_VALUES = [
    "0", "-1", "1", "7", "-0", "1e400", "-1e400", "1e-400", "5e15", "1.5", "0.0005", "1e3", "9999999999999999999",
    "18446744073709551616", "-9223372036854775808", "4294967295", "2147483648", "65536", "32767", "inf", "-inf", "nan",
    "NaN", "Infinity", "null", "true", "false", '""', '"7"', '"stream 7"', '"0x0"', '"1e5"', '"nan"', "[]", "[1,2,3]",
    "[1,2]", "[[[]]]", "{}", '{"a":1}', "01", "1.", ".5", "+1", "1_0", "0x10", '"\\ud800"', '"\\c"', '"\\u00zz"',
    '"}, {"', '"\n  },\n  {"', "]", "}", ",", "",
]  # fmt: skip
_NUMBER = re.compile(rb"(?<=[: \[])-?\d[\d.eE+-]*")
_TEXT = re.compile(rb'"[^"\n]*"')
_MEMBER = re.compile(rb'"[^"\n]*": [^,\n{}]+,? ?')
_WORDS = [
    f'"{word}"'.encode()
    for word in (
        "X", "M", "f", "i", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cuda_sync",
        "cuda_event", "cpu_op", "Kernel", "Runtime", "Operator", "overhead", "ts", "dur", "args", "name", "ph", "cat",
        "pid", "tid", "traceEvents", "correlation", "stream", "hipMemcpy", "cudaGraphLaunch", "cudaEventRecord",
        "cudaStreamWaitEvent", "Memcpy HtoD (Pinned -> Device)",
    )
]  # fmt: skip


def trace(layout: str = "kineto") -> bytes:
    """Write a small trace that has a row of every category."""
    events: list[dict[str, Any]] = []

    def add(
        category: str, name: str, start: float, length: float, pid: Any = 5, tid: Any = 6, **arguments: Any
    ) -> None:
        events.append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": length})
        events[-1]["args"] = arguments

    for n in range(1, 5):
        at = 100.25 * n
        add("cpu_op", "aten::copy_", at, 50.5, **{"External id": n, "Call stack": "a.py(3): f;b.py(7): g"})
        add("cuda_runtime", "cudaMemcpyAsync", at + 1, 4, correlation=10 * n, cbid=41)
        add("cuda_runtime", "cudaLaunchKernel", at + 6, 4, correlation=10 * n + 1)
        add("cuda_driver", "cuLaunchKernel", at + 7, 1, correlation=10 * n + 1)
        add("cuda_runtime", "cudaEventRecord", at + 11, 1, correlation=10 * n + 2)
        add("cuda_runtime", "cudaStreamWaitEvent", at + 13, 1, correlation=10 * n + 3)
        add("cuda_runtime", "cudaGraphLaunch", at + 15, 1, correlation=10 * n + 4)
        add("cuda_runtime", "hipMemcpyWithStream", at + 17, 1, correlation=10 * n + 5, size="64", grid=[1, 2, 3])
        events.append({"ph": "s", "id": n, "pid": 5, "tid": 6, "ts": at, "cat": "ac2g", "name": "ac2g"})
        place = {"device": 0, "context": 1, "stream": 7 + n % 2}
        name = "Memcpy HtoD (Pageable -> Device)"
        add("gpu_memcpy", name, at + 20, 5, 0, 7, **place, correlation=10 * n, bytes=4096)
        shape = {"grid": [8, 1, 1], "block": [64, 1, 1], "registers per thread": 16, "shared memory": 0}
        for part in range(3):
            numbers = {"correlation": 10 * n + 4, "graph id": 3, "est. achieved occupancy %": 50}
            add("kernel", "k<1>", at + 30 + 5 * part, 4, 0, 7, **place, **shape, **numbers)
        add("gpu_memset", "Memset (Device)", at + 50, 2, 0, 7, **place, correlation=0)
        wait = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 10 * n + 2, "wait_on_cuda_event_id": 9}
        add("cuda_sync", "Stream Wait Event", at + 60, 1, 0, 7, **place, correlation=10 * n + 3, **wait)
        add("cuda_event", "cudaEvent", at + 65, 0.001, 0, 7, **place, correlation=10 * n + 2, event_id=9)
        add("python_function", "a.py(3): f", at, 60, **{"Python id": n})
        add("user_annotation", f"ProfilerStep#{n}", at, 99)
    events.append({"name": "thread_name", "ph": "M", "pid": 5, "tid": 6, "args": {"name": "thread 6 (python)"}})
    device = {"id": 0, "name": "NVIDIA H200", "numSms": 132, "computeMajor": 9, "computeMinor": 0}
    head = {"schemaVersion": 1, "deviceProperties": [device], "distributedInfo": {"rank": 3}}
    if layout == "one line":
        return json.dumps(head | {"traceEvents": events, "traceName": "x.json"}).encode()
    if layout == "indented":
        return json.dumps(head | {"traceEvents": events}, indent=1).encode()
    rows = ",\n".join("  {\n    " + json.dumps(event)[1:-1] + "\n  }" for event in events)
    return f'{{\n{json.dumps(head)[1:-1]},\n  "traceEvents": [\n{rows}\n  ],\n  "traceName": "x.json"\n}}'.encode()


LAYOUTS = ("kineto", "one line", "indented")


def damaged(text: bytes, random: Random) -> bytes:
    """Damage a trace in one to eight ways, and perhaps pack it and damage the packed bytes."""
    for _ in range(random.randint(1, 8)):
        text = random.choice(_WAYS)(text, random)
    if random.random() < 0.15:
        text = gzip.compress(text, 1)
        for _ in range(random.randint(0, 2)):
            text = random.choice((_cut, _bytes, _remove, _append))(text, random)
    return text


def _cut(text: bytes, random: Random) -> bytes:
    return text[: random.randint(0, len(text))]


def _bytes(text: bytes, random: Random) -> bytes:
    at = random.randint(0, len(text))
    return text[:at] + random.choice(_BYTES) * random.choice((1, 1, 1, 2, 50)) + text[at + random.randint(0, 2) :]


def _remove(text: bytes, random: Random) -> bytes:
    at = random.randint(0, len(text))
    return text[:at] + text[at + random.choice((1, 1, 2, 10, 300)) :]


def _append(text: bytes, random: Random) -> bytes:
    return text + random.choice((b"\0" * 100, b"]", b"}", b"x", b"\x1f\x8b", text[:100], text))


def _repeat(text: bytes, random: Random) -> bytes:
    start, end = sorted((random.randint(0, len(text)), random.randint(0, len(text))))
    end = min(end, start + 2000)
    at = random.randint(0, len(text))
    return text[:at] + text[start:end] + text[at:]


def _line(text: bytes, random: Random) -> bytes:
    lines = text.split(b"\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    if random.random() < 0.5:
        lines[at] = lines[other]
    else:
        lines.insert(at, lines.pop(other))
    return b"\n".join(lines)


def _in_place_of(pattern: re.Pattern[bytes], values: Callable[[Random], bytes]) -> Callable[[bytes, Random], bytes]:
    def replace(text: bytes, random: Random) -> bytes:
        found = list(pattern.finditer(text))
        for match in sorted(
            random.sample(found, min(len(found), random.choice((1, 1, 1, 3)))), key=lambda m: -m.start()
        ):
            text = text[: match.start()] + values(random) + text[match.end() :]
        return text

    return replace


def _everywhere(text: bytes, random: Random) -> bytes:
    """Put one odd value in place of a common piece of text wherever it stands."""
    if not (found := _MEMBER.findall(text)):
        return text
    key, _, _ = random.choice(found).partition(b": ")
    return re.sub(re.escape(key) + rb": [^,\n{}]+", lambda _: key + b": " + random.choice(_VALUES).encode(), text)


def _nested(text: bytes, random: Random) -> bytes:
    depth = random.choice((10, 900, 5000))
    inside = b"[" * depth + b"]" * random.choice((depth, depth, depth - 1))
    return _in_place_of(_NUMBER, lambda _: inside)(text, random)


def _encoded(text: bytes, random: Random) -> bytes:
    return random.choice(
        (b"\xef\xbb\xbf" + text, text.decode("latin-1").encode("utf-16"), text.replace(b"\n", b"\r\n"))
    )


_WAYS: list[Callable[[bytes, Random], bytes]] = [
    *(
        _cut,
        _bytes,
        _bytes,
        _bytes,
        _remove,
        _remove,
        _append,
        _repeat,
        _line,
        _line,
        _everywhere,
        _everywhere,
        _nested,
    ),
    *[_in_place_of(_NUMBER, lambda random: random.choice(_VALUES).encode())] * 5,
    *[_in_place_of(_TEXT, lambda random: random.choice((*_WORDS, random.choice(_VALUES).encode())))] * 4,
    _in_place_of(_MEMBER, lambda _: b""),
    _encoded,
]


def check(timeline: Timeline) -> None:
    """Raise ``AssertionError`` where a timeline contradicts itself."""
    ops, calls, marks, ranges = timeline.ops, timeline.calls, timeline.marks, timeline.ranges
    rows = {
        "name": len(timeline.strings), "stack": len(timeline.strings), "device": len(timeline.devices),
        "stream": len(timeline.streams), "waits_on": len(timeline.streams), "call": len(calls),
        "thread": len(timeline.threads),
    }  # fmt: skip
    unknown = {"stack", "call", "waits_on"}
    tables: list[tuple[Table, type[Any]]] = [(ops, OpKind), (calls, CallKind), (marks, MarkKind), (ranges, RangeKind)]
    for table, kind in tables:
        for name in type(table).__slots__:
            column = table.column(name)
            assert len(column) == len(table)
            if name in rows and len(column):
                least = -1 if name in unknown or table is marks else 0
                assert least <= column.min() <= column.max() < rows[name], name
        start, end = table.column("start"), table.column("end")
        assert (start <= end).all()
        assert (start[1:] >= start[:-1]).all()
        assert not len(start) or start[0] >= 0
        assert set(table.column("kind").tolist()) <= set(kind)
    touches = timeline.touches
    assert set(touches.kind.tolist()) <= set(TouchKind)
    assert not len(touches) or 0 <= touches.call.min() <= touches.call.max() < len(calls)
    assert (touches.call[1:] >= touches.call[:-1]).all()
    assert (touches.address > 0).all()
    assert {*ops.src.tolist(), *ops.dst.tolist(), *touches.memory.tolist()} <= set(MemoryKind)
    assert (np.isnan(ops.occupancy) | ((ops.occupancy >= 0) & (ops.occupancy <= 1))).all()
    assert ops.grid.shape == ops.block.shape == (len(ops), 3)
    assert all(0 <= stream.device < len(timeline.devices) for stream in timeline.streams)
    assert all(isinstance(text, str) for text in timeline.strings)
    assert all(type(value) in (str, int) for value in timeline.info.values())
    assert timeline.clock_ns is None or type(timeline.clock_ns) is int
    assert len(set(timeline.lost)) == len(timeline.lost)
    assert len({each.what for each in timeline.unknown}) == len(timeline.unknown)
    assert all("\n" not in sentence for sentence in timeline.lost)
