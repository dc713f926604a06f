"""Small batches that share a chunk: the kernel gets each by itself, and nobody notices but the clock."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.model.errors import GaplessError
from gapless.model.races import find_races
from gapless.runtime import gathering
from gapless.runtime.batch_plans import BATCH_SLOTS, SLOT_MEMORY
from gapless.runtime.devices import cuda, host
from gapless.runtime.devices.simulated import Simulated
from gapless.runtime.kernels import cuda_kernel, outputs_of
from gapless.runtime.pipeline import Pipeline
from gapless.runtime.slots import ALIGNMENT, Beside, Passage, layout
from staged_host import Event, StagedHost

X = np.random.default_rng(8).random(20_000, dtype=np.float32)
BATCHES = [X[start : start + 100] for start in range(0, 20_000, 100)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel takes long, however slow the machine is."""
    monkeypatch.setattr(gathering, "KERNELS", 1e18)


@pytest.fixture(params=["caller", "threads", "threads in C", "simulated"])
def made(request: pytest.FixtureRequest) -> tuple[Any, dict[str, Any]]:
    """Give a device, and who stages on it."""
    device = Simulated() if request.param == "simulated" else StagedHost(pools="C" in request.param)
    return device, {} if "threads" not in request.param else {"threads": 3}


def copies_of(device: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note every copy that is asked for from now on."""
    asked: list[str] = []
    stream = type(device.stream())
    for name in ("h2d", "d2h"):
        copy = getattr(stream, name)
        monkeypatch.setattr(
            stream, name, lambda self, *ends, copy=copy, name=name: asked.append(name) or copy(self, *ends)
        )
    return asked


def test_the_kernel_gets_each_batch_by_itself_and_one_copy_takes_all_in(
    made: tuple[Any, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, options = made
    lengths: list[int] = []
    asked = copies_of(device, monkeypatch)
    with Pipeline(lambda a: (lengths.append(len(a)), a - a.max())[1], device=device, **options) as pipe:
        list(pipe.stream(BATCHES))  # what is measured before the first run copies as well
        for source in (BATCHES, tuple(BATCHES), X.reshape(-1, 100)):
            lengths.clear()
            asked.clear()
            kept = list(pipe.stream(source))
            assert len(kept) == len(BATCHES)
            assert all(np.array_equal(y, b - b.max()) for y, b in zip(kept, BATCHES, strict=True))
            assert lengths == [100] * len(BATCHES)
            assert asked.count("h2d") <= pipe.plan().slots + 4  # one in each slot before a result is known
        assert "Small batches shared chunks: 200 batches." in str(pipe.report())
        assert "share one" in str(pipe.plan())


@pytest.mark.parametrize("seed", range(8))
def test_any_mix_of_batches(seed: int, made: tuple[Any, dict[str, Any]]) -> None:
    """Sizes, types, several inputs, none at all, some too large to share, lists: results as if each came alone."""
    device, options = made
    rng = np.random.default_rng(seed)

    def one() -> Any:
        size = int(rng.choice([0, 1, 7, 100, 3000, 200_000], p=[0.1, 0.2, 0.2, 0.3, 0.15, 0.05]))
        array = rng.random((size, int(rng.integers(1, 3)))).astype(rng.choice([np.float32, np.float64]))
        kind = rng.integers(0, 8)
        return (array, array + 1) if kind == 0 else [array, array] if kind == 1 else array

    batches = [one() for _ in range(150)]

    def kernel(*arrays: Any) -> Any:
        total = sum(arrays[1:], arrays[0])
        return (2 * total, total.sum(0)) if total.shape[1:] == (1,) else None if len(total) == 7 else 2 * total

    def is_fit(batch: Any) -> bool:  # packed items need a row for a row
        return not isinstance(batch, list) or (batch[0].shape[1] == 2 and len(batch[0]) != 7)

    batches = [batch for batch in batches if is_fit(batch)]
    right: list[Any] = []
    for batch in batches:
        if isinstance(batch, list):
            right.append([kernel(item) for item in batch])
        else:
            right.append(kernel(*(batch if isinstance(batch, tuple) else (batch,))))
    with Pipeline(kernel, device=device, **options) as pipe:
        got: list[Any] = []
        for y in pipe.stream(batches):
            got.append(y if rng.random() < 0.3 or not isinstance(y, np.ndarray) else y.copy())
            del y
    for y, wanted in zip(got, right, strict=True):
        if wanted is None:
            assert y is None
        elif isinstance(wanted, np.ndarray):
            assert y.dtype == wanted.dtype
            assert np.array_equal(y, wanted)
        else:
            assert all(np.array_equal(a, b) for a, b in zip(y, wanted, strict=True))


def test_a_kernel_that_fails_does_so_after_the_results_of_the_batches_before(made: tuple[Any, dict[str, Any]]) -> None:
    device, options = made
    for at in (0, 1, 2, 40, 199):

        def kernel(a: Any, at: int = at) -> Any:
            if a[0] == BATCHES[at][0]:
                raise ValueError("on purpose")
            return a + 1

        got: list[np.ndarray] = []
        with Pipeline(kernel, device=device, **options) as pipe:
            with pytest.raises(ValueError, match="on purpose") as caught:
                got.extend(pipe.stream(BATCHES))
            assert [np.array_equal(y, b + 1) for y, b in zip(got, BATCHES, strict=False)] == [True] * at
            where = f"gapless: this happened in chunk {at} (rows {100 * at} to {100 * at + 100})"
            assert where in caught.value.__notes__


@pytest.mark.parametrize(("at", "where"), [(0, "chunk 0 (rows 0 to 100)"), (70, "chunks 8 to 71 (rows 800 to 7200)")])
def test_what_nobody_knows_the_batch_of_is_said_of_all_that_share_the_chunk(
    at: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a kernel has read outside of its memory: a GPU says so to whatever is asked of it later."""
    device = StagedHost(pools=True)
    broken: list[bool] = []

    def kernel(a: Any) -> Any:
        if a[0] == BATCHES[at][0]:
            broken.append(True)
        return a

    def broken_or(call: Any) -> Any:
        def complain(*args: Any) -> Any:
            if broken:
                raise OSError("the device is broken")
            return call(*args)

        return complain

    monkeypatch.setattr(host.Stream, "d2h", broken_or(host.Stream.d2h))
    got: list[np.ndarray] = []
    with Pipeline(kernel, device=device, threads=0) as pipe:
        with pytest.raises(OSError, match="is broken") as caught:
            got.extend(pipe.stream(BATCHES))
        assert caught.value.__notes__ == [f"gapless: this happened in {where}"]
        assert len(got) == min(at, BATCH_SLOTS)


def test_what_a_device_says_comes_out_at_its_chunk_though_clocks_are_tied_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = StagedHost(pools=True)
    asked: list[str] = []

    def complain(*_: Any) -> None:
        asked.append("")
        raise OSError("the device is broken")

    monkeypatch.setattr(Event, "done", lambda _: bool(asked))
    monkeypatch.setattr(Event, "wait", complain)
    monkeypatch.setattr(device, "align_clock", complain)
    with Pipeline(lambda a: a, device=device, threads=0) as pipe:
        with pytest.raises(OSError, match="is broken") as caught:
            list(pipe.stream(BATCHES))
        assert caught.value.__notes__ == ["gapless: this happened in chunk 0 (rows 0 to 100)"]


def test_a_batch_that_cannot_be_copied_is_told_after_the_results_of_those_before(
    made: tuple[Any, dict[str, Any]],
) -> None:
    device, options = made
    for at in (1, 2, 50):
        got: list[np.ndarray] = []
        with (
            Pipeline(lambda a: a + 1, device=device, **options) as pipe,
            pytest.raises(GaplessError, match="objects cannot be copied") as caught,
        ):
            got.extend(pipe.stream([*BATCHES[:at], np.array([None]), *BATCHES]))
        assert len(got) == at
        assert f"gapless: the input gave this in place of chunk {at}" in caught.value.__notes__


def test_what_was_done_before_memory_ran_out_is_not_done_again(made: tuple[Any, dict[str, Any]]) -> None:
    device, options = made
    for at in (0, 1, 2, 60):
        seen: list[float] = []

        def kernel(a: Any, seen: list[float] = seen, at: int = at) -> Any:
            seen.append(float(a[0]))
            if a[0] == BATCHES[at][0] and seen.count(seen[-1]) == 1:
                raise MemoryError("on purpose")
            return a + 1

        with (
            Pipeline(kernel, device=device, **options) as pipe,
            pytest.warns(RuntimeWarning, match="Memory ran out"),
        ):
            got = list(pipe.stream(BATCHES))
        assert np.array_equal(np.concatenate(got), X + 1)
        assert [seen.count(float(batch[0])) for batch in BATCHES[: at + 1]] == [1] * at + [2]


@pytest.mark.parametrize("is_list", [False, True])
def test_what_the_source_failed_with_is_not_lost_where_memory_ran_out_meanwhile(
    is_list: bool, made: tuple[Any, dict[str, Any]]
) -> None:
    device, options = made
    for at, last in ((0, 1), (1, 5), (40, 45)):
        failed: list[bool] = []

        def kernel(a: Any, failed: list[bool] = failed, at: int = at) -> Any:
            if a[0] == BATCHES[at][0] and not failed:
                failed.append(True)
                raise MemoryError("on purpose")
            return a + 1

        def source(last: int = last) -> Iterator[np.ndarray]:
            yield from BATCHES[:last]
            raise GaplessError("on purpose")

        got: list[np.ndarray] = []
        with (
            Pipeline(kernel, device=device, **options) as pipe,
            pytest.warns(RuntimeWarning, match="Memory ran out"),
            pytest.raises(GaplessError, match=r"on purpose|objects cannot be copied") as caught,
        ):
            got.extend(pipe.stream([*BATCHES[:last], np.array([None])] if is_list else source()))
        assert [np.array_equal(y, b + 1) for y, b in zip(got, BATCHES, strict=False)] == [True] * last
        assert caught.value.__notes__ == [f"gapless: the input gave this in place of chunk {last}"]


def test_a_source_is_let_go_of_with_the_iterator(made: tuple[Any, dict[str, Any]]) -> None:
    device, options = made
    ended: list[bool] = []

    def source() -> Iterator[np.ndarray]:
        try:
            yield from BATCHES
        finally:
            ended.append(True)

    with Pipeline(lambda a: a + 1, device=device, **options) as pipe:
        results = pipe.stream(source())
        next(results)
        del results
        gc.collect()
        assert ended
        assert pipe.report().chunks


def test_an_iterator_is_asked_for_no_more_than_a_batch_a_slot(made: tuple[Any, dict[str, Any]]) -> None:
    """It may wait for results, as one does that takes its buffers back from who has seen them."""
    device, options = made
    taken = 0

    def source() -> Iterator[np.ndarray]:
        nonlocal taken
        for batch in BATCHES:
            taken += 1
            yield batch

    with Pipeline(lambda a: a + 1, device=device, **options) as pipe:
        for given, _ in enumerate(pipe.stream(source()), 1):
            assert taken <= given + pipe.plan().slots
        assert pipe.report().chunks == len(BATCHES)


def test_long_kernels_leave_few_batches_to_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "KERNELS", 1e6)
    gathered = _told(iter(BATCHES))
    chunk = next(gathered)
    assert len(chunk.batches or ()) == 64
    gathered.tell(chunk, _passage(copied=0, computed=16_000_000))
    chunk = next(gathered)
    assert len(chunk.batches or ()) == 4
    gathered.tell(chunk, _passage(copied=0, computed=8_000_000))
    chunk = next(gathered)
    assert chunk.batches is None
    gathered.tell(chunk, _passage(copied=None, computed=None))
    assert next(gathered).batches is None


