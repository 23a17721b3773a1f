"""Reads requests: fields, the tokens of the prompt, and what the answer keeps to. What does not fit is refused here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request as HttpRequest

from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.spelling import as_held
from kvdrive.server import chat
from kvdrive.server.anthropic_messages import CountRequest, MessagesRequest
from kvdrive.server.constraints import calls_of, grammar_of
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import parse, taken
from kvdrive.server.grammar import Grammar, Grammars
from kvdrive.server.prompts import Prompts
from kvdrive.server.protocol import ChatRequest, CompletionRequest, Request
from kvdrive.server.responses_requests import ResponseRequest
from kvdrive.server.session_paths import SessionPaths
from kvdrive.server.settings import Settings
from kvdrive.server.tool_formats import Format

AnyRequest = TypeVar("AnyRequest", bound=Request | CountRequest | ResponseRequest)
_COMPLETION_TOKENS = 16  # of a completion whose request does not say, as OpenAI has it


@dataclass(frozen=True)
class Input:
    """A request that can be served. `new_tokens`: of the answer, at most. `grammar`: what it keeps to.

    `calls`: how the model writes calls of tools; None: it is offered none.
    """

    request: Request
    prompt: list[int]
    new_tokens: int
    grammar: Grammar | None
    calls: Format | None


class Inputs:
    """Reads what clients send, in a thread of its own. All methods raise ApiError."""

    def __init__(self, checkpoint: Checkpoint, sessions: SessionPaths, settings: Settings) -> None:
        self._checkpoint = checkpoint
        self._sessions = sessions
        self._settings = settings
        self._prompts = Prompts(checkpoint.tokenizer, settings.prompt_tokens, tenants=settings.tenants.count)
        self._vocabulary = checkpoint.model.get_input_embeddings().num_embeddings
        self._grammars = Grammars(checkpoint.tokenizer, self._vocabulary, checkpoint.stop_ids)

    async def completion(self, http: HttpRequest) -> Input:
        """A prompt to go on with."""
        request = await self._parse(http, CompletionRequest)
        prompt = request.prompt
        if isinstance(prompt, str):
            text = prompt
            prompt = await self._prompts.run(lambda: self._prompts.encode(text, "prompt"))
            prompt = await self._as_held(prompt, http, request)
        return await self._checked(request, prompt, "prompt")

    async def chat(self, http: HttpRequest) -> Input:
        """A conversation to answer."""
        return await self._conversation(http, await self._parse(http, ChatRequest))

    async def messages(self, http: HttpRequest) -> Input:
        """A conversation to answer, as Anthropic's API has it."""
        return await self._conversation(http, _as_chat(await self._parse(http, MessagesRequest)))

    async def response(self, http: HttpRequest) -> tuple[Input, ResponseRequest]:
        """A conversation to answer, as OpenAI's newer API has it."""
        request = await self._parse(http, ResponseRequest)
        return await self._conversation(http, _as_chat(request), "max_output_tokens"), request

    async def count(self, http: HttpRequest) -> int:
        """The tokens of a conversation."""
        request = _as_chat(await self._parse(http, CountRequest))
        calls_of(self._checkpoint.tokenizer, request)
        return len(await self._encoded(request))

    async def _conversation(self, http: HttpRequest, request: ChatRequest, limit: str = "") -> Input:
        calls = calls_of(self._checkpoint.tokenizer, request)
        prompt = await self._as_held(await self._encoded(request), http, request)
        return await self._checked(request, prompt, "messages", calls, limit)

    async def _encoded(self, request: ChatRequest) -> list[int]:
        tokenizer, prompts = self._checkpoint.tokenizer, self._prompts
        return await prompts.run(lambda: chat.encode(tokenizer, prompts, request.messages, request.offered))

    async def _parse(self, http: HttpRequest, kind: type[AnyRequest]) -> AnyRequest:
        ignore = self._settings.ignore_unknown
        request = await self._prompts.read(
            http, http.state.tenant, lambda body: parse(kind, body, ignore_unknown=ignore)
        )
        self._settings.check_model(request.model)
        return request

    async def _as_held(self, prompt: list[int], http: HttpRequest, request: Request) -> list[int]:
        """The prompt with the tokens that its session holds of the same text, sampled ones included."""
        held = await self._sessions.tokens(request.session_name, http.state.tenant)
        return await self._prompts.run(lambda: as_held(self._checkpoint.tokenizer, prompt, held)) if held else prompt

    async def _checked(
        self, request: Request, prompt: list[int], param: str, calls: Format | None = None, limit: str = ""
    ) -> Input:
        """`limit`: what the client calls the field that bounds the answer, where that is not its name in a chat."""
        self._check_prompt(prompt, param)
        self._check_vocabulary(request.logit_bias or (), "logit_bias")
        self._check_vocabulary(request.stop_token_ids or (), "stop_token_ids")
        new_tokens = self._new_tokens(request, len(prompt), limit)
        constrained = request.response_format or request.must_call
        grammar = await self._prompts.run(lambda: grammar_of(self._grammars, request, calls)) if constrained else None
        return Input(request, prompt, new_tokens, grammar, calls)

    def _check_prompt(self, prompt: list[int], param: str) -> None:
        """Raises ApiError for a prompt that is empty, too long, or has tokens that the model does not have."""
        if not prompt:
            raise ApiError(400, "the prompt is empty: it needs one token at least", param=param, code="invalid_value")
        longest = min(self._settings.prompt_tokens, self._settings.context - 1)
        if len(prompt) > longest:
            text = f"the prompt has {len(prompt)} tokens, and this server takes {longest} at most: send a shorter one"
            raise ApiError(400, text, param=param, code="context_length_exceeded")
        self._check_vocabulary(prompt, param)

    def _check_vocabulary(self, tokens: Iterable[int], param: str) -> None:
        if not all(0 <= token < self._vocabulary for token in tokens):
            text = f"tokens are numbers from 0 to {self._vocabulary - 1}"
            raise ApiError(400, text, param=param, code="invalid_value")

    def _new_tokens(self, request: Request, prompt_tokens: int, limit: str) -> int:
        """The most tokens of an answer. Raises ApiError where the context has no room for them."""
        room = self._settings.context - prompt_tokens
        name, wanted = request.limit
        param = limit or name
        wanted = wanted or (room if isinstance(request, ChatRequest) else _COMPLETION_TOKENS)
        if wanted > room:
            text = (
                f"{param} is too large: the prompt has {prompt_tokens} tokens, and the context holds "
                f"{self._settings.context}, so send {room} at most"
            )
            raise ApiError(400, text, param=param, code="context_length_exceeded")
        return wanted


def _as_chat(request: CountRequest | ResponseRequest) -> ChatRequest:
    """The chat that says the same. Raises ApiError for what a chat refuses."""
    return taken(ChatRequest, request.for_chat())
