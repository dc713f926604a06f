"""Profile h200 against what was measured: the chunk loop's wall times, and pipelines of eight chunks (probe P10)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gapless.model.kinds import StreamKind
from gapless.model.machine import Machine
from gapless.model.program import Grid, Program
from gapless.model.schedule import schedule

CHUNK_LOOP = Path(__file__).resolve().parents[2] / "benchmarks" / "chunk_loop.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chunk_loop", CHUNK_LOOP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("group", ["balanced16M", "kernelheavy16M", "balanced1M", "partialgpu4M"])
def test_the_chunk_loop_takes_the_time_measured(group: str, benchmark: ModuleType, measured: Path):
    """Within 5 % or the measured range; pageable memory within 15 %, at the host's speed in the variant's timeline."""
    truth = measured
    walls = json.loads((truth / "walls.json").read_text())
    kernel = benchmark.kernel_time(truth / "loop" / f"{group}.serial1.json.gz", 0)
    variants = {name: wall for name, wall in walls.items() if name.startswith(f"loop/{group}.")}
    assert len(variants) == 17
    for name, wall in variants.items():
        pinned = wall["params"]["pinned"]
        host = None if pinned else benchmark.host_times(truth / f"{name}.json.gz")
        model = schedule(benchmark.build(wall["params"], kernel, host), Machine.named("h200")).makespan / 1e9
        assert benchmark.holds(model, wall), f"{name}: {model:.3f} ms, measured {wall['wall_ms']} ms"


@pytest.mark.parametrize("size", ["16MiB", "1MiB"])
def test_a_pipeline_of_eight_chunks(size: str, measured: Path):
    """P10, in units of one H2D; these were not used to fit anything."""
    facts = json.loads((measured / "h200-facts.json").read_text())
    machine, size_bytes = Machine.named("h200"), int(size.removesuffix("MiB")) << 20
    unit = int(machine.time_of("h2d_curve", np.array([size_bytes]))[0])
    for streams, measured in facts["pipeline_check"][size].items():
        program = Program()
        made = [program.stream(kind=StreamKind.NON_BLOCKING) for _ in range(int(streams))]
        for i in range(8):
            stream = made[i % len(made)]
            stream.h2d(bytes=size_bytes)
            stream.kernel(unit, grid=Grid(blocks=1056, block=None, threads=256, registers=16))
            stream.d2h(bytes=size_bytes)
        run = schedule(program, machine)
        model = (run.end.max() - run.start.min()) / unit
        assert model == pytest.approx(measured, rel=0.07), streams
