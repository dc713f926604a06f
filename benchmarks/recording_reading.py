"""How fast is a large recording read, and in how much memory?

    python benchmarks/recording_reading.py [--records 2000000] [--runs 3]

Makes a recording of launches, kernels and copies in buffers of 256 KiB, records of all kinds mixed, with stacks and a
few events, and loads it. Prints records a second of the whole load (file to Timeline), and of the buffers alone.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gapless.timeline.sources import load
from gapless.timeline.sources.losses import Losses
from gapless.timeline.sources.recording_blocks import blocks
from gapless.timeline.sources.recording_format import RECORDS_HEAD, Block, Space
from gapless.timeline.sources.recording_records import columns_of

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import written

BUFFER = 256 << 10  # bytes
START = 10**18


def make(path: Path, records: int) -> None:
    """Write a recording: of ten operations nine are kernels and one a copy; each has a call."""
    made = written.Recording().start()
    made.strings(Space.RUNTIME, {1: "cudaLaunchKernel_v7000", 2: "cudaMemcpyAsync_v3020"})
    made.strings(Space.POINTER, {0x1000 + 16 * n: f"_Z5work{n}Pf" for n in range(50)})
    made.strings(Space.SOURCE, {1: "train.py", 2: "step"})
    made.rows(Block.STACKS, *((n + 1, 0, 1, 2, n, 0, 0) for n in range(40)))
    call, kernel, copy = (written.DTYPES[kind] for kind in (5, 10, 1))
    each = BUFFER // (2 * call.itemsize + kernel.itemsize)
    parts, correlation = [bytes(made.data)], 1
    for _ in range(-(-records // (2 * each))):
        ids = np.arange(correlation, correlation + each, dtype=np.uint32)
        correlation += each
        at = START + ids.astype(np.uint64) * 10_000
        is_copy = ids % 10 == 0
        calls, kernels = np.zeros(each, call), np.zeros(int((~is_copy).sum()), kernel)
        copies = np.zeros(int(is_copy.sum()), copy)
        calls["kind"], calls["correlationId"], calls["cbid"], calls["threadId"] = 5, ids, 1 + is_copy, 7
        calls["start"], calls["end"] = at, at + np.uint64(3_000)
        for rows, mine, kind in ((kernels, ~is_copy, 10), (copies, is_copy, 1)):
            rows["kind"], rows["correlationId"], rows["streamId"], rows["contextId"] = kind, ids[mine], 7, 1
            rows["start"], rows["end"] = at[mine] + np.uint64(5_000), at[mine] + np.uint64(9_000)
        kernels["name"] = 0x1000 + 16 * (ids[~is_copy] % 50)
        copies["copyKind"], copies["srcKind"], copies["dstKind"], copies["bytes"] = 1, 2, 3, 4096
        kinds = np.empty(2 * each, np.uint8)
        kinds[0::2], kinds[1::2] = 5, np.where(is_copy, 1, 10)
        rows_of = {5: iter(calls), 10: iter(kernels), 1: iter(copies)}
        raw = b"".join(next(rows_of[kind]).tobytes() for kind in kinds.tolist())
        head = np.array([(len(raw), len(kinds), 0)], RECORDS_HEAD).tobytes()
        buffer = written.Recording()
        buffer.data.clear()
        buffer.block(Block.RECORDS, head + raw + kinds.tobytes())
        buffer.rows(Block.CALLSITES, *zip(ids.tolist(), (1 + ids % 40).tolist(), strict=True))
        parts.append(bytes(buffer.data))
    end = written.Recording()
    end.data.clear()
    path.write_bytes(b"".join([*parts, bytes(end.end().data)]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Read a large recording.")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.gapless"
        make(path, chosen.records)
        whole, buffers = [], []
        for _ in range(chosen.runs):
            start = time.process_time()
            timeline = load(path)
            whole.append(time.process_time() - start)
            count = len(timeline.ops) + len(timeline.calls)
            assert timeline.lost == ()
            del timeline
            start = time.process_time()
            dtypes = {kind: written.DTYPES[kind] for kind in (1, 5, 10)}
            with path.open("rb") as file:
                for block in blocks(file, path.stat().st_size, str(path), Losses(), None):
                    if block.type == Block.RECORDS:
                        columns_of(block.payload, dtypes, Losses())
            buffers.append(time.process_time() - start)
        size = path.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{count:,} records, {size / 1e6:.0f} MB, {size / count:.0f} bytes a record; CPU time, median of {chosen.runs}"
    )
    print(f"file to Timeline: {count / statistics.median(whole) / 1e6:.2f} M records/s")
    print(f"buffers to columns: {count / statistics.median(buffers) / 1e6:.2f} M records/s")
    print(f"peak memory {peak:,.0f} MB")


if __name__ == "__main__":
    main()
