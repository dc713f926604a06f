"""``torch.cuda.FloatTensor`` and its kin in a dry run: classes that make tensors, name types, and tell what is one."""

from __future__ import annotations

from typing import Any

import torch

from .meta import META, is_meta
from .patches import Patches

_TYPES = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "ByteTensor": torch.uint8, "CharTensor": torch.int8, "ShortTensor": torch.int16,
    "IntTensor": torch.int32, "LongTensor": torch.int64, "BoolTensor": torch.bool,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_ON_DEVICE = "torch.cuda."


class _OldType(type):
    dtype: torch.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and is_meta(instance) and instance.dtype == cls.dtype

    def __call__(cls, *args: Any) -> torch.Tensor:
        """Make a tensor: of sizes without numbers, of numbers a copy of what is on the host."""
        sizes: Any = args[0] if len(args) == 1 and isinstance(args[0], torch.Size) else args
        if all(isinstance(size, int) for size in sizes):
            return torch.empty(sizes if args else (0,), dtype=cls.dtype, device=META)
        given: Any = args[0]
        return given if isinstance(given, cls) else torch.tensor(given, dtype=cls.dtype, device="cpu").to(META)


def patch_old_types(patches: Patches) -> None:
    """Put the classes in place, and what takes their names."""
    for name, dtype in _TYPES.items():
        patches.put(torch.cuda, name, _OldType(name, (), {"dtype": dtype, "__module__": "torch.cuda"}))
    real_type, real_default = torch.Tensor.type, torch.set_default_tensor_type

    def type_of(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **_: Any) -> Any:
        if dtype is None:
            return f"{_ON_DEVICE}{_NAMES[self.dtype]}" if is_meta(self) and self.dtype in _NAMES else real_type(self)
        if isinstance(dtype, torch.dtype):
            return self.to(dtype)
        name = _name(dtype)
        of = _TYPES.get(name.rpartition(".")[2])
        if of is None or not (is_meta(self) or name.startswith(_ON_DEVICE)):
            return real_type(self, dtype)
        return self.to(META if name.startswith(_ON_DEVICE) else "cpu", of, non_blocking)

    def set_default_tensor_type(kind: Any) -> None:
        if not _name(kind).startswith(_ON_DEVICE):
            real_default(kind)
            return
        torch.set_default_dtype(_TYPES[_name(kind).rpartition(".")[2]])
        torch.set_default_device("cuda")

    patches.put(torch.Tensor, "type", type_of)
    patches.put(torch, "set_default_tensor_type", set_default_tensor_type)


def _name(kind: Any) -> str:
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
