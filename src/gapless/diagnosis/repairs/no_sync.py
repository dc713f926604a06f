"""Host waits in the loop go, or become events; the last one stays.

Safe when nothing that the host reads or overwrites relies on the wait; where it does, an event takes its place. A value
that the host fetches is fetched asynchronously and read later.
"""

from __future__ import annotations

from dataclasses import replace

from gapless.model.kinds import CallKind, MemoryKind

from ..script import Act, Script
from . import Shop

TAKES_VALUE = False


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Leave out the synchronise calls that are followed by more work, and let small downloads not block."""
    last = script.last_operation()
    quiet = script.with_acts(_quiet(act) if i < last else act for i, act in enumerate(script.acts))
    return quiet.without(i for i, act in enumerate(script.acts) if act.synchronises and i < last)


def _quiet(act: Act) -> Act:
    if act.pageable and act.reads_back:
        return replace(act, dst=MemoryKind.PINNED, waited=False, post=0)
    if act.call == CallKind.COPY_SYNC and not act.pageable:
        return replace(act, call=CallKind.COPY_ASYNC, waited=False, post=0)
    return act
