"""What a machine and a program have in store for each row, looked up once: the ground that plans are made on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .kinds import CALL, MEMORY, OP, Flag
from .machine import Machine
from .program import Program, batches

_LARGEST = np.int64(2**63 - 1)


class Facts:
    """Columns and masks, one entry a row: kinds, sizes, which copies are pageable, small, synchronous, in a batch."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.program, self.machine, self.rows = program, machine, program.rows
        rows = self.rows
        self.call, self.op, self.bytes = rows.call, rows.op, rows.bytes
        self.size = np.where(self.bytes < 0, _LARGEST, self.bytes)  # no size counts as larger than every limit
        self.sync = (self.call == CALL.COPY_SYNC) | (self.call == CALL.MEMSET_SYNC)
        self.h2d, self.d2h = self.op == OP.H2D, self.op == OP.D2H
        self.host_kind = np.where(self.h2d, rows.src, np.where(self.d2h | (self.op == OP.MEMSET), rows.dst, 0))
        self.pageable = (self.h2d | self.d2h) & (self.host_kind == MEMORY.PAGEABLE)
        self.small = self.pageable & self.h2d & (self.size <= machine.small_pageable)
        self.batches = batches(program)
        self.batched = self.call == CALL.BATCHED
        self.staged_machine = machine.pageable == "staged"
        self.staged_size = machine.staging_slots * machine.staging_slot

    def has(self, flag: Flag) -> NDArray[np.bool_]:
        """Tell which rows carry a flag."""
        return (self.rows.flags & flag) != 0


def sparse(column: NDArray[Any]) -> dict[int, int]:
    """Give the entries of a column that are not 0, by row."""
    rows = np.flatnonzero(column)
    return dict(zip(rows.tolist(), column[rows].tolist(), strict=True))
