"""Prefetching on a played GPU whose streams run in any order that their waits allow."""

from __future__ import annotations

import io
import queue
import random
import threading
from collections import defaultdict, namedtuple
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import gapless.torch as gt  # noqa: E402
from gapless.model.errors import GaplessError  # noqa: E402
from gapless.torch import naming, ring, transfers  # noqa: E402
from gapless.torch.prefetching import Prefetcher  # noqa: E402
from gapless.torch.results import HostResults  # noqa: E402
from simulated_gpu import Simulated  # noqa: E402

STEPS = 40


def prefetcher(loader: Iterable[Any], gpu: Any, depth: int = 2, transform: Any = None) -> Prefetcher[Any]:
    return Prefetcher(loader, gpu, depth, transform)


def numbers(gpu: Any, steps: int = STEPS, *, pinned: bool = True, sizes: tuple[int, ...] = (8,)) -> Iterator[Any]:
    for i in range(steps):
        batch = torch.full((sizes[i % len(sizes)],), float(i))
        yield gpu.pin(batch) if pinned else batch


def train(gpu: Any, batches: Iterable[Any], *, kept: list[Any] | None = None) -> list[float]:
    """Use every batch in a kernel that is still to run; give what the kernels read."""
    losses: list[float] = []
    for batch in batches:
        gpu.launch(batch, lambda array: losses.append(float(array.min()) + float(array.max())))
        if kept is not None:
            kept.append(batch)
    gpu.finish()
    return losses


def adding_to(losses: list[float]) -> Callable[[Any], None]:
    return lambda array: losses.append(float(array[0]))


def expected(steps: int = STEPS) -> list[float]:
    return [2.0 * i for i in range(steps)]


class WithoutBackWait(Simulated):
    """Waits for nothing on the copy stream, as prefetchers are often written."""

    def wait(self, stream: Any, event: Any) -> None:
        if stream is self.consumer:
            super().wait(stream, event)


class WithoutHandOver(Simulated):
    """The consumer's stream does not wait for the copy."""

    def stalls(self, stream: Any, event: Any) -> float:
        return 0.0

    def wait(self, stream: Any, event: Any) -> None:
        if stream is not self.consumer:
            super().wait(stream, event)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("pinned", [True, False])
def test_every_kernel_reads_its_batch_in_whatever_order_streams_run(depth: int, pinned: bool) -> None:
    for seed in range(30):
        gpu = Simulated(seed, eager=(0.0, 0.3, 0.8)[seed % 3])
        assert train(gpu, prefetcher(numbers(gpu, pinned=pinned), gpu, depth)) == expected(), f"seed {seed}"


@pytest.mark.parametrize("broken", [WithoutBackWait, WithoutHandOver])
def test_a_prefetcher_that_does_not_wait_fails_the_same_test(broken: Any) -> None:
    right = 0
    for seed in range(30):
        gpu = broken(seed, eager=(0.0, 0.3, 0.8)[seed % 3])
        right += train(gpu, prefetcher(numbers(gpu), gpu)) == expected()
    assert right < 30


def test_a_kept_batch_is_the_programs() -> None:
    for seed in range(10):
        gpu, kept = Simulated(seed), []
        batches = prefetcher(numbers(gpu), gpu)
        assert train(gpu, batches, kept=kept) == expected()
        assert [batch.tolist() for batch in kept] == [[float(i)] * 8 for i in range(STEPS)]
        assert batches.stats.kept > 0
        assert "kept" in batches.report()


def test_a_kept_view_keeps_the_batch() -> None:
    gpu = Simulated(3)
    kept = [batch[1:3] for batch in prefetcher(numbers(gpu), gpu)]
    gpu.finish()
    assert [view.tolist() for view in kept] == [[float(i)] * 2 for i in range(STEPS)]


def test_buffers_are_fixed() -> None:
    gpu = Simulated(1)
    batches = prefetcher(numbers(gpu, 200), gpu, depth=2)
    train(gpu, batches)
    assert gpu.allocations == 4  # depth + 2
    assert batches.stats.kept == 0
    assert (batches.stats.batches, batches.stats.bytes, batches.stats.staged) == (200, 200 * 32, 0)


