"""Run a program and wait for it, with the signals that it would have had alone."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence

_PASSED_ON = ("SIGTERM", "SIGHUP")
_LEFT_TO_IT = ("SIGINT", "SIGQUIT")  # a terminal sends them to all that run in it


class Child:
    """A program that runs, until ``wait`` has given its status.

    A terminal's Ctrl-C reaches it without help; a request to end is passed on. What it does then is its business.
    *program* is the file to start where that is not the first word of *command*. Raises OSError where it cannot start.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, program: str | None = None) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._before = {}
        try:
            for names, handler in ((_PASSED_ON, self._pass_on), (_LEFT_TO_IT, self._leave_it)):
                for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
                    if signal.getsignal(number) is not signal.SIG_IGN:  # nohup: the program is to ignore it as well
                        self._before[number] = signal.signal(number, handler)
            self._process = subprocess.Popen(list(command), executable=program, env=environment)
        except BaseException:
            self._restore()
            raise
        for number in self._early:
            self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until it ends, and give its status: -n where signal n ended it."""
        assert self._process is not None
        try:
            return self._process.wait()
        finally:
            self._restore()

    def _pass_on(self, signum: int, frame: object) -> None:
        if self._process is None:
            self._early.append(signum)
        else:
            self._process.send_signal(signum)

    def _leave_it(self, signum: int, frame: object) -> None:
        pass

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
