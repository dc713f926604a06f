"""How fast is a large trace read and explained, and in how much memory?

    python benchmarks/reading.py TRACE.json.gz [--runs N]

The figures in the docs are of a trace of 60,000 steps (10 MB packed), which is too large to lie here.

The floor is what no reader can do without: gunzip with isal, and one msgspec decode of the whole text into events with
``ph``, ``cat``, ``name``, ``pid``, ``tid`` typed and ``ts``, ``dur``, ``args`` left raw. Every run is a process of its
own; runs of different kinds take turns, and medians are printed. CPU seconds include the start of Python; they say more
than the clock where the machine has other work. With ``GAPLESS_HTA_PYTHON`` naming a Python that has
HolisticTraceAnalysis installed, its load of the same file stands beside.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SMALL = Path(__file__).resolve().parent / "groundtruth" / "loop" / "balanced16M.trap4.json.gz"

FLOOR = """
import gc, sys, time
import msgspec
from isal import igzip

class Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()

class Trace(msgspec.Struct, gc=False):
    traceEvents: list[Event]

gc.disable()
start = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    packed = file.read()
trace = msgspec.json.decode(igzip.decompress(packed), type=Trace)
print(time.perf_counter() - start)
"""

LOAD = """
import sys, time
from gapless.timeline.sources import load

start = time.perf_counter()
timeline = load(sys.argv[1])
print(time.perf_counter() - start)
"""

HTA = """
import shutil, sys, tempfile, time
from hta.trace_analysis import TraceAnalysis

with tempfile.TemporaryDirectory() as folder:
    shutil.copy(sys.argv[1], folder + "/rank0.json.gz")
    start = time.perf_counter()
    TraceAnalysis(trace_files={0: folder + "/rank0.json.gz"}, trace_dir=folder)
    print(time.perf_counter() - start)
"""


@dataclass
class Run:
    """One process: seconds from its start to its end, seconds of CPU, what it printed, the most memory it held."""

    seconds: float
    cpu: float
    output: str
    peak_mb: float


def run(environment: dict[str, str], *command: str) -> Run:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    output, errors = (stream.read().decode() for stream in (process.stdout, process.stderr) if stream)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command[:3])} ... failed:\n{errors}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, output, usage.ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the reading of a large trace.")
    parser.add_argument("trace", help="what torch.profiler wrote, packed with gzip")
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind (default: 5)")
    chosen = parser.parse_args()
    if not Path(chosen.trace).is_file():
        parser.error(f"there is no {chosen.trace}")
    python = sys.executable
    gapless = str(Path(python).with_name("gapless"))
    kinds: dict[str, tuple[str, ...]] = {
        "floor": (python, "-c", FLOOR, chosen.trace),
        "load()": (python, "-c", LOAD, chosen.trace),
        "gapless explain": (gapless, "explain", chosen.trace),
        "gapless explain, small file": (gapless, "explain", str(SMALL)),
        "gapless --help": (gapless, "--help"),
    }
    if hta := os.environ.get("GAPLESS_HTA_PYTHON"):
        kinds["HTA load"] = (hta, "-c", HTA, chosen.trace)
    runs: dict[str, list[Run]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as compiled:  # an installed package has its modules compiled
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = compiled
        run(environment, *kinds["gapless explain, small file"])
        for turn in range(chosen.runs):
            for kind, command in kinds.items():
                if kind != "HTA load" or not turn:
                    runs[kind].append(run(environment, *command))

    def seconds(kind: str) -> float:
        inside = kind in ("floor", "load()", "HTA load")  # timed from inside, without the start of Python
        return statistics.median(float(r.output.split()[-1]) if inside else r.seconds for r in runs[kind])

    def cpu(kind: str) -> float:
        return statistics.median(r.cpu for r in runs[kind])

    print(f"{chosen.trace}: {Path(chosen.trace).stat().st_size / 1e6:.1f} MB, medians of {chosen.runs} runs")
    print(f"{'':28}    time  x floor     CPU  x floor    peak")
    for kind in kinds:
        peak = max(r.peak_mb for r in runs[kind])
        ratios = f"{seconds(kind) / seconds('floor'):7.2f}", f"{cpu(kind) / cpu('floor'):7.2f}"
        if "small" in kind or "help" in kind:
            ratios = " " * 7, " " * 7
        print(f"{kind:28} {seconds(kind):6.2f} s {ratios[0]} {cpu(kind):6.2f} s {ratios[1]} {peak:5.0f} MB")


if __name__ == "__main__":
    main()