def test_shapes_may_change() -> None:
    for seed in range(10):
        gpu = Simulated(seed)
        seen: list[Any] = []
        for batch in prefetcher(numbers(gpu, sizes=(3, 8, 5, 1)), gpu):
            seen.append(batch.shape[0])
            gpu.launch(batch, lambda array: None)
        assert seen == [(3, 8, 5, 1)[i % 4] for i in range(STEPS)]
        assert train(gpu, prefetcher(numbers(gpu, sizes=(3, 8, 5, 1)), gpu)) == expected()


def used_on_a_side_stream(seed: int, monkeypatch: pytest.MonkeyPatch, part: Callable[[Any], Any]) -> list[float]:
    """Let other code use each batch on a stream that nothing waits for, and name that for a part of the batch."""
    gpu = Simulated(seed, eager=0.2)

    def keep(tensor: Any, stream: Any) -> None:
        gpu.keep(tensor, stream)

    monkeypatch.setattr(torch.Tensor, "record_stream", keep)
    losses: list[float] = []
    side, add = gpu.new_stream(), adding_to(losses)
    for batch in prefetcher(numbers(gpu), gpu):
        gpu.wait(side, gpu.record(gpu.current()))
        with gpu.quietly_on(side):
            gpu.launch(batch, add)
        part(batch).record_stream(side)
    gpu.finish()
    return losses


PARTS = [lambda batch: batch, lambda batch: batch[2:5], lambda batch: batch.view(2, 4).t().detach()]


@pytest.mark.parametrize("part", PARTS, ids=["batch", "slice", "view of a view"])
def test_further_streams_that_record_stream_names(part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20):
        assert used_on_a_side_stream(seed, monkeypatch, part) == [float(i) for i in range(STEPS)], f"seed {seed}"


def test_a_ring_that_hears_of_no_stream_fails_the_same_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "lend", lambda memory, hear: None)
    right = sum(used_on_a_side_stream(seed, monkeypatch, PARTS[1]) == [*range(STEPS)] for seed in range(20))
    assert right < 20


def used_on_current_streams(seed: int) -> list[float]:
    """Use each batch on a side stream, in a thread of its own too, and say nothing of it to anybody."""
    gpu = Simulated(seed, eager=0.2)
    losses: list[float] = []
    sides, add = [gpu.new_stream() for _ in range(2)], adding_to(losses)
    work, done = queue.SimpleQueue[Any](), queue.SimpleQueue[None]()

    def helper() -> None:
        with gpu.on(sides[1]):
            while (event := work.get()) is not None:
                gpu.wait(sides[1], event)
                gpu.launch(work.get(), add)
                done.put(None)

    thread = threading.Thread(target=helper)
    thread.start()
    for i, batch in enumerate(prefetcher(numbers(gpu), gpu)):
        ready = gpu.record(gpu.current())
        if i % 2:
            work.put(ready)
            work.put(batch)
            done.get()
        else:
            gpu.wait(sides[0], ready)
            with gpu.on(sides[0]):
                gpu.launch(batch, add)
    work.put(None)
    thread.join()
    gpu.finish()
    return sorted(losses)


def test_further_streams_that_are_current() -> None:
    for seed in range(20):
        assert used_on_current_streams(seed) == [float(i) for i in range(STEPS)], f"seed {seed}"


def test_a_ring_that_does_not_hear_what_is_current_fails_the_same_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring.Ring, "_hear", lambda self, stream: None)
    assert any(used_on_current_streams(seed) != [float(i) for i in range(STEPS)] for seed in range(20))


def test_record_stream_is_pytorchs_own_for_what_is_not_the_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, told = Simulated(1), []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: told.append((tensor, stream)))
    x = torch.ones(3)
    batches = iter(prefetcher(numbers(gpu), gpu))
    batch, side = next(batches), gpu.new_stream()
    sparse = torch.eye(2).to_sparse()
    for tensor in (x, batch, sparse):
        tensor.record_stream(side)
    assert [(id(tensor), stream) for tensor, stream in told] == [(id(x), side), (id(batch), side), (id(sparse), side)]


def test_batches_are_plain_tensors() -> None:
    gpu = Simulated(1)
    batch = next(iter(prefetcher(numbers(gpu), gpu)))
    gpu.finish()
    saved = io.BytesIO()
    torch.save(batch, saved)
    saved.seek(0)
    assert torch.equal(torch.load(saved), batch)
    assert torch.equal(deepcopy(batch), batch)
    assert vars(batch) == {}


