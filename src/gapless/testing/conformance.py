"""What every device of a pipeline must do; run it on one of your own.

    import pytest
    from gapless.testing.conformance import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_device(check):
        check(MyDevice())

Each check takes a device and raises AssertionError that says what the device does wrong. None of them sleeps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gapless.model.kinds import OpKind
from gapless.runtime.devices import Copies, Device
from gapless.runtime.pipeline import Pipeline


def double(x: Any) -> Any:
    """The kernel of most checks; any library's arrays can do it."""
    return x + x + 1


def _threads() -> int:
    """Count threads; one that has nothing to do any more may still be on its way out."""
    for thread in threading.enumerate():
        if thread.name == "gapless-stream":
            thread.join(20)
    return threading.active_count()


def _data(rows: int, columns: int = 3) -> np.ndarray:
    return np.random.default_rng(rows).integers(-1000, 1000, (rows, columns)).astype(np.float32)


def a_new_event_is_done(device: Device) -> None:
    """An event that was never recorded is an empty set (R5.3)."""
    event = device.event()
    assert event.done(), "an event never recorded must be done"
    event.wait()


def a_copy_there_and_back_keeps_every_byte(device: Device) -> None:
    """Bytes that go to the device and come back are the same, at any offset."""
    stream, event = device.stream(), device.event()
    memory, there, back = device.memory(4096), device.pinned(1000), device.pinned(1000)
    there[:] = np.arange(1000) % 251
    back[:] = 0
    array = memory.array(512, (1000,), np.dtype(np.uint8))
    stream.submit(OpKind.H2D, lambda: stream.h2d(array, there), device.event(), 1000)
    stream.submit(OpKind.D2H, lambda: stream.d2h(back, array), event, 1000)
    event.wait()
    assert event.done(), "after wait() an event must be done"
    assert (back == there).all(), "a copy to the device and back changed the bytes"


def a_stream_works_in_order(device: Device) -> None:
    """Of many copies to one place in one stream, the last one counts (R1.3)."""
    stream, event = device.stream(), device.event()
    memory, back = device.memory(4), device.pinned(4)
    array = memory.array(0, (4,), np.dtype(np.uint8))
    sources = [device.pinned(4) for _ in range(50)]
    for number, source in enumerate(sources):
        source[:] = number
        stream.submit(OpKind.H2D, lambda source=source: stream.h2d(array, source), device.event(), 4)
    stream.submit(OpKind.D2H, lambda: stream.d2h(back, array), event, 4)
    event.wait()
    assert (back == 49).all(), f"50 copies of one stream ended with number {back[0]}, not with the last"


def times_do_not_run_backwards(device: Device) -> None:
    """Events of one stream have times in their order, after the work was asked for (within the clock's tie: 1 ms)."""
    device.align_clock()
    stream, events = device.stream(), [device.event() for _ in range(5)]
    memory, pinned = device.memory(1 << 16), device.pinned(1 << 16)
    array = memory.array(0, (1 << 16,), np.dtype(np.uint8))
    asked = device.now_ns()
    for event in events:
        stream.submit(OpKind.H2D, lambda: stream.h2d(array, pinned), event, 1 << 16)
    events[-1].wait()
    times = [event.time_ns() for event in events]
    assert times == sorted(times), f"events of one stream have times out of order: {times}"
    assert times[0] > asked - 1_000_000, "work was over before it was asked for"


def pinned_memory_is_known(device: Device) -> None:
    """A device knows the pinned memory it gave, and views of it."""
    block = device.pinned(4096)
    assert device.is_pinned(block), "is_pinned must know what pinned() gave"
    assert device.is_pinned(block[100:200]), "is_pinned must know a part of what pinned() gave"


def a_crew_copies_and_gives_every_token_back(device: Device) -> None:
    """What lanes are asked is done, also many things on one lane, with what is packed in order."""
    crew, pinned = device.crew(3, 3), device.pinned(300)
    try:
        for lane in range(3):
            parts = [np.full(60, 3 * lane, np.uint8), np.full(40, 3 * lane + 1, np.uint8)]
            crew.submit(lane, lane, Copies([(pinned[lane * 100 : lane * 100 + 100], parts)]))
        done = [crew.next() for _ in range(3)]
    finally:
        crew.close()
    assert sorted(one.token for one in done) == [0, 1, 2], "a token must come back once for every copy"
    assert all(one.error is None and one.span is not None and one.span[1] >= one.span[0] for one in done)
    assert pinned.tolist() == [3 * i + j for i in range(3) for j, n in ((0, 60), (1, 40)) for _ in range(n)]


