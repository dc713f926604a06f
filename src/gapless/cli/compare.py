"""``gapless compare``."""

from __future__ import annotations

import sys
from pathlib import Path

from gapless.cli.lists import LIST, list_gates
from gapless.cli.output import drawn, json_of, to_console, write
from gapless.cli.tapes import read_machine
from gapless.cli.timelines import Asked, explained, held, read_gates, read_window
from gapless.cli.words import Condition, Count, Profile
from gapless.model.errors import GaplessError


def compare(
    before: Path | None = None,
    after: Path | None = None,
    /,
    *,
    json: bool = False,
    device: Count | None = None,
    machine: Profile | None = None,
    gate: tuple[Condition, ...] = (),
) -> int:
    """Say what changed between two timelines of a program, and whether the prediction came true.

    Exit status 1 where a gate fails, 2 where one of the two has no work of a GPU.

    Parameters
    ----------
    before
        Timeline of the program as it was.
    after
        Timeline of the program as it is now.
    json
        Print one JSON object.
    device
        Number of the GPU to compare. By default the one that worked most, in each.
    machine
        Take what the timelines have no sample of from this machine: a profile or a file. By default h200.
    gate
        What AFTER must hold: 'no pageable-copy', 'speedup>=1.1'. --gate list shows all. May be repeated.
    """
    from gapless.diagnosis.compare import compare as compare_reports

    if LIST in gate:
        return list_gates(speedup=True)
    if before is None or after is None:
        raise GaplessError("Two timelines are compared. Write: gapless compare BEFORE AFTER")
    gates = read_gates(gate, speedup=True)
    asked = Asked(read_window(None, None, None), device, (), read_machine(machine), None, ())
    old, new = (explained(path, asked, quiet=json and not sys.stdout.isatty()) for path in (before, after))
    compared = compare_reports(old, new, gates)
    if json:
        write(json_of(compared.to_dict()))
    else:
        from gapless.views.comparison import draw

        console = to_console()
        write(drawn(console, draw(compared, console, console.options)))
    return held(compared.gates)
