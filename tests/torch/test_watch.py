"""What the watch makes of operations, on two GPUs that the tests make up out of tensors of the CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from gapless.model.kinds import StreamKind  # noqa: E402
from gapless.torch import watch  # noqa: E402
from gapless.torch.judge import judge  # noqa: E402
from gapless.torch.log import Log  # noqa: E402


class TwoDevices:
    """Tensors of double precision lie on the second GPU."""

    def __init__(self, log: Log) -> None:
        self.streams = [log.stream(f"default of {i}", StreamKind.LEGACY, i) for i in range(2)]

    def holds(self, tensor: Any) -> bool:
        return True

    def stream(self, index: int) -> int:
        return self.streams[index]

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    def fallback(self) -> tuple[()]:
        return ()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr(watch, "_index", lambda tensor: int(tensor.dtype == torch.float64))
    return Log()


def test_a_copy_between_gpus_waits_for_both_and_both_for_it(log: Log) -> None:
    with watch.Watch(log, TwoDevices(log)):  # pyright: ignore[reportArgumentType]
        first, second = torch.zeros(4), torch.zeros(4, dtype=torch.float64)
        first.add_(1)
        second.copy_(first)
        second.mul_(2)
        first.add_(1)
        first.double().mul_(2)
    assert judge(log) == []


def test_two_gpus_side_by_side_race(log: Log) -> None:
    with watch.Watch(log, TwoDevices(log)):  # pyright: ignore[reportArgumentType]
        x = torch.zeros(4)
        x.view(torch.float64).mul_(2)
    (finding,) = judge(log)
    assert (finding.first.stream, finding.second.stream) == ("default of 0", "default of 1")


def test_views_and_allocations_touch_nothing(log: Log) -> None:
    with watch.Watch(log, TwoDevices(log)):  # pyright: ignore[reportArgumentType]
        x = torch.empty(4)
        x.view(2, 2).t()[0].detach()
    assert log.operations == 0


@pytest.mark.parametrize(
    "make",
    [lambda: torch.eye(3).to_sparse(), lambda: torch.eye(3).to_sparse_csr(), lambda: torch.eye(3).to_sparse_csc(),
     lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])],
    ids=["coo", "csr", "csc", "nested"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Sparse", "ignore:The PyTorch API of nested")
def test_sparse_and_nested_tensors_are_the_memory_behind_them(log: Log, make: Any) -> None:
    two = TwoDevices(log)
    with watch.Watch(log, two):  # pyright: ignore[reportArgumentType]
        x = make()
        two.streams[0] = log.stream("side", StreamKind.NON_BLOCKING)
        x.sum() if not x.is_nested else x * 2
    found = judge(log)
    assert {finding.second.stream for finding in found} == {"side"}
