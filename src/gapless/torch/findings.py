"""What a check of a PyTorch program found, and what it could not look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .advice import Advice
from .causes import Cause
from .stacks import Place


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two accesses: the operation, its stream (``host`` for the host), what it does, where."""

    name: str
    stream: str
    does: str
    stack: tuple[Place, ...]

    @property
    def place(self) -> Place | None:
        """The innermost line of the user's program."""
        return self.stack[0] if self.stack else None

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain values."""
        return {"operation": self.name, "stream": self.stream, "does": self.does, "stack": _stack(self.stack)}

    def __str__(self) -> str:
        where = f" at {self.place}" if self.place else ""
        by = "the host" if self.stream == "host" else f"{self.name} on {self.stream}"
        return f"{by} {self.does} it{where}"


@dataclass(slots=True)
class Finding:
    """Two accesses to the same bytes that nothing puts in order, and what to do about it.

    ``error`` is False where the documentation is broken but today's drivers hide it. ``allocated`` is where the memory
    was allocated, ``first_used`` where it was first met, if that was not seen. A line to add belongs into the same
    ``with`` block as what stands there. One finding stands for all that the same lines do.
    """

    cause: Cause
    error: bool
    first: Side
    second: Side
    buffer: str
    allocated: tuple[Place, ...]
    first_used: tuple[Place, ...]
    owner: str
    released: tuple[Place, ...]
    advice: Advice

    @property
    def key(self) -> tuple[object, ...]:
        """What alike findings have in common."""
        second = self.second.place if self.cause is not Cause.MISSING_WAIT else None
        return (
            self.cause,
            self.error,
            self.first.place,
            self.first.stream,
            self.second.stream,
            second,
            self.allocated[:1] or self.first_used[:1],
        )

    def to_dict(self) -> dict[str, Any]:
        """Give the finding as plain values: the form of the JSON."""
        add, where = self.advice, self.advice.where
        return {
            "cause": self.cause.slug,
            "class": "error" if self.error else "warning",
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
            "buffer": {"is": self.buffer, "stream": self.owner or None, "allocated": _stack(self.allocated),
                       "first_used": _stack(self.first_used), "released": _stack(self.released)},
            "add": {"line": add.line or None, "place": ("before" if add.before else "after") if where else None,
                    "file": where.file if where else None, "at": where.line if where else None},
            "do": add.words or None,
        }  # fmt: skip

    def __str__(self) -> str:
        said = f"{self.cause.slug}: {self.buffer} is {self.cause.words}: {self.first}, {self.second}"
        return f"{said}. To repair: {self.advice}"


@dataclass(slots=True)
class Checked:
    """What a check found. ``notes``: what was not checked, or made up in a dry run, and where.

    ``ok`` says that there is no error; it says nothing about what ``notes`` lists.
    """

    findings: list[Finding] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=dict)
    operations: int = 0
    streams: list[str] = field(default_factory=list)
    dry: bool = False

    @property
    def ok(self) -> bool:
        """Whether no error was found."""
        return not any(finding.error for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Give what was found as plain values: the form of the JSON."""
        return {
            "version": 1,
            "dry": self.dry,
            "operations": self.operations,
            "streams": self.streams,
            "findings": [finding.to_dict() for finding in self.findings],
            "unchecked": [{"what": what, "where": where} for what, where in self.notes.items()],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Checked:
        """Give what ``to_dict`` wrote down."""
        findings = [
            Finding(
                Cause.of(one["cause"]), one["class"] == "error", _side(one["first"]), _side(one["second"]),
                one["buffer"]["is"], _places(one["buffer"]["allocated"]), _places(one["buffer"]["first_used"]),
                one["buffer"]["stream"] or "", _places(one["buffer"]["released"]), _advice(one["add"], one["do"]),
            )
            for one in values["findings"]
        ]  # fmt: skip
        notes = {one["what"]: one["where"] for one in values["unchecked"]}
        return cls(findings, notes, values["operations"], values["streams"], values["dry"])

    def __str__(self) -> str:
        seen = f"{self.operations:,} operation{'s' * (self.operations != 1)}"
        lines = [str(finding) for finding in self.findings] or [f"No race in {seen}."]
        lines += [
            f"unchecked: {what}" + (f" ({', '.join(where[:3])})" if where else "") for what, where in self.notes.items()
        ]
        return "\n".join(lines)


def _stack(stack: tuple[Place, ...]) -> list[dict[str, Any]]:
    return [{"file": place.file, "line": place.line, "function": place.function, "text": place.text} for place in stack]


def _places(stack: list[dict[str, Any]]) -> tuple[Place, ...]:
    return tuple(Place(one["file"], one["line"], one["function"]) for one in stack)


def _side(values: dict[str, Any]) -> Side:
    return Side(values["operation"], values["stream"], values["does"], _places(values["stack"]))


def _advice(add: dict[str, Any], words: str | None) -> Advice:
    where = Place(add["file"], add["at"], "") if add["file"] else None
    return Advice(add["line"] or "", where, add["place"] != "after", words or "")
