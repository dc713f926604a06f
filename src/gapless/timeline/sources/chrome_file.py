"""Files of Chrome-trace JSON, as Kineto writes them and as others do: where the events stand, and what stands beside.

Kineto writes one event a block of lines between a line ``  {`` and a line ``  }``. Such a file is cut there, some
hundred KiB at a time, and each cut is decoded in one go, so that memory does not grow with the file. Every other layout
is decoded whole. Where a batch does not decode, it is halved until the damaged events stand alone; what can be mended
is, what cannot is left out and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, cast

import msgspec

from gapless.model.errors import GaplessError
from gapless.timeline.sources.chrome import Event, decode, firm, loose
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.mending import MALFORMED, mended, place

BLOCK = 512 << 10  # bytes decoded in one go: what a core's cache holds
_BATCH = 2048  # events decoded in one go where they are at hand one by one
_BESIDE = 64 << 20  # bytes kept of what stands before and behind the list of events
_EVENT = 128 << 20  # bytes of the longest event
_STRING = 64 << 20  # bytes without a quotation mark, after which what goes on is no trace
_WHOLE = 512 << 20  # bytes of the longest file that is not laid out as Kineto does
_MOST = 32_000_000  # events kept, some 200 bytes each
_HOPELESS = 10_000  # damaged events without one good among them, after which no more are tried
_LONG = 1 << 20  # bytes of an event that is not worth many tries
_TRIES = 20  # places that are tried as the end of the list, or of a damaged event

_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_BARE_LIST = re.compile(rb"\s*\[")
_KINETO = re.compile(rb"[ \t\r\n]*?(\r?\n)  (?=\{\r?\n)")
_BORDER = re.compile(rb"\}\s*,\s*(?=\{)")
_BETWEEN = re.compile(rb"[\s,]*")
_END = re.compile(rb"\}\s*,?\s*\](?=\s*[,}]|\s*\Z)")

_EXPECTED = "Expected what torch.profiler's export_chrome_trace wrote."
_NO_OBJECT = "Left out {events}: no valid JSON object."
_NO_PHASE = "Left out {events}: no phase (ph) that Chrome traces have."
_MENDED = "Mended {events} with text or numbers that JSON does not allow."
_TOO_LONG = "Left out {events}: longer than 128 MiB."
_TOO_MANY = "Used the first 32 million events: the file has more."
_CUT = "The file is cut short inside the list of events: used what comes before the cut."
_DEEP = "What stands in the list of events is nested too deeply to be an event: used what comes before it."
_FACTS = "Left out the facts about the run beside the events: not valid JSON."


class Events:
    """The events of a file in batches. ``facts`` holds what stands beside them, once all batches are taken."""

    def __init__(self, pieces: Iterator[bytes], source: str, losses: Losses, block: int = BLOCK) -> None:
        self.facts: dict[str, Any] = {}
        self._pieces = pieces
        self._source = source
        self._losses = losses
        self._block = block
        self._border = b""  # what stands between two events in Kineto's layout
        self._count = 0  # events given
        self._tail: bytearray | None = None  # what stands behind the list of events, once its end is found

    def __iter__(self) -> Iterator[list[Event]]:
        """Give all events in the order of the file.

        Raises ``GaplessError`` where there is no list of events, or not one readable event in a damaged one.
        """
        for batch in self._batches():
            self._count += len(batch)
            yield batch
            if not self._count and self._losses.count > _HOPELESS:
                break
        if not self._count and self._losses.count:
            raise GaplessError(f"{self._source}: not one event of the trace can be read. {self._losses.sentences()[0]}")

    def _batches(self) -> Iterator[list[Event]]:
        buffer = bytearray()
        for piece in self._pieces:
            buffer += piece
            if buffer.startswith(b"\xef\xbb\xbf"):
                del buffer[:3]
            opened = _opened(buffer)
            if opened and (laid := _KINETO.match(buffer, opened)):
                self._border = laid[1] + b"  }," + laid[1] + b"  {"
                head = bytes(buffer[:opened])
                del buffer[: laid.end()]
                yield from self._by_blocks(buffer)
                self._read_facts(head)
                return
            if len(buffer) > _BESIDE or (opened and len(buffer) > opened + 100):
                break
        yield from self._whole(buffer)

    def _by_blocks(self, buffer: bytearray) -> Iterator[list[Event]]:
        """Decode a file in Kineto's layout block by block; ``buffer`` starts with the first event's brace."""
        searched = 0
        while True:
            done = 0
            while (cut := buffer.find(self._border, max(searched, done + self._block))) >= 0:
                yield self._block_of(buffer, done, cut + self._border.index(b","))
                done = cut + len(self._border) - 1
                if self._tail is not None:
                    self._keep(b"," + buffer[done:])
                    return
            del buffer[:done]
            if self._count > _MOST:
                self._losses.add(_TOO_MANY)
                return
            if len(buffer) > _EVENT:
                yield self._overlong(buffer)
                if self._tail is not None:
                    self._keep(b"")
                    return
            searched = max(0, len(buffer) - len(self._border))
            if not (piece := next(self._pieces, b"")):
                break
            buffer += piece
        *before, last = self._split(bytes(buffer))
        yield self._apart(before)
        if self._tail is not None:
            self._keep(b"," + last)
        else:
            yield from self._scattered(last)

    def _overlong(self, buffer: bytearray) -> list[Event]:
        """Decode what comes before an event that is too long, and leave that out; it may be the tail and no event."""
        *before, last = self._split(bytes(buffer))
        found = self._apart(before)
        if event := self._end_of_list(last):
            return found + self._mended(event)
        self._losses.add(_TOO_LONG)
        end = -1
        while end < 0 and (piece := next(self._pieces, b"")):
            del buffer[: -len(self._border)]
            buffer += piece
            end = buffer.find(self._border)
        del buffer[: end + len(self._border) - 1 if end >= 0 else len(buffer)]
        return found

    def _keep(self, start: bytes | bytearray) -> None:
        """Add to the tail, within reason, this and the rest of the file."""
        tail = cast(bytearray, self._tail)
        tail += start
        for piece in self._pieces:
            if len(tail) < _BESIDE:
                tail += piece

    def _block_of(self, buffer: bytearray, start: int, end: int) -> list[Event]:
        with memoryview(buffer) as view:
            block = b"".join((b"[", view[start:end], b"]"))
        try:
            return decode(block)
        except MALFORMED:
            return self._apart(self._split(block[1:-1]))

    def _split(self, text: bytes) -> list[bytes]:
        """Cut events in Kineto's layout apart."""
        inner = text.split(self._border)
        last = len(inner) - 1
        return [b"{" * (row > 0) + event + b"}" * (row < last) for row, event in enumerate(inner)]

    def _whole(self, buffer: bytearray) -> Iterator[list[Event]]:
        """Decode a file of any other layout."""
        quoted = buffer.rfind(b'"')
        while len(buffer) <= _WHOLE and (piece := next(self._pieces, b"")):
            if (found := piece.rfind(b'"')) >= 0:
                quoted = len(buffer) + found
            buffer += piece
            if len(buffer) - quoted > _STRING:
                most = f"{_STRING >> 20} MiB"
                raise GaplessError(f"{self._source}: a text of more than {most} is in it, as in no trace. {_EXPECTED}")
        if len(buffer) > _WHOLE:
            raise GaplessError(
                f"{self._source}: more than 512 MiB of JSON that is not laid out as torch.profiler writes it. "
                "Give the file as the profiler wrote it."
            )
        text = bytes(buffer)
        buffer.clear()
        try:
            events = self._document(text)
        except MALFORMED as problem:
            if not (opened := _opened(text)):
                reason = "JSON, but no trace: it has no traceEvents" if _is_crumbs(text) else place(text, problem)
                raise GaplessError(f"{self._source}: {reason}. {_EXPECTED}") from None
            yield from self._scattered(text[opened:])
            self._read_facts(text[:opened])
            return
        for first in range(0, len(events), _BATCH):
            batch = events[first : first + _BATCH]
            try:
                yield decode(b"[" + b",".join(batch) + b"]")
            except MALFORMED:
                yield self._apart([bytes(event) for event in batch])

    def _document(self, text: bytes) -> list[msgspec.Raw]:
        """Take a valid JSON document apart: the facts, and the events each for itself."""
        if _is_crumbs(text):
            raise msgspec.DecodeError
        if text.lstrip()[:1] != b"{":
            return msgspec.json.decode(text, type=list[msgspec.Raw])
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        if (events := members.pop("traceEvents", None)) is None:
            others = f" but {', '.join(list(members)[:5])}" if members else ""
            raise GaplessError(f"{self._source}: JSON, but no trace: it has no traceEvents{others}. {_EXPECTED}")
        if memoryview(events)[:1] != b"[":
            raise GaplessError(f"{self._source}: JSON, but no trace: its traceEvents are no list. {_EXPECTED}")
        self.facts = {name: msgspec.json.decode(value) for name, value in members.items()}
        return msgspec.json.decode(events, type=list[msgspec.Raw])

    def _scattered(self, text: bytes) -> Iterator[list[Event]]:
        """Decode the last events of a file, of which some may be damaged, up to the end of the list."""
        batch: list[bytes] = []
        at = 0
        for start, at in _extents(text):
            batch.append(text[start:at])
            if len(batch) == _BATCH:
                yield self._apart(batch)
                batch = []
            if self._tail is not None:
                break
        yield self._apart(batch)
        rest = _after(text, at)
        if self._tail is None and not rest.startswith(b"]"):
            if event := self._end_of_list(rest):
                yield self._mended(event)
            else:
                self._losses.add(_DEEP if _is_deep(rest) else _CUT)
        else:
            self._found_end(rest)

    def _apart(self, events: Sequence[bytes]) -> list[Event]:
        """Decode events of which some are damaged: halve until those stand alone."""
        if self._tail is not None:
            self._tail += b"".join(b"," + event for event in events)
            return []
        if not events:
            return []
        if len(events) == 1:
            return self._mended(events[0])
        try:
            return decode(b"[" + b",".join(events) + b"]")
        except MALFORMED:
            half = len(events) // 2
            return self._apart(events[:half]) + self._apart(events[half:])

    def _mended(self, text: bytes) -> list[Event]:
        """Decode one event with what can be used of it."""
        try:
            return decode(b"[" + text + b"]")
        except MALFORMED:
            pass
        if (event := loose(text)) is None:
            if last := self._end_of_list(text):
                return self._mended(last)
            better = mended(text)
            if (event := loose(better)) is None:
                return self._several(text)
            self._losses.add(_MENDED, kept=True)
            try:
                return decode(b"[" + better + b"]")
            except MALFORMED:
                pass
        found = firm(event)
        if found == "":
            self._losses.add(_NO_PHASE)
        return [] if isinstance(found, str) else [found]

    def _several(self, text: bytes) -> list[Event]:
        """Decode a text that no border cuts but that holds several events all the same; count one that does not."""
        extents = list(_extents(text))
        rest = _after(text, extents[-1][1] if extents else 0)
        if not extents or (len(extents) == 1 and not rest):
            self._losses.add(_NO_OBJECT)
            return []
        found = self._apart([text[start:end] for start, end in extents])
        if rest.startswith(b"]"):
            self._found_end(rest)
            return found
        return found + self._apart([rest] if rest else [])

    def _found_end(self, rest: bytes) -> None:
        """Keep the tail: what follows the bracket that ends the list."""
        if self._tail is None:
            self._tail = bytearray(rest[1:])
        else:  # the bracket was met before
            self._tail += b"," + rest

    def _end_of_list(self, text: bytes) -> bytes:
        """Give the last event, where the end of the list stands behind it, and keep what follows as the tail."""
        for end in islice(_END.finditer(text), _TRIES):
            event = text[: end.start() + 1]
            if loose(event) or (len(event) < _LONG and loose(mended(event))):
                self._tail = bytearray(text[end.end() :])
                return event
        return b""

    def _read_facts(self, head: bytes) -> None:
        """Decode what stands beside the list of events: what comes before it, up to its bracket, and the tail."""
        if head.lstrip()[:1] == b"[":
            return
        start, tail = head + b"]", bytes(self._tail or b"").rstrip(b"\0 \t\r\n")
        whole = start + (tail or b"}")
        facts = _object(whole)
        if facts is None and len(whole) < _BESIDE:
            facts = _object(mended(whole))
        if facts is None:
            self._losses.add(_FACTS, kept=True)
            facts = _object(start + b"}") or {}
        self.facts = {name: value for name, value in facts.items() if name != "traceEvents"}


