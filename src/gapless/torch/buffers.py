"""Buffers that a ring owns: memory for one tensor after the other, of whatever size."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .batches import Held


class Buffer:
    """Bytes that are used again and again, unless somebody holds what lies there.

    ``again`` is what a loop needs in every step; where it gives None, ``fits`` and ``renew`` make room for ``like``.
    """

    def __init__(self, allocate: Callable[[int], torch.Tensor]) -> None:
        self._allocate = allocate
        self._held: Held | None = None
        self._last: torch.Tensor | None = None  # the memory as the last tensor's, and what that looked like
        self._looks: tuple[object, ...] = ()
        self.memory: torch.Tensor | None = None
        self.bytes = 0  # of the last tensor
        self.kept = False  # whether somebody else held what lies here, or a view of it, at the last look

    def look(self) -> None:
        """Look whether somebody else holds what lies here. Who does not any more, has issued all that uses it."""
        self.kept = self._held is not None and self._held.elsewhere

    def again(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Give the memory for a tensor that looks like the last one, unless somebody held it."""
        looks = (tensor.dtype, tensor.size(), tensor.stride())
        if self._last is None or looks != self._looks or self.kept:
            return None
        return self._last.detach()  # one for each batch: what the program does to it does not stay on it

    def fits(self, tensor: torch.Tensor) -> bool:
        """Tell whether there is room for a tensor."""
        looks = (tensor.dtype, tensor.size(), tensor.stride())
        if looks != self._looks:
            self._looks, self._last, self.bytes = looks, None, bytes_of(tensor)
        return self.memory is not None and self.memory.numel() >= self.bytes

    def leave(self) -> None:
        """Let go of the memory: it is whose who holds it."""
        self._held = self._last = self.memory = None
        self.kept = False

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
            if torch.is_inference_mode_enabled():  # what is made in that mode, another thread could not write
                with torch.inference_mode(False):
                    return self.like(tensor)
            strides = tensor.stride()
            if not tensor.is_contiguous():
                strides = torch.empty_like(tensor, device="meta").stride()
            last = torch.empty(0, dtype=tensor.dtype, device=self.memory.device)
            self._last = last.set_(self.memory.untyped_storage(), 0, tensor.size(), strides)
            self._held = Held([self.memory, self._last])
        return self._last.detach()


def bytes_of(tensor: torch.Tensor) -> int:
    """Give the bytes of a tensor's elements."""
    return tensor.numel() * tensor.dtype.itemsize
