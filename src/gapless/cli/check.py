"""``gapless check``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gapless.cli.output import blaming_itself, drawn, to_console, write
from gapless.cli.tapes import each, play_as_json, read_machine, tape_in
from gapless.cli.torch_program import check_program
from gapless.cli.words import DONE, Count, Profile, Run
from gapless.model.errors import DeadlockError, GaplessError

if TYPE_CHECKING:
    from gapless.checking.recordings import RecordingCheck
    from gapless.model.simulation import Check


def check(
    *tapes: Path,
    json: bool = False,
    machine: Profile | None = None,
    explore: Count = Count(0),  # noqa: B008
    replay: Run | None = None,
    dry: bool = False,
    program: Annotated[tuple[str, ...] | None, Parameter(parse=False)] = None,
) -> int:
    """Find races: accesses to the same memory that no documented rule puts in order, and the shortest repair.

    Takes tapes and recordings (of gapless record --addresses), or behind -- a PyTorch program to run and watch:

    gapless check -- python train.py

    Exit status 1 where an expectation of a tape fails; for what expects nothing, where there is a race.

    Exit status 2 where there is nothing to check, as where no operation on a GPU is seen.

    Exit status 2 too where part of a recording is missing, and nothing races in the rest.

    In a recording, copies, memsets, allocations and frees are exact; what a kernel touches is possible.

    Parameters
    ----------
    tapes
        Tapes (.tape), which are stream programs as text, and recordings with addresses (.gapless).
    json
        Print one JSON object a tape or recording, one a line, in the order given.
    machine
        Check on this machine instead of the tape's: a profile (teaching, h200, one-copy-engine, fermi) or a file.
    explore
        Look at so many runs, in which host threads, durations and whatever no rule fixes vary.
    replay
        Check the run that exploring told of, such as h17.
    dry
        Run the PyTorch program on a pretended GPU: tensors there have shapes and no values.
    program
        What stands behind --.
    """
    if program is not None:
        if tapes or explore or replay is not None or machine is not None:
            raise GaplessError("Beside a program, check takes --dry and --json alone: gapless check -- python train.py")
        return check_program(program, dry=dry, json=json)
    if dry:
        raise GaplessError("--dry is for a PyTorch program. Write: gapless check --dry -- python train.py")
    if not tapes:
        raise GaplessError("No tape or recording is named. Write: gapless check TAPE...")
    if explore < 0:
        raise GaplessError(f"--explore {explore} is no number of runs.")
    if explore and replay is not None:
        raise GaplessError("--explore looks at many runs, --replay at one. Leave one of the two out.")
    play = checking(machine, explore, replay)
    return play_as_json(tapes, play) if json else _check_as_text(tapes, play, machine)


def checking(profile: str | None, explore: int, replay: str | None) -> Callable[[Path], Check | RecordingCheck]:
    """Give what checks one tape or recording as the options ask."""
    from gapless.model.simulation import check
    from gapless.timeline.sources.recording import is_recording

    machine = read_machine(profile)

    def play(path: Path) -> Check | RecordingCheck:
        if is_recording(path):
            if explore or replay is not None or machine is not None:
                raise GaplessError(f"{path} is a recording: --machine, --explore and --replay are for tapes.")
            return _recording(path)
        with blaming_itself(path, "check"):
            run = "plain" if replay is None else replay
            checked = check(tape_in(path), machine=machine, replay=run, explore=explore)
            _ = checked.races, checked.ok
        if not _has_something(checked):
            raise GaplessError(f"{path} asks for no operation and touches no memory: there is nothing to check.")
        return checked

    return play


def _has_something(checked: Check) -> bool:
    """Tell whether a tape holds what could be wrong: a file that was emptied has no race, but is not right either."""
    program = checked.played.schedule.program
    told = len(program) and checked.played.expectations
    return bool(told or (program.rows.op >= 0).any() or len(program.accesses.row))


def _recording(path: Path) -> RecordingCheck:
    from gapless.checking.recordings import check

    with blaming_itself(path, "check"):
        return check(path)


def _check_as_text(tapes: Sequence[Path], play: Callable[[Path], Check | RecordingCheck], profile: str | None) -> int:
    from gapless.checking.recordings import RecordingCheck
    from gapless.views import races, recording_check

    console, worst, gap = to_console(), DONE, ""
    for status, checked in each(tapes, play):
        worst = max(worst, status)
        if checked is None or isinstance(checked, DeadlockError):
            continue
        if isinstance(checked, RecordingCheck):
            lines = recording_check.draw(checked, console, console.options)
        else:
            lines = races.draw(checked, console, console.options, machine=profile)
        write(gap + drawn(console, lines))
        gap = "\n"
    return worst
