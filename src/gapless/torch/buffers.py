"""Buffers that a ring owns: memory for one tensor after the other, of whatever size."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .batches import Held


class Buffer:
    """Bytes that are used again and again, unless somebody holds what lies there."""

    def __init__(self, allocate: Callable[[int], torch.Tensor]) -> None:
        self._allocate = allocate
        self._held: Held | None = None
        self._last: torch.Tensor | None = None  # the memory as the last tensor's, and what that looked like
        self._looks: tuple[object, ...] = ()
        self.memory: torch.Tensor | None = None
        self.bytes = 0  # of the last tensor

    @property
    def kept(self) -> bool:
        """Whether somebody else holds what lies here, or a view of it."""
        return self._held is not None and self._held.elsewhere

    def fits(self, tensor: torch.Tensor) -> bool:
        """Tell whether there is room for a tensor."""
        looks = tensor.dtype, tensor.size(), tensor.stride()
        if looks != self._looks:
            self._looks, self._last, self.bytes = looks, None, bytes_of(tensor)
        return self.memory is not None and self.memory.numel() >= self.bytes

    def leave(self) -> None:
        """Let go of the memory: it is whose who holds it."""
        self._held = self._last = self.memory = None

    def renew(self) -> torch.Tensor:
        """Allocate memory for the tensor that was asked for; give it."""
        self.leave()  # before the new one: it may get the same memory
        self.memory = self._allocate(max(self.bytes, 1))
        self._held = Held([self.memory])
        return self.memory

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give the memory as a tensor of the type, shape and, where that is dense, strides of one that fits."""
        if self._last is None:
            assert self.memory is not None, "renew comes first"
            with torch.inference_mode(False):  # what is made in that mode, another thread could not write
                flat = self.memory[: self.bytes].view(tensor.dtype)
                if tensor.is_contiguous():
                    last = flat.view(tensor.size())
                else:
                    strides = torch.empty_like(tensor, device="meta").stride()
                    last = torch.as_strided(flat, tensor.size(), strides)
                self._last = last.detach()  # a view would hold what it is a view of
            self._held = Held([self.memory, self._last])
        return self._last.detach()  # one for each batch: what the program does to it does not stay on it


def bytes_of(tensor: torch.Tensor) -> int:
    """Give the bytes of a tensor's elements."""
    return tensor.numel() * tensor.dtype.itemsize
