"""The documents of OpenAI's completions and chat completions: whole answers, and chunks of streams."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence

from transformers import PreTrainedTokenizerBase

from kvdrive.server.chances import Chances, as_chat, as_completion
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import Json
from kvdrive.server.generation import Generation
from kvdrive.server.protocol import ChatRequest, Request
from kvdrive.server.tool_formats import Call

Said = Sequence[str | Call]


class Answer:
    """Builds the documents of one answer: chunks of a stream, or the whole."""

    def __init__(self, request: Request, model: str, tokenizer: PreTrainedTokenizerBase) -> None:
        self._chat = isinstance(request, ChatRequest)
        self._tokenizer = tokenizer
        self._counts = request.stream_options is not None and request.stream_options.include_usage
        self._calls = 0
        self._characters = 0
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, said: Said, generation: Generation) -> Json:
        """The whole answer as one document."""
        text = "".join(one for one in said if isinstance(one, str))
        calls = [_call(one) for one in said if isinstance(one, Call)]
        message: Json = {"role": "assistant", "content": text if text or not calls else None}
        message |= {"tool_calls": calls} if calls else {}
        kind = "chat.completion" if self._chat else "text_completion"
        content = {"message": message} if self._chat else {"text": text}
        choice = self._choice(content, generation.reason, generation.take_chances())
        return self._document(kind, [choice]) | {"usage": generation.usage, "kvdrive": generation.stored}

    async def events(self, generation: Generation) -> AsyncIterator[str]:
        """The answer as server-sent events; an error that comes after the first byte is an event too."""
        try:
            if self._chat:
                yield _event(self._chunk({"delta": {"role": "assistant", "content": ""}}, None))
            async for piece in generation.pieces():
                yield _event(self._piece(piece, generation.take_chances()))
            last = self._chunk(
                {"delta": {}} if self._chat else {"text": ""}, generation.reason, generation.take_chances()
            )
            yield _event(last | {"kvdrive": generation.stored})
            if self._counts:
                counts = {"usage": generation.usage, "kvdrive": generation.stored}
                yield _event(self._document(self._chunk_kind, []) | counts)
        except ApiError as error:
            yield _event(error.body())
        yield "data: [DONE]\n\n"

    def _piece(self, said: str | Call, chances: Sequence[Chances]) -> Json:
        """A chunk with text, or with a whole call. `chances`: of the tokens that came since the last chunk."""
        if isinstance(said, Call):
            content: Json = {"delta": {"tool_calls": [{"index": self._calls, **_call(said)}]}}
            self._calls += 1
        else:
            content = {"delta": {"content": said}} if self._chat else {"text": said}
        found = self._chunk(content, None, chances)
        self._characters += len(said) if isinstance(said, str) else 0
        return found

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _chunk(self, content: Json, reason: str | None, chances: Sequence[Chances] = ()) -> Json:
        return self._document(self._chunk_kind, [self._choice(content, reason, chances)])

    def _document(self, kind: str, choices: list[Json]) -> Json:
        return self._head | {"object": kind, "choices": choices}

    def _choice(self, content: Json, reason: str | None, chances: Sequence[Chances]) -> Json:
        found = None
        if chances:
            found = (
                as_chat(self._tokenizer, chances)
                if self._chat
                else as_completion(self._tokenizer, chances, self._characters)
            )
        return {"index": 0, **content, "logprobs": found, "finish_reason": reason}


def _call(call: Call) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _event(document: Json) -> str:
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n"
