"""The staging threads in C: what they copy, when, what they tell, and that nothing of them stays."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.model import native
from gapless.model.errors import GaplessError
from gapless.runtime import devices
from gapless.runtime.devices import Copies, pool
from gapless.runtime.devices.address import address
from gapless.runtime.pipeline import Pipeline
from staged_host import FAILED, WAIT, StagedHost, address_of, library


class Event:
    """What the crew knows by a number; the test says when it is over."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.over = threading.Event()

    def wait(self) -> None:
        self.over.wait()


class Played:
    """A pool whose events are played."""

    def __init__(self, threads: int) -> None:
        self.events: dict[int, Event] = {}
        self.waited: list[int] = []
        self.entered: list[int] = []
        self._wait, self._enter = WAIT(self.wait), WAIT(self.enter)
        self.pool = pool.Pool(
            library(), threads, wait=address_of(self._wait), enter=address_of(self._enter), context=77,
            failed=lambda code: OSError(f"code {code}"),
        )  # fmt: skip

    def event(self) -> Event:
        event = Event(len(self.events) + 1)
        self.events[event.handle] = event
        return event

    def wait(self, handle: int) -> int:
        self.waited.append(handle)
        event = self.events.get(handle)
        if event is None:
            return FAILED
        event.wait()
        return 0

    def enter(self, context: int) -> int:
        self.entered.append(context)
        return 0


@pytest.fixture(params=[1, 4])
def played(request: pytest.FixtureRequest) -> Iterator[Played]:
    made = Played(request.param)
    yield made
    for event in made.events.values():
        event.over.set()
    made.pool.close()


def test_large_and_small_copies_are_done_whatever_their_number(played: Played) -> None:
    rng = np.random.default_rng(3)
    tasks: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for number, size in enumerate([0, 1, 63, 4097, (1 << 20) - 1, 1 << 20, (5 << 20) + 3, 7, 0, 3 << 20]):
        source = rng.integers(0, 255, size, np.uint8)
        tasks[number] = np.zeros_like(source), source
        played.pool.submit(number % 3, number, Copies([tasks[number]]))
    done = [played.pool.next() for _ in tasks]
    assert sorted(one.token for one in done) == list(tasks)
    for one in done:
        target, source = tasks[one.token]
        assert one.error is None
        assert one.span is not None
        assert one.span[0] <= one.span[1]
        assert np.array_equal(target, source)


def test_many_items_become_one(played: Played) -> None:
    rng = np.random.default_rng(4)
    alike = [rng.random((3, 5)) for _ in range(2000)]
    mixed = [rng.random((rows, 5))[::step] for rows, step in ((3, 1), (0, 1), (9, 2), (200_000, 1), (5, -1))]
    for number, items in enumerate((alike, mixed, alike[:1], [np.zeros((0, 5))] * 3)):
        target = np.zeros((sum(map(len, items)), 5))
        played.pool.submit(0, number, Copies([(target, items)]))
        done = played.pool.next()
        assert (done.token, done.error) == (number, None)
        assert np.array_equal(target, np.concatenate(items))


def test_results_are_copied_after_their_event_and_not_before(played: Played) -> None:
    first, second, third = played.event(), played.event(), played.event()
    source, targets = np.arange(3 << 20, dtype=np.uint8), [np.zeros(3 << 20, np.uint8) for _ in range(3)]
    for event, target in zip((first, second, third), targets, strict=True):
        played.pool.submit(0, event.handle, Copies([(target, source)], after=event))
    played.pool.submit(1, "free", Copies([(np.zeros(9), np.ones(9))]))
    assert played.pool.next().token == "free"
    assert not any(target.any() for target in targets)
    second.over.set()
    first.over.set()
    assert {played.pool.next().token, played.pool.next().token} == {1, 2}
    assert [target.any() for target in targets] == [True, True, False]
    third.over.set()
    assert played.pool.next().token == 3
    assert np.array_equal(targets[2], source)
    assert played.waited == [1, 2, 3]
    assert played.entered == [77]


