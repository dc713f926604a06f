"""What a stream of the program is, and what it is called."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gapless.model.kinds import StreamKind

from .sources import given_name, is_returned
from .stacks import Stack, here, maker, place

_OURS = {"ring": "prefetch", "results": "to_host"}  # which file of gapless makes streams for what


@dataclass(frozen=True, slots=True)
class Made:
    """How a stream came to be: the line, the name that it gives, or which part of gapless made it."""

    stack: Stack = ()  # from the frame on that gives the name
    variable: str = ""
    ours: str = ""  # "prefetch", "to_host"
    external: bool = False

    def again(self, made: Made) -> Made:
        """Give what is known when the stream is handed out again: of two names none means it for sure."""
        same = (self.variable, self.stack[:1]) == (made.variable, made.stack[:1])
        return self if same else replace(self, variable="")

    def said(self, otherwise: str) -> str:
        """Say which stream it is."""
        if self.ours:
            return f"the stream that {self.ours} copies on"
        made = place(self.stack)
        if self.variable or made is None:
            return self.variable or otherwise
        return f"{'an external stream' if self.external else 'a stream'} made at {made}"


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of the program: what it is called, its kind (section 1), its device."""

    name: str
    kind: StreamKind
    device: int = 0
    made: Made = Made()


def another(name: str) -> str:
    """Call the second of two streams that one name means."""
    return f"{name} (another)"


def being_made(*, external: bool = False) -> Made:
    """Say how the stream that is being made comes to be."""
    stack = here()
    by = maker()
    if ours := _OURS.get(by, ""):
        return Made(stack, ours=ours, external=external)
    named = named_by(stack) if not by else None  # torch's own names nothing of the program
    return Made(named[0], named[1], external=external) if named else Made(stack, external=external)


def named_by(stack: Stack) -> tuple[Stack, str] | None:
    """Give the name that a line gives to what is made there, and the stack from that line on.

    That is the innermost line, or one further out to which what was made is returned.
    """
    while stack:
        code, at = stack[0]
        if name := given_name(code, at):
            return stack, name
        if not is_returned(code, at):
            return None
        stack = stack[1:]
    return None
