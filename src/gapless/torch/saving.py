"""``torch.save`` and ``torch.load`` in a dry run: nothing goes into a file, and what was saved is given back.

What is saved into memory (``io.BytesIO``, a pickle) is written there, if it lies on the CPU; else a mark that stands
for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map_only  # pyright: ignore[reportMissingImports]

from .batches import tensors_in
from .dry import DryDevice
from .meta import META, is_meta
from .patches import Patches
from .pretend import where

_MARK, _DIGITS = b"saved in a dry run: ", 8
_STORAGES = (torch.UntypedStorage, torch.TypedStorage)


def saved_tensors(obj: Any) -> Iterator[torch.Tensor]:
    """Give the dense tensors that are written where an object is saved; a storage, which a pickle saves, as one."""
    if isinstance(obj, _STORAGES):
        storage = obj if isinstance(obj, torch.UntypedStorage) else obj._untyped_storage
        yield torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)  # pyright: ignore[reportArgumentType]
    else:
        yield from tensors_in(obj)


def patch_saving(patches: Patches, device: DryDevice) -> None:
    """Put ``torch.save`` and ``torch.load`` of a dry run in place."""
    real_save, real_load = torch.save, torch.load
    saved: dict[str, Any] = {}  # by the name of the file
    marked: list[Any] = []  # by the number in the mark

    def save(obj: Any, f: Any, *args: Any, **rest: Any) -> None:
        on_device = [tensor for tensor in saved_tensors(obj) if is_meta(tensor)]
        for tensor in on_device:
            if device.gpu.watch is not None:
                device.gpu.watch.copied_to_host(tensor)
        if isinstance(f, str | os.PathLike) or hasattr(f, "name"):
            device.log.note("torch.save writes nothing in a dry run", where())
            saved[_name(f)] = obj
        elif on_device:
            f.write(_MARK + b"%0*d" % (_DIGITS, len(marked)))
            marked.append(obj)
        else:
            real_save(obj, f, *args, **rest)

    def load(f: Any, map_location: Any = None, *args: Any, **rest: Any) -> Any:
        if _name(f) in saved:
            return _placed(saved[_name(f)], map_location, device)
        if (number := _number_in(f)) is not None:
            return _placed(marked[number], map_location, device)
        return _placed(real_load(f, "cpu", *args, **rest), map_location, device)

    patches.put(torch, "save", save)
    patches.put(torch, "load", load)


def _name(f: Any) -> str:
    return os.fspath(f) if isinstance(f, str | os.PathLike) else str(getattr(f, "name", f))


def _number_in(f: Any) -> int | None:
    """Give the number of the mark that a file in memory stands before, and go on behind it; None for no mark."""
    if not hasattr(f, "read") or not hasattr(f, "seek"):
        return None
    at = f.tell()
    found = f.read(len(_MARK) + _DIGITS)
    if not found.startswith(_MARK):
        f.seek(at)
        return None
    return int(found[len(_MARK) :])


def _placed(obj: Any, map_location: Any, device: DryDevice) -> Any:
    """Give what is loaded where ``map_location`` wants it; where that is a function or a dict, where it was."""
    if not isinstance(map_location, str | torch.device):
        return obj
    there = torch.device(map_location).type

    def place(tensor: torch.Tensor) -> torch.Tensor:
        if there == "cuda":
            return tensor.to(META)
        if not is_meta(tensor):
            return tensor
        return device.make_up(torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu"))

    return tree_map_only(torch.Tensor, place, obj)
