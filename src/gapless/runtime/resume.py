"""A journal of finished rows, so that a long run into a memory-mapped file goes on after a crash.

A line of JSON says what the run is; each line after it says rows that are done, and is written only after the result's
file has been flushed. A run that ends removes its journal: the next run is a new one.

The file is there from the begin of the run, so that a path that cannot be written is told before any work. It comes
into being with its first line in it: whatever has another first line, or none, is not ours, and is left as it is.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Self

import numpy as np

from gapless.model.errors import GaplessError

from .devices import HostArray

EVERY = 1.0  # seconds between flushes
SAMPLES = 64  # stretches of the input that tell it from another


class Journal:
    """Which rows of a run are done. Raises GaplessError where the file is another run's, or cannot be a journal."""

    def __init__(self, path: str | os.PathLike[str], inputs: Sequence[HostArray], out: Sequence[HostArray] | None,
                 rows: int, kernel: str) -> None:  # fmt: skip
        if out is None or not all(isinstance(array, np.memmap) for array in out):
            raise GaplessError("resume= needs out= to be a np.memmap: only what is in a file outlives a crash.")
        if any(np.may_share_memory(array, target) for array in inputs for target in out):
            raise GaplessError("resume= needs an out= apart from the input: what a crash left half done is read again.")
        self._path = Path(path)
        self._out: list[Any] = list(out)
        self._run: dict[str, Any] = {
            "gapless resume": 1, "kernel": kernel, "rows": rows, "inputs": [_described(array) for array in inputs],
            "out": [[str(getattr(array, "filename", "")), list(array.shape), array.dtype.str] for array in out],
        }  # fmt: skip
        self._waiting: list[tuple[int, int]] = []
        self._flushed = monotonic()
        with self._access():
            if self._path.exists() and not (
                self._path.is_file() or self._path.is_dir()
            ):  # a pipe would be waited for, a device read without end
                raise GaplessError(f"resume={self._path} is no file. Name one that is there or can be made.")
            try:
                self.done = self._read(self._path.read_bytes())
            except FileNotFoundError:
                self.done: list[tuple[int, int]] = []
                self._create()
        self._is_bare = not self.done  # no rows stand in it

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
        with self._access(), self._path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(span) + "\n" for span in self._waiting)
            file.flush()
            os.fsync(file.fileno())
        self._waiting.clear()
        self._is_bare = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, failed: BaseException | None, *__: object) -> None:
        """Remove the journal of a run that is done; of another keep the rows that are, if any."""
        if failed is None:
            for array in self._out:
                array.flush()
        else:
            try:
                self.flush()
            except GaplessError as problem:  # what ended the run is what is to be mended first
                failed.add_note(f"gapless: rows that were done will be done again: {problem}")
        if failed is None or self._is_bare:
            self._path.unlink(missing_ok=True)

    @contextmanager
    def _access(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as problem:  # ValueError: no name that a file can have
            if isinstance(problem, GaplessError):
                raise
            why = getattr(problem, "strerror", None) or problem
            raise GaplessError(f"resume={str(self._path)!r}: {why}.") from None

    def _create(self) -> None:
        """Write the first line beside the file and link it there, which never replaces what is there already."""
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            with new.open("x", encoding="utf-8") as file:
                file.write(json.dumps(self._run) + "\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                self._path.hardlink_to(new)
            except OSError as problem:
                if problem.errno == errno.EEXIST:
                    raise
                with self._path.open("xb") as file:  # the file system knows no hard links
                    file.write(new.read_bytes())
        finally:
            new.unlink(missing_ok=True)

    def _read(self, content: bytes) -> list[tuple[int, int]]:
        """Give the rows that a journal says are done, and cut off what a crash left of a last line."""
        lines = content.split(b"\n")
        run = _parsed(lines[0])
        if len(lines) < 2 or not isinstance(run, dict) or "gapless resume" not in run:
            raise GaplessError(f"{self._path} is no journal of a pipeline, and is left as it is. Name another file.")
        if run != self._run:
            differs = ", ".join(sorted(key for key in self._run if run.get(key) != self._run[key]))
            raise GaplessError(
                f"{self._path} is the journal of another run: it differs in {differs}. Remove it to start anew."
            )
        spans: list[tuple[int, int]] = []
        end = len(lines[0]) + 1
        for line in lines[1:-1]:  # the last is empty, or was cut off
            match _parsed(line):
                case [int(first), int(after)] if type(first) is type(after) is int and (
                    0 <= first <= after <= self._run["rows"]
                ):
                    spans.append((first, after))
                    end += len(line) + 1
                case _:  # the disk lost it: this and what was written later is done again
                    break
        if end < len(content):
            os.truncate(self._path, end)
        return spans


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # the latter of a line of thousands of brackets
        return None


def _described(array: HostArray) -> list[Any]:
    """Give shape, type and a checksum over samples of an input, so that other data are not taken for these."""
    checksum = 0
    if array.size:
        for row in np.unique(np.linspace(0, len(array) - 1, SAMPLES, dtype=np.int64)):
            checksum = zlib.crc32(np.ascontiguousarray(array[row]).reshape(-1)[:4096].tobytes(), checksum)
    return [list(array.shape), array.dtype.str, checksum]
