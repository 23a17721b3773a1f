"""The paths that generate: OpenAI's completions, chats and responses, and Anthropic's messages."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from kvdrive.errors import KvdriveError
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.server.answers import Answer
from kvdrive.server.anthropic_answers import AnthropicAnswer
from kvdrive.server.call_reader import CallReader
from kvdrive.server.clients import gone, left
from kvdrive.server.errors import ApiError
from kvdrive.server.generation import Generation
from kvdrive.server.inputs import Input, Inputs
from kvdrive.server.jobs import End, Job, QueueFull, Token
from kvdrive.server.responses_answers import ResponseAnswer
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.session_paths import Handler, SessionPaths
from kvdrive.server.settings import Settings
from kvdrive.server.tool_formats import Call


class CompletionPaths:
    """Handlers that turn a request into a job, and its events into an answer."""

    def __init__(
        self, checkpoint: Checkpoint, scheduler: Scheduler, sessions: SessionPaths, settings: Settings
    ) -> None:
        self._checkpoint = checkpoint
        self._scheduler = scheduler
        self._settings = settings
        self._inputs = Inputs(checkpoint, sessions, settings)

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Path, method and handler of each route."""
        return [
            ("/v1/completions", "POST", self._completions),
            ("/v1/chat/completions", "POST", self._chat),
            ("/v1/responses", "POST", self._responses),
            ("/v1/messages", "POST", self._messages),
            ("/v1/messages/count_tokens", "POST", self._count_tokens),
        ]

    async def _completions(self, http: HttpRequest) -> Response:
        wanted = await self._inputs.completion(http)
        return await self._answer(http, wanted, self._openai(wanted))

    async def _chat(self, http: HttpRequest) -> Response:
        wanted = await self._inputs.chat(http)
        return await self._answer(http, wanted, self._openai(wanted))

    async def _messages(self, http: HttpRequest) -> Response:
        wanted = await self._inputs.messages(http)
        return await self._answer(http, wanted, AnthropicAnswer(self._settings.name))

    async def _responses(self, http: HttpRequest) -> Response:
        wanted, request = await self._inputs.response(http)
        return await self._answer(http, wanted, ResponseAnswer(request))

    async def _count_tokens(self, http: HttpRequest) -> Response:
        return JSONResponse({"input_tokens": await self._inputs.count(http)})

    def _openai(self, wanted: Input) -> Answer:
        return Answer(wanted.request, self._settings.name, self._checkpoint.tokenizer)

    async def _answer(
        self, http: HttpRequest, wanted: Input, answer: Answer | AnthropicAnswer | ResponseAnswer
    ) -> Response:
        generation = self._submit(wanted, http.state.tenant)
        if wanted.request.stream:
            events = answer.events(generation)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        async with left(http) as client_left:
            said = asyncio.ensure_future(_all_of(generation))
            ends: set[asyncio.Future[Any]] = {said, client_left}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not said.done():
                said.cancel()
                with suppress(asyncio.CancelledError):
                    await said
                return gone()
        return JSONResponse(answer.whole(said.result(), generation))

    def _submit(self, wanted: Input, tenant: str) -> Generation:
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Token | End] = asyncio.Queue()

        def notify(event: Token | End) -> None:
            with suppress(RuntimeError):  # the loop is closed: the server has stopped
                loop.call_soon_threadsafe(events.put_nowait, event)

        request, calls = wanted.request, wanted.calls
        job = Job(wanted.prompt, wanted.new_tokens, request.sampling, notify, grammar=wanted.grammar)
        job.rules, job.chances = request.rules(self._checkpoint.stop_ids), request.chances
        job.session, job.tenant = request.session_name, tenant
        job.seconds = min(request.deadline_seconds or math.inf, self._settings.seconds)
        try:
            self._scheduler.submit(job)
        except QueueFull as error:
            raise ApiError(429, str(error), code="queue_full") from error
        except KvdriveError as error:
            raise ApiError(503, str(error), code="unavailable") from error
        reader = CallReader(calls, several=request.several_calls) if calls else None
        return Generation(job, events, self._checkpoint.tokenizer, request.stops, reader)


async def _all_of(generation: Generation) -> list[str | Call]:
    return [piece async for piece in generation.pieces()]