def test_what_a_wait_reports_comes_out_and_nothing_is_copied(played: Played) -> None:
    unknown = Event(999)
    target = np.zeros(5)
    played.pool.submit(0, "bad", Copies([(target, np.ones(5))], after=unknown))
    done = played.pool.next()
    assert (done.token, str(done.error), done.span) == ("bad", f"code {FAILED}", None)
    assert not target.any()


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (np.zeros(3), np.zeros(4)),
        (np.zeros(3), np.zeros(3, np.float32)),
        (np.zeros(3), np.zeros(3, ">f8")),
        (np.zeros((4, 2)), [np.zeros((2, 2)), np.zeros((1, 2))]),
        (np.zeros((4, 2)), [np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2))]),
        (np.zeros((4, 2)), [np.zeros((2, 2)), np.zeros((2, 2), np.float32)]),
        (np.zeros((4, 2)), [np.zeros((2, 2)), np.zeros((2, 3))]),
        (np.zeros((4, 2)), [np.zeros((4, 2), np.float32)]),
        (np.zeros(4), [np.zeros(2), np.zeros((2, 1))]),
    ],
)
def test_what_does_not_fit_is_an_error_and_touches_nothing_else(played: Played, target: Any, source: Any) -> None:
    played.pool.submit(0, "bad", Copies([(target, source)]))
    done = played.pool.next()
    assert done.token == "bad"
    assert isinstance(done.error, TypeError | ValueError)
    good = np.zeros(6)
    played.pool.submit(0, "good", Copies([(good, np.ones(6))]))
    assert played.pool.next().error is None
    assert good.all()


def test_the_threads_end_with_close_and_what_was_not_begun_is_dropped() -> None:
    before = _tasks()
    played = Played(3)
    threads = _tasks() - before
    assert len(threads) == 4
    event, never = played.event(), np.zeros(8)
    played.pool.submit(0, "never", Copies([(never, np.ones(8))], after=event))
    played.pool.submit(0, "done", Copies([(np.zeros(8), np.ones(8))]))
    heard = [played.pool.next().token]
    closing = threading.Thread(target=lambda: heard.extend(one.token for one in played.pool.close()))
    closing.start()
    event.over.set()  # either before or after the crew is told to stop
    closing.join()
    assert heard in (["done"], ["done", "never"])
    assert never.all() == ("never" in heard)
    assert not threads & _tasks()
    assert played.pool.close() == []


def _tasks() -> set[str]:
    return {task.name for task in Path("/proc/self/task").iterdir()}


GRIDS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 3), st.booleans()), min_size=1, max_size=4
)  # of each dimension: length, step, whether it runs backwards


@settings(max_examples=150, deadline=None)
@given(
    grid=GRIDS,
    other=GRIDS,
    dtype=st.sampled_from(["u1", "<i2", "<f4", "<f8", "<c16", "S3", "<M8[s]", "V24"]),
    data=st.data(),
)
def test_any_memory_is_copied_like_numpy_does(grid: Any, other: Any, dtype: str, data: st.DataObject) -> None:
    """Strided, reversed and transposed on both sides, against NumPy."""
    lengths = tuple(length for length, _, _ in grid)
    other = (other * 4)[: len(grid)]

    def view(steps: Any, order: Any) -> np.ndarray:
        room = np.zeros(tuple(lengths[axis] * steps[axis][1] for axis in order), dtype)
        bytes_of = room.view(np.uint8) if room.ndim else room
        bytes_of[...] = np.random.default_rng(1).integers(0, 255, bytes_of.shape, np.uint8)
        array = room.transpose(np.argsort(order))
        index = tuple(slice(None, None, -step if back else step) for _, step, back in steps)
        return array[index][tuple(slice(0, length) for length in lengths)]

    orders = st.permutations(range(len(grid)))
    source, target = view(grid, data.draw(orders)), view(other, data.draw(orders))
    target.view(np.ndarray)[...] = np.zeros((), dtype)
    with_c = Played(2)
    with_c.pool.submit(0, 0, Copies([(target, source)]))
    done = with_c.pool.next()
    with_c.pool.close()
    assert done.error is None
    assert target.tobytes() == source.tobytes()


def test_it_waits_without_a_turn_of_pythons_lock_and_hears_ctrl_c(played: Played) -> None:
    """Who waits looks again and again whether there is an exception to raise."""
    event = played.event()
    played.pool.submit(0, 1, Copies([(np.zeros(1), np.ones(1))], after=event))
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            played.pool.next()
        except KeyboardInterrupt as problem:
            caught.append(problem)

    waiting = threading.Thread(target=wait)
    waiting.start()
    number = ctypes.c_ulong(waiting.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(KeyboardInterrupt))
    waiting.join(20)
    assert not waiting.is_alive()
    assert len(caught) == 1


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "find_compiler", lambda: None)
    with pytest.raises(GaplessError, match="no C compiler"):
        pool.compile_here(tmp_path)
    monkeypatch.setattr(pool, "_BROUGHT", tmp_path / "none.so")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pool.load.cache_clear()
    try:
        assert pool.load() == "no C compiler is there to compile gapless's staging threads"
        (tmp_path / "broken.so").write_bytes(b"no library")
        monkeypatch.setattr(pool, "_BROUGHT", tmp_path / "broken.so")
        pool.load.cache_clear()
        assert isinstance(pool.load(), str)
    finally:
        pool.load.cache_clear()


