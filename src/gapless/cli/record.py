"""``gapless record``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gapless.cli.output import complain
from gapless.model.errors import GaplessError


def record(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
    after: float = 0.0,
    seconds: Annotated[float, Parameter(name="--for")] = 0.0,
    range_: Annotated[str, Parameter(name="--range")] = "",
    max_size: str = "",
    no_lines: bool = False,
    addresses: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> int:
    """Run a CUDA program and record what it asks of the GPU and what the GPU does, into one file.

    gapless record -- python train.py. The program and its children run as they would alone; its status is passed on.

    Parameters
    ----------
    command
        The program and its arguments, after --.
    output
        The file to write, by default PROGRAM.gapless with a number where that is taken.
    after
        Begin so many seconds after the program's first use of CUDA.
    seconds
        Record so many seconds, then let the program run on alone.
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
    settings = Settings(
        after=after,
        seconds=seconds,
        range=range_,
        max_size=parse_size(max_size) if max_size else 0,
        lines=not no_lines,
        addresses=addresses,
    )
    path = output or file_name(command, Path())
    status, said = record_command(command, path, settings, force=force)
    if not quiet:
        sys.stdout.flush()
        complain(said)
    return status
