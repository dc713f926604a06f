"""The division of each SM's memory into L1 and shared memory, where it decides which blocks fit (R6.17).

Only for machines with ``smem_config_per_sm`` and programs with kernels that use shared memory or ask for a carve-out;
everything else does not need to know on which SM a block is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .machine import Machine
from .things import Grid


class SmSplit:
    """Which SM has how much room, and to how much shared memory each is set while blocks are on it.

    Blocks go to the SM with the most room (R6.12). A block that needs a larger shared part than its SM is set to, or
    that asks for another split, finds a place only on an SM that is idle.
    """

    def __init__(self, machine: Machine, grids: list[Grid], units: list[int], capacity: int) -> None:
        sms = machine.sms or 1
        self._whole = capacity // sms  # units of one SM
        self._units = units
        self._shared = [grid.shared if grid.block is None else -1 for grid in grids]  # -1: the shape is not known
        self._set = [
            _setting(grid, machine, self._whole // u if u else 1) for grid, u in zip(grids, units, strict=True)
        ]
        self._asks = [grid.carveout >= 0 for grid in grids]
        self._free = np.full(sms, self._whole, np.int64)
        self._set_to = np.zeros(sms, np.int64)
        self._used = np.zeros(sms, np.int64)
        self._blocks: dict[int, NDArray[np.int64]] = {}  # of each kernel: blocks on each SM
        self._alone: tuple[int, int, int] | None = None  # a kernel that has the GPU to itself: op, grid, blocks

    def place(self, op: int, grid: int, blocks: int) -> int:
        """Find SMs for up to so many blocks of a kernel; give how many found one."""
        if self._shared[grid] < 0 or not blocks:
            return blocks
        if not self._blocks and self._alone is None:  # an idle GPU: no need to look at each SM
            placed = min(blocks, self._whole // self._units[grid] * len(self._free))
            self._alone = (op, grid, placed)
            return placed
        if self._alone is not None:
            alone, self._alone = self._alone, None
            self._spread(*alone)
        return self._spread(op, grid, blocks)

    def leave(self, op: int, grid: int, blocks: int) -> None:
        """Let blocks of a kernel end."""
        if self._shared[grid] < 0:
            return
        if self._alone is not None and self._alone[0] == op:
            left = self._alone[2] - blocks
            self._alone = (op, grid, left) if left else None
            return
        on_sm = self._blocks[op]
        over = np.minimum(np.maximum(blocks - (np.cumsum(on_sm) - on_sm), 0), on_sm)
        self._blocks[op] = on_sm - over
        self._free += over * self._units[grid]
        self._used -= over * self._shared[grid]
        if not self._blocks[op].any():
            del self._blocks[op]

    def _spread(self, op: int, grid: int, blocks: int) -> int:
        units, shared = self._units[grid], self._shared[grid]
        idle = self._free == self._whole
        setting = np.where(idle, self._set[grid], self._set_to)
        fits = self._free // units
        if shared:
            fits = np.minimum(fits, (setting - self._used) // shared)
        if self._asks[grid]:
            fits = np.where(setting == self._set[grid], fits, 0)
        new = _most_room_first(self._free, units, np.maximum(fits, 0), blocks)
        self._set_to = np.where(idle & (new > 0), self._set[grid], self._set_to)
        self._free -= new * units
        self._used += new * shared
        if new.any():
            self._blocks[op] = self._blocks.get(op, np.zeros_like(new)) + new
        return int(new.sum())


def _setting(grid: Grid, machine: Machine, at_once: int) -> int:
    """Give the shared bytes to which a kernel sets an idle SM."""
    whole = machine.smem_per_sm or 0
    if grid.carveout >= 0:
        return max(whole * grid.carveout // 100, grid.shared)
    return min(grid.shared * max(at_once, 1), whole)


def _most_room_first(free: NDArray[np.int64], units: int, fits: NDArray[np.int64], blocks: int) -> NDArray[np.int64]:
    """Deal blocks to SMs, each to the one with the most room then; SMs before others of the same room by number."""
    if fits.sum() <= blocks:
        return fits
    sm: NDArray[Any] = np.repeat(np.arange(len(free)), fits)
    nth = np.arange(len(sm)) - np.repeat(np.cumsum(fits) - fits, fits)
    room = free[sm] - nth * units
    chosen = np.lexsort((sm, -room))[:blocks]
    return np.bincount(sm[chosen], minlength=len(free))


def split_of(machine: Machine, grids: list[Grid], units: list[int], capacity: int) -> SmSplit | None:
    """Give the split to keep track of; None where it cannot matter."""
    matters = any(grid.block is None and (grid.shared or grid.carveout >= 0) for grid in grids)
    if not machine.smem_config_per_sm or machine.sms is None or not matters:
        return None
    return SmSplit(machine, grids, units, capacity)
