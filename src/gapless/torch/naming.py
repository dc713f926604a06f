"""Streams that ``record_stream`` names for memory of a ring, whichever view of it the program calls that on.

The caching allocator is told of a stream by ``record_stream`` and acts when the memory is released. Memory of a ring is
written again without being released, so the ring has to hear of the stream as well. Nothing in PyTorch says later which
streams were named for a block: ``torch.Tensor.record_stream`` is replaced by one that looks whose memory it is first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_lent: dict[int, Callable[[Any], None]] = {}  # a storage's identity -> who wants to hear of it


def lend(memory: torch.Tensor, hear: Callable[[Any], None]) -> None:
    """Call *hear* with each stream that is named for this memory or a view of it, until ``take_back``."""
    method = torch.Tensor.record_stream
    if not hasattr(method, "real"):  # the first time, or in a dry run, which has one of its own
        torch.Tensor.record_stream = _hearing(method)
    _lent[memory.untyped_storage()._cdata] = hear


def take_back(memory: torch.Tensor) -> None:
    """Hear of a memory no more: it ends, or is the program's."""
    _lent.pop(memory.untyped_storage()._cdata, None)


def record_stream(tensor: torch.Tensor, stream: Any) -> None:
    """Call PyTorch's own ``record_stream``."""
    method = torch.Tensor.record_stream
    getattr(method, "real", method)(tensor, stream)


def _hearing(real: Callable[[torch.Tensor, Any], None]) -> Any:
    def record_stream(self: torch.Tensor, stream: Any) -> None:
        try:
            hear = _lent.get(self.untyped_storage()._cdata)
        except (RuntimeError, NotImplementedError):  # sparse, or of a class that has no memory of its own
            hear = None
        if hear is not None:
            hear(stream)
        real(self, stream)

    record_stream.__doc__ = real.__doc__
    record_stream.real = real  # pyright: ignore[reportFunctionMemberAccess]
    return record_stream