def test_large_results_leave_few_batches_to_a_chunk() -> None:
    """Also before any is known: its memory is that of all results of a chunk, and the ring keeps it."""
    device = StagedHost()
    taken: list[int] = []
    device.pinned = lambda nbytes, pinned=device.pinned: (taken.append(nbytes), pinned(nbytes))[1]
    with Pipeline(lambda a: np.repeat(a, 2000), device=device) as pipe:
        for y, batch in zip(pipe.stream(BATCHES), BATCHES, strict=True):
            assert np.array_equal(y, np.repeat(batch, 2000))
    assert max(taken) <= gathering.MOST_BYTES


def test_what_a_large_batch_takes_says_nothing_of_small_ones() -> None:
    gathered = _told(iter(BATCHES))
    large = next(_chunks(iter([np.zeros(1 << 19)])))
    gathered.tell(large, _passage(copied=0, computed=1 << 62))
    assert len(next(gathered).batches or ()) == 64


def test_the_bound_of_memory_and_a_chunk_that_is_fixed_bound_what_shares() -> None:
    for options, most in (({"memory": 6 * SLOT_MEMORY * 400}, 800), ({"chunk": 1200}, 1200)):
        with Pipeline(lambda a: a + 1, device=StagedHost(), **options) as pipe:
            assert np.array_equal(np.concatenate(list(pipe.stream(BATCHES))), X + 1)
            moved = pipe.report().timeline.ops.bytes
            assert most // 2 < moved.max() <= most
            if "memory" in options:
                assert pipe.plan().slots * SLOT_MEMORY * moved.max() <= options["memory"]


