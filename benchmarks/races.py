"""How long the race check takes for 100,000 accesses: ``uv run python benchmarks/races.py``."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

from gapless.model.kinds import MemoryKind, StreamKind
from gapless.model.program import Program
from gapless.model.races import find_races

ACCESSES = 100_000


def chunk_loop(streams: int = 4, slots: int = 8) -> Program:
    """A pipeline over several streams: the host fills a slot, which is copied in, computed on and copied out."""
    program = Program()
    copies = [program.stream(f"s{i}", StreamKind.NON_BLOCKING) for i in range(streams)]
    filled = [program.buffer(f"in{i}", 1 << 20, MemoryKind.PINNED) for i in range(slots)]
    results = [program.buffer(f"out{i}", 1 << 20, MemoryKind.PINNED) for i in range(slots)]
    device = [program.buffer(f"d{i}", 1 << 20) for i in range(slots)]
    free = [program.event(f"e{i}") for i in range(slots)]
    for chunk in range(ACCESSES // 8):
        slot, stream = chunk % slots, copies[chunk % streams]
        free[slot].sync()
        program.read(results[slot])
        program.write(filled[slot])
        stream.h2d(1, src=filled[slot], dst=device[slot])
        stream.kernel(1, reads=[device[slot]], writes=[device[slot]])
        stream.d2h(1, src=device[slot], dst=results[slot])
        stream.record(free[slot])
    return program


def many_streams(streams: int = 64) -> Program:
    """A ring of many streams that hand one buffer on by events."""
    program = Program()
    ring = [program.stream(f"s{i}", StreamKind.NON_BLOCKING) for i in range(streams)]
    events = [program.event(f"e{i}") for i in range(streams)]
    shared = program.buffer("shared", 1 << 20)
    for step in range(ACCESSES // 2):
        ring[step % streams].wait(events[(step - 1) % streams])
        ring[step % streams].kernel(1, reads=[shared], writes=[shared])
        ring[step % streams].record(events[step % streams])
    return program


def legacy_fences(streams: int = 16) -> Program:
    """Blocking streams with work on the legacy default stream between."""
    program = Program()
    blocking = [program.stream(f"s{i}") for i in range(streams)]
    buffers = [program.buffer(f"d{i}", 1 << 20) for i in range(streams)]
    for step in range(ACCESSES // 2):
        blocking[step % streams].kernel(1, writes=[buffers[step % streams]])
        program.legacy().kernel(1, reads=[buffers[(step * 7) % streams]])
    return program


def parts(streams: int = 4, pieces: int = 1024) -> Program:
    """One large buffer, used piece by piece and now and then as a whole."""
    program = Program()
    several = [program.stream(f"s{i}", StreamKind.NON_BLOCKING) for i in range(streams)]
    whole = program.buffer("whole", pieces * 4096)
    for step in range(ACCESSES):
        piece = step % pieces
        if piece == 0:
            program.sync_device()
            several[0].memset(1, dst=whole)
            program.sync_device()
        else:
            several[piece % streams].kernel(1, writes=[whole[piece * 4096 : (piece + 1) * 4096]])
    return program


def all_racing(streams: int = 4) -> Program:
    """Nothing is ordered and everything conflicts."""
    program = Program()
    several = [program.stream(f"s{i}", StreamKind.NON_BLOCKING) for i in range(streams)]
    shared = program.buffer("shared", 1 << 20)
    for step in range(ACCESSES):
        several[step % streams].kernel(1, writes=[shared])
    return program


def measure(make: Callable[[], Program]) -> None:
    program = make()
    begun = process_time()
    races = find_races(program)
    seconds = process_time() - begun
    accesses = len(program.accesses)
    count = f"{len(races)}{' and more' if races.more else ''} races"
    print(f"{make.__name__:15} {len(program):8,} calls {accesses:8,} accesses  {seconds:5.2f} s  {count}")


if __name__ == "__main__":
    for make in (chunk_loop, many_streams, legacy_fences, parts, all_racing):
        measure(make)
