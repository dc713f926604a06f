"""What users pass to a pipeline, checked: each mistake gets one message that says what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from gapless.model.errors import GaplessError
from gapless.model.units import parse_size

from .devices import HostArray

MOST = {"threads": 1024, "slots": 1 << 16, "rows": 1 << 48}  # more is a mistake

Size = int | str


def targets_of(out: Any, arrays: Sequence[HostArray]) -> list[HostArray] | None:
    """Check what results are to be put into. Raises GaplessError for what would lose data."""
    if out is None:
        return None
    targets = list(out) if isinstance(out, tuple | list) else [out]
    for number, target in enumerate(targets):
        if not isinstance(target, np.ndarray):
            raise GaplessError(f"out= takes NumPy arrays, not {type(target).__name__}.")
        if not target.flags.writeable:
            raise GaplessError("out= is read-only.")
        if _overlaps_itself(target) or any(_share_memory(target, other) for other in targets[:number]):
            raise GaplessError("Places in out= overlap each other: one result would overwrite another.")
        for array in arrays:
            same = target.__array_interface__["data"] == array.__array_interface__["data"] and (
                target.shape == array.shape and target.strides == array.strides and target.dtype == array.dtype
            )
            if not same and np.may_share_memory(target, array):
                raise GaplessError(
                    "out= overlaps an input in part: results would overwrite rows that are still to be read."
                )
    return targets


def _share_memory(one: HostArray, other: HostArray) -> bool:
    """Tell whether two arrays have a byte in common; where that is too hard to tell, say so."""
    try:
        return bool(np.shares_memory(one, other, max_work=10_000))  # pyright: ignore[reportArgumentType]
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(array: HostArray) -> bool:
    """Tell whether elements of an array may lie in the same memory: where a step is less than all that lies within."""
    within = array.itemsize if array.size else 0
    for stride, length in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if length > 1 and stride < within:
            return True
        within += stride * max(length - 1, 0)
    return False


def size_of(name: str, value: Size | None) -> int | None:
    """Read a size: bytes, or text such as "16 MiB"."""
    if value is None:
        return None
    size = parse_size(value.replace(" ", "")) if isinstance(value, str) else _whole(name, value)
    if size < 1:
        raise GaplessError(f"{name}= must be at least one byte.")
    return size


def count_of(name: str, value: int | None, least: int) -> int | None:
    """Read a whole number of at least *least*."""
    if value is None:
        return None
    count = _whole(name, value)
    if count < least:
        raise GaplessError(f"{name}= must be at least {least}, not {value}.")
    if count > MOST.get(name, count):
        raise GaplessError(f"{name}= must be at most {MOST[name]}, not {value}.")
    return count


def _whole(name: str, value: Any) -> int:
    try:
        return index(value)
    except TypeError:
        raise GaplessError(f"{name}= takes a whole number, not {value!r}.") from None
