"""Errors in OpenAI's format."""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.responses import JSONResponse

NO_EMBEDDINGS = "this server's models write text and give no embeddings: ask a server that has a model for them"


class ApiError(Exception):
    """A request that is answered with an error. `param` names the field at fault, `code` is for programs."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def renamed(self, names: Mapping[str, str]) -> ApiError:
        """The same error for a client to which some fields have other `names`. Its sentence speaks of the field in its
        first words, or not at all.
        """
        first = re.match(r"\w*", self.param or "")
        name = names.get(first[0]) if first else None
        if first is None or name is None or self.param is None:
            return self
        param, text = name + self.param[first.end() :], str(self)
        if re.match(rf"{re.escape(first[0])}\b", text):
            text = name + text[first.end() :]
        return ApiError(self.status, text, param=param, code=self.code)

    def body(self) -> dict[str, object]:
        """The JSON document."""
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(self.status, "invalid_request_error")
        if self.status >= 500:
            kind = "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self, body: dict[str, object] | None = None) -> JSONResponse:
        """The HTTP answer, with another `body` if there is one. For a full queue, it asks to retry after a second."""
        headers = {429: {"Retry-After": "1"}, 401: {"WWW-Authenticate": "Bearer"}}.get(self.status)
        return JSONResponse(body or self.body(), self.status, headers)