def _is_crumbs(text: bytes) -> bool:
    """Tell whether a text is all commas or braces: no trace, but it would make more objects than memory holds."""
    return max(10 * text.count(b","), 24 * text.count(b"{")) > len(text) > _LONG


def _is_deep(text: bytes) -> bool:
    """Tell whether a text, such as what no end was found of, begins with more brackets than can be told apart."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except RecursionError:
        return True
    except MALFORMED:
        pass
    return False


def _opened(text: bytes | bytearray) -> int:
    """Give where the list of events begins, behind its bracket; 0 where there is none."""
    if bare := _BARE_LIST.match(text):
        return bare.end()
    at = text.find(b'"traceEvents"')
    while at >= 0:
        if (found := _LIST.match(text, at)) and text[at - 1 : at] != b"\\":
            return found.end()
        at = text.find(b'"traceEvents"', at + 1)
    return 0


def _extents(text: bytes) -> Iterator[tuple[int, int]]:
    """Give where each event of a damaged list starts and ends, up to the list's end or an event that has no end.

    An event ends before the next brace that another may start with, or as many braces later as it takes to be valid.
    """
    at = 0
    while (at := _skip(text, at)) < len(text) and text[at] != ord("]"):
        border = _border(text, at)
        end = border
        for _ in range(_TRIES):
            try:
                msgspec.json.decode(memoryview(text)[at:end], type=msgspec.Raw)
            except MALFORMED as problem:
                if "truncated" not in str(problem) or end == len(text):
                    break
                end = _border(text, end)
            else:
                yield at, end
                at = end
                break
        if at == end:
            continue
        for start, stop in _values(text, at, border):
            yield start, stop
            at = stop
        at = _skip(text, at)
        if border == len(text):
            return
        if at < border:
            if text[at] == ord("]"):
                return
            yield at, border
            at = border


def _border(text: bytes, at: int) -> int:
    found = _BORDER.search(text, at)
    return found.start() + 1 if found else len(text)


def _skip(text: bytes, at: int) -> int:
    return cast("re.Match[bytes]", _BETWEEN.match(text, at)).end()


def _after(text: bytes, at: int) -> bytes:
    return text[_skip(text, at) :]


def _values(text: bytes, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Give where each valid value starts and ends, up to one that is not. No comma between them is needed."""
    content = text[at:end].decode("latin-1")  # a character a byte; only the extents are of interest
    decoder = json.JSONDecoder(strict=False, parse_int=str, parse_float=str)
    first = at
    while (at := _skip(text, at)) < end:
        try:
            stop = first + decoder.raw_decode(content, at - first)[1]
        except (ValueError, RecursionError):
            return
        yield at, stop
        at = stop


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except MALFORMED:
        return None
