"""A crew in C: threads that copy without turns at the interpreter's lock, and share the copies of one chunk.

The library is in a wheel, or compiled once from ``native/crew.c`` where there is a C compiler. Without it a device uses
``crew.Threads``, which do the same in Python.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.model import native
from gapless.model.errors import GaplessError

from . import Copied, Copies, HostArray, Source
from .address import Alike, address, addresses_if_alike, look_by
from .crew import carry_out

NAME = "libgapless-crew.so"
_SOURCE = Path(__file__).parent / "native" / "crew.c"
_BROUGHT = Path(__file__).parent / NAME
PATIENCE = 50_000_000  # ns after which who waits looks whether there was a Ctrl-C


class _News(ctypes.Structure):
    _fields_ = (
        ("number", ctypes.c_uint64), ("begun", ctypes.c_int64), ("ended", ctypes.c_int64), ("worked", ctypes.c_int64),
        ("status", ctypes.c_int64),
    )  # fmt: skip


class Library:
    """The functions of the library: *quick* ones are called without letting go of the interpreter's lock."""

    def __init__(self, path: Path) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self.quick, self.slow = ctypes.PyDLL(str(path)), ctypes.CDLL(str(path))
        for calls in (self.quick, self.slow):
            calls.gapless_crew_open.argtypes = (pointer, ctypes.c_int, pointer, pointer, pointer)
            calls.gapless_crew_submit.argtypes = (pointer, ctypes.c_uint64, pointer, pointer, number)
            calls.gapless_crew_next.argtypes = (pointer, number, pointer)
            calls.gapless_crew_stop.argtypes = calls.gapless_crew_free.argtypes = (pointer,)
            calls.gapless_alike.argtypes = (pointer, number, pointer, pointer)


@lru_cache(maxsize=1)
def load() -> Library | str:
    """Give the library, or why there is none."""
    if os.name != "posix":
        return "they are for Linux"
    try:
        library = Library(_BROUGHT if _BROUGHT.is_file() else compile_here(native.cache_folder()))
        look_by(library.quick.gapless_alike)
        return library
    except (GaplessError, OSError, AttributeError, RuntimeError) as problem:
        return str(problem).partition("\n")[0].rstrip(":")


def compile_here(root: Path, *, delays: bool = False) -> Path:
    """Give the library in a folder of *root*; compile it if need be. Raises GaplessError where that cannot be done.

    *delays*: its threads sleep now and then, for tests.
    """
    return native.library_of(
        _SOURCE, root, NAME, part="staging threads", defines=["GAPLESS_DELAYS"] if delays else []
    )  # fmt: skip


class Pool:
    """A crew. *wait* and *enter* are addresses of C functions.

    ``wait(event)`` gives 0 when what an event stands for is over; ``enter(context)`` is called once by the thread that
    waits. *failed* makes an error of what else ``wait`` gives. Tasks are begun in the order in which they are ready,
    whatever their lanes.
    """

    def __init__(
        self, library: Library, threads: int, *, wait: int, enter: int, context: int,
        failed: Callable[[int], BaseException],
    ) -> None:  # fmt: skip
        self._library, self._failed = library, failed
        self._process = os.getpid()  # a child has none of the threads
        self._crew = ctypes.c_void_p()  # holds it before a Ctrl-C can come between
        self._count = 0
        self._known: dict[int, tuple[Any, Any]] = {}  # by the number of a task: its token, and what it must not lose
        self._here: deque[Copied] = deque()  # what was done in the calling thread
        self._news = _News()
        self._place = ctypes.addressof(self._news)
        if library.slow.gapless_crew_open(ctypes.addressof(self._crew), threads, wait, enter, context):
            raise MemoryError("The system gives no threads to copy with.")

    def submit(self, lane: int, token: Any, copies: Copies) -> None:
        """Ask for copies; ``next`` will give the token back."""
        if not self._crew:
            raise RuntimeError("this crew is closed")
        parts, grids = _parts(copies.pairs)
        if parts is None:
            self._copy_here(token, copies)
            return
        self._count = number = self._count + 1
        self._known[number] = token, (copies, parts, grids)
        event = None if copies.after is None else copies.after.handle  # pyright: ignore[reportAttributeAccessIssue]
        if self._library.quick.gapless_crew_submit(self._crew, number, event, address(parts), len(parts)):
            del self._known[number]
            raise MemoryError("There is no memory for a task of the staging threads.")

    def _copy_here(self, token: Any, copies: Copies) -> None:
        """Copy what the library cannot, or find out why it cannot be copied at all."""
        try:
            start, end = carry_out(copies)
            self._here.append(Copied(token, (start, end), end - start))
        except Exception as problem:
            self._here.append(Copied(token, None, error=problem))

    def next(self) -> Copied:
        """Wait until some task is done, and say which."""
        if self._here:
            return self._here.popleft()
        if not self._library.quick.gapless_crew_next(self._crew, 0, self._place):
            while not self._library.slow.gapless_crew_next(self._crew, PATIENCE, self._place):
                continue
        return self._heard()

    def _heard(self) -> Copied:
        news = self._news
        token, _ = self._known.pop(news.number)
        if news.status:
            return Copied(token, None, error=self._failed(news.status))
        return Copied(token, (news.begun, news.ended), news.worked)

    def close(self) -> list[Copied]:
        """Let the threads finish what they are at, drop the rest, wait until they are gone; give what is news.

        Ctrl-C may come at any moment: until the threads are gone, all that they look at is kept, and ``close`` can be
        called again.
        """
        news: list[Copied] = []
        if self._crew and self._process == os.getpid():
            self._library.slow.gapless_crew_stop(self._crew)
            while self._library.quick.gapless_crew_next(self._crew, 0, self._place):
                news.append(self._heard())
            self._library.quick.gapless_crew_free(ctypes.addressof(self._crew))
        news += self._here
        self._here.clear()
        self._known.clear()
        return news

    def __del__(self) -> None:
        if getattr(self, "_crew", None):
            self.close()


