"""How answers are sent: event by event, whole, or not at all because the client has gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from kvdrive.server.answers import Answer, Json
from kvdrive.server.errors import ApiError
from kvdrive.server.generation import Generation


async def server_sent(generation: Generation, answer: Answer, with_usage: bool) -> AsyncIterator[str]:
    """The answer as server-sent events; an error that comes after the first byte is an event too."""
    try:
        if opening := answer.opening():
            yield _event(opening)
        async for piece in generation.pieces():
            yield _event(answer.piece(piece, generation.take_chances()))
        yield _event(answer.closing(generation.reason, generation.kept, generation.take_chances()))
        if with_usage:
            yield _event(answer.usage(generation.usage, generation.kept))
    except ApiError as error:
        yield _event(error.body())
    yield "data: [DONE]\n\n"


def _event(document: Json) -> str:
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n"


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
