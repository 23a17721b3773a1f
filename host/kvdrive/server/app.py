"""The HTTP side of the server of one model: its paths, and what they say of the server itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from kvdrive.server import page
from kvdrive.server.engine import ServedModel
from kvdrive.server.fields import Json
from kvdrive.server.guard import Guard, Handler
from kvdrive.server.metrics import Metrics
from kvdrive.server.openapi import document
from kvdrive.server.routes import routes
from kvdrive.server.scheduler import Scheduler
from kvdrive.server.session_paths import SessionPaths
from kvdrive.server.settings import Settings


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
        allowed = self._settings.allowed
        guard = Guard(allowed, SessionPaths.QUERY, self._metrics.requests)
        own: list[tuple[str, str, Handler]] = [
            ("/v1/models", "GET", self._models),
            ("/v1/models/{name:path}", "GET", self._model),
            ("/v1/stats", "GET", self._stats),
            ("/openapi.json", "GET", self._openapi),
        ]
        found = [
            *[guard.route(path, handler, method) for path, method, handler in (*self._working, *own)],
            guard.route("/health", self._health, "GET", open_to_all=True),
            *[guard.route(path, handler, "GET", open_to_all=True) for path, handler in page.routes()],
            guard.route("/metrics", self._show_metrics, "GET", open_to_all=allowed.open_metrics),
        ]
        self._shown += [(path, method) for path, method, _ in (*self._working, *own)]
        return guard.application(found, self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Close drive and weights when the server stops. After a signal, no code behind the server would run."""
        yield
        await asyncio.to_thread(self._scheduler.stop)
        self._checkpoint.close()

    async def _models(self, http: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def _model(self, http: HttpRequest) -> Response:
        self._settings.check_model(http.path_params["name"])
        return JSONResponse(self._card())

    def _card(self) -> Json:
        return model_card(self._settings.name, self._created, self._settings.context)

    async def _health(self, http: HttpRequest) -> Response:
        waiting, running = self._scheduler.load
        failed = self._scheduler.failure
        state = {"status": "failed", "error": str(failed)} if failed else {"status": "ok"}
        # If a key is set, clients without it learn only that the server is alive.
        load = {"model": self._settings.name, "waiting": waiting, "running": running}
        body = {"status": state["status"]} if self._settings.allowed.tenants.asks else state | load
        return JSONResponse(body, 503 if failed else 200)

    async def _openapi(self, http: HttpRequest) -> Response:
        return JSONResponse(document(self._shown, [self._settings.name], self._scheduler.slot_count))

    async def _stats(self, http: HttpRequest) -> Response:
        waiting, running = self._scheduler.load
        state = {"model": self._settings.name, "context": self._settings.context}
        return JSONResponse(state | {"waiting": waiting, "running": running} | self._metrics.figures())

    async def _show_metrics(self, http: HttpRequest) -> Response:
        return Response(self._metrics.text(), media_type=CONTENT_TYPE_LATEST)


def model_card(name: str, created: int, context: int | None) -> Json:
    """A model as /v1/models lists it. `context`: tokens of a prompt with its answer at most; None: not known yet."""
    card = {"id": name, "object": "model", "created": created, "owned_by": "kvdrive"}
    return card | ({} if context is None else {"max_model_len": context})
