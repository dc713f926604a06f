"""The inputs of the next K steps are copied ahead, on a copy stream of their own.

Safe with K + 1 input buffers: a kernel waits for its input's event, and a copy into a buffer waits for the last kernel
that read it. Both waits are in the prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gapless.model.kinds import CallKind, OpKind

from ..chunks import chunks_of
from ..flow import RECORD_COST, WAIT_COST
from ..script import NEW_STREAM, Act, Script
from . import Shop

TAKES_VALUE = True
IDLE = "there are no two steps that each copy something in for a kernel"
COPY_STREAM = NEW_STREAM + 4096


def apply(script: Script, value: int, shop: Shop) -> Script:
    """Copy the inputs of each step *value* steps ahead."""
    chunk, acts = chunks_of(script), script.acts
    copies: dict[int, list[int]] = {}
    kernels: dict[int, list[int]] = {}
    for i, number in sorted(chunk.items()):
        where = copies if acts[i].op == OpKind.H2D else kernels if acts[i].op in (OpKind.KERNEL, OpKind.D2D) else None
        if where is not None:
            where.setdefault(number, []).append(i)
    steps = [number for number in sorted(copies) if number in kernels]
    if len(steps) < 2:
        return script
    place = {number: position for position, number in enumerate(steps)}
    ready = {number: script.events + 2 * place[number] for number in steps}
    done = {number: script.events + 2 * place[number] + 1 for number in steps}
    first_copy = {copies[number][0]: number for number in steps}
    first_kernel = {kernels[number][0]: number for number in steps}
    last_kernel = {kernels[number][-1]: number for number in steps}
    riders = _riders(acts, {i for number in steps for i in copies[number]})
    moved = {i for number in steps for copy in copies[number] for i in (copy, *riders[copy])}
    new: list[Act] = []

    def copy(number: int) -> None:
        behind = place[number] - value - 1
        thread = acts[copies[number][0]].thread
        if behind >= 0:
            new.append(_event(CallKind.WAIT_EVENT, thread, COPY_STREAM, done[steps[behind]]))
        new.extend(replace(acts[i], stream=COPY_STREAM) for c in copies[number] for i in (c, *riders[c]))
        new.append(_event(CallKind.RECORD, thread, COPY_STREAM, ready[number]))

    for number in steps[:value]:
        copy(number)
    for i, act in enumerate(acts):
        if i in first_copy and place[first_copy[i]] + value < len(steps):
            copy(steps[place[first_copy[i]] + value])
        if i in moved:
            continue
        if i in first_kernel:
            new.append(_event(CallKind.WAIT_EVENT, act.thread, act.stream, ready[first_kernel[i]]))
        new.append(act)
        if i in last_kernel:
            new.append(_event(CallKind.RECORD, act.thread, act.stream, done[last_kernel[i]]))
    return replace(script.with_acts(new), events=script.events + 2 * len(steps))


def _riders(acts: Sequence[Act], copies: set[int]) -> dict[int, list[int]]:
    """Give for each copy the records of events right behind it in its stream, which move with it."""
    found: dict[int, list[int]] = {i: [] for i in copies}
    last: dict[int, int] = {}
    for i, act in enumerate(acts):
        if act.op == OpKind.RECORD and last.get(act.stream, -1) in copies:
            found[last[act.stream]].append(i)
        elif act.works:
            last[act.stream] = i
    return found


def _event(call: CallKind, thread: int, stream: int, event: int) -> Act:
    record = call is CallKind.RECORD
    return Act(thread=thread, gap=0, call=call, cost=RECORD_COST if record else WAIT_COST,
               op=OpKind.RECORD if record else OpKind.WAIT, stream=stream, event=event)  # fmt: skip
