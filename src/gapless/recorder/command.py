"""Run a program with the recorder in it, and say what came of it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gapless.model.errors import GaplessError
from gapless.recorder import blocks, names, symbols
from gapless.recorder.child import Child
from gapless.recorder.library import find_cupti, find_library, missing_driver, version
from gapless.timeline.sources.recording_format import Block

_PROFILERS = ("nsys", "ncu", "nvprof", "compute-sanitizer", "cuda-gdb")
_SMALLEST, _LARGEST = 1 << 20, 1 << 62  # bytes: less holds no recording, more fits in no file
_LONGEST = 10_000_000  # seconds, some months


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to record of a program. Times in seconds from its first use of CUDA; 0: from the start, to the end."""

    after: float = 0.0
    seconds: float = 0.0
    range: str = ""  # record only the first NVTX range of this name
    max_size: int = 0  # bytes of the file; 0: no limit
    lines: bool = True  # source lines of calls
    addresses: bool = False  # which memory calls touch


def file_name(command: Sequence[str], folder: Path) -> Path:
    """Give a name for the recording of *command* that is not taken: the program's, with a number if need be."""
    script = next((word for word in command[1:] if word.endswith((".py", ".pyc"))), command[0])
    stem = Path(script).stem or "program"
    path, number = folder / f"{stem}.gapless", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}.gapless"
    return path


def record_command(command: Sequence[str], path: Path, settings: Settings, *, force: bool = False) -> tuple[int, str]:
    """Run *command* and record it into *path*. Gives the status that a shell would, and what to say of the recording.

    128 + n is the status where signal n ended it. The program gets the terminal's signals as it would alone; the
    recording is what was written until it ended. Where that is nothing no file is kept, and an older one comes back;
    where the program put something else there, that stays.
    Raises GaplessError before anything runs: no such program, no CUPTI, another profiler in its place, a file that is
    there.
    """
    program = check(command, settings)
    environment = traced_environment(path, settings, os.environ)
    with blocks.made(path, force=force, settles=False) as ours:
        try:
            child = Child(command, environment, program=program)
        except OSError as problem:
            raise GaplessError(f"{command[0]} cannot be run: {problem.strerror}") from None
    is_empty = False
    try:
        status = child.wait()
        ended = {"status": status, "signal": None} if status >= 0 else {"status": None, "signal": -status}
        with suppress(OSError):  # the disk is full, or a limit reached: the recording is what it is
            if ours.is_there():
                symbols.resolve(path)
                names.demangle(path)
                blocks.append_json(path, Block.END, ended)
        said, is_empty = _outcome(path, ours, "check" if settings.addresses else "explain")
    finally:
        with suppress(OSError):
            ours.drop() if is_empty else ours.keep()
    return status if status >= 0 else 128 - status, said


def check(command: Sequence[str], settings: Settings) -> str:
    """Give the program's path. Raises GaplessError for what can be known to fail before it runs."""
    if not command:
        raise GaplessError("There is no program to record: gapless record -- python train.py")
    if Path(command[0]).name in _PROFILERS:
        raise GaplessError(
            f"{command[0]} is a profiler or debugger itself, and only one can watch CUDA at a time: give the program "
            "alone."
        )
    for name in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        if held := os.environ.get(name):
            raise GaplessError(
                f"{name} is set ({held}): another tool watches the programs that start here, and only one can. Record "
                f"outside of it, or unset {name}."
            )
    if settings.max_size and settings.max_size < _SMALLEST:
        raise GaplessError(f"--max-size {settings.max_size} bytes hold no recording: give 1MiB or more.")
    if not all(0 <= seconds <= _LONGEST for seconds in (settings.after, settings.seconds)):
        raise GaplessError(f"--after and --for are seconds, from 0 to {_LONGEST:,}.")
    if settings.range and settings.after:
        raise GaplessError(
            "--range and --after exclude each other: a recording begins with the range, or at that time."
        )
    if settings.max_size > _LARGEST:
        raise GaplessError("--max-size is more than any file can hold.")
    program = shutil.which(command[0])
    if program is None:
        raise GaplessError(_no_program(command[0]))
    return program


