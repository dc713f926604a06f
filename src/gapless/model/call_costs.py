"""What calls cost the thread that makes them: of itself, as measured (section 10), and what a program says of one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import among
from .kinds import CALL, FLAG, CallKind, OpKind
from .machine import interpolate
from .plan_facts import Facts

_BESIDE_CUDA = among(
    CALL.HOST_WORK, CALL.HOST_READ, CALL.HOST_WRITE, CALL.SEND, CALL.RECEIVE, CALL.REUSE,
    CALL.STORE,
)  # fmt: skip
_PLAIN = among(CALL.MALLOC, CALL.FREE)
_WANT_STACK = among(CALL.LAUNCH, CALL.DEVICE_LIMIT)


def host_costs(facts: Facts) -> NDArray[np.int64] | None:
    """Give the host time of each call before it acts, in ps; None where there is none."""
    machine, call = facts.machine, facts.call
    in_cuda = ~_BESIDE_CUDA[call]
    if machine.call_cost == "measured":
        cost = _measured(facts, machine.call_costs)
        if machine.staging_curve:
            by_call = facts.pageable & facts.h2d & (facts.small | ~facts.sync) & (facts.size <= facts.staged_size)
            by_call &= facts.staged_machine
            cost[by_call] += machine.time_of("staging_curve", facts.bytes[by_call])  # R3.12
    else:
        cost = np.where(in_cuda, np.int64(machine.call_cost), 0)
    cost[call == CALL.LAUNCH] = machine.launch_cost
    cost[facts.batched] = 0  # R3.9: no calls of their own
    given = facts.rows.cost >= 0
    cost[given] = facts.rows.cost[given]
    cost[~in_cuda] = 0
    work = call == CALL.HOST_WORK
    cost[work] = np.maximum(facts.rows.duration[work], 0)
    return cost if cost.any() else None


def late_costs(facts: Facts) -> NDArray[np.int64]:
    """Give the host time of each call after its waiting, in ps."""
    if facts.machine.call_cost != "measured":
        return np.zeros(len(facts.call), np.int64)
    late = _measured(facts, facts.machine.late_costs)
    calls = _WANT_STACK[facts.call]
    late[calls & ~facts.has(FLAG.MORE_STACK)] = 0
    late[(facts.rows.flags & FLAG.POOL) != 0] = 0
    late[facts.rows.cost >= 0] = 0  # whoever gives a call's cost gives all of it
    return late


def _measured(facts: Facts, table: Any) -> NDArray[np.int64]:
    cost = np.zeros(len(facts.call), np.int64)
    for kind in np.unique(facts.call).tolist():
        of_kind = facts.call == kind
        _entry(facts, cost, of_kind, table, CallKind(kind).name.lower())
        if kind in (CALL.COPY_ASYNC, CALL.COPY_SYNC):
            for op in np.unique(facts.op[of_kind]).tolist():
                name = f"{CallKind(kind).name.lower()}_{OpKind(op).name.lower()}"
                _entry(facts, cost, of_kind & (facts.op == op), table, name)
    if "batch" not in table:  # R3.9: not measured; as one copy costs
        _entry(facts, cost, facts.call == CALL.BATCH, table, "copy_async")
    _entry(facts, cost, (facts.call == CALL.RECORD) & facts.has(FLAG.UNTIMED), table, "record_untimed")
    _entry(facts, cost, (facts.call == CALL.MALLOC_ASYNC) & facts.has(FLAG.FIRST), table, "malloc_async_first")
    pooled = _from_live_pool(facts) if "malloc_pooled" in table or "free_pooled" in table else None
    if pooled is not None:
        _entry(facts, cost, (facts.call == CALL.MALLOC) & pooled, table, "malloc_pooled")
        _entry(facts, cost, (facts.call == CALL.FREE) & pooled, table, "free_pooled")
    return cost


def _entry(facts: Facts, cost: NDArray[np.int64], rows: NDArray[np.bool_], table: Any, name: str) -> None:
    entry = table.get(name)
    if entry is None or not rows.any():
        return
    if isinstance(entry, tuple):
        cost[rows] = interpolate(entry, np.maximum(facts.bytes[rows], 0))
    else:
        cost[rows] = round(entry * 1000)


def _from_live_pool(facts: Facts) -> NDArray[np.bool_]:
    """Small blocks share a pool: cheap to take and give back while another small block is allocated (section 4)."""
    pooled, live = np.zeros(len(facts.call), np.bool_), set[int]()
    rows = np.flatnonzero(_PLAIN[facts.call] & (facts.size <= 1 << 20))
    for row in rows.tolist():
        buffer = int(facts.rows.object[row])
        live.discard(buffer)
        pooled[row] = bool(live)
        if facts.call[row] == CALL.MALLOC:
            live.add(buffer)
    return pooled
