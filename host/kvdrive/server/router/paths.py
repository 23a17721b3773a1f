"""The paths that go to a model's process: by the name in their body, or by the query parameter `model`."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from contextlib import AsyncExitStack, suppress
from typing import ClassVar

from pydantic_core import from_json
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from kvdrive.server.clients import LeftError, gone, unless_left
from kvdrive.server.errors import NO_EMBEDDINGS, ApiError
from kvdrive.server.fields import Json
from kvdrive.server.guard import Handler
from kvdrive.server.reading import Reading
from kvdrive.server.requests import BODIES
from kvdrive.server.router.forwarding import Asked, Exchange, Forwarded, NotThere, fetched
from kvdrive.server.router.models import Model, Models
from kvdrive.server.session_paths import SessionPaths

_MOST_ANSWERS = 1000  # of a tenant, whose models are remembered
_MODEL = "the name of one of this server's models, as /v1/models has it"


class ModelPaths:
    """QUERY: the query parameters of each path. `seconds`: the longest time that an answer may take."""

    _BY_QUERY: ClassVar = [
        ("/v1/sessions/{session}", "DELETE"),
        ("/slots/{slot}", "POST"),
        ("/props", "GET"),
    ]
    QUERY: ClassVar[dict[str, set[str]]] = {
        path: SessionPaths.QUERY.get(path, set()) | {"model"}
        for path in ("/v1/stats", "/v1/sessions", *(path for path, _ in _BY_QUERY))
    }

    def __init__(self, models: Models, reading: Reading, seconds: float) -> None:
        self._models, self._reading, self._seconds = models, reading, seconds
        self._answers: dict[str, OrderedDict[str, Model]] = {}

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Path, method and handler of each route."""
        by_body = [path for path, kind in BODIES.items() if "model" in kind.known()]
        return [
            *[(path, "POST", self._by_body) for path in by_body],
            *[(path, method, self._by_query) for path, method in self._BY_QUERY],
            ("/v1/sessions", "GET", self._sessions),
            ("/v1/embeddings", "POST", self._embeddings),
            ("/v1/answers/{answer}", "GET", self._answer),
            ("/v1/answers/{answer}", "DELETE", self._answer),
            ("/v1/responses/{response}", "GET", self._response),
            ("/v1/responses/{response}", "DELETE", self._response),
        ]

    async def _by_body(self, http: HttpRequest) -> Response:
        async with self._reading.held(http, http.state.tenant) as held:
            body = bytes(held)
            name, seconds = await self._reading.run(lambda: _named(body))
            response = await self._forward(http, name, min(seconds, self._seconds), body)
        if (answer := http.path_params.get("answer")) and response.status_code == 200:
            own = self._answers.setdefault(http.state.tenant, OrderedDict())
            own[answer] = self._models.find(name)
            while len(own) > _MOST_ANSWERS:
                own.popitem(last=False)
        return response

    async def _by_query(self, http: HttpRequest) -> Response:
        async with self._reading.held(http, http.state.tenant) as held:
            return await self._forward(http, self._in_query(http), self._seconds, bytes(held))

    def _in_query(self, http: HttpRequest) -> str:
        name = http.query_params.get("model")
        if name is None:
            text = f"model is missing: the query parameter must be {_MODEL}"
            raise ApiError(400, text, param="model", code="missing_required_parameter")
        return name

    async def _forward(self, http: HttpRequest, name: str, seconds: float, body: bytes = b"") -> Response:
        """The answer of a model, which is loaded if it is not. `seconds`: since the request came. Raises ApiError."""
        held = AsyncExitStack()
        try:
            exchange = await unless_left(http, self._asked(http, name, seconds, body, held))
            http.state.forwarded = True
            return Forwarded(exchange, held)
        except LeftError:
            await held.aclose()
            return gone()
        except BaseException:
            await held.aclose()
            raise

    async def _asked(self, http: HttpRequest, name: str, seconds: float, body: bytes, held: AsyncExitStack) -> Exchange:
        """An exchange whose answer has begun. What it takes is given back with `held`."""
        while True:
            rest = seconds - (time.perf_counter() - http.state.arrived)
            loaded = await held.enter_async_context(self._models.using(name, http.state.tenant, rest))
            exchange = Exchange(loaded.place)
            held.callback(exchange.close)
            try:
                await exchange.ask(Asked.of(http, body))
                return exchange
            except NotThere:  # it was killed: another one is started
                await loaded.stop()

    async def _sessions(self, http: HttpRequest) -> Response:
        """The sessions of a model, or those of all that are loaded."""
        if "model" in http.query_params:
            return await self._forward(http, self._in_query(http), self._seconds)
        found: list[Json] = []
        for name, (status, body) in (await self.fetched(http)).items():
            cards = from_json(body)["data"] if status == 200 else []
            found += [card | {"model": name} for card in cards]
        return JSONResponse({"object": "list", "data": found})

    async def fetched(self, http: HttpRequest) -> dict[str, tuple[int, bytes]]:
        """What each loaded model answers to a request without a body, by its name: status and body."""
        found = {}
        for name, one in self._models.all.items():
            if one.ready is not None:
                with suppress(ApiError):  # its process is gone
                    async with self._models.using(name, http.state.tenant, math.inf) as loaded:
                        found[name] = await fetched(loaded.place, Asked.of(http, b""))
        return found

    async def _embeddings(self, http: HttpRequest) -> Response:
        raise ApiError(400, NO_EMBEDDINGS, param="model", code="unsupported_path")

    async def _answer(self, http: HttpRequest) -> Response:
        one = self._answers.get(http.state.tenant, OrderedDict()).get(http.path_params["answer"])
        if one is None or one.ready is None:
            text = f"there is no answer '{http.path_params['answer'][:100]}' here: ask again, the drive has the rest"
            raise ApiError(404, text, code="answer_not_found")
        return await self._forward(http, one.offer.name, self._seconds)

    async def _response(self, http: HttpRequest) -> Response:
        """A response has no model in its name: the loaded models are asked one after the other."""
        for status, body in (await self.fetched(http)).values():
            if status != 404:
                return Response(body, status, media_type="application/json")
        text = f"there is no response '{http.path_params['response'][:100]}' in the models that are loaded"
        raise ApiError(404, text, code="response_not_found")


def _named(body: bytes) -> tuple[str, float]:
    """The model of a request, and the seconds that it may take. Raises ApiError."""
    try:
        sent = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(sent, dict):
        raise ApiError(400, "the body must be a JSON object with the fields of the request", code="invalid_value")
    if (name := sent.get("model")) is None:
        raise ApiError(400, f"model is missing: it must be {_MODEL}", param="model", code="missing_required_parameter")
    if not isinstance(name, str):
        raise ApiError(400, f"model must be {_MODEL}", param="model", code="invalid_value")
    seconds = sent.get("deadline_seconds")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0:
        return name, float(seconds)
    return name, math.inf
