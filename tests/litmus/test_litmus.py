"""Every tape of the project holds what it expects: the litmus tests of the rules, reported cases, and the lesson.

Two comments of a tape speak to this file. ``# skip: REASON`` in a tape without statements names a rule that is not
modelled. ``# also: h200 within T`` runs the tape a second time on the profile h200 (with the knobs that the tape sets),
where every call and operation has a cost: then an exact time may be off by T, all else must hold as it stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gapless.model.expectations import Expectation, evaluate
from gapless.model.machine import Machine
from gapless.model.schedule import schedule
from gapless.model.tape import Tape, read
from gapless.model.units import parse_time

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "tests" / "litmus", ROOT / "tests" / "cases", ROOT / "examples" / "tapes")
SKIP = re.compile(r"^# skip: (.+)$", re.MULTILINE)
ALSO = re.compile(r"^# also: (\S+) within (\S+)$", re.MULTILINE)
NO_TAPES = {"I13", "I14"}  # properties of many programs, tested with the closed forms


@dataclass(frozen=True)
class Run:
    """A tape on a machine; ``within``: picoseconds that exact times may be off, None for what the format allows."""

    path: Path
    profile: str = ""
    within: int | None = None


def runs() -> list[object]:
    found: list[object] = []
    for path in (path for folder in FOLDERS for path in sorted(folder.glob("*.tape"))):
        text, name = path.read_text(encoding="utf-8"), f"{path.parent.name}-{path.stem}"
        reason = SKIP.search(text)
        found.append(pytest.param(Run(path), id=name, marks=[pytest.mark.skip(reason=reason[1])] if reason else []))
        found += [
            pytest.param(Run(path, profile, parse_time(within)), id=f"{name}-on-{profile}")
            for profile, within in ALSO.findall(text)
        ]
    return found


@pytest.mark.parametrize("run", runs())
def test_tape(run: Run) -> None:
    tape = read(run.path.read_text(encoding="utf-8"), name=run.path.name, folder=run.path.parent)
    assert tape.expectations
    machine = on_profile(tape, run.profile) if run.profile else tape.machine
    expectations = [wider(e, run.within) for e in tape.expectations] if run.within else [[e] for e in tape.expectations]
    wanted = [expectation for group in expectations for expectation in group]
    outcomes = evaluate(wanted, schedule(tape.program, machine))
    failed = [f"line {o.line}: {e}: {o.got}" for e, o in zip(wanted, outcomes, strict=True) if not o.holds]
    assert not failed, "\n".join(failed)


def on_profile(tape: Tape, profile: str) -> Machine:
    """The profile with the knobs that the tape changes."""
    before, said = Machine.named(tape.machine.name).knobs(), tape.machine.knobs()
    return Machine.named(profile, **{knob: value for knob, value in said.items() if value != before[knob]})


def wider(expectation: Expectation, within: int) -> list[Expectation]:
    """An exact time as two bounds around it."""
    if expectation.kind not in ("makespan", "start", "end", "return", "elapsed") or expectation.relation != "=":
        return [expectation]
    low, high = max(0, expectation.value - within), expectation.value + within
    return [replace(expectation, relation=">=", value=low), replace(expectation, relation="<=", value=high)]


def test_every_litmus_test_of_the_specification_has_its_tape(shared: Path) -> None:
    section = (shared / "semantics.md").read_text(encoding="utf-8").partition("## 11.")[2].partition("\n## 12.")[0]
    named = set(re.findall(r"^\| ([A-I]\d\d)[◆●]*[a-z]* \|", section, re.MULTILINE))
    taped = {path.stem[:3] for path in FOLDERS[0].glob("*.tape")}
    assert len(named) > 90
    assert named - NO_TAPES <= taped


def test_every_tape_says_first_what_it_shows() -> None:
    for folder in FOLDERS:
        for path in folder.glob("*.tape"):
            assert re.match(r"# (?!skip:|also:).{20,}", path.read_text(encoding="utf-8")), path.name
            assert bool(SKIP.search(path.read_text())) == (not read(path.read_text()).expectations), path.name
