"""The HTTP side of a server of several models: what it says of itself, beside the paths that go to a model."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from kvdrive.server.fields import AnyFields, Json, parse
from kvdrive.server.guard import Guard
from kvdrive.server.metrics import Metrics
from kvdrive.server.own_paths import OwnPaths, figures, model_card
from kvdrive.server.reading import Reading
from kvdrive.server.render_paths import RenderPaths
from kvdrive.server.router.forwarding import Asked, fetched
from kvdrive.server.router.metrics import RouterMetrics
from kvdrive.server.router.models import Model, Models
from kvdrive.server.router.paths import ModelPaths
from kvdrive.server.settings import Allowed


def application(models: Models, allowed: Allowed, slots: int) -> Starlette:
    """The ASGI application. `slots`: sequences of a model that run at once. The models are unloaded when it stops."""
    return _Router(models, allowed, slots).application()


class _Bodies:
    """Bodies of requests that no model has to read."""

    def __init__(self, reading: Reading, *, ignore_unknown: bool) -> None:
        self._reading, self._ignore_unknown = reading, ignore_unknown

    async def read(self, http: HttpRequest, kind: type[AnyFields]) -> AnyFields:
        """The request in a body. Raises ApiError."""
        ignore = self._ignore_unknown
        return await self._reading.read(http, http.state.tenant, lambda body: parse(kind, body, ignore_unknown=ignore))


class _Router:
    def __init__(self, models: Models, allowed: Allowed, slots: int) -> None:
        self._models, self._allowed, self._slots = models, allowed, slots
        reading = Reading(tenants=allowed.tenants.count)
        self._paths = ModelPaths(models, reading, allowed.seconds)
        self._render = RenderPaths(_Bodies(reading, ignore_unknown=allowed.ignore_unknown))
        self._metrics = RouterMetrics(models)
        self._created = int(time.time())

    def application(self) -> Starlette:
        guard = Guard(self._allowed, ModelPaths.QUERY, self._metrics.requests)
        own = OwnPaths(
            models=self._list,
            model=self._one,
            stats=self._stats,
            health=self._health,
            metrics=self._show_metrics,
            names=self._models.all,
            slots=self._slots,
            open_metrics=self._allowed.open_metrics,
        )
        working = [*self._paths.routes(), *self._render.routes()]
        return guard.application(own.with_working(guard, working), self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        watching = None if math.isinf(self._models.idle) else asyncio.ensure_future(self._models.watch())
        yield
        if watching:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        await self._models.close()

    async def _list(self, http: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [self._card(one) for one in self._models.all.values()]})

    async def _one(self, http: HttpRequest) -> Response:
        return JSONResponse(self._card(self._models.find(http.path_params["name"])))

    def _card(self, one: Model) -> Json:
        card = model_card(one.offer.name, self._created, one.context)
        return card | {"status": {"value": one.state}}  # as llama.cpp's server has it

    async def _health(self, http: HttpRequest) -> Response:
        # If a key is set, clients without it learn only that the server is alive.
        loaded = [name for name, one in self._models.all.items() if one.ready]
        load = {
            "models": loaded,
            "waiting": sum(len(one.waiting) for one in self._models.all.values()),
            "running": sum(one.users for one in self._models.all.values()),
        }
        return JSONResponse({"status": "ok"} | ({} if self._allowed.tenants.asks else load))

    async def _stats(self, http: HttpRequest) -> Response:
        """Those of a model, zeros while it is not loaded; without its name, the sums of all that are."""
        name = http.query_params.get("model")
        if name is not None:
            self._models.find(name)
        found = {
            model: from_json(body)
            for model, (status, body) in (await self._paths.fetched(http)).items()
            if status == 200 and name in (None, model)
        }
        if name is not None:
            return JSONResponse(found.get(name) or self._nothing(self._models.find(name)))
        total = {"model": None, "context": None, "waiting": 0, "running": 0} | Metrics().figures()
        for one in found.values():
            total |= {key: total[key] + one[key] for key in total.keys() - {"model", "context", "sessions"}}
            counts = total["sessions"] or {}
            total["sessions"] = {key: counts.get(key, 0) + n for key, n in (one["sessions"] or counts).items()} or None
        return JSONResponse(total)

    @staticmethod
    def _nothing(one: Model) -> Json:
        """Figures of a model that is not loaded."""
        return {"model": one.offer.name, "context": one.context, "waiting": 0, "running": 0} | Metrics().figures()

    async def _show_metrics(self, http: HttpRequest) -> Response:
        found = {}
        for name, one in self._models.all.items():
            if one.ready is not None:
                async with self._models.using(name, "", math.inf) as loaded:
                    found[name] = (await fetched(loaded.place, Asked("GET", "/metrics", [])))[1]
        return figures(self._metrics.text(found))
