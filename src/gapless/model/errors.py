"""The error that tells a user what is wrong with the input or the call, where, and what to do."""

from __future__ import annotations


class GaplessError(ValueError):
    """Bad input or a bad call. The message is one or a few plain sentences; the command prints it and exits with 2."""
