"""Read thousands of damaged traces: each must end in a consistent Timeline or in one clear sentence.

    python benchmarks/fuzz.py [TRACE ...] [--inputs 5000] [--seed 0] [--seconds 10] [--memory 2000] [--recordings]

Without traces, small synthetic ones are damaged; with ``--recordings`` the files are recordings of gapless, or one is
made. An input that ends otherwise, takes longer or needs more memory is
kept in the folder that ``--keep`` names, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import gzip
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

from gapless.model.errors import GaplessError
from gapless.timeline.sources import load

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import damaged_recordings
import damaged_traces


def out_of_time(*_: object) -> None:
    raise TimeoutError


def main() -> None:
    parser = argparse.ArgumentParser(description="Read thousands of damaged traces.")
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--inputs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10, help="the most that one input may take")
    parser.add_argument("--memory", type=int, default=2000, help="MB that the process may address")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="folder for inputs that fail")
    parser.add_argument("--recordings", action="store_true", help="damage recordings of gapless instead of traces")
    chosen = parser.parse_args()
    damaged, seeds = damaged_traces.damaged, [damaged_traces.trace(layout) for layout in damaged_traces.LAYOUTS]
    if chosen.recordings:
        damaged, seeds = damaged_recordings.damaged, [damaged_recordings.seed()]
    if chosen.traces:
        seeds = [gzip.decompress(data) if (data := p.read_bytes())[:2] == b"\x1f\x8b" else data for p in chosen.traces]
    resource.setrlimit(resource.RLIMIT_AS, (chosen.memory << 20, chosen.memory << 20))
    signal.signal(signal.SIGALRM, out_of_time)
    endings: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("run.gapless" if chosen.recordings else "trace.json")
        for number in range(chosen.inputs):
            random = Random(f"{chosen.seed}.{number}")
            path.write_bytes(damaged(random.choice(seeds), random))
            start = time.perf_counter()
            signal.setitimer(signal.ITIMER_REAL, chosen.seconds)
            try:
                damaged_traces.check(load(path))
                ending = "read"
            except GaplessError:
                ending = "refused"
            except BaseException as problem:
                if isinstance(problem, KeyboardInterrupt):
                    raise
                ending = f"FAILED: {type(problem).__name__}"
                chosen.keep.mkdir(exist_ok=True)
                (chosen.keep / f"{chosen.seed}.{number}{path.suffix}").write_bytes(path.read_bytes())
                traceback.print_exc(limit=-3)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            endings[ending] += 1
            slowest = max(slowest, time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(dict(endings), f"slowest {slowest:.2f} s, peak {peak:.0f} MB")
    sys.exit(any(ending.startswith("FAILED") for ending in endings))


if __name__ == "__main__":
    main()
