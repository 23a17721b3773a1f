"""The paths of OpenAI's responses, which may go on with an earlier one by its name."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from kvdrive.server.answering import Answering
from kvdrive.server.fields import Json
from kvdrive.server.guard import Handler
from kvdrive.server.inputs import Inputs
from kvdrive.server.kept_responses import Kept
from kvdrive.server.response_store import ResponseStore
from kvdrive.server.responses_answers import ResponseAnswer
from kvdrive.server.responses_requests import InputItem
from kvdrive.server.session_paths import SessionPaths


class ResponsePaths:
    """Each tenant has responses of its own. What is kept of one is its K and V as a session with its name, and its
    text.
    """

    def __init__(self, inputs: Inputs, answering: Answering, sessions: SessionPaths) -> None:
        self._inputs = inputs
        self._answering = answering
        self._kept = ResponseStore(sessions)

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Path, method and handler of each route."""
        return [
            ("/v1/responses", "POST", self._create),
            ("/v1/responses/{response}", "GET", self._read),
            ("/v1/responses/{response}", "DELETE", self._remove),
        ]

    async def _create(self, http: HttpRequest) -> Response:
        name, tenant = f"resp_{uuid.uuid4().hex}", http.state.tenant

        async def items_of(previous: str) -> Sequence[InputItem]:
            return (await self._kept.get(tenant, previous, "previous_response_id")).items

        request, wanted = await self._inputs.response(http, name, items_of)
        keep = self._keeper(tenant, name, request.input) if request.stored else None
        return await self._answering.answer(http, wanted, ResponseAnswer(request, name, keep))

    def _keeper(self, tenant: str, name: str, items: Sequence[InputItem]) -> Callable[[Json], Awaitable[None]]:
        """Keeps the response to a conversation once it is whole."""

        async def keep(document: Json) -> None:
            await self._kept.keep(tenant, name, Kept.of(document, items))

        return keep

    async def _read(self, http: HttpRequest) -> Response:
        kept = await self._kept.get(http.state.tenant, http.path_params["response"])
        return JSONResponse(kept.document)

    async def _remove(self, http: HttpRequest) -> Response:
        name, tenant = http.path_params["response"], http.state.tenant
        await self._kept.drop(tenant, name)
        return JSONResponse({"id": name, "object": "response", "deleted": True})
