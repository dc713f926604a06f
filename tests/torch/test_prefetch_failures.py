"""What fails in the middle of prefetching: when it is told, and what is left behind."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from gapless.model.errors import GaplessError  # noqa: E402
from gapless.torch import naming  # noqa: E402
from gapless.torch.prefetching import Prefetcher  # noqa: E402
from gapless.torch.results import HostResults  # noqa: E402
from simulated_gpu import Simulated  # noqa: E402


def numbers(gpu: Any, *, pinned: bool, steps: int = 8) -> Iterator[Any]:
    for i in range(steps):
        batch = torch.full((8,), float(i))
        yield gpu.pin(batch) if pinned else batch


def failing_at(turn: int, problem: type[BaseException]) -> Callable[[Any], Any]:
    """Give a transform that fails once, for the batch whose turn it is (from 1)."""
    turns = iter(range(1, 1000))

    def transform(batch: Any) -> Any:
        if next(turns) == turn:
            raise problem("mine")
        return batch

    return transform


class Stubborn:
    """A batch whose ``.to`` fails when its copy has begun."""

    def to(self, device: object, non_blocking: bool = False) -> Any:
        raise NotImplementedError

    def to_simulated(self, gpu: Any) -> Any:
        raise ValueError("mine")


def given_before(batches: Iterator[Any], gpu: Any, problem: type[BaseException]) -> list[float]:
    """Take batches until one fails; give what they held."""
    given: list[float] = []

    def take() -> None:
        for batch in batches:
            gpu.finish()
            given.append(batch[0].item())

    with pytest.raises(problem, match="mine"):
        take()
    return given


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("depth", [1, 2, 3, 9])
@pytest.mark.parametrize("turn", [1, 4, 8])
def test_an_error_of_a_transform_comes_when_its_batch_would(turn: int, depth: int, pinned: bool) -> None:
    gpu, asked = Simulated(3), []

    def loader() -> Iterator[Any]:
        for batch in numbers(gpu, pinned=pinned):
            asked.append(batch)
            yield batch

    batches = iter(Prefetcher(loader(), gpu, depth, failing_at(turn, ValueError)))
    assert given_before(batches, gpu, ValueError) == [float(i) for i in range(turn - 1)]
    assert len(asked) == turn  # as a plain loop: nothing behind the batch that failed
    assert list(batches) == []


@pytest.mark.parametrize("pinned", [True, False])
def test_an_error_of_an_objects_own_to_comes_when_its_batch_would(pinned: bool) -> None:
    gpu = Simulated(3)

    def loader() -> Iterator[Any]:
        for batch in numbers(gpu, pinned=pinned, steps=3):
            yield batch, None
        yield gpu.pin(torch.ones(8)) if pinned else torch.ones(8), Stubborn()

    batches = (x for x, _ in Prefetcher(loader(), gpu, 2, None))
    assert given_before(batches, gpu, ValueError) == [0.0, 1.0, 2.0]
    assert naming._lent == {}


def test_no_memory_for_a_batch_is_told_behind_the_batches_before_it() -> None:
    class Small(Simulated):
        def allocate(self, size: int) -> Any:
            if self.allocations == 3:
                raise MemoryError("mine")
            return super().allocate(size)

    gpu = Small(3)
    batches = iter(Prefetcher(numbers(gpu, pinned=True), gpu, 2, None))
    assert given_before(batches, gpu, MemoryError) == [0.0, 1.0, 2.0]
    assert naming._lent == {}


def test_a_transforms_stop_iteration_ends_no_loop_silently() -> None:
    for pinned in (True, False):
        gpu = Simulated(3)
        batches = iter(Prefetcher(numbers(gpu, pinned=pinned), gpu, 2, failing_at(3, StopIteration)))
        assert [next(batches)[0].shape for _ in range(2)] == [()] * 2
        with pytest.raises(RuntimeError, match="StopIteration"):
            next(batches)


FAILURES = [
    pytest.param(lambda gpu: Prefetcher(numbers(gpu, pinned=True), gpu, 2, failing_at(3, ValueError)), id="pinned"),
    pytest.param(lambda gpu: Prefetcher(numbers(gpu, pinned=False), gpu, 2, failing_at(3, ValueError)), id="unpinned"),
    pytest.param(lambda gpu: Prefetcher(numbers(gpu, pinned=True), gpu, 2, failing_at(1, KeyboardInterrupt)),
                 id="Ctrl-C in the first"),
    pytest.param(lambda gpu: Prefetcher(numbers(gpu, pinned=True), gpu, 2, failing_at(7, KeyboardInterrupt)),
                 id="Ctrl-C in a slot that was handed"),
    pytest.param(lambda gpu: Prefetcher(numbers(gpu, pinned=False), gpu, 2, failing_at(7, KeyboardInterrupt)),
                 id="Ctrl-C in the thread"),
    pytest.param(lambda gpu: Prefetcher([(gpu.pin(torch.ones(8)), Stubborn())], gpu, 2, None), id=".to"),
]  # fmt: skip


def iterate(batches: Prefetcher[Any]) -> None:
    """Iterate until it fails, and keep no batch."""
    try:
        for _ in batches:
            pass
    except (ValueError, KeyboardInterrupt):
        return
    raise AssertionError("it did not fail")


@pytest.mark.parametrize("failing", FAILURES)
def test_failing_again_and_again_takes_no_more_memory(failing: Callable[[Any], Prefetcher[Any]]) -> None:
    gpu, blocks = Simulated(1), list[int]()
    gc.collect()
    gc.disable()  # what a failure leaves behind is let go by itself
    try:
        for _ in range(20):
            iterate(failing(gpu))
            assert naming._lent == {}
            gpu.finish()
            blocks.append(len(gpu._device))
    finally:
        gc.enable()
    assert blocks[-1] == blocks[0]


class Hasty(Simulated):
    """Waits for nothing on the host."""

    def synchronize(self, event: Any) -> None:
        pass


def overwritten(gpu: Any, failing: Callable[[Any], Prefetcher[Any]]) -> int:
    """Let an iteration fail, and the program then take memory and write to it: give how much of it is not its own."""
    iterate(failing(gpu))
    mine = [gpu.allocate(32).view(torch.float32) for _ in range(6)]
    for some in mine:
        gpu.launch(some, lambda array: array.fill(-5.0))
    gpu.finish()
    return sum(bool((some != -5.0).any()) for some in mine)


@pytest.mark.parametrize("failing", FAILURES)
def test_memory_of_a_batch_that_failed_is_let_go_behind_its_copy(failing: Callable[[Any], Prefetcher[Any]]) -> None:
    for seed in range(40):
        gpu = Simulated(seed, eager=(0.0, 0.3, 0.8)[seed % 3])
        assert overwritten(gpu, failing) == 0, f"seed {seed}"


@pytest.mark.parametrize("failing", FAILURES)
def test_memory_let_go_under_a_copy_fails_the_same_test(failing: Callable[[Any], Prefetcher[Any]]) -> None:
    assert any(overwritten(Hasty(seed, eager=0.0), failing) for seed in range(40))


# ----------------------------------------------------------------------------------------------------------- results


class Unknown:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


def outputs(gpu: Any, last: Callable[[Any], Any]) -> Iterator[Any]:
    """Five results that kernels still have to write, and one of another kind behind them."""
    for i in range(6):
        made = gpu.allocate(32).view(torch.float32)
        gpu.launch(made, lambda to, i=i: to.fill(i))
        yield made if i < 5 else last(made)
        del made


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("last", [Unknown, lambda made: [made, Unknown(made)]])
def test_results_come_before_one_that_is_refused(last: Callable[[Any], Any], depth: int) -> None:
    for seed in range(10):
        gpu = Simulated(seed, eager=(0.0, 0.5)[seed % 2])
        results, got = HostResults(outputs(gpu, last), gpu, depth), []
        with pytest.raises(GaplessError, match="holds others"):
            got.extend(result.tolist() for result in results)
        assert got == [[float(i)] * 8 for i in range(5)]
        assert (results.stats.results, results.stats.bytes) == (5, 5 * 32)


def test_a_result_whose_copy_fails_is_held_until_the_stream_is_done() -> None:
    class Breaking(Simulated):
        copies = 0

        def copy(self, pairs: Any, stream: Any) -> None:
            self.copies += 1
            super().copy(pairs, stream)
            if self.copies == 4:
                raise ValueError("mine")

    for seed in range(20):
        gpu, got = Breaking(seed, eager=0.0), list[Any]()
        copies = iter(HostResults(outputs(gpu, lambda made: made), gpu, 2))
        with pytest.raises(ValueError, match="mine"):
            got.extend(result.tolist() for result in copies)
        assert got == [[float(i)] * 8 for i in range(3)]
        assert all(not stream.work for stream in gpu.streams[1:])
