"""The causes: one file each. A new cause is a new file here and one line in ``_ORDER``.

Each file's text is its page (``gapless explain --cause SLUG``). It offers ``claims(case)``, the waits that it answers
for, and ``finding(case, waits)``, what it says of those that no earlier cause has claimed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol, cast

from ..case import Bools, Case
from ..report import Finding
from ..waits import Waits


class Cause(Protocol):
    """What a file in this folder offers."""

    __doc__: str | None

    def claims(self, case: Case) -> Bools | None:
        """Tell for each wait whether this cause answers for it; None where it does not judge by waits."""
        ...

    def finding(self, case: Case, waits: Waits) -> Finding | None:
        """Say what was found in the claimed waits; None where it is not worth a word."""
        ...


# The order in which waits are claimed: the more particular cause first.
_ORDER = (
    "default-stream-barrier",
    "small-copies",
    "pageable-copy",
    "host-synchronize",
    "synchronous-copy",
    "allocation-in-loop",
    "first-use",
    "single-stream",
    "too-few-buffers",
    "launch-bound",
    "host-bound",
    "hardware-queue",
    "priority-inversion",
    "several-processes",
    "several-devices",
    "copy-bound",
    "kernel-bound",
)

CAUSES: Mapping[str, Cause] = {
    slug: cast(Cause, importlib.import_module(f".{slug.replace('-', '_')}", __name__)) for slug in _ORDER
}
