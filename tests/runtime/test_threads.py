"""The ring with real threads: a crew that stages, streams that run by themselves, every pairing of memory."""

from __future__ import annotations

import _thread
import ctypes
import io
from typing import Any

import numpy as np
import pytest

from gapless.model.errors import GaplessError
from gapless.runtime.devices import Copies, crew, host
from gapless.runtime.devices.address import address
from gapless.runtime.pipeline import Pipeline
from staged_host import StagedHost

X = np.random.default_rng(4).random(30_000, dtype=np.float32)
Y = 2 * X + 1


@pytest.mark.parametrize(("threads", "pools"), [(0, False), (3, False), (3, True)])
@pytest.mark.parametrize("slots", [1, 2, 5])
def test_every_pairing_of_pinned_and_pageable(slots: int, threads: int, pools: bool) -> None:
    device = StagedHost(pools=pools)
    pinned, target = device.pinned(X.nbytes).view(np.float32), device.pinned(X.nbytes).view(np.float32)
    pinned[:] = X
    with Pipeline(lambda a: 2 * a + 1, device=device, slots=slots, threads=threads, chunk=2000) as pipe:
        for _ in range(4):
            for source, out in ((X, None), (pinned, target), (pinned, None), (X, target)):
                target.fill(-1)
                assert np.array_equal(pipe(source, out=out), Y)


@pytest.mark.parametrize(("threads", "pools"), [(0, False), (3, False), (3, True)])
def test_streams_whose_results_are_kept_and_dropped(threads: int, pools: bool) -> None:
    rng = np.random.default_rng(6)
    device = StagedHost(pools=pools)
    with Pipeline(lambda a: 2 * a + 1, device=device, slots=3, threads=threads) as pipe:
        for _ in range(8):
            sizes = rng.integers(1, 3000, 25)
            kept: list[tuple[np.ndarray, int]] = []
            for got, size in zip(pipe.stream(X[: int(size)] for size in sizes), sizes, strict=True):
                kept = [*kept[-5:], (got, int(size))]
                del got
                assert all(np.array_equal(old, Y[:length]) for old, length in kept)


class Tight(StagedHost):
    """One allocation of device memory fails."""

    def __init__(self, failing: int, *, pools: bool) -> None:
        super().__init__(pools=pools)
        self.left = failing

    def memory(self, nbytes: int) -> Any:
        self.left -= 1
        if self.left == 0:
            raise MemoryError("on purpose")
        return super().memory(nbytes)


@pytest.mark.parametrize("threads", [0, 4])
@pytest.mark.parametrize("pools", [False, True])
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("failing", [1, 2, 4])
def test_what_has_arrived_is_not_done_again_when_memory_runs_out(
    threads: int, pools: bool, pinned: bool, failing: int
) -> None:
    """Results that lie where their input lay would be computed from results."""
    device = Tight(failing, pools=pools)
    x = device.pinned(X.nbytes).view(np.float32) if pinned else np.empty_like(X)
    for _ in range(5):
        device.left = failing
        x[:] = X
        with (
            Pipeline(lambda a: 2 * a + 1, device=device, slots=4, threads=threads, chunk=4000) as pipe,
            pytest.warns(RuntimeWarning, match="Memory ran out"),
        ):
            pipe(x, out=x)
        assert np.array_equal(x, Y)
        assert len(pipe.report().notes) == 1


@pytest.mark.parametrize("pools", [False, True])
def test_a_failing_kernel_among_many_lanes(pools: bool) -> None:
    """An error that a stream's own thread finds, after the lane has been asked to copy the result out."""

    def kernel(a: Any) -> Any:
        if a[0] == X[5000]:
            raise LookupError("on purpose")
        return a

    with Pipeline(kernel, device=StagedHost(pools=pools), slots=4, threads=4, chunk=4000) as pipe:
        for _ in range(10):
            with pytest.raises(LookupError) as caught:
                pipe(X)
            assert "chunk 5 (rows 5000 to 6000)" in caught.value.__notes__[0]


@pytest.mark.parametrize("refused", [0, 1])
def test_a_stream_whose_thread_cannot_start_is_an_error_and_no_wait(
    monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    start, asked = host._thread.start_new_thread, [0]

    def refuse(*args: Any) -> int:
        asked[0] += 1
        if asked[0] == refused + 1:
            raise RuntimeError("can't start new thread")
        return start(*args)

    with Pipeline(lambda a: 2 * a + 1, device="host", slots=2, chunk=20_000) as pipe:
        with monkeypatch.context() as patched:
            patched.setattr(host._thread, "start_new_thread", refuse)
            with pytest.raises(RuntimeError, match="can't start") as caught:
                pipe(X)
        assert "this happened in chunk" in caught.value.__notes__[0]
        assert np.array_equal(pipe(X), Y)


@pytest.mark.parametrize("lane", [0, 2])
def test_a_lane_whose_thread_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch, lane: int) -> None:
    started: list[int] = []

    def refuse(*given: Any) -> int:
        started.append(1)
        if len(started) > lane:
            raise RuntimeError("can't start new thread")
        return _thread.start_new_thread(*given)

    monkeypatch.setattr(crew, "_thread", type("Threads", (), {"start_new_thread": staticmethod(refuse)}))
    with (
        Pipeline(lambda a: a, device=StagedHost(), slots=3, threads=3, chunk=4000) as pipe,
        pytest.raises(RuntimeError, match="can't start") as caught,
    ):
        pipe(X)
    assert f"chunk {lane} " in caught.value.__notes__[0]


