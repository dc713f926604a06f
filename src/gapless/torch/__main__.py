"""Run a program under the check: ``python -m gapless.torch REPORT gpu|dry SCRIPT|-m MODULE|-c CODE [ARGUMENT...]``.

``gapless check -- python SCRIPT`` starts this; REPORT is the file that the findings go to, as JSON.
"""

from __future__ import annotations

import json
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from gapless.model.errors import GaplessError

_INTERRUPTED = 130  # as shells report it


def main() -> int:
    """Run the program; give the exit status that the program had."""
    try:
        return _check()
    except KeyboardInterrupt:  # before the program began, or after it had ended
        return _INTERRUPTED


def _check() -> int:
    report, dry, program = Path(sys.argv[1]), sys.argv[2] == "dry", sys.argv[3:]
    try:
        from gapless.torch import check

        found = check(dry=dry)
        with found:
            ended, status = _run(program)
        said: dict[str, Any] = {"checked": found.result.to_dict(), "ended": ended}
    except GaplessError as problem:
        said, status = {"error": str(problem)}, 2
    part = report.with_suffix(".part")  # a report is whole or not there: this may be killed at any time
    part.write_text(json.dumps(said))
    part.replace(report)
    return status


def _run(program: list[str]) -> tuple[str, int]:
    """Run a program as Python does; say how it ended, where that was not well."""
    first, rest = program[0], program[1:]
    try:
        if first == "-m":
            sys.argv = rest
            sys.path[0] = ""
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif first == "-c":
            sys.argv = ["-c", *rest[1:]]
            sys.path[0] = ""
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            if not Path(first).exists():
                raise GaplessError(f"{first}: there is no such script.")
            sys.argv = program
            sys.path[0] = str(Path(first).resolve().parent)
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        if end.code is None or end.code == 0:
            return "", 0
        return f"The program ended with status {end.code}.", end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        return "The program was interrupted.", _INTERRUPTED
    except GaplessError as problem:
        if not isinstance(problem, _not_followed()):
            raise
        return str(problem), 2
    except BaseException as fault:
        _show(fault)
        from gapless.torch.stacks import blamed

        where, said = blamed(fault.__traceback__), " ".join(str(fault).split()).rstrip(".")
        at = f" at {where}" if where else ""
        return f"The program ended{at} with {type(fault).__name__}" + (f": {said}" if said else "") + ".", 1
    return "", 0


def _not_followed() -> type[GaplessError]:
    from gapless.torch.meta import NotFollowedError

    return NotFollowedError


def _show(fault: BaseException) -> None:
    """Print the traceback as Python would, without the frames that run the program."""
    trace, here = fault.__traceback__, str(Path(__file__).parent)
    while trace is not None and (trace.tb_frame.f_code.co_filename.startswith((here, "<frozen runpy"))):
        trace = trace.tb_next
    traceback.print_exception(type(fault), fault, trace)


if __name__ == "__main__":
    sys.exit(main())
