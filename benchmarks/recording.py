"""What recording costs, and whether what it records is right: on a machine with a GPU.

    uv run python benchmarks/recording.py overhead  --loops FOLDER --out FOLDER
    uv run python benchmarks/recording.py chunks    --loops FOLDER --out FOLDER
    uv run python benchmarks/recording.py samples   --samples FOLDER --out FOLDER
    uv run python benchmarks/recording.py tables    --out FOLDER        (no GPU: reads what the others left)

FOLDER of --loops holds ``loops`` and ``libloops.so``, built from benchmarks/recording/loops.cu:
``nvcc -O2 -arch=sm_90 -Xcompiler -g loops.cu -o loops`` and the same with ``-Xcompiler -fPIC -shared -o libloops.so``.
That of --samples holds NVIDIA's public cuda-samples, each built by nvcc with ``-g`` and the samples' ``Common`` folder.

overhead: the same programs alone, recorded, recorded without source lines, under torch.profiler and cupti-python, in
turns within one run; medians of the host's time. chunks: the chunk loop with each mistake, recorded and under
torch.profiler (one process each: only one profiler can hold CUPTI), and its untraced wall times. samples: each sample,
recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from gapless.recorder import blocks
from gapless.recorder.command import Settings, record_command, traced_environment

HERE = Path(__file__).parent / "recording"
ROUNDS = 2  # turns of all contenders
VARIANTS = (
    "serial", "streams4", "trap", "trap_nb", "pageable", "malloc", "devsync", "streamsync", "eventsync", "legacy"
)  # fmt: skip
# chunks, KiB a chunk, rounds of the kernel: about as long as a copy of the chunk takes
SIZES = {"4M": (64, 4096, 1800)}
SAMPLES = (
    "simpleStreams", "simpleMultiCopy", "asyncAPI", "concurrentKernels", "StreamPriorities", "simpleHyperQ",
    "streamOrderedAllocation", "simpleCallback",
)  # fmt: skip


def _numbers(command: list[str], environment: dict[str, str]) -> list[int]:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        print("failed:", " ".join(command), done.stderr[-800:], file=sys.stderr)
        return []
    return [int(line) for line in done.stdout.split() if line.isdecimal()]


def overhead(loops: Path, out: Path) -> None:
    python = [sys.executable, str(HERE / "loops.py")]
    plain = {**os.environ, "LOOPS_LIBRARY": str(loops / "libloops.so")}
    record = out / "overhead.gapless"
    programs: dict[str, tuple[list[str], int, tuple[str, ...]]] = {  # command, divided by, peers
        "native launches": ([str(loops / "loops"), "launches", "500", "200"], 500, ()),
        "native steps": ([str(loops / "loops"), "steps", "20", "10"], 20, ()),
        "launches": ([*python, "launches", "200"], 500, ("torch.profiler", "cupti-python")),
        "small": ([*python, "small", "100"], 500, ("torch.profiler", "cupti-python")),
        "training": ([*python, "training", "60"], 1, ("torch.profiler", "cupti-python")),
    }
    for name, (command, divisor, peers) in programs.items():
        taken: dict[str, list[int]] = {}
        sizes: dict[str, float] = {}
        for _ in range(ROUNDS):
            for tool in ("untraced", "gapless", "gapless --no-lines", *peers):
                environment = plain
                if tool.startswith("gapless"):
                    blocks.make(record, force=True)
                    environment = traced_environment(record, Settings(lines=tool == "gapless"), plain)
                line = [*command, "--with", tool] if tool in peers else command
                taken.setdefault(tool, []).extend(_numbers(line, environment)[2:])
                if tool.startswith("gapless"):
                    records = blocks.content(record)
                    sizes[tool] = record.stat().st_size / max(records.records, 1)
                    sizes[f"{tool}, lost"] = records.dropped
        result = {
            tool: {"median_ns": median(ns) / divisor, "min_ns": min(ns) / divisor, "passes": len(ns)}
            for tool, ns in taken.items()
            if ns
        }
        _keep(out / "overhead.jsonl", {"program": name, "tools": result, "bytes_a_record": sizes})
    record.unlink(missing_ok=True)


def chunks(loops: Path, out: Path) -> None:
    python = [sys.executable, str(HERE / "loops.py")]
    os.environ["LOOPS_LIBRARY"] = str(loops / "libloops.so")
    for size, (count, kib, rounds) in SIZES.items():
        for variant in VARIANTS:
            words = [str(loops / "loops"), "chunks", variant, str(count), str(kib), str(rounds), "12"]
            walls = _numbers(words, dict(os.environ))[2:]
            program = [*python, f"chunks:{variant},{count},{kib},{rounds}", "2"]
            record_command(program, out / f"{variant}.{size}.gapless", Settings(), force=True)
            trace = out / f"{variant}.{size}.json.gz"
            _numbers([*program, "--with", "torch.profiler", "--trace", str(trace)], dict(os.environ))
            _keep(out / "walls.jsonl", {"variant": variant, "size": size, "wall_ns": median(walls), "all": walls})


def samples(folder: Path, out: Path) -> None:
    for name in SAMPLES:
        program = folder / name
        if not program.exists():
            print("not built:", name, file=sys.stderr)
            continue
        os.chdir(folder)
        status = record_command([str(program)], out / f"{name}.gapless", Settings(), force=True)
        _keep(out / "samples.jsonl", {"sample": name, "status": status})


def _keep(path: Path, result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)
    with path.open("a") as file:
        file.write(json.dumps(result) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "chunks", "samples", "tables"))
    parser.add_argument("--loops", type=Path, default=HERE)
    parser.add_argument("--samples", type=Path, default=HERE)
    parser.add_argument("--out", type=Path, default=Path("recorded"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "overhead":
        overhead(given.loops.resolve(), given.out.resolve())
    elif given.what == "chunks":
        chunks(given.loops.resolve(), given.out.resolve())
    elif given.what == "samples":
        samples(given.samples.resolve(), given.out.resolve())
    else:
        sys.path.insert(0, str(HERE))
        import tables  # pyright: ignore

        tables.show(given.out)


if __name__ == "__main__":
    main()
