"""The HTTP side of the server of one model: its paths, and what they say of the server itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from kvdrive.server.engine import ServedModel
from kvdrive.server.fields import Json
from kvdrive.server.guard import Guard
from kvdrive.server.metrics import Metrics
from kvdrive.server.own_paths import OwnPaths, figures, model_card
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

    def application(self) -> Starlette:
        allowed = self._settings.allowed
        guard = Guard(allowed, SessionPaths.QUERY, self._metrics.requests)
        own = OwnPaths(
            models=self._models,
            model=self._model,
            stats=self._stats,
            health=self._health,
            metrics=self._show_metrics,
            names=[self._settings.name],
            slots=self._scheduler.slot_count,
            open_metrics=allowed.open_metrics,
        )
        return guard.application(own.with_working(guard, self._working), self._lifespan)

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

    async def _stats(self, http: HttpRequest) -> Response:
        waiting, running = self._scheduler.load
        state = {"model": self._settings.name, "context": self._settings.context}
        return JSONResponse(state | {"waiting": waiting, "running": running} | self._metrics.figures())

    async def _show_metrics(self, http: HttpRequest) -> Response:
        return figures(self._metrics.text())
