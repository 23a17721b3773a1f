"""What a server says of itself, whether it has one model or several: its models, its figures, its state, its page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kvdrive.server import page
from kvdrive.server.fields import Json
from kvdrive.server.guard import Guard, Handler
from kvdrive.server.openapi import document

Paths = Sequence[tuple[str, str, Handler]]  # path, method and handler of each


@dataclass(frozen=True)
class OwnPaths:
    """Handlers of what a server says of itself. `names`: of its models; `slots`: sequences of each that run at once.

    `open_metrics`: figures are shown without a key, as page and health are.
    """

    models: Handler
    model: Handler
    stats: Handler
    health: Handler
    metrics: Handler
    names: Collection[str]
    slots: int
    open_metrics: bool

    def with_working(self, guard: Guard, working: Paths) -> list[Route]:
        """All routes of a server. `working`: those that work with a model or its sessions."""
        keyed: Paths = [
            *working,
            ("/v1/models", "GET", self.models),
            ("/v1/models/{name:path}", "GET", self.model),
            ("/v1/stats", "GET", self.stats),
        ]
        shown = [("/health", "GET"), ("/metrics", "GET"), *((path, method) for path, method, _ in keyed)]
        shown.append(("/openapi.json", "GET"))

        async def openapi(http: HttpRequest) -> Response:
            return JSONResponse(document(shown, [*self.names], self.slots))

        return [
            *[guard.route(path, handler, method) for path, method, handler in keyed],
            guard.route("/openapi.json", openapi, "GET"),
            guard.route("/health", self.health, "GET", open_to_all=True),
            *[guard.route(path, handler, "GET", open_to_all=True) for path, handler in page.routes()],
            guard.route("/metrics", self.metrics, "GET", open_to_all=self.open_metrics),
        ]


def model_card(name: str, created: int, context: int | None) -> Json:
    """A model as /v1/models lists it. `context`: tokens of a prompt with its answer at most; None: not known yet."""
    card = {"id": name, "object": "model", "created": created, "owned_by": "kvdrive"}
    return card | ({} if context is None else {"max_model_len": context})


def figures(text: bytes) -> Response:
    """Metrics in Prometheus' format."""
    return Response(text, media_type=CONTENT_TYPE_LATEST)
