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
from kvdrive.server.replays import Parts, Replays, chain_of, rest_of
from kvdrive.server.thoughts import ThoughtFormat, template_of, template_options, thoughts_of
from kvdrive.server.tool_formats import AnyFormat


@dataclass(frozen=True)
class Encoded:
    """`tokens`: of the prompt. `conversation`: the hash of its messages (see `replays.chain_of`). `thoughts`: how the
    model writes what it thinks, and whether the prompt has begun it; None: what it writes is said as it is.
    """

    tokens: list[int]
    conversation: bytes
    thoughts: tuple[ThoughtFormat, bool] | None


class Chats:
    """Encodes by the checkpoint's template; without a template, as a line for each message.

    A conversation that goes on with an earlier answer begins with the tokens of that prompt and answer, from `replays`.
    """

    def __init__(self, tokenizer: Tokenizer, prompts: Prompts) -> None:
        self._tokenizer, self._prompts, self.replays = tokenizer, prompts, Replays()

    def encode(self, request: ChatRequest, how: AnyFormat | None, tenant: str, thinks: bool | None = None) -> Encoded:
        """The prompt of a tenant. `how`: the format in which the model writes calls. `thinks`: see AsChat. Raises
        ApiError.
        """
        template = template_of(self._tokenizer)
        options = template_options(template, request, thinks, in_channels=bool(how and how.always))
        messages = [one.for_template() for one in request.messages]
        tools = [one.for_template() for one in request.offered]
        text = self._text(request, messages, tools, options)
        chain = chain_of(messages, tools)
        parts = Parts(how, messages, tools, text, options)
        replayed = self._replayed(tenant, chain, parts)
        thoughts = thoughts_of(template)
        written = None if thoughts is None else (thoughts, thoughts.begun(text))
        return Encoded(replayed or self._tokens(text), chain[-1], written)

    def _text(self, request: ChatRequest, messages: list[Json], tools: list[Json], options: Json) -> str:
        size = sum(one.characters for one in request.messages) + len(json.dumps(tools))
        self._prompts.check_characters(size, "messages")
        try:
            return conversation.as_text(self._tokenizer, messages, tools, options=options)
        except Exception as error:  # a template may raise any kind of error for messages that it does not support
            first = (str(error) or type(error).__name__).splitlines()[0]
            refusal = f"the model's chat template refuses this conversation: {first}"
            raise ApiError(400, refusal, param="messages", code="invalid_value") from error

    def _replayed(self, tenant: str, chain: list[bytes], parts: Parts) -> list[int] | None:
        """The prompt, if its beginning is kept and the template writes its parts one behind the other."""
        found = self.replays.find(tenant, chain)
        if found is None or self._tokenizer.chat_template is None:
            return None
        count, kept = found
        try:
            rest = rest_of(self._tokenizer, parts, count)
        except Exception:  # what the template says of parts of a conversation does not matter
            return None
        return None if rest is None else kept + self._tokens(rest)

    def _tokens(self, text: str) -> list[int]:
        return self._prompts.encode(text, "messages", special=conversation.wants_special(self._tokenizer))