def test_a_lane_that_cannot_be_prepared_says_so_and_nobody_waits() -> None:
    left = ["once"]

    def prepare() -> None:
        if left:
            raise LookupError(left.pop())

    threads, target = crew.Threads(1, prepare), np.zeros(3)
    for asked in range(2):
        threads.submit(0, asked, Copies([(target, np.ones(3))]))
    first, second = threads._news.get(timeout=20), threads._news.get(timeout=20)
    assert threads.close() == []
    assert (first.token, str(first.error)) == (0, "once")
    assert (second.token, second.error) == (1, None)
    assert target.all()


def test_whether_results_are_rows_does_not_depend_on_who_is_first() -> None:
    """A last chunk of one row would look like both."""
    for _ in range(20):
        with Pipeline(lambda a: a.sum(keepdims=True), device="host", slots=3, chunk=4 * 1000) as pipe:
            got = pipe(np.ones(10_001, np.float32))
        assert got.tolist() == [1000.0] * 9 + [999.0, 2.0]


def test_a_progress_that_cannot_be_shown_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    with Pipeline(lambda a: a, device="host") as pipe:
        assert np.array_equal(pipe(X, progress=True), X)


@pytest.mark.parametrize("kind", ["pageable", "pinned", "pageable, a part of it pinned", "arrays of their own"])
def test_batches_cut_out_of_one_array_are_not_asked_for_one_by_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether memory is pinned the driver knows, and lets who asks wait."""
    device = StagedHost(pools=True)
    source = device.pinned(X.nbytes).view(np.float32) if kind == "pinned" else X.copy()
    source[:] = X
    if "a part" in kind:
        device._pinned.append((lambda: source, source[15_000:].__array_interface__["data"][0], 60_000))
    batches = [source[first : first + 500] for first in range(0, len(X), 500)]
    if kind == "arrays of their own":
        batches = [batch.copy() for batch in batches]
    asked: list[int] = []
    is_pinned = device.is_pinned
    monkeypatch.setattr(device, "is_pinned", lambda array: asked.append(len(array)) or is_pinned(array))
    with Pipeline(lambda a: 2 * a + 1, device=device, threads=2) as pipe:
        assert np.array_equal(np.concatenate(list(pipe.stream(batches))), Y)
    assert len(asked) >= len(batches) if kind == "arrays of their own" else len(asked) < 10


def test_rows_that_run_backwards_out_of_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies from the first element of their array on is pinned, and they do not all lie there."""
    device, memory, sent = StagedHost(pools=True), X[:3000].copy(), list[bool]()
    device._pinned.append((lambda: memory, address(memory[1000:]), 8000))
    rows = np.ndarray((2, 1000), np.float32, (ctypes.c_char * 12000).from_buffer(memory), 4000, (-4000, 4))
    h2d = host.Stream.h2d
    monkeypatch.setattr(
        host.Stream, "h2d", lambda self, to, source: sent.append(device.is_pinned(source)) or h2d(self, to, source)
    )
    with Pipeline(lambda a: 2 * a + 1, device=device, slots=3, threads=2) as pipe:
        for got, row in zip(pipe.stream([*rows, *rows]), [*rows, *rows], strict=True):
            assert np.array_equal(got, 2 * row + 1)
    assert sent == [True] * 4


def test_results_that_are_looked_at_one_by_one_lie_in_few_blocks() -> None:
    device = StagedHost(pools=True)
    with Pipeline(lambda a: 2 * a + 1, device=device, slots=3, threads=2) as pipe:
        seen = [y.__array_interface__["data"][0] for y in pipe.stream([X] * 60)]
    assert len(set(seen[10:])) <= 2 * 3 + 1  # of a slot: its own, and the one that takes its place


def test_a_mask_is_not_dropped() -> None:
    with (
        Pipeline(lambda a: np.ma.masked_greater(a, 0.5), device="host") as pipe,
        pytest.raises(GaplessError, match="masked array"),
    ):
        pipe(X)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"threads": 2**31}, "at most 1024"), ({"slots": 2**31}, "at most"), ({"reduce": 3}, "reduce= is a function")],
)
def test_options_that_are_mistakes(options: dict[str, Any], said: str) -> None:
    with pytest.raises(GaplessError, match=said):
        Pipeline(lambda a: a, device="host", **options)


def test_calls_that_are_mistakes() -> None:
    with Pipeline(lambda first, rows: np.zeros(rows), device="host") as pipe:
        with pytest.raises(GaplessError, match="rows= must be at most"):
            pipe(rows=2**63)
        with pytest.raises(GaplessError, match="progress= is True"):
            pipe(rows=3, progress=5)
