"""Columns of whole numbers as one short text: differences, byte planes, gzip, base64."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from isal import igzip
from numpy.typing import NDArray

Described = list[int]  # [offset of the first byte, number of values, bytes a value, 1 where differences are kept]

_LEVEL = 2  # of gzip: more takes several times as long and saves a tenth


class Packer:
    """Gathers columns; ``data`` is all of them in one text."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, column: NDArray[Any], *, differences: bool = False) -> Described:
        """Add a column of whole numbers and say where it is.

        Each number (or its difference to the one before) is folded to be positive (0, -1, 1, -2 become 0, 1, 2, 3),
        takes as many bytes as the largest needs, and is kept by planes: all low bytes first. Sorted columns compress
        far better as differences. Raises ValueError beyond 2^52, which a browser could not tell apart.
        """
        values = np.asarray(column, np.int64)
        if differences:
            values = np.diff(values, prepend=0)
        folded = np.where(values < 0, -2 * values - 1, 2 * values).astype(np.uint64)
        most = int(folded.max(initial=0))
        if most >= 2**53:
            raise ValueError(f"{most} is too large a number to be packed")
        width = max(1, (most.bit_length() + 7) // 8)
        planes = folded.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T
        described = [self._size, len(values), width, int(differences)]
        self._parts.append(np.ascontiguousarray(planes).tobytes())
        self._size += len(values) * width
        return described

    @property
    def data(self) -> str:
        """All columns: gzip in base64."""
        return base64.b64encode(igzip.compress(b"".join(self._parts), _LEVEL, mtime=0)).decode("ascii")
