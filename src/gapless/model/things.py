"""What calls are about: streams, events, buffers and grids as a program has them, times and sizes as they are given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from .errors import GaplessError
from .kinds import MemoryKind, StreamKind
from .units import parse_size, parse_time

Time: TypeAlias = "int | float | Fraction | str"  # ps, or text such as "3ms"
Size: TypeAlias = "int | str"  # bytes, or text such as "16MiB"

WHOLE_GPU = Fraction(1)


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream: its kind (section 1), priority (lower number goes first) and device."""

    name: str
    kind: StreamKind
    priority: int = 0
    device: int = 0
    created: bool = True  # False: a default stream, which exists without being created


@dataclass(frozen=True, slots=True)
class EventInfo:
    """An event. ``device`` -1: it belongs to whatever device it is recorded on."""

    name: str
    device: int = -1


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """A stretch of memory. ``bytes`` -1: size not given."""

    name: str
    kind: MemoryKind
    bytes: int = -1


@dataclass(frozen=True, slots=True)
class Grid:
    """How a kernel occupies the GPU: blocks that each need a share ``block`` of it and each take the kernel's time.

    ``block`` None: the machine works the share out from ``threads``, ``registers`` (per thread) and ``shared`` (bytes
    per block). ``shared`` and ``carveout`` (percent of an SM's memory wanted as shared, -1 for the default) matter for
    the split of an SM (R6.17). For programmatic dependent launch (R6.14): ``trigger``, ps after its start at which each
    block of this kernel lets the dependent one start, and ``prologue``, ps that this kernel, being dependent, runs
    before it waits for the one before; -1: none.
    """

    blocks: int = 1
    block: Fraction | None = WHOLE_GPU
    threads: int = 0
    registers: int = 0
    shared: int = 0
    carveout: int = -1
    trigger: int = -1
    prologue: int = -1


def picoseconds(time: Time | None) -> int:
    """Give a time as whole ps; -1 where none is given. Raises GaplessError for less than nothing."""
    if time is None:
        return -1
    picoseconds = time if type(time) is int else parse_time(time) if isinstance(time, str) else round(time)
    if picoseconds < 0:
        raise GaplessError(f"a time cannot be negative: {time!r}")
    return picoseconds


def in_bytes(size: Size) -> int:
    """Give a size in bytes; -1 where none is given."""
    return parse_size(size) if isinstance(size, str) else size


def word_value(value: int) -> int:
    """Give a value of a word of memory. Raises GaplessError for what it cannot hold."""
    if not 0 <= value < 2**32:
        raise GaplessError(f"a value in a word of memory lies in 0 ... 2^32 - 1, not {value}")
    return value


def checked(grid: Grid) -> Grid:
    """Give a grid with its share as a fraction. Raises GaplessError for one that no kernel can have."""
    if grid.blocks < 1:
        raise GaplessError(f"a kernel has at least one block, not {grid.blocks}")
    if grid.block is not None and not 0 < grid.block <= 1:
        raise GaplessError(f"a block's share of the GPU lies in (0, 1]; {grid.block} does not")
    if grid.block is None and grid.threads < 1:
        raise GaplessError("a grid gives the share of a block, or its threads so that the machine can work it out")
    return replace(grid, block=None if grid.block is None else Fraction(grid.block))
