"""What a kernel may be.

A **function** of device arrays that gives device arrays; it must treat rows alike, since it gets a part of them at a
time. On a GPU its arrays are CuPy's, PyTorch's or Numba's, and these libraries' current stream is the slot's while it
runs; on the host they are NumPy's. A **raw kernel** (CUDA C++ source, a cuda.core kernel, a Numba or Triton kernel)
gets ``(inputs..., outputs..., n)``: n is the number of elements of the first input, and a thread does one of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gapless.model.errors import GaplessError

from .devices import DeviceArray, Job


@dataclass(frozen=True, slots=True)
class CudaSource:
    """CUDA C++ source and the name of a kernel in it; see ``cuda_kernel``."""

    source: str
    name: str


def cuda_kernel(source: str, name: str) -> CudaSource:
    r"""Make a kernel of CUDA C++ source, for a Pipeline; NVRTC compiles it when it is first needed.

    ``name`` is the kernel's, with its arguments where it is a template (``"scale<float>"``).
    The kernel is called with ``(inputs..., outputs..., n)``, one thread an element of the first input::

        double_it = gapless.cuda_kernel(
            "__global__ void f(const float* x, float* y, size_t n)"
            "{ size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }", "f")
    """
    if not re.search(rf"\b{re.escape(name.partition('<')[0].strip())}\s*\(", source):
        raise GaplessError(f"There is no kernel {name!r} in this CUDA source.")
    return CudaSource(source, name)


OutputSpec = tuple[tuple[int, ...] | None, np.dtype[Any] | None]


def output_specs(outputs: Any) -> tuple[OutputSpec, ...] | None:
    """Read the ``outputs`` of a raw kernel: a number, or for each its dtype or (shape of a row, dtype).

    None stands for "as the first input". Raises GaplessError for anything else.
    """
    if outputs is None:
        return None
    if isinstance(outputs, int):
        return ((None, None),) * outputs
    specs: list[OutputSpec] = []
    for one in outputs if isinstance(outputs, list) else [outputs]:
        try:
            shape, dtype = one if isinstance(one, tuple) else (None, one)
            specs.append((None if shape is None else tuple(shape), None if dtype is None else np.dtype(dtype)))
        except (TypeError, ValueError):
            raise GaplessError(
                f"outputs= has {one!r}. Write a dtype, (shape of a row, dtype), or a list with one of these an output."
            ) from None
    return tuple(specs)


def outputs_of(job: Job, specs: tuple[OutputSpec, ...] | None) -> tuple[DeviceArray, ...]:
    """Allocate the outputs of a raw kernel in the slot; by default one, like the first input."""
    like = job.inputs[0] if job.inputs else None
    if specs is None and like is not None:
        return (job.allocate(0, (job.rows, *like.shape[1:]), like.dtype),)
    made: list[DeviceArray] = []
    for number, (shape, dtype) in enumerate(((None, None),) if specs is None else specs):
        if like is None and (shape is None or dtype is None):
            raise GaplessError("A raw kernel without inputs needs outputs=[(shape of a row, dtype), ...].")
        row = shape if shape is not None else () if like is None else tuple(like.shape[1:])
        kind = like.dtype if dtype is None and like is not None else dtype
        made.append(job.allocate(number, (job.rows, *row), np.dtype(kind)))
    return tuple(made)


def elements_of(job: Job, outputs: tuple[DeviceArray, ...]) -> int:
    """Give n: the elements of the first input, or of the first output."""
    for array in (*job.inputs, *outputs):
        return prod(array.shape)
    return job.rows


def name_of(kernel: Any) -> str:
    """Give a name for messages and reports."""
    return str(getattr(kernel, "name", None) or getattr(kernel, "__name__", None) or type(kernel).__name__)
