"""Containers of other classes than lists, tuples and dicts: what they hold, and another one that holds other things.

No constructor of theirs is called: it may want arguments that nobody kept, or compute with tensors before their copies
are done. A copy is made, and what it holds is replaced; where that does not work out, it is said.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap, UserList, deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any

import torch

from gapless.model.errors import GaplessError

_BUILT_IN = (tuple, list, dict, set, frozenset, deque)  # what they hold is no attribute of theirs


class _CannotError(Exception):
    """Why there can be no other one."""


def again(batch: Any, of: Callable[[Any], Any]) -> Any:
    """Give the container again with what *of* makes of its items, and of the fields of a dataclass.

    Tensors among its further attributes go with it. What is no container is given as it is, and so is one in which
    nothing changes. Raises GaplessError where there can be no other one.
    """
    fields = [f.name for f in dataclasses.fields(batch)] if _is_dataclass(batch) else []
    items = _items(batch)
    if items is None and not _is_dataclass(batch):
        return batch
    known: dict[int, Any] = {}  # one for what it holds in two places

    def other(value: Any) -> Any:
        if id(value) not in known:
            known[id(value)] = of(value)
        return known[id(value)]

    old = [value for _, value in items or []]
    new = [other(value) for value in old]
    attributes = {name: getattr(batch, name) for name in fields if hasattr(batch, name)}
    changed = {name: other(value) for name, value in attributes.items()}
    if fields or isinstance(batch, _BUILT_IN):
        further = {name: value for name, value in _own(batch).items() if name not in changed}
        attributes |= further
        changed |= {
            name: other(value)
            for name, value in further.items()
            if isinstance(value, torch.Tensor) or id(value) in known
        }
    try:
        made = batch if items is None else _with_items(batch, [key for key, _ in items], old, new)
        return _with_attributes(batch, made, attributes, changed)
    except Exception as problem:
        why = problem if isinstance(problem, _CannotError) else f"{type(problem).__name__}: {problem}"
        raise GaplessError(
            f"tensors in a {type(batch).__name__} cannot be replaced by their copies ({why}). Hand them over in a "
            "list, a tuple, a dict or a plain dataclass."
        ) from None


def attributes_of(value: Any) -> Iterator[Any]:
    """Give what an object holds in its attributes, also where those are slots."""
    if isinstance(value, type):
        return
    if hasattr(value, "__dict__"):
        yield from list(vars(value).values())
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            private = slot.startswith("__") and not slot.endswith("__")
            name = f"_{kind.__name__.lstrip('_')}{slot}" if private else slot
            if hasattr(value, name):
                yield getattr(value, name)


def _is_dataclass(batch: Any) -> bool:
    return dataclasses.is_dataclass(batch) and not isinstance(batch, type)


def _own(batch: Any) -> dict[str, Any]:
    """Give the attributes of an object itself; none where they are its items (``self.__dict__ = self``)."""
    own = getattr(batch, "__dict__", {})
    return {} if own is batch else own


def _items(batch: Any) -> list[tuple[Any, Any]] | None:
    """Give what a container holds, with its keys; None for what is none."""
    if isinstance(batch, tuple):
        return list(enumerate(tuple.__iter__(batch)))
    if isinstance(batch, list | deque | UserList):
        return list(enumerate(batch))
    if isinstance(batch, set | frozenset):
        return [(None, item) for item in batch]
    if isinstance(batch, ChainMap):
        return list(enumerate(batch.maps))  # what one hides of another too
    if isinstance(batch, Mapping):
        return list(batch.items())
    return None


def _with_items(batch: Any, keys: Sequence[Any], old: list[Any], new: list[Any]) -> Any:
    """Give a container of the same class that holds other items; the same where they are the same."""
    if all(one is other for one, other in zip(old, new, strict=True)):
        return batch
    kind = type(batch)
    if isinstance(batch, tuple):
        if hasattr(kind, "n_sequence_fields"):  # what torch.max gives: a class written in C
            if kind.n_fields != kind.n_sequence_fields:
                raise _CannotError("it holds more than its items")
            return kind(new)
        made = tuple.__new__(kind, new)
        if hasattr(made, "__dict__"):
            vars(made).update(vars(batch))
        return made
    if isinstance(batch, frozenset):
        made = frozenset.__new__(kind, new)
        if hasattr(made, "__dict__"):
            vars(made).update(vars(batch))
        return made
    if isinstance(batch, MappingProxyType):
        inner = batch.copy()
        _replace(batch, inner, keys, old, new)
        return MappingProxyType(inner)
    made = _copied(batch)
    if isinstance(batch, set):
        set.clear(made)
        set.update(made, new)
    elif isinstance(batch, ChainMap):
        made.maps = new
    elif isinstance(batch, list | deque | UserList | MutableMapping):
        _replace(batch, made, keys, old, new)
        if getattr(batch, "__dict__", None) is batch:
            made.__dict__ = made
    else:
        raise _CannotError("nothing can be put into it")
    return made


def _replace(batch: Any, made: Any, keys: Sequence[Any], old: list[Any], new: list[Any]) -> None:
    """Put other items into the copy of a container: the container itself must keep what it holds."""
    if len(made) != len(batch):
        raise _CannotError("a copy of it holds something else")
    for key, one, other in zip(keys, old, new, strict=True):
        if one is other:
            continue
        made[key] = other
        if batch[key] is other:
            made[key] = one
            raise _CannotError("a copy of it shares what it holds")
        if made[key] is not other:
            raise _CannotError("it does not hold what is put into it")


def _with_attributes(batch: Any, made: Any, old: dict[str, Any], new: dict[str, Any]) -> Any:
    """Give the copy with other attributes too; the object itself where nothing is another one."""
    for name, other in new.items():
        if other is old[name] or getattr(made, name) is other:
            continue
        if made is batch:
            made = _copied(batch)
        if name in _own(made):
            vars(made)[name] = other
        else:
            object.__setattr__(made, name, other)  # a slot; of a frozen dataclass too
        if getattr(batch, name) is other:
            object.__setattr__(made, name, old[name])
            raise _CannotError("a copy of it shares what it holds")
        if getattr(made, name) is not other:
            raise _CannotError(f"its {name} does not become what it is set to")
    return made


def _copied(batch: Any) -> Any:
    made = copy(batch)
    if made is batch or type(made) is not type(batch):
        raise _CannotError("a copy of it is no other one")
    return made
