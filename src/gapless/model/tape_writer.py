"""From a program to the text of a tape that reads back as the same program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from .errors import GaplessError
from .expectations import Expectation
from .kinds import CallKind, CaptureMode, Flag, MemoryKind, OpKind, StreamKind
from .machine import Machine
from .program import Program, batches, ranges
from .tape_line import is_name
from .tape_words import BUFFER_KINDS, CAPTURE_MODES, CONDITIONS, STREAM_KINDS
from .things import WHOLE_GPU, Grid, StreamInfo
from .units import format_size, format_time

_BUFFER_WORDS = {kind: word for word, kind in BUFFER_KINDS.items()}
_CONDITION_WORDS: dict[int, str] = {condition: word for word, condition in CONDITIONS.items()}
_CAPTURE_WORDS = {mode: word for word, mode in CAPTURE_MODES.items()}
_STREAM_WORDS = {kind: word for word, kind in STREAM_KINDS.items()}
_OP_WORDS = {
    OpKind.H2D: "h2d", OpKind.D2H: "d2h", OpKind.D2D: "d2d", OpKind.P2P: "p2p", OpKind.H2H: "h2h",
    OpKind.MEMSET: "memset", OpKind.KERNEL: "kernel", OpKind.HOST_FUNCTION: "hostfn", OpKind.BATCH: "batch",
}  # fmt: skip
_HOST_SIDES = {OpKind.H2D: ("src",), OpKind.D2H: ("dst",), OpKind.H2H: ("src", "dst")}
_SOURCE_ORDERS = {"during-call": Flag.DURING_CALL, "any-time": Flag.ANY_TIME}
_PLAIN_FORMS = (CallKind.COPY_SYNC, CallKind.MEMSET_SYNC)
_TAKEN = ("default", "legacy", "device", "event", "on", "as")  # no stream can be called so
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)
_LARGEST_SHARE = 10**18  # denominator that a tape holds
_NO_FLAG = Flag(0)


def write(program: Program, machine: Machine | str | None = None, expectations: Iterable[Expectation] = ()) -> str:
    """Write a program as a tape.

    *machine* is a profile with knobs changed, or the words of the ``machine`` line themselves (``'"my-gpu.json"'``).

    Names that a tape cannot have, or that stand twice, are changed, and operations without a name get one. Raises
    ``GaplessError`` for what a tape has no words for: host costs of single calls, parts of buffers, dependent launches,
    calls of which only the class is known.
    """
    writer = _Writer(program)
    lines = [] if machine is None else [f"machine {machine if isinstance(machine, str) else _machine(machine)}"]
    lines += writer.declarations()
    lines += writer.calls()
    lines += [str(writer.renamed(expectation)) for expectation in expectations]
    return "\n".join([*lines, ""])


def _machine(machine: Machine) -> str:
    """Write a machine as a profile and the knobs that differ from it."""
    with suppress(GaplessError):
        said, known = machine.knobs(), Machine.named(machine.name).knobs()
        changed = {knob: value for knob, value in said.items() if value != known[knob]}
        if Machine.named(machine.name, **changed) == machine:
            return " ".join([machine.name, *(f"{knob}={value}" for knob, value in changed.items())])
    raise GaplessError(f"machine {machine.name} is no profile with knobs changed: save it as a file, and name the file")


class _Writer:
    """The program, the row that is being written, and the names under which the tape knows things."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.row = 0
        self.columns = {name: getattr(program.rows, name).tolist() for name in type(program.rows).__slots__}
        self.streams = _names((s.name for s in program.streams), set(_TAKEN))
        self.events = _names((e.name for e in program.events), {*_TAKEN, *self.streams})
        self.buffers = _names((b.name for b in program.buffers), set())
        self.threads = _names(program.threads, set())
        self.messages = _names(program.messages, set())
        self.words = _names(program.words, set())
        self._ranges = ranges(program)
        self._copies = batches(program)
        self._accesses = program.accesses
        self._devices = [0] * len(program.threads)  # current device of each thread
        self._name_operations_and_calls()

    def _name_operations_and_calls(self) -> None:
        strings, ops = self.program.strings, self.columns["op"]
        named, labelled = self.columns["name"], self.columns["label"]
        labelled = [-1 if c == CallKind.CAPTURE_END else t for t, c in zip(labelled, self.columns["call"], strict=True)]
        wanted = [("name", row, strings[text]) for row, text in enumerate(named) if text >= 0 and ops[row] in _OP_WORDS]
        wanted += [("label", row, strings[text]) for row, text in enumerate(labelled) if text >= 0]
        wanted += [("graph", row, name) for row, name in enumerate(self.program.graphs)]
        wanted += [
            ("name", row, f"{_OP_WORDS[op]}{row}") for row, op in enumerate(ops) if op in _OP_WORDS and named[row] < 0
        ]
        self._named = {
            (what, row): name
            for (what, row, _), name in zip(wanted, _names((name for *_, name in wanted), set()), strict=True)
        }
        self._renamed = {old: self._named[what, row] for what, row, old in reversed(wanted)}

    # ------------------------------------------------------------------------------------ the parts of the tape

    def declarations(self) -> list[str]:
        """Write what stands before the calls."""
        program = self.program
        lines = ["default-stream per-thread"] if program.default_stream == "per-thread" else []
        created_later = {
            stream
            for call, stream in zip(self.columns["call"], self.columns["stream"], strict=True)
            if call == CallKind.STREAM_CREATE
        }
        lines += [
            self._stream(number)
            for number, info in enumerate(program.streams)
            if info.created and number not in created_later
        ]
        for name, buffer in zip(self.buffers, program.buffers, strict=True):
            if buffer.kind not in _BUFFER_WORDS:
                raise GaplessError(f"a tape has no word for buffer {name}: {buffer.kind.name.lower()} memory")
            size = [format_size(buffer.bytes)] if buffer.bytes >= 0 else []
            lines.append(" ".join(["buffer", name, *size, _BUFFER_WORDS[buffer.kind]]))
        return lines

    def calls(self) -> list[str]:
        """Write all calls, those of one thread after the other in blocks."""
        lines, threads = list[str](), self.columns["thread"]
        order = list(dict.fromkeys([0, *threads]))
        if order != sorted(order) or len(order) < len(self.threads):  # threads are known in the order of the tape
            for name in self.threads[1:]:
                lines += [f"thread {name}", "end"]
        open_thread = 0
        copies = self._copies
        for row, thread in enumerate(threads):
            if self.columns["call"][row] == CallKind.BATCHED:
                continue  # it stands in its batch
            self.row = row
            if thread != open_thread:
                lines += ["end"] * (open_thread != 0) + [f"thread {self.threads[thread]}"] * (thread != 0)
                open_thread = thread
            indent = "  " * (thread != 0)
            lines.append(indent + self._call())
            for self.row in copies.get(row, ()):
                lines.append(f"{indent}  {self._call()}")
            lines += [indent + "end"] * (row in copies)
        return lines + ["end"] * (open_thread != 0)

    def renamed(self, expectation: Expectation) -> Expectation:
        """Give the expectation with the names that the tape uses."""
        if expectation.kind == "busy":
            return expectation
        buffers = dict(zip((b.name for b in self.program.buffers), self.buffers, strict=True))
        return replace(
            expectation,
            names=tuple(self._renamed.get(name, name) for name in expectation.names),
            buffer=buffers.get(expectation.buffer, expectation.buffer),
        )

    # --------------------------------------------------------------------------------------------------- one call

    def _call(self) -> str:
        call = CallKind(self._get("call"))
        if call not in _CALLS:
            self._refuse(f"calls of the class {call.name.lower().replace('_', ' ')}")
        if self._get("cost") != -1:
            self._refuse("the host cost of one call")
        thread, device = self._get("thread"), self._get("device")
        if call == CallKind.DEVICE:
            self._devices[thread] = device
        elif device != self._devices[thread]:
            self._refuse("a current device that no call has set")
        label = self._named.get(("label", self.row))
        return " ".join([*_CALLS[call](self), *(["as", label] if label else [])])

    def _batch(self) -> list[str]:
        copies = self._copies[self.row]
        flags = {self.columns["flags"][copy] for copy in copies}
        if len(flags) > 1:
            self._refuse("a batch with several source orders")
        order = [word for word, flag in _SOURCE_ORDERS.items() if flags == {int(flag)}]
        return ["batch", self._named["name", self.row], *self._on(), *order]

    def _transfer(self) -> list[str]:
        op, on = OpKind(self._get("op")), self._where()
        words = [_OP_WORDS[op], self._named["name", self.row], *on, *self._quantities()]
        reads, writes = self._places()
        if op == OpKind.MEMSET:
            if len(writes) > 1 or reads:
                self._refuse("these accesses of a memset")
            words += ["->", *writes] if writes else []
            words += ["pinned"] if not writes and self._host_memory("dst") == MemoryKind.PINNED else []
        else:
            if (len(reads), len(writes)) not in ((0, 0), (1, 1)):
                self._refuse("a copy of which only one side is known")
            words += [*reads, "->", *writes] if reads else []
            kinds = {self._host_memory(side) for side in _HOST_SIDES.get(op, ())} if not reads else set()
            if len(kinds) > 1:
                self._refuse("a copy between pinned and pageable memory that has no names")
            words += ["pageable"] if MemoryKind.PAGEABLE in kinds else []
        words += [f"to={self._get('second')}"] if op == OpKind.P2P else []
        batched = self._get("call") == CallKind.BATCHED
        return words + ["sync"] * (not on and not batched)

    def _kernel(self) -> list[str]:
        grid = self.program.grids[self._get("grid")]
        if grid.block is None or grid != Grid(grid.blocks, grid.block) or self._get("bytes") != -1:
            self._refuse("kernels by their threads and memory, or dependent launches")
        if grid.block.denominator >= _LARGEST_SHARE:
            self._refuse(f"a share of {grid.block}")
        words = ["kernel", self._named["name", self.row], *self._on(), *self._quantities()]
        if grid.blocks > 1:
            words += [f"blocks={grid.blocks}", f"block={grid.block}"]
        elif grid.block != WHOLE_GPU:
            words.append(f"share={grid.block}")
        return words + ["first"] * bool(self._flags(Flag.FIRST)) + self._reads_and_writes()

    def _host_function(self) -> list[str]:
        words = ["hostfn", self._named["name", self.row], *self._on(), *self._quantities()]
        return words + self._reads_and_writes()

    def _record(self) -> list[str]:
        return ["record", self._event(), *self._on()] + ["untimed"] * bool(self._flags(Flag.UNTIMED))

    def _wait(self) -> list[str]:
        self._flags(_NO_FLAG)
        return ["wait", self._event(), *self._on()]

    def _query(self) -> list[str]:
        return ["query", "event", self._event()] if self._get("object") >= 0 else ["query", self._stream_name()]

    def _elapsed(self) -> list[str]:
        return ["elapsed", self._event(), self._event("second")]

    def _touch(self) -> list[str]:
        self._places()
        return ["read" if self._get("call") == CallKind.HOST_READ else "write", self._buffer()]

    def _allocation(self) -> list[str]:
        if self._get("bytes") != self.program.buffers[self._get("object")].bytes:
            self._refuse("a buffer with two sizes")
        self._flags(Flag.POOL)
        return [_ALLOCATION_WORDS[self._get("call")], self._buffer(), *(self._on() if self._get("stream") >= 0 else ())]

    def _reuse(self) -> list[str]:
        return ["reuse", self._buffer(), "of", self.buffers[self._get("second")]]

    def _message(self) -> list[str]:
        return ["send" if self._get("call") == CallKind.SEND else "receive", self.messages[self._get("object")]]

    def _wait_value(self) -> list[str]:
        condition = _CONDITION_WORDS[self._get("second")]
        return ["wait-value", self.words[self._get("object")], condition, str(self._get("bytes")), *self._on()]

    def _write_value(self) -> list[str]:
        on = self._on() if self._get("stream") >= 0 else []
        return ["write-value", self.words[self._get("object")], str(self._get("bytes")), *on]

    def _create(self) -> list[str]:
        if self._get("stream") < 0:
            self._refuse("the creation of a stream that is not named")
        return [self._stream(self._get("stream"))]

    def _capture(self) -> list[str]:
        return ["capture", self._stream_name(), _CAPTURE_WORDS[CaptureMode(self._get("second"))]]

    def _graph(self) -> str:
        return self._named["graph", self._get("object")]

    # ------------------------------------------------------------------------------------------- words of a call

    def _get(self, column: str) -> int:
        return self.columns[column][self.row]

    def _refuse(self, what: str) -> NoReturn:
        raise GaplessError(f"a tape has no words for {what}: {self.program.describe(self.row)}")

    def _flags(self, allowed: Flag) -> Flag:
        flags = Flag(self._get("flags"))
        if flags & ~allowed:
            self._refuse(f"the flag {(flags & ~allowed).name}")
        return flags

    def _event(self, column: str = "object") -> str:
        number = self._get(column)
        if self.program.events[number].device != -1:
            self._refuse("an event made for one device")
        return self.events[number]

    def _buffer(self) -> str:
        return self.buffers[self._get("object")]

    def _quantities(self) -> list[str]:
        duration, size = self._get("duration"), self._get("bytes")
        if duration < 0 and (size < 0 or self._get("op") in (OpKind.KERNEL, OpKind.HOST_FUNCTION)):
            self._refuse("an operation of unknown length")
        return ([format_time(duration)] if duration >= 0 else []) + ([format_size(size)] if size >= 0 else [])

    def _host_memory(self, side: str) -> MemoryKind:
        kind = MemoryKind(self._get(side))
        if kind not in (MemoryKind.PINNED, MemoryKind.PAGEABLE, MemoryKind.DEVICE):
            self._refuse(f"{kind.name.lower()} memory without a name")
        return kind

    def _places(self) -> tuple[list[str], list[str]]:
        """Give the buffers that this row reads and those that it writes."""
        places = list[str](), list[str]()
        for at in range(*self._ranges[self.row]):
            if self._accesses.low[at] != 0 or self._accesses.high[at] != -1:
                self._refuse("a part of a buffer")
            places[bool(self._accesses.write[at])].append(self.buffers[self._accesses.buffer[at]])
        return places

    def _reads_and_writes(self) -> list[str]:
        reads, writes = self._places()
        return (["reads", ",".join(reads)] if reads else []) + (["writes", ",".join(writes)] if writes else [])

    def _where(self) -> list[str]:
        """Write ``on STREAM``, or nothing for a plain form, which goes to the default stream."""
        if self._get("call") == CallKind.BATCHED:
            return []
        if self._get("call") not in _PLAIN_FORMS:
            return self._on()
        peer = self._get("op") == OpKind.P2P  # the legacy stream's, whatever the default stream is
        if self._stream_name() != ("legacy" if peer and self.program.default_stream == "per-thread" else "default"):
            self._refuse("a synchronous copy on that stream")
        return []

    def _on(self) -> list[str]:
        return ["on", self._stream_name()]

    def _stream_name(self) -> str:
        """Write a stream as the row's thread calls it."""
        number = self._get("stream")
        info = self.program.streams[number]
        if info.created:
            return self.streams[number]
        thread = self.program.threads[self._get("thread")]
        means_legacy = self.program.default_stream == "legacy"
        if info.kind == StreamKind.LEGACY:
            word = "default" if means_legacy else "legacy"
        elif means_legacy or info.name not in (f"default.{thread}", f"default.{thread}.{info.device}"):
            self._refuse("the default stream of another thread")
        else:
            word = "default"
        return word if info.device == self._devices[self._get("thread")] else f"{word}.{info.device}"

    def _stream(self, number: int) -> str:
        info: StreamInfo = self.program.streams[number]
        words = ["stream", self.streams[number], _STREAM_WORDS[info.kind]]
        words += [f"priority={info.priority}"] if info.priority else []
        return " ".join(words + ([f"device={info.device}"] if info.device else []))


