"""Batches of any shape: the tensors in them, and the same batch with other tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from copy import copy
from typing import Any

import torch


def map_tensors(batch: Any, change: Callable[[torch.Tensor], Any], whole: Callable[[Any], Any] | None = None) -> Any:
    """Give the batch with each tensor changed: of tuples, lists, dicts, named tuples and dataclasses, nested too.

    *whole* changes objects of other classes that can be moved (``.to``); None leaves them as they are.
    """
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if type(batch) is list:
        return [map_tensors(item, change, whole) for item in batch]
    if type(batch) is tuple:
        return tuple([map_tensors(item, change, whole) for item in batch])
    if type(batch) is dict:
        return {key: map_tensors(item, change, whole) for key, item in batch.items()}
    if whole is not None and hasattr(batch, "to"):
        return whole(batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(item, change, whole) for item in batch))
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        changed = {
            field.name: map_tensors(getattr(batch, field.name), change, whole)
            for field in dataclasses.fields(batch)
            if field.init
        }
        return dataclasses.replace(batch, **changed)
    if isinstance(batch, MutableMapping):
        changed = copy(batch)
        for key, item in batch.items():
            changed[key] = map_tensors(item, change, whole)
        return changed
    return batch


def tensors_in(value: Any, _seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """Give all tensors that a value holds, those in attributes of objects too; each one once."""
    seen = set[int]() if _seen is None else _seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            yield value
        else:
            yield from behind(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item, seen)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from tensors_in(item, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for item in vars(value).values():
            yield from tensors_in(item, seen)
    elif hasattr(value, "__slots__"):
        for name in value.__slots__:
            yield from tensors_in(getattr(value, name, None), seen)


def behind(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Give the dense tensors that a sparse one consists of; of other layouts nothing is known."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()


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
