"""Clients that go away while an answer is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

T = TypeVar("T")


class LeftError(Exception):
    """The client has gone."""


async def unless_left(http: HttpRequest, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns or raises. Raises LeftError where the client goes before: then the work is cancelled."""
    async with _left(http) as client_left:
        working = asyncio.ensure_future(work)
        ends: set[asyncio.Future[Any]] = {working, client_left}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            raise LeftError
    return working.result()


@asynccontextmanager
async def _left(http: HttpRequest) -> AsyncIterator[asyncio.Future[None]]:
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
