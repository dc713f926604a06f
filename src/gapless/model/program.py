"""The Program: what host threads asked of the GPUs, call by call.

The usual chunk loop over three streams::

    from gapless.model.program import Program
    from gapless.model.units import ms

    program = Program()
    streams = [program.stream(f"s{i}", NON_BLOCKING) for i in range(3)]
    for i in range(4):
        stream = streams[i % 3]
        stream.h2d(1 * ms, name=f"h{i}")
        stream.kernel(1 * ms, name=f"k{i}")
        stream.d2h(1 * ms, name=f"d{i}")
    program.sync_device()

A call on a stream is the asynchronous form (``cudaMemcpyAsync``), the same call on the program the plain form
(``cudaMemcpy``), which goes to the default stream. Every call gives its **row**; the operation that a call puts into a
stream has the same row, so one number names both. Times are whole picoseconds (``3 * ms``, or text: ``"3ms"``), sizes
bytes. ``name`` names the operation, ``label`` the call.

The table has one row a call, in the order in which the program's text asked; the rows of one host thread are in that
thread's order. How the rows of different threads interleave is decided when the program runs. ``program.rows`` gives
the table as NumPy columns; ``columns.py`` says what each holds.

Between the calls ``capture`` and ``end_capture`` of a stream, the operations put into it become the nodes of a graph
instead of running; which rows those are is decided when the program runs (R7.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .columns import ACCESS_DTYPES, ROW_DTYPES, ROW_FILL, Accesses, Columns, Rows
from .errors import GaplessError
from .handles import Buffer, Event, Graph, Part, Word
from .kinds import CALL, CallKind, Flag, MemoryKind, OpKind, StreamKind
from .streams import Stream
from .things import BufferInfo, EventInfo, Grid, Size, StreamInfo, Time, in_bytes, picoseconds


class Program:
    """Calls of host threads, built by the methods here and on ``Stream``, or in bulk by ``extend``.

    ``default_stream`` says what the default stream means to calls (R2.7): the legacy one, or the calling thread's own.
    """

    def __init__(self, default_stream: Literal["legacy", "per-thread"] = "legacy") -> None:
        if default_stream not in ("legacy", "per-thread"):
            raise GaplessError(f"default_stream is 'legacy' or 'per-thread', not {default_stream!r}")
        self.default_stream: Literal["legacy", "per-thread"] = default_stream
        self.threads: list[str] = ["main"]
        self.streams: list[StreamInfo] = []
        self.events: list[EventInfo] = []
        self.buffers: list[BufferInfo] = []
        self.messages: list[str] = []
        self.words: list[str] = []  # of memory, by which streams wait for each other (R5.9)
        self.graphs: list[str] = []
        self.grids: list[Grid] = [Grid()]
        self.strings: list[str] = []
        self._rows = Columns(ROW_DTYPES)
        self._accesses = Columns(ACCESS_DTYPES)
        self._thread = 0
        self._device = [0]  # current device of each thread
        self._default_streams: dict[tuple[int, int], int] = {}  # (thread or -1 for legacy, device) -> row of streams
        self._grid_rows: dict[Grid, int] = {self.grids[0]: 0}
        self._from_pool: set[int] = set()  # buffers whose memory is stream-ordered
        self._batches: dict[int, int] = {}  # thread -> its batch that may still be given copies
        self._found: tuple[int, dict[str, int]] = (0, {})
        self._shown: tuple[dict[str, NDArray[Any]], Rows | None] = ({}, None)  # the columns as they were asked for

    # ------------------------------------------------------------------------------------------------- things

    def stream(self, name: str = "", kind: StreamKind = StreamKind.BLOCKING, *, priority: int = 0,
               device: int = 0) -> Stream:  # fmt: skip
        """Declare a created stream. Creation orders nothing (R2.4); for what it costs, add ``call(STREAM_CREATE)``."""
        if kind in (StreamKind.LEGACY, StreamKind.UNKNOWN):
            raise GaplessError(f"a created stream is BLOCKING, NON_BLOCKING or PER_THREAD, not {StreamKind(kind).name}")
        return Stream(self, self._new_stream(StreamInfo(name or f"stream{len(self.streams)}", kind, priority, device)))

    def legacy(self, device: int = 0) -> Stream:
        """Give the legacy default stream of a device, whatever ``default_stream`` says (``cudaStreamLegacy``)."""
        name = "default" if device == 0 else f"default.{device}"
        return Stream(self, self._default_row(-1, device, name, StreamKind.LEGACY))

    def per_thread(self, device: int | None = None) -> Stream:
        """Give the per-thread default stream of the current thread (``cudaStreamPerThread``)."""
        device = self.current_device if device is None else device
        name = f"default.{self.threads[self._thread]}" + (f".{device}" if device else "")
        return Stream(self, self._default_row(self._thread, device, name, StreamKind.PER_THREAD))

    @property
    def default(self) -> Stream:
        """The default stream of the current device, as the calling thread sees it now (R2.7)."""
        return self.default_of(self.current_device)

    def default_of(self, device: int) -> Stream:
        """Give the default stream of a device, as the calling thread sees it now (R2.7)."""
        return self.legacy(device) if self.default_stream == "legacy" else self.per_thread(device)

    def event(self, name: str = "", *, device: int = -1) -> Event:
        """Declare an event; one that is never recorded is empty (R5.3)."""
        self.events.append(EventInfo(name or f"event{len(self.events)}", device))
        return Event(self, len(self.events) - 1)

    def buffer(self, name: str = "", bytes: Size = -1, kind: MemoryKind = MemoryKind.DEVICE) -> Buffer:  # noqa: A002
        """Declare memory that operations and host threads read and write."""
        self.buffers.append(BufferInfo(name or f"buffer{len(self.buffers)}", kind, in_bytes(bytes)))
        return Buffer(self, len(self.buffers) - 1)

    def word(self, name: str = "") -> Word:
        """Name a word of memory that streams wait for and write to (R5.9). It holds 0 at the start."""
        self.words.append(name or f"word{len(self.words)}")
        return Word(self, len(self.words) - 1)

    def graph(self, name: str = "") -> Graph:
        """Name an executable graph that ``end_capture`` or ``instantiate`` will fill."""
        self.graphs.append(name or f"graph{len(self.graphs)}")
        return Graph(self, len(self.graphs) - 1)

    @contextmanager
    def thread(self, name: str) -> Iterator[None]:
        """Make the calls inside those of another host thread. All threads start together at time 0."""
        if name not in self.threads:
            self.threads.append(name)
            self._device.append(0)
        before, self._thread = self._thread, self.threads.index(name)
        try:
            yield
        finally:
            self._thread = before

    @property
    def current_device(self) -> int:
        """The device that is current in the current thread."""
        return self._device[self._thread]

    # -------------------------------------------------------------------------- calls that belong to no stream

    def h2d(self, time: Time | None = None, bytes: Size = -1, **options: Any) -> int:  # noqa: A002
        """``cudaMemcpy`` to the device: synchronous, on the default stream (R3.1). Options as ``Stream.h2d``."""
        return self.default._copy(OpKind.H2D, time, bytes, sync=True, **options)

    def d2h(self, time: Time | None = None, bytes: Size = -1, **options: Any) -> int:  # noqa: A002
        """``cudaMemcpy`` to the host: synchronous, on the default stream (R3.1). Options as ``Stream.h2d``."""
        return self.default._copy(OpKind.D2H, time, bytes, sync=True, **options)

    def d2d(self, time: Time | None = None, bytes: Size = -1, **options: Any) -> int:  # noqa: A002
        """``cudaMemcpy`` inside the device, on the default stream; does not block the host (table 3.1)."""
        return self.default._copy(OpKind.D2D, time, bytes, sync=True, **options)

    def h2h(self, time: Time | None = None, bytes: Size = -1, **options: Any) -> int:  # noqa: A002
        """``cudaMemcpy`` from host to host: the host waits for the default stream, then copies (table 3.1)."""
        return self.default._copy(OpKind.H2H, time, bytes, sync=True, **options)

    def p2p(self, time: Time | None = None, bytes: Size = -1, *, to: int, **options: Any) -> int:  # noqa: A002
        """``cudaMemcpyPeer`` from the current device: an operation of the legacy streams of both devices (R3.7)."""
        return self.legacy(self.current_device)._copy(OpKind.P2P, time, bytes, sync=True, to=to, **options)

    def memset(self, time: Time | None = None, bytes: Size = -1, **options: Any) -> int:  # noqa: A002
        """``cudaMemset``, on the default stream; waits only if its target is pinned host memory (table 3.1)."""
        return self.default._memset(time, bytes, sync=True, **options)

    def sync_device(self, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaDeviceSynchronize`` of the current device (R2.6)."""
        return self.call(CallKind.SYNC_DEVICE, label=label, cost=cost)

    def host(self, time: Time, *, label: str = "") -> int:
        """Let the host thread work for a time."""
        return self._add(CallKind.HOST_WORK, duration=picoseconds(time), label=label)

    def read(self, buffer: Buffer | Part, *, label: str = "") -> int:
        """Let the host thread read memory."""
        return self._touch(CallKind.HOST_READ, buffer, label)

    def write(self, buffer: Buffer | Part, *, label: str = "") -> int:
        """Let the host thread write memory."""
        return self._touch(CallKind.HOST_WRITE, buffer, label)

    def send(self, message: str, *, label: str = "") -> int:
        """Tell another host thread something; everything before orders before what follows its ``receive``."""
        return self._add(CallKind.SEND, object=self._message(message), label=label)

    def receive(self, message: str, *, label: str = "") -> int:
        """Wait until another host thread has sent the message."""
        return self._add(CallKind.RECEIVE, object=self._message(message), label=label)

    def malloc(self, buffer: Buffer, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaMalloc``."""
        self._from_pool.discard(buffer.row)
        return self._allocation(CallKind.MALLOC, buffer, label, cost)

    def free(self, buffer: Buffer, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaFree``: waits for all work of the device, but not if the memory is stream-ordered (section 4)."""
        flags = int(Flag.POOL) if buffer.row in self._from_pool else 0
        return self._allocation(CallKind.FREE, buffer, label, cost, flags)

    def host_alloc(self, buffer: Buffer, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaMallocHost``."""
        return self._allocation(CallKind.HOST_MALLOC, buffer, label, cost)

    def host_free(self, buffer: Buffer, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaFreeHost``: waits for all work of the device (section 4)."""
        return self._allocation(CallKind.HOST_FREE, buffer, label, cost)

    def host_register(self, buffer: Buffer, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaHostRegister``."""
        return self._allocation(CallKind.HOST_REGISTER, buffer, label, cost)

    def host_unregister(self, buffer: Buffer, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaHostUnregister``: waits for all work of the device (section 4)."""
        return self._allocation(CallKind.HOST_UNREGISTER, buffer, label, cost)

    def reuse(self, buffer: Buffer, of: Buffer, *, label: str = "") -> int:
        """Hand out the memory of *of* again, as *buffer*, the way an allocator does."""
        return self._add(CallKind.REUSE, object=buffer.row, second=of.row, label=label)

    def elapsed(self, earlier: Event, later: Event, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaEventElapsedTime``; its value is ``Schedule.value`` of the row."""
        return self._add(CallKind.ELAPSED, object=earlier.row, second=later.row, label=label, cost=picoseconds(cost))

    def instantiate(self, graph: Graph, name: str = "", *, label: str = "", cost: Time | None = None,
                    first: bool = False) -> Graph:  # fmt: skip
        """``cudaGraphInstantiate`` once more; the new one may overlap the old one (R7.1)."""
        new, flags = self.graph(name), int(Flag.FIRST) if first else 0
        self._add(
            CallKind.GRAPH_BUILD, object=new.row, second=graph.row, flags=flags, label=label, cost=picoseconds(cost)
        )
        return new

    def update(self, graph: Graph, source: Graph, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaGraphExecUpdate``: from its next launch on *graph* does what *source* does (R7.3)."""
        return self._add(
            CallKind.GRAPH_UPDATE, object=graph.row, second=source.row, label=label, cost=picoseconds(cost)
        )  # fmt: skip

    def set_device(self, device: int, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaSetDevice``: make a device current in this thread; waits for nothing."""
        self._device[self._thread] = device
        return self.call(CallKind.DEVICE, label=label, cost=cost)

    def call(self, kind: CallKind, *, stream: Stream | None = None, label: str = "", cost: Time | None = None,
             flags: int = 0) -> int:  # fmt: skip
        """Make any other call, of which only class and cost matter (``MODULE``, ``STREAM_CREATE``, ``OTHER`` ...).

        *stream* is the one it is about, if any.
        """
        return self._add(kind, stream=stream.row if stream else -1, flags=flags, label=label, cost=picoseconds(cost))

    # -------------------------------------------------------------------------------------- the tables in bulk

    def extend(self, **columns: ArrayLike) -> range:
        """Append many rows at once, a column each (see the module's text); one left out is "none" in every row.

        Streams, events and so on are declared before. Raises ``GaplessError`` for unknown columns, different lengths
        and numbers of things that do not exist.
        """
        if strangers := columns.keys() - ROW_DTYPES.keys():
            raise GaplessError(f"a program has no column {', '.join(sorted(strangers))}")
        given = {name: np.asarray(column, ROW_DTYPES[name]) for name, column in columns.items()}
        if len(lengths := {len(column) for column in given.values()}) > 1:
            raise GaplessError(f"columns of a program differ in length: {sorted(lengths)}")
        if "call" not in given:
            raise GaplessError("rows of a program need the column call")
        count = lengths.pop()
        whole = {n: given[n] if n in given else np.full(count, ROW_FILL[n], dtype) for n, dtype in ROW_DTYPES.items()}
        if "grid" not in given:
            whole["grid"][whole["op"] == OpKind.KERNEL] = 0
        self._check(whole)
        return self._rows.extend(whole)

    def access(
        self, row: ArrayLike, buffer: ArrayLike, write: ArrayLike, low: ArrayLike = 0, high: ArrayLike = -1
    ) -> None:
        """Append many accesses at once, arrays of one length or single values; ``accesses`` sorts them by row."""
        row = np.atleast_1d(np.asarray(row, np.int32))
        given = {"row": row, "buffer": buffer, "write": write, "low": low, "high": high}
        self._accesses.extend(
            {n: np.broadcast_to(np.asarray(v, ACCESS_DTYPES[n]), row.shape) for n, v in given.items()}
        )

    @property
    def rows(self) -> Rows:
        """The call table as columns. Do not write into them: ``replace`` gives a changed program."""
        columns, (known, rows) = self._rows.columns(), self._shown
        if rows is None or columns is not known:
            rows = Rows(**columns)
            self._shown = columns, rows
        return rows

    @property
    def accesses(self) -> Accesses:
        """The accesses as columns, sorted by row."""
        columns = self._accesses.columns()
        if np.any(np.diff(columns["row"]) < 0):
            order = np.argsort(columns["row"], kind="stable")
            columns = {name: column[order] for name, column in columns.items()}
        return Accesses(**columns)

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, rows: ArrayLike) -> Program:
        """Give the program of these rows only, in this order (an index array or a boolean mask)."""
        kept = np.arange(len(self))[np.asarray(rows)]
        new_row = np.full(len(self), -1, np.int32)
        new_row[kept] = np.arange(len(kept), dtype=np.int32)
        old, new = self.accesses, self._bare()
        new._rows.extend({name: column[kept] for name, column in self._rows.columns().items()})
        here = new_row[old.row] >= 0
        new.access(new_row[old.row][here], old.buffer[here], old.write[here], old.low[here], old.high[here])
        return new

    def replace(self, **columns: ArrayLike) -> Program:
        """Give the same program with other columns (full length), say ``src`` or ``stream``; accesses stay."""
        new = self._bare()
        new.extend(**(self._rows.columns() | columns))
        if len(new) != len(self):
            raise GaplessError(f"the program has {len(self)} rows, the new columns {len(new)}")
        new._accesses.extend(self._accesses.columns())
        return new

    def with_streams(self, streams: Iterable[StreamInfo]) -> Program:
        """Give the same program with other knowledge of its streams; more may be added at the end."""
        new = self._bare()
        new.streams = list(streams)
        if len(new.streams) < len(self.streams):
            raise GaplessError(f"the program has {len(self.streams)} streams, got {len(new.streams)}")
        new._rows.extend(self._rows.columns())
        new._accesses.extend(self._accesses.columns())
        return new

    # ------------------------------------------------------------------------------------------------ looking up

    def find(self, name: str) -> int:
        """Give the row of an operation's name or a call's label. Raises ``GaplessError`` if there is none."""
        if self._found[0] != len(self):
            self._found = (len(self), self._index())
        if name not in self._found[1]:
            close = get_close_matches(name, self._found[1], 1)
            raise GaplessError(
                f"no operation or call is named {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")
            )
        return self._found[1][name]

    def name_of(self, row: int) -> str:
        """Give the name of a row's operation or the label of its call; empty if it has neither."""
        rows = self.rows
        text = rows.name[row] if rows.name[row] >= 0 else rows.label[row]
        return self.strings[text] if text >= 0 else ""

    def describe(self, row: int) -> str:
        """Say in a few words what a row is, and where: ``sync s0 (call 7 of thread main)``."""
        threads = self.rows.thread
        number = int(np.count_nonzero(threads[:row] == threads[row]))
        return f"{self.brief(row)} (call {number} of thread {self.threads[threads[row]]})"

    def brief(self, row: int) -> str:
        """Say in a few words what a row is: ``kernel k0 on s1``, ``sync s0``."""
        rows = self.rows
        call, op, stream, thing = (int(c[row]) for c in (rows.call, rows.op, rows.stream, rows.object))
        words = [_OP_WORDS.get(op, _CALL_WORDS.get(call, CallKind(call).name.lower().replace("_", " ")))]
        if call in _ABOUT_EVENT and thing >= 0:
            words.append(self.events[thing].name)
        elif call in _ABOUT_BUFFER and thing >= 0:
            words.append(self.buffers[thing].name)
        elif call in (CallKind.SEND, CallKind.RECEIVE):
            words.append(self.messages[thing])
        elif call in (CallKind.WRITE_VALUE, CallKind.WAIT_VALUE, CallKind.STORE):
            words.append(self.words[thing])
        elif op >= 0 and (name := self.name_of(row)):
            words.append(name)
        if stream >= 0:
            words += ["on"] * (op >= 0 or call == CallKind.WAIT_EVENT) + [self.streams[stream].name]
        return " ".join(words)

    # ----------------------------------------------------------------------------------------------------- inside

    def _add(self, call: int, op: int = -1, stream: int = -1, object: int = -1, second: int = -1,  # noqa: A002
             duration: int = -1, bytes: int = -1, cost: int = -1, src: int = 0, dst: int = 0, grid: int = -1,  # noqa: A002
             flags: int = 0, name: str = "", label: str = "") -> int:  # fmt: skip
        thread = self._thread
        if self._batches and call != CallKind.BATCHED:
            self._batches.pop(thread, None)
        return self._rows.append(
            call, op, thread, stream, object, second, duration, bytes, cost, src, dst, self._device[thread], grid,
            flags, self._string(name) if name else -1, self._string(label) if label else -1,
        )  # fmt: skip

    def _touch(self, call: CallKind, place: Buffer | Part, label: str) -> int:
        row = self._add(call, object=place.row, label=label)
        self._access(row, place, write=call == CallKind.HOST_WRITE)
        return row

    def _access(self, row: int, place: Buffer | Part, *, write: bool) -> None:
        low, high = (place.low, place.high) if isinstance(place, Part) else (0, -1)
        self._accesses.append(row, place.row, write, low, high)

    def _allocation(self, call: CallKind, buffer: Buffer, label: str, cost: Time | None, flags: int = 0) -> int:
        return self._add(
            call, object=buffer.row, bytes=buffer.info.bytes, flags=flags, label=label, cost=picoseconds(cost)
        )

    def _message(self, name: str) -> int:
        if name not in self.messages:
            self.messages.append(name)
        return self.messages.index(name)

    def _string(self, text: str) -> int:
        self.strings.append(text)
        return len(self.strings) - 1

    def _grid(self, grid: Grid) -> int:
        if grid not in self._grid_rows:
            self._grid_rows[grid] = len(self.grids)
            self.grids.append(grid)
        return self._grid_rows[grid]

    def _new_stream(self, info: StreamInfo) -> int:
        self.streams.append(info)
        return len(self.streams) - 1

    def _default_row(self, thread: int, device: int, name: str, kind: StreamKind) -> int:
        key = (thread, device)
        if key not in self._default_streams:
            self._default_streams[key] = self._new_stream(StreamInfo(name, kind, 0, device, created=False))
        return self._default_streams[key]

    def _bare(self) -> Program:
        """Give the same things without any call."""
        new = Program(self.default_stream)
        for name in (
            "threads",
            "streams",
            "events",
            "buffers",
            "messages",
            "words",
            "graphs",
            "grids",
            "strings",
            "_device",
        ):
            setattr(new, name, list(getattr(self, name)))
        new._default_streams, new._grid_rows = dict(self._default_streams), dict(self._grid_rows)
        new._from_pool, new._thread = set(self._from_pool), self._thread
        return new

    def _check(self, columns: dict[str, NDArray[Any]]) -> None:
        sizes = {
            "thread": self.threads,
            "stream": self.streams,
            "grid": self.grids,
            "name": self.strings,
            "label": self.strings,
        }
        for name, things in sizes.items():
            column = columns[name]
            if len(column) and (column.max() >= len(things) or column.min() < -1):
                raise GaplessError(f"column {name} names number {column.max()}, but the program has {len(things)}")
        for name, enum in (("call", CallKind), ("op", OpKind), ("src", MemoryKind), ("dst", MemoryKind)):
            column = columns[name]
            if len(column) and (column.max() > max(enum) or column.min() < -1):
                raise GaplessError(f"column {name} holds a number that no {enum.__name__} has")
        if np.any((columns["op"] >= 0) & (columns["stream"] < 0)):
            raise GaplessError("an operation needs a stream")

    def _index(self) -> dict[str, int]:
        rows, index = self.rows, dict[str, int]()
        for column in (rows.name, rows.label):
            named = np.flatnonzero(column >= 0)
            for row, text in zip(named.tolist(), column[named].tolist(), strict=True):
                if index.setdefault(self.strings[text], row) != row:
                    raise GaplessError(
                        f"the name {self.strings[text]!r} stands twice; names of operations and labels are unique"
                    )
        return index


_OP_WORDS: dict[int, str] = {
    OpKind.KERNEL: "kernel", OpKind.H2D: "h2d", OpKind.D2H: "d2h", OpKind.D2D: "d2d", OpKind.P2P: "p2p",
    OpKind.H2H: "h2h", OpKind.MEMSET: "memset", OpKind.HOST_FUNCTION: "hostfn", OpKind.RECORD: "record",
    OpKind.WAIT: "wait", OpKind.MALLOC: "malloc", OpKind.FREE: "free", OpKind.GRAPH: "launch", OpKind.BATCH: "batch",
    OpKind.WRITE_VALUE: "write-value", OpKind.WAIT_VALUE: "wait-value",
}  # fmt: skip
_CALL_WORDS: dict[int, str] = {
    CallKind.SYNC_DEVICE: "sync device", CallKind.SYNC_STREAM: "sync", CallKind.SYNC_EVENT: "sync event",
    CallKind.WAIT_EVENT: "wait", CallKind.HOST_WORK: "host", CallKind.HOST_READ: "read", CallKind.HOST_WRITE: "write",
    CallKind.HOST_MALLOC: "hostalloc", CallKind.HOST_FREE: "hostfree", CallKind.CAPTURE_END: "end-capture",
    CallKind.STREAM_DESTROY: "destroy", CallKind.STORE: "write-value",
}  # fmt: skip
_ABOUT_EVENT = {CallKind.RECORD, CallKind.WAIT_EVENT, CallKind.SYNC_EVENT, CallKind.QUERY, CallKind.ELAPSED}
_ABOUT_BUFFER = {
    CallKind.MALLOC, CallKind.FREE, CallKind.HOST_MALLOC, CallKind.HOST_FREE, CallKind.HOST_REGISTER,
    CallKind.HOST_UNREGISTER, CallKind.MALLOC_ASYNC, CallKind.FREE_ASYNC, CallKind.REUSE, CallKind.HOST_READ,
    CallKind.HOST_WRITE,
}  # fmt: skip


def batches(program: Program) -> dict[int, list[int]]:
    """Give the rows of the copies of every batch, by the row of its call (R3.9).

    Raises ``GaplessError`` for a copy of a batch that does not follow its batch in the same thread.
    """
    rows, found = program.rows, dict[int, list[int]]()
    if not (rows.call == CALL.BATCHED).any():
        return {row: [] for row in np.flatnonzero(rows.call == CALL.BATCH).tolist()}
    last: dict[int, int] = {}  # thread -> its batch, as long as nothing but copies of it has followed
    for row, (call, thread) in enumerate(zip(rows.call.tolist(), rows.thread.tolist(), strict=True)):
        if call == CALL.BATCH:
            found[row], last[thread] = [], row
        elif call != CALL.BATCHED:
            last.pop(thread, None)
        elif thread in last:
            found[last[thread]].append(row)
        else:
            raise GaplessError(f"{program.describe(row)} is a copy of a batch, but follows no batch")
    return found


def ranges(program: Program) -> Sequence[tuple[int, int]]:
    """Give ``(first, end)`` into ``program.accesses`` for every row of the program."""
    rows = np.arange(len(program) + 1)
    edges = np.searchsorted(program.accesses.row, rows)
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
