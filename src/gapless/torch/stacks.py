"""Where in the user's program something happens: Python stacks without the frames of torch and of gapless."""

from __future__ import annotations

import ast
import linecache
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeAlias

DEPTH = 12  # frames that are kept of a stack

Stack: TypeAlias = tuple[tuple[CodeType, int], ...]  # innermost frame first: its code and the line

_HERE = str(Path(__file__).parent)
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
        stack = _stacks[key] = tuple(
            (_codes[code], _line(_codes[code], at)) for code, at in zip(key[::2], key[1::2], strict=True)
        )
    return stack


def _line(code: CodeType, at: int) -> int:
    """Give the line of an instruction, by its offset in the code."""
    for first, end, line in code.co_lines():
        if first <= at < end and line is not None:
            return line
    return code.co_firstlineno


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

    def assigned(self, maker: str = "") -> str:
        """Give the name that the line gives to what it makes: ``x`` of ``x = torch.empty(4)``; empty if none.

        Where it makes several, that of what *maker* makes: ``s`` of ``s, e = torch.cuda.Stream(), Event()``.
        """
        try:
            (statement,) = ast.parse(self.text).body
        except (SyntaxError, ValueError):
            return ""
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        value = getattr(statement, "value", None)
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            made = [name for name, part in zip(target.elts, value.elts, strict=True) if _calls(part, maker)]
            target, value = (made[0] if len(made) == 1 else None), None
        return ast.unparse(target) if isinstance(target, ast.Name | ast.Attribute | ast.Subscript) else ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def _calls(part: ast.expr, maker: str) -> bool:
    called = ast.unparse(part.func) if isinstance(part, ast.Call) else ""
    return bool(maker) and called.rpartition(".")[2] == maker


def places(stack: Stack) -> tuple[Place, ...]:
    """Give the lines of a stack, innermost first."""
    return tuple(Place(code.co_filename, line, code.co_name) for code, line in stack)


def place(stack: Stack) -> Place | None:
    """Give the innermost line of a stack."""
    return Place(stack[0][0].co_filename, stack[0][1], stack[0][0].co_name) if stack else None
