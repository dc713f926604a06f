"""What an operator of PyTorch does by its schema and its name: what it writes, and whether the host waits for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_TOUCH_NOTHING = frozenset(
    ("set_", "resize_", "is_pinned", "size", "stride", "numel", "dim", "storage_offset", "sym_size", "sym_stride",
     "sym_numel", "sym_storage_offset", "is_same_size", "has_same_storage_numel", "_has_compatible_shallow_copy_type")
)  # fmt: skip
_ALLOCATE = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"))
# The first tensor says how the new one looks, and is not read.
_LIKE = frozenset(("ones_like", "zeros_like", "full_like", "rand_like", "randn_like", "randint_like", "new_ones",
                   "new_zeros", "new_full"))  # fmt: skip
_OURS = frozenset(("aten", "prims", "prim", "quantized", "torchvision", "inductor"))  # operators that use one stream
# Operators behind which the host waits for the stream: always, and by what they are given (``Operator.waits``).
_SYNC = frozenset(("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "unique_dim", "_unique2",
                   "unique_consecutive", "_unique", "bincount", "_linalg_check_errors"))  # fmt: skip
_INDEX = frozenset(("index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"))


@dataclass(slots=True)
class Operator:
    """What is known of an operator."""

    name: str
    writes: frozenset[int | str] = frozenset()  # arguments, by position and by name
    foreign: bool = False
    collective: bool = False
    sync: bool = False  # the host waits for the stream behind it
    copies: bool = False
    composite: bool = False  # is made of other operators, whatever the device
    idle: bool = False  # touches no bytes: views, questions

    @property
    def allocates(self) -> bool:
        """Whether it gives new memory and touches none."""
        return self.name in _ALLOCATE

    @property
    def is_like(self) -> bool:
        """Whether the first tensor only says how the new one looks."""
        return self.name in _LIKE

    def waits(self, args: Sequence[Any], kwargs: dict[str, Any], holds: Callable[[torch.Tensor], bool]) -> bool:
        """Tell whether the host waits for it; *holds* tells whether a tensor lies on the device."""
        if self.sync:
            return True
        if self.name == "repeat_interleave":  # how many there will be is asked of the GPU, unless it is told
            return kwargs.get("output_size") is None
        if self.name not in _INDEX:
            return False
        indices = [index for index in args[1] if index is not None]
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices):  # the GPU is asked how many it chooses
            fills = self.writes and args[2].dim() == 0 and not any(args[3:])  # one number, wherever a mask says so
            return not fills or any(index.dtype is torch.uint8 for index in indices)
        return not all(map(holds, indices))  # they are copied to the GPU, blocking


def operator_of(func: Any) -> Operator:
    """Learn of an operator what its schema says."""
    schema = func._schema
    space, _, name = schema.name.partition("::")
    writes: set[int | str] = set()
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            writes |= {i, argument.name}
    ours = space in _OURS
    return Operator(
        name if ours else schema.name,
        frozenset(writes),
        foreign=not ours and space not in ("c10d", "profiler"),
        collective=space in ("c10d", "_c10d_functional"),
        sync=(name in _SYNC and space == "aten") or schema.name == "torchvision::nms",
        composite=torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"),
        copies=ours and name in ("copy_", "_to_copy", "_copy_from"),
        idle=(ours and name in _TOUCH_NOTHING)
        or (bool(schema.returns) and not writes and all(r.alias_info is not None for r in schema.returns)),
    )
