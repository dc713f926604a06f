"""A tape while it is read: the program so far, and what its names stand for.

Streams, events, graphs and buffers are looked up by what a statement asks for; operations and calls share one
namespace. Names that may stand before the thing they name are looked at in the end.
"""

from __future__ import annotations

import re
from dataclasses import replace

from . import tape_words as words
from .expectations import Expectation, read_expectation
from .handles import Buffer, Event, Graph, Word
from .kinds import MemoryKind, StreamKind
from .machine import Machine
from .program import Program
from .streams import Batch, Stream
from .tape_line import Line, alternatives, is_name, shown
from .tape_text import MOST_LINES
from .units import format_size

MOST_DEVICES = 256
_LONGEST = 2**62  # ps, all durations of a tape together

_DEFAULT_STREAM = re.compile(r"(default|legacy)(?:\.(\d{1,3}))?", re.ASCII)
_NOT_FOR_STREAMS = ("device", "event", "on", "as")  # a stream so called could not be told from the word
_GRAPH_COPY = re.compile(r"(.+)\.[1-9]\d{0,9}", re.ASCII)  # an operation of a graph that is launched more than once
_ASKED = ("elapsed", "query")  # expectations about what a call of that name returned
_HOST = (MemoryKind.PINNED, MemoryKind.PAGEABLE, MemoryKind.MANAGED)