def test_it_is_compiled_once(tmp_path: Path) -> None:
    library()
    first = pool.compile_here(tmp_path)
    stamp = first.stat().st_mtime_ns
    assert pool.compile_here(tmp_path) == first
    assert first.stat().st_mtime_ns == stamp
    assert [file.name for file in first.parent.iterdir()] == [pool.NAME]


def test_protocol_is_kept() -> None:
    """A pool is a crew to the type checker; here, that it has what one has."""
    assert {name for name in vars(devices.Crew) if not name.startswith("_")} <= set(dir(pool.Pool))
    assert address(np.zeros(3)) > 0


def test_the_ring_is_right_whatever_the_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Threads that sleep now and then, while they copy and before they say so, and wake-ups that the system loses."""
    library()
    slow = pool.Library(pool.compile_here(tmp_path, delays=True))
    x = np.random.default_rng(8).random(60_000, dtype=np.float32)
    device = StagedHost(pools=True)
    monkeypatch.setattr(device, "_library", slow)
    for slots, threads in ((1, 3), (2, 1), (5, 3)):
        with Pipeline(lambda a: 2 * a + 1, device=device, slots=slots, threads=threads, chunk=10_000) as pipe:
            for _ in range(5):
                assert np.array_equal(pipe(x), 2 * x + 1)
            batches = [x[: 7 * length] for length in range(1, 40)]
            for got, batch in zip(pipe.stream(iter(batches)), batches, strict=True):
                assert np.array_equal(got, 2 * batch + 1)


def test_a_library_that_was_cut_off_is_compiled_again(tmp_path: Path) -> None:
    library()
    path = pool.compile_here(tmp_path)
    whole = path.read_bytes()
    assert native.is_whole(path)
    for length in (0, 3, 63, 64, 1000, len(whole) // 2, len(whole) - 1):
        path.unlink()
        path.write_bytes(whole[:length])
        assert not native.is_whole(path)
    path.write_bytes(b"#" * len(whole))
    assert not native.is_whole(path)
    assert pool.compile_here(tmp_path).read_bytes() == whole


class Interrupted:
    """Calls of the library, the first of which Ctrl-C comes before."""

    def __init__(self, calls: Any, name: str) -> None:
        self._calls, self._name, self.left = calls, name, 1

    def __getattr__(self, name: str) -> Any:
        if name == self._name and self.left:
            self.left -= 1
            raise KeyboardInterrupt
        return getattr(self._calls, name)


@pytest.mark.parametrize(("how", "name"), [("slow", "stop"), ("quick", "next"), ("quick", "free")])
def test_closing_can_be_interrupted(monkeypatch: pytest.MonkeyPatch, how: str, name: str) -> None:
    """What threads may still look at is kept until they are gone, and close can be called again."""
    before = _tasks()
    played = Played(2)
    threads = _tasks() - before
    source, target = np.ones(1 << 22, np.uint8), np.zeros(1 << 22, np.uint8)
    played.pool.submit(0, "copy", Copies([(target, source)]))
    there = played.pool._library
    with monkeypatch.context() as patched:
        patched.setattr(there, how, Interrupted(getattr(there, how), f"gapless_crew_{name}"))
        with pytest.raises(KeyboardInterrupt):
            played.pool.close()
        assert played.pool._known or name != "stop"
        played.pool.close()
    assert not threads & _tasks()
    assert not played.pool._known
    assert target.all() or not target.any()


def test_a_crew_that_is_forgotten_ends() -> None:
    before = _tasks()
    played = Played(2)
    threads = _tasks() - before
    assert len(threads) == 3
    played.pool = None  # pyright: ignore[reportAttributeAccessIssue]
    assert not threads & _tasks()


def test_a_forked_child_leaves_the_crew_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of its threads is there."""
    before = _tasks()
    played = Played(2)
    threads = _tasks() - before
    with monkeypatch.context() as child:
        child.setattr("gapless.runtime.devices.pool.os.getpid", lambda: -1)
        assert played.pool.close() == []
    assert threads <= _tasks()
    played.pool.close()
    assert not threads & _tasks()
    with pytest.raises(RuntimeError, match="closed"):
        played.pool.submit(0, 0, Copies([]))