def test_what_the_program_does_to_a_batch_does_not_stay_on_its_buffer() -> None:
    gpu = Simulated(1)
    for i, batch in enumerate(prefetcher(numbers(gpu), gpu)):
        gpu.finish()
        assert (batch.shape, batch.requires_grad, batch.grad) == ((8,), False, None)
        assert batch[0] == i
        (batch.requires_grad_() * 2).sum().backward()
        batch.detach_().requires_grad_(False).resize_(2)


def overwrite(gpu: Any, blocks: int) -> None:
    for some in [gpu.allocate(32).view(torch.float32) for _ in range(blocks)]:
        gpu.launch(some, lambda array: array.fill(-1.0))


def test_a_batch_used_on_another_stream_is_let_go_behind_that_stream() -> None:
    """Buffers belong to the stream that was current when they were made; a kept batch may be used on another one."""
    for seed in range(20):
        gpu = Simulated(seed, eager=0.0)
        losses: list[float] = []
        other, add = gpu.new_stream(), adding_to(losses)
        with gpu.on(other):
            gpu.launch(torch.zeros(1), lambda array: None)
        batches = iter(prefetcher(numbers(gpu), gpu))
        kept = [next(batches)]  # on the consumer's stream: the buffers are made there
        for _ in range(STEPS - 1):
            with gpu.on(other):
                kept.append(next(batches))
                gpu.launch(kept[-1], add)
                if len(kept) > 2:
                    del kept[0]
            overwrite(gpu, 1)  # on the consumer's stream: it may get a kept batch's memory
        del kept
        batches.close()  # pyright: ignore[reportAttributeAccessIssue]
        overwrite(gpu, 4)
        gpu.finish()
        assert losses == [float(i) for i in range(1, STEPS)], f"seed {seed}"


def test_the_stream_it_was_handed_to_counts_even_if_another_is_current_later() -> None:
    for seed in range(20):
        gpu = Simulated(seed, eager=0.2)
        losses: list[float] = []
        other, add = gpu.new_stream(), adding_to(losses)
        batches = iter(prefetcher(numbers(gpu), gpu))
        for i in range(STEPS):
            with gpu.on(other if i % 2 else gpu.consumer):
                batch = next(batches)
                gpu.launch(batch, add)
        gpu.finish()
        assert sorted(losses) == [float(i) for i in range(STEPS)], f"seed {seed}"


def test_a_transform_runs_on_the_copy_stream() -> None:
    for seed in range(20):
        gpu = Simulated(seed, eager=0.3)
        ran: list[str] = []

        def double(batch: Any, gpu: Any = gpu, ran: list[str] = ran) -> Any:
            ran.append(gpu.current().name)
            made = gpu.allocate(batch.numel() * 4).view(torch.float32)
            gpu.launch(made, lambda to, of: np.multiply(of, 2, out=to), batch)
            return made

        assert train(gpu, prefetcher(numbers(gpu), gpu, transform=double)) == [4.0 * i for i in range(STEPS)]
        assert set(ran) == {"s1"}


def test_a_transform_of_what_the_loader_made_on_the_device_waits_for_it() -> None:
    for seed in range(20):
        gpu = Simulated(seed, eager=0.2)

        def loader(gpu: Any = gpu) -> Iterator[Any]:
            for i in range(STEPS):
                made = gpu.allocate(32).view(torch.float32)
                gpu.launch(made, lambda array, i=i: array.fill(i))
                yield made
                del made

        def double(batch: Any, gpu: Any = gpu) -> Any:
            made = gpu.allocate(32).view(torch.float32)
            gpu.launch(made, lambda to, of: np.multiply(of, 2, out=to), batch)
            return made

        assert train(gpu, prefetcher(loader(), gpu, transform=double)) == [4.0 * i for i in range(STEPS)]


