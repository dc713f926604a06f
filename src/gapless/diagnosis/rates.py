"""What a copy would take from pinned memory: the yardstick for copies of pageable memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.model.kinds import MemoryKind, OpKind
from gapless.timeline.timeline import Device

from .work import Ints, Work

COPY_LATENCY = 1_500  # ns that the smallest copy takes on its engine (H200: 0.7 to 1.6 us)
LARGE = 1 << 20  # bytes from which a copy shows the rate of the link
SAMPLES = 3

# Rates of pinned copies in 10^9 bytes a second by the link that each GPU is built with. The H200's is measured; the
# others are what PCIe 3, 4 and 5 x16 and NVLink-C2C reach in practice. Used only where the timeline has no pinned copy.
_PCIE3, _PCIE4, _PCIE5, _C2C = 12.0, 25.0, 55.0, 350.0
_LINKS: tuple[tuple[str, float], ...] = (
    ("GH200", _C2C), ("GB200", _C2C), ("GB300", _C2C),
    ("H100", _PCIE5), ("H200", _PCIE5), ("H800", _PCIE5), ("H20", _PCIE5), ("B100", _PCIE5), ("B200", _PCIE5),
    ("B300", _PCIE5), ("RTX PRO 6000", _PCIE5), ("RTX 50", _PCIE5), ("MI300", _PCIE5), ("MI325", _PCIE5),
    ("A100", _PCIE4), ("A800", _PCIE4), ("A40", _PCIE4), ("A30", _PCIE4), ("A10", _PCIE4), ("L40", _PCIE4),
    ("L4", _PCIE4), ("RTX 40", _PCIE4), ("RTX 30", _PCIE4), ("MI250", _PCIE4), ("MI210", _PCIE4), ("MI100", _PCIE4),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedRate:
    """The rate of a pinned copy and how it is known."""

    gb_per_s: float
    measured: bool  # in this very timeline

    def __str__(self) -> str:
        how = "in this timeline" if self.measured else "assumed for this GPU's link"
        return f"{self.gb_per_s:.3g} GB/s, {how}"


def pinned_rates(work: Work, device: Device) -> dict[OpKind, PinnedRate]:
    """Give the pinned rate of each direction: the timeline's own large pinned copies, else the GPU's link.

    A direction without samples takes the other one's: the links are symmetric.
    """
    ops = work.ops
    found: dict[OpKind, PinnedRate] = {}
    for kind, host in ((OpKind.H2D, ops.src), (OpKind.D2H, ops.dst)):
        rows = (ops.kind == kind) & (host == MemoryKind.PINNED) & (ops.bytes >= LARGE) & (ops.end > ops.start)
        if np.count_nonzero(rows) >= SAMPLES:
            # The quick end: a copy that shares the link with one the other way is slower than the link.
            rate = float(np.quantile(ops.bytes[rows] / (ops.end - ops.start)[rows], 0.9))
            found[kind] = PinnedRate(gb_per_s=rate, measured=True)
    link = PinnedRate(gb_per_s=next((rate for name, rate in _LINKS if name in device.name), _PCIE3), measured=False)
    default = next(iter(found.values()), link)
    return {kind: found.get(kind, default) for kind in (OpKind.H2D, OpKind.D2H)}


def needed(work: Work, rates: dict[OpKind, PinnedRate]) -> Ints:
    """Give the ns that each operation would take at its best: a copy of pageable memory, were it pinned."""
    ops = work.ops
    durations = ops.end - ops.start
    best = durations.copy()
    pageable = work.pageable() & (ops.bytes >= 0)
    for kind, rate in rates.items():
        rows = pageable & (ops.kind == kind)
        best[rows] = np.minimum(durations[rows], ops.bytes[rows] / rate.gb_per_s + COPY_LATENCY)
    return best
