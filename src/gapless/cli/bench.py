"""``gapless bench``."""

from __future__ import annotations

import sys
from typing import Literal

from gapless.cli.output import json_of, write
from gapless.cli.words import DONE, Count, Name, Size
from gapless.model.errors import GaplessError


def bench(
    what: Literal["machine", "pipeline"] = "machine",
    /,
    *,
    json: bool = False,
    device: Name | None = None,
    size: Size = Size("2GiB"),  # noqa: B008
    runs: Count = Count(5),  # noqa: B008
) -> int:
    """Measure this machine as a profile for the model, or run the pipeline beside what people use today.

    Parameters
    ----------
    what
        "machine": copies, staging and calls. "pipeline": gapless beside CuPy, PyTorch, JAX and loops by hand.
    json
        Print the machine as a profile that --machine takes, or each comparison as one JSON object a line.
    device
        The GPU: cuda, or cuda:1 for the second. By default the first.
    size
        Bytes each way of the large array of "pipeline", such as 512MiB.
    runs
        Runs of each contender of "pipeline", after one to warm up.
    """
    from gapless.model.units import parse_size
    from gapless.runtime import bench as benches

    if what == "machine":
        measured = benches.bench(device)
        write(measured.to_json() if json else str(measured))
        return DONE
    if runs < 1:
        raise GaplessError(f"--runs {runs} is no number of runs.")
    for case in benches.bench_pipeline(device, size=parse_size(size), runs=runs):
        write(json_of({"version": 1, **case.to_dict()}) if json else str(case))
        sys.stdout.flush()
    return DONE