def test_a_kept_result_of_a_transform_is_the_programs() -> None:
    for seed in range(10):
        gpu, kept = Simulated(seed), []

        def copied(batch: Any, gpu: Any = gpu) -> Any:
            made = gpu.allocate(batch.numel() * 4).view(torch.float32)
            gpu.launch(made, np.copyto, batch)
            return made

        train(gpu, prefetcher(numbers(gpu), gpu, transform=copied), kept=kept)
        assert [batch.tolist() for batch in kept] == [[float(i)] * 8 for i in range(STEPS)]


def anything(seed: int, monkeypatch: pytest.MonkeyPatch, gpu: Any) -> None:
    """Do with batches whatever a program may do; check what its kernels read, and what it kept."""
    choose = random.Random(seed)

    def keep(tensor: Any, stream: Any) -> None:
        gpu.keep(tensor, stream)

    def copied(batch: Any) -> Any:
        made = gpu.allocate(batch["x"].numel() * 4).view(torch.float32)
        gpu.launch(made, np.copyto, batch["x"])
        return {"x": made, "y": batch["y"]}

    def loader() -> Iterator[Any]:
        for i in range(STEPS):
            x, y = torch.full((choose.choice((4, 6, 32)),), float(i)), torch.full((2, 3), float(i)).t()
            yield {"x": gpu.pin(x) if choose.random() < 0.8 else x, "y": y}

    monkeypatch.setattr(torch.Tensor, "record_stream", keep)
    side, other = gpu.new_stream(), gpu.new_stream()
    read: list[tuple[float, list[float]]] = []
    kept: dict[float, Any] = {}
    batches = iter(prefetcher(loader(), gpu, choose.choice((1, 2, 3)), choose.choice((None, copied))))
    for i in range(choose.choice((STEPS, 7))):
        with gpu.on(other if choose.random() < 0.2 else gpu.current()):
            batch = next(batches)
            for part in (batch["x"], batch["x"][1:3], batch["y"]):
                where = choose.choice((gpu.current(), gpu.current(), side))
                known = choose.random() < 0.5  # to whom nobody listens: then the program has to name it
                if where is side:
                    gpu.wait(side, gpu.record(gpu.current()))
                    if not known:
                        part[:1].record_stream(side)
                with gpu.on(where) if known else gpu.quietly_on(where):
                    gpu.launch(part, lambda array, i=i: read.append((float(i), array.ravel().tolist())))
            if choose.random() < 0.3:
                kept[float(i)] = choose.choice((batch, batch["x"], batch["x"][2:], batch["y"][0]))
            if kept and choose.random() < 0.3:
                kept.pop(choose.choice([*kept]))
        if choose.random() < 0.5:
            overwrite(gpu, 2)
    batches.close()  # pyright: ignore[reportAttributeAccessIssue]
    overwrite(gpu, 6)
    gpu.finish()
    assert all(set(values) == {i} for i, values in read)
    assert all(set(tensor.ravel().tolist()) == {i} for i, some in kept.items()
               for tensor in (some.values() if isinstance(some, dict) else [some]))  # fmt: skip
    assert naming._lent == {}


