"""Errors in OpenAI's format."""

from __future__ import annotations

from starlette.responses import JSONResponse


class ApiError(Exception):
    """A request that is answered with an error. `param` names the field at fault, `code` is for programs."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

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
