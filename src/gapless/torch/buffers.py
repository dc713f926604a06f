"""Buffers that a ring owns: memory for one tensor after the other, of whatever size."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .batches import Held


class Buffer:
    """Bytes that are used again and again, and replaced where somebody keeps what lies there."""

    def __init__(self, allocate: Callable[[int], torch.Tensor]) -> None:
        self._allocate = allocate
        self._bytes: torch.Tensor | None = None
        self._held: Held | None = None
        self.replaced = 0  # times that somebody kept what lay here

    @property
    def size(self) -> int:
        """Bytes that there are."""
        return 0 if self._bytes is None else self._bytes.numel()

    def room_for(self, size: int) -> bool:
        """Make room, if that needs new memory; tell whether it did. The old memory is whose who holds it."""
        if self._held is not None and self._held.elsewhere:
            self.replaced += 1
        elif self.size >= size:
            return False
        self._held = None
        self._bytes = None  # before the new one: it may get the same memory
        self._bytes = self._allocate(max(size, 1))
        self._held = Held([self._bytes])
        return True

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give the buffer as a tensor of the same shape, type and, where that is dense, strides."""
        assert self._bytes is not None, "room_for comes first"
        with torch.inference_mode(False):  # what is made in that mode, another thread could not write
            flat = self._bytes[: bytes_of(tensor)].view(tensor.dtype)
            if tensor.is_contiguous():
                return flat.view(tensor.size())
            return torch.as_strided(flat, tensor.size(), torch.empty_like(tensor, device="meta").stride())


def bytes_of(tensor: torch.Tensor) -> int:
    """Give the bytes of a tensor's elements."""
    return tensor.numel() * tensor.dtype.itemsize
