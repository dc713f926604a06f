"""Ctrl-C at the moments in which something is begun or ended: it comes out, and nothing stays at work."""

from __future__ import annotations

import _thread
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

from gapless.runtime.devices import Copies, crew, host, pool
from gapless.runtime.pipeline import Pipeline
from staged_host import StagedHost, library

X = np.random.default_rng(4).random(30_000, dtype=np.float32)


def affine(a: Any) -> Any:
    return 2 * a + 1


def tasks() -> set[str]:
    return {task.name for task in Path("/proc/self/task").iterdir()}


def are_gone(before: set[str]) -> bool:
    """Tell whether no thread is left that was not there; the system may take a moment to end one that is through."""
    until = monotonic() + 5
    while (left := tasks() - before) and monotonic() < until:
        sleep(0.001)
    return not left


def once(function: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
    """Let Ctrl-C come before, or after, what the first call does."""
    left = [True]

    def call(*arguments: Any) -> Any:
        if left.pop() if left else False:
            if after:
                function(*arguments)
            raise KeyboardInterrupt
        return function(*arguments)

    return call


def batches() -> Iterator[np.ndarray]:
    return iter([X[first : first + 1000] for first in range(0, len(X), 1000)])


def test_a_crew_that_has_just_been_opened_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python raises before it keeps what the call gave."""
    before = tasks()
    slow = library().slow

    class Calls:
        def __getattr__(self, name: str) -> Any:
            function = getattr(slow, name)
            return once(function, after=True) if name == "gapless_crew_open" else function

    monkeypatch.setattr(library(), "slow", Calls())
    with pytest.raises(KeyboardInterrupt):
        pool.Pool(library(), 3, wait=0, enter=0, context=0, failed=OSError)
    assert are_gone(before)


@pytest.mark.parametrize("pools", [False, True])
def test_while_an_abandoned_stream_ends(pools: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error that is caught keeps all frames alive, and with them what is at work."""
    kind = pool.Pool if pools else crew.Threads
    device = StagedHost(pools=pools)
    before = tasks()
    with Pipeline(affine, device=device, slots=3, threads=2) as pipe:
        stream = pipe.stream(batches())
        assert np.array_equal(next(stream), affine(X[:1000]))
        close = once(kind.close)
        monkeypatch.setattr(kind, "close", close)
        with pytest.raises(KeyboardInterrupt) as caught:
            stream.close()
        assert are_gone(before)
        assert caught.tb is not None
        assert np.array_equal(pipe(X), affine(X))


def test_while_what_is_in_flight_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not get lost, nor does work go on."""
    at_work: list[int] = []

    def kernel(a: Any) -> Any:
        at_work.append(1)
        sleep(0.02)
        at_work.pop()
        return affine(a)

    with Pipeline(kernel, device="host", slots=3) as pipe:
        stream = pipe.stream(batches())
        next(stream)
        wait = once(host.Event.wait)
        monkeypatch.setattr(host.Event, "wait", wait)
        with pytest.raises(KeyboardInterrupt):
            stream.close()
        assert not at_work
        assert np.array_equal(pipe(X), affine(X))


@pytest.mark.parametrize("after", [False, True])
def test_while_a_staging_thread_starts(after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tasks()
    with Pipeline(affine, device=StagedHost(), slots=3, threads=3, chunk=4000) as pipe:
        with monkeypatch.context() as patched:
            start = once(_thread.start_new_thread, after=after)
            patched.setattr(crew, "_thread", type("Threads", (), {"start_new_thread": staticmethod(start)}))
            with pytest.raises(KeyboardInterrupt) as caught:
                pipe(X)
            assert are_gone(before)
            assert caught.tb is not None
        assert np.array_equal(pipe(X), affine(X))


def test_a_thread_that_begins_when_the_crew_is_closed_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[Any, Any]] = []
    late = type("Threads", (), {"start_new_thread": staticmethod(lambda *given: started.append(given))})
    monkeypatch.setattr(crew, "_thread", late)
    threads, target = crew.Threads(1), np.zeros(3)
    threads.submit(0, "token", Copies([(target, np.ones(3))]))
    assert threads.close() == []
    ((work, arguments),) = started
    work(*arguments)
    assert threads.close() == []
    assert not target.any()
