"""What tells that a stream is current: PyTorch's own names, without a GPU behind them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

from gapless.torch import currents  # noqa: E402

entered_now: list[Any] = []


class OfPyTorch:
    """As ``torch.Stream``, from which ``torch.cuda.Stream`` has its ``with``."""

    def __init__(self, stream_id: int, **_: object) -> None:
        self.cuda_stream = stream_id

    def __enter__(self) -> Any:
        entered_now.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        entered_now.pop()


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Handles of the streams that were told of; PyTorch's names are made up."""
    kind = type("Stream", (OfPyTorch,), {})
    entered_now[:] = [kind(1)]
    monkeypatch.setattr(torch.cuda, "Stream", kind)
    monkeypatch.setattr(torch.cuda, "ExternalStream", type("ExternalStream", (kind,), {}))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: entered_now[-1])
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: None)
    monkeypatch.setattr(torch.accelerator, "set_stream", lambda stream: None)
    currents.forget()
    handles: list[int] = []
    currents.listen(handles, lambda stream: handles.append(stream.cuda_stream))
    yield handles
    currents.through(handles)
    currents.forget()


def test_all_ways_to_make_a_stream_current_tell(heard: list[int]) -> None:
    torch.cuda.set_stream(torch.cuda.Stream(7))
    with torch.cuda.Stream(8):
        assert [stream.cuda_stream for stream in currents.now()] == [8]
    torch.accelerator.set_stream(
        SimpleNamespace(device=torch.device("cuda", 0), stream_id=9, device_index=0, device_type=1)
    )
    assert heard == [7, 8, 1, 9]


def test_streams_of_other_devices_and_of_other_libraries_are_left_out(heard: list[int]) -> None:
    torch.accelerator.set_stream(SimpleNamespace(device=torch.device("xpu", 0)))
    torch.cuda.set_stream(None)
    torch.cuda.set_stream(torch.cuda.ExternalStream(5))
    torch.cuda.set_stream(torch.cuda.Stream(5))  # the same, as PyTorch gives it back
    assert heard == []
    assert currents.now() == []


def test_quiet_ones_do_not_tell(heard: list[int]) -> None:
    currents.set_quietly(torch.cuda.Stream(7))
    assert heard == []


def test_threads_have_their_own(heard: list[int]) -> None:
    torch.cuda.set_stream(torch.cuda.Stream(7))
    thread = threading.Thread(target=lambda: torch.cuda.set_stream(torch.cuda.Stream(8)))
    thread.start()
    thread.join()
    torch.cuda.set_stream(torch.cuda.Stream(9))
    assert sorted(stream.cuda_stream for stream in currents.now()) == [8, 9]
    assert heard == [7, 8, 9]


def test_nobody_is_told_who_is_through(heard: list[int]) -> None:
    currents.through(heard)
    torch.cuda.set_stream(torch.cuda.Stream(7))
    assert heard == []
