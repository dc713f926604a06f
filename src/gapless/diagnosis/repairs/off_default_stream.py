"""The default stream's fence goes: the streams become non-blocking, the forgotten operation keeps its own order.

Safe when no stream relies on the fence for its order; where one does, an event and a wait take its place. Where data
seem to pass between the default stream and another one (an upload on one, its kernel on the other), the prediction
holds these waits, and the copy is the asynchronous one. A small synchronous copy on the default stream still keeps the
host until it is done itself.
"""

from __future__ import annotations

from dataclasses import replace

from gapless.model.kinds import CallKind, OpKind

from ..flow import needs, next_in_other_stream, with_waits
from ..script import READ_BACK, Act, Script
from . import Shop

TAKES_VALUE = False
IDLE = "nothing runs on the legacy default stream"
_COPY = 2_000  # ns: own cost of cudaMemcpyAsync from pinned memory
_SYNCHRONOUS_COPY = 3_500  # ns: own cost of a small cudaMemcpy that waits for nothing else (H200)


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Make all created streams non-blocking; where data pass between them and the default stream, let events order."""
    legacy = script.legacy
    if not any(act.stream in legacy for act in script.acts if act.works):
        return script
    acts = [_freed(act) if act.stream in legacy else act for act in script.acts]
    following = next_in_other_stream(script)
    pairs = [(i, after) for i, after in following.items()
             if script.acts[i].works and _is_work(acts[i]) and _is_work(acts[after])
             and (acts[i].stream in legacy) != (acts[after].stream in legacy)
             and needs(acts[after], acts[i])]  # fmt: skip
    return replace(with_waits(script.with_acts(acts), sorted(pairs)), non_blocking=True)


def _is_work(act: Act) -> bool:
    """Tell whether it is more than the copy of a value of a few bytes, which is on the default stream by oversight."""
    return act.op not in (OpKind.H2D, OpKind.D2H) or act.bytes > READ_BACK


def _freed(act: Act) -> Act:
    if act.call != CallKind.COPY_SYNC or not act.waited:
        return act
    if act.bytes > READ_BACK and not act.pageable:
        return replace(act, call=CallKind.COPY_ASYNC, cost=_COPY, waited=False, post=0)
    return replace(act, cost=max(act.cost, _SYNCHRONOUS_COPY))
