"""Chrome-trace JSON, as Kineto writes it and as others do, to batches of typed events.

Kineto writes one event a block of lines between a line ``  {`` and a line ``  }``. Such a file is cut there, some
hundred KiB at a time, and each cut is decoded in one go, so that memory does not grow with the file. Every other layout
is decoded whole. Where a batch does not decode, it is halved until the damaged events stand alone; what can be mended
is, what cannot is left out and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from functools import reduce
from itertools import islice
from operator import or_
from typing import Any, TypeAlias, cast

import msgspec

from gapless.model.errors import GaplessError
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.mending import MALFORMED, mended, place

BLOCK = 512 << 10  # bytes decoded in one go: what a core's cache holds
_BATCH = 2048  # events decoded in one go where they are at hand one by one
_HEADER = 64 << 20  # bytes searched for the list of events before the file is taken whole
_EVENT = 256 << 20  # bytes of the longest event
_LONG = 1 << 20  # bytes of an event that is not worth many tries
_TRIES = 20  # places where the list of events may end, in one piece of text
_WHOLE = 1 << 30  # bytes of the longest file that is not laid out as Kineto does

_NONE = msgspec.Raw(b"")
_NO_ARGS = msgspec.Raw(b"{}")


class Category(Enum):
    """The ``cat`` of complete events that carry something for a timeline; old spellings below the new ones."""

    OTHER = ""
    CPU_OP = "cpu_op"
    PYTHON = "python_function"
    ANNOTATION = "user_annotation"
    OVERHEAD = "overhead"
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
    ts: msgspec.Raw = _NONE
    dur: msgspec.Raw = _NONE
    args: msgspec.Raw = _NO_ARGS


class Metadata(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """A name for a process or a thread."""

    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    args: msgspec.Raw = _NO_ARGS


def _skipped(phase: str) -> type[msgspec.Struct]:
    return msgspec.defstruct(f"Phase_{phase}", [], gc=False, tag_field="ph", tag=phase)


# Flow, instant, counter, async and object events: passed over without making anything of them.
_PASSED = frozenset("sftiIRCbneNODPpvVSTFacBE()")
_SKIPPED = tuple(_skipped(phase) for phase in sorted(_PASSED))

Event: TypeAlias = Complete | Metadata  # and the skipped ones, which nobody looks at
_EVENTS: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[reduce(or_, (Complete, Metadata, *_SKIPPED))])  # pyright: ignore


class _Loose(msgspec.Struct, gc=False):
    """An event of which nothing but the braces is trusted."""

    ph: msgspec.Raw = _NONE
    cat: msgspec.Raw = _NONE
    name: msgspec.Raw = _NONE
    pid: msgspec.Raw = _NONE
    tid: msgspec.Raw = _NONE
    ts: msgspec.Raw = _NONE
    dur: msgspec.Raw = _NONE
    args: msgspec.Raw = _NO_ARGS


_LOOSE = msgspec.json.Decoder(_Loose)

_LIST = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[|\A\s*\[')
_KINETO = re.compile(rb"[ \t\r\n]*?(\r?\n)  (?=\{\r?\n)")
_END = re.compile(rb"\}\s*,?\s*\]\s*(?=[,}]|\Z)")
_GAP = re.compile(r"[\s,]*")
_BORDER = re.compile(r"\}\s*,\s*(?=\{)")

_NO_OBJECT = "Left out {events}: no valid JSON object."
_NO_PHASE = "Left out {events}: no phase (ph) that Chrome traces have."
_MENDED = "Mended {events} with text or numbers that JSON does not allow."
_CUT = "The file is cut short inside the list of events: used what comes before the cut."
_FACTS = "Left out the facts about the run beside the events: not valid JSON."


class Events:
    """The events of a file in batches. ``facts`` holds what stands beside them, once all batches are taken."""

    def __init__(self, pieces: Iterator[bytes], source: str, losses: Losses, block: int = BLOCK) -> None:
        self.facts: dict[str, Any] = {}
        self._pieces = pieces
        self._source = source
        self._losses = losses
        self._block = block
        self._tail: bytearray | None = None  # what stands behind the list of events, once its end is found
        self._border = b""
        self._count = 0

    def __iter__(self) -> Iterator[list[Event]]:
        """Give all events in the order of the file.

        Raises ``GaplessError`` where there is no list of events, or not one readable event in a damaged one.
        """
        for batch in self._batches():
            self._count += len(batch)
            yield batch
        if not self._count and self._losses:
            raise GaplessError(f"{self._source}: not one event of the trace can be read. {self._losses.sentences()[0]}")

    def _batches(self) -> Iterator[list[Event]]:
        buffer = bytearray()
        for piece in self._pieces:
            buffer += piece
            if buffer.startswith(b"\xef\xbb\xbf"):
                del buffer[:3]
            if len(buffer) > _HEADER:
                break
            if (opened := _LIST.search(buffer)) and len(buffer) > opened.end() + 100:
                if laid := _KINETO.match(buffer, opened.end()):
                    end_of_line = laid[1]
                    self._border = end_of_line + b"  }," + end_of_line + b"  {"
                    head = bytes(buffer[: opened.end()])
                    del buffer[: laid.end()]
                    yield from self._by_blocks(buffer)
                    self._read_facts(head)
                    return
                break
        yield from self._whole(buffer)

    def _by_blocks(self, buffer: bytearray) -> Iterator[list[Event]]:
        """Decode a file in Kineto's layout block by block; ``buffer`` starts with the first event's brace."""
        border = self._border
        searched = 0
        while True:
            done = 0
            while (cut := buffer.find(border, max(searched, done + self._block))) >= 0:
                yield self._decode(_listed(buffer, done, cut + border.index(b",")))
                done = cut + len(border) - 1
                if self._tail is not None:
                    self._tail += b"," + buffer[done:]
                    self._drain()
                    return
            del buffer[:done]
            if len(buffer) > _EVENT:
                del buffer[: -len(border)]
            searched = max(0, len(buffer) - len(border))
            if not (piece := next(self._pieces, b"")):
                break
            buffer += piece
        yield self._last(bytes(buffer))

    def _drain(self) -> None:
        """Keep what follows the list of events, within reason."""
        for piece in self._pieces:
            if self._tail is not None and len(self._tail) < _HEADER:
                self._tail += piece

    def _last(self, text: bytes) -> list[Event]:
        """Decode the last events of a file in Kineto's layout and find the end of the list."""
        *before, last = self._split(text)
        events = self._apart(before)
        if self._tail is not None:
            self._tail += b"," + last
            return events
        return events + self._final(last)

    def _final(self, piece: bytes) -> list[Event]:
        """Decode the last event, with the end of the list behind it; without one the file is cut short."""
        if event := self._end_of_list(piece):
            return self._mended(event)
        self._losses.add(_CUT)
        try:
            return _EVENTS.decode(b"[" + piece + b"]")
        except MALFORMED:
            return []

    def _whole(self, buffer: bytearray) -> Iterator[list[Event]]:
        """Decode a file of any other layout."""
        for piece in self._pieces:
            buffer += piece
            if len(buffer) > _WHOLE:
                raise GaplessError(
                    f"{self._source}: more than 1 GiB of JSON that is not laid out as torch.profiler writes it. "
                    "Give the file as the profiler wrote it."
                )
        text = bytes(buffer)
        buffer.clear()
        try:
            events = self._document(text)
        except MALFORMED as problem:
            yield from self._scan(text, problem)
            return
        for first in range(0, len(events), _BATCH):
            yield self._batch(events[first : first + _BATCH])

    def _document(self, text: bytes) -> list[msgspec.Raw]:
        """Take a valid JSON document apart: the facts, and the events each for itself."""
        if text.lstrip()[:1] != b"{":
            return msgspec.json.decode(text, type=list[msgspec.Raw])
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        events = members.pop("traceEvents", None)
        if events is None:
            raise GaplessError(
                f"{self._source}: JSON, but no trace: it has no traceEvents"
                + (f" but {', '.join(list(members)[:5])}." if members else ".")
                + " Expected what torch.profiler's export_chrome_trace wrote."
            )
        self.facts = {name: msgspec.json.decode(value) for name, value in members.items()}
        if bytes(events[:1]) != b"[":
            raise GaplessError(f"{self._source}: traceEvents is no list")
        return msgspec.json.decode(events, type=list[msgspec.Raw])

    def _scan(self, text: bytes, problem: Exception) -> Iterator[list[Event]]:
        """Take the events of a damaged document one after the other, from each brace that an event may start with."""
        opened = _LIST.search(text)
        if not opened:
            raise GaplessError(
                f"{self._source}: not valid JSON: {place(text, problem)}. Expected a trace of torch.profiler."
            ) from None
        content = text[opened.end() :].decode("utf-8", "replace")
        decoder = json.JSONDecoder(strict=False, parse_int=str, parse_float=str)
        batch: list[bytes] = []
        at = 0
        while self._tail is None:
            at = cast(re.Match[str], _GAP.match(content, at)).end()
            if at == len(content):
                self._losses.add(_CUT)
                break
            if content[at] == "]":
                self._tail = bytearray(content[at + 1 :].encode())
                break
            try:
                end = decoder.raw_decode(content, at)[1]
            except (ValueError, RecursionError):
                if not (border := _BORDER.search(content, at)):
                    yield self._apart(batch) + self._final(content[at:].encode("utf-8", "replace"))
                    batch = []
                    break
                end = border.start() + 1
            batch.append(content[at:end].encode("utf-8", "replace"))
            at = end
            if len(batch) == _BATCH:
                yield self._apart(batch)
                batch = []
        yield self._apart(batch)
        self._read_facts(text[: opened.end()])

    def _batch(self, events: list[msgspec.Raw]) -> list[Event]:
        try:
            return _EVENTS.decode(b"[" + b",".join(events) + b"]")
        except MALFORMED:
            return self._apart([bytes(event) for event in events])

    def _decode(self, block: bytes) -> list[Event]:
        try:
            return _EVENTS.decode(block)
        except MALFORMED:
            return self._apart(self._split(block[1:-1]))

    def _split(self, text: bytes) -> list[bytes]:
        """Cut events in Kineto's layout apart."""
        inner = text.split(self._border)
        last = len(inner) - 1
        return [b"{" * (row > 0) + event + b"}" * (row < last) for row, event in enumerate(inner)]

    def _apart(self, events: list[bytes]) -> list[Event]:
        """Decode events of which some are damaged: halve until those stand alone."""
        if self._tail is not None:
            self._tail += b"".join(b"," + event for event in events)
            return []
        if not events:
            return []
        if len(events) == 1:
            return self._mended(events[0])
        try:
            return _EVENTS.decode(b"[" + b",".join(events) + b"]")
        except MALFORMED:
            half = len(events) // 2
            return self._apart(events[:half]) + self._apart(events[half:])

    def _mended(self, event: bytes) -> list[Event]:
        """Decode one event with what can be used of it."""
        try:
            return _EVENTS.decode(b"[" + event + b"]")
        except MALFORMED:
            pass
        if (loose := _loose(event)) is None:
            if last := self._end_of_list(event):
                return self._mended(last)
            if (loose := _loose(mended(event))) is None:
                self._losses.add(_NO_OBJECT)
                return []
            self._losses.add(_MENDED)
        phase = _value(loose.ph, str, "")
        if phase == "X":
            return [_complete(loose)]
        if phase == "M":
            return [_metadata(loose)]
        if phase not in _PASSED:
            self._losses.add(_NO_PHASE)
        return []

    def _end_of_list(self, piece: bytes) -> bytes:
        """Give the last event where the piece holds the end of the list too, and keep what follows as the tail."""
        for end in islice(_END.finditer(piece), _TRIES):
            event = piece[: end.start() + 1]
            if _loose(event) or (len(event) < _LONG and _loose(mended(event))):
                self._tail = bytearray(piece[end.end() :])
                return event
        return b""

    def _read_facts(self, head: bytes) -> None:
        """Decode what stands beside the list of events: what comes before it, up to its bracket, and the tail."""
        if head.lstrip()[:1] == b"[":
            return
        start, rest = head + b"]", bytes(self._tail or b"")
        whole = start + (rest if rest.strip() else b"}")
        facts = _object(whole) or _object(mended(whole))
        if facts is None:
            self._losses.add(_FACTS)
            facts = _object(start + b"}") or {}
        self.facts = {name: value for name, value in facts.items() if name != "traceEvents"}


def _listed(buffer: bytearray, start: int, end: int) -> bytes:
    with memoryview(buffer) as view:
        return b"".join((b"[", view[start:end], b"]"))


def _loose(event: bytes) -> _Loose | None:
    try:
        return _LOOSE.decode(event)
    except MALFORMED:
        return None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except MALFORMED:
        return None


def _value(raw: msgspec.Raw, kind: Any, otherwise: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except MALFORMED:
        return otherwise


def _complete(loose: _Loose) -> Complete:
    return Complete(
        cat=_value(loose.cat, Category, Category.OTHER),
        name=_name(loose.name),
        pid=_number(loose.pid),
        tid=_number(loose.tid),
        ts=loose.ts,
        dur=loose.dur,
        args=loose.args,
    )


def _metadata(loose: _Loose) -> Metadata:
    return Metadata(name=_name(loose.name), pid=_number(loose.pid), tid=_number(loose.tid), args=loose.args)


def _name(raw: msgspec.Raw) -> str:
    value = _value(raw, str | int | float | None, None)
    return "" if value is None else str(value)


def _number(raw: msgspec.Raw) -> int | str:
    value = _value(raw, int | str | float, "")
    if isinstance(value, float):
        return int(value) if value.is_integer() else ""
    return value
