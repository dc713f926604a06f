"""``gapless lab``."""

from __future__ import annotations

import sys

from gapless.cli.output import write
from gapless.cli.words import DONE, Count
from gapless.model.errors import GaplessError
from gapless.model.extras import install_line


def lab(*, port: Count = Count(0), no_browser: bool = False) -> int:  # noqa: B008
    """Open a page to play with streams: presets, controls, an editor for tapes, timelines explained.

    The page is served on this machine alone and takes nothing from the network. Ctrl-C ends it.

    Parameters
    ----------
    port
        Port to serve it on. By default any that is free.
    no_browser
        Only print its address.
    """
    try:
        from gapless.lab.serving import serve
    except ImportError as problem:
        if problem.name not in ("starlette", "uvicorn", "anyio"):
            raise
        raise GaplessError(f"The lab needs {problem.name}. Write: {install_line('lab')}") from None
    if not 0 <= port < 1 << 16:
        raise GaplessError(f"--port {port} is no port. Leave it out to take any that is free.")

    def say(address: str) -> None:
        write(f"The lab is at {address}  (Ctrl-C ends it)")
        sys.stdout.flush()

    serve(port=port, say=say, browser=not no_browser)
    return DONE