def test_the_bound_of_memory_holds_where_a_batch_too_large_to_share_comes_first() -> None:
    memory = 24 << 20
    small = [np.full(25_000, number, np.float32) for number in range(300)]
    with Pipeline(lambda a: a + 1, device=StagedHost(), memory=memory) as pipe:
        for number, y in enumerate(pipe.stream([np.zeros(160_000, np.float32), *small])):
            assert y[0] == max(number, 1)
        assert pipe.plan().slots * SLOT_MEMORY * pipe.report().timeline.ops.bytes.max() <= memory


def test_a_first_batch_of_no_bytes_is_planned_for_like_any_other(made: tuple[Any, dict[str, Any]]) -> None:
    device, options = made
    for more in ({"slots": 2}, {"memory": 1}, {"memory": "1 MiB"}, {"slots": 2, "memory": "1 MiB"}, {"chunk": 1}):
        with Pipeline(lambda a: a + 1, device=device, **options, **more) as pipe:
            got = list(pipe.stream([X[:0], *BATCHES]))
            assert np.array_equal(np.concatenate(got), X + 1)
            assert ("share one" in str(pipe.plan())) is ("slots" not in more)


def test_the_plan_says_whether_batches_share_and_what_that_takes() -> None:
    for options, shares in (({}, True), ({"chunk": 1}, False), ({"chunk": 800}, True), ({"memory": "8 KiB"}, False)):
        with Pipeline(lambda a: a + 1, device=StagedHost(), **options) as pipe:
            list(pipe.stream(BATCHES))
            plan = pipe.plan()
            assert ("share one" in str(plan)) is shares
            assert (pipe.report().chunks < len(BATCHES)) is shares
            largest = pipe.report().timeline.ops.bytes.max()
            assert plan.memory == plan.slots * SLOT_MEMORY * largest


