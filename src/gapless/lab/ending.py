"""The end of a running lab: whoever still waits for an answer gets one at once."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gapless.lab.guard import HEADERS

_ENDED = JSONResponse({"error": {"said": "the lab has been ended"}}, 503, headers=HEADERS)


class Ending:
    """Passes requests on until the lab ends; then it stops those that wait for work, and answers them with 503.

    The server would cancel them too, after a while, but takes that for a fault of the lab and tells the user so.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._waiting: set[asyncio.Task[Any]] = set()
        self._ended = False

    def end(self) -> None:
        """Stop what is under way, apart from answers that are being sent: these are complete in a moment."""
        self._ended = True
        for task in self._waiting:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if self._ended:
            return await _ENDED(scope, receive, send)
        task = asyncio.current_task()
        assert task is not None

        async def send_begun(message: Message) -> None:
            self._waiting.discard(task)
            await send(message)

        self._waiting.add(task)
        try:
            return await self._app(scope, receive, send_begun)
        except asyncio.CancelledError:
            if not self._ended or task not in self._waiting:
                raise
            task.uncancel()
        finally:
            self._waiting.discard(task)
        return await _ENDED(scope, receive, send)
