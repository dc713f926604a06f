"""What the commands that play tapes share: each tape in turn, and the machine that an option names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gapless.cli.output import complain, json_of, write
from gapless.cli.words import DONE, FAILED, WRONG
from gapless.model.errors import DeadlockError, GaplessError

if TYPE_CHECKING:
    from gapless.checking.recordings import RecordingCheck
    from gapless.model.machine import Machine
    from gapless.model.simulation import Check, Simulation
    from gapless.model.tape import Tape

PATIENCE = 2.0  # seconds in which a pipe may bring a tape before it is said that one is waited for

Played = TypeVar("Played", "Simulation", "Check | RecordingCheck")


def each(tapes: Sequence[Path], play: Callable[[Path], Played]) -> Iterator[tuple[int, Played | DeadlockError | None]]:
    """Play or check each tape: give its status and what came of it; None where it cannot be read, which is said."""
    for path in tapes:
        try:
            played = play(path)
            yield _status(played), played
        except DeadlockError as problem:
            complain(str(problem))
            yield FAILED, problem
        except GaplessError as problem:
            complain(str(problem))
            yield WRONG, None


def _status(played: Simulation | Check | RecordingCheck) -> int:
    """Give the exit status. A recording part of which is missing is no input that can pass, which is said."""
    if played.ok:
        return DONE
    from gapless.checking.recordings import RecordingCheck

    if not isinstance(played, RecordingCheck) or played.has_races:
        return FAILED
    complain(f"Part of {played.source} is missing: whether the program is free of races is not known.")
    return WRONG


def tape_in(path: Path) -> Tape:
    """Read a tape. Where it comes through a pipe and does not come to an end, say what is waited for."""
    from gapless.model.simulation import load_tape

    if path.is_file() or not path.exists():
        return load_tape(path)
    from threading import Timer

    said = Timer(PATIENCE, complain, (f"Waiting for the end of the tape that comes through {path}.",))
    said.daemon = True
    said.start()
    try:
        return load_tape(path)
    finally:
        said.cancel()


def play_as_json(tapes: Sequence[Path], play: Callable[[Path], Played]) -> int:
    """Print one JSON object a tape; give the exit status, the worst of all."""
    worst = DONE
    for path, (status, played) in zip(tapes, each(tapes, play), strict=True):
        worst = max(worst, status)
        if isinstance(played, DeadlockError):
            write(json_of({"version": 1, "source": str(path), "makespan_ns": None, "deadlock": played.calls}))
        elif played is not None:
            write(json_of(played.to_dict()))
    return worst


def read_machine(profile: str | None) -> Machine | None:
    """Read a machine as a tape does: a profile or a file, and knobs after it."""
    if profile is None:
        return None
    from gapless.model.tape import TapeError, read

    if not profile.strip():
        raise GaplessError("--machine names no machine. Write a profile, such as h200, or the file of one.")
    try:
        return read(f"machine {as_on_a_tape(profile)}", name="--machine").machine
    except TapeError as problem:  # that it was read as a line of a tape is our affair
        raise GaplessError(f"--machine: {problem.message}") from None


def as_on_a_tape(profile: str) -> str:
    """Put a file's name in quotes, as on a tape."""
    import re

    knobs = "".join(re.findall(r"(?:\s+\w+=\S*)+\s*$", profile))
    name = profile[: len(profile) - len(knobs)].strip()
    is_file = name.endswith(".json") or "/" in name
    return " ".join([f'"{Path(name).absolute()}"' if is_file else " ".join(name.split()), *knobs.split()])
