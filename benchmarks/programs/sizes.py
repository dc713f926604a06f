"""The loop over chunks in many sizes and ratios: recorded and timed on a GPU, to see where predictions fail.

    python sizes.py OUT

writes OUT/NAME.VARIANT.json.gz (torch.profiler) and OUT/walls.json; ``predictions.py --sizes OUT`` scores them. The
variants: one stream, four streams with a host wait behind each chunk, two streams, four streams. Needs PyTorch, nvcc
and an NVIDIA GPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import programs

KIB, MIB = 1 << 10, 1 << 20
# Chunks, bytes up and down, rounds of the kernel.
LOOPS = {
    "balanced64K": (1000, 64 * KIB, 64 * KIB, 900),
    "balanced256K": (800, 256 * KIB, 256 * KIB, 1300),
    "balanced4M": (128, 4 * MIB, 4 * MIB, 2000),
    "balanced64M": (20, 64 * MIB, 64 * MIB, 2000),
    "kernelheavy256K": (400, 256 * KIB, 256 * KIB, 8000),
    "kernelheavy1M": (300, MIB, MIB, 6000),
    "kernelheavy4M": (128, 4 * MIB, 4 * MIB, 5000),
    "upload2M": (200, 2 * MIB, 0, 5000),
    "copyheavy16M": (48, 16 * MIB, 16 * MIB, 150),
    "upload64K": (1500, 64 * KIB, 0, 100),
    "lopsided8M": (64, 8 * MIB, MIB, 300),
}


def main() -> None:
    """Record and time every loop."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    torch.zeros(1, device="cuda")
    walls: dict[str, object] = {}
    for name, (chunks, up, down, rounds) in LOOPS.items():
        programs.LIBRARY[:] = [programs.raw()]  # its buffers are made for the first size that it sees
        shape = {"chunks": chunks, "up": up, "down": down, "rounds": rounds, "grid": 1056}
        variants = {
            "serial": programs.chunk_loop(**shape, streams=1),
            "sync": programs.chunk_loop(**shape, streams=4, sync=True),
            "two": programs.chunk_loop(**shape, streams=2),
            "four": programs.chunk_loop(**shape, streams=4),
        }
        walls[name] = {variant: programs.wall(run) for variant, run in variants.items()}
        for variant, run in variants.items():
            programs.record(run, out / f"{name}.{variant}.json.gz")
        print(name, json.dumps(walls[name]), flush=True)
    (out / "walls.json").write_text(json.dumps(walls, indent=1))


if __name__ == "__main__":
    main()