def a_crew_waits_for_the_event(device: Device) -> None:
    """Results are copied out when the work before their event is over, and not before."""
    crew, stream, event = device.crew(1, 1), device.stream(), device.event(spins=False, timed=False)
    memory, pinned, back = device.memory(100), device.pinned(100), device.pinned(100)
    array = memory.array(0, (100,), np.dtype(np.uint8))
    result = np.zeros(100, np.uint8)
    try:
        crew.submit(0, "in", Copies([(pinned, np.full(100, 7, np.uint8))]))
        first = crew.next()
        stream.submit(OpKind.H2D, lambda: stream.h2d(array, pinned), None, 100)
        stream.submit(OpKind.D2H, lambda: stream.d2h(back, array), event, 100)
        crew.submit(0, "out", Copies([(result, back)], after=event))
        second = crew.next()
    finally:
        crew.close()
    assert (first.token, second.token) == ("in", "out"), "a token must come back once for every copy"
    assert (result == 7).all(), "a crew must wait for the event before it copies"


def a_crew_copies_any_memory(device: Device) -> None:
    """Strided, reversed, transposed and empty arrays are copied like whole ones."""
    whole = np.arange(24_000, dtype=np.int32).reshape(40, 30, 20)
    parts = [whole[::2], whole[:, ::-1], whole.transpose(2, 0, 1), whole[:, :7, 3:4], whole[:0], whole[..., 5]]
    crew = device.crew(2, 2)
    targets = [device.pinned(part.nbytes).view(np.int32).reshape(part.shape) for part in parts]
    backs = [np.zeros_like(whole) for _ in parts]
    ways = ((slice(None, None, 2),), (slice(None), slice(None, None, -1)), (), (), (slice(0, 0),), (..., 5))
    try:
        for number, (target, part) in enumerate(zip(targets, parts, strict=True)):
            crew.submit(number % 2, number, Copies([(target, part)]))
        done = [crew.next() for _ in parts]
        for number, (target, back, way) in enumerate(zip(targets, backs, ways, strict=True)):
            if back[way].shape == target.shape:
                crew.submit(number % 2, number, Copies([(back[way], target)]))
                done.append(crew.next())
    finally:
        crew.close()
    assert all(one.error is None for one in done)
    for number, (target, part, back, way) in enumerate(zip(targets, parts, backs, ways, strict=True)):
        assert (target == part).all(), f"array {number} was not copied in"
        assert back[way].shape != target.shape or (back[way] == part).all(), f"array {number} was not copied out"


def a_crew_tells_what_went_wrong(device: Device) -> None:
    """A copy that fails comes back with its error; the lane goes on."""
    crew, pinned = device.crew(1, 1), device.pinned(8)
    try:
        crew.submit(0, "bad", Copies([(pinned, np.zeros(3, np.uint8))]))
        crew.submit(0, "good", Copies([(pinned, np.ones(8, np.uint8))]))
        first, second = crew.next(), crew.next()
    finally:
        crew.close()
    assert (first.token, second.token) == ("bad", "good"), "copies of one lane must be done in order"
    assert first.error is not None, "a copy that fails must give its error"
    assert second.error is None, "a lane must go on after a failed copy"
    assert (pinned == 1).all()


def a_closed_crew_leaves_no_thread(device: Device) -> None:
    """After close there are no more threads than before."""
    before = _threads()
    crew, pinned = device.crew(4, 4), device.pinned(64)
    for lane in range(4):
        crew.submit(lane, lane, Copies([(pinned[lane * 16 : lane * 16 + 16], np.zeros(16, np.uint8))]))
    crew.close()
    assert _threads() <= before, "a crew's threads must be gone after close"


def a_pipeline_gives_the_right_results(device: Device) -> None:
    """Any number of rows, also none and one, in chunks that do not divide them."""
    for rows in (0, 1, 7, 1000, 4099):
        x = _data(rows)
        with Pipeline(double, device=device, chunk=6000) as pipe:
            assert np.array_equal(pipe(x), x + x + 1), f"wrong results for {rows} rows"


def results_come_in_order_and_stay(device: Device) -> None:
    """Results of a stream are those of its batches, in order, of changing sizes; kept ones do not change."""
    batches = [_data(rows) for rows in (5, 900, 1, 300, 300, 300, 7, 2000, 300, 300, 1, 64)]
    with Pipeline(double, device=device, slots=3) as pipe:
        kept = list(pipe.stream(iter(batches)))
    assert len(kept) == len(batches)
    for number, (y, x) in enumerate(zip(kept, batches, strict=True)):
        assert np.array_equal(y, x + x + 1), f"result {number} of a stream is wrong, or changed after it was given"


