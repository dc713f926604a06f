"""What recording costs, and whether what it records is right: on a machine with a GPU.

    uv run python benchmarks/recording.py overhead  --loops FOLDER --out FOLDER [--tools TOOL,TOOL]
    uv run python benchmarks/recording.py floor     --loops FOLDER --out FOLDER [--each-kind]
    uv run python benchmarks/recording.py beside    --loops FOLDER --out FOLDER
    uv run python benchmarks/recording.py samples   --samples FOLDER --out FOLDER
    uv run python benchmarks/recording.py tables    --out FOLDER        (no GPU: reads what the others left)

FOLDER of --loops holds ``loops`` and ``libloops.so``, built from benchmarks/recording/loops.cu:
``nvcc -O2 -arch=sm_90 -Xcompiler -g loops.cu -o loops`` and the same with ``-Xcompiler -fPIC -shared -o libloops.so``.
That of --samples holds NVIDIA's public cuda-samples, each built by nvcc with ``-g`` and the samples' ``Common`` folder.

overhead: the same programs alone, recorded, recorded without source lines, under torch.profiler and cupti-python, in
turns within one run, a process each; medians of the host's time. --tools: only these, beside the untraced programs.
floor: the launches of ``loops`` alone, with CUPTI that records for nobody (recording/floor.c), and recorded, in turns:
what of the cost is CUPTI's own. --each-kind: also kernels and calls with each other kind of record alone. Both tell
passes that had the CPU core to themselves from the others, and keep every pass, so that runs on different machines can
lie in one folder: each is judged by its own quickest core. beside: the
chunk loop with each mistake, recorded and under torch.profiler, in turns within one process, and recorded by the
command; that with pageable memory in more turns. samples: each sample, recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gapless
from gapless.recorder import blocks
from gapless.recorder.command import Settings, record_command, traced_environment
from gapless.recorder.library import cuptis

HERE = Path(__file__).parent / "recording"
sys.path.insert(0, str(HERE))
from loops import TOOLS, shuffled  # noqa: E402
from tables import show, show_costs  # noqa: E402

ALL_KINDS = "10,1,22,2,38,36,37,9,8,49,50,17,12,5"  # what the recorder records
KERNELS_AND_CALLS = "10,5"
FLOOR_TURNS = 4
TURNS = 3
STRETCH = 50  # passes of a program in C++ that are one stretch
VARIANTS = (
    "serial", "streams4", "trap", "trap_nb", "pageable", "malloc", "devsync", "streamsync", "eventsync", "legacy"
)  # fmt: skip
BESIDE_TURNS = {"3": [*VARIANTS], "6": ["pageable"], "12": ["pageable"]}  # by turns, a process each
SIZE = (64, 4096, 1800)  # chunks, KiB a chunk, rounds of the kernel
SAMPLES = (
    "simpleStreams", "simpleMultiCopy", "asyncAPI", "concurrentKernels", "StreamPriorities", "simpleHyperQ",
    "streamOrderedAllocation", "simpleCallback",
)  # fmt: skip


def _said(command: list[str], environment: dict[str, str], *, timeout: float = 120) -> str:
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        print(" ".join(command), "did not end within", timeout, "s", file=sys.stderr)
        return ""
    if done.returncode or done.stderr.strip():
        print(" ".join(command), done.stderr[-1500:], file=sys.stderr)
    return done.stdout


def _stretches(command: list[str], environment: dict[str, str], operations: int) -> list[list[tuple[float, int]]]:
    """Give each pass's ns an operation and its core's ns, in stretches; the first two passes only warm up."""
    lines = [line.split() for line in _said(command, environment).splitlines()]
    numbers = [words for words in lines if len(words) == 2 and all(map(str.isdecimal, words))]
    passes = [(int(ns) / operations, int(core)) for ns, core in numbers[2:]]
    return [passes[at : at + STRETCH] for at in range(0, len(passes), STRETCH)]


def overhead(loops: Path, out: Path, tools: list[str]) -> None:
    plain = {**os.environ, "LOOPS_LIBRARY": str(loops / "libloops.so")}
    record = out / "overhead.gapless"
    run = round(time.time())
    native = ["untraced", *(tool for tool in tools if tool.startswith("gapless"))]
    for name, count, passes in (("launches", 100, 4000), ("steps", 20, 12)):
        for turn in range(TURNS):
            for tool in shuffled(native, turn):
                environment = plain
                if tool != "untraced":
                    with blocks.made(record, force=True):
                        environment = traced_environment(record, Settings(lines=tool == "gapless"), plain)
                taken = _stretches([str(loops / "loops"), name, str(count), str(passes)], environment, count)
                row: dict[str, Any] = {"run": run, "tool": tool, "turn": turn, "passes": {f"native {name}": taken}}
                if tool != "untraced":
                    found = blocks.content(record)
                    row["bytes_a_record"] = record.stat().st_size / max(found.records, 1)
                    row["lost"] = found.dropped
                _keep(out / "overhead.jsonl", row)
    record.unlink(missing_ok=True)
    _said([sys.executable, str(HERE / "loops.py"), "costs", str(out), *tools], plain, timeout=500)


def floor(loops: Path, out: Path, *, each_kind: bool) -> None:
    cupti = next(cupti for cupti in cuptis() if cupti.headers)
    injected = out / "libfloor.so"
    shim = Path(gapless.recorder.__file__).parent / "native" / "shim"
    includes = ["-I", str(shim), "-isystem", str(cupti.headers)]
    line = ["cc", "-O2", "-shared", "-fPIC", *includes, str(HERE / "floor.c"), "-o", str(injected), "-ldl"]
    subprocess.run(line, check=True)
    record = out / "floor.gapless"
    recorded = {"gapless --no-lines": Settings(lines=False), "gapless": Settings(), "waiting": Settings(after=1e6)}
    kinds = {"untraced": "", "CUPTI: kernels": "10", "CUPTI: kernels and calls": KERNELS_AND_CALLS,
             "CUPTI: all kinds": ALL_KINDS}  # fmt: skip
    if each_kind:
        others = [kind for kind in ALL_KINDS.split(",") if kind not in KERNELS_AND_CALLS.split(",")]
        kinds |= {f"CUPTI: these and kind {kind}": f"{KERNELS_AND_CALLS},{kind}" for kind in others}
    run = round(time.time())
    for turn in range(FLOOR_TURNS):
        for name in shuffled([*kinds, *recorded], turn):
            environment = dict(os.environ)
            if name in recorded:
                with blocks.made(record, force=True):
                    environment = traced_environment(record, recorded[name], environment)
            elif kinds[name]:
                environment |= {
                    "CUDA_INJECTION64_PATH": str(injected), "FLOOR_CUPTI": str(cupti.library.resolve()),
                    "FLOOR_KINDS": kinds[name],
                }  # fmt: skip
            taken = _stretches([str(loops / "loops"), "launches", "100", "1000"], environment, 100)
            _keep(out / "floor.jsonl", {"run": run, "tool": name, "turn": turn, "passes": {"empty kernels": taken}})
    record.unlink(missing_ok=True)


def beside(loops: Path, out: Path) -> None:
    python = [sys.executable, str(HERE / "loops.py")]
    os.environ["LOOPS_LIBRARY"] = str(loops / "libloops.so")
    size = ",".join(map(str, SIZE))
    for process, (turns, variants) in enumerate(BESIDE_TURNS.items()):
        words = ["beside", str(out), str(process), size, turns, *variants]
        with (out / "beside.jsonl").open("a") as file:
            file.write(_said([*python, *words], dict(os.environ)))
    for variant in VARIANTS:
        program = [*python, "chunks", f"{variant},{size}", "2"]
        record_command(program, out / f"{variant}.gapless", Settings(), force=True)


def samples(folder: Path, out: Path) -> None:
    for name in SAMPLES:
        program = folder / name
        if not program.exists():
            print("not built:", name, file=sys.stderr)
            continue
        os.chdir(folder)
        status, _ = record_command([str(program)], out / f"{name}.gapless", Settings(), force=True)
        print(name, "ended with status", status, flush=True)
        _keep(out / "samples.jsonl", {"sample": name, "status": status})


def _keep(path: Path, result: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(result) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "floor", "beside", "samples", "tables"))
    parser.add_argument("--loops", type=Path, default=HERE)
    parser.add_argument("--samples", type=Path, default=HERE)
    parser.add_argument("--each-kind", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("recorded"))
    parser.add_argument("--tools", default=",".join(TOOLS), help="for overhead, by commas; all: %(default)s")
    given = parser.parse_args()
    tools = given.tools.split(",")
    if unknown := [tool for tool in tools if tool not in TOOLS]:
        parser.error(f"--tools: there is no {unknown[0]!r}; it takes {', '.join(TOOLS)}, and untraced runs in any case")
    needed = {"samples": given.samples, "tables": given.out, "floor": HERE}.get(given.what, given.loops / "loops")
    if not needed.exists():
        parser.error(f"there is no {needed}: see python benchmarks/recording.py --help")
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "overhead":
        overhead(given.loops.resolve(), given.out.resolve(), tools)
        show_costs(given.out)
    elif given.what == "floor":
        floor(given.loops.resolve(), given.out.resolve(), each_kind=given.each_kind)
        show_costs(given.out)
    elif given.what == "beside":
        beside(given.loops.resolve(), given.out.resolve())
    elif given.what == "samples":
        samples(given.samples.resolve(), given.out.resolve())
    else:
        show(given.out)


if __name__ == "__main__":
    main()