# ------------------------------------------------------------------------------------------ what is to be copied

Parts = NDArray[np.int64]  # (parts, 4): address of the target, of the source, bytes, address of a grid or 0; see crew.c


def _parts(pairs: Sequence[tuple[HostArray, Source]]) -> tuple[Parts | None, list[Parts]]:
    """Describe copies for the library, with the grids that the description refers to; None: it cannot do them."""
    rows: list[Any] = []
    grids: list[Parts] = []
    if len(pairs) > 1:
        alike = _parts_alike(pairs)
        if alike is not None:
            return alike, grids
    for target, source in pairs:
        if isinstance(source, np.ndarray):
            if not _fits(target, source):
                return None, []
            if target.nbytes:
                rows.append([_part(target, source, grids)])
            continue
        joined = _joined(target, source, grids)
        if joined is None:
            return None, []
        rows.append(joined)
    if len(rows) == 1:
        return np.asarray(rows[0], np.int64).reshape(-1, 4), grids
    return np.concatenate([np.asarray(part, np.int64).reshape(-1, 4) for part in rows] or [_NOTHING]), grids


def _parts_alike(pairs: Sequence[tuple[HostArray, Source]]) -> Parts | None:
    """Describe copies of whole arrays that are all of one shape and type, without a look at each; else None."""
    target, source = pairs[0]
    if not isinstance(source, np.ndarray) or not _fits(target, source) or not target.nbytes:
        return None
    targets, sources = (addresses_if_alike(ends) for ends in zip(*pairs, strict=True))
    if targets is None or sources is None:
        return None
    return _whole(targets, sources, target.nbytes)


def _whole(targets: NDArray[np.int64], sources: NDArray[np.int64], size: int) -> Parts:
    """Describe copies of *size* bytes each."""
    parts = np.zeros((len(targets), 4), np.int64)
    parts[:, 0], parts[:, 1], parts[:, 2] = targets, sources, size
    return parts


_NOTHING = np.empty((0, 4), np.int64)


def _fits(target: HostArray, source: HostArray) -> bool:
    return target.shape == source.shape and target.dtype == source.dtype and not target.dtype.hasobject


def _part(target: HostArray, source: HostArray, grids: list[Parts]) -> tuple[int, int, int, int]:
    if target.flags.c_contiguous and source.flags.c_contiguous:
        return address(target), address(source), target.nbytes, 0
    item, lengths = target.itemsize, list(target.shape)
    to, fro = list(target.strides), list(source.strides)
    while len(lengths) > 1 and (lengths[-1] == 1 or (to[-1] == item and fro[-1] == item)):
        item *= lengths.pop()  # elements that lie side by side in both are one
        to.pop()
        fro.pop()
    grid = np.array([len(lengths), item, *lengths, *to, *fro], np.int64)
    grids.append(grid)
    return address(target), address(source), target.nbytes, address(grid)


def _joined(target: HostArray, sources: Sequence[HostArray], grids: list[Parts]) -> Any:
    """Describe arrays whose rows are put one after another; None where they do not make up the target."""
    first = sources[0]
    if target.dtype != first.dtype or target.shape[1:] != first.shape[1:] or not target.flags.c_contiguous:
        return None
    start = address(target)
    places = sources.places if isinstance(sources, Alike) else addresses_if_alike(sources)
    if places is not None:
        size = first.nbytes
        if size * len(sources) != target.nbytes or target.dtype.hasobject:
            return None
        return _whole(np.arange(start, start + target.nbytes, size), places, size) if size else _NOTHING
    rows: list[tuple[int, int, int, int]] = []
    low = 0
    for source in sources:
        high = low + len(source)
        if not _fits(target[low:high], source):
            return None
        if source.nbytes:
            rows.append(_part(target[low:high], source, grids))
        low = high
    return (rows or _NOTHING) if low == len(target) else None
