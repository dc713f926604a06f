"""Host waits in the loop go, or become events; the last one stays.

Safe when nothing that the host reads or overwrites relies on the wait; where it does, an event takes its place. Where
the wait handed data from one stream to another, the prediction holds an event and a stream's wait instead. A value that
the host fetches is fetched asynchronously and read later.
"""

from __future__ import annotations

from dataclasses import replace

from gapless.model.kinds import CallKind, MemoryKind

from ..flow import needs, next_in_other_stream, with_waits
from ..script import Act, Script
from . import Shop

TAKES_VALUE = False
IDLE = "the host waits nowhere between the launches"


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Leave out the synchronise calls that are followed by more work, and let small downloads not block."""
    last = script.last_operation()
    dropped = {i for i, act in enumerate(script.acts) if act.synchronises and i < last}
    acts = [_quiet(act) if i < last else act for i, act in enumerate(script.acts)]
    quiet = {i for i, act in enumerate(script.acts) if act is not acts[i]}
    if not dropped and not quiet:
        return script
    ordered = with_waits(script.with_acts(acts), _handed_over(script, dropped | quiet))
    last = ordered.last_operation()
    return ordered.without(i for i, act in enumerate(ordered.acts) if act.synchronises and i < last)


def _handed_over(script: Script, freed: set[int]) -> set[tuple[int, int]]:
    """Find the pairs of operations between which a host wait handed data from one stream to another."""
    found: set[tuple[int, int]] = set()
    following = next_in_other_stream(script)
    of_thread: dict[int, int] = {}
    of_stream: dict[tuple[int, int], int] = {}
    for i, act in enumerate(script.acts):
        if act.works:
            of_thread[act.thread] = of_stream[act.thread, act.stream] = i
        if i not in freed:
            continue
        known = act.stream >= 0 and act.call != CallKind.SYNC_DEVICE
        before = of_stream.get((act.thread, act.stream), -1) if known else of_thread.get(act.thread, -1)
        after = following.get(before, -1)
        if before >= 0 and after > i and needs(script.acts[after], script.acts[before]):
            found.add((before, after))
    return found


def _quiet(act: Act) -> Act:
    if act.pageable and act.reads_back:
        return replace(act, dst=MemoryKind.PINNED, waited=False, post=0)
    if act.call == CallKind.COPY_SYNC and not act.pageable:
        return replace(act, call=CallKind.COPY_ASYNC, waited=False, post=0)
    return act
