"""Who may ask the lab: only pages that it served itself, under its own name.

The server listens on this machine alone, but any web site that is open in the user's browser can try to talk to it. A
site that lets its own name point to this machine (DNS rebinding) shows in ``Host``; a request of another site shows in
``Origin`` and ``Sec-Fetch-Site``. No header ever allows another site to read an answer.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class Guard:
    """Refuses requests that do not come from the lab's own page, and says in each answer what a browser may do."""

    def __init__(self, app: ASGIApp, hosts: set[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return None  # there are no web sockets here

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if refusal := self._refusal(scope):
            return await PlainTextResponse(refusal, 403)(scope, receive, send_guarded)
        return await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> str:
        """Say why a request is not answered; empty where it is."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self._hosts:
            return f"The lab is served as {' or '.join(sorted(self._hosts))} and under no other name.\n"
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        # Whoever follows a link to the lab's page from another site may see it; nothing else may come from there.
        opens_page = scope["method"] == "GET" and scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate"
        if origin not in (None, f"http://{host}") or (site not in ("none", "same-origin") and not opens_page):
            return "Only the lab's own page may ask this.\n"
        return ""
