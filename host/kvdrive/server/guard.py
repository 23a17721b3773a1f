"""Routes as clients meet them: their keys are checked, errors of any kind become answers, and answers are counted."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from prometheus_client import Counter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from kvdrive.server.anthropic_answers import error_body
from kvdrive.server.clients import gone
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import unknown_field
from kvdrive.server.local import check_local
from kvdrive.server.settings import Allowed

log = logging.getLogger(__name__)
Handler = Callable[[HttpRequest], Awaitable[Response]]


class Guard:
    """Makes routes. `query`: the query parameters that each path knows. `answers`: counts them by path and status."""

    def __init__(self, allowed: Allowed, query: Mapping[str, set[str]], answers: Counter) -> None:
        self._allowed, self._query, self._answers = allowed, query, answers

    def route(self, path: str, handler: Handler, method: str, *, open_to_all: bool = False) -> Route:
        """A path that checks the key, answers an ApiError, and counts its answers.

        The request's state has `tenant`, and `arrived` in seconds of time.perf_counter.
        """

        async def handle(request: HttpRequest) -> Response:
            try:
                if not self._allowed.tenants.asks:
                    check_local(request, self._allowed.origins)
                if not open_to_all:
                    request.state.tenant = self._allowed.tenants.of(_authorization(request))
                    self._check_query(path, request)
                if not hasattr(request.state, "arrived"):
                    request.state.arrived = time.perf_counter()
                response = await handler(request)
            except ApiError as error:
                response = error.response(error_body(error) if path.startswith("/v1/messages") else None)
            except ClientDisconnect:
                response = gone()
            if not getattr(request.state, "forwarded", False):
                self._answers.labels(path, response.status_code).inc()
            return response

        return Route(path, handle, methods=[method])

    def application(self, routes: Sequence[Route], lifespan: Any) -> Starlette:
        """The ASGI application of these routes. Pages of the allowed origins may ask."""
        pages = Middleware(
            CORSMiddleware,
            allow_origins=self._allowed.origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
        )
        around = [pages] if self._allowed.origins else []
        handlers = {HTTPException: _http_error, Exception: _failed}
        app = Starlette(routes=list(routes), exception_handlers=handlers, lifespan=lifespan, middleware=around)
        app.router.redirect_slashes = False  # a redirection would repeat the Host of a request that nobody checked
        return app

    def _check_query(self, path: str, request: HttpRequest) -> None:
        """Raises ApiError for a query parameter that the path does not know."""
        for name in request.query_params.keys() - self._query.get(path, set()):
            if not self._allowed.ignore_unknown:
                raise unknown_field(name)
            log.warning("ignored the unknown query parameter %s", name[:60])


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
