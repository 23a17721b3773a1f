"""The paths of the page's answers: begin one, read it from its beginning as often as needed, stop it."""

from __future__ import annotations

import re
from dataclasses import replace

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from kvdrive.server.answer_requests import AnswerRequest
from kvdrive.server.bodies import Bodies
from kvdrive.server.errors import ApiError
from kvdrive.server.guard import Handler
from kvdrive.server.inputs import Inputs
from kvdrive.server.kept_answers import KeptAnswers
from kvdrive.server.submissions import Submissions

_NAME = re.compile(r"[A-Za-z0-9-]{8,64}")


class AnswerPaths:
    """Each tenant has answers of its own. `bytes_per_token`: of K and V."""

    def __init__(self, bodies: Bodies, inputs: Inputs, submissions: Submissions, bytes_per_token: int) -> None:
        self._bodies = bodies
        self._inputs = inputs
        self._submissions = submissions
        self._answers = KeptAnswers(bytes_per_token)

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Path, method and handler of each route."""
        return [
            ("/v1/answers/{answer}", "POST", self._begin),
            ("/v1/answers/{answer}", "GET", self._read),
            ("/v1/answers/{answer}", "DELETE", self._stop),
        ]

    async def _begin(self, http: HttpRequest) -> Response:
        name, tenant = http.path_params["answer"], http.state.tenant
        if not _NAME.fullmatch(name):
            text = "the name of an answer must be 8 to 64 letters, digits and '-'"
            raise ApiError(400, text, param="answer", code="invalid_value")
        request = await self._bodies.read(http, AnswerRequest)
        wanted = await self._inputs.other(http, request, name=request.session or "")
        if wanted.encoded:  # the page shows thoughts as they are written
            wanted = replace(wanted, encoded=replace(wanted.encoded, thoughts=None))
        self._answers.check_free(tenant, name)
        (generation,) = self._submissions.submit(wanted, tenant, http.state.arrived)
        self._answers.start(tenant, name, generation)
        return JSONResponse({"id": name, "object": "answer"})

    async def _read(self, http: HttpRequest) -> Response:
        answer = self._answers.get(http.state.tenant, http.path_params["answer"])
        return StreamingResponse(answer.events(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})

    async def _stop(self, http: HttpRequest) -> Response:
        name = http.path_params["answer"]
        self._answers.drop(http.state.tenant, name)
        return JSONResponse({"id": name, "object": "answer", "deleted": True})
