"""The HTTP side of the server: paths, limits, streams, and clients that disconnect."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.spelling import as_held
from kvdrive.server import chat, page
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import parse, unknown_field
from kvdrive.server.local import check_local
from kvdrive.server.metrics import Metrics
from kvdrive.server.prompts import Prompts
from kvdrive.server.protocol import Answer, ChatRequest, CompletionRequest, Json, Request
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.session_paths import SessionPaths
from kvdrive.server.streams import Generation, server_sent, whole_text
from kvdrive.server.tenants import Tenants

log = logging.getLogger(__name__)
AnyRequest = TypeVar("AnyRequest", bound=Request)
_COMPLETION_TOKENS = 16  # of a completion whose request does not say, as OpenAI has it


@dataclass(frozen=True)
class Settings:
    """`name`: the model's name in answers. `prompt_tokens`: of the longest prompt; `context`: with its answer.

    `tenants`: the keys that clients must send, and whose they are. `open_metrics`: the metrics need no key. `seconds`:
    the longest time that an answer may take. `ignore_unknown`: fields and query parameters that are on no list of
    docs/reference/requests.md are logged and ignored instead of refused.
    """

    name: str
    prompt_tokens: int
    context: int
    tenants: Tenants = field(default_factory=Tenants)
    open_metrics: bool = False
    seconds: float = math.inf
    ignore_unknown: bool = False


def application(checkpoint: Checkpoint, scheduler: Scheduler, metrics: Metrics, settings: Settings) -> Starlette:
    """The ASGI application; the scheduler must have been started and stops with it."""
    return _Server(checkpoint, scheduler, metrics, settings).application()


class _Server:
    def __init__(self, checkpoint: Checkpoint, scheduler: Scheduler, metrics: Metrics, settings: Settings) -> None:
        self._checkpoint = checkpoint
        self._scheduler = scheduler
        self._metrics = metrics
        self._settings = settings
        self._sessions = SessionPaths(scheduler, ignore_unknown=settings.ignore_unknown)
        self._prompts = Prompts(checkpoint.tokenizer, settings.prompt_tokens, tenants=settings.tenants.count)
        self._created = int(time.time())

    def application(self) -> Starlette:
        routes = [
            self._route("/v1/completions", self._completions, "POST"),
            self._route("/v1/chat/completions", self._chat, "POST"),
            *[self._route(path, handler, method) for path, method, handler in self._sessions.routes()],
            self._route("/v1/models", self._models, "GET"),
            self._route("/v1/models/{name:path}", self._model, "GET"),
            self._route("/health", self._health, "GET", open_to_all=True),
            self._route("/v1/stats", self._stats, "GET"),
            *[self._route(path, handler, "GET", open_to_all=True) for path, handler in page.routes()],
            self._route("/metrics", self._show_metrics, "GET", open_to_all=self._settings.open_metrics),
        ]
        handlers = {HTTPException: _http_error, Exception: _failed}
        app = Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)
        app.router.redirect_slashes = False  # a redirection would repeat the Host of a request that nobody checked
        return app

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Close drive and weights when the server stops. After a signal, no code behind the server would run."""
        yield
        await asyncio.to_thread(self._scheduler.stop)
        self._checkpoint.close()

    def _route(
        self,
        path: str,
        handler: Callable[[HttpRequest], Awaitable[Response]],
        method: str,
        *,
        open_to_all: bool = False,
    ) -> Route:
        """A path that checks the key, answers an ApiError, and counts its answers."""

        async def handle(request: HttpRequest) -> Response:
            try:
                if not self._settings.tenants.asks:
                    check_local(request)
                if not open_to_all:
                    request.state.tenant = self._settings.tenants.of(request.headers.get("authorization", ""))
                    self._check_query(path, request)
                response = await handler(request)
            except ApiError as error:
                response = error.response()
            except ClientDisconnect:
                response = _gone()
            self._metrics.requests.labels(path, response.status_code).inc()
            return response

        return Route(path, handle, methods=[method])

    def _check_query(self, path: str, request: HttpRequest) -> None:
        """Raises ApiError for a query parameter that the path does not know."""
        for name in request.query_params.keys() - SessionPaths.QUERY.get(path, set()):
            if not self._settings.ignore_unknown:
                raise unknown_field(name)
            log.warning("ignored the unknown query parameter %s", name[:60])

    async def _completions(self, http: HttpRequest) -> Response:
        request = await self._parse(http, CompletionRequest)
        prompt = request.prompt
        if isinstance(prompt, str):
            text = prompt
            prompt = await self._prompts.run(lambda: self._prompts.encode(text, "prompt"))
            prompt = await self._as_held(prompt, http, request)
        return await self._answer(http, request, prompt, Answer(False, self._settings.name))

    async def _chat(self, http: HttpRequest) -> Response:
        request = await self._parse(http, ChatRequest)
        tokenizer, prompts = self._checkpoint.tokenizer, self._prompts
        prompt = await prompts.run(lambda: chat.encode(tokenizer, prompts, request.messages))
        prompt = await self._as_held(prompt, http, request)
        return await self._answer(http, request, prompt, Answer(True, self._settings.name))

    async def _as_held(self, prompt: list[int], http: HttpRequest, request: Request) -> list[int]:
        """The prompt with the tokens that its session holds of the same text, sampled ones included."""
        held = await self._sessions.tokens(request.session_name, http.state.tenant)
        return await self._prompts.run(lambda: as_held(self._checkpoint.tokenizer, prompt, held)) if held else prompt

    async def _answer(self, http: HttpRequest, request: Request, prompt: list[int], answer: Answer) -> Response:
        param = "messages" if isinstance(request, ChatRequest) else "prompt"
        self._check_prompt(prompt, param)
        new_tokens = self._new_tokens(request, len(prompt))
        generation = Generation(self._checkpoint, request, prompt, new_tokens, http.state.tenant)
        generation.submit(self._scheduler, min(request.deadline_seconds or math.inf, self._settings.seconds))
        if request.stream:
            with_usage = request.stream_options is not None and request.stream_options.include_usage
            events = server_sent(generation, answer, with_usage)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        async with _left(http) as left:
            text = asyncio.ensure_future(whole_text(generation))
            ends: set[asyncio.Future[Any]] = {text, left}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not text.done():
                text.cancel()
                with suppress(asyncio.CancelledError):
                    await text
                return _gone()
        return JSONResponse(answer.whole(text.result(), generation.reason, generation.usage, generation.stored))

    async def _parse(self, http: HttpRequest, kind: type[AnyRequest]) -> AnyRequest:
        ignore = self._settings.ignore_unknown
        request = await self._prompts.read(
            http, http.state.tenant, lambda body: parse(kind, body, ignore_unknown=ignore)
        )
        if request.model != self._settings.name:
            raise self._no_model(request.model)
        return request

    def _check_prompt(self, prompt: list[int], param: str) -> None:
        """Raises ApiError for a prompt that is empty, too long, or has tokens that the model does not have."""
        if not prompt:
            raise ApiError(400, "the prompt is empty: it needs one token at least", param=param, code="invalid_value")
        longest = min(self._settings.prompt_tokens, self._settings.context - 1)
        if len(prompt) > longest:
            text = f"the prompt has {len(prompt)} tokens, and this server takes {longest} at most: send a shorter one"
            raise ApiError(400, text, param=param, code="context_length_exceeded")
        vocabulary = self._checkpoint.model.get_input_embeddings().num_embeddings
        if not all(0 <= token < vocabulary for token in prompt):
            raise ApiError(400, f"tokens are numbers from 0 to {vocabulary - 1}", param=param, code="invalid_value")

    def _new_tokens(self, request: Request, prompt_tokens: int) -> int:
        """The most tokens of an answer. Raises ApiError where the context has no room for them."""
        room = self._settings.context - prompt_tokens
        param, wanted = request.limit
        wanted = wanted or (room if isinstance(request, ChatRequest) else _COMPLETION_TOKENS)
        if wanted > room:
            text = (
                f"{param} is too large: the prompt has {prompt_tokens} tokens, and the context holds "
                f"{self._settings.context}, so send {room} at most"
            )
            raise ApiError(400, text, param=param, code="context_length_exceeded")
        return wanted

    def _no_model(self, name: str) -> ApiError:
        text = f"no model '{name[:100]}' here: this server has '{self._settings.name}'"
        return ApiError(404, text, param="model", code="model_not_found")

    async def _models(self, http: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def _model(self, http: HttpRequest) -> Response:
        if http.path_params["name"] != self._settings.name:
            raise self._no_model(http.path_params["name"])
        return JSONResponse(self._card())

    def _card(self) -> Json:
        card = {"id": self._settings.name, "object": "model", "created": self._created, "owned_by": "kvdrive"}
        return card | {"max_model_len": self._settings.context}

    async def _health(self, http: HttpRequest) -> Response:
        waiting, running = self._scheduler.load
        failed = self._scheduler.failure
        state = {"status": "failed", "error": str(failed)} if failed else {"status": "ok"}
        # If a key is set, clients without it learn only that the server is alive.
        load = {"model": self._settings.name, "waiting": waiting, "running": running}
        body = {"status": state["status"]} if self._settings.tenants.asks else state | load
        return JSONResponse(body, 503 if failed else 200)

    async def _stats(self, http: HttpRequest) -> Response:
        waiting, running = self._scheduler.load
        state = {"model": self._settings.name, "context": self._settings.context}
        return JSONResponse(state | {"waiting": waiting, "running": running} | self._metrics.figures())

    async def _show_metrics(self, http: HttpRequest) -> Response:
        return Response(self._metrics.text(), media_type=CONTENT_TYPE_LATEST)


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


def _gone() -> Response:
    """For a client that has gone: only the metrics read this status."""
    return Response(status_code=499)


async def _http_error(request: HttpRequest, error: Exception) -> Response:
    """Paths and methods that do not exist, in the same format."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"][:100]
    texts = {404: f"there is no path {path} here", 405: f"{request.method} is not for {path}"}
    codes = {404: "path_not_found", 405: "method_not_allowed"}
    found = ApiError(error.status_code, texts.get(error.status_code, error.detail), code=codes.get(error.status_code))
    response = found.response()
    response.headers.update(error.headers or {})
    return response


async def _failed(request: HttpRequest, error: Exception) -> Response:
    """A fault of this server. Its traceback is in the log."""
    return ApiError(500, "this server failed: its log says why", code="internal_error").response()