class Reading:
    """What has been read of a tape so far: the program, the machine, and what every name stands for."""

    def __init__(self, most: int = MOST_LINES) -> None:
        self.most = most  # calls, and rounds of blocks
        self.program = Program()
        self.machine = Machine()
        self.thread = self.program.threads[0]  # whose calls are read
        self.batch: Batch | None = None  # whose copies are read (R3.9)
        self._calls = self._rounds = self._time = 0  # what has been asked for: see spend
        self._streams: dict[str, Stream] = {}
        self._events: dict[str, Event] = {}
        self._words: dict[str, Word] = {}
        self._buffers: dict[str, Buffer] = {}
        self._graphs: dict[str, Graph] = {}
        self._named: dict[str, tuple[int, str]] = {}  # operations and calls -> line, statement
        self._undecided: set[str] = set()  # host memory that no copy has used yet: pinned, unless one says pageable
        self._destroyed: dict[tuple[str, str], int] = {}  # (thread, stream) -> line
        self._captures: dict[int, tuple[int, int, int]] = {}  # stream -> what had been asked for before
        self._captured: dict[str, tuple[int, int, int]] = {}  # graph -> what it does
        self._sent: set[str] = set()
        self._launched: list[tuple[Line, int]] = []
        self._received: list[tuple[Line, int]] = []
        self._expected: list[tuple[Line, Expectation]] = []

    # ------------------------------------------------------------------------------------- operations and calls

    def operation(self, line: Line) -> str:
        """Take the name of a new operation."""
        name = words.name(line, "a name for the operation")
        self._claim(line, line.at - 1)
        return name

    def label(self, line: Line) -> str:
        """Take ``as LABEL`` from the end of a call; empty if it has none."""
        if len(line.words) < 3 or line.words[-2] != "as":
            return ""
        label, at = line.words[-1], len(line.words) - 1
        if not is_name(label):
            line.fail(at, "a label (letters, digits and _ . -, a letter first)")
        self._claim(line, at)
        line.cut(at - 1)
        return label

    def _claim(self, line: Line, at: int) -> None:
        name = line.words[at]
        if name in self._named:
            before, _ = self._named[name]
            hint = "; in a repeat, put the counter into it: k{i}" if before == line.number else ""
            line.fail(at, "a new name", f"the name {shown(name)} already stands in line {before}{hint}")
        self._named[name] = (line.number, line.words[0])

    # ------------------------------------------------------------------------------------------- streams, events

    def declare_stream(self, line: Line, at: int, kind: StreamKind, priority: int, device: int) -> Stream:
        """Make the stream that word number *at* names."""
        name = line.words[at]
        if _DEFAULT_STREAM.fullmatch(name) or name in _NOT_FOR_STREAMS:
            line.fail(at, "another name", f"a created stream cannot be called {name!r}")
        if name in self._streams and self._destroyed.pop((self.thread, name), None) is None:
            line.fail(at, "a new name", f"the stream {shown(name)} is there already")
        if name in self._events:
            line.fail(at, "a new name", f"{shown(name)} is an event already")
        self._streams[name] = self.program.stream(name, kind, priority=priority, device=device)
        return self._streams[name]

    def stream(self, line: Line) -> Stream:
        """Take the name of a stream: a declared one, ``default``, ``legacy``, or these of device N (``default.1``)."""
        word = line.next("a stream")
        if found := _DEFAULT_STREAM.fullmatch(word):
            device = self.program.current_device if found[2] is None else int(found[2])
            if device >= MOST_DEVICES:
                line.fail(line.at - 1, f"a device below {MOST_DEVICES}")
            return self.program.legacy(device) if found[1] == "legacy" else self.program.default_of(device)
        if word not in self._streams:
            why = f"{word} is an event, not a stream" if word in self._events else ""
            known = ["default", "legacy", *self._streams]
            line.fail(line.at - 1, f"a stream ({alternatives(known[:8])})", why, known)
        if (before := self._destroyed.get((self.thread, word))) is not None:
            line.fail(line.at - 1, "another stream", f"the stream {word} was destroyed in line {before}")
        return self._streams[word]

    def on(self, line: Line) -> Stream:
        """Take ``on STREAM``."""
        if not line.take("on"):
            line.fail(line.at, "on STREAM", known=("on",))
        return self.stream(line)

    def destroyed_stream(self, line: Line) -> Stream:
        """Take the name of a stream that is destroyed by this call."""
        stream = self.stream(line)
        if not stream.info.created:
            line.fail(line.at - 1, "a created stream", "a default stream cannot be destroyed")
        self._destroyed[self.thread, stream.info.name] = line.number
        return stream

    def event(self, line: Line) -> Event:
        """Take the name of an event; a new name is a new event."""
        name = words.name(line, "an event")
        if name in self._streams or _DEFAULT_STREAM.fullmatch(name):
            line.fail(line.at - 1, "an event", f"{shown(name)} is a stream, not an event")
        if name not in self._events:
            self._events[name] = self.program.event(name)
        return self._events[name]

    def word(self, line: Line) -> Word:
        """Take the name of a word of memory that streams wait for; a new name is a new word (R5.9)."""
        name = words.name(line, "a word of memory")
        if name not in self._words:
            self._words[name] = self.program.word(name)
        return self._words[name]

    # ----------------------------------------------------------------------------------------------------- buffers

    def declare_buffer(self, line: Line, at: int, bytes: int, kind: MemoryKind) -> None:  # noqa: A002
        """Make the buffer that word number *at* names."""
        name = line.words[at]
        if name in self._buffers:
            line.fail(at, "a new name", f"the buffer {shown(name)} is there already")
        self._buffers[name] = self.program.buffer(name, bytes, kind)

    def buffer(self, line: Line, kind: MemoryKind) -> Buffer:
        """Take the name of a buffer; a new name is a new buffer of this kind."""
        return self._buffer(words.name(line, "a buffer"), kind, decides=False)

    def copied(self, line: Line, at: int, kind: MemoryKind) -> Buffer:
        """Give the buffer that word number *at* names, one side of a copy.

        A new name is a new buffer of this kind; host memory that only host threads have touched so far becomes so.
        """
        if not is_name(line.words[at]):
            line.fail(at, "a buffer")
        return self._buffer(line.words[at], kind, decides=True)

    def buffers(self, line: Line, kind: MemoryKind) -> list[Buffer]:
        """Take a list of buffers, ``A,B``."""
        word = line.next("buffers (A,B)")
        offset = 0
        for name in word.split(","):
            if not is_name(name):
                why = f"found {shown(word)}" + ("; a list has no spaces" if name == "" else "")
                line.fail(line.at - 1, "buffers, with a comma between two (A,B)", why, offset=offset)
            offset += len(name) + 1
        return [self._buffer(name, kind, decides=False) for name in word.split(",")]

    def sized(self, line: Line, buffer: Buffer, bytes: int) -> None:  # noqa: A002
        """Say how large a buffer is; it has one size."""
        known = buffer.info.bytes
        if known not in (-1, bytes):
            line.fail(line.at - 1, format_size(known), f"{buffer.info.name} already has {format_size(known)}")
        self.program.buffers[buffer.row] = replace(buffer.info, bytes=bytes)

    def _buffer(self, name: str, kind: MemoryKind, *, decides: bool) -> Buffer:
        if name not in self._buffers:
            self._buffers[name] = self.program.buffer(name, kind=kind)
            if kind in _HOST and not decides:
                self._undecided.add(name)
        elif decides and name in self._undecided and kind in _HOST:
            self._undecided.discard(name)
            self.program.buffers[self._buffers[name].row] = replace(self._buffers[name].info, kind=kind)
        return self._buffers[name]

    # -------------------------------------------------------------------------------------------- graphs, messages

    def begin_capture(self, stream: Stream) -> None:
        """Remember where a capture begins."""
        self._captures[stream.row] = self._calls, self._rounds, self._time

    def captured_graph(self, label: str, stream: Stream) -> Graph | None:
        """Give the graph that ``end-capture ... as LABEL`` makes."""
        now = self._calls, self._rounds, self._time
        calls, rounds, time = self._captures.pop(stream.row, now)
        if not label:
            return None
        self._captured[label] = now[0] - calls, now[1] - rounds, now[2] - time
        return self._graph(label)

    def launched_graph(self, line: Line) -> Graph:
        """Take the name of a graph, which may be captured further down, by another thread."""
        name = words.name(line, "a graph")
        if name in self._captured:
            self.spend(line, *self._captured[name])
        else:
            self._launched.append((line, line.at - 1))
        return self._graph(name)

    def _graph(self, name: str) -> Graph:
        if name not in self._graphs:
            self._graphs[name] = self.program.graph(name)
        return self._graphs[name]

    def sent_message(self, line: Line) -> str:
        """Take the name of a message that this call sends."""
        name = words.name(line, "a message")
        self._sent.add(name)
        return name

    def received_message(self, line: Line) -> str:
        """Take the name of a message that this call waits for."""
        self._received.append((line, line.at))
        return words.name(line, "a message")

    # ---------------------------------------------------------------------------------- how much there is to run

    def time(self, line: Line) -> int:
        """Take how long something takes."""
        time = words.time(line)
        self.spend(line, 0, 0, time)
        return time

    def spend(self, line: Line, calls: int, rounds: int, time: int) -> None:
        """Add to what the tape asks for, which must stay where it can be counted and run.

        Calls and nodes of graphs, how often blocks fill the GPU, and ps of work.
        """
        self._calls += calls
        self._rounds += rounds
        self._time += time
        if self._time >= _LONGEST:
            line.fail(line.at - 1, "", "the times of this tape add up to more than the model can hold")
        if self._calls > self.most or self._rounds > self.most:
            why = f"with all its graphs and blocks the tape asks for more than {self.most:,} operations"
            line.fail(line.at - 1, "a smaller tape", why)

    # ------------------------------------------------------------------------------------------------- in the end

    @property
    def expectations(self) -> tuple[Expectation, ...]:
        """All expectations so far."""
        return tuple(expectation for _, expectation in self._expected)

    def expect(self, line: Line) -> None:
        """Read an expectation; its names are looked at when all are known."""
        self._expected.append((line, read_expectation(line)))

    def finish(self) -> None:
        """Look at every name that could stand before what it names. Raises ``TapeError``."""
        for line, at in self._received:
            if line.words[at] not in self._sent:
                why = f"no thread sends {shown(line.words[at])}: the receive would wait for ever"
                line.fail(at, "a message that some thread sends", why, self._sent)
        for line, at in self._launched:
            if line.words[at] not in self._captured:
                known = self._captured
                line.fail(at, "a graph that an end-capture makes", f"no graph {shown(line.words[at])}", known)
            self.spend(line, *self._captured[line.words[at]])
        for line, expectation in self._expected:
            self._check(line, expectation)

    def _check(self, line: Line, expectation: Expectation) -> None:
        if expectation.kind == "busy":
            return
        for name in expectation.names:
            self._check_name(line, line.words.index(name, 1), expectation.kind)
        if expectation.buffer and expectation.buffer not in self._buffers:
            at = len(line.words) - 1
            line.fail(at, "a buffer", f"no buffer is called {shown(expectation.buffer)}", self._buffers)

    def _check_name(self, line: Line, at: int, kind: str) -> None:
        name = line.words[at]
        copy = _GRAPH_COPY.fullmatch(name)
        known = name if name in self._named else copy[1] if copy and self._captured else ""
        if known not in self._named:
            line.fail(at, "an operation or a call", f"nothing is called {shown(name)}", self._named)
        if kind in _ASKED and self._named[known][1] != kind:
            answering = [n for n, (_, statement) in self._named.items() if statement == kind]
            line.fail(at, f"the label of a call of {kind}", f"{shown(name)} is no {kind}", answering)
