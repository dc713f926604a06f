"""A journal of finished rows, so that a long run into a memory-mapped file goes on after a crash.

A line of JSON says what the run is; each line after it says rows that are done, and is written only after the result's
file has been flushed. A run that ends removes its journal: the next run is a new one.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from gapless.model.errors import GaplessError

from .devices import HostArray

EVERY = 1.0  # seconds between flushes
SAMPLES = 64  # stretches of the input that tell it from another


class Journal:
    """Which rows of a run are done. Raises GaplessError where the file is another run's."""

    def __init__(self, path: str | os.PathLike[str], inputs: Sequence[HostArray], out: Sequence[HostArray] | None,
                 rows: int, kernel: str) -> None:  # fmt: skip
        if out is None or not all(isinstance(array, np.memmap) for array in out):
            raise GaplessError("resume= needs out= to be a np.memmap: only what is in a file outlives a crash.")
        self._path = Path(path)
        self._out: list[Any] = list(out)
        self._run: dict[str, Any] = {
            "gapless resume": 1, "kernel": kernel, "rows": rows, "inputs": [_described(array) for array in inputs],
            "out": [[str(getattr(array, "filename", "")), list(array.shape), array.dtype.str] for array in out],
        }  # fmt: skip
        self.done = self._read()
        self._waiting: list[tuple[int, int]] = []
        self._flushed = monotonic()

    def add(self, first: int, after: int) -> None:
        """Note rows whose results are in the array; now and then make that last."""
        self._waiting.append((first, after))
        if monotonic() - self._flushed >= EVERY:
            self.flush()

    def flush(self) -> None:
        """Make everything noted last: first the results, then the note."""
        self._flushed = monotonic()
        if not self._waiting:
            return
        for array in self._out:
            array.flush()
        new = not self._path.exists()
        with self._path.open("a", encoding="utf-8") as file:
            if new:
                file.write(json.dumps(self._run) + "\n")
            file.writelines(json.dumps(span) + "\n" for span in self._waiting)
            file.flush()
            os.fsync(file.fileno())
        self._waiting.clear()

    def finish(self) -> None:
        """Make the results last and remove the journal."""
        for array in self._out:
            array.flush()
        self._path.unlink(missing_ok=True)

    def _read(self) -> list[tuple[int, int]]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as problem:
            raise GaplessError(f"The journal {self._path} cannot be read: {problem}.") from None
        if "\n" not in text and json.dumps(self._run).startswith(
            text
        ):  # the crash came while its first line was written
            self._path.unlink()
            return []
        first, *lines = text.split("\n")
        try:
            run = json.loads(first)
        except ValueError:
            run = None
        if not isinstance(run, dict) or "gapless resume" not in run:
            raise GaplessError(f"{self._path} is no journal of a pipeline, and is left as it is. Name another file.")
        if run != self._run:
            differs = ", ".join(sorted(key for key in self._run if run.get(key) != self._run[key]))
            raise GaplessError(
                f"{self._path} is the journal of another run: it differs in {differs}. Remove it to start anew."
            )
        spans: list[tuple[int, int]] = []
        for line in lines[:-1]:  # the last is empty, or was cut off by the crash
            start, after = json.loads(line)
            spans.append((start, after))
        self._repair(first, spans, cut_off=bool(lines and lines[-1]))
        return spans

    def _repair(self, first: str, spans: list[tuple[int, int]], *, cut_off: bool) -> None:
        """Write a journal whose last line was cut off anew, so that more can be added."""
        if cut_off:
            text = "".join(json.dumps(span) + "\n" for span in spans)
            self._path.write_text(f"{first}\n{text}", encoding="utf-8")


def _described(array: HostArray) -> list[Any]:
    """Give shape, type and a checksum over samples of an input, so that other data are not taken for these."""
    checksum = 0
    if array.size:
        for row in np.unique(np.linspace(0, len(array) - 1, SAMPLES, dtype=np.int64)):
            checksum = zlib.crc32(np.ascontiguousarray(array[row]).reshape(-1)[:4096].tobytes(), checksum)
    return [list(array.shape), array.dtype.str, checksum]
