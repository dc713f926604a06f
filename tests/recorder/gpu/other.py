"""Another tool asks for CUPTI's records and gets some, then the program goes on; other.py ALONE: it does not ask."""

import sys

import cupy as cp
from cupti import cupti

x = cp.zeros(1 << 10)
kept: list[object] = []


def kernels(count: int) -> None:
    for _ in range(count):
        x.__iadd__(1)
    cp.cuda.Device().synchronize()


kernels(5)
if len(sys.argv) == 1:
    cupti.activity_register_callbacks(lambda: (8 << 20, 0), kept.extend)
    cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)
kernels(10)
if len(sys.argv) == 1:
    cupti.activity_flush_all(1)
    print("it got", len(kept))
kernels(5)
