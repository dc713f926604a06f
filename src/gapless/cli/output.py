"""What is printed, and where: text, JSON, complaints, the progress of a long read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.model.errors import DeadlockError, GaplessError

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST = 40  # columns; below, figures would be cut. A terminal that does not know its width says 0.


@contextmanager
def blaming_itself(path: Path, verb: str) -> Iterator[None]:
    """Say of a fault that it is gapless's own, and how to report it."""
    try:
        yield
    except DeadlockError as problem:
        raise DeadlockError(problem.calls, problem.rows, name=str(path)) from None
    except GaplessError:
        raise
    except OSError as problem:
        raise GaplessError(f"{path} cannot be read: {problem.strerror or problem}") from None
    except MemoryError:
        raise GaplessError(f"{path} takes more memory than there is.") from None
    except Exception as fault:
        if sys.flags.dev_mode:
            raise
        what = "timeline" if verb == "explain" else "tape"
        raise GaplessError(
            f"{path}: gapless itself failed on this {what} ({type(fault).__name__}: {fault}).\nPlease report it with "
            f"what this shows: python -X dev -m gapless {verb} {path}"
        ) from fault


@contextmanager
def progress_of(path: Path, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Give what shows a long read on standard error, where that is a terminal, and leaves nothing behind."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from time import monotonic

    began, bar = monotonic(), None

    def advance(done: int, whole: int) -> None:
        nonlocal bar
        if bar is None and monotonic() - began > 0.3 and done < whole // 2:
            bar = _bar(path.name, whole)
            bar.start()
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def _bar(name: str, whole: int) -> Any:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from gapless.views.wording import shorten, visible

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(escape(shorten(visible(name), 40)), total=whole)
    return bar


def to_console() -> Console:
    """Give the console that lines are drawn for; at least ``NARROWEST`` columns wide."""
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:  # its own ends the process with a status of its own
            raise BrokenPipeError

    console = Ours(highlight=False, markup=False, emoji=False)
    console.width = max(console.width, NARROWEST)
    return console


def drawn(console: Console, lines: Iterator[Any]) -> str:
    """Give lines as text with the escapes that this output understands."""
    with console.capture() as capture:
        for line in lines:
            console.print(line, soft_wrap=True)
    return capture.get().rstrip("\n")


def write(text: str) -> None:
    """Print *text* and a line break on standard output, in ASCII where that is all it takes."""
    from gapless.views.wording import in_ascii

    utf8 = (sys.stdout.encoding or "utf-8").lower().replace("-", "").startswith("utf")
    sys.stdout.write((text if utf8 else in_ascii(text)) + "\n")


def say_written(text: str, path: Path) -> None:
    """Say what was written, where it does not get into it."""
    from gapless.timeline.sinks.files import is_standard_output

    (complain if is_standard_output(path) else write)(text)


def complain(message: str) -> None:
    """Print a message of the user's concern on standard error; whatever it quotes shows as what it is."""
    from gapless.views.wording import visible

    lines = [visible(line) for line in message.split("\n")]
    if sys.stderr is None:
        return
    try:
        print("gapless: " + "\n         ".join(lines), file=sys.stderr)
    except (OSError, ValueError):  # nowhere to say it; the exit status still does
        return


def abandon_output() -> None:
    """Drop what is still to be written, so that the interpreter does not fail on it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def json_of(values: dict[str, Any]) -> str:
    """Give *values* as JSON on one line; numbers that JSON cannot hold are null."""
    import json

    return json.dumps(_finite(values), allow_nan=False, default=_plain)


def _finite(value: Any) -> Any:
    """Give plain values in which null stands for every number that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value


def _plain(value: Any) -> Any:
    """Give NumPy's numbers as Python's."""
    return value.item()
