"""The tape: a stream program as text, with what its result must look like.

``read`` turns the text into a ``Program``, a machine and expectations, ``write`` turns them into text again. A tape
that cannot be read is refused with file, line, column, what was found and what could stand there; nothing is run.

Beyond the statements of the tape format there are these, for rules that it has no words for:

``batch NAME on S [during-call|any-time] [as LABEL]`` ... ``end``
    ``cudaMemcpyBatchAsync`` (R3.9): between the two lines stand the copies, ``h2d``, ``d2h`` and ``d2d`` without ``on``
    and ``sync``. The batch is one operation of its stream; its copies have no order. ``during-call``, ``any-time``:
    when they may read their sources (``srcAccessOrder``); in stream order unless said.

``wait-value W >= N on S``, ``wait-value W = N on S``, ``wait-value W & N on S``, ``wait-value W nor N on S``
    ``cuStreamWaitValue`` (R5.9): later work of the stream waits until the word ``W`` of memory satisfies the condition.
    Every word holds 0 at the start.
``write-value W N on S``, ``write-value W N``
    ``cuStreamWriteValue``; without ``on`` the host thread stores the value itself.

Knobs that are the model's own stand on the ``machine`` line as all others do (``machine.py``). What else only a
``Program`` can say: kernels by their threads, registers and shared memory (R6.10, R6.17), programmatic dependent
launches (R6.14), parts of buffers, the host cost of one call, events made for one device (R5.5), ``external`` waits
(R7.4), a graph instantiated once more (R7.1), the first use of the pool, calls of which only the class is known.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from . import tape_operations as operations
from . import tape_words as words
from .errors import GaplessError
from .expectations import Expectation
from .handles import Buffer
from .kinds import CallKind, CaptureMode, MemoryKind, SourceOrder, StreamKind
from .machine import PROFILES, Machine
from .program import Program
from .tape_line import Line, TapeError, alternatives, did_you_mean, shown
from .tape_reading import MOST_DEVICES, Reading
from .tape_text import MOST_LINES, unroll
from .tape_words import BUFFER_KINDS, CAPTURE_MODES, CONDITIONS, SOURCE_ORDERS, STREAM_KINDS
from .tape_writer import write

__all__ = ["Tape", "TapeError", "read", "write"]

_MOST_THREADS = 1024


@dataclass(frozen=True, slots=True)
class Tape:
    """A tape that has been read; ``name`` is what its error messages call it.

    ``lines`` gives for each row of the program the line that it comes from.
    """

    name: str
    program: Program
    machine: Machine
    expectations: tuple[Expectation, ...]
    lines: NDArray[np.int32]


def read(text: str, *, name: str = "tape", folder: str | Path | None = "", most: int = MOST_LINES) -> Tape:
    """Read a tape; *name* stands in error messages, usually its file; machine files are looked for from *folder* on.

    For a tape of unknown origin: with *folder* None it may name no file, and *most* bounds its lines and operations.
    Raises ``TapeError`` (a ``GaplessError``) with line, column, what was found and what could stand there.
    """
    reader, lines = _Reader(None if folder is None else Path(folder), most), array("i")
    made = 0
    collecting = gc.isenabled()
    gc.disable()  # a tape's lines make no cycles, and looking for them would take a fifth of the time
    try:
        for line in unroll(text, name, most):
            reader.read(line)
            before, made = made, len(reader.program)
            lines.extend([line.number] * (made - before))
        reader.finish()
    finally:
        if collecting:
            gc.enable()
    return Tape(name, reader.program, reader.machine, reader.expectations, np.array(lines, np.int32))


class _Reader(Reading):
    """Reads a tape statement by statement."""

    def __init__(self, folder: Path | None, most: int) -> None:
        super().__init__(most)
        self.folder = folder
        self.called = False  # a call has been read: declarations are over
        self._said: set[str] = set()  # declarations that stand but once
        self._thread = ExitStack()  # the thread block, while one is open
        self._in_thread = False

    def read(self, line: Line) -> None:
        """Read one statement."""
        word = line.next("a statement")
        if self.batch is not None and word not in _IN_BATCHES:
            line.fail(0, alternatives(_IN_BATCHES), f"{shown(word)} stands in a batch", _IN_BATCHES)
        try:
            if word in _CALLS:
                self.called = True
                self.spend(line, 1, 0, 0)
                _CALLS[word](self, line, self.label(line))
            elif word in _OTHERS:
                _OTHERS[word](self, line)
            else:
                line.fail(0, "a statement", f"no statement begins with {shown(word)}", _KNOWN)
            line.finish()
        except TapeError:
            raise
        except GaplessError as error:  # what Program refuses, above all memory of the wrong kind
            line.fail(0, "", str(error))

    def declare(self, line: Line, *, once: bool = False) -> None:
        """Make sure that a declaration may stand here."""
        word = line.words[0]
        if self.called:
            line.fail(0, "a call", f"{word!r} stands before the first call, not after it")
        if once and word in self._said:
            line.fail(0, "another statement", f"{word!r} stands twice")
        self._said.add(word)

    def open_thread(self, line: Line) -> None:
        """Let the calls that follow be those of another host thread."""
        name = words.name(line, "a name for the host thread")
        if self._in_thread:
            line.fail(0, "end", "a thread block stands in another")
        if len(self.program.threads) == _MOST_THREADS and name not in self.program.threads:
            line.fail(1, "", f"more than {_MOST_THREADS} host threads")
        self._thread.enter_context(self.program.thread(name))
        self._in_thread, self.thread = True, name

    def close(self, line: Line) -> None:
        """Close a batch; else let the calls that follow be those of the thread ``main`` again."""
        line.finish()
        if self.batch is not None:
            self.batch = None
            return
        self._thread.close()
        self._in_thread, self.thread = False, self.program.threads[0]


# ---------------------------------------------------------------------------------------------------- declarations


def _machine(reader: _Reader, line: Line) -> None:
    reader.declare(line, once=True)
    profile = line.next('a machine profile, or a file in " "')
    try:
        if profile.startswith('"') and reader.folder is None:
            line.fail(1, f"a machine profile ({alternatives(PROFILES)})", "no files of machines are read here")
        if profile.startswith('"') and reader.folder is not None:
            reader.machine = Machine.load(reader.folder / profile.strip('"'))
        else:
            reader.machine = Machine.named(profile)
        known = list(reader.machine.knobs())
        while line.peek():
            key, _, value = line.next("").partition("=")
            if not value or key not in known:
                line.fail(line.at - 1, "KEY=VALUE, KEY a knob of a machine", known=[f"{k}=" for k in known])
            reader.machine = reader.machine.with_knobs(**{key: value})
    except TapeError:
        raise
    except GaplessError as error:
        line.fail(line.at - 1, "", str(error))


def _default_stream(reader: _Reader, line: Line) -> None:
    reader.declare(line, once=True)
    reader.program.default_stream = (
        "legacy" if words.choice(line, ("legacy", "per-thread")) == "legacy" else "per-thread"
    )


def _stream(reader: _Reader, line: Line) -> None:
    label = reader.label(line) if reader.called else ""
    first, count = line.at, _declared_names(line, "a name for the stream", STREAM_KINDS, ("priority=", "device="))
    kind, priority, device = StreamKind.BLOCKING, 0, 0
    while word := line.peek():
        line.next("")
        if word in STREAM_KINDS:
            kind = STREAM_KINDS[word]
        elif word.startswith("priority="):
            priority = words.whole(line, word[9:], "a priority", -1000, 1000)
        elif word.startswith("device="):
            device = words.whole(line, word[7:], "a device", 0, MOST_DEVICES - 1)
        else:
            line.fail(line.at - 1, alternatives([*STREAM_KINDS, "priority=N", "device=N"]), known=STREAM_KINDS)
    if label and count > 1:
        line.fail(first + 1, "one stream", "a label names one call, and each stream is one")
    for at in range(first, first + count):
        stream = reader.declare_stream(line, at, kind, priority, device)
        if reader.called:
            reader.program.call(CallKind.STREAM_CREATE, stream=stream, label=label)


def _buffer(reader: _Reader, line: Line) -> None:
    reader.declare(line)
    first, count = line.at, _declared_names(line, "a name for the buffer", BUFFER_KINDS, ())
    size, kind = -1, MemoryKind.DEVICE
    while word := line.peek():
        if word in BUFFER_KINDS:
            kind = BUFFER_KINDS[line.next("")]
        elif words.looks_like_number(word) and size == -1:
            size = words.size(line)
        else:
            line.fail(line.at, alternatives([words.A_SIZE, *BUFFER_KINDS]), known=BUFFER_KINDS)
    for at in range(first, first + count):
        reader.declare_buffer(line, at, size, kind)


_LONGEST_KIND = 14  # letters: a longer name is no misspelt kind


def _declared_names(line: Line, what: str, kinds: dict[str, StreamKind] | dict[str, MemoryKind],
                    settings: tuple[str, ...]) -> int:  # fmt: skip
    """Take the names that a declaration begins with; say how many. A misspelt kind is not taken for a name."""
    count = 0
    while True:
        word = line.peek()
        if count and (not word or word in kinds or word.startswith(settings) or words.looks_like_number(word)):
            return count
        name = words.name(line, what)
        if name in kinds or (len(name) <= _LONGEST_KIND and did_you_mean(name, kinds)):
            line.fail(line.at - 1, what, f"{name!r} is or looks like a kind, not a name", kinds)
        count += 1


# -------------------------------------------------------------------------------------------- events and waiting


def _record(reader: _Reader, line: Line, label: str) -> None:
    event, stream = reader.event(line), reader.on(line)
    stream.record(event, timed=not line.take("untimed"), label=label)


def _wait(reader: _Reader, line: Line, label: str) -> None:
    event, stream = reader.event(line), reader.on(line)
    stream.wait(event, label=label)


def _sync(reader: _Reader, line: Line, label: str) -> None:
    if line.take("device"):
        reader.program.sync_device(label=label)
    elif line.take("event"):
        reader.event(line).sync(label=label)
    else:
        reader.stream(line).sync(label=label)


def _query(reader: _Reader, line: Line, label: str) -> None:
    thing = reader.event(line) if line.take("event") else reader.stream(line)
    thing.query(label=label)


def _elapsed(reader: _Reader, line: Line, label: str) -> None:
    reader.program.elapsed(reader.event(line), reader.event(line), label=label)


# ------------------------------------------------------------------------------------------------ the host thread


def _host(reader: _Reader, line: Line, label: str) -> None:
    reader.program.host(reader.time(line), label=label)


def _read(reader: _Reader, line: Line, label: str) -> None:
    reader.program.read(reader.buffer(line, MemoryKind.PINNED), label=label)


def _write(reader: _Reader, line: Line, label: str) -> None:
    reader.program.write(reader.buffer(line, MemoryKind.PINNED), label=label)


def _send(reader: _Reader, line: Line, label: str) -> None:
    reader.program.send(reader.sent_message(line), label=label)


def _receive(reader: _Reader, line: Line, label: str) -> None:
    reader.program.receive(reader.received_message(line), label=label)


def _device(reader: _Reader, line: Line, label: str) -> None:
    number = words.whole(line, line.next("a device"), "a device", 0, MOST_DEVICES - 1)
    reader.program.set_device(number, label=label)


# ---------------------------------------------------------------------------------------------------------- memory


def _malloc(reader: _Reader, line: Line, label: str) -> None:
    buffer = _allocated(reader, line, MemoryKind.DEVICE)
    stream = reader.on(line) if line.peek() else None
    (stream or reader.program).malloc(buffer, label=label)


def _free(reader: _Reader, line: Line, label: str) -> None:
    buffer = _freed(reader, line, MemoryKind.DEVICE)
    stream = reader.on(line) if line.peek() else None
    (stream or reader.program).free(buffer, label=label)


def _host_alloc(reader: _Reader, line: Line, label: str) -> None:
    reader.program.host_alloc(_allocated(reader, line, MemoryKind.PINNED), label=label)


def _host_free(reader: _Reader, line: Line, label: str) -> None:
    reader.program.host_free(_freed(reader, line, MemoryKind.PINNED), label=label)


def _allocated(reader: _Reader, line: Line, kind: MemoryKind) -> Buffer:
    buffer = _freed(reader, line, kind)
    if words.looks_like_number(line.peek()):
        reader.sized(line, buffer, words.size(line))
    return buffer


def _freed(reader: _Reader, line: Line, kind: MemoryKind) -> Buffer:
    buffer = reader.buffer(line, kind)
    if buffer.info.kind not in (kind, MemoryKind.MANAGED):
        said = buffer.info.kind.name.lower()
        why = f"{line.words[0]} is about {kind.name.lower()} memory, and buffer {buffer.info.name} is {said}"
        line.fail(line.at - 1, "", why)
    return buffer


def _reuse(reader: _Reader, line: Line, label: str) -> None:
    at = line.at
    words.name(line, "a buffer")
    words.choice(line, ("of",))
    old = reader.buffer(line, MemoryKind.DEVICE)
    reader.program.reuse(reader.copied(line, at, old.info.kind), old, label=label)


# ------------------------------------------------------------------------------------------- graphs, streams' ends


def _destroy(reader: _Reader, line: Line, label: str) -> None:
    reader.destroyed_stream(line).destroy(label=label)


def _capture(reader: _Reader, line: Line, label: str) -> None:
    stream = reader.stream(line)
    mode = CAPTURE_MODES[words.choice(line, CAPTURE_MODES)] if line.peek() else CaptureMode.GLOBAL
    reader.begin_capture(stream)
    stream.capture(mode, label=label)


def _end_capture(reader: _Reader, line: Line, label: str) -> None:
    stream = reader.stream(line)
    stream.end_capture(reader.captured_graph(label, stream), label=label)


def _batch(reader: _Reader, line: Line, label: str) -> None:
    name, stream = reader.operation(line), reader.on(line)
    order = SOURCE_ORDERS[words.choice(line, SOURCE_ORDERS)] if line.peek() else SourceOrder.STREAM
    reader.batch = stream.batch(name, order=order, label=label)


def _wait_value(reader: _Reader, line: Line, label: str) -> None:
    word = reader.word(line)
    condition = CONDITIONS[words.choice(line, CONDITIONS)]
    value = words.whole(line, line.next("a value"), "a value", 0, 2**32 - 1)
    reader.on(line).wait_value(word, value, condition, label=label)


def _write_value(reader: _Reader, line: Line, label: str) -> None:
    word = reader.word(line)
    value = words.whole(line, line.next("a value"), "a value", 0, 2**32 - 1)
    if line.peek():
        reader.on(line).write_value(word, value, label=label)
    else:
        word.store(value, label=label)


def _launch(reader: _Reader, line: Line, label: str) -> None:
    graph, stream = reader.launched_graph(line), reader.on(line)
    stream.launch(graph, label=label)


_CALLS: dict[str, Callable[[_Reader, Line, str], None]] = {
    **dict.fromkeys(("h2d", "d2h", "d2d", "p2p", "h2h"), operations.copy),
    "memset": operations.memset, "kernel": operations.kernel, "hostfn": operations.host_function,
    "record": _record, "wait": _wait, "sync": _sync, "query": _query, "elapsed": _elapsed,
    "host": _host, "read": _read, "write": _write, "send": _send, "receive": _receive, "device": _device,
    "malloc": _malloc, "free": _free, "hostalloc": _host_alloc, "hostfree": _host_free, "reuse": _reuse,
    "destroy": _destroy, "capture": _capture, "end-capture": _end_capture, "launch": _launch, "batch": _batch,
    "wait-value": _wait_value, "write-value": _write_value,
}  # fmt: skip
_OTHERS: dict[str, Callable[[_Reader, Line], None]] = {
    "machine": _machine, "stream": _stream, "default-stream": _default_stream, "buffer": _buffer,
    "thread": _Reader.open_thread, "end": _Reader.close, "expect": _Reader.expect,
}  # fmt: skip
_IN_BATCHES = ("h2d", "d2h", "d2d", "end")
_KNOWN = [*_OTHERS, "repeat", *_CALLS]
