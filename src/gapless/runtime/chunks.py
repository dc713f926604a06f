"""Cutting arrays into chunks, and packing small items into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gapless.model.errors import GaplessError

from .devices import HostArray
from .devices.address import address, addresses
from .slots import Chunk


def as_host(value: Any, what: str = "The input") -> HostArray:
    """Give what the user passed as a NumPy array. Raises GaplessError for device arrays and for objects."""
    if hasattr(value, "__cuda_array_interface__"):
        raise GaplessError(f"{what} is in the GPU's memory already, and a pipeline copies from host memory.")
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise GaplessError(f"{what} has dtype {array.dtype}: Python objects cannot be copied to a device.")
    return array


def rows_of(inputs: Sequence[HostArray]) -> int:
    """Give the rows that all inputs have in common. Raises GaplessError if they differ."""
    for number, array in enumerate(inputs):
        if not array.ndim:
            raise GaplessError(f"Input {number} has no rows to cut: its shape is (). Reshape it to (1,).")
    rows = {len(array) for array in inputs}
    if len(rows) > 1:
        shapes = ", ".join(str(array.shape) for array in inputs)
        raise GaplessError(f"The inputs differ in their first dimension, along which they are cut: {shapes}.")
    return rows.pop()


def cut(inputs: Sequence[HostArray], spans: Iterable[tuple[int, int]], index: int = 0) -> Iterator[Chunk]:
    """Cut arrays at spans of rows (first, after); *index* numbers the first chunk."""
    for number, (first, after) in enumerate(spans, index):
        yield Chunk(number, first, after - first, tuple(array[first:after] for array in inputs))


def spans_of(first: int, after: int, rows: int) -> list[tuple[int, int]]:
    """Divide the rows *first* to *after* into chunks of *rows*; no rows are one empty chunk."""
    if first >= after:
        return [(first, after)]
    return [(start, min(start + rows, after)) for start in range(first, after, rows)]


def without(done: Iterable[tuple[int, int]], rows: int) -> list[tuple[int, int]]:
    """Give the spans of rows that *done* (any order) leaves out."""
    gaps, end = [], 0
    for first, after in sorted(done):
        if first > end:
            gaps.append((end, first))
        end = max(end, after)
    return [*gaps, (end, rows)] if end < rows else gaps


def batches(source: Iterable[Any], pack_bytes: int = 0) -> Iterator[Chunk]:
    """Make each batch a chunk; a list is many small items, packed into one. *pack_bytes*: pack single items as well."""
    if pack_bytes and isinstance(source, np.ndarray) and source.ndim > 1 and source.flags.c_contiguous:
        yield from _rows(as_host(source), pack_bytes)
        return
    first = 0
    groups = _packed(source, pack_bytes) if pack_bytes else ((batch, isinstance(batch, list)) for batch in source)
    for index, (batch, as_list) in enumerate(groups):
        chunk = _chunk(batch, index, first, as_list, pack=pack_bytes > 0)
        yield chunk
        first += chunk.rows


def _rows(array: HostArray, pack_bytes: int) -> Iterator[Chunk]:
    """Pack the items that iterating over an array would give: they lie side by side already."""
    length, tail = array.shape[1], array.shape[2:]
    at_once = max(pack_bytes // max(array.nbytes // max(len(array), 1), 1), 1)
    for index, start in enumerate(range(0, len(array), at_once)):
        part = array[start : start + at_once]
        flat = part.reshape(len(part) * length, *tail)
        yield Chunk(index, start * length, len(flat), (flat,), items=[length] * len(part))


def _chunk(batch: Any, index: int, first: int, as_list: bool, *, pack: bool) -> Chunk:
    if not (as_list or pack):
        inputs = tuple(as_host(one) for one in (batch if isinstance(batch, tuple) else (batch,)))
        return Chunk(index, first, rows_of(inputs), inputs)
    if not batch:
        raise GaplessError("A batch is an empty list: there is nothing to pack.")
    columns = list(zip(*batch, strict=True)) if isinstance(batch[0], tuple) else [batch]
    if as_list:
        columns = [_alike([as_host(one) for one in column]) for column in columns]
    rows = list(map(len, columns[0]))
    if any(list(map(len, column)) != rows for column in columns[1:]):
        raise GaplessError("The inputs of an item differ in their first dimension.")
    inputs = tuple(_joined(column) for column in columns)
    return Chunk(index, first, sum(rows), inputs, items=rows, as_list=as_list, held=batch)


def _alike(items: list[HostArray]) -> list[HostArray]:
    rows_of(items[:1])
    kinds = {(item.shape[1:], item.dtype) for item in items}
    if len(kinds) > 1 or any(not item.ndim for item in items):
        raise GaplessError(f"Items that are packed together differ in dtype or in the shape of a row: {kinds}.")
    return items


_is_whole = attrgetter("flags.c_contiguous")


def _joined(items: Sequence[HostArray]) -> HostArray | Sequence[HostArray]:
    """Give items that lie one after another in memory as the one array that they make up."""
    first, sizes = items[0], [item.nbytes for item in items]
    if address(items[-1]) - address(first) != sum(sizes) - sizes[-1]:
        return items
    if not np.array_equal(np.diff(addresses(items)), sizes[:-1]) or not all(map(_is_whole, items)):
        return items
    return as_strided(first, (sum(map(len, items)), *first.shape[1:]), first.strides, writeable=False)


def _packed(source: Iterable[Any], pack_bytes: int) -> Iterator[tuple[list[Any], bool]]:
    """Gather single items until they make up *pack_bytes*; items that cannot lie side by side start a new pack."""
    rest = iter(source)
    for item in rest:  # as long as all items are alike, none of them is looked at by itself
        if type(item) is not np.ndarray or not item.ndim or not item.nbytes or item.dtype.hasobject:
            pack = [item]
        else:
            pack = [item, *islice(rest, max(-(-pack_bytes // item.nbytes), 1) - 1)]
            if _are_like(item, pack):
                yield pack, False
                continue
        yield from _mixed(chain(pack, rest), pack_bytes)
        return


def _are_like(item: HostArray, others: list[Any]) -> bool:
    count = len(others)
    return (
        list(map(type, others)).count(np.ndarray) == count
        and [other.shape for other in others].count(item.shape) == count
        and [other.dtype for other in others].count(item.dtype) == count
    )


def _mixed(source: Iterable[Any], pack_bytes: int) -> Iterator[tuple[list[Any], bool]]:
    """Gather items of any kind."""
    pack: list[Any] = []
    size, kind = 0, None
    for item in source:
        parts = tuple(as_host(part, "An item") for part in (item if isinstance(item, tuple) else (item,)))
        rows_of(parts)
        here = tuple((part.dtype, part.shape[1:]) for part in parts)
        if pack and here != kind:
            yield pack, False
            pack, size = [], 0
        kind = here
        pack.append(parts if isinstance(item, tuple) else parts[0])
        size += sum(part.nbytes for part in parts)
        if size >= pack_bytes:
            yield pack, False
            pack, size = [], 0
    if pack:
        yield pack, False


def unpack(chunk: Chunk, result: HostArray) -> list[HostArray]:
    """Divide the result of a packed chunk among its items. Raises GaplessError where it has not their rows."""
    items = chunk.items or []
    if not result.ndim or len(result) != chunk.rows:
        raise GaplessError(
            f"Items can be packed only where a kernel gives a row for a row: {chunk.where()} gave shape {result.shape}."
        )
    if len(set(items)) == 1:
        return list(result.reshape(len(items), items[0], *result.shape[1:]))
    ends = np.cumsum(items).tolist()
    return [result[end - rows : end] for rows, end in zip(items, ends, strict=True)]
