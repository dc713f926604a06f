"""The start of a run that is none of its loop: first uses, compiling, loading, before next to any work is done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.model.kinds import OpKind
from gapless.timeline.measure import complement, device_window, total, union

from .host import FirstUses
from .words import ms
from .work import Work

WARM_UP = 0.1  # of the window: a start this long distorts the whole
DOMINATES = 0.5  # of the window: of a run with such a start the rest must be looked at alone
NEXT_TO_NONE = 0.05  # of the device's work: what start-up may hold of it


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """From the window's begin up to ``end``, in words, and how much of that is start-up."""

    text: str
    end: int  # ns on the timeline's clock
    option: str  # that leaves it out
    dominates: bool


def start_up(work: Work, first: FirstUses) -> StartUp | None:
    """Find a start that distorts the whole: first uses, or long gaps before the first kernel or next to any work.

    None in a window that begins later than the timeline: there the start is over.
    """
    if work.start > device_window(work.timeline, work.device)[0]:
        return None
    return _first_uses(work, first) or _idle(work)


def _first_uses(work: Work, first: FirstUses) -> StartUp | None:
    wall = work.end - work.start
    spent = int((first.end - np.maximum(first.start, work.start)).clip(0).sum())
    end = int(work.calls.end[first.call].max(initial=work.start))
    length = end - work.start
    if spent <= WARM_UP * wall or length >= (1 - WARM_UP) * wall:
        return None
    return StartUp(
        text=f"Of the first {ms(length)}, {ms(spent)} are first uses (loading kernels, setting up libraries). Look at "
        f"what comes after with {(option := _from(work, end, later=True))}.",
        end=end,
        option=option,
        dominates=spent >= DOMINATES * wall,
    )


def _idle(work: Work) -> StartUp | None:
    ops, wall = work.ops, work.end - work.start
    busy = union(ops.start, ops.end)
    gaps = complement(busy, work.start, work.end)
    done = np.concatenate(([0], np.cumsum(busy[:, 1] - busy[:, 0])))
    before = done[np.searchsorted(busy[:, 1], gaps[:, 0], side="right")]
    first_kernel = ops.start[ops.kind == OpKind.KERNEL].min(initial=work.end)
    early = (before <= NEXT_TO_NONE * total(busy)) | ((gaps[:, 1] <= first_kernel) & (first_kernel < work.end))
    found = np.flatnonzero((gaps[:, 1] - gaps[:, 0] > WARM_UP * wall) & early)
    if not len(found):
        return None
    end = int(gaps[found[-1], 1])
    length = end - work.start
    return StartUp(
        text=f"The first {ms(length)} ({length / wall:.0%}) are start-up: the device works "
        f"{ms(int(before[found[-1]]))} in them. Look at the rest with {(option := _from(work, end, later=False))}.",
        end=end,
        option=option,
        dominates=length >= DOMINATES * wall,
    )


def _from(work: Work, since: int, *, later: bool) -> str:
    """Give the option that leaves out what lies before *since*, ns on the timeline's clock, with at most four digits.

    Rounded to *later* it leaves out all that comes before, else nothing of what comes after.
    """
    passed = since - device_window(work.timeline, work.device)[0]
    step = 10 ** max(len(str(passed)) - 4, 0)
    rounded = -(-passed // step) * step if later else passed // step * step
    return f"--from {rounded / 1e6:.6g}ms"


__all__ = ["StartUp", "start_up"]
