"""The address of an array, whatever its kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gapless.runtime.devices.address import address, by_interface


def test_it_is_the_one_of_the_array_interface(tmp_path: Path) -> None:
    base = np.zeros((5, 7), np.complex128)
    frozen = base[1:]
    frozen.flags.writeable = False
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(9,))
    fields = np.zeros(3, [("a", "i4"), ("b", "f8")])
    kinds = (base, base[3:, 2::3], base[::-1], frozen, np.zeros(0), np.array(1, np.float32), base.view("u1"),
             mapped[2:], np.frombuffer(b"12345678", np.int32), fields["b"])  # fmt: skip
    for array in kinds:
        assert address(array) == by_interface(array) == array.__array_interface__["data"][0]
