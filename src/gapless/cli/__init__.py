"""The command line: one file a command, in which one function is the command.

Its signature gives the options, its docstring the help. A new command is such a file, and its function in
``COMMANDS``; each option's help stays on one line. Statuses: 0 done, 1 an expectation failed, 2 the input or the call
is wrong. Nothing heavy is imported before it is needed, so that ``gapless --help`` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from shlex import join
from typing import TYPE_CHECKING

from gapless import __version__
from gapless.cli.bench import bench
from gapless.cli.check import check
from gapless.cli.compare import compare
from gapless.cli.convert import convert
from gapless.cli.explain import explain
from gapless.cli.lab import lab
from gapless.cli.output import abandon_output, complain, to_console
from gapless.cli.record import record
from gapless.cli.simulate import simulate
from gapless.cli.words import DONE, FAILED, INTERRUPTED, PIPE_CLOSED, WRONG, Count
from gapless.model.errors import DeadlockError, GaplessError

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["COMMANDS", "main"]


_HELP = frozenset(("--help", "-h", "--version"))  # printed at once, by the library that reads the arguments
COMMANDS: tuple[Callable[..., int], ...] = (explain, compare, simulate, check, lab, record, convert, bench)
_TAKES = {
    explain: "TIMELINE... [OPTIONS]",
    compare: "BEFORE AFTER [OPTIONS]",
    simulate: "[TAPE...] [OPTIONS]",
    check: "(TAPE|RECORDING)... [OPTIONS]\n       gapless check [--dry] [--json] -- python SCRIPT",
    lab: "[OPTIONS]",
    record: "[OPTIONS] -- COMMAND",
    convert: "SOURCE OUTPUT [OPTIONS]",
    bench: "[machine|pipeline] [OPTIONS]",
}

_PIPES = {  # what to write instead of "-"; timelines are read from regular files alone
    "simulate": "Write /dev/stdin for what comes through a pipe.",
    "check": "Write /dev/stdin for what comes through a pipe.",
    "convert": "Write /dev/stdout for what goes into a pipe; what is read is a file.",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit status. *arguments* are those of the process where none are given."""
    try:
        if sys.stdout is None:
            raise GaplessError("Standard output is closed: there is nowhere to print to.")
        status = _run(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
    except GaplessError as problem:
        complain(str(problem))
        return FAILED if isinstance(problem, DeadlockError) else WRONG
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        abandon_output()
        return PIPE_CLOSED
    except OSError as problem:
        complain(f"{problem.filename or 'the output'}: {problem.strerror or problem}")
        abandon_output()
        return WRONG
    except MemoryError:
        complain("This takes more memory than there is.")
        return WRONG
    except Exception as fault:
        if isinstance(fault.__cause__ or fault.__context__, KeyboardInterrupt):  # as Python wraps it in some places
            return INTERRUPTED
        if sys.flags.dev_mode:
            raise
        complain(
            f"gapless itself failed ({type(fault).__name__}: {fault}).\nPlease report it with what this shows: "
            f"python -X dev -m gapless {join(sys.argv[1:] if arguments is None else arguments)}"
        )
        return WRONG
    return status


def _run(arguments: list[str]) -> int:
    from cyclopts import App, CoercionError, CycloptsError, Parameter, UnusedCliTokensError

    app = App(
        name="gapless",
        help="Keep a GPU's engines busy: see a CUDA timeline, learn what each engine waited for, play stream programs.",
        version=__version__,
        help_format="plaintext",
        default_parameter=Parameter(negative=(), show_default=False),
        suppress_keyboard_interrupt=False,
    )
    asked = [command for command in COMMANDS if arguments[:1] == [command.__name__]]
    for command in asked or COMMANDS:  # the others would only take time
        app.command(command, usage=f"Usage: gapless {command.__name__} {_TAKES[command]}")
    try:
        if "--" not in arguments and not _HELP.intersection(arguments):
            _ask_for_dashes(app, arguments)
        if arguments[:1] == ["check"] and "--" in arguments:  # its positionals are tapes, what follows is a program
            at = arguments.index("--")
            command, bound, _ = app.parse_args(arguments[:at], exit_on_error=False, print_error=False)
            return command(*bound.args, **bound.kwargs, program=tuple(arguments[at + 1 :]))
        console = to_console() if not arguments or _HELP.intersection(arguments) else None
        status = app(
            arguments, console=console, exit_on_error=False, print_error=False, verbose=False,
            result_action="return_value",
        )  # fmt: skip
    except CycloptsError as problem:
        verb = f" {asked[0].__name__}" if asked else ""
        if "-" in arguments:
            raise GaplessError(f"'-' is no file here. {_PIPES.get(verb.strip(), 'Name a file.')}") from None
        said = str(problem).strip()
        if isinstance(problem, CoercionError) and problem.target_type is Count and problem.token is not None:
            said = f"{problem.token.keyword} {problem.token.value} is no whole number."
        elif isinstance(problem, UnusedCliTokensError) and asked:
            more = ", ".join(problem.unused_tokens or ())
            said = f"Too much stands there: {more}. Write: gapless{verb} {_TAKES[asked[0]]}"
        raise GaplessError(f"{said}\nSee: gapless{verb} --help") from None
    return status if isinstance(status, int) else DONE


def _ask_for_dashes(app: App, arguments: list[str]) -> None:
    """Refuse a program that stands without ``--`` where its own options would be taken for those of gapless."""
    if arguments[:1] == ["check"]:
        script = next((word for word in arguments if word.endswith(".py")), None)
        if script is not None:
            dry = "--dry " if "--dry" in arguments else ""
            raise GaplessError(f"{script} is a program: write gapless check {dry}-- python {script}")
    if arguments[:1] == ["record"]:
        _, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        if bound.args and tuple(arguments[-len(bound.args) :]) != bound.args:  # options were taken out of it
            raise GaplessError(
                "Write -- before the program, so that its options are its own: gapless record -- python train.py"
            )
