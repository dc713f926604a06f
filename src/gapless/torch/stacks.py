"""Where in the user's program something happens: Python stacks without the frames of torch and of gapless."""

from __future__ import annotations

import linecache
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeAlias

DEPTH = 12  # frames that are kept of a stack

Stack: TypeAlias = tuple[tuple[CodeType, int], ...]  # innermost frame first: its code and the line

_HERE = str(Path(__file__).parent)
_ASSIGNED = re.compile(r"^\s*([A-Za-z_][\w.]*(?:\[[^\]=]*\])?)\s*(?::[^=]+)?=(?!=)")
_internal: dict[CodeType, bool] = {}
_left_out: list[str] = [_HERE]


def leave_out(folder: str) -> None:
    """Leave frames of code in this folder out of stacks from now on."""
    if folder not in _left_out:
        _left_out.append(folder)
        _internal.clear()


def here() -> Stack:
    """Give the stack of the caller, as far as it is the user's code."""
    frame: FrameType | None = sys._getframe(1)
    frames: list[tuple[CodeType, int]] = []
    while frame is not None and len(frames) < DEPTH:
        code = frame.f_code
        inside = _internal.get(code)
        if inside is None:
            inside = _internal[code] = _is_internal(code)
        if not inside:
            frames.append((code, frame.f_lineno))
        frame = frame.f_back
    return tuple(frames)


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

    @property
    def assigned(self) -> str:
        """The name that the line gives to what it makes: ``x`` of ``x = torch.empty(4)``; empty if none."""
        found = _ASSIGNED.match(linecache.getline(self.file, self.line))
        return found.group(1) if found else ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def places(stack: Stack) -> tuple[Place, ...]:
    """Give the lines of a stack, innermost first."""
    return tuple(Place(code.co_filename, line, code.co_name) for code, line in stack)


def place(stack: Stack) -> Place | None:
    """Give the innermost line of a stack."""
    return Place(stack[0][0].co_filename, stack[0][1], stack[0][0].co_name) if stack else None