@pytest.mark.parametrize("eager", [0.0, 0.2, 0.6])
def test_whatever_a_program_does_with_batches(eager: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(40):
        anything(seed, monkeypatch, Simulated(seed, eager))


def test_a_ring_without_any_of_its_waits_fails_that_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for broken in (WithoutBackWait, WithoutHandOver):
        wrong = 0
        for seed in range(40):
            try:
                anything(seed, monkeypatch, broken(seed, 0.2))
            except AssertionError:
                wrong += 1
        assert wrong > 20


Pair = namedtuple("Pair", ["x", "y"])


@dataclass
class Sample:
    image: torch.Tensor
    label: int


class Movable:
    def __init__(self, data: torch.Tensor) -> None:
        self.data = data

    def pin_memory(self) -> Movable:
        return self

    def to(self, device: object, non_blocking: bool = False) -> Movable:
        return self

    def to_simulated(self, gpu: Any) -> Movable:
        made = gpu.allocate(self.data.numel() * 4).view(torch.float32).view(self.data.shape)
        gpu.launch(made, np.copyto, self.data)
        return Movable(made)


def test_batches_of_any_kind() -> None:
    gpu = Simulated(5)
    x = torch.arange(6.0).reshape(2, 3)
    batches = [
        x, (x, 1, "name"), [x, None], {"a": x, "b": [x]}, Pair(x, x + 1), Sample(x, 3), Movable(x),
        x.t(), torch.arange(3, dtype=torch.int64), torch.tensor(2.5), torch.empty(0, 3),
        torch.arange(48.0).reshape(1, 3, 4, 4).to(memory_format=torch.channels_last), defaultdict(list, a=x),
    ]  # fmt: skip
    got = []
    for batch in prefetcher(batches, gpu):
        gpu.finish()
        got.append(batch)
    gpu.finish()
    assert torch.equal(got[0], x)
    assert got[1][1:] == (1, "name")
    assert got[2][1] is None
    assert torch.equal(got[3]["b"][0], x)
    assert type(got[4]) is Pair
    assert torch.equal(got[4].y, x + 1)
    assert (type(got[5]), got[5].label) == (Sample, 3)
    assert torch.equal(got[6].data, x)
    assert torch.equal(got[7], x.t())
    assert got[8].dtype == torch.int64
    assert got[9].item() == 2.5
    assert got[10].shape == (0, 3)
    assert got[11].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(got[11], batches[11])
    assert all(gpu.holds(batch) for batch in (got[0], got[7], got[11], got[12]["a"]))
    assert got[12]["new"] == []


def test_exceptions_come_where_the_loader_raises_them() -> None:
    gpu = Simulated(2)

    def loader() -> Iterator[Any]:
        yield from numbers(gpu, 5)
        raise ValueError("bad sample")

    batches = iter(prefetcher(loader(), gpu))
    assert [len(next(batches)) for _ in range(5)] == [8] * 5
    with pytest.raises(ValueError, match="bad sample"):
        next(batches)


def test_break_closes_the_loader() -> None:
    gpu, closed = Simulated(2), []

    def loader() -> Iterator[Any]:
        try:
            yield from numbers(gpu)
        finally:
            closed.append(True)

    for _ in prefetcher(loader(), gpu):
        break
    assert closed == [True]


def test_length_and_order_are_the_loaders() -> None:
    gpu = Simulated(2)
    assert len(prefetcher([1, 2, 3], gpu)) == 3
    with pytest.raises(TypeError):
        len(prefetcher(iter([1]), gpu))
    assert list(prefetcher([3, 1, 2], gpu)) == [3, 1, 2]
    assert list(prefetcher([], gpu)) == []
    again = prefetcher([3, 1], gpu)
    assert [list(again), list(again)] == [[3, 1], [3, 1]]


def test_a_loader_may_use_its_unpinned_memory_again() -> None:
    gpu, batch = Simulated(2), torch.empty(8)

    def loader() -> Iterator[Any]:
        for i in range(STEPS):
            batch.fill_(i)
            yield batch

    assert train(gpu, prefetcher(loader(), gpu)) == expected()


def test_workers_of_a_dataloader_shut_down() -> None:
    gpu = Simulated(2)
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=1)
    assert [int(x[0]) for (x,) in ((gpu.finish(), b)[1] for b in prefetcher(loader, gpu))] == list(range(0, 64, 8))


def test_the_cpu_passes_through() -> None:
    x = torch.ones(3)
    batches = gt.prefetch([x, x], "cpu", transform=lambda batch: batch + 1)
    assert [batch.tolist() for batch in batches] == [[2.0] * 3] * 2
    assert batches.stats.batches == 2
    assert "2 batches" in batches.report()
    assert next(iter(gt.to_host([x], device="cpu"))) is x


def test_says_what_it_cannot() -> None:
    with pytest.raises(GaplessError, match="mps"):
        gt.prefetch([], "mps")
    if not torch.cuda.is_available():
        with pytest.raises(GaplessError, match="no GPU"):
            gt.prefetch([])


@pytest.mark.parametrize("depth", [0, -1, 1.5, float("nan"), float("inf"), "2", None, [], torch.tensor(1.5)], ids=repr)
def test_a_depth_is_a_whole_number_from_1(depth: Any) -> None:
    for device in ("cpu", "cuda"):
        with gt.check(dry=True):
            with pytest.raises(GaplessError, match="depth is a whole number of batches, at least 1, not"):
                gt.prefetch([], device, depth)
            with pytest.raises(GaplessError, match="depth is a whole number of results, at least 1, not"):
                gt.to_host([], depth, device=device)


