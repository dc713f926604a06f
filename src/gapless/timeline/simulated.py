"""A Schedule as a Timeline: what a simulated run did, in the form of a measured one.

Everything that draws, measures or explains timelines works on simulated runs too, and everything is known: which
streams are blocking, which event was waited for, which memory is pageable. Times are rounded from ps to ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.model.kinds import CallKind, Engine, OpKind
from gapless.model.program import batches
from gapless.model.schedule import Schedule

from .timeline import Calls, Device, MarkKind, Marks, Ops, RangeKind, Ranges, Stream, Thread, Timeline

FORMAT = "simulated"

Rows = NDArray[np.int64]


def from_schedule(run: Schedule, *, source: str = "", lines: Sequence[int] | NDArray[np.int32] = ()) -> Timeline:
    """Give a schedule as a timeline.

    *source* names the tape; *lines* gives for each row of the program its line there: each call is then made inside a
    range such as ``loop.tape(7): main``, as a recorded Python frame would be, so that places can be told.
    Operations that occupy no engine (records, waits, copies that fail) are no rows of ``ops``; records, waits and
    synchronisations are ``marks``.
    """
    program, machine = run.program, run.machine
    texts = _Texts()
    made = calls_of(run)
    call_of = np.full(len(program) + 1, -1, np.int64)  # row of the program -> row of calls; -1 for row -1
    call_of[made] = np.arange(len(made))
    for batch, copies in batches(program).items():  # one call for all of them
        call_of[copies] = call_of[batch]
    devices = range(1 + int(max((info.device for info in program.streams), default=0)))
    return Timeline(
        ops=_ops(run, call_of, texts),
        calls=_calls(run, made, texts),
        marks=_marks(run, call_of),
        ranges=_ranges(run, made, source, np.asarray(lines), texts),
        devices=tuple(Device(id=number, name=machine.name, sms=machine.sms or 0) for number in devices),
        streams=tuple(
            Stream(device=info.device, id=number, kind=info.kind, priority=info.priority, name=info.name)
            for number, info in enumerate(program.streams)
        ),
        threads=tuple(Thread(pid=0, tid=number, name=name) for number, name in enumerate(program.threads)),
        strings=texts.strings,
        source=source,
        format=FORMAT,
    )


def operations_of(run: Schedule) -> Rows:
    """Give the operations that are rows of the timeline's ``ops``, in their order."""
    ops = np.flatnonzero((run.start >= 0) & np.isin(run.engine, _DEVICE_ENGINES))
    return ops[np.argsort(run.start[ops], kind="stable")]


def calls_of(run: Schedule) -> Rows:
    """Give the rows of the program that are rows of the timeline's ``calls``, in their order."""
    made = np.flatnonzero(np.array([kind in _NAMES for kind in CallKind])[run.program.rows.call] & (run.begin >= 0))
    return made[np.argsort(run.begin[made], kind="stable")]


