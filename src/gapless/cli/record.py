"""``gapless record``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gapless.cli.output import complain
from gapless.cli.timelines import nanoseconds
from gapless.cli.words import Name, Size, Time
from gapless.model.errors import GaplessError


def record(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
    after: Time | None = None,
    for_: Annotated[Time | None, Parameter(name="--for")] = None,
    range_: Annotated[Name | None, Parameter(name="--range")] = None,
    max_size: Size | None = None,
    no_lines: bool = False,
    addresses: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> int:
    """Run a CUDA program and record what it asks of the GPU and what the GPU does, into one file.

    gapless record -- python train.py

    The program and its children run as they would alone; its exit status is passed on.

    Parameters
    ----------
    command
        The program and its arguments, after --.
    output
        The file to write, by default PROGRAM.gapless with a number where that is taken.
    after
        Begin so long after the program's first use of CUDA: 10s, 200ms. A bare number is seconds.
    for_
        Record for so long, then let the program run on alone: 5s, 50ms. A bare number is seconds.
    range_
        Record the first NVTX range of this name, and nothing else.
    max_size
        Stop recording, not the program, when the file has this size, such as 500MiB.
    no_lines
        Leave out source lines.
    addresses
        Keep which memory calls touch, for gapless check; launches then cost more.
    force
        Overwrite the output file.
    quiet
        Say nothing when all went well.
    """
    from gapless.model.units import parse_size
    from gapless.recorder.command import Settings, file_name, record_command

    if not command:
        raise GaplessError("There is no program to record: gapless record -- python train.py")
    if command[0].startswith("-"):
        raise GaplessError(f"Unknown option: {command[0]}.{_meant(command[0])}\nSee: gapless record --help")
    lasts, most = nanoseconds("--for", for_, bare="s"), None if max_size is None else parse_size(max_size)
    for option, value, what in (
        ("--for", lasts, "no time"),
        ("--max-size", most, "no byte"),
        ("--range", range_, "no range"),
    ):
        if value is not None and not value:
            raise GaplessError(f"{option} names {what}: nothing would be recorded. Leave it out to record all.")
    settings = Settings(
        after=(nanoseconds("--after", after, bare="s") or 0) / 1e9,
        seconds=(lasts or 0) / 1e9,
        range=range_ or "",
        max_size=most or 0,
        lines=not no_lines,
        addresses=addresses,
    )
    path = output or file_name(command, Path())
    status, said = record_command(command, path, settings, force=force)
    if not quiet:
        sys.stdout.flush()
        complain(said)
    return status


def _meant(option: str) -> str:
    """Ask whether an option that looks like this one was meant."""
    from difflib import get_close_matches  # only now: it is not what a right command line should wait for
    from inspect import signature

    names = ["--" + name.rstrip("_").replace("_", "-") for name in signature(record).parameters if name != "command"]
    close = get_close_matches(option.partition("=")[0], names, n=1)
    return f" Did you mean {close[0]}?" if close else ""
