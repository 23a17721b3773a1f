"""Connections of the server: how long a client may take, and how many there are.

uvicorn closes a connection that is idle after an answer. It waits for ever for headers and bodies, and for a client
that does not read. Here each of these has a deadline, and idle connections make room for new ones, so that they shut
nobody out.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from kvdrive.server.errors import ApiError

BACKLOG = 64  # connections that are accepted in one turn of the event loop
_SPARE_FILES = 32  # descriptors for the files of drives and indices
_MOST, _LEAST = 1000, 8  # connections


@dataclass(frozen=True)
class Patience:
    """Seconds for the headers of a request, for its body behind them, and for a client that takes no byte of its
    answer. `places`: connections at the same time.
    """

    places: int
    headers: float = 10
    body: float = 60
    taking: float = 60


def places() -> int:
    """Connections for which this process has descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    used = 0
    with suppress(OSError):
        used = len(os.listdir("/proc/self/fd"))
    return max(_LEAST, min(_MOST, soft - used - BACKLOG - _SPARE_FILES))


class GuardedProtocol(H11Protocol):
    """A connection with deadlines, among at most `patience.places` others.

    `since`: when it began to wait for what it waits for, in the loop's time.
    """

    connections: set[GuardedProtocol]  # type: ignore[assignment]
    cycle: RequestResponseCycle | None  # type: ignore[assignment]

    def __init__(self, patience: Patience, **given: Any) -> None:
        super().__init__(**given)
        self.since = 0.0
        self._patience = patience
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._seen: tuple[object, object] = (None, None)

    @property
    def waits(self) -> bool:
        """True while no whole request is being answered."""
        answers = self.cycle is not None and not self.cycle.response_complete
        sends = self.transport.get_write_buffer_size() > 0
        return not sends and not (answers and self.conn.their_state is not h11.SEND_BODY)

    @property
    def address(self) -> str:
        """Who it is, as far as the network tells."""
        return self.client[0] if self.client else ""

    # ---- uvicorn's events ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self._patience.places:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """The answer was written."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """The client takes nothing, and 64 KiB wait for it."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self._patience.taking, self.transport.abort)

    def resume_writing(self) -> None:
        """The client takes its answer."""
        super().resume_writing()
        _cancel(self._stalled)

    def timeout_keep_alive_handler(self) -> None:
        """No new request followed an answer."""
        self._leave()

    def connection_lost(self, error: Exception | None) -> None:
        _cancel(self._deadline)
        _cancel(self._stalled)
        super().connection_lost(error)

    def send_400_response(self, msg: str) -> None:
        """The bytes are no HTTP request."""
        self._refuse(ApiError(400, "the bytes sent are not an HTTP/1.1 request", code="invalid_request"))

    # ---- deadlines and places ----

    def _watch(self) -> None:
        """Begin to wait for headers or a body, when that is what comes next. More bytes do not extend a deadline."""
        now = (self.conn.their_state, self.cycle)
        if now == self._seen or self.transport.is_closing():
            return
        self._seen = now
        _cancel(self._deadline)
        self.since = self.loop.time()
        seconds = {h11.IDLE: self._patience.headers, h11.SEND_BODY: self._patience.body}.get(self.conn.their_state)
        if seconds is not None:
            self._deadline = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self._leave()  # nothing was asked
        else:
            self._refuse(ApiError(408, "the request did not arrive in time: send it again", code="request_timeout"))

    def _make_room(self) -> None:
        """Close one connection that waits: of the address that has most of them, the one that waits longest."""
        waiting = [one for one in self.connections if one is not self and one.waits]
        crowd = Counter(one.address for one in waiting)
        chosen = min(waiting, key=lambda one: (-crowd[one.address], one.since), default=None)
        if chosen is not None:
            chosen._leave()
        else:
            self._refuse(ApiError(503, "every connection of this server is in use: try again later", code="busy"))

    def _refuse(self, error: ApiError) -> None:
        """Answer without the application, unless an answer has begun, and close."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(error.body()).encode()
            head = (
                f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self._leave()

    def _leave(self) -> None:
        """Close, at the latest when the client has not taken its answer in time."""
        self.connections.discard(self)
        _cancel(self._deadline)
        self.transport.close()
        self.loop.call_later(self._patience.taking, self.transport.abort)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
