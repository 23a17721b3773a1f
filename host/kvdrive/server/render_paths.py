"""The path that makes HTML of Markdown, for the page."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from kvdrive.server.answer_requests import RenderRequest
from kvdrive.server.errors import ApiError
from kvdrive.server.guard import Handler
from kvdrive.server.renderer import Renderer

_MOST_WAITING = 4  # requests of a tenant


class Reader(Protocol):
    """Reads the bodies of requests."""

    async def read(self, http: HttpRequest, kind: type[RenderRequest]) -> RenderRequest:
        """Raises ApiError."""


class RenderPaths:
    """One request is rendered at a time."""

    def __init__(self, bodies: Reader) -> None:
        self._bodies = bodies
        self._waiting: Counter[str] = Counter()
        self._renderer = Renderer()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="rendering")

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Path, method and handler of each route."""
        return [("/render", "POST", self._render)]

    async def _render(self, http: HttpRequest) -> Response:
        request, tenant = await self._bodies.read(http, RenderRequest), http.state.tenant
        if self._waiting[tenant] >= _MOST_WAITING:
            raise ApiError(429, "other texts are being rendered: try again in a moment", code="busy")
        self._waiting[tenant] += 1
        try:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._worker, self._renderer.render, request.texts)
        finally:
            self._waiting[tenant] -= 1
        return JSONResponse({"html": found})
