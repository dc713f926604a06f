"""Memory that is used again: blocks whose users have let go of them, known by the count of their references.

A fresh array of gigabytes costs more than copying it does: the system must find and clear every page when it is first
written. So the memory of a large result is kept for the next one.
"""

from __future__ import annotations

import sys
import threading
from math import prod
from typing import Any

import numpy as np

from .devices import HostArray
from .devices.host import as_array

LEAST = 1 << 20  # bytes of a result that is worth keeping
SLACK = 1.25  # times more than is needed that a block may have


class Stock:
    """The memory of a pipeline's last results. Thread-safe.

    It knows no more blocks than the results of two runs: the one that its user still holds while the next is computed,
    and that next one. What is dropped from it is given back when its user lets go of it.
    """

    def __init__(self) -> None:
        self._blocks: list[HostArray] = []  # the newest last
        self._lock = threading.Lock()

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any], *, results: int = 1) -> HostArray:
        """Give memory for one of so many results of a run, with anything in it."""
        size = prod(shape) * dtype.itemsize
        if size < LEAST or not COUNTS_HOLDERS:
            return np.empty(shape, dtype)
        with self._lock:
            for index in range(len(self._blocks)):
                if is_unheld(self._blocks, index) and size <= self._blocks[index].nbytes <= SLACK * size:
                    self._blocks.append(self._blocks.pop(index))
                    break
            else:
                self._blocks.append(np.empty(size, np.uint8))
                del self._blocks[: -2 * results]
            return as_array(self._blocks[-1], 0, shape, dtype)

    def clear(self) -> None:
        """Forget all blocks."""
        with self._lock:
            self._blocks.clear()


def is_unheld(blocks: list[HostArray], index: int) -> bool:
    """Tell whether nothing but this list refers to a block. Only where ``COUNTS_HOLDERS``."""
    return _references(blocks, index) == _UNHELD


def _references(blocks: list[HostArray], index: int) -> int:
    return sys.getrefcount(blocks[index])


COUNTS_HOLDERS = getattr(sys, "_is_gil_enabled", lambda: True)()  # without the interpreter's lock, counts are not exact
_UNHELD = _references([np.empty(1, np.uint8)], 0)
