"""Kernels within ranges of every kind, with PyTorch: as many as a range's name says."""

import sys
from contextlib import suppress

import torch

x = torch.ones(1 << 10, device="cuda")


def kernels(count: int) -> None:
    for _ in range(count):
        x.add_(1)
    torch.cuda.synchronize()


kernels(1)
torch.cuda.nvtx.range_push("pushed 3")
kernels(2)
torch.cuda.nvtx.range_push("inner")
kernels(1)
torch.cuda.nvtx.range_pop()
torch.cuda.nvtx.range_pop()
kernels(1)
number = torch.cuda.nvtx.range_start("started 4")
kernels(2)
other = torch.cuda.nvtx.range_start("inner")
kernels(2)
torch.cuda.nvtx.range_end(number)
kernels(1)
torch.cuda.nvtx.range_end(other)
with suppress(ImportError):
    import nvtx

    with nvtx.annotate("of a domain 5", domain="mine"):
        kernels(2)
        with nvtx.annotate("inner", domain="mine"), nvtx.annotate("another domain's"):
            kernels(3)
    kernels(1)
    begun = nvtx.start_range("begun 6", domain="mine")
    kernels(6)
    nvtx.end_range(begun)
    kernels(1)
    print("nvtx", nvtx.__version__ if hasattr(nvtx, "__version__") else "", file=sys.stderr)
