"""Serve the lab on this machine until somebody presses Ctrl-C."""

from __future__ import annotations

import signal
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from starlette.types import ASGIApp

from gapless.lab.app import make_app
from gapless.lab.ending import Ending
from gapless.model.errors import GaplessError

HOST = "127.0.0.1"


class Server(uvicorn.Server):
    """Says when it answers, and ends without waiting for work that is under way."""

    def __init__(self, app: ASGIApp, started: Callable[[], None]) -> None:
        self._ending = Ending(app)
        self._tell = started
        super().__init__(
            uvicorn.Config(
                self._ending, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=1,
                ws="none",
            )
        )  # fmt: skip

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say so once it answers."""
        await super().startup(sockets)
        if self.started:
            self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer whoever still waits, then close."""
        self._ending.end()
        await super().shutdown(sockets)


def serve(*, port: int = 0, say: Callable[[str], None], browser: bool = True) -> None:
    """Serve the lab on a port (0: any that is free); *say* is told its address.

    To be called in the main thread; returns when Ctrl-C is pressed. Raises GaplessError where the port is taken.
    """
    with _listening(port) as listener, TemporaryDirectory(prefix="gapless-lab-") as folder:
        port = listener.getsockname()[1]
        address = f"http://{HOST}:{port}/"

        def started() -> None:
            say(address)
            if browser:
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        app = make_app({f"{HOST}:{port}", f"localhost:{port}"}, Path(folder))
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does, and leaves nothing behind
        try:
            Server(app, started).run(sockets=[listener])
        except KeyboardInterrupt:
            return


def _listening(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except (OSError, OverflowError) as problem:
        listener.close()
        reason = getattr(problem, "strerror", None) or problem
        raise GaplessError(f"Port {port}: {reason}. Leave --port out to take any that is free.") from None
    return listener