def test_whole_numbers_of_other_types_are_depths() -> None:
    for depth in (np.int64(3), torch.tensor(3), 10**12):
        with gt.check(dry=True):
            assert len(list(gt.prefetch([torch.ones(2)] * 5, "cuda", depth))) == 5
            assert len(list(gt.to_host([torch.ones(2)] * 5, depth))) == 5


@pytest.mark.parametrize(
    "device",
    ["nonsense", "", "cuda:x", "cuda:-1", "cuda:300", "cuda:", "cpu:", -1, 300, 10**30, None, 1.5, True, b"cuda"],
    ids=repr,
)
def test_what_names_no_device(device: Any) -> None:
    for make in (lambda: gt.prefetch([], device), lambda: gt.to_host([], device=device)):
        with pytest.raises(GaplessError, match="is no device: 'cuda'"):
            make()


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for device in (2, "cuda:2", torch.device("cuda", 2)):
        with pytest.raises(GaplessError, match="There is no cuda:2 here: PyTorch sees 2 GPUs, from cuda:0"):
            gt.prefetch([], device)
    assert isinstance(gt.prefetch([], "cuda:1"), Prefetcher)


def test_a_second_gpu_is_the_dry_runs_to_refuse() -> None:
    with gt.check(dry=True), pytest.raises(GaplessError, match="A dry run pretends one GPU"):
        list(gt.prefetch([1], "cuda:1"))


# ----------------------------------------------------------------------------------------------------------- results


def outputs(gpu: Any, steps: int = STEPS) -> Iterator[Any]:
    """Results that kernels still have to write."""
    for i in range(steps):
        made = gpu.allocate(32).view(torch.float32)
        gpu.launch(made, lambda to, i=i: np.copyto(to, np.float32(i)))
        yield made
        del made


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_results_are_whole_when_they_are_handed_out(depth: int) -> None:
    for seed in range(20):
        gpu = Simulated(seed, eager=(0.0, 0.3, 0.8)[seed % 3])
        results = HostResults(outputs(gpu), gpu, depth)
        assert [result.tolist() for result in results] == [[float(i)] * 8 for i in range(STEPS)]
        assert results.stats.results == STEPS
        assert "brought back" in results.report()


def test_kept_results_are_the_programs() -> None:
    gpu = Simulated(1)
    kept = list(HostResults(outputs(gpu), gpu, 2))
    assert [result.tolist() for result in kept] == [[float(i)] * 8 for i in range(STEPS)]


def test_results_handed_out_before_their_copy_fail_the_same_test() -> None:
    class Hasty(Simulated):
        def synchronize(self, event: Any) -> None:
            pass

    gpu = Hasty(1, eager=0.0)
    assert [r.tolist() for r in HostResults(outputs(gpu), gpu, 2)] != [[float(i)] * 8 for i in range(STEPS)]


def test_results_come_before_the_exception() -> None:
    gpu = Simulated(1)

    def failing() -> Iterator[Any]:
        yield from outputs(gpu, 5)
        raise ValueError("no more")

    results = iter(HostResults(failing(), gpu, 2))
    assert [next(results)[0].item() for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="no more"):
        next(results)


def test_break_lets_nothing_go_under_a_copy() -> None:
    gpu = Simulated(1, eager=0.0)
    for _ in HostResults(outputs(gpu), gpu, 3):
        break
    gpu.finish()


# ------------------------------------------------------------------------------------------------- judged by the check


def test_kinds_with_a_way_of_their_own_to_move() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(2, 2)])
    sparse = torch.eye(3).to_sparse()
    with gt.check(dry=True) as checking:
        first, second, third = gt.prefetch([packed, (sparse, 1), torch.nn.Parameter(torch.ones(3))])
        assert type(first) is type(packed)
        assert first.data.is_cuda
        assert not first.batch_sizes.is_cuda
        assert second[0].layout == torch.sparse_coo
        assert second[0].is_cuda
        assert third.is_cuda
    assert checking.result.findings == []


