"""Synthetic traces in every layout that readers meet."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gapless.timeline.sources import load, torch_profiler
from gapless.timeline.timeline import Table, Timeline

Event = Mapping[str, Any]


class Literal(str):
    """A value that goes into the file as it stands, be it JSON or not."""


quoted = lru_cache(json.dumps)  # the same few words stand in thousands of events


def literal(value: object) -> str:
    if type(value) is str:
        return quoted(value)
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {literal(member)}" for key, member in value.items()) + "}"
    return json.dumps(value)


def call(name: str, start: object, length: object, correlation: object, **more: Any) -> dict[str, Any]:
    event = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 100, "tid": 200, "ts": start, "dur": length}
    return event | {"args": {"External id": 1, "cbid": 211, "correlation": correlation}} | more


def kernel(
    name: str, start: object, length: object, correlation: object, stream: object = 7, **more: Any
) -> dict[str, Any]:
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": length}
    arguments = {
        "queued": 0, "device": 0, "context": 1, "stream": stream, "correlation": correlation,
        "registers per thread": 16, "shared memory": 256, "blocks per SM": 8.0, "warps per SM": 64.0,
        "grid": [1056, 2, 1], "block": [256, 1, 1], "est. achieved occupancy %": 50,
    }  # fmt: skip
    return event | {"args": arguments} | more


def copy(
    name: str, start: object, length: object, correlation: object, stream: object = 7, **more: Any
) -> dict[str, Any]:
    event = {"ph": "X", "cat": "gpu_memcpy", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": length}
    arguments = {"device": 0, "context": 1, "stream": stream, "correlation": correlation, "bytes": 4096}
    return event | {"args": arguments | {"memory bandwidth (GB/s)": 1.5}} | more


def host(category: str, name: str, start: object, length: object, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 100, "tid": 200, "ts": start, "dur": length} | more


def sync(name: str, start: object, length: object, correlation: object, **arguments: Any) -> dict[str, Any]:
    event = {"ph": "X", "cat": "cuda_sync", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": length}
    return event | {"args": {"cuda_sync_kind": name, "correlation": correlation, "device": 0, "context": 1} | arguments}


def flow(phase: str, number: int) -> dict[str, Any]:
    event = {"ph": phase, "id": number, "pid": 100, "tid": 200, "ts": 1.5, "cat": "ac2g", "name": "ac2g"}
    return event | ({"bp": "e"} if phase == "f" else {})


def _kineto_event(event: Event, lines: Sequence[Sequence[str]]) -> str:
    rest = [key for key in event if key not in ("args", *(key for line in lines for key in line))]
    rows = [", ".join(f'"{key}": {literal(event[key])}' for key in line if key in event) for line in (*lines, rest)]
    text = "  {\n    " + ",\n    ".join(row for row in rows if row)
    if "args" in event:
        inside = literal(event["args"])[1:-1] if isinstance(event["args"], dict) else None
        text += ',\n    "args": ' + (f"{{\n      {inside}\n    }}" if inside is not None else literal(event["args"]))
    return text + "\n  }"


_TOGETHER = (("ph", "cat", "name", "pid", "tid"), ("ts", "dur"))
_APART = (("ph",), ("cat",), ("name",), ("pid",), ("tid",), ("ts",), ("dur",))


def text(
    events: Sequence[Event | str], layout: str = "kineto", head: Event | None = None, tail: Event | None = None
) -> bytes:
    """Write a trace; an event given as a str goes in as it stands."""
    head = {"schemaVersion": 1} if head is None else head
    tail = {"traceName": "trace.json"} if tail is None else tail
    if layout in ("kineto", "apart", "windows"):
        lines = _APART if layout == "apart" else _TOGETHER
        rows = [event if isinstance(event, str) else _kineto_event(event, lines) for event in events]
        before = "".join(f'  "{key}": {literal(value)},\n' for key, value in head.items())
        after = "".join(f',\n  "{key}": {literal(value)}' for key, value in tail.items())
        whole = "{\n" + before + '  "traceEvents": [\n' + ",\n".join(rows) + "\n  ]" + after + "\n}"
        return whole.replace("\n", "\r\n" if layout == "windows" else "\n").encode()
    members = [
        "{" + ", ".join(f"{json.dumps(k)}: {literal(v)}" for k, v in e.items()) + "}" if not isinstance(e, str) else e
        for e in events
    ]
    if layout == "list":
        return ("[" + ",".join(members) + "]").encode()
    if layout == "one line":
        before = "".join(f'"{key}": {literal(value)}, ' for key, value in head.items())
        after = "".join(f', "{key}": {literal(value)}' for key, value in tail.items())
        return ("{" + before + '"traceEvents": [' + ", ".join(members) + "]" + after + "}").encode()
    assert layout == "indented", layout
    return json.dumps({**head, "traceEvents": [json.loads(m) for m in members], **tail}, indent=2).encode()


LAYOUTS = ("kineto", "apart", "windows", "one line", "indented", "list")


def contents(timeline: Timeline) -> dict[str, Any]:
    """Give all that a timeline says, in plain values that compare."""
    tables: dict[str, Any] = {}
    for name in ("ops", "calls", "marks", "ranges"):
        table: Table = getattr(timeline, name)
        tables[name] = {column: table.column(column).tolist() for column in type(table).__slots__}
    for column in ("occupancy",):  # NaN is not equal to itself
        tables["ops"][column] = [repr(value) for value in tables["ops"][column]]
    fields = ("devices", "streams", "threads", "strings", "clock_ns", "info", "unknown", "lost", "format")
    return tables | {name: getattr(timeline, name) for name in fields}


@pytest.fixture(scope="session")
def kineto(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Give functions that make events, write traces and read them back."""
    folder = tmp_path_factory.mktemp("traces")
    count = 0

    def save(data: bytes, name: str = "") -> Path:
        nonlocal count
        count += 1
        path = folder / (name or f"trace{count}.json")
        path.write_bytes(data)
        return path

    def read(events: Sequence[Event | str], layout: str = "kineto", **facts: Any) -> Timeline:
        path = save(text(events, layout, **facts))
        try:
            return load(path)
        finally:
            path.unlink()

    def read_bytes(data: bytes, block: int | None = None) -> Timeline:
        path = save(data)
        try:
            return load(path) if block is None else torch_profiler.read(path, block=block)
        finally:
            path.unlink()

    functions: dict[str, Callable[..., Any]] = {
        "call": call, "kernel": kernel, "copy": copy, "host": host, "sync": sync, "flow": flow, "literal": Literal,
        "text": text, "save": save, "read": read, "read_bytes": read_bytes, "contents": contents,
    }  # fmt: skip
    return SimpleNamespace(layouts=LAYOUTS, **functions)
