"""A device of real threads that stages like a GPU: its streams run by themselves, and only its own memory is pinned."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from gapless.runtime.devices.address import address
from gapless.runtime.devices.host import Host


class StagedHost(Host):
    """The host, with pageable memory that must be staged by a crew."""

    stages = True

    def __init__(self, *, raw: bool = False) -> None:
        super().__init__()
        self.raw = raw  # lanes may launch kernels
        self.name = self.key = "staged host"
        self._pinned: list[Any] = []

    def pinned(self, nbytes: int) -> np.ndarray:
        block = np.full(nbytes, 0x5A, np.uint8)
        self._pinned = [known for known in self._pinned if known[0]() is not None]
        self._pinned.append((weakref.ref(block), address(block), nbytes))
        return block

    def is_pinned(self, array: np.ndarray) -> bool:
        start = address(array)
        return any(
            known() is not None and low <= start and start + array.nbytes <= low + size
            for known, low, size in list(self._pinned)
        )

    def kernel(self, kernel: Any, options: Any) -> Any:
        launch = super().kernel(kernel, options)
        launch.in_any_thread = self.raw
        return launch
