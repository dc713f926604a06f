"""For PyTorch users: batches on the GPU before they are needed (``prefetch``), results back without stopping it
(``to_host``), and missing waits between streams found (``check``), with and without a GPU.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gapless.model.errors import GaplessError
from gapless.model.extras import install_line

if TYPE_CHECKING:
    from .checks import Check, check
    from .findings import Checked, Finding
    from .prefetching import Prefetcher, prefetch
    from .results import HostResults, to_host

__all__ = ["Check", "Checked", "Finding", "HostResults", "Prefetcher", "check", "prefetch", "to_host"]

_HOMES = {
    "Check": "checks", "Checked": "findings", "Finding": "findings", "HostResults": "results",
    "Prefetcher": "prefetching", "check": "checks", "prefetch": "prefetching", "to_host": "results",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gapless.torch' has no attribute {name!r}")
    try:
        module = import_module(f"gapless.torch.{_HOMES[name]}")
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise GaplessError(f"gapless.torch needs PyTorch: {install_line('torch')}") from None
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