def test_where_slots_are_fixed_none_share() -> None:
    with Pipeline(lambda a: a + 1, device=StagedHost(), slots=3) as pipe:
        assert np.array_equal(np.concatenate(list(pipe.stream(BATCHES))), X + 1)
        assert pipe.report().chunks == len(BATCHES)


class Raw(StagedHost):
    """Its kernel writes into memory of the slot."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.allocated = 0

    def memory(self, nbytes: int) -> Any:
        self.allocated += 1
        return super().memory(nbytes)

    def kernel(self, kernel: Any, options: Any) -> Any:
        def launch(stream: Any, job: Any) -> tuple[Any, ...]:
            outputs = outputs_of(job, None if self.outputs == 1 else ((None, None),) * self.outputs)
            for number, array in enumerate(outputs):
                array[...] = job.inputs[0] + number + 1
            return outputs

        return launch


@pytest.mark.parametrize("outputs", [1, 2])
def test_results_in_memory_of_the_slot_come_back_by_one_copy(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several outputs of a kernel, and batches that differ, find room beside each other from a slot's second use on."""
    device = Raw(outputs)
    batches = [X[: 1 + 37 * number % 900] for number in range(1400)]
    asked = copies_of(device, monkeypatch)
    with Pipeline(object(), device=device) as pipe:
        for _ in range(3):
            asked.clear()
            for got, batch in zip(pipe.stream(batches), batches, strict=True):
                for number, array in enumerate(got if outputs > 1 else (got,)):
                    assert np.array_equal(array, batch + number + 1)
        chunks = pipe.report().chunks
        assert chunks < 40
        assert asked.count("h2d") == chunks
        assert asked.count("d2h") == chunks + (outputs - 1) * BATCH_SLOTS  # the first batch of each slot passes alone
        before = device.allocated
        assert sum(1 for _ in pipe.stream(batches)) == len(batches)
        assert device.allocated == before