class _Texts:
    """Numbers texts."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._rows: dict[str, int] = {}

    def number(self, text: str) -> int:
        row = self._rows.setdefault(text, len(self.strings))
        if row == len(self.strings):
            self.strings.append(text)
        return row


def _ops(run: Schedule, call_of: Rows, texts: _Texts) -> Ops:
    rows = run.program.rows
    ops = operations_of(run)
    row = np.concatenate([np.arange(len(run.program)), run.node_row])[ops]
    issued_by = np.concatenate([np.arange(len(run.program)), run.node_launch])[ops]
    stream = rows.stream[issued_by]
    device = np.array([info.device for info in run.program.streams] or [0], np.int16)
    blocks = np.array([grid.blocks for grid in run.program.grids] + [-1], np.int32)[rows.grid[row]]
    grid = np.stack([blocks, np.where(blocks > 0, 1, -1), np.where(blocks > 0, 1, -1)], axis=1)
    return Ops.build(
        kind=rows.op[row], name=_names(run, row, texts), device=device[stream], stream=stream,
        start=_ns(run.start[ops]), end=_ns(run.end[ops]), bytes=rows.bytes[row], src=rows.src[row], dst=rows.dst[row],
        grid=grid, correlation=issued_by + 1, call=call_of[issued_by],
        graph=np.where(ops >= len(run.program), rows.object[issued_by], -1),
    )  # fmt: skip


def _calls(run: Schedule, made: Rows, texts: _Texts) -> Calls:
    rows = run.program.rows
    kind = rows.call[made]
    name = np.full(len(CallKind), -1, np.int32)
    for known in np.unique(kind).tolist():
        name[known] = texts.number(_NAMES[CallKind(known)])
    measured = np.arange(len(CallKind), dtype=np.int8)
    measured[[CallKind.CAPTURE_END, CallKind.BATCH]] = CallKind.CAPTURE, CallKind.COPY_ASYNC
    return Calls.build(
        kind=measured[kind], name=name[kind], thread=rows.thread[made],
        start=_ns(run.begin[made]), end=_ns(run.returned[made]), correlation=made + 1,
    )  # fmt: skip


def _marks(run: Schedule, call_of: Rows) -> Marks:
    """Records and waits take place in their stream, synchronisations during their call (section 5)."""
    rows = run.program.rows
    saw = np.full(len(run.program), -1, np.int64)
    saw[list(run.saw)] = list(run.saw.values())
    own = np.arange(len(run.program))
    in_stream = run.start[: len(own)] >= 0
    of_stream = np.flatnonzero(in_stream & np.isin(rows.op, (OpKind.RECORD, OpKind.WAIT)))
    of_host = np.flatnonzero(np.isin(rows.call, list(_SYNCS)) & (run.error == 0))
    row = np.concatenate([of_stream, of_host])
    kinds = np.zeros(len(CallKind), np.int8)
    for call, mark in _MARKS.items():
        kinds[call] = mark
    start = np.concatenate([run.start[of_stream], run.begin[of_host]])
    end = np.concatenate([run.end[of_stream], run.returned[of_host]])
    order = np.argsort(start, kind="stable")
    row, start, end = row[order], start[order], end[order]
    about_event = np.isin(rows.call[row], _ABOUT_EVENT)
    record = np.where(np.isin(rows.call[row], (CallKind.WAIT_EVENT, CallKind.SYNC_EVENT)), saw[row], -1)
    record = np.where(record < len(run.program), record, -1)
    return Marks.build(
        kind=kinds[rows.call[row]], stream=rows.stream[row], start=_ns(start), end=_ns(end),
        event=np.where(about_event, rows.object[row], -1), call=call_of[row],
        waits_on=np.where(record >= 0, rows.stream[record], -1), record=np.where(record >= 0, record + 1, -1),
    )  # fmt: skip


def _ranges(run: Schedule, made: Rows, source: str, lines: NDArray[np.int32], texts: _Texts) -> Ranges:
    """Give one range for each call, named after its line."""
    if not len(lines):
        return Ranges.build()
    rows = run.program.rows
    place, thread = lines[made].tolist(), rows.thread[made].tolist()
    said = {
        (line, number): texts.number(f"{source or 'tape'}({line}): {run.program.threads[number]}")
        for line, number in set(zip(place, thread, strict=True))
    }
    return Ranges.build(
        kind=np.full(len(made), RangeKind.PYTHON, np.int8), name=[said[at] for at in zip(place, thread, strict=True)],
        thread=thread, start=_ns(run.begin[made]), end=_ns(run.returned[made]),
    )  # fmt: skip


def _names(run: Schedule, row: NDArray[Any], texts: _Texts) -> NDArray[np.int32]:
    """Give the number of each row's name; one without a name or a label is called what it is."""
    rows, strings = run.program.rows, run.program.strings
    text = np.where(rows.name[row] >= 0, rows.name[row], rows.label[row])
    text = np.where(text >= 0, text, -1 - rows.op[row])
    known, at = np.unique(text, return_inverse=True)
    said = [strings[t] if t >= 0 else _UNNAMED.get(OpKind(-1 - t), "work") for t in known.tolist()]
    return np.array([texts.number(name) for name in said], np.int32)[at]