def _names(wanted: Iterable[str], taken: set[str]) -> list[str]:
    """Give every wanted name, changed where a tape cannot have it or it is taken already."""
    names = list[str]()
    for want in wanted:
        name = want if is_name(want) else "_" + _NOT_IN_NAMES.sub("_", want).strip("_")
        number = 2
        base = name
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name)
        names.append(name)
    return names


_ALLOCATION_WORDS: dict[int, str] = {
    CallKind.MALLOC: "malloc", CallKind.MALLOC_ASYNC: "malloc", CallKind.FREE: "free", CallKind.FREE_ASYNC: "free",
    CallKind.HOST_MALLOC: "hostalloc", CallKind.HOST_FREE: "hostfree",
}  # fmt: skip
_CALLS: dict[CallKind, Callable[[_Writer], Sequence[str]]] = {
    **dict.fromkeys((CallKind.COPY_ASYNC, CallKind.COPY_SYNC, CallKind.MEMSET_ASYNC, CallKind.MEMSET_SYNC,
                     CallKind.BATCHED), _Writer._transfer),
    CallKind.BATCH: _Writer._batch,
    CallKind.WAIT_VALUE: _Writer._wait_value,
    CallKind.WRITE_VALUE: _Writer._write_value,
    CallKind.STORE: _Writer._write_value,
    **dict.fromkeys((CallKind(kind) for kind in _ALLOCATION_WORDS), _Writer._allocation),
    CallKind.LAUNCH: _Writer._kernel,
    CallKind.HOST_FUNCTION: _Writer._host_function,
    CallKind.RECORD: _Writer._record,
    CallKind.WAIT_EVENT: _Writer._wait,
    CallKind.SYNC_DEVICE: lambda writer: ["sync", "device"],
    CallKind.SYNC_STREAM: lambda writer: ["sync", writer._stream_name()],
    CallKind.SYNC_EVENT: lambda writer: ["sync", "event", writer._event()],
    CallKind.QUERY: _Writer._query,
    CallKind.ELAPSED: _Writer._elapsed,
    CallKind.HOST_WORK: lambda writer: ["host", format_time(writer._get("duration"))],
    CallKind.HOST_READ: _Writer._touch,
    CallKind.HOST_WRITE: _Writer._touch,
    CallKind.SEND: _Writer._message,
    CallKind.RECEIVE: _Writer._message,
    CallKind.REUSE: _Writer._reuse,
    CallKind.DEVICE: lambda writer: ["device", str(writer._get("device"))],
    CallKind.STREAM_CREATE: _Writer._create,
    CallKind.STREAM_DESTROY: lambda writer: ["destroy", writer._stream_name()],
    CallKind.CAPTURE: _Writer._capture,
    CallKind.CAPTURE_END: lambda writer: ["end-capture", writer._stream_name(), "as", writer._graph()],
    CallKind.GRAPH_LAUNCH: lambda writer: ["launch", writer._graph(), *writer._on()],
}  # fmt: skip
