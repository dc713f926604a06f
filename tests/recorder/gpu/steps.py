"""Copies, kernels, events and waits in two streams, with CuPy. steps.py FILE: recorded from within, into FILE."""

import sys
from contextlib import nullcontext

import cupy as cp
import numpy as np

import gapless

blocking, free = cp.cuda.Stream(), cp.cuda.Stream(non_blocking=True)
done = cp.cuda.Event(disable_timing=True)
x = cp.zeros(1 << 20, cp.float32)
host = np.ones(1 << 20, np.float32)
x *= 3
with free:
    x * 2
cp.cuda.Device().synchronize()


def steps() -> None:
    with blocking:
        x.set(host)  # upload
        x.__iadd__(1)  # kernel
    done.record(blocking)  # record
    free.wait_event(done)  # wait
    with free:
        x.__mul__(2)  # other kernel
    free.synchronize()  # wait for free
    x.get(stream=blocking)  # download
    cp.cuda.Device().synchronize()  # wait for all


within = gapless.record(sys.argv[1], addresses=True) if len(sys.argv) > 1 else nullcontext()
with within:
    steps()
