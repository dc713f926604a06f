"""Plans of streams: how large packs and shared chunks are, and who stages batches as they come.

A stream's batches are not the plan's to cut. What it is likely to bring is told by its first batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .cpus import usable
from .devices import Device
from .gathering import MOST, MOST_BYTES
from .slots import Chunk
from .tune import Fixed, Plan

# Bytes of a pack, where the plan chooses: over a link enough that Python's part of a pack is less than the link's, and
# few enough that packs in flight and their results stay in the processor's cache.
LEAST_PACK, MOST_PACK = {True: 12 << 20, False: 1 << 20}, {True: 32 << 20, False: 8 << 20}
SMALL_BATCH = 512 << 10  # bytes of a batch that the caller stages sooner than a thread hears of it
BATCH_SLOTS = 8  # of a stream that is not staged: enough that the link is busy while the caller looks at results
SLOT_MEMORY = 6  # times a batch's bytes: on the device in and out, pinned in, three blocks of results (``Ring.spare``)
ENGINES = 3  # that slots keep busy: one each, where memory is short
STAGED_SLOTS = 6  # of one that is: those, but for what would no longer fit the cache


def bytes_of_pack(fixed: Fixed, device: Device, chosen: Callable[[], int]) -> int:
    """Give the bytes of a pack of items. *chosen* gives those of a chunk, where that is not fixed."""
    links = device.stages
    size = fixed.chunk or min(max(chosen(), LEAST_PACK[links]), MOST_PACK[links])
    return within_memory(size, min(fixed.slots or ENGINES, ENGINES), fixed)


def bytes_shared(fixed: Fixed) -> int:
    """Give the bytes of a chunk that batches share."""
    return within_memory(min(fixed.chunk or MOST_BYTES, MOST_BYTES), ENGINES, fixed)


def within_memory(size: int, slots: int, fixed: Fixed) -> int:
    """Give a chunk's bytes, less where the bound of memory leaves less to so many slots."""
    if fixed.memory is None:
        return size
    return max(min(size, fixed.memory // (SLOT_MEMORY * slots)), 1)


def plan_batches(plan: Plan, first: Chunk, size: int, shared_bytes: int, fixed: Fixed, device: Device) -> Plan:
    """Make the plan of a stream of that for its first batch, or pack, which has *size* bytes.

    *shared_bytes*: of a chunk that batches share; 0: none do.
    """
    shares = size <= SMALL_BATCH and shared_bytes >= max(2 * size, 1)
    if first.items is not None and not first.as_list:
        why = [f"chunk: items are gathered, {len(first.items):,} in the first"]
    elif shares:
        why = [f"chunk: small batches share one: up to {MOST}, each with its own kernel call"]
    else:
        why = ["chunk: each batch as it comes"]
    slots, threads = plan.slots, plan.threads
    if not threads and fixed.slots is None and device.stages:
        slots = BATCH_SLOTS
    full = shares and device.pools  # chunks will be of many batches
    if threads and fixed.threads is None and size < SMALL_BATCH and not full:
        slots, threads = fixed.slots or BATCH_SLOTS, 0
        why.append(f"staging: by the caller: batches under {SMALL_BATCH >> 10} KiB are copied before a thread wakes")
    elif threads and device.pools:
        slots = fixed.slots or STAGED_SLOTS
        why.append("staging: by threads that share each chunk")
    elif threads:  # how many batches come is not known: enough that the threads and the link are busy
        slots = threads = fixed.slots or fixed.threads or max(min(usable(), 8), 3)
        why.append("staging: by threads of Python, one a slot")
    why.append(f"slots: {slots}{', by hand' if fixed.slots or fixed.threads else ''}")
    if fixed.memory is not None:
        most = shared_bytes if shares else max(size, 1)
        slots = max(min(slots, fixed.memory // (SLOT_MEMORY * most)), 1)
        why.append(f"memory: bound by hand, which leaves {slots} slots for batches like the first")
    memory = slots * SLOT_MEMORY * (min(MOST * size, shared_bytes) if shares else size)
    return replace(
        plan, slots=slots, streams=slots, threads=threads if device.pools else min(threads, slots),
        ahead=min(fixed.ahead or slots, slots), memory=memory if device.stages else plan.memory, why=tuple(why),
    )  # fmt: skip
