"""Streams and buffers used again: what the causes about too little overlap share."""

from __future__ import annotations

import numpy as np

from gapless.model.kinds import Engine

from .blame import Waits
from .case import Case, ms

# A stream that carries less than this share of the waiting operations is not one that chunks are dealt to.
LEAST_SHARE = 0.05


def chunk_streams(case: Case, waits: Waits) -> list[int]:
    """Give the streams (rows of ``timeline.streams``) to which the waiting work is dealt, most used first."""
    ops = np.concatenate((waits.op, waits.by[waits.by >= 0]))
    streams, counts = np.unique(case.work.ops.stream[ops], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    keep = counts[order] >= LEAST_SHARE * counts.sum()
    return streams[order][keep].tolist()


def phases(case: Case) -> str:
    """Say how long each engine works: "H2D 19.6 ms, kernels 22.9 ms and D2H 19.4 ms"."""
    words = {Engine.H2D: "H2D copies", Engine.SM: "kernels", Engine.D2H: "D2H copies"}
    parts = [f"{word} {ms(case.measures.engines[engine].busy_ns)}" for engine, word in words.items()
             if case.measures.engines[engine].busy_ns]  # fmt: skip
    text = ", ".join(parts[:-1]) + f" and {parts[-1]}" if len(parts) > 1 else parts[0]
    return text[0].upper() + text[1:]
