"""Where in the user's program something happens: Python stacks without the frames of torch and of gapless."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import TypeAlias

from .sources import line_of

DEPTH = 12  # frames that are kept of a stack

Stack: TypeAlias = tuple[tuple[CodeType, int], ...]  # innermost frame first: its code, the instruction's offset in it

_HERE = str(Path(__file__).parent)
_BETWEEN = frozenset(  # files that hand on what others ask for
    ("stacks", "streams", "pretend", "gpu", "transfers", "stand_ins", "currents", "naming", "watch", "dry", "checks")
)
_left_out: list[str] = [_HERE]
_internal: dict[int, bool] = {}  # by the id of a code object: to hash one takes longer than all the rest
_codes: dict[int, CodeType] = {}  # those that were met, which keeps their ids theirs
_stacks: dict[tuple[int, ...], Stack] = {}  # by ids and instructions: a loop makes the same again and again


def leave_out(folder: str) -> None:
    """Leave frames of code in this folder out of stacks from now on."""
    if folder not in _left_out:
        _left_out.append(folder)
        _internal.clear()


def here() -> Stack:
    """Give the stack of the caller, as far as it is the user's code."""
    frame: FrameType | None = sys._getframe(1)
    frames: list[int] = []
    known = _internal.get
    while frame is not None and len(frames) < 2 * DEPTH:
        code = frame.f_code
        inside = known(id(code))
        if inside is None:
            inside = _internal[id(code)] = _is_internal(code)
            _codes[id(code)] = code
        if not inside:
            frames += (id(code), frame.f_lasti)  # to ask for the line takes longer; it stands in the code
        frame = frame.f_back
    key = tuple(frames)
    stack = _stacks.get(key)
    if stack is None:
        stack = _stacks[key] = tuple((_codes[code], at) for code, at in zip(key[::2], key[1::2], strict=True))
    return stack


def maker() -> str:
    """Give the file of gapless or torch, without the ending, that makes a stream; empty where the program does."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_HERE):
            if (stem := Path(name).stem) not in _BETWEEN:
                return stem
        elif not _is_internal(frame.f_code):
            return ""
        elif name.startswith(tuple(_left_out)) and not name.endswith("streams.py"):
            return Path(name).stem
        frame = frame.f_back
    return ""


def blamed(trace: TracebackType | None) -> Place | None:
    """Give the innermost line of the user's program in a traceback."""
    found: Place | None = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if not _is_internal(code):
            found = Place(code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    return found


def _is_internal(code: CodeType) -> bool:
    name = code.co_filename
    if name.startswith("<frozen") or Path(name).name in ("runpy.py", "threading.py", "contextlib.py", "weakref.py"):
        return True
    return any(name.startswith(folder) for folder in _left_out)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's program."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The line as it stands in the file; empty where it cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def places(stack: Stack) -> tuple[Place, ...]:
    """Give the lines of a stack, innermost first."""
    return tuple(Place(code.co_filename, line_of(code, at), code.co_name) for code, at in stack)


def place(stack: Stack) -> Place | None:
    """Give the innermost line of a stack."""
    return next(iter(places(stack[:1])), None)
