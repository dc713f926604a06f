"""A small timeline and a report about it, made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.diagnosis.report import EngineUse, Finding, Repair, Report, Where
from gapless.model.kinds import OpKind
from gapless.timeline.timeline import Device, Ops, Stream, Timeline, Unknown


def chunk_loop(chunks: int) -> Timeline:
    """Give chunks of 1 ms each way and on the SMs, one after another on one stream, 0.25 ms apart."""
    begins = np.arange(chunks, dtype=np.int64) * 3_250_000
    starts = (begins[:, None] + np.array([0, 1_000_000, 2_000_000])).ravel()
    return Timeline(
        ops=Ops.build(
            kind=[OpKind.H2D, OpKind.KERNEL, OpKind.D2H] * chunks,
            device=[0] * 3 * chunks,
            stream=[0] * 3 * chunks,
            start=starts,
            end=starts + 1_000_000,
            bytes=[50_000_000, -1, 50_000_000] * chunks,
        ),
        devices=(Device(id=0, name="NVIDIA H200"),),
        streams=(Stream(device=0, id=7),),
        source="loop.json.gz",
    )


def report_on(timeline: Timeline, **changes) -> Report:
    """Give a report whose first finding costs the 0.25 ms between chunks."""
    ends = timeline.ops.end[2::3]
    window = timeline.window()
    wall_ms = (window[1] - window[0]) / 1e6
    chunks = len(ends)
    facts = {
        "source": timeline.source,
        "device": "NVIDIA H200",
        "wall_ms": wall_ms,
        "engines": {
            "h2d": EngineUse(busy=chunks / wall_ms, bytes=chunks * 50_000_000, gb_per_s=50.0),
            "sm": EngineUse(busy=chunks / wall_ms, bytes=0, gb_per_s=0.0),
            "d2h": EngineUse(busy=chunks / wall_ms, bytes=chunks * 50_000_000, gb_per_s=50.0),
        },
        "overlapped": 0.0,
        "headline": "Each engine works a third of the time and none while another does.",
        "findings": (
            Finding(
                cause="host-synchronize",
                title="The host waits for every chunk",
                cost_ms=0.25 * (chunks - 1),
                count=chunks,
                evidence=f"After each of {chunks} chunks the host waits in cudaDeviceSynchronize and launches late.",
                advice="Wait for an event where the result is read.",
                where=(
                    Where(file="loop.cu", line=41, function="main", count=chunks - 1),
                    Where(file="loop.cu", line=60, function="main"),
                ),
                repair=Repair(name="no-sync", grade="likely", precondition="nothing on the host reads the result"),
                spans=np.stack((ends[:-1], ends[:-1] + 250_000), axis=1),
            ),
            Finding(
                cause="copy-bound",
                title="The link carries all it can",
                cost_ms=1.0,
                count=1,
                evidence="Both ways run at 50 GB/s.",
                advice="Move fewer bytes.",
                verdict=True,
            ),
        ),
        "notes": ("The first 2 chunks warm up.",),
        "unknown": (
            Unknown(what="events", text="Which events streams wait for.", remedy="Record with events."),
            Unknown(what="pinned", text="Which memory is pinned.", remedy="Record with events."),
        ),
        "timeline": timeline,
        "window": window,
    }
    return Report(**facts | changes)


@pytest.fixture
def short() -> Report:
    """A report on four chunks: nothing to enlarge."""
    return report_on(chunk_loop(4))


@pytest.fixture
def long() -> Report:
    """A report on 200 chunks: a smear, unless enlarged."""
    return report_on(chunk_loop(200))
