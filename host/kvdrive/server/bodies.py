"""Reads the bodies of requests, and turns their texts into tokens, away from the event loop."""

from __future__ import annotations

from typing import TypeVar

from starlette.requests import Request as HttpRequest

from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.server.fields import Fields, parse
from kvdrive.server.prompts import Prompts
from kvdrive.server.settings import Settings

AnyFields = TypeVar("AnyFields", bound=Fields)


class Bodies:
    """`prompts`: does the work in a thread of its own."""

    def __init__(self, tokenizer: Tokenizer, settings: Settings) -> None:
        self.prompts = Prompts(tokenizer, settings.prompt_tokens, tenants=settings.allowed.tenants.count)
        self._settings = settings

    async def read(self, http: HttpRequest, kind: type[AnyFields]) -> AnyFields:
        """The request in a body. Raises ApiError, also for the name of another model."""
        ignore = self._settings.allowed.ignore_unknown
        request = await self.prompts.read(
            http, http.state.tenant, lambda body: parse(kind, body, ignore_unknown=ignore)
        )
        if (name := getattr(request, "model", None)) is not None:
            self._settings.check_model(name)
        return request
