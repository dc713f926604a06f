"""The ``args`` of Kineto's events: which of them a timeline needs, and of what type they should be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from gapless.timeline.sources.chrome import Complete

# Numbers that fit their column; any other is taken as not told.
DeviceNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=(1 << 15) - 2)]
StreamNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=(1 << 32) - 1)]
Small: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=1 << 62)]
Triple: TypeAlias = tuple[Small, Small, Small]

_NO_SHAPE = (-1, -1, -1)


class KernelArgs(msgspec.Struct, gc=False):
    """Of ``kernel``. ROCm tells only device, stream and correlation, newer ones grid and block too."""

    device: DeviceNumber = -1
    stream: StreamNumber = -1
    correlation: Whole = 0
    registers: Small = msgspec.field(default=-1, name="registers per thread")
    shared: Small = msgspec.field(default=-1, name="shared memory")
    grid: Triple = _NO_SHAPE
    block: Triple = _NO_SHAPE
    occupancy: float = msgspec.field(default=float("nan"), name="est. achieved occupancy %")
    graph: Whole = msgspec.field(default=0, name="graph id")
    node: Whole = msgspec.field(default=0, name="graph node id")
    priority: Small | None = None


class CopyArgs(msgspec.Struct, gc=False):
    """Of ``gpu_memcpy`` and ``gpu_memset``. Peer copies say ``inDevice`` in place of ``device``."""

    device: DeviceNumber = -1
    in_device: DeviceNumber = msgspec.field(default=-1, name="inDevice")
    from_device: DeviceNumber = msgspec.field(default=-1, name="fromDevice")
    to_device: DeviceNumber = msgspec.field(default=-1, name="toDevice")
    stream: StreamNumber = -1
    correlation: Whole = 0
    bytes: Whole = -1
    graph: Whole = msgspec.field(default=0, name="graph id")
    node: Whole = msgspec.field(default=0, name="graph node id")


class CallArgs(msgspec.Struct, gc=False):
    """Of ``cuda_runtime`` and ``cuda_driver``."""

    correlation: Whole = 0


class HipArgs(msgspec.Struct, gc=False):
    """Of ``cuda_runtime`` on ROCm: the calls know sizes and shapes that the device's rows leave out."""

    correlation: Whole = 0
    bytes: Whole = -1
    size: Whole | str = -1
    shared: Small = msgspec.field(default=-1, name="shared memory")
    grid: Triple = _NO_SHAPE
    block: Triple = _NO_SHAPE


class SyncArgs(msgspec.Struct, gc=False):
    """Of ``cuda_sync``, which says what waits for what, and ``cuda_event``, an event recorded in a stream."""

    device: DeviceNumber = -1
    stream: StreamNumber = -1
    correlation: Whole = 0
    kind: str = msgspec.field(default="", name="cuda_sync_kind")
    waits_on: StreamNumber = msgspec.field(default=-1, name="wait_on_stream")
    record: Whole = msgspec.field(default=-1, name="wait_on_cuda_event_record_corr_id")
    waited: Whole = msgspec.field(default=-1, name="wait_on_cuda_event_id")
    recorded: Whole = msgspec.field(default=-1, name="event_id")


class OperatorArgs(msgspec.Struct, gc=False):
    """Of ``cpu_op`` in dialects that keep call stacks with the operators."""

    stack: str = msgspec.field(default="", name="Call stack")


class NameArgs(msgspec.Struct, gc=False):
    """Of metadata events."""

    name: str = ""


Args = TypeVar("Args", bound=msgspec.Struct)

_MALFORMED = (msgspec.DecodeError, RecursionError)


def joined(events: Sequence[Complete]) -> bytes:
    """Give the args of all events as one JSON list."""
    return b"[" + b",".join([event.args for event in events]) + b"]"


def decode_all(texts: bytes, events: Sequence[Complete], kind: type[Args]) -> list[Args]:
    """Decode the args of all events in one go from ``joined(events)``; where one is odd, each for itself."""
    try:
        return _decoder(kind).decode(texts)
    except _MALFORMED:
        return [decode(event.args, kind) for event in events]


def decode(args: msgspec.Raw, kind: type[Args]) -> Args:
    """Decode the args of one event. What is of another type than it should be is taken as not told."""
    try:
        return msgspec.json.decode(args, type=kind)
    except _MALFORMED:
        pass
    try:
        members = msgspec.json.decode(args, type=dict[str, msgspec.Raw])
    except _MALFORMED:
        return kind()
    told: dict[str, Any] = {}
    for field, member, decoder in _fields(kind):
        if member in members:
            text = bytes(members[member])
            for spelling in (text, text.strip(b'"')):  # a number may stand in quotes
                try:
                    told[field] = decoder.decode(spelling)
                    break
                except _MALFORMED:
                    continue
    return kind(**told)


@cache
def _decoder(kind: type[Args]) -> msgspec.json.Decoder[list[Args]]:
    return msgspec.json.Decoder(list[kind])  # pyright: ignore[reportInvalidTypeForm]


@cache
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, str, msgspec.json.Decoder[Any]]]:
    """Give each field's name in Python and in the file, and what decodes it."""
    return [(field.name, field.encode_name, msgspec.json.Decoder(field.type)) for field in msgspec.structs.fields(kind)]
