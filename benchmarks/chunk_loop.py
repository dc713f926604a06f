"""The measured chunk loop against the model: predicted and measured wall time of every variant, profile h200.

    uv run python benchmarks/chunk_loop.py [GROUNDTRUTH]

GROUNDTRUTH is the folder that holds ``walls.json`` and ``loop/`` (default: ``../shared/groundtruth``). A program is built
from each variant's parameters alone; what the profile cannot know is the length of the kernel, which is read from the
timeline of the group's ``serial1`` variant: the median over its kernels, which nothing there disturbs. The profiler makes
a kernel look longer by up to 1 us, which counts at the 20 us of the 1 MiB group: ``--kernel-cost NS`` (default 0) takes
it off.

A variant holds if the prediction lies within 5 % of the measured median (pageable memory: 15 %) or between the shortest
and the longest measured run. Exit status 1 if one does not.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
from pathlib import Path

from gapless.model.kinds import MemoryKind, StreamKind
from gapless.model.machine import Machine
from gapless.model.program import Grid, Program, Stream
from gapless.model.schedule import schedule

GROUPS = ("balanced16M", "kernelheavy16M", "balanced1M", "partialgpu4M")


def build(params: dict[str, int], kernel_ps: int) -> Program:
    """Give the loop as a program: what the measured one asked of the host and the GPU, call by call."""
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
        stream.h2d(bytes=size, pageable=pageable)

    def after(stream: Stream) -> None:
        stream.d2h(bytes=size, pageable=pageable)
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


def kernel_time(timeline: Path, cost_ns: int) -> int:
    """Give the median time of a timeline's kernels in ps, less what the profiler adds."""
    with gzip.open(timeline) as file:
        events = json.load(file)["traceEvents"]
    median = statistics.median(e["dur"] for e in events if e.get("cat") == "kernel")
    return round(median * 1_000_000) - cost_ns * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).resolve().parents[2] / "shared" / "groundtruth"
    parser.add_argument("groundtruth", nargs="?", type=Path, default=default)
    parser.add_argument("--kernel-cost", type=int, default=0, metavar="NS", help="what the profiler adds to a kernel")
    options = parser.parse_args()
    walls = json.loads((options.groundtruth / "walls.json").read_text())
    machine, failed = Machine.named("h200"), 0
    print(f"{'variant':32} {'measured':>9} {'from':>9} {'to':>9} {'model':>9} {'error':>7}")
    for group in GROUPS:
        kernel = kernel_time(options.groundtruth / "loop" / f"{group}.serial1.json.gz", options.kernel_cost)
        for name, wall in walls.items():
            if not name.startswith(f"loop/{group}."):
                continue
            model = schedule(build(wall["params"], kernel), machine).makespan / 1e9
            error = model / wall["wall_ms"] - 1
            allowed = 0.05 if wall["params"]["pinned"] else 0.15
            holds = abs(error) <= allowed or wall["wall_min_ms"] <= model <= wall["wall_max_ms"]
            failed += not holds
            measured = f"{wall['wall_ms']:9.3f} {wall['wall_min_ms']:9.3f} {wall['wall_max_ms']:9.3f}"
            print(f"{name[5:]:32} {measured} {model:9.3f} {error:+7.1%} {'' if holds else 'NO'}")
    print(f"{failed} of {sum(name.startswith('loop/') for name in walls)} variants do not hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
