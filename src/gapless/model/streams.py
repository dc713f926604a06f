"""A stream of a program, with the calls that are about it, and a batch of copies in one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from .errors import GaplessError
from .handles import Buffer, Event, Graph, Part, Word, memory_of
from .kinds import CallKind, CaptureMode, Condition, Flag, MemoryKind, OpKind, SourceOrder
from .things import WHOLE_GPU, Grid, Size, StreamInfo, Time, checked, in_bytes, picoseconds, word_value

if TYPE_CHECKING:
    from .program import Program


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of a program, with the calls that are about it. See ``Program``."""

    program: Program
    row: int

    @property
    def info(self) -> StreamInfo:
        """What kind of stream it is."""
        return self.program.streams[self.row]

    def h2d(self, time: Time | None = None, bytes: Size = -1, **options: Any) -> int:  # noqa: A002
        """``cudaMemcpyAsync`` to the device. Gives its row.

        Options: ``name``, ``label``, ``cost``; ``src`` and ``dst``, buffers or parts of buffers; ``pageable`` (default:
        what the host buffer is, else pinned).
        """
        return self._copy(OpKind.H2D, time, bytes, **options)

    def d2h(self, time: Time | None = None, bytes: Size = -1, **options: Any) -> int:  # noqa: A002
        """``cudaMemcpyAsync`` to the host. Options as ``h2d``."""
        return self._copy(OpKind.D2H, time, bytes, **options)

    def d2d(self, time: Time | None = None, bytes: Size = -1, **options: Any) -> int:  # noqa: A002
        """``cudaMemcpyAsync`` inside the device. Options as ``h2d``."""
        return self._copy(OpKind.D2D, time, bytes, **options)

    def h2h(self, time: Time | None = None, bytes: Size = -1, **options: Any) -> int:  # noqa: A002
        """``cudaMemcpyAsync`` from host to host. Options as ``h2d``."""
        return self._copy(OpKind.H2H, time, bytes, **options)

    def p2p(self, time: Time | None = None, bytes: Size = -1, *, to: int, **options: Any) -> int:  # noqa: A002
        """``cudaMemcpyPeerAsync`` to another device (R3.7). Options as ``h2d``."""
        return self._copy(OpKind.P2P, time, bytes, to=to, **options)

    def memset(self, time: Time | None = None, bytes: Size = -1, **options: Any) -> int:  # noqa: A002
        """``cudaMemsetAsync``. Options: ``name``, ``label``, ``cost``, ``dst``, ``pinned`` (its target)."""
        return self._memset(time, bytes, **options)

    def kernel(self, time: Time, *, share: Fraction | int | str | None = None, blocks: int = 1,
               grid: Grid | None = None, first: bool = False, programmatic: bool = False,
               reads: Iterable[Buffer | Part] = (), writes: Iterable[Buffer | Part] = (),
               bytes: int = -1, flags: int = 0, name: str = "",  # noqa: A002
               label: str = "", cost: Time | None = None) -> int:  # fmt: skip
        """Launch a kernel of ``blocks`` blocks, each needing ``share`` of the GPU (default: all) and taking ``time``.

        ``grid`` says the same with more detail. ``first``: the program has not launched this kernel before (R4.1).
        ``programmatic``: programmatic dependent of the kernel before (R6.14). ``bytes``: size of its arguments.
        """
        program = self.program
        row_of_grid = 0
        if grid is not None or share is not None or blocks != 1:
            row_of_grid = program._grid(checked(grid or Grid(blocks, WHOLE_GPU if share is None else Fraction(share))))
        if first:
            flags |= Flag.FIRST
        if programmatic:
            flags |= Flag.PROGRAMMATIC
        row = program._add(
            CallKind.LAUNCH, OpKind.KERNEL, self.row, duration=picoseconds(time), bytes=bytes, cost=picoseconds(cost),
            grid=row_of_grid, flags=flags, name=name, label=label,
        )  # fmt: skip
        self._accesses(row, reads, writes)
        return row

    def host_function(self, time: Time, *, reads: Iterable[Buffer | Part] = (), writes: Iterable[Buffer | Part] = (),
                      name: str = "", label: str = "", cost: Time | None = None) -> int:  # fmt: skip
        """``cudaLaunchHostFunc`` (R6.15)."""
        row = self.program._add(
            CallKind.HOST_FUNCTION, OpKind.HOST_FUNCTION, self.row, duration=picoseconds(time), cost=picoseconds(cost),
            name=name, label=label,
        )  # fmt: skip
        self._accesses(row, reads, writes)
        return row

    def record(self, event: Event, *, timed: bool = True, label: str = "", cost: Time | None = None) -> int:
        """``cudaEventRecord``: the event now stands for all work issued to the stream so far (R5.1)."""
        flags = 0 if timed else int(Flag.UNTIMED)
        return self.program._add(
            CallKind.RECORD,
            OpKind.RECORD,
            self.row,
            event.row,
            duration=0,
            flags=flags,
            label=label,
            cost=picoseconds(cost),
        )

    def wait(self, event: Event, *, external: bool = False, label: str = "", cost: Time | None = None) -> int:
        """``cudaStreamWaitEvent``: later work of the stream waits for what the event stands for now (R5.2)."""
        flags = int(Flag.EXTERNAL) if external else 0
        return self.program._add(
            CallKind.WAIT_EVENT,
            OpKind.WAIT,
            self.row,
            event.row,
            duration=0,
            flags=flags,
            label=label,
            cost=picoseconds(cost),
        )

    def write_value(self, word: Word, value: int, *, label: str = "", cost: Time | None = None) -> int:
        """``cuStreamWriteValue``: write a value to a word when the stream comes to it (R5.9)."""
        return self.program._add(
            CallKind.WRITE_VALUE, OpKind.WRITE_VALUE, self.row, word.row, duration=0, bytes=word_value(value),
            label=label, cost=picoseconds(cost),
        )  # fmt: skip

    def wait_value(self, word: Word, value: int, condition: Condition = Condition.GEQ, *, label: str = "",
                   cost: Time | None = None) -> int:  # fmt: skip
        """``cuStreamWaitValue``: later work of the stream waits until the word satisfies the condition (R5.9)."""
        return self.program._add(
            CallKind.WAIT_VALUE, OpKind.WAIT_VALUE, self.row, word.row, condition, duration=0, bytes=word_value(value),
            label=label, cost=picoseconds(cost),
        )  # fmt: skip

    def malloc(self, buffer: Buffer, *, label: str = "", cost: Time | None = None, first: bool = False) -> int:
        """``cudaMallocAsync`` (section 8). ``first``: the first one of the process, which makes the pool."""
        self.program._from_pool.add(buffer.row)
        flags = int(Flag.FIRST) if first else 0
        return self._allocation(CallKind.MALLOC_ASYNC, OpKind.MALLOC, buffer, label, cost, flags)

    def free(self, buffer: Buffer, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaFreeAsync`` (section 8)."""
        return self._allocation(CallKind.FREE_ASYNC, OpKind.FREE, buffer, label, cost)

    def sync(self, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaStreamSynchronize``."""
        return self.program._add(CallKind.SYNC_STREAM, stream=self.row, label=label, cost=picoseconds(cost))

    def query(self, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaStreamQuery``; the answer is ``Schedule.error`` of the row (0 or 600, not ready)."""
        return self.program._add(CallKind.QUERY, stream=self.row, label=label, cost=picoseconds(cost))

    def destroy(self, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaStreamDestroy``: returns at once, pending work still completes."""
        return self.program._add(CallKind.STREAM_DESTROY, stream=self.row, label=label, cost=picoseconds(cost))

    def capture(self, mode: CaptureMode = CaptureMode.GLOBAL, *, label: str = "", cost: Time | None = None) -> int:
        """``cudaStreamBeginCapture`` (R7.4)."""
        return self.program._add(CallKind.CAPTURE, stream=self.row, second=mode, label=label, cost=picoseconds(cost))

    def end_capture(self, graph: Graph | None = None, *, label: str = "", cost: Time | None = None) -> Graph:
        """``cudaStreamEndCapture`` and ``cudaGraphInstantiate``: gives the executable graph (R7.4)."""
        graph = self.program.graph() if graph is None else graph
        self.program._add(CallKind.CAPTURE_END, stream=self.row, object=graph.row, label=label, cost=picoseconds(cost))
        return graph

    def batch(self, name: str = "", *, order: SourceOrder = SourceOrder.STREAM, label: str = "",
              cost: Time | None = None) -> Batch:  # fmt: skip
        """``cudaMemcpyBatchAsync``: one call, and one operation in this stream, of copies in no order (R3.9).

        The copies are given by the methods of what this returns, before the thread makes another call. *order* says
        when they may read their sources. On the legacy stream the call fails.
        """
        program = self.program
        row = program._add(
            CallKind.BATCH, OpKind.BATCH, self.row, duration=0, name=name, label=label, cost=picoseconds(cost)
        )
        program._batches[program._thread] = row
        return Batch(self, row, order)

    def launch(self, graph: Graph, *, name: str = "", label: str = "", cost: Time | None = None) -> int:
        """``cudaGraphLaunch``: one operation in this stream (R7.1)."""
        return self.program._add(
            CallKind.GRAPH_LAUNCH,
            OpKind.GRAPH,
            self.row,
            graph.row,
            duration=0,
            name=name,
            label=label,
            cost=picoseconds(cost),
        )

    def _copy(self, op: OpKind, time: Time | None, bytes: Size = -1, *, sync: bool = False,  # noqa: A002
              src: Buffer | Part | None = None, dst: Buffer | Part | None = None, pageable: bool | None = None,
              to: int = -1, name: str = "", label: str = "", cost: Time | None = None,
              call: CallKind = CallKind.COPY_ASYNC, flags: int = 0) -> int:  # fmt: skip
        source = memory_of(src, pageable, name, host=op in (OpKind.H2D, OpKind.H2H))
        target = memory_of(dst, pageable, name, host=op in (OpKind.D2H, OpKind.H2H))
        row = self.program._add(
            CallKind.COPY_SYNC if sync else call, op, self.row, second=to, duration=picoseconds(time),
            bytes=in_bytes(bytes), cost=picoseconds(cost), src=source, dst=target, flags=flags, name=name, label=label,
        )  # fmt: skip
        self._accesses(row, [src] if src else [], [dst] if dst else [])
        return row

    def _memset(self, time: Time | None, bytes: Size = -1, *, sync: bool = False, dst: Buffer | Part | None = None,  # noqa: A002
                pinned: bool = False, name: str = "", label: str = "", cost: Time | None = None) -> int:  # fmt: skip
        target = dst.info.kind if dst else MemoryKind.PINNED if pinned else MemoryKind.DEVICE
        if pinned and target != MemoryKind.PINNED:
            raise GaplessError(f"memset {name or 'here'} says pinned, but its target is {target.name.lower()} memory")
        row = self.program._add(
            CallKind.MEMSET_SYNC if sync else CallKind.MEMSET_ASYNC, OpKind.MEMSET, self.row,
            duration=picoseconds(time), bytes=in_bytes(bytes), cost=picoseconds(cost), dst=target, name=name,
            label=label,
        )  # fmt: skip
        self._accesses(row, [], [dst] if dst else [])
        return row

    def _allocation(
        self, call: CallKind, op: OpKind, buffer: Buffer, label: str, cost: Time | None, flags: int = 0
    ) -> int:
        return self.program._add(
            call, op, self.row, buffer.row, duration=0, bytes=buffer.info.bytes, flags=flags, label=label,
            cost=picoseconds(cost),
        )  # fmt: skip

    def _accesses(self, row: int, reads: Iterable[Buffer | Part], writes: Iterable[Buffer | Part]) -> None:
        for place in reads:
            self.program._access(row, place, write=False)
        for place in writes:
            self.program._access(row, place, write=True)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of copies: one call, one operation in its stream, copies in no order (R3.9). See ``Stream.batch``."""

    stream: Stream
    row: int
    order: SourceOrder

    def h2d(self, time: Time | None = None, bytes: Size = -1, *, src: Buffer | Part | None = None,  # noqa: A002
            dst: Buffer | Part | None = None, pageable: bool | None = None, name: str = "") -> int:  # fmt: skip
        """Add a copy to the device; gives its row. Options as ``Stream.h2d``."""
        return self._add(OpKind.H2D, time, bytes, src=src, dst=dst, pageable=pageable, name=name)

    def d2h(self, time: Time | None = None, bytes: Size = -1, *, src: Buffer | Part | None = None,  # noqa: A002
            dst: Buffer | Part | None = None, pageable: bool | None = None, name: str = "") -> int:  # fmt: skip
        """Add a copy to the host; gives its row. Options as ``Stream.h2d``."""
        return self._add(OpKind.D2H, time, bytes, src=src, dst=dst, pageable=pageable, name=name)

    def d2d(self, time: Time | None = None, bytes: Size = -1, *, src: Buffer | Part | None = None,  # noqa: A002
            dst: Buffer | Part | None = None, name: str = "") -> int:  # fmt: skip
        """Add a copy inside the device; gives its row. Options as ``Stream.h2d``."""
        return self._add(OpKind.D2D, time, bytes, src=src, dst=dst, name=name)

    def _add(self, op: OpKind, time: Time | None, bytes: Size, **options: Any) -> int:  # noqa: A002
        program = self.stream.program
        if program._batches.get(program._thread) != self.row:
            raise GaplessError("a batch is one call: give it all its copies before the thread makes another call")
        flags = {SourceOrder.DURING_CALL: Flag.DURING_CALL, SourceOrder.ANY_TIME: Flag.ANY_TIME}.get(self.order, 0)
        return self.stream._copy(op, time, bytes, call=CallKind.BATCHED, flags=int(flags), **options)
