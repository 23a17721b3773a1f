"""The paths that generate: OpenAI's completions and chats, and Anthropic's messages."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.server.answering import Answering
from kvdrive.server.answers import Answer
from kvdrive.server.anthropic_answers import AnthropicAnswer
from kvdrive.server.guard import Handler
from kvdrive.server.inputs import Input, Inputs


class CompletionPaths:
    """Handlers that turn a request into an answer. `model`: its name in answers."""

    def __init__(self, tokenizer: Tokenizer, inputs: Inputs, answering: Answering, model: str) -> None:
        self._tokenizer = tokenizer
        self._inputs = inputs
        self._answering = answering
        self._model = model

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Path, method and handler of each route."""
        return [
            ("/v1/completions", "POST", self._completions),
            ("/v1/chat/completions", "POST", self._chat),
            ("/v1/messages", "POST", self._messages),
            ("/v1/messages/count_tokens", "POST", self._count_tokens),
        ]

    async def _completions(self, http: HttpRequest) -> Response:
        return await self._openai(http, await self._inputs.completion(http))

    async def _chat(self, http: HttpRequest) -> Response:
        return await self._openai(http, await self._inputs.chat(http))

    async def _messages(self, http: HttpRequest) -> Response:
        request, wanted = await self._inputs.messages(http)
        answer = AnthropicAnswer(self._model, shows_thoughts=bool(request.thinks))
        return await self._answering.answer(http, wanted, answer)

    async def _count_tokens(self, http: HttpRequest) -> Response:
        return JSONResponse({"input_tokens": await self._inputs.count(http)})

    async def _openai(self, http: HttpRequest, wanted: Input) -> Response:
        return await self._answering.answer(http, wanted, Answer(wanted.request, self._model, self._tokenizer))
