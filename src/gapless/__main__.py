"""The command ``gapless``, which ``python -m gapless`` is too: what stands between its start and its first import.

The command line and what it is made of take a moment to import. Ctrl-C in that moment ends the process like later on,
in silence: a KeyboardInterrupt would have to find its way through other people's modules. One that Python drops later
on, in a callback of its own, is told again.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time

INTERRUPTED = 128 + signal.SIGINT  # as shells report it
_SOON = 0.01  # seconds after which a Ctrl-C that was dropped is told again


def main() -> int:
    """Run the command line and give its exit status."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else whoever started us has it ignored
    if heard:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from gapless.cli import main as run

    if not heard:
        return run()
    dropped = _dropped_ctrl_c()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        status = run()
    except KeyboardInterrupt:
        return INTERRUPTED
    if dropped:  # and not told again in time
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return INTERRUPTED
    return status


def _dropped_ctrl_c() -> list[int]:
    """Give a list that is empty until Python drops a Ctrl-C, which is then told again.

    What is raised in a callback of Python's own, such as that of a weak reference which every import keeps, is shown
    and dropped: the command would go on as if nothing had been asked of it.
    """
    found: list[int] = []
    show, here = sys.unraisablehook, _thread.get_ident()

    def again() -> None:
        time.sleep(_SOON)  # in the callback it would be dropped once more
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(here, signal.SIGINT)  # wakes it where it waits
        else:
            _thread.interrupt_main()

    def drop(what: sys.UnraisableHookArgs) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            found.append(signal.SIGINT)
            _thread.start_new_thread(again, ())
        else:
            show(what)

    sys.unraisablehook = drop
    return found


if __name__ == "__main__":
    sys.exit(main())