def test_room_for_outputs_is_what_they_take_together() -> None:
    """Whatever the first of them is like: as a rule there is a row for a row."""
    device = StagedHost()
    taken: list[int] = []
    device.memory = lambda nbytes, memory=device.memory: (taken.append(nbytes), memory(nbytes))[1]
    for rows in ([20_000] + [3] * 63, [0, 0, 5] + [700] * 61, [1] * 64, [0] * 64):
        beside = Beside(device)
        taken.clear()
        beside.begin(len(rows), sum(rows))
        arrays = [beside.array(0, (count,), X.dtype) for count in rows]
        assert taken[-1] <= 4 * sum(rows) + ALIGNMENT * (len(rows) + 1)
        assert len(beside.whole(arrays)) <= taken[-1]
    beside = Beside(device)
    beside.begin(64, 1000)
    assert len(beside.whole([beside.array(0, (), X.dtype) for _ in range(64)])) == 64 * ALIGNMENT
    beside = Beside(device)
    beside.begin(2, 600)
    several = [beside.array(0, (rows,), np.dtype(np.uint8)) for rows in (300, 300, 80)]
    assert len(beside.whole(several)) == 1280  # it ends within the memory, though that was made for less


OUTPUT = st.tuples(st.integers(0, 3), st.sampled_from(["u1", "<f4", ">i8", "S3", "c16"]))
CALL = st.tuples(st.integers(0, 300), st.lists(OUTPUT, max_size=3))


@given(chunks=st.lists(st.lists(CALL, min_size=1, max_size=8), max_size=5))
def test_any_outputs_have_memory_of_their_own_that_one_copy_takes_where_they_are_side_by_side(chunks: Any) -> None:
    beside = Beside(StagedHost())
    for calls in chunks:
        beside.begin(len(calls), sum(rows for rows, _ in calls))
        arrays = [
            beside.array(number, (rows, width), np.dtype(kind))
            for rows, outputs in calls
            for number, (width, kind) in enumerate(outputs)
        ]
        for number, array in enumerate(arrays):
            array.view(np.uint8)[...] = number
        assert all((array.view(np.uint8) == number).all() for number, array in enumerate(arrays))
        offsets, size = layout(tuple((array.shape, array.dtype) for array in arrays))
        whole = beside.whole(arrays)
        if whole is not None:
            assert whole.nbytes == size
            for number, (at, array) in enumerate(zip(offsets, arrays, strict=True)):
                assert (whole[at : at + array.nbytes] == number).all()
        done = [array for array in arrays[:-1] if array.size]  # what is left where a kernel failed
        if beside.whole(done) is not None:
            assert len(beside.whole(done)) == layout(tuple((array.shape, array.dtype) for array in done))[1]


def test_a_kernel_that_fails_with_an_output_that_found_no_room_leaves_the_others_as_they_are() -> None:
    device = Raw(1)
    large = [X[:1], *[X[:100]] * 62, X]
    launch = device.kernel

    def kernel(kernel: Any, options: Any) -> Any:
        def failing(stream: Any, job: Any) -> tuple[Any, ...]:
            if len(job.inputs[0]) == len(X):
                job.allocate(0, (10 * len(X),), X.dtype)
                raise ValueError("on purpose")
            return launch(kernel, options)(stream, job)

        return failing

    device.kernel = kernel
    got: list[np.ndarray] = []
    with Pipeline(object(), device=device) as pipe, pytest.raises(ValueError, match="on purpose"):
        got.extend(pipe.stream([*[X[:1]] * BATCH_SLOTS, *large]))
    assert [len(y) for y in got[BATCH_SLOTS:]] == [1, *[100] * 62]
    assert all(np.array_equal(y, X[: len(y)] + 1) for y in got)


