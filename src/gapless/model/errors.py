"""The error that tells a user what is wrong with the input or the call, where, and what to do."""

from __future__ import annotations


class GaplessError(ValueError):
    """Bad input or a bad call. The message is one or a few plain sentences; the command prints it and exits with 2."""


class DeadlockError(GaplessError):
    """Host threads that wait for each other for ever, found when a program runs; the command exits with 1.

    ``rows`` are the calls in which they stand; *name* is the tape's, where it has one.
    """

    def __init__(self, calls: list[str], rows: list[int], *, name: str = "") -> None:
        super().__init__(f"{name and name + ': '}deadlock: these calls wait for ever: {'; '.join(calls)}")
        self.calls = calls
        self.rows = rows
