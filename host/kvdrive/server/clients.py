"""Clients that go away while an answer is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.requests import Request as HttpRequest
from starlette.responses import Response


@asynccontextmanager
async def left(http: HttpRequest) -> AsyncIterator[asyncio.Future[None]]:
    """A future that is done when the client has gone; the body has been read."""

    async def watch() -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass

    task = asyncio.ensure_future(watch())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def gone() -> Response:
    """For a client that has gone: only the metrics read this status."""
    return Response(status_code=499)
