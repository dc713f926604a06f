"""The measured chunk loop against the model: predicted and measured wall time of every variant, profile h200.

    uv run python benchmarks/chunk_loop.py [GROUNDTRUTH]

GROUNDTRUTH is the folder that holds ``walls.json`` and ``loop/`` (default: the one here). A program is
built from each variant's parameters alone; what the profile cannot know is the length of the kernel, which is read from
the timeline of the group's ``serial1`` variant: the median over its kernels, which nothing there disturbs. The profiler
makes a kernel look longer by up to 1 us, which counts at the 20 us of the 1 MiB group: ``--kernel-cost NS`` (default 0)
takes it off.

A variant holds if the prediction lies within 5 % of the measured median (pageable memory: 15 %) or between the shortest
and the longest measured run; NO marks one that does not. How fast the host copies pageable memory differs by a third
from run to run of one program (the copies of ``balanced16M.pageable4`` and ``kernelheavy16M.pageable4`` are the same,
and took 3.8 and 2.8 ms a chunk), which no profile can know either. So there is a second prediction for pageable memory,
which takes that speed, too, from the variant's own timeline. Exit status 1 if one of those, or one for pinned memory,
does not hold.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from gapless.model.kinds import MemoryKind, StreamKind
from gapless.model.machine import Machine
from gapless.model.program import Program
from gapless.model.schedule import schedule
from gapless.model.streams import Stream
from gapless.model.things import Grid

GROUPS = ("balanced16M", "kernelheavy16M", "balanced1M", "partialgpu4M")


def build(params: dict[str, int], kernel_ps: int, host: tuple[int, int] | None = None) -> Program:
    """Give the loop as a program: what the measured one asked of the host and the GPU, call by call.

    *host*: ps that the host takes for a chunk of pageable memory each way; None: what the machine says.
    """
    program = Program()
    kind = StreamKind.BLOCKING if params["blocking"] else StreamKind.NON_BLOCKING
    made = [program.stream(f"s{i}", kind) for i in range(params["streams"])]
    streams = [program.legacy()] if params["legacy"] else made
    size, pageable = params["chunk_KiB"] * 1024, not params["pinned"]
    memory = program.buffer("chunk", size)
    word = program.buffer("word", 4, MemoryKind.PAGEABLE)
    done = program.event("done")
    grid = Grid(blocks=params["grid"], block=None, threads=256, registers=16)
    chunks, group = params["N"], params["streams"] if params["breadth"] else 1

    def before(stream: Stream) -> None:
        if params["malloc_loop"]:
            program.malloc(memory)
        if host is None:
            stream.h2d(bytes=size, pageable=pageable)
        elif size <= 2 * 1024 * 1024:
            stream.h2d(bytes=size, pageable=pageable, cost=host[0])  # staged by the call (R3.12)
        else:
            stream.h2d(host[0], bytes=size, pageable=pageable)

    def after(stream: Stream) -> None:
        stream.d2h(None if host is None else host[1], bytes=size, pageable=pageable)
        if params["trap"]:
            program.h2d(bytes=4, src=word)
        if params["malloc_loop"]:
            program.free(memory)
        if params["devsync"]:
            program.sync_device()
        if params["streamsync"]:
            stream.sync()
        if params["eventsync"]:
            stream.record(done)
            done.sync()

    for first in range(0, chunks, group):
        dealt = [streams[i % len(streams)] for i in range(first, min(first + group, chunks))]
        for stream in dealt:
            before(stream)
        for stream in dealt:
            stream.kernel(kernel_ps, grid=grid)
        for stream in dealt:
            after(stream)
    for stream in streams:
        stream.sync()
    return program


def events_of(timeline: Path) -> list[dict[str, Any]]:
    with gzip.open(timeline) as file:
        return json.load(file)["traceEvents"]


def kernel_time(timeline: Path, cost_ns: int) -> int:
    """Give the median time of a timeline's kernels in ps, less what the profiler adds."""
    median = statistics.median(e["dur"] for e in events_of(timeline) if e.get("cat") == "kernel")
    return round(median * 1_000_000) - cost_ns * 1000


def host_times(timeline: Path) -> tuple[int, int]:
    """Give how long the host took for a pageable chunk each way, in ps: medians of a timeline.

    To the device: the call. Back: from the start of the copy on the device to the return of its call.
    """
    events = events_of(timeline)
    calls = {e["args"]["correlation"]: e for e in events if e.get("name") == "cudaMemcpyAsync"}
    there, back = [], []
    for copy in (e for e in events if e.get("cat") == "gpu_memcpy"):
        call = calls[copy["args"]["correlation"]]
        if "HtoD" in copy["name"]:
            there.append(call["dur"])
        else:
            back.append(call["ts"] + call["dur"] - copy["ts"])
    return round(statistics.median(there) * 1_000_000), round(statistics.median(back) * 1_000_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).resolve().parent / "groundtruth"
    parser.add_argument("groundtruth", nargs="?", type=Path, default=default)
    parser.add_argument("--kernel-cost", type=int, default=0, metavar="NS", help="what the profiler adds to a kernel")
    options = parser.parse_args()
    if not (options.groundtruth / "walls.json").is_file():
        parser.error(f"{options.groundtruth} holds no walls.json")
    walls = json.loads((options.groundtruth / "walls.json").read_text())
    machine, missed, missed_by_profile = Machine.named("h200"), 0, 0
    print(f"{'variant':32} {'measured':>9} {'from':>9} {'to':>9} {'model':>9} {'error':>7} {'traced':>14} {'error':>7}")
    for group in GROUPS:
        loop = options.groundtruth / "loop"
        kernel = kernel_time(loop / f"{group}.serial1.json.gz", options.kernel_cost)
        for name, wall in walls.items():
            if not name.startswith(f"loop/{group}."):
                continue
            params = wall["params"]
            model = schedule(build(params, kernel), machine).makespan / 1e9
            measured = f"{wall['wall_ms']:9.3f} {wall['wall_min_ms']:9.3f} {wall['wall_max_ms']:9.3f}"
            line = f"{name[5:]:32} {measured} {verdict(model, wall)}"
            missed_by_profile += not holds(model, wall)
            if not params["pinned"]:
                traced = build(params, kernel, host_times(loop / f"{name[5:]}.json.gz"))
                model = schedule(traced, machine).makespan / 1e9
                line += f"  {verdict(model, wall)}"
            missed += not holds(model, wall)
            print(line.rstrip())
    count = sum(name.startswith("loop/") for name in walls)
    print(
        f"{count - missed_by_profile} of {count} hold with the profile alone, {count - missed} with the host as traced"
    )
    return 1 if missed else 0


def holds(model: float, wall: dict[str, Any]) -> bool:
    allowed = 0.05 if wall["params"]["pinned"] else 0.15
    within = abs(model / wall["wall_ms"] - 1) <= allowed
    return within or wall["wall_min_ms"] <= model <= wall["wall_max_ms"]


def verdict(model: float, wall: dict[str, Any]) -> str:
    return f"{model:9.3f} {model / wall['wall_ms'] - 1:+7.1%} {'' if holds(model, wall) else 'NO':2}"


if __name__ == "__main__":
    sys.exit(main())
