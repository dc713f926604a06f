"""Recordings of small programs, written call by call with the memory that they touch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recordings
from gapless.checking.recordings import RecordingCheck, check
from gapless.timeline.sources import recording
from gapless.timeline.sources.recording_format import Block, Space
from gapless.timeline.timeline import Timeline

NOWHERE = 0xFFFFFFFF
US = 1_000
READ, WRITE, ARGUMENT = 1, 2, 3
DEVICE, PINNED, PAGEABLE = 3, 2, 1
LEGACY, A, B = 7, 13, 14  # streams: the default one, and two created ones
SECOND = {27: 3, 33: 2, 34: 2}  # the same on a second device, and their kinds


KERNELS = {0x1000: "_Z5scalePfPKf", 0x1200: "_Z3sumPf"}
SIGNATURES = {0x1000: "scale(float*, float const*)", 0x1200: "sum(float*)"}


# Calls beyond those of ``recordings``, and the numbers of all.
MORE = {90: "cudaLaunchHostFunc_v10000", 91: "cudaStreamAddCallback_v5000", 92: "cuStreamWaitValue32_v2",
        93: "cudaIpcOpenEventHandle_v4010", 94: "cuMemMap", 95: "cudaMemcpyPeer_v4000", 96: "cudaMemcpyPeerAsync_v4000",
        97: "cudaMemcpy3DAsync_v3020", 98: "cudaDeviceReset_v3020"}  # fmt: skip
CBID = recordings.CBID | {name.partition("_")[0]: cbid for cbid, name in MORE.items()}


class Program:
    """Writes what a program's calls leave in a recording; device work takes 50 us and starts when it can.

    ``line`` is the line of the source that the next call stands in.
    """

    def __init__(self, tmp_path: Path, kind: int = 2, signatures: bool = True, **facts: str) -> None:
        self._path = tmp_path / "run.gapless"
        self._recording = recordings.begun(**facts)
        self._recording.strings(Space.RUNTIME, MORE)
        self._recording.strings(Space.POINTER, KERNELS)
        if signatures:
            texts = {n: f"{KERNELS[key]}\0{SIGNATURES[key]}" for n, key in enumerate(KERNELS)}
            self._recording.strings(Space.DEMANGLED, texts)
        self._records = [recordings.stream(LEGACY, 3), recordings.stream(A, kind), recordings.stream(B, kind)]
        self._records += [
            (8, {**recordings.DEVICE[1], "id": 1}),
            (9, {"contextId": 2, "deviceId": 1, "nullStreamId": 27}),
        ]
        self._records += [recordings.stream(number, flag, context=2) for number, flag in SECOND.items()]
        self._accesses: list[tuple[int, ...]] = []
        self._lines: dict[int, int] = {}
        self._recorded: dict[str, int] = {}  # event: its last record's own id
        self._busy = dict.fromkeys((LEGACY, A, B, *SECOND), 0)
        self.line = 1
        self.thread = 77
        self.now = 10 * US
        self._correlation = 0

    # ---------------------------------------------------------------------------------------------- work in streams

    def h2d(self, stream: int, src: int, dst: int, size: int = 4096, **more: Any) -> None:
        self._copy("cudaMemcpyAsync", stream, (1, more.pop("memory", PINNED), DEVICE), src, dst, size, **more)

    def d2h(self, stream: int, src: int, dst: int, size: int = 4096, **more: Any) -> None:
        self._copy("cudaMemcpyAsync", stream, (2, DEVICE, more.pop("memory", PINNED)), src, dst, size, **more)

    def sync_h2d(self, src: int, dst: int, size: int = 4096, memory: int = PAGEABLE) -> None:
        end = self._copy("cudaMemcpy", LEGACY, (1, memory, DEVICE), src, dst, size)
        self.now = max(self.now, end)

    def _copy(self, api: str, stream: int, what: tuple[int, int, int], src: int, dst: int, size: int,
              pitch: int = 0, pieces: int = 1) -> int:  # fmt: skip
        id_ = self._call(api)
        end = 0
        for _ in range(pieces):
            end = self._work(stream)
            self._copied(end, id_, what, stream, size // pieces)
        self._accesses += [(src, size, id_, READ, 0, 0, pitch), (dst, size, id_, WRITE, 0, 0, pitch)]
        return end

    def peer(self, stream: int, src: int, dst: int, size: int = 4096, *, api: str = "cudaMemcpyPeerAsync",
             legs: tuple[int, ...] = ()) -> None:  # fmt: skip
        """Copy between devices. *legs*: without peer access, through these streams one after the other."""
        id_ = self._call(api)
        for leg, what in zip(legs, ((2, 3, 3), (1, 3, 3)), strict=False):
            self._copied(self._work(leg), id_, what, leg, size)
        if not legs:
            self._copied(self._work(stream), id_, (10, 3, 3), stream, size)
        self._accesses += [(src, size, id_, READ, 0, 0, 0), (dst, size, id_, WRITE, 0, 0, 0)]

    def _copied(self, end: int, id_: int, what: tuple[int, int, int], stream: int, size: int) -> None:
        self._records.append(recordings.copy(end - 50 * US, end, id_, what, streamId=stream, bytes=size))

    def unseen_copy(self, stream: int) -> None:
        """Copy by a call of which the recorder does not know the memory."""
        self._copied(self._work(stream), self._call("cudaMemcpy3DAsync"), (1, PINNED, DEVICE), stream, 4096)

    def graph(self, stream: int, nodes: int) -> None:
        id_ = self._call("cudaGraphLaunch")
        for node in range(nodes):
            end = self._work(stream)
            self._records.append(
                recordings.kernel(end - 50 * US, end, id_, streamId=stream, graphId=4, graphNodeId=40 + node)
            )

    def kernel(self, stream: int, *arguments: int, name: int = 0x1000) -> None:
        id_ = self._call("cudaLaunchKernel")
        end = self._work(stream)
        self._records.append(recordings.kernel(end - 50 * US, end, id_, streamId=stream, name=name))
        self._accesses += [(address, 0, id_, ARGUMENT, at, 0, 0) for at, address in enumerate(arguments)]

    # ------------------------------------------------------------------------------------------- events and waiting

    def record(self, event: str, stream: int) -> None:
        id_ = self._call("cudaEventRecord")
        self._recorded[event] = id_
        self._records.append(recordings.recorded(id_, 1 + sorted(self._recorded).index(event), stream, id_))

    def wait(self, stream: int, event: str) -> None:
        id_ = self._call("cudaStreamWaitEvent")
        self._records.append(recordings.sync(2, id_, stream=stream, event=5, id_=self._recorded[event]))

    def wait_for_unknown(self, stream: int, event: int = 99) -> None:
        """Wait for an event of which the recording has no record."""
        self._records.append(recordings.sync(2, self._call("cudaStreamWaitEvent"), stream=stream, event=event))

    def sync_event_unknown(self) -> None:
        self._waits("cudaEventSynchronize", max(self._busy.values()), 1, event=99)

    def sync(self, stream: int) -> None:
        self._waits("cudaStreamSynchronize", self._busy[stream], 3, stream=stream)

    def sync_event(self, event: str) -> None:
        self._waits("cudaEventSynchronize", max(self._busy.values()), 1, event=5, id_=self._recorded[event])

    def sync_device(self, device: int = 0) -> None:
        self._waits("cudaDeviceSynchronize", max(self._busy.values()), 4)
        kind, fields = self._records.pop()
        self._records.append((kind, {**fields, "contextId": device + 1}))

    def call(self, api: str, length: int = 2 * US) -> None:
        self._call(api, length)

    def query(self, result: int = 0) -> None:
        self._call("cudaEventQuery", returnValue=result)

    def open_range(self) -> None:
        """Push an NVTX range, and never pop it."""
        self._records.append(recordings.marker(2, self.now, 1, 0x3000))

    def until(self, time: int) -> None:
        self.now = max(self.now, time)

    # ------------------------------------------------------------------------------------------------------- memory

    def malloc(self, address: int, size: int = 1 << 20, api: str = "cudaMalloc", memory: int = DEVICE,
               stream: int = NOWHERE, length: int = 2 * US) -> None:  # fmt: skip
        self._lifetime(1, api, address, size, memory, stream, length)

    def free(self, address: int, size: int = 1 << 20, api: str = "cudaFree", memory: int = DEVICE,
             stream: int = NOWHERE) -> None:  # fmt: skip
        self._lifetime(2, api, address, size, memory, stream)

    def _lifetime(self, operation: int, api: str, address: int, size: int, memory: int, stream: int,
                  length: int = 2 * US) -> None:  # fmt: skip
        kind, fields = recordings.memory(operation, memory, self._call(api, length), address, size)
        self._records.append((kind, dict(fields) | {"streamId": stream}))

    # ------------------------------------------------------------------------------------------------------- inside

    def _call(self, api: str, length: int = 2 * US, **more: int) -> int:
        self._correlation += 1
        id_ = self._correlation
        more = {"cbid": CBID[api]} | more
        self._records.append(recordings.call("cudaFree", self.now, self.now + length, id_, thread=self.thread, **more))
        self._lines[id_] = self.line
        self.now += length + 500
        return id_

    def _work(self, stream: int) -> int:
        self._busy[stream] = max(self._busy[stream], self.now) + 50 * US
        return self._busy[stream]

    def _waits(self, api: str, until: int, type_: int, **more: int) -> None:
        begin = self.now
        id_ = self._call(api, max(until - begin, 0) + 2 * US)
        self._records.append(recordings.sync(type_, id_, times=(begin, self.now), **more))

    def timeline(self) -> Timeline:
        made = copy.deepcopy(self._recording).records(map(_in_its_context, self._records))
        made.strings(Space.SOURCE, {1: "ring.cu", 2: "main"})
        lines = sorted(set(self._lines.values()))
        made.rows(Block.STACKS, *((n + 1, 0, 1, 2, line, 1, 0) for n, line in enumerate(lines)))
        made.rows(Block.CALLSITES, *((id_, lines.index(line) + 1) for id_, line in self._lines.items()))
        made.rows(Block.ACCESSES, *self._accesses)
        return recording.read(made.end().save(self._path))

    def check(self) -> RecordingCheck:
        return check(self.timeline())


def _in_its_context(record: recordings.Record) -> recordings.Record:
    """Give a record with the device and the context of its stream."""
    kind, fields = record
    if fields.get("streamId") not in SECOND:
        return record
    return kind, {**fields, "contextId": 2} | ({"deviceId": 1} if "deviceId" in fields else {})


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Program]:
    """Give a program whose created streams do not wait for the default one."""
    return lambda **more: Program(tmp_path, **more)