class Plain:
    """Moves by a method that takes a device and nothing else."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.pin_memory = True  # no method of that name

    def to(self, device: Any) -> Plain:
        return Plain(self.x.to(device))


Edge = namedtuple("Edge", ["src", "to"])


@dataclass
class Letter:
    text: torch.Tensor
    to: str


def test_what_is_called_to_but_moves_nothing() -> None:
    with gt.check(dry=True) as checking:
        plain, edge, letter = gt.prefetch(
            [Plain(torch.ones(3)), Edge(torch.ones(3), torch.ones(3)), Letter(torch.ones(3), "you")]
        )
        assert type(plain) is Plain
        assert plain.x.is_cuda
        assert edge.to.is_cuda
        assert edge.src.is_cuda
        assert letter.text.is_cuda
        assert letter.to == "you"
    assert checking.result.findings == []


@pytest.mark.parametrize("pinned", [True, False])
def test_what_requires_a_gradient_does_so_on_the_device(pinned: bool) -> None:
    def points(gpu: Simulated) -> Iterator[Any]:
        for i in range(STEPS):
            x = torch.full((8,), float(i))
            yield (gpu.pin(x) if pinned else x).requires_grad_(), torch.ones(2)

    gpu = Simulated(2)
    for i, (x, y) in enumerate(prefetcher(points(gpu), gpu)):
        gpu.finish()
        assert x.is_leaf
        assert not y.requires_grad
        (gradient,) = torch.autograd.grad((x**2).sum(), x)
        assert gradient.tolist() == [2.0 * i] * 8
    with torch.no_grad():
        assert not any(x.requires_grad for x, _ in prefetcher(points(gpu), gpu))


@pytest.mark.parametrize("pinned", [True, False])
def test_a_transform_runs_in_the_modes_of_the_loop(pinned: bool) -> None:
    def modes(_: Any) -> tuple[Any, ...]:
        found = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cuda")
        return *found, torch.get_autocast_dtype("cuda") if found[2] else None

    def all_of(gpu: Simulated) -> set[Any]:
        return set(prefetcher(numbers(gpu, pinned=pinned), gpu, transform=modes))

    gpu = Simulated(1)
    assert all_of(gpu) == {(True, False, False, None)}
    with torch.no_grad():
        assert all_of(gpu) == {(False, False, False, None)}
    with torch.inference_mode():
        assert all_of(gpu) == {(False, True, False, None)}
    torch.set_autocast_enabled("cuda", True)  # torch.autocast would not without a GPU
    try:
        assert all_of(gpu) == {(True, False, True, torch.float16)}
    finally:
        torch.set_autocast_enabled("cuda", False)


def test_inside_inference_mode() -> None:
    with gt.check(dry=True) as checking, torch.inference_mode():
        for result in gt.to_host(x * 2 for x in gt.prefetch([torch.ones(4) for _ in range(8)])):
            assert result.shape == (4,)
    assert checking.result.findings == []


def test_workers_are_not_watched() -> None:
    data = torch.utils.data.TensorDataset(torch.ones(16, 4))
    with gt.check(dry=True) as checking:
        for (x,) in gt.prefetch(torch.utils.data.DataLoader(data, batch_size=4, num_workers=1)):
            x.sum()
    assert checking.result.findings == []


def loop(*, keep: bool = False, pin: bool = True, transform: Any = None) -> None:
    data = torch.utils.data.TensorDataset(torch.ones(64, 8), torch.zeros(64, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=pin)
    model = torch.nn.Linear(8, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    kept = []

    def step(x: Any, y: Any) -> Any:
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if keep:
            kept.append(x)
        return loss

    for loss in gt.to_host(step(x, y) for x, y in gt.prefetch(loader, transform=transform)):
        loss.item()


@pytest.mark.parametrize(
    "options",
    [{}, {"keep": True}, {"pin": False}, {"transform": lambda batch: [t * 1 for t in batch]},
     {"transform": lambda batch: [t * 1 for t in batch], "keep": True}],
)  # fmt: skip
def test_a_loop_with_prefetch_and_to_host_has_no_race(options: dict[str, Any]) -> None:
    with gt.check(dry=True) as checking:
        loop(**options)
    assert checking.result.findings == []
    assert checking.result.operations > 100


def test_the_check_finds_a_prefetcher_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers.Cuda, "wait", lambda self, stream, event: None)
    with gt.check(dry=True) as checking:
        loop()
    assert not checking.result.ok
