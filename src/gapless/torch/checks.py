"""``gapless.torch.check``: watch what is inside a ``with`` block, or a whole program."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from concurrent.futures.thread import _WorkItem
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from gapless.model.errors import GaplessError

from .dry import DryDevice
from .findings import Checked
from .judge import judge
from .log import MOST, Log
from .patches import Patches
from .pretend import where
from .saving import saved_tensors
from .stacks import leave_out
from .stand_ins import dry_run, modes_of_thread
from .watch import VIEWS, Watch

leave_out(str(Path(torch.__file__).parent))
_running: list[Check] = []


def _forked() -> None:
    """Let a process that was forked, a DataLoader's worker say, go on without being watched."""
    for check in _running:
        if check.watch is not None:
            check.watch.asleep = True


os.register_at_fork(after_in_child=_forked)


class Check:
    """Checks the PyTorch operations inside it for missing waits between streams::

        with gapless.torch.check() as found:
            train()
        print(found.result)

    ``dry``: on a pretended GPU, on a machine without one. ``result`` is there when the block has ended.
    """

    def __init__(self, *, dry: bool = False) -> None:
        self.dry = dry
        self.log = Log()
        self.watch: Watch | None = None
        self._result: Checked | None = None
        self._stack = ExitStack()

    @property
    def result(self) -> Checked:
        """What was found. Raises GaplessError inside the block."""
        if self._result is None:
            raise GaplessError("The check still runs: its result is there when the with block has ended.")
        return self._result

    def __enter__(self) -> Check:
        if _running:
            raise GaplessError("A check is running already: one with block of gapless.torch.check at a time.")
        if not self.dry and not torch.cuda.is_available():
            raise GaplessError(
                "There is no GPU here, or PyTorch cannot use it. To check without one: gapless check --dry -- python "
                "SCRIPT, or gapless.torch.check(dry=True)."
            )
        _running.append(self)
        try:
            if self.dry:
                device = DryDevice(self.log)
                watch = Watch(self.log, device)
                self._stack.enter_context(dry_run(device, watch))
                self._stack.enter_context(_in_threads(lambda: modes_of_thread(device, watch)))
            else:
                from .gpu import GpuDevice, watching

                gpu = GpuDevice(self.log)
                watch = Watch(self.log, gpu)
                self._stack.enter_context(watching(gpu, watch))
                self._stack.enter_context(_in_threads(lambda: _entered(watch.in_thread())))
            self.watch = watch
            if "torch._dynamo" in sys.modules:  # what was compiled before runs operation by operation too
                self._stack.enter_context(torch.compiler.set_stance("force_eager"))
            self._stack.enter_context(_host_views(self.log, watch))
            _note_threads(self.log)
        except BaseException:
            self._stack.close()
            _running.remove(self)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        _running.remove(self)
        if self.watch is not None:
            self.watch.over = True
        log = self.log
        findings = judge(log)
        if log.full:
            log.note(f"the program went on after {MOST:,} operations that matter; the rest was not looked at")
        self._result = Checked(
            findings,
            {what: [place for place in places if place] for what, places in log.notes.items()},
            log.operations,
            [stream.name for stream in log.streams],
            self.dry,
        )


def check(*, dry: bool = False) -> Check:
    """Check what PyTorch does inside a ``with`` block for missing waits between streams; see ``Check``."""
    return Check(dry=dry)


def _entered(mode: Any) -> ExitStack:
    stack = ExitStack()
    stack.enter_context(mode)
    return stack


@contextmanager
def _in_threads(modes: Any) -> Iterator[None]:
    """Watch threads that are started from now on as well, and pools; processes that are forked are not watched."""
    patches, here = Patches(), os.getpid()
    real = threading.Thread._bootstrap_inner  # pyright: ignore[reportAttributeAccessIssue]
    real_run = _WorkItem.run
    watched = threading.local()
    watched.by_us = True

    def begin(self: threading.Thread) -> None:
        if os.getpid() != here:
            real(self)
            return
        watched.by_us = True
        with modes():
            real(self)

    def run(self: Any) -> None:
        """Do what a pool was given, which may have begun its threads before."""
        if os.getpid() != here or hasattr(watched, "by_us"):
            real_run(self)
            return
        with modes():
            real_run(self)

    patches.put(threading.Thread, "_bootstrap_inner", begin)
    patches.put(_WorkItem, "run", run)
    try:
        yield
    finally:
        patches.undo()


_THREADS = "threads that the program began before the check: what they do is not seen"
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _note_threads(log: Log) -> None:
    """Note threads that are in the midst of the program's own code: nothing can watch those."""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0) if thread is not threading.current_thread() else None
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith((*_LIBRARIES, "<frozen")):
                log.note(_THREADS, f"{file}:{frame.f_lineno}")
                break
            frame = frame.f_back


@contextmanager
def _host_views(log: Log, watch: Watch) -> Iterator[None]:
    """Note where other code is given the memory of a tensor that streams use."""
    patches = Patches()

    def noting(name: str) -> None:
        real = getattr(torch.Tensor, name)

        def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            place = "" if watch.sleeps or kwargs.get("force") else where()  # by force, NumPy is given a copy
            if place and (watch.device.holds(self) or watch.device.pinned(self) or watch.copies(self)):
                log.note(VIEWS, place)
            return real(self, *args, **kwargs)

        patches.put(torch.Tensor, name, call)

    for name in ("numpy", "data_ptr", "__dlpack__", "__array__"):
        noting(name)
    real_tolist = torch.Tensor.tolist

    def tolist(self: torch.Tensor) -> Any:
        watch.host_reads(self, "tolist")
        return real_tolist(self)

    real_save = torch.save

    def save(obj: Any, *args: Any, **kwargs: Any) -> None:
        for tensor in saved_tensors(obj):
            watch.host_reads(tensor, "save")
        real_save(obj, *args, **kwargs)

    real_resize = torch.UntypedStorage.resize_

    def resize(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        before = self.nbytes()
        result = real_resize(self, *args, **kwargs)
        if not watch.sleeps:
            watch.resized(self, before)
        return result

    patches.put(torch.Tensor, "tolist", tolist)
    patches.put(torch, "save", save)
    patches.put(torch.UntypedStorage, "resize_", resize)
    try:
        yield
    finally:
        patches.undo()


__all__ = ["Check", "check"]
