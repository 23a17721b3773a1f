"""Sends a request to the process of a model, and its answer back as it comes. HTTP/1.1 over a Unix socket, by h11."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import h11
from starlette.requests import Request as HttpRequest
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from kvdrive.server.errors import ApiError
from kvdrive.server.router.worker import WAITED

Headers = list[tuple[bytes, bytes]]
_PIECE = 1 << 16  # bytes that are read at once
_ASKED = ("authorization", "x-api-key", "content-type")  # what of a client's headers goes on
_ANSWERED = (b"content-type", b"cache-control", b"retry-after", b"www-authenticate")


@dataclass(frozen=True)
class Asked:
    """A request. `target`: path and query."""

    method: str
    target: str
    headers: Headers
    body: bytes = b""

    @classmethod
    def of(cls, http: HttpRequest, body: bytes) -> Asked:
        """A client's request, without what is meant for this server alone."""
        query = "&".join(one for one in http.url.query.split("&") if one and not one.startswith("model="))
        path = http.scope["raw_path"].decode("latin-1").partition("?")[0]
        headers = [(name.encode(), http.headers[name].encode("latin-1")) for name in _ASKED if name in http.headers]
        waited = f"{time.perf_counter() - http.state.arrived:.6f}".encode()
        return cls(http.method, path + (f"?{query}" if query else ""), [*headers, (WAITED, waited)], body)


class NotThere(ApiError):
    """The process of a model has ended before it could take the request."""


class Exchange:
    """A connection to the socket `place`, for one request. `status` and `headers`: of its answer."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._connection = h11.Connection(h11.CLIENT)
        self.status = 0
        self.headers: Headers = []

    async def ask(self, asked: Asked) -> None:
        """Send the request and read the head of the answer. Raises NotThere, ApiError where the process ends."""
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(str(self._place))
        except OSError as error:
            raise NotThere(503, "the model's process has ended: ask again", code="unavailable") from error
        headers = [(b"host", b"localhost"), (b"connection", b"close"), *asked.headers]
        headers.append((b"content-length", str(len(asked.body)).encode()))
        request = h11.Request(method=asked.method, target=asked.target, headers=headers)
        for event in (request, *([h11.Data(data=asked.body)] if asked.body else []), h11.EndOfMessage()):
            self._writer.write(self._connection.send(event) or b"")
        head = await self._next()
        if not isinstance(head, h11.Response):
            raise _gone()
        self.status, self.headers = head.status_code, [(bytes(name), bytes(value)) for name, value in head.headers]

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body of the answer, as it comes. Raises ApiError where the process ends before it does."""
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    def close(self) -> None:
        """The process generates no more for it."""
        if writer := getattr(self, "_writer", None):
            writer.close()

    async def _next(self) -> object:
        try:
            while (event := self._connection.next_event()) is h11.NEED_DATA:
                self._connection.receive_data(await self._reader.read(_PIECE))
        except (OSError, h11.RemoteProtocolError) as error:
            raise _gone() from error
        return event


class Forwarded(StreamingResponse):
    """The answer of an exchange. `held`: is closed when all of it is sent, or the client has gone."""

    def __init__(self, exchange: Exchange, held: AsyncExitStack) -> None:
        self._held = held
        headers = {name.decode(): value.decode("latin-1") for name, value in exchange.headers if name in _ANSWERED}
        super().__init__(exchange.pieces(), exchange.status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)


async def fetched(place: Path, asked: Asked) -> tuple[int, bytes]:
    """Status and body of a short answer. Raises ApiError where the process is gone."""
    exchange = Exchange(place)
    try:
        await exchange.ask(asked)
        return exchange.status, b"".join([piece async for piece in exchange.pieces()])
    finally:
        exchange.close()


def _gone() -> ApiError:
    return ApiError(503, "the model's process has ended: ask again, and it is started anew", code="unavailable")