def _no_program(name: str) -> str:
    """Say why what stands behind -- cannot be started."""
    file = Path(name)
    if os.sep in name and file.is_dir():
        return f"{name} is a directory, not a program."
    if not file.is_file():
        return f"There is no program {name}."
    if file.suffix == ".py":
        return f"{name} is run by Python: gapless record -- python {name}"
    if os.sep not in name and os.access(file, os.X_OK):
        return f"There is no program {name} on the PATH. The one here is ./{name}."
    return f"{name} is no program: the file is there, and may not be executed (chmod +x makes it executable)."


def traced_environment(path: Path, settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """Give the environment in which CUDA loads the recorder. Raises GaplessError where it or CUPTI cannot be had."""
    cupti = str(find_cupti().resolve())
    return {
        **environment,
        "CUDA_INJECTION64_PATH": str(find_library()),
        "NVTX_INJECTION64_PATH": cupti,
        "GAPLESS_RECORD_FILE": os.path.realpath(path),
        "GAPLESS_RECORD_CUPTI": cupti,
        "GAPLESS_RECORD_VERSION": version(),
        "GAPLESS_RECORD_AFTER": repr(settings.after),
        "GAPLESS_RECORD_FOR": repr(settings.seconds),
        "GAPLESS_RECORD_RANGE": settings.range,
        "GAPLESS_RECORD_MAX_SIZE": str(settings.max_size),
        "GAPLESS_RECORD_LINES": "1" if settings.lines else "0",
        "GAPLESS_RECORD_ADDRESSES": "1" if settings.addresses else "0",
    }


def _outcome(path: Path, ours: blocks.Made, verb: str) -> tuple[str, bool]:
    """Give what to say of a recording whose program has ended, and whether there is nothing in it, or nothing of it.

    *verb*: the command that reads what was asked for.
    """
    if replaced := _replaced(path, ours):
        return replaced, False
    try:
        found = blocks.content(path)
        size = path.stat().st_size
    except OSError as problem:
        said = f"The recording {path} cannot be read any more: {problem.strerror}. Did the program remove it?"
        return said, isinstance(problem, FileNotFoundError)
    return _summary(path, found, size, verb), not found.started and not found.notes


def _replaced(path: Path, ours: blocks.Made) -> str:
    """Say that something else stands where the recording was; nothing where it is there, or nothing is."""
    try:
        if ours.is_there():
            return ""
    except OSError:
        return ""
    older = f" The recording that was there before is {ours.older}." if ours.older else ""
    return (
        f"The program replaced {path}, where its recording was: what is there now is left as it is, and there is no "
        f"recording.{older}"
    )


def _summary(path: Path, found: blocks.Content, size: int, verb: str) -> str:
    """Say in a few lines what is in the recording, what is missing, and what to type next."""
    if not found.started:
        why = found.notes or ["The program did not use CUDA, or ended before CUDA had started.", missing_driver()]
        return f"No GPU activity was recorded. {' '.join(why)}".rstrip()
    processes = len(found.started)
    lines = [f"{path}: {found.records:,} records of {processes} process{'es' * (processes > 1)}, {size / 1e6:,.1f} MB"]
    lines += found.notes
    if found.dropped:
        lines.append(f"{found.dropped:,} records were lost: CUPTI had no room for them.")
    if open_ends := len([process for process in found.started if process not in found.ended]):
        lines.append(
            f"{open_ends} process{'es' * (open_ends > 1)} ended without closing the recording (crash, kill, _exit): "
            "what came after the last flush is missing."
        )
    reasons = set(found.ended.values())
    for reason, text in (
        ("max-size", "The recording stopped at --max-size."),
        ("file-full", "The recording stopped: its file could not grow any further (disk full, or a limit)."),
    ):
        if reason in reasons:
            lines.append(text)
    return "\n".join([*lines, f"Next: gapless {verb} {shlex.quote(str(path))}"])
