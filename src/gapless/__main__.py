"""The command ``gapless``, which ``python -m gapless`` is too: what stands between its start and its first import.

The command line and what it is made of take a moment to import. Ctrl-C in that moment ends the process like later on,
in silence: a KeyboardInterrupt would have to find its way through other people's modules.
"""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 128 + signal.SIGINT  # as shells report it


def main() -> int:
    """Run the command line and give its exit status."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else whoever started us has it ignored
    if heard:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from gapless.cli import main as run

    try:
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
