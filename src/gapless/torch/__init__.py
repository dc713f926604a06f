"""For PyTorch users: find missing waits between streams (``check``), with and without a GPU."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gapless.model.errors import GaplessError

if TYPE_CHECKING:
    from .checks import Check, check
    from .findings import Checked, Finding

__all__ = ["Check", "Checked", "Finding", "check"]

_HOMES = {"Check": "checks", "Checked": "findings", "Finding": "findings", "check": "checks"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gapless.torch' has no attribute {name!r}")
    try:
        module = import_module(f"gapless.torch.{_HOMES[name]}")
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise GaplessError("gapless.torch needs PyTorch: pip install 'gapless[torch]'") from None
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
