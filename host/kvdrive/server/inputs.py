"""Reads requests: fields, the tokens of the prompt, and what the answer keeps to. What does not fit is refused here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from starlette.requests import Request as HttpRequest

from kvdrive.generation.spelling import as_held
from kvdrive.server.anthropic_messages import CountRequest, MessagesRequest
from kvdrive.server.bodies import Bodies
from kvdrive.server.chat import Chats, Encoded
from kvdrive.server.constraints import calls_of, grammar_of
from kvdrive.server.engine import ServedModel
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import AsChat, taken
from kvdrive.server.grammar import Grammar, Grammars
from kvdrive.server.infill import infilled
from kvdrive.server.protocol import ChatRequest, CompletionRequest, Request
from kvdrive.server.responses_requests import InputItem, ResponseRequest
from kvdrive.server.session_paths import SessionPaths
from kvdrive.server.settings import Settings
from kvdrive.server.tool_formats import AnyFormat

_COMPLETION_TOKENS = 16  # of a completion whose request does not say, as OpenAI has it


@dataclass(frozen=True)
class Input:
    """A request that can be served. `new_tokens`: of an answer to each of `prompts`, at most.

    `echoes`: what stands before the answers to each prompt; None: nothing. `grammar`: what the answers keep to.
    `calls`: how the model writes calls of tools; None: it is offered none. `names`: see `AsChat`. `encoded`: the
    conversation; None: it is no chat.
    """

    request: Request
    prompts: list[list[int]]
    new_tokens: list[int]
    grammar: Grammar | None
    calls: AnyFormat | None = None
    echoes: list[str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    encoded: Encoded | None = None


class Inputs:
    """Reads what clients send, in a thread of its own. All methods raise ApiError."""

    def __init__(
        self, checkpoint: ServedModel, bodies: Bodies, chats: Chats, sessions: SessionPaths, settings: Settings
    ) -> None:
        self._checkpoint = checkpoint
        self._bodies, self._prompts, self._chats = bodies, bodies.prompts, chats
        self._sessions = sessions
        self._settings = settings
        self._vocabulary = checkpoint.vocabulary
        self._grammars = Grammars(checkpoint.tokenizer, self._vocabulary, checkpoint.stop_ids)

    async def completion(self, http: HttpRequest) -> Input:
        """Prompts to go on with."""
        request = await self._bodies.read(http, CompletionRequest)
        prompts, echoes = [], []
        for given in request.prompt:
            prompt = given if isinstance(given, list) else await self._text(given, http, request)
            self._check_prompt(prompt, "prompt")
            prompts.append(prompt)
            if request.echo:
                echoes.append(given if isinstance(given, str) else self._checkpoint.tokenizer.decode(prompt))
        found = await self._checked(request, prompts)
        return replace(found, echoes=echoes if request.echo else None)

    async def _text(self, text: str, http: HttpRequest, request: CompletionRequest) -> list[int]:
        """The tokens of a prompt that is a text."""
        prompts, suffix = self._prompts, request.suffix
        if suffix:
            return await prompts.run(lambda: infilled(self._checkpoint.tokenizer, prompts, text, suffix))
        tokens = await prompts.run(lambda: prompts.encode(text, "prompt"))
        return await self._as_held(tokens, http, request.session_name)

    async def chat(self, http: HttpRequest) -> Input:
        """A conversation to answer."""
        return await self._conversation(http, await self._bodies.read(http, ChatRequest))

    async def messages(self, http: HttpRequest) -> tuple[MessagesRequest, Input]:
        """A conversation to answer, as Anthropic's API has it."""
        request = await self._bodies.read(http, MessagesRequest)
        return request, await self.other(http, request)

    async def response(
        self, http: HttpRequest, name: str, items_of: Callable[[str], Awaitable[Sequence[InputItem]]]
    ) -> tuple[ResponseRequest, Input]:
        """A conversation to answer, as OpenAI's newer API has it, with the whole conversation in the request.

        `name`: of the response, and of the session that keeps its K and V. `items_of`: the items of the conversation up
        to an earlier response.
        """
        request = await self._bodies.read(http, ResponseRequest)
        previous = request.previous_response_id or ""
        if previous:
            request = request.behind(await items_of(previous))
        return request, await self.other(http, request, previous, name if request.stored else "")

    async def count(self, http: HttpRequest) -> int:
        """The tokens of a conversation."""
        request = await self._bodies.read(http, CountRequest)
        with in_words_of(request):
            chat, tenant = as_chat(request), http.state.tenant
            calls, thinks = calls_of(self._checkpoint.tokenizer, chat), request.thinks
            return len((await self._prompts.run(lambda: self._chats.encode(chat, calls, tenant, thinks))).tokens)

    async def other(self, http: HttpRequest, request: AsChat, previous: str = "", name: str = "") -> Input:
        """A conversation of another protocol, which goes on with the session `previous` and is saved as `name`."""
        with in_words_of(request):
            chat = as_chat(request).model_copy(update={"session": name or None})
            found = await self._conversation(http, chat, previous, request.thinks)
            return replace(found, names=request.names)

    async def _conversation(
        self, http: HttpRequest, request: ChatRequest, previous: str = "", thinks: bool | None = None
    ) -> Input:
        calls, tenant = calls_of(self._checkpoint.tokenizer, request), http.state.tenant
        found = await self._prompts.run(lambda: self._chats.encode(request, calls, tenant, thinks))
        prompt = await self._as_held(found.tokens, http, previous or request.session_name)
        self._check_prompt(prompt, "messages")
        return replace(await self._checked(request, [prompt], calls), encoded=found)

    async def _as_held(self, prompt: list[int], http: HttpRequest, name: str) -> list[int]:
        """The prompt with the tokens that the session `name` holds of the same text, sampled ones included."""
        held = await self._sessions.tokens(name, http.state.tenant)
        return await self._prompts.run(lambda: as_held(self._checkpoint.tokenizer, prompt, held)) if held else prompt

    async def _checked(self, request: Request, prompts: list[list[int]], calls: AnyFormat | None = None) -> Input:
        self._check_vocabulary(request.logit_bias or (), "logit_bias")
        self._check_vocabulary(request.stop_token_ids or (), "stop_token_ids")
        new_tokens = [self._new_tokens(request, len(prompt)) for prompt in prompts]
        constrained = request.response_format or request.must_call
        grammar = await self._prompts.run(lambda: grammar_of(self._grammars, request, calls)) if constrained else None
        return Input(request, prompts, new_tokens, grammar, calls)

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

    def _new_tokens(self, request: Request, prompt_tokens: int) -> int:
        """The most tokens of an answer. Raises ApiError where the context has no room for them, unless the owner lets
        them be fewer.
        """
        room = self._settings.context - prompt_tokens
        param, wanted = request.limit
        if wanted is None:
            wanted = room if isinstance(request, ChatRequest) else _COMPLETION_TOKENS
        if wanted > room and self._settings.allowed.clamps and room >= (request.min_tokens or 0):
            return room
        if wanted > room:
            text = (
                f"{param} is too large: the prompt has {prompt_tokens} tokens, and the context holds "
                f"{self._settings.context}, so send {room} at most"
            )
            raise ApiError(400, text, param=param, code="context_length_exceeded")
        return wanted


def as_chat(request: AsChat) -> ChatRequest:
    """The chat that says the same. Raises ApiError for what a chat refuses, in the words of a chat."""
    return taken(ChatRequest, request.for_chat())


@contextmanager
def in_words_of(request: AsChat) -> Iterator[None]:
    """ApiErrors about a chat become errors about the request that it was made from."""
    try:
        yield
    except ApiError as error:
        raise error.renamed(request.names) from error