def the_source_is_asked_only_when_a_slot_is_free(device: Device) -> None:
    """The number of slots is the bound: no more batches are taken than slots beyond the results given."""
    taken = 0

    def source() -> Iterator[np.ndarray]:
        nonlocal taken
        for _ in range(20):
            taken += 1
            yield _data(10)

    with Pipeline(double, device=device, slots=3) as pipe:
        for given, _ in enumerate(pipe.stream(source()), 1):
            assert taken <= given + 3, f"{taken} batches were taken when {given} results were given, with 3 slots"


def several_inputs_and_outputs(device: Device) -> None:
    """Inputs of different types go in together; results come out together."""
    a, b = _data(500), _data(500, 2).astype(np.int32)
    with Pipeline(lambda p, q: (p + p, q + q, p[:, :1] + q[:, :1]), device=device, chunk=2000) as pipe:
        y, z, w = pipe(a, b)
    assert np.array_equal(y, a + a)
    assert np.array_equal(z, b + b)
    assert np.array_equal(w, a[:, :1] + b[:, :1])


def a_failing_kernel_comes_out_at_its_chunk(device: Device) -> None:
    """Results before it come first; then the kernel's own exception, with the chunk's number; nothing hangs."""
    calls: list[int] = []
    lock = threading.Lock()

    def kernel(x: Any) -> Any:
        with lock:
            calls.append(1)
        if int(x.shape[0]) == 13:
            raise ZeroDivisionError("on purpose")
        return x + x

    given = 0
    batches = [_data(13 if number == 5 else 10) for number in range(30)]
    with Pipeline(kernel, device=device, slots=3) as pipe:
        try:
            for _ in pipe.stream(iter(batches)):
                given += 1
        except ZeroDivisionError as problem:
            notes = " ".join(getattr(problem, "__notes__", []))
            assert "chunk 5 " in notes, f"the note must name chunk 5: {notes!r}"
        else:
            raise AssertionError("the kernel's exception did not come out")
        assert given == 5, f"{given} results came before chunk 5 failed"
        assert len(calls) <= 9, "chunks were begun after one had failed"
        assert np.array_equal(pipe(_data(10)), 2 * _data(10)), "a pipeline must work again after a failure"


def a_failing_source_comes_out_at_its_chunk(device: Device) -> None:
    """What the iterator raises comes out after the results of what it gave before."""

    def source() -> Iterator[np.ndarray]:
        for _ in range(4):
            yield _data(10)
        raise KeyError("on purpose")

    given, notes = 0, ""
    with Pipeline(double, device=device, slots=3) as pipe:
        try:
            for _ in pipe.stream(source()):
                given += 1
        except KeyError as problem:
            notes = " ".join(getattr(problem, "__notes__", []))
        else:
            raise AssertionError("the iterator's exception did not come out")
    assert "chunk 4" in notes, f"the note must name chunk 4: {notes!r}"
    assert given == 4, f"{given} results came before the iterator failed at 4"


def a_stream_that_is_dropped_leaves_nothing(device: Device) -> None:
    """Closing an iterator half way, or the pipeline, ends its threads and frees the ring."""
    before = _threads()
    pipe = Pipeline(double, device=device, slots=3)
    flow = pipe.stream(_data(10) for _ in range(100))
    next(flow)
    pipe.close()
    assert next(flow, None) is None, "a closed pipeline's iterator must be at its end"
    assert _threads() <= before, "threads were left"


def pipelines_work_from_many_threads(device: Device) -> None:
    """One pipeline, used from several threads at once, gives each its own results."""
    if not device.real:
        return  # its clock is one thread's
    x = _data(3000)
    wrong: list[int] = []
    with Pipeline(double, device=device, chunk=5000, slots=2) as pipe:

        def use(number: int) -> None:
            if not np.array_equal(pipe(x + number), 2 * (x + number) + 1):
                wrong.append(number)

        threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong, f"wrong results in threads {wrong}"


CHECKS: tuple[Callable[[Device], None], ...] = (
    a_new_event_is_done,
    a_copy_there_and_back_keeps_every_byte,
    a_stream_works_in_order,
    times_do_not_run_backwards,
    pinned_memory_is_known,
    a_crew_copies_and_gives_every_token_back,
    a_crew_waits_for_the_event,
    a_crew_copies_any_memory,
    a_crew_tells_what_went_wrong,
    a_closed_crew_leaves_no_thread,
    a_pipeline_gives_the_right_results,
    results_come_in_order_and_stay,
    the_source_is_asked_only_when_a_slot_is_free,
    several_inputs_and_outputs,
    a_failing_kernel_comes_out_at_its_chunk,
    a_failing_source_comes_out_at_its_chunk,
    a_stream_that_is_dropped_leaves_nothing,
    pipelines_work_from_many_threads,
)
