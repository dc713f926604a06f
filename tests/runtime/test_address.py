"""The address of an array, whatever its kind."""

from __future__ import annotations

import numpy as np

from gapless.runtime.devices.address import address


def test_it_is_the_one_of_the_array_interface() -> None:
    base = np.zeros((5, 7), np.complex128)
    frozen = base[1:]
    frozen.flags.writeable = False
    for array in (base, base[3:, 2::3], base[::-1], frozen, np.zeros(0), np.float32(1).reshape(()), base.view("u1")):
        assert address(array) == array.__array_interface__["data"][0]
