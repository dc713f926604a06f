"""The meta device in the place of the pretended GPU: tensors there have shapes and no values."""

from __future__ import annotations

import threading
from typing import Any

import torch

from gapless.model.errors import GaplessError

from .pretend import where

META = torch.device("meta")
_DENSE, _SPARSE = torch._C.DispatchKey.Meta, torch._C.DispatchKey.SparseMeta
# What torch.func wraps tensors in says on which device they are, and has no such key.
_functorch = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]


class NotFollowedError(GaplessError):
    """The program does something that a dry run cannot follow."""


def is_meta(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is one of the meta device, whatever it says."""
    keys = torch._C._dispatch_keys(tensor)  # no property: those are replaced
    if keys.has(_DENSE) or keys.has(_SPARSE):
        return True
    return _functorch.is_functorch_wrapped_tensor(tensor) and is_meta(_functorch.get_unwrapped(tensor))


class _Inside(threading.local):
    """Whether this thread is inside PyTorch's own rules for shapes: they must see the meta device as it is."""

    depth = 0


inside = _Inside()


def pretends(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor says that it is on the GPU."""
    return not inside.depth and is_meta(tensor)


def as_meta(value: Any) -> Any:
    """Give the meta device in the place of the GPU."""
    if type(value) is str:
        if value.startswith("cuda") and value[4:5] in ("", ":"):
            return _only_one(value)
    elif type(value) is torch.device and value.type == "cuda":
        return _only_one(str(value))
    return value


def _only_one(name: str) -> torch.device:
    if name not in ("cuda", "cuda:0"):
        raise NotFollowedError(f"A dry run pretends one GPU; the program asks for {name} at {where()}.")
    return META


def any_meta(values: Any) -> bool:
    """Tell whether one of these is a tensor of the meta device, or that device."""
    for value in values:
        if isinstance(value, list | tuple):
            if any_meta(value):
                return True
        elif isinstance(value, torch.Tensor):
            if is_meta(value):
                return True
        elif type(value) is torch.device and value.type == "meta":
            return True
    return False


def to_meta(value: Any) -> Any:
    """Give tensors of the meta device for those of the CPU: a number that an operation takes from the host."""
    if isinstance(value, torch.Tensor):
        return (
            value
            if is_meta(value)
            else torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=META)
        )
    if isinstance(value, list | tuple):
        some = [to_meta(item) for item in value]
        return some if isinstance(value, list) else tuple(some)
    return value


def _numbers(tensor: torch.Tensor, *size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.int64, device=META)


def _nonzero(tensor: torch.Tensor) -> torch.Tensor:
    return _numbers(tensor, tensor.numel(), max(1, tensor.dim()) if tensor.dim() else 0)


def _masked_select(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    size = torch.broadcast_shapes(tensor.shape, mask.shape)
    return torch.empty(size.numel(), dtype=tensor.dtype, device=META)


def _unique(tensor: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, ...]:
    values = torch.empty(tensor.numel(), dtype=tensor.dtype, device=META)
    return values, _numbers(tensor, *tensor.shape), _numbers(tensor, tensor.numel())


def _unique_along(tensor: torch.Tensor, dim: int | None = None) -> tuple[torch.Tensor, ...]:
    if dim is None:
        return _unique(tensor)
    count = tensor.size(dim)
    return torch.empty_like(tensor), _numbers(tensor, count), _numbers(tensor, count)


def _unique_dim(tensor: torch.Tensor, dim: int, *_: Any) -> tuple[torch.Tensor, ...]:
    return _unique_along(tensor, dim)


def _unique_consecutive(tensor: torch.Tensor, inverse: bool = False, counts: bool = False, dim: int | None = None,
                        **_: Any) -> tuple[torch.Tensor, ...]:  # fmt: skip
    return _unique_along(tensor, dim)


def _bincount(tensor: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype == torch.float32 else torch.float64
    return torch.empty(max(minlength, 1), dtype=dtype, device=META)


def _repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    return _numbers(repeats, repeats.numel() if output_size is None else output_size)


def _nms(boxes: torch.Tensor, *_: Any) -> torch.Tensor:
    return _numbers(boxes, boxes.size(0))


def _product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.empty(one.size(0), *other.shape[1:], dtype=one.dtype, device=META)


def _product_added(start: torch.Tensor, one: torch.Tensor, other: torch.Tensor, **_: Any) -> torch.Tensor:
    return _product(one, other)


# Products of a sparse and a dense tensor, which are dense: the meta device has no rule for them.
PRODUCTS: dict[str, Any] = {
    "aten::mm": _product,
    "aten::mv": _product,
    "aten::addmm": _product_added,
    "aten::_sparse_addmm": _product_added,
}
SIZED: dict[str, Any] = {
    "aten::nonzero": _nonzero,
    "aten::masked_select": _masked_select,
    "aten::_unique2": _unique,
    "aten::unique_dim": _unique_dim,
    "aten::unique_consecutive": _unique_consecutive,
    "aten::bincount": _bincount,
    "aten::repeat_interleave": _repeat_interleave,
    "torchvision::nms": _nms,
}
