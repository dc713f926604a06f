"""Repairs: they keep the operations and the orderings that data need, and say what they are when asked wrongly."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.diagnosis.rates import pinned_rates
from gapless.diagnosis.repairs import REPAIRS, parse
from gapless.diagnosis.script import NEW_STREAM, Script
from gapless.diagnosis.streams import infer_kinds
from gapless.diagnosis.whatif import WhatIf
from gapless.diagnosis.work import gather
from gapless.model.errors import GaplessError
from gapless.model.kinds import CallKind, OpKind, StreamKind
from gapless.timeline.timeline import Timeline

US, MIB = 1_000, 1 << 20


def what_if(timeline: Timeline) -> WhatIf:
    start, end = timeline.window()
    work = gather(infer_kinds(gather(timeline, 0, start, end)), 0, start, end)
    return WhatIf(work, pinned_rates(work, timeline.devices[0]))


def operations(script: Script) -> Counter[int]:
    return Counter(act.op for act in script.acts if act.works)


def looped(made, **options) -> WhatIf:
    gpu = made.Gpu()
    made.loop(gpu, **options)
    return what_if(gpu.timeline())


REPAIRED = st.lists(
    st.sampled_from(["pin", "off-default-stream", "streams=4", "no-sync", "prefetch=1", "pool", "graph", "warm-up",
                     "connections=8", "priority"]),
    min_size=1, max_size=4, unique=True,
)  # fmt: skip


@given(repairs=REPAIRED, streams=st.integers(1, 4), pinned=st.booleans(), waits=st.booleans())
@settings(max_examples=40, deadline=None)
def test_repairs_keep_the_operations(made, repairs, streams, pinned, waits):
    each = (lambda host, stream, chunk: host.sync(stream)) if waits else None
    found = looped(made, streams=streams, chunks=8, pinned=pinned, each=each)
    outcome = found.outcome(repairs)
    assert operations(outcome.script) == operations(found.script)
    prediction = found.predict(repairs)
    assert 0 < prediction.low <= prediction.speedup <= prediction.high
    assert prediction.wall_ms > 0


def test_one_stream_stays_as_it_is(made):
    found = looped(made, streams=1)
    assert found.predict(["streams=1"]).speedup == pytest.approx(1, abs=0.01)


def test_streams_overlap_a_serial_loop(made):
    assert found_gain(made, "streams=4", streams=1) > 2


def found_gain(made, repair: str, **options) -> float:
    return looped(made, **options).predict([repair]).speedup


def test_pin_gains_where_memory_is_pageable_and_nothing_elsewhere(made):
    assert found_gain(made, "pin", streams=1, pinned=False) > 2
    found = looped(made, streams=1)
    assert not found.outcome(["pin"]).changed
    prediction = found.predict(["pin"])
    assert (prediction.speedup, prediction.low, prediction.high) == (1, 1, 1)


def handed_over(made) -> WhatIf:
    """Uploads in one stream, kernels in a second, downloads in a third; the host waits between them."""
    gpu = made.Gpu()
    host = gpu.host()
    up, middle, down = (gpu.stream(StreamKind.NON_BLOCKING) for _ in range(3))
    for _ in range(12):
        host.h2d(up, 4 * MIB)
        host.sync(up)
        host.kernel(middle, 100 * US)
        host.sync(middle)
        host.d2h(down, 4 * MIB)
        host.sync(down)
    return what_if(gpu.timeline())


def test_a_wait_that_handed_data_over_becomes_an_event(made):
    found = handed_over(made)
    outcome = found.outcome(["no-sync"])
    kinds = [act.op for act in outcome.script.acts]
    assert kinds.count(OpKind.WAIT) == 24  # upload to kernel and kernel to download; buffers are no data
    run = outcome.run
    times = {}
    for act, row in zip((act for act in outcome.script.acts if act.works), run.acts, strict=True):
        times.setdefault(act.op, []).append((int(run.schedule.start[row]), int(run.schedule.end[row])))
    for upload, kernel, download in zip(times[OpKind.H2D], times[OpKind.KERNEL], times[OpKind.D2H], strict=True):
        assert upload[1] <= kernel[0]
        assert kernel[1] <= download[0]
    assert found.predict(["no-sync"]).speedup > 1.5


def test_a_fence_that_passed_data_becomes_an_event(made):
    """The copies back are on the default stream: without its fence they still wait for their kernels."""
    gpu = made.Gpu()
    host = gpu.host()
    rows = [gpu.stream() for _ in range(4)]
    for i in range(24):
        host.h2d(rows[i % 4], 4 * MIB)
        host.kernel(rows[i % 4], 100 * US)
        host.d2h(0, 4 * MIB)
    host.sync()
    found = what_if(gpu.timeline())
    outcome = found.outcome(["off-default-stream"])
    assert sum(act.op == OpKind.WAIT for act in outcome.script.acts) == 24
    assert found.predict(["off-default-stream"]).speedup > 1.5
    ends, starts = [], []
    for act, row in zip((act for act in outcome.script.acts if act.works), outcome.run.acts, strict=True):
        if act.op == OpKind.KERNEL:
            ends.append(int(outcome.run.schedule.end[row]))
        elif act.op == OpKind.D2H:
            starts.append(int(outcome.run.schedule.start[row]))
    assert all(end <= start for end, start in zip(ends, starts, strict=True))


def test_events_follow_their_chunk_to_its_new_stream(made):
    gpu = made.Gpu()
    host = gpu.host()
    copies, kernels = gpu.stream(StreamKind.NON_BLOCKING), gpu.stream(StreamKind.NON_BLOCKING)
    for i in range(8):
        host.h2d(copies, 4 * MIB)
        host.record(f"e{i}", copies)
        host.wait(f"e{i}", kernels)
        host.kernel(kernels, 400 * US)
        host.d2h(kernels, MIB)
    host.sync()
    outcome = what_if(gpu.timeline()).outcome(["streams=4"])
    acts = outcome.script.acts
    for i, act in enumerate(acts):
        if act.op == OpKind.WAIT:
            behind = next(later for later in acts[i:] if later.works)
            assert act.stream == behind.stream >= NEW_STREAM


def test_who_waited_for_a_chunk_waits_for_all_its_parts(made):
    gpu = made.Gpu()
    host = gpu.host()
    stream = gpu.stream(StreamKind.NON_BLOCKING)
    for _ in range(2):
        host.h2d(stream, 64 * MIB)
        host.kernel(stream, 2000 * US)
        host.d2h(stream, 64 * MIB)
        host.sync(stream)
        host.work(3000 * US)
    found = what_if(gpu.timeline())
    outcome = found.outcome(["chunks=4"])
    assert [act.call for act in outcome.script.acts if act.synchronises][:2] == [CallKind.SYNC_DEVICE] * 2
    assert operations(outcome.script)[OpKind.KERNEL] == 8
    assert 1.2 < found.predict(["chunks=4"]).speedup < 3


@pytest.mark.parametrize("text", ["pine", "stream=4", "nosync", ""])
def test_an_unknown_repair_is_refused(text):
    with pytest.raises(GaplessError, match="There is no repair"):
        parse(text)


@pytest.mark.parametrize("repairs", [["streams=2", "streams=4"], ["pin", "pin"]])
def test_a_repair_is_asked_for_once(made, repairs):
    gpu = made.Gpu()
    made.loop(gpu)
    with pytest.raises(GaplessError, match=f"{repairs[0]} and as {repairs[1]}"):
        gpu.explain(apply=repairs)


def test_a_slip_is_understood():
    with pytest.raises(GaplessError, match="Did you mean streams"):
        parse("stream=4")


@pytest.mark.parametrize("text", ["streams=0", "streams=x", "streams=", "prefetch=9999", "streams=-1", "pin=2"])
def test_a_value_that_cannot_be_is_refused(text):
    with pytest.raises(GaplessError):
        parse(text)


def test_every_repair_says_when_it_is_safe():
    for slug, repair in REPAIRS.items():
        assert "afe" in (repair.__doc__ or ""), slug