def test_results_beside_each_other_are_aligned_as_allocations_are(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets: list[int] = []
    array = host.Memory.array
    monkeypatch.setattr(
        host.Memory, "array", lambda self, offset, *kind: offsets.append(offset) or array(self, offset, *kind)
    )
    with Pipeline(object(), device=Raw(1)) as pipe:
        assert np.array_equal(np.concatenate(list(pipe.stream(BATCHES))), X + 1)
    assert max(offsets) > 0
    assert all(offset % ALIGNMENT == 0 for offset in offsets)


def test_every_order_gives_the_same_bits_and_no_race() -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        device = Simulated(seed=seed, pools=seed % 4 < 2)
        batches = [X[: int(size)] for size in rng.integers(1, 200, 60)]
        with Pipeline(lambda a: 2 * a + 1, device=device, threads=seed % 3) as pipe:
            for y, batch in zip(pipe.stream(batches), batches, strict=True):
                device.touch(y)
                assert np.array_equal(y, 2 * batch + 1)
                del y
        races = find_races(device.program())
        assert not races, f"seed {seed}: {races[0]}"


def test_results_that_are_kept_stay_as_they_are(made: tuple[Any, dict[str, Any]]) -> None:
    device, options = made
    with Pipeline(lambda a: a + 1, device=device, **options) as pipe:
        kept = [y for _ in range(4) for y in pipe.stream(BATCHES)]
    assert all(np.array_equal(np.concatenate(kept[at : at + 200]), X + 1) for at in range(0, 800, 200))


def test_results_come_in_order_and_progress_counts_rows() -> None:
    seen: list[int] = []
    with Pipeline(lambda a: a + 1, device=StagedHost()) as pipe:
        list(pipe.stream(BATCHES, progress=lambda done, _: seen.append(done)))
    assert all(before < after for before, after in pairwise(seen))
    assert seen[-1] == len(X)


def _chunks(source: Iterator[np.ndarray]) -> Iterator[Any]:
    from gapless.runtime.chunks import batches

    return batches(source)


def _told(source: Iterator[np.ndarray]) -> gathering.Gathered:
    """Gather from a source, where a result has said that kernels are quick."""
    gathered = gathering.Gathered(_chunks(source), small=1 << 20)
    gathered.tell(next(_chunks(iter(BATCHES))), _passage(copied=0, computed=1))
    return gathered


def _passage(*, copied: int | None, computed: int | None) -> Passage:
    return Passage(0, 0, 1, 4, 4, 0, None, 0, 0, 0, 0, copied, computed, None, None, 0, 0)


GPU = pytest.mark.skipif(not cuda.is_available(), reason="no GPU, or no cuda.core")
SOURCE = """
__global__ void axpb(const float* x, float* y, float* z, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) { y[i] = 2.0f * x[i] + 1.0f; z[i] = -x[i]; }
}
"""


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("library", ["CUDA C++", "cupy", "torch"])
@pytest.mark.parametrize("pinned", [False, True])
def test_small_batches_on_a_gpu(library: str, pinned: bool) -> None:
    """Over and over, of changing sizes, with results that are kept and dropped."""
    kernel: Any = lambda a: (2 * a + 1, -a)  # noqa: E731
    options: dict[str, Any] = {"arrays": library}
    if library == "CUDA C++":
        kernel, options = cuda_kernel(SOURCE, "axpb"), {"outputs": 2}
    else:
        pytest.importorskip(library)
    device = cuda.Cuda()
    memory = device.pinned(1 << 22).view(np.float32) if pinned else np.empty(1 << 20, np.float32)
    rng = np.random.default_rng(5)
    memory[:] = rng.random(1 << 20, dtype=np.float32)
    starts, sizes = rng.integers(0, 1 << 19, 3000), rng.integers(0, 20_000, 3000)
    batches = [memory[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    with Pipeline(kernel, device=device, **options) as pipe:
        for source in (batches, iter(batches)):
            kept: list[tuple[np.ndarray, np.ndarray]] = []
            for (twice, minus), batch in zip(pipe.stream(source), batches, strict=True):
                assert np.array_equal(minus, -batch)
                kept = [*kept[-9:], (twice, batch)]
                assert all(np.allclose(old, 2 * of + 1) for old, of in kept[:2])
            assert (pipe.report().chunks < 1500) is isinstance(source, list)
