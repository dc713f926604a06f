"""The same programs on a real GPU, prefetching under random delays, and memory that stays flat."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)

import gapless.torch as gt  # noqa: E402
import stream_programs as programs  # noqa: E402
from gapless.torch.prefetching import Prefetcher  # noqa: E402
from gapless.torch.transfers import Cuda  # noqa: E402

pytestmark = pytest.mark.gpu


def causes(program: Callable[[], object]) -> set[tuple[str, str]]:
    with gt.check() as checking:
        program()
    torch.cuda.synchronize()
    return {(f.cause.slug, "error" if f.error else "warning") for f in checking.result.findings}


@pytest.mark.parametrize(("program", "cause"), programs.RACES, ids=lambda value: getattr(value, "__name__", ""))
def test_finds(program: Callable[[], object], cause: str) -> None:
    assert causes(program) == {(cause, "error")}


@pytest.mark.parametrize("program", programs.SILENT, ids=lambda value: value.__name__)
def test_stays_silent(program: Callable[[], object]) -> None:
    assert causes(program) == set()


@pytest.mark.parametrize(("program", "cause"), programs.WARNINGS, ids=lambda value: getattr(value, "__name__", ""))
def test_warns_where_todays_drivers_hide_it(program: Callable[[], object], cause: str) -> None:
    assert causes(program) == {(cause, "warning")}


def losses_of(make: Callable[[Iterator[Any], Any], Any], steps: int, *, stall: bool) -> list[int]:
    """Train on numbers that differ in each step; *stall* sleeps at random in both streams. Give the losses."""
    delays = random.Random(7)

    def sleep(longest: int) -> None:
        if stall and delays.random() < 0.5:
            torch.cuda._sleep(delays.randrange(longest))

    def loader() -> Iterator[Any]:
        for i in range(steps):
            yield torch.full((1 << 16,), i, dtype=torch.int64).pin_memory()

    def slow(batch: Any) -> Any:
        sleep(200_000)
        return batch

    weight = torch.ones((), dtype=torch.int64, device="cuda")
    losses = []
    for batch in make(loader(), slow):
        sleep(delays.choice((50_000, 2_000_000)))
        weight.mul_(3).add_(batch.sum())
        losses.append(weight.clone())
    return torch.stack(losses).tolist()


def test_losses_are_the_same_under_random_stalls() -> None:
    steps = 3000
    plain = losses_of(lambda loader, slow: (batch.cuda() for batch in loader), steps, stall=False)
    for depth in (1, 2):
        assert losses_of(lambda loader, slow, d=depth: gt.prefetch(loader, depth=d, transform=slow), steps,
                         stall=True) == plain  # fmt: skip


def test_a_prefetcher_without_the_back_wait_fails_the_same_test() -> None:
    class Hasty(Cuda):
        def wait(self, stream: Any, event: Any) -> None:
            if stream == self.current():
                super().wait(stream, event)

    steps = 1000
    plain = losses_of(lambda loader, slow: (batch.cuda() for batch in loader), steps, stall=False)
    gpu = Hasty(torch.device("cuda", 0))
    assert losses_of(lambda loader, slow: Prefetcher(loader, gpu, 1, slow), steps, stall=True) != plain


def test_memory_stays_flat() -> None:
    batch = torch.ones(1 << 16).pin_memory()
    total = torch.zeros((), device="cuda")
    seen = []
    for i, x in enumerate(gt.prefetch(batch for _ in range(10_000))):
        total += x.sum()
        if i in (100, 9_999):
            seen.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    assert seen[0] == seen[1]


def test_results_come_back_whole() -> None:
    def outputs() -> Iterator[Any]:
        for i in range(500):
            torch.cuda._sleep(50_000)
            yield torch.full((1 << 16,), float(i), device="cuda")

    for i, result in enumerate(gt.to_host(outputs())):
        assert result.min() == result.max() == i
