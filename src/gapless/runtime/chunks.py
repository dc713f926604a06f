"""Cutting arrays into chunks, and packing small items into one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gapless.model.errors import GaplessError

from .devices import HostArray
from .devices.address import Alike, address, addresses_if_alike
from .devices.host import is_masked
from .slots import Chunk


def as_host(value: Any, what: str = "The input") -> HostArray:
    """Give what the user passed as a NumPy array. Raises GaplessError for device arrays and for objects."""
    if type(value) is np.ndarray:
        array = value
    elif hasattr(value, "__cuda_array_interface__"):
        raise GaplessError(f"{what} is in the GPU's memory already, and a pipeline copies from host memory.")
    elif is_masked(value):
        raise GaplessError(f"{what} has a mask, which a device does not know. Pass x.filled(...), or x.data.")
    else:
        array = np.asarray(value)
    if not array.dtype.itemsize:
        raise GaplessError(f"{what} has dtype {array.dtype.str}, whose elements have no bytes.")
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


def spans_of(first: int, after: int, rows: int) -> Iterator[tuple[int, int]]:
    """Divide the rows *first* to *after* into chunks of *rows*; no rows are one empty chunk.

    A last chunk of one row gets a second one from its neighbour: what has one row could be a result of rows or of
    chunks, and which of both must not depend on the chunk that happens to be through first.
    """
    count = after - first
    if count <= 0:
        yield first, after
        return
    is_shared = rows > 2 and count > rows and count % rows == 1
    for start in range(first, after, rows):
        if is_shared and start == after - rows - 1:  # the last but one
            yield start, after - 2
            yield after - 2, after
            return
        yield start, min(start + rows, after)


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
    if pack_bytes and type(source) in (np.ndarray, np.memmap) and _is_table(source):
        yield from _rows(as_host(source), pack_bytes)
        return
    first = 0
    for index, batch in enumerate(_packed(source, pack_bytes) if pack_bytes else source):
        as_list = not pack_bytes and isinstance(batch, list)
        if as_list:  # what others do to the list from now on is nothing to what is read of its items' memory
            batch = list(batch)
        alike = batch if isinstance(batch, Alike) else _if_alike(batch) if as_list and batch else None
        if alike is not None:
            rows = [len(alike[0])] * len(alike)
            chunk = Chunk(index, first, sum(rows), (_joined(alike),), items=rows, as_list=as_list, held=alike)
        elif as_list or pack_bytes:
            chunk = _pack(batch, index, first, as_list=as_list)
        elif isinstance(batch, tuple):
            inputs = tuple([as_host(one) for one in batch])
            if not inputs:
                raise GaplessError("A batch is an empty tuple: there is no input in it.")
            chunk = Chunk(index, first, rows_of(inputs), inputs)
        else:
            array = as_host(batch)
            chunk = Chunk(index, first, len(array) if array.ndim else rows_of([array]), (array,))
        yield chunk
        first += chunk.rows


def _is_table(source: Any) -> bool:
    """Tell whether iterating over an array gives arrays that lie side by side."""
    return source.ndim > 1 and source.flags.c_contiguous and source.dtype.itemsize > 0


def _rows(array: HostArray, pack_bytes: int) -> Iterator[Chunk]:
    """Pack the items that iterating over an array would give: they lie side by side already."""
    length, tail = array.shape[1], array.shape[2:]
    at_once = max(pack_bytes // max(array.nbytes // max(len(array), 1), 1), 1)
    for index, start in enumerate(range(0, len(array), at_once)):
        part = array[start : start + at_once]
        flat = part.reshape(len(part) * length, *tail)
        yield Chunk(index, start * length, len(flat), (flat,), items=[length] * len(part))


def _pack(batch: list[Any], index: int, first: int, *, as_list: bool) -> Chunk:
    """Make many items one chunk."""
    if not batch:
        raise GaplessError("A batch is an empty list: there is nothing to pack.")
    shapes = {len(item) if isinstance(item, tuple) else None for item in batch}
    if len(shapes) > 1 or 0 in shapes:
        raise GaplessError("The items of a list are either all arrays, or all tuples of as many arrays.")
    columns = [batch] if None in shapes else list(zip(*batch, strict=True))
    if as_list:
        columns = [_alike([as_host(one) for one in column]) for column in columns]
    rows = list(map(len, columns[0]))
    if any(list(map(len, column)) != rows for column in columns[1:]):
        raise GaplessError("The inputs of an item differ in their first dimension.")
    inputs = tuple(_joined(column) for column in columns)
    return Chunk(index, first, sum(rows), inputs, items=rows, as_list=as_list, held=columns)


def _alike(items: list[HostArray]) -> list[HostArray]:
    rows_of(items[:1])
    kinds = {(item.shape[1:], item.dtype) for item in items}
    if len(kinds) > 1 or any(not item.ndim for item in items):
        raise GaplessError(f"Items that are packed together differ in dtype or in the shape of a row: {kinds}.")
    return items


def _if_alike(items: list[Any]) -> Alike | None:
    """Give items with their addresses where they are arrays that are whole, alike and not empty."""
    first = items[0]
    if type(first) is not np.ndarray or not first.ndim or not first.nbytes or first.dtype.hasobject:
        return None
    places = addresses_if_alike(items)
    return None if places is None else Alike(items, places)


def _joined(items: Sequence[HostArray]) -> HostArray | Sequence[HostArray]:
    """Give items that lie one after another in memory as the one array that they make up."""
    first = items[0]
    if isinstance(items, Alike):
        places, sizes, rows = items.places, first.nbytes, len(first) * len(items)
    else:
        if not all(item.flags.c_contiguous for item in items):
            return items
        places = np.fromiter(map(address, items), np.int64, len(items))
        sizes, rows = np.array([item.nbytes for item in items[:-1]]), sum(map(len, items))
    if (places[1:] - places[:-1] != sizes).any():
        return items
    return _stretch(first, (rows, *first.shape[1:]))


def _stretch(first: HostArray, shape: tuple[int, ...]) -> HostArray:
    """Give an array of this shape that begins where *first* does."""
    whole = first.base  # as a rule items are cut out of one array, and the stretch is a part of it
    if type(whole) is np.ndarray and whole.flags.c_contiguous:
        offset = address(first) - address(whole)
        if 0 <= offset <= whole.nbytes - prod(shape) * first.itemsize:
            stretch = np.ndarray(shape, first.dtype, whole, offset)  # pyright: ignore[reportArgumentType]
            stretch.flags.writeable = False
            return stretch
    # Not by first.strides: an item of one row may have any stride from row to row, and still be whole.
    return as_strided(first, (prod(shape),), (first.itemsize,), writeable=False).reshape(shape)


def _packed(source: Iterable[Any], pack_bytes: int) -> Iterator[list[Any]]:
    """Gather single items until they make up *pack_bytes*; items that cannot lie side by side start a new pack.

    What goes wrong in the source comes out after the items that it has given.
    """
    rest = iter(source)
    for item in rest:  # as long as all items are alike, none of them is looked at by itself
        size = item.nbytes if type(item) is np.ndarray else 0
        pack, failed = [item], None
        if size:
            try:
                pack.extend(islice(rest, min(-(-pack_bytes // size) - 1, sys.maxsize)))
            except Exception as problem:
                failed = problem
        alike = _if_alike(pack)
        if alike is None:
            yield from _mixed(chain(pack, rest if failed is None else failing(failed)), pack_bytes)
            return
        yield alike
        if failed is not None:
            raise failed


def failing(problem: BaseException) -> Iterator[Any]:
    """Be an iterator that fails."""
    raise problem
    yield


def _mixed(source: Iterable[Any], pack_bytes: int) -> Iterator[list[Any]]:
    """Gather items of any kind."""
    pack: list[Any] = []
    size, kind = 0, None
    try:
        for item in source:
            parts = tuple(as_host(part, "An item") for part in (item if isinstance(item, tuple) else (item,)))
            if not parts:
                raise GaplessError("An item is an empty tuple: there is no input in it.")
            rows_of(parts)
            here = isinstance(item, tuple), *((part.dtype, part.shape[1:]) for part in parts)
            if pack and here != kind:
                yield pack
                pack, size = [], 0
            kind = here
            pack.append(parts if isinstance(item, tuple) else parts[0])
            size += sum(part.nbytes for part in parts)
            if size >= pack_bytes:
                yield pack
                pack, size = [], 0
    except Exception:
        if pack:
            yield pack
        raise
    if pack:
        yield pack


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
