"""Streams and buffers used again: what the causes about too little overlap share."""

from __future__ import annotations

from collections import Counter

import numpy as np

from gapless.model.kinds import Engine

from .case import Case
from .words import ms

# A stream that carries less than this share of the copies, and of the kernels, is not one that chunks are dealt to.
LEAST_SHARE = 0.05


def chunk_streams(case: Case) -> list[int]:
    """Give the streams (rows of ``timeline.streams``) that carry the copies and the kernels, most used first."""
    work = case.work
    used: Counter[int] = Counter()
    for engine in (Engine.H2D, Engine.SM, Engine.D2H):
        streams, counts = np.unique(work.ops.stream[work.engine == engine], return_counts=True)
        dealt = counts >= LEAST_SHARE * counts.sum()
        used.update(dict(zip(streams[dealt].tolist(), counts[dealt].tolist(), strict=True)))
    return [stream for stream, _ in used.most_common()]


def phases(case: Case) -> str:
    """Say how long each engine works: "H2D copies 19.6 ms, kernels 22.9 ms and D2H copies 19.4 ms"."""
    words = {Engine.H2D: "H2D copies", Engine.SM: "kernels", Engine.D2H: "D2H copies"}
    used = {word: case.measures.engines[engine] for engine, word in words.items()}
    parts = [f"{word} {ms(use.busy_ns)}" for word, use in used.items() if use.ops]
    text = ", ".join(parts[:-1]) + f" and {parts[-1]}" if len(parts) > 1 else parts[0]
    return text[0].upper() + text[1:]