def _ns(picoseconds: Rows) -> Rows:
    return (picoseconds + 500) // 1000


_UNNAMED: Mapping[OpKind, str] = {
    OpKind.H2D: "copy to the device", OpKind.D2H: "copy to the host", OpKind.D2D: "copy on the device",
    OpKind.P2P: "copy between devices", OpKind.MEMSET: "memset",
}  # fmt: skip
_DEVICE_ENGINES = (Engine.SM, Engine.H2D, Engine.D2H, Engine.PEER)
_MARKS: Mapping[CallKind, MarkKind] = {
    CallKind.RECORD: MarkKind.RECORD, CallKind.WAIT_EVENT: MarkKind.WAIT, CallKind.SYNC_EVENT: MarkKind.SYNC_EVENT,
    CallKind.SYNC_STREAM: MarkKind.SYNC_STREAM, CallKind.SYNC_DEVICE: MarkKind.SYNC_DEVICE,
}  # fmt: skip
_SYNCS = (CallKind.SYNC_EVENT, CallKind.SYNC_STREAM, CallKind.SYNC_DEVICE)
_ABOUT_EVENT = (CallKind.RECORD, CallKind.WAIT_EVENT, CallKind.SYNC_EVENT)

# The calls of the CUDA runtime. What a host thread does beside them (work, reads, messages) is no call.
_NAMES: Mapping[CallKind, str] = {
    CallKind.OTHER: "cudaOther", CallKind.LAUNCH: "cudaLaunchKernel", CallKind.COPY_ASYNC: "cudaMemcpyAsync",
    CallKind.COPY_SYNC: "cudaMemcpy", CallKind.MEMSET_ASYNC: "cudaMemsetAsync", CallKind.MEMSET_SYNC: "cudaMemset",
    CallKind.SYNC_DEVICE: "cudaDeviceSynchronize", CallKind.SYNC_STREAM: "cudaStreamSynchronize",
    CallKind.SYNC_EVENT: "cudaEventSynchronize", CallKind.QUERY: "cudaEventQuery", CallKind.RECORD: "cudaEventRecord",
    CallKind.WAIT_EVENT: "cudaStreamWaitEvent", CallKind.ELAPSED: "cudaEventElapsedTime", CallKind.MALLOC: "cudaMalloc",
    CallKind.FREE: "cudaFree", CallKind.HOST_MALLOC: "cudaMallocHost", CallKind.HOST_FREE: "cudaFreeHost",
    CallKind.HOST_REGISTER: "cudaHostRegister", CallKind.HOST_UNREGISTER: "cudaHostUnregister",
    CallKind.MALLOC_ASYNC: "cudaMallocAsync", CallKind.FREE_ASYNC: "cudaFreeAsync",
    CallKind.GRAPH_LAUNCH: "cudaGraphLaunch", CallKind.GRAPH_BUILD: "cudaGraphInstantiate",
    CallKind.CAPTURE: "cudaStreamBeginCapture", CallKind.CAPTURE_END: "cudaStreamEndCapture",
    CallKind.HOST_FUNCTION: "cudaLaunchHostFunc", CallKind.STREAM_CREATE: "cudaStreamCreateWithFlags",
    CallKind.STREAM_DESTROY: "cudaStreamDestroy", CallKind.EVENT_CREATE: "cudaEventCreateWithFlags",
    CallKind.EVENT_DESTROY: "cudaEventDestroy", CallKind.MODULE: "cudaModuleLoad",
    CallKind.FUNCTION_ATTRIBUTES: "cudaFuncGetAttributes", CallKind.DEVICE_LIMIT: "cudaDeviceSetLimit",
    CallKind.DEVICE: "cudaSetDevice", CallKind.BATCH: "cudaMemcpyBatchAsync",
}  # fmt: skip
