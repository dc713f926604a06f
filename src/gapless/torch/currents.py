"""Streams that become the current one of a thread: whatever PyTorch does with a batch, it does on one of them.

Nothing in PyTorch tells which streams used a tensor. But to use one on another stream, a thread has to make that stream
its current one, and there are few ways to do so: those tell, as long as a ring wants to hear of it.

Streams of other libraries (``ExternalStream``) are left out: they may be destroyed before the ring waits for them.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

_hearing: dict[int, Callable[[Any], None]] = {}
_current: dict[int, Any] = {}  # thread -> the stream that it made current last
_external: set[int] = set()  # handles of other libraries' streams


def listen(who: object, hear: Callable[[Any], None]) -> None:
    """Call *hear* with each stream that becomes current in any thread, until *who* is through."""
    _install()
    _hearing[id(who)] = hear


def through(who: object) -> None:
    """Hear of no more streams."""
    _hearing.pop(id(who), None)


def now() -> list[Any]:
    """Give the streams that threads made current last."""
    return list(_current.values()) if _current else []


def forget() -> None:
    """Forget what is current: a dry run begins or ends, and its streams are no streams outside."""
    _current.clear()
    _external.clear()


def entered(stream: Any) -> None:
    """Tell that a stream is current in this thread from now on."""
    if isinstance(stream, torch.cuda.ExternalStream):
        _external.add(stream.cuda_stream)
    if stream is None or stream.cuda_stream in _external:
        return
    _current[get_ident()] = stream
    for hear in list(_hearing.values()):
        hear(stream)


def set_quietly(stream: Any) -> None:
    """Make a stream current and tell nobody: ours, for a moment."""
    function = torch.cuda.set_stream
    getattr(function, "real", function)(stream)


def _install() -> None:
    """Let the ways to make a stream current tell; those of a dry run do so by themselves."""
    modules: tuple[Any, ...] = (torch.cuda, getattr(torch, "accelerator", None))
    for module in modules:
        function = getattr(module, "set_stream", None)
        if function is not None and not hasattr(function, "real"):
            module.set_stream = _telling(function)
    stream = torch.cuda.Stream
    if hasattr(stream, "__enter__") and "__enter__" not in vars(stream):  # ``with stream:``, which is C++
        stream.__enter__ = _entering(stream.__enter__)
        stream.__exit__ = _leaving(stream.__exit__)


def _telling(real: Callable[[Any], None]) -> Any:
    def set_stream(stream: Any) -> None:
        real(stream)
        entered(_as_cuda(stream))

    set_stream.__doc__ = real.__doc__
    set_stream.real = real  # pyright: ignore[reportFunctionMemberAccess]
    return set_stream


def _as_cuda(stream: Any) -> Any:
    """Give a stream of ``torch.accelerator`` as one of CUDA; None for another device's."""
    if stream is None or isinstance(stream, torch.cuda.Stream):
        return stream
    if stream.device.type != "cuda":
        return None
    return torch.cuda.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )


def _entering(real: Any) -> Any:
    def enter(self: Any) -> Any:
        result = real(self)
        entered(self)
        return result

    return enter


def _leaving(real: Any) -> Any:
    def leave(self: Any, *why: Any) -> Any:
        result = real(self, *why)
        entered(torch.cuda.current_stream())
        return result

    return leave
