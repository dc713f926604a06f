"""Record a part of the Python program that runs: ``with gapless.record() as recording: ...``."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from gapless.model.errors import GaplessError
from gapless.recorder import blocks, names
from gapless.recorder.library import find_cupti, find_library, missing_driver, version

if TYPE_CHECKING:
    from gapless.timeline.timeline import Timeline

_PROBLEM = 1024  # bytes of the problem in words


class Recording:
    """A recording of what the program does with CUDA between entering and leaving the ``with`` block.

    ``path`` is the file, which ``gapless explain`` and ``gapless.load`` read; without a path of your own it is a
    temporary file that goes with this object. One recording runs at a time, and none while torch.profiler or another
    tool holds CUPTI. Leaving the block waits for the current device, so that what was launched is in the recording.
    What it takes is what ``gapless.record`` takes.
    """

    explained_by: ClassVar[Callable[..., Any] | None] = None  # set from above: what ``explain`` calls

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_size: int = 0,
        lines: bool = True,
        addresses: bool = False,
        force: bool = False,
    ):
        if path is None:
            handle, name = tempfile.mkstemp(suffix=".gapless")
            os.close(handle)
            self.path = Path(name)
            weakref.finalize(self, self.path.unlink, missing_ok=True)
            force = True
        else:
            self.path = Path(path)
        self._force = force
        self._max_size = max_size
        self._lines = lines
        self._addresses = addresses
        self._state = "new"

    def __enter__(self) -> Self:
        if self._state != "new":
            raise GaplessError("A recording records once: make another with gapless.record().")
        library = _library()
        if missing := missing_driver():  # some CUPTIs call themselves without end when they look for it
            raise GaplessError(f"Nothing can be recorded. {missing}")
        with blocks.made(self.path, force=self._force):
            self._start(library)
        self._state = "running"
        return self

    def _start(self, library: ctypes.CDLL) -> None:
        problem = ctypes.create_string_buffer(_PROBLEM)
        os.environ.setdefault("NVTX_INJECTION64_PATH", str(find_cupti().resolve()))  # so that ranges reach CUPTI
        failed = library.gapless_recorder_start(
            os.fsencode(self.path.resolve()), os.fsencode(find_cupti().resolve()), version().encode(),
            ctypes.c_uint64(self._max_size), int(self._lines), int(self._addresses), problem, _PROBLEM,
        )  # fmt: skip
        if failed:
            said = problem.value.decode(errors="replace")
            if "another profiler" in said and "torch" in sys.modules:
                said += "; torch.profiler, once it ran, keeps CUPTI until the process ends"
            raise GaplessError(f"Nothing can be recorded: {said}.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state == "running":
            _library().gapless_recorder_stop()
            self._state = "over"
            with suppress(OSError):  # the disk is full, or the file gone: the recording is what it is
                names.demangle(self.path)

    def timeline(self) -> Timeline:
        """Read the recording. Raises GaplessError before it has ended."""
        from gapless.timeline.sources import load

        self._check_over()
        return load(self.path)

    def explain(self, **options: Any) -> Any:
        """Explain the recording: what ``gapless.explain`` gives for it, with its options."""
        self._check_over()
        if Recording.explained_by is None:
            raise GaplessError("Use gapless.record(): it knows how recordings are explained.")
        return Recording.explained_by(self.path, **options)

    def _check_over(self) -> None:
        if self._state != "over":
            raise GaplessError("This recording has not ended: leave its with block first.")


@cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(find_library()))
    except OSError as problem:
        raise GaplessError(f"The recorder cannot be loaded: {problem}") from None
