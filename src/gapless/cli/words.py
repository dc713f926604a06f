"""Words of which the help says what they are: TIME, not STR; and the exit statuses."""

from __future__ import annotations

DONE, FAILED, WRONG, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141  # the last two as shells report signals


class Time(str):
    """A time."""


class Size(str):
    """A number of bytes."""


class Name(str):
    """The name of a range."""


class Span(str):
    """Steps from a to b."""


class Slug(str):
    """The name of a cause."""


class Run(str):
    """One of the runs that exploring tells of."""


class Profile(str):
    """A machine: a profile or a file, and knobs."""


class Count(int):
    """A whole number; 4.5 is none."""


class Repair(str):
    """A repair, and its value where it takes one."""


class Condition(str):
    """What a report must hold."""


class Format(str):
    """A format of files for other tools."""
