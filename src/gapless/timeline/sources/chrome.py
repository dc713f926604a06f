"""Events of Chrome-trace JSON: their types, and what can still be read of a damaged one."""

from __future__ import annotations

from enum import Enum
from functools import reduce
from operator import or_
from typing import Any, TypeAlias, cast

import msgspec

from gapless.timeline.sources.mending import MALFORMED

NOT_GIVEN = msgspec.Raw(b"")
_NO_ARGS = msgspec.Raw(b"{}")


class Category(Enum):
    """The ``cat`` of complete events that carry something for a timeline; old spellings below the new ones."""

    OTHER = ""
    CPU_OP = "cpu_op"
    PYTHON = "python_function"
    ANNOTATION = "user_annotation"
    OVERHEAD = "overhead"
    STAGING = "staging"  # gapless's own
    RUNTIME = "cuda_runtime"
    DRIVER = "cuda_driver"
    KERNEL = "kernel"
    MEMCPY = "gpu_memcpy"
    MEMSET = "gpu_memset"
    SYNC = "cuda_sync"
    EVENT = "cuda_event"
    OLD_OPERATOR = "Operator"
    OLD_RUNTIME = "Runtime"
    OLD_KERNEL = "Kernel"
    OLD_MEMCPY = "Memcpy"
    OLD_MEMSET = "Memset"

    __hash__ = object.__hash__  # the inherited one is Python code

    @classmethod
    def _missing_(cls, value: object) -> Category:
        return cls.OTHER


class Complete(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """Something with a start and a length. Times stay text; ``args`` is decoded by whoever needs them."""

    cat: Category = Category.OTHER
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: msgspec.Raw = NOT_GIVEN
    dur: msgspec.Raw = NOT_GIVEN
    args: msgspec.Raw = _NO_ARGS


class Metadata(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """A name for a process or a thread."""

    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    args: msgspec.Raw = _NO_ARGS


class Loose(msgspec.Struct, gc=False):
    """An event of which nothing but the braces is trusted."""

    ph: msgspec.Raw = NOT_GIVEN
    cat: msgspec.Raw = NOT_GIVEN
    name: msgspec.Raw = NOT_GIVEN
    pid: msgspec.Raw = NOT_GIVEN
    tid: msgspec.Raw = NOT_GIVEN
    ts: msgspec.Raw = NOT_GIVEN
    dur: msgspec.Raw = NOT_GIVEN
    args: msgspec.Raw = _NO_ARGS


def _passed_over(phase: str) -> type[msgspec.Struct]:
    return msgspec.defstruct(f"Phase_{ord(phase)}", [], gc=False, tag_field="ph", tag=phase)


# Flow, instant, counter, async and object events: nothing is made of them.
_PASSED_OVER = frozenset("sftiIRCbneNODPpvVSTFacBE()")

Event: TypeAlias = Complete | Metadata  # and those passed over, which nobody looks at
_KINDS = reduce(or_, (Complete, Metadata, *map(_passed_over, sorted(_PASSED_OVER))))
_EVENTS = cast("msgspec.json.Decoder[list[Event]]", msgspec.json.Decoder(list[_KINDS]))  # pyright: ignore
_LOOSE = msgspec.json.Decoder(Loose)


def decode(texts: bytes) -> list[Event]:
    """Decode a JSON list of events. Raises one of ``MALFORMED`` where one of them is not as it should be."""
    return _EVENTS.decode(texts)


def loose(text: bytes) -> Loose | None:
    """Decode an event as far as its braces; None where it is no JSON object."""
    try:
        text.decode()  # what is skipped is not checked to be UTF-8
        return _LOOSE.decode(text)
    except MALFORMED:
        return None


def firm(event: Loose) -> Event | str:
    """Make an event with what is of the right type; else give its phase, empty where that is unknown."""
    phase = _value(event.ph, _STRING, "")
    name, pid, tid = _name(event.name), _number(event.pid), _number(event.tid)
    if phase == "X":
        category = _value(event.cat, _CATEGORY, Category.OTHER)
        return Complete(cat=category, name=name, pid=pid, tid=tid, ts=event.ts, dur=event.dur, args=event.args)
    if phase == "M":
        return Metadata(name=name, pid=pid, tid=tid, args=event.args)
    return phase if phase in _PASSED_OVER else ""


_STRING = msgspec.json.Decoder(str)
_CATEGORY = msgspec.json.Decoder(Category)
_SCALAR = msgspec.json.Decoder(str | int | float | None)


def _value(raw: msgspec.Raw, decoder: msgspec.json.Decoder[Any], otherwise: Any) -> Any:
    try:
        return decoder.decode(raw)
    except MALFORMED:
        return otherwise


def _name(raw: msgspec.Raw) -> str:
    value = _value(raw, _SCALAR, None)
    return "" if value is None else str(value)


def _number(raw: msgspec.Raw) -> int | str:
    value = _value(raw, _SCALAR, None)
    if isinstance(value, float):
        return int(value) if value.is_integer() else ""
    return "" if value is None else value
