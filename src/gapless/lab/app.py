"""The lab's server: the page, what it plays, what it explains. Only this machine may ask, and only from its own page.

``GET /``, ``/web/NAME``     the page and its parts
``GET /lesson``              the presets
``POST /play``               ``{"loop": {...}}`` or ``{"tape": "..."}``: the run, or what is wrong (``error``)
``POST /explain?name=NAME``  the body is a timeline: ``{"page": URL, ...}``, or ``error``
``GET /explained/NUMBER``    such a page
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

import gapless.views
from gapless.lab.asked import LONGEST, NoRequestError, understand
from gapless.lab.guard import Guard
from gapless.lab.presets import lesson
from gapless.lab.workers import TooLongError, Workers
from gapless.model.errors import GaplessError
from gapless.views.wording import shorten, size, visible

PLAY_WITHIN, EXPLAIN_WITHIN = 10.0, 180.0  # seconds
LARGEST_TIMELINE = 1 << 30  # bytes
KEPT_PAGES = 4  # explained timelines; older ones are deleted

_WEB = (Path(__file__).parent / "web", Path(gapless.views.__file__).parent / "web")
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# An explained timeline is one file with its script and data inside; it may do nothing but draw itself.
_PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src data: blob:; frame-ancestors 'self'; sandbox allow-scripts"
)


@dataclass(slots=True)
class Lab:
    """What one running lab holds: its workers, and the pages of timelines that were dropped on it."""

    folder: Path
    workers: Workers
    pages: dict[str, Path] = field(default_factory=dict[str, Path])

    async def play(self, request: Request) -> Response:
        """Play what the page asks for, unless it asks for something else first."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > 8 * LONGEST:  # JSON may write a character in six
                return _json({"error": {"said": "this is more than the lab plays"}}, status=413)
        try:
            understand(bytes(body))
        except GaplessError as problem:  # a tape that is too long comes from the page: an answer like any other
            return _json({"error": {"said": str(problem)}}, status=400 if isinstance(problem, NoRequestError) else 200)
        return await self._work(request, {"play": body.decode()}, PLAY_WITHIN, _TOO_LONG_TO_PLAY)

    async def explain(self, request: Request) -> Response:
        """Explain an uploaded timeline: on disk while that lasts, deleted afterwards."""
        name = shorten(visible(request.query_params.get("name", "")), 120) or "timeline"
        announced = request.headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced) > LARGEST_TIMELINE:
            return _json({"error": {"said": _TOO_LARGE}}, status=413)
        number = secrets.token_urlsafe(12)
        page, folder = self.folder / f"{number}.html", self.folder / number
        kind = re.search(r"\.[a-z0-9-]{1,12}$", name)  # of a report of Nsight Systems the name tells what it is
        upload = folder / f"upload{kind[0] if kind else ''}"
        folder.mkdir()
        try:
            if not await _save(request, upload):
                return _json({"error": {"said": _TOO_LARGE}}, status=413)
            job = {"explain": {"file": str(upload), "name": name, "page": str(page), "url": f"/explained/{number}"}}
            answer = await self._work(request, job, EXPLAIN_WITHIN, _TOO_LONG_TO_EXPLAIN, keep=False)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if page.exists():
            self._keep(number, page)
        return answer

    def _keep(self, number: str, page: Path) -> None:
        self.pages[number] = page
        while len(self.pages) > KEPT_PAGES:
            self.pages.pop(next(iter(self.pages))).unlink(missing_ok=True)

    async def explained(self, request: Request) -> Response:
        """Give the page of an explained timeline."""
        page = self.pages.get(request.path_params["number"])
        if page is None:
            return Response("This page is gone. Drop the timeline on the lab again.\n", 404, media_type="text/plain")
        return FileResponse(page, media_type="text/html", headers={"content-security-policy": _PAGE_POLICY})

    async def _work(
        self, request: Request, job: dict[str, Any], within: float, too_long: str, *, keep: bool = True
    ) -> Response:
        """Let a worker do a job, and end it where the page goes away meanwhile."""
        work = asyncio.ensure_future(self.workers.do(job, within=within, keep=keep))
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return Response(status_code=499)  # nobody reads it
            return Response(work.result(), media_type="application/json")
        except TooLongError:
            return _json({"error": {"said": too_long}})
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)


_TOO_LONG_TO_PLAY = (
    f"the lab works on a tape for {PLAY_WITHIN:.0f} seconds at most, and this one takes longer. "
    "Play it on the command line: gapless simulate TAPE"
)
_TOO_LONG_TO_EXPLAIN = (
    f"the lab works on a timeline for {EXPLAIN_WITHIN / 60:.0f} minutes at most, and this one takes longer. "
    "Explain it on the command line: gapless explain TIMELINE"
)
_TOO_LARGE = (
    f"the lab takes timelines of up to {size(LARGEST_TIMELINE)}. Explain this one on the command line: "
    "gapless explain TIMELINE"
)


async def _save(request: Request, path: Path) -> bool:
    """Write the body of a request into a file; tell whether it was small enough."""
    written = 0
    with path.open("wb") as file:
        async for part in request.stream():
            written += len(part)
            if written > LARGEST_TIMELINE:
                return False
            await asyncio.to_thread(file.write, part)
    return True


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json(values: dict[str, Any], *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(values), status, media_type="application/json")


async def _page(request: Request) -> Response:
    return _part("index.html")


async def _web(request: Request) -> Response:
    return _part(request.path_params["name"])


def _part(name: str) -> Response:
    """Give a part of the page: its own ones, or those of the views that it draws with."""
    for folder in _WEB:
        if any(path.name == name for path in folder.iterdir()):
            return Response((folder / name).read_bytes(), media_type=_TYPES.get(Path(name).suffix, "text/plain"))
    return Response("There is no such file.\n", 404, media_type="text/plain")


async def _lesson(request: Request) -> Response:
    points = [{"title": point.title, "presets": [preset.to_dict() for preset in point.presets]} for point in lesson()]
    return _json({"points": points})


def make_app(hosts: set[str], folder: Path) -> Guard:
    """Make the server, which answers those who call it by one of these names (``127.0.0.1:8000``) and nobody else.

    What it keeps of uploads, for as long as it runs, lies in a folder of its own.
    """
    lab = Lab(folder, Workers(folder))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        warming = asyncio.ensure_future(lab.workers.warm())
        try:
            yield
        finally:
            warming.cancel()
            await asyncio.gather(warming, return_exceptions=True)
            await lab.workers.close()

    async def disconnected(request: Request, problem: Exception) -> Response:
        return Response(status_code=499)

    app = Starlette(
        routes=[
            Route("/", _page),
            Route("/web/{name}", _web),
            Route("/lesson", _lesson),
            Route("/play", lab.play, methods=["POST"]),
            Route("/explain", lab.explain, methods=["POST"]),
            Route("/explained/{number}", lab.explained),
        ],
        lifespan=lifespan,
        exception_handlers={ClientDisconnect: disconnected},
    )
    return Guard(app, hosts)
