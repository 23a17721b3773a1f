"""The HTTP side of the server: its paths, their keys, and errors of any kind as answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kvdrive.server import page
from kvdrive.server.anthropic_answers import error_body
from kvdrive.server.clients import gone
from kvdrive.server.engine import ServedModel
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import Json, unknown_field
from kvdrive.server.local import check_local
from kvdrive.server.metrics import Metrics
from kvdrive.server.openapi import document
from kvdrive.server.routes import routes
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.session_paths import Handler, SessionPaths
from kvdrive.server.settings import Settings

log = logging.getLogger(__name__)


def application(checkpoint: ServedModel, scheduler: Scheduler, metrics: Metrics, settings: Settings) -> Starlette:
    """The ASGI application; the scheduler must have been started and stops with it."""
    return _Server(checkpoint, scheduler, metrics, settings).application()


class _Server:
    def __init__(self, checkpoint: ServedModel, scheduler: Scheduler, metrics: Metrics, settings: Settings) -> None:
        self._checkpoint = checkpoint
        self._scheduler = scheduler
        self._metrics = metrics
        self._settings = settings
        self._working = routes(checkpoint, scheduler, settings)
        self._created = int(time.time())
        self._shown = [("/health", "GET"), ("/metrics", "GET")]  # in the OpenAPI document

    def application(self) -> Starlette:
        own: list[tuple[str, str, Handler]] = [
            ("/v1/models", "GET", self._models),
            ("/v1/models/{name:path}", "GET", self._model),
            ("/v1/stats", "GET", self._stats),
            ("/openapi.json", "GET", self._openapi),
        ]
        found = [
            *[self._route(path, handler, method) for path, method, handler in (*self._working, *own)],
            self._route("/health", self._health, "GET", open_to_all=True),
            *[self._route(path, handler, "GET", open_to_all=True) for path, handler in page.routes()],
            self._route("/metrics", self._show_metrics, "GET", open_to_all=self._settings.open_metrics),
        ]
        self._shown += [(path, method) for path, method, _ in (*self._working, *own)]
        handlers = {HTTPException: _http_error, Exception: _failed}
        pages = Middleware(
            CORSMiddleware,
            allow_origins=self._settings.origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
        )
        around = [pages] if self._settings.origins else []
        app = Starlette(routes=found, exception_handlers=handlers, lifespan=self._lifespan, middleware=around)
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
                    check_local(request, self._settings.origins)
                if not open_to_all:
                    request.state.tenant = self._settings.tenants.of(_authorization(request))
                    self._check_query(path, request)
                response = await handler(request)
            except ApiError as error:
                response = error.response(error_body(error) if path.startswith("/v1/messages") else None)
            except ClientDisconnect:
                response = gone()
            self._metrics.requests.labels(path, response.status_code).inc()
            return response

        return Route(path, handle, methods=[method])

    def _check_query(self, path: str, request: HttpRequest) -> None:
        """Raises ApiError for a query parameter that the path does not know."""
        for name in request.query_params.keys() - SessionPaths.QUERY.get(path, set()):
            if not self._settings.ignore_unknown:
                raise unknown_field(name)
            log.warning("ignored the unknown query parameter %s", name[:60])

    async def _models(self, http: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def _model(self, http: HttpRequest) -> Response:
        self._settings.check_model(http.path_params["name"])
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

    async def _openapi(self, http: HttpRequest) -> Response:
        return JSONResponse(document(self._shown, self._settings.name, self._scheduler.slot_count))

    async def _stats(self, http: HttpRequest) -> Response:
        waiting, running = self._scheduler.load
        state = {"model": self._settings.name, "context": self._settings.context}
        return JSONResponse(state | {"waiting": waiting, "running": running} | self._metrics.figures())

    async def _show_metrics(self, http: HttpRequest) -> Response:
        return Response(self._metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _authorization(request: HttpRequest) -> str:
    """What identifies a client: OpenAI's clients send a bearer's key, Anthropic's the key alone."""
    key = request.headers.get("x-api-key")
    return request.headers.get("authorization") or (f"Bearer {key}" if key else "")


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
