"""``gapless check -- python train.py``: run a PyTorch program in a process of its own, draw what its check found."""

from __future__ import annotations

import json as json_
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gapless.cli.output import complain, drawn, json_of, to_console, write
from gapless.cli.words import DONE, FAILED, WRONG
from gapless.model.errors import GaplessError

_STOPS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")  # options of the interpreter that take one


def check_program(command: Sequence[str], *, dry: bool, json: bool) -> int:
    """Run a program under the check; give the exit status: 128 + n where signal n stopped the program.

    One in which no operation on a GPU was seen has passed no check: that is wrong, as an empty tape is.

    Ctrl-C and requests to end go to the program. Where it could still report, what it did until then is drawn.
    """
    from gapless.recorder.child import Child

    python, rest = _python(command)
    if rest[0] not in ("-m", "-c") and not Path(rest[0]).exists():  # said here: importing torch takes seconds
        raise GaplessError(f"{rest[0]}: there is no such script.")
    with tempfile.TemporaryDirectory(prefix="gapless-") as folder:
        report = Path(folder) / "report.json"
        run = [*python, "-m", "gapless.torch", str(report), "dry" if dry else "gpu", *rest]
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        try:
            status = Child(run, environment).wait()
        except OSError as problem:
            raise GaplessError(f"{python[0]} cannot be started: {problem.strerror}") from None
        found = json_.loads(report.read_text()) if report.exists() else None
    stop = next((number for number in _STOPS if status in (-number, 128 + number)), None)
    if found is None and stop is not None:
        complain(f"The program was stopped ({stop.name}) before there was a report.")
        return 128 + stop
    if found is None or "error" in found:
        raise GaplessError(
            found["error"] if found else f"The program ended (status {status}) before there was a report."
        )
    from gapless.torch.findings import Checked

    checked = Checked.from_dict(found["checked"])
    nothing = not (checked.operations or checked.findings)
    if json:
        write(json_of({"program": " ".join(rest)} | checked.to_dict() | {"ended": found["ended"]}))
    elif not nothing or checked.notes:
        from gapless.views.torch_check import draw

        console = to_console()
        write(drawn(console, draw(checked, " ".join(rest), console, console.options, ended=found["ended"])))
    if found["ended"]:
        until = "What it did until then was checked; what would have come next was not."
        complain(f"{found['ended']} {'No operation on a GPU was seen until then.' if nothing else until}")
    if stop is not None:
        return 128 + stop
    if nothing and not found["ended"]:
        complain(f"{' '.join(rest)}: no operation on a GPU was seen, so nothing was checked.")
    return FAILED if not checked.ok else WRONG if found["ended"] or nothing else DONE


def _python(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Give the interpreter with its options, and what it is to run."""
    if not command:
        raise GaplessError("Behind -- stands the program to check: gapless check -- python train.py")
    first, rest = command[0], list(command[1:])
    if first.endswith(".py"):
        return [sys.executable], list(command)
    if not Path(first).name.lower().startswith(("python", "pypy")):
        raise GaplessError(
            f"{first} is no Python: a check runs inside the interpreter. Write: gapless check -- python SCRIPT, or "
            "python -m MODULE"
        )
    interpreter = sys.executable if first in ("python", "python3") else first
    at = 0
    while at < len(rest) and rest[at].startswith("-") and rest[at] not in ("-m", "-c", "-"):
        at += 2 if rest[at] in _WITH_VALUE else 1
    if at >= len(rest) or rest[at] == "-" or (rest[at] in ("-m", "-c") and at + 1 >= len(rest)):
        raise GaplessError("There is no script to run. Write: gapless check -- python SCRIPT, or python -m MODULE")
    return [interpreter, *rest[:at]], rest[at:]
