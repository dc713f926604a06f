"""The ring on a simulated GPU in thousands of orders of events: right to the bit, no race; a broken ring is caught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gapless.model.errors import GaplessError
from gapless.model.races import find_races
from gapless.runtime.devices import Copies
from gapless.runtime.devices.simulated import Crew, Simulated
from gapless.runtime.flow import Run
from gapless.runtime.pipeline import Pipeline

X = np.random.default_rng(0).random(997, dtype=np.float32)


def run_one(seed: int, *, staged: bool = True) -> tuple[Simulated, list[Any], list[Any]]:
    """Run changing batches and a whole array through one pipeline; give the device, what came and what was right."""
    rng = np.random.default_rng(seed)
    device = Simulated(seed=seed, pools=seed % 4 < 2)
    batches = [X[: int(size)] for size in rng.integers(1, 200, 7)]
    if not staged:
        pinned = device.pinned(X.nbytes).view(np.float32)
        pinned[:] = X
        batches = [pinned[: len(batch)] for batch in batches]
    with Pipeline(lambda a: 2 * a + 1, device=device, slots=int(rng.integers(1, 4)), threads=seed % 3) as pipe:
        got: list[Any] = []
        for y in pipe.stream(iter(batches)):
            device.touch(y)  # the user reads it
            got.append(y if rng.random() < 0.5 else y.copy())
            del y
    for source, target in ((False, False), (True, False), (False, True), (True, True)):  # pinned or not, each way
        x = device.pinned(X.nbytes).view(np.float32) if source else X
        x[:] = X
        out = device.pinned(X.nbytes).view(np.float32) if target else np.empty_like(X)
        with Pipeline(lambda a: (2 * a + 1, a[:1]), device=device, slots=2, chunk=600, threads=2 * (seed % 2)) as pipe:
            y, ends = pipe(x)
        with Pipeline(lambda a: 2 * a + 1, device=device, slots=2, chunk=600, threads=2 * (seed % 2)) as pipe:
            got += [y, ends, pipe(x, out=out)]
            device.touch(out)
    return device, got, [2 * b + 1 for b in batches] + [2 * X + 1, X[::150], 2 * X + 1] * 4


@pytest.mark.parametrize("staged", [True, False], ids=["pageable", "pinned"])
def test_every_order_gives_the_same_bits_and_no_race(staged: bool) -> None:
    for seed in range(40):
        device, got, right = run_one(seed, staged=staged)
        for number, (y, wanted) in enumerate(zip(got, right, strict=True)):
            assert np.array_equal(y, wanted), f"seed {seed}: result {number} is wrong"
        races = find_races(device.program())
        assert not races, f"seed {seed}: {races[0]}"


@pytest.mark.slow
def test_thousands_of_orders(request: pytest.FixtureRequest) -> None:
    if "slow" not in (request.config.getoption("-m") or ""):
        pytest.skip("takes minutes; run with -m slow")
    for seed in range(2000):
        _, got, right = run_one(seed, staged=seed % 2 == 0)
        assert all(np.array_equal(y, wanted) for y, wanted in zip(got, right, strict=True)), f"seed {seed}"


def test_a_ring_that_reads_results_too_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wait for the event of a slot's last copy, both the bits and the race check say so."""
    submit = Crew.submit
    monkeypatch.setattr(Crew, "submit", lambda crew, lane, token, copies: submit(crew, lane, token, _no_wait(copies)))
    assert "d2h" in _caught_in_staging()
    assert "d2h" in _caught_in_staging(pools=True)


def test_a_ring_that_asks_for_a_slots_next_copy_before_its_last_is_done_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The threads of a pool keep no order: a chunk that enters a slot too soon is staged over the one before."""
    monkeypatch.setattr(Run, "has_room", lambda run: len(run.flights) < 2 * run.most)
    assert "copy" in _caught_in_staging(pools=True)


def test_a_ring_that_reuses_a_slot_too_soon_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the caller stages, its wait before a slot's next use is the one that counts."""
    monkeypatch.setattr(Run, "is_over", lambda run, flight: flight.is_issued)
    monkeypatch.setattr(Run, "check", lambda run, flight: None)
    found = ""
    for seed in range(20):
        device = Simulated(seed=seed)
        with Pipeline(lambda a: None, device=device, slots=2, chunk=600, threads=0) as pipe:
            pipe(X)
        found += " ".join(map(str, find_races(device.program())))
    assert "h2d" in found


def _no_wait(copies: Copies) -> Copies:
    return replace(copies, after=None)


def _caught_in_staging(*, pools: bool = False) -> str:
    """Run the broken ring; give what the race check says, and see that the results are wrong as well."""
    wrong, found = 0, ""
    for seed in range(30):
        device = Simulated(seed=seed, pools=pools)
        with Pipeline(lambda a: 2 * a + 1, device=device, slots=3, chunk=600, threads=3) as pipe:
            try:
                wrong += not np.array_equal(pipe(X), 2 * X + 1)
            except GaplessError:  # results that are not there yet are not even counted
                wrong += 1
        found += " ".join(map(str, find_races(device.program())))
    assert wrong, "the broken ring gave right results every time"
    return found
