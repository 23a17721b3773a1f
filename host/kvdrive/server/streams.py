"""Answers while they are generated: pieces of text, and server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

from kvdrive.errors import InputError, KvdriveError
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.text import TextStream
from kvdrive.server.errors import ApiError
from kvdrive.server.jobs import DeadlinePassed, End, Job, QueueFull, Token
from kvdrive.server.protocol import Answer, Json, Request, stored, usage
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.stops import StopFilter


class Generation:
    """A job as the event loop sees it: pieces of text, and at the end the counts."""

    def __init__(
        self, checkpoint: Checkpoint, request: Request, prompt: list[int], new_tokens: int, tenant: str
    ) -> None:
        """Must be called in the event loop."""
        loop, self._events = asyncio.get_running_loop(), asyncio.Queue[Token | End]()

        def notify(event: Token | End) -> None:
            with suppress(RuntimeError):  # the loop is closed: the server has stopped
                loop.call_soon_threadsafe(self._events.put_nowait, event)

        self._job = Job(prompt, new_tokens, request.sampling, notify, session=request.session_name, tenant=tenant)
        self._stop_ids = checkpoint.stop_ids
        self._text = TextStream(checkpoint.tokenizer)
        self._filter = StopFilter(request.stops)
        self._tokens = 0
        self._cached = 0
        self._resume = "none"
        self._session: int | None = None
        self._removed = 0
        self._unread: dict[str, float] | None = None
        self.reason = "length"

    def submit(self, scheduler: Scheduler, seconds: float) -> None:
        """Begin, to end after so many seconds at most. Raises ApiError."""
        self._job.seconds = seconds
        try:
            scheduler.submit(self._job)
        except QueueFull as error:
            raise ApiError(429, str(error), code="queue_full") from error
        except KvdriveError as error:
            raise ApiError(503, str(error), code="unavailable") from error

    async def pieces(self) -> AsyncIterator[str]:
        """The text as it comes. Raises ApiError. Leaving early cancels the job."""
        try:
            while isinstance(event := await self._events.get(), Token):
                self._tokens += 1
                self._cached, self._resume = event.cached, event.resume
                if event.number in self._stop_ids:
                    self.reason = "stop"
                if piece := self._filter.put(self._text.put(event.number)):
                    yield piece
                if self._filter.stopped:
                    self.reason = "stop"
                    self._job.cancelled.set()
                    while isinstance(event := await self._events.get(), Token):
                        pass  # a step that was under way
                    self._session, self._removed, self._unread = event.session, event.removed, event.unread
                    return
            self._session, self._removed, self._unread = event.session, event.removed, event.unread
            if isinstance(event.error, InputError):
                raise ApiError(409, str(event.error), param="session", code="session_unavailable")
            if isinstance(event.error, DeadlinePassed):
                raise ApiError(504, str(event.error), code="deadline_passed")
            if event.error:
                raise ApiError(500, f"generation failed: {event.error}", code="generation_failed")
            if piece := self._filter.put(self._text.end()) + self._filter.end():
                yield piece
        finally:
            self._job.cancelled.set()

    @property
    def usage(self) -> Json:
        """Counts of the tokens so far."""
        return usage(len(self._job.prompt), self._tokens, self._cached)

    @property
    def stored(self) -> Json:
        """The session of the sequence, how its prompt went on with its history, and what attention left unread."""
        found = stored(self._session, self._job.session, self._resume, self._removed)
        return found | {"unread": self._unread} if self._unread else found


async def whole_text(generation: Generation) -> str:
    """All of it, when it is there. Raises ApiError."""
    return "".join([piece async for piece in generation.pieces()])


async def server_sent(generation: Generation, answer: Answer, with_usage: bool) -> AsyncIterator[str]:
    """The answer as server-sent events; an error that comes after the first byte is an event too."""
    try:
        if opening := answer.opening():
            yield _event(opening)
        async for piece in generation.pieces():
            yield _event(answer.piece(piece))
        yield _event(answer.closing(generation.reason, generation.stored))
        if with_usage:
            yield _event(answer.usage(generation.usage, generation.stored))
    except ApiError as error:
        yield _event(error.body())
    yield "data: [DONE]\n\n"


def _event(document: Json) -> str:
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n"
