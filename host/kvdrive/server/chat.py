"""Turns a conversation into the tokens that the model continues."""

from __future__ import annotations

import json
from dataclasses import dataclass

from kvdrive.generation import conversation
from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import Json
from kvdrive.server.prompts import Prompts
from kvdrive.server.protocol import ChatRequest
from kvdrive.server.replays import Replays, chain_of, rest_of
from kvdrive.server.tool_formats import AnyFormat


@dataclass(frozen=True)
class Encoded:
    """`tokens`: of the prompt. `conversation`: the hash of its messages (see `replays.chain_of`)."""

    tokens: list[int]
    conversation: bytes


class Chats:
    """Encodes by the checkpoint's template; without a template, as a line for each message.

    A conversation that goes on with an earlier answer begins with the tokens of that prompt and answer, from `replays`.
    """

    def __init__(self, tokenizer: Tokenizer, prompts: Prompts, replays: Replays) -> None:
        self._tokenizer, self._prompts, self._replays = tokenizer, prompts, replays

    def encode(self, request: ChatRequest, how: AnyFormat | None, tenant: str) -> Encoded:
        """The prompt of a tenant. `how`: the format in which the model writes calls. Raises ApiError."""
        messages = [one.for_template() for one in request.messages]
        tools = [one.for_template() for one in request.offered]
        text = self._text(request, messages, tools)
        chain = chain_of(messages, tools)
        replayed = self._replayed(tenant, chain, how, messages, tools, text)
        return Encoded(replayed or self._tokens(text), chain[-1])

    def _text(self, request: ChatRequest, messages: list[Json], tools: list[Json]) -> str:
        size = sum(one.characters for one in request.messages) + len(json.dumps(tools))
        self._prompts.check_characters(size, "messages")
        try:
            return conversation.as_text(self._tokenizer, messages, tools)
        except Exception as error:  # a template may raise any kind of error for messages that it does not support
            first = (str(error) or type(error).__name__).splitlines()[0]
            refusal = f"the model's chat template refuses this conversation: {first}"
            raise ApiError(400, refusal, param="messages", code="invalid_value") from error

    def _replayed(
        self, tenant: str, chain: list[bytes], how: AnyFormat | None, messages: list[Json], tools: list[Json], text: str
    ) -> list[int] | None:
        """The prompt, if its beginning is kept and the template writes its parts one behind the other."""
        found = self._replays.find(tenant, chain)
        if found is None or self._tokenizer.chat_template is None:
            return None
        count, kept = found
        try:
            rest = rest_of(self._tokenizer, how, messages, tools, count, text)
        except Exception:  # what the template says of parts of a conversation does not matter
            return None
        return None if rest is None else kept + self._tokens(rest)

    def _tokens(self, text: str) -> list[int]:
        return self._prompts.encode(text, "messages", special=conversation.wants_special(self._tokenizer))
