"""Batches of any shape: the tensors in them, and the same batch with other tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from gapless.model.errors import GaplessError

from .containers import again, attributes_of

_LEAVES = frozenset({int, float, complex, bool, str, bytes, type(None)})  # most of what is no tensor, told in one look


def map_batch(batch: Any, change: Callable[[torch.Tensor], Any], whole: Callable[[Any], Any] | None = None) -> Any:
    """``map_tensors`` of a batch that nobody has walked through yet: it may hold itself."""
    try:
        return map_tensors(batch, change, whole)
    except RecursionError:
        raise GaplessError(
            f"a {type(batch).__name__} holds itself, or is nested deeper than Python can follow: gapless.torch carries "
            "over batches and results that end somewhere"
        ) from None


def map_tensors(batch: Any, change: Callable[[torch.Tensor], Any], whole: Callable[[Any], Any] | None = None) -> Any:
    """Give the batch with each tensor changed: of tuples, lists, dicts, dataclasses, and other containers, nested too.

    *whole* changes objects of other classes that can be moved (``.to``); None leaves them as they are. Raises
    GaplessError for a container with tensors of which no other one can be made.
    """
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if type(batch) is list:
        return [map_tensors(item, change, whole) for item in batch]
    if type(batch) is tuple:
        return tuple([map_tensors(item, change, whole) for item in batch])
    if type(batch) is dict:
        return {key: map_tensors(item, change, whole) for key, item in batch.items()}
    if type(batch) in _LEAVES:
        return batch
    if whole is not None and callable(getattr(batch, "to", None)):  # an item or field may have that name too
        return whole(batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields") and not hasattr(batch, "__dict__"):  # a plain named tuple
        return tuple.__new__(type(batch), [map_tensors(item, change, whole) for item in batch])
    changes = False

    def noting(does: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def change_one(value: Any) -> Any:
            nonlocal changes
            changed = does(value)
            changes = changes or changed is not value
            return changed

        return change_one

    changing, moving = noting(change), None if whole is None else noting(whole)

    def of(item: Any) -> Any:
        """Give an item as it is where nothing in it changes: lists and dicts are made anew otherwise."""
        nonlocal changes
        before, changes = changes, False
        changed = map_tensors(item, changing, moving)
        unchanged, changes = not changes, changes or before
        return item if unchanged else changed

    return again(batch, of)


def tensors_in(value: Any, _seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """Give all tensors that a value holds, those in attributes of objects too; each one once."""
    seen = set[int]() if _seen is None else _seen
    if id(value) in seen or type(value) in _LEAVES:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            yield value
        else:
            yield from behind(value)
        return
    if isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item, seen)
    elif isinstance(value, list | tuple | set | frozenset | deque):
        for item in value:
            yield from tensors_in(item, seen)
    for item in attributes_of(value):
        yield from tensors_in(item, seen)


def behind(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Give the dense tensors that a sparse or jagged one consists of; of other layouts nothing is known."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    if tensor.layout is torch.jagged:
        parts = (getattr(tensor, name, None) for name in ("_values", "_offsets", "_lengths"))
        return tuple(part for part in parts if part is not None)
    return ()


def refuse(tensor: torch.Tensor) -> None:
    """Raise GaplessError for a kind of tensor that is more than a dense or sparse array of numbers."""
    kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else None
    if kind is not None:
        raise GaplessError(
            f"prefetch does not carry {kind} tensors: their numbers alone do not say what they are. Hand over the "
            f"dense tensors that they are made of, and make the {kind} ones on the device."
        )


class Held:
    """Tensors that we hold beside somebody else: tells when nobody else holds them, or a view of them, any more."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.tensors = tensors
        self._storages = {storage._cdata: storage for storage in (t.untyped_storage() for t in tensors)}
        self._ours = dict.fromkeys(self._storages, 1)  # the storage object itself
        for tensor in tensors:
            self._ours[tensor.untyped_storage()._cdata] += 1

    @property
    def elsewhere(self) -> bool:
        """Whether somebody else holds one of them: a tensor, a view, a graph that will run backward."""
        for key, ours in self._ours.items():  # noqa: SIM110 - in every step: any() takes thrice as long
            if torch._C._storage_Use_Count(key) > ours:
                return True
        return False
