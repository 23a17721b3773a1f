"""The documents of OpenAI's completions and chat completions: whole answers, and chunks of streams."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence

from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.server.calls import Call, Piece, Thought
from kvdrive.server.chances import Chances, as_chat, as_completion
from kvdrive.server.documents import pieces_of
from kvdrive.server.errors import ApiError
from kvdrive.server.events import event
from kvdrive.server.fields import Json
from kvdrive.server.generation import Generation, total_usage
from kvdrive.server.protocol import ChatRequest, Request


class Answer:
    """Documents of a completion or a chat; see `documents.Documents`."""

    def __init__(self, request: Request, model: str, tokenizer: Tokenizer) -> None:
        self._request = request
        self._chat = isinstance(request, ChatRequest)
        self._tokenizer = tokenizer
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    async def whole(self, choices: Sequence[Generation]) -> Json:
        """See Documents. Of more candidates than wanted choices, the likeliest are shown."""
        shown = [one for several in self._of_prompts(choices) for one in self._best(several)]
        kind = "chat.completion" if self._chat else "text_completion"
        found = [self._whole_choice(place, one) for place, one in enumerate(shown)]
        document = self._document(kind, found) | {"usage": total_usage(choices)}
        return document | ({"kvdrive": shown[0].stored} if len(shown) == 1 else {})

    async def events(self, choices: Sequence[Generation]) -> AsyncIterator[str]:
        """See Documents. Each chunk has one choice; the last one of each choice has `kvdrive`."""
        streams = [_Stream(place) for place in range(len(choices))]
        try:
            if self._chat:
                for place in range(len(choices)):
                    yield event(self._chunk(place, {"delta": {"role": "assistant", "content": ""}}))
            async for place, piece, chances in pieces_of(choices):
                found = self._piece(streams[place], piece, chances, choices[place].reason)
                yield event(found | ({"kvdrive": choices[place].stored} if piece is None else {}))
            if self._request.stream_options is not None and self._request.stream_options.include_usage:
                counts = {"usage": total_usage(choices)} | ({"kvdrive": choices[0].stored} if len(choices) == 1 else {})
                yield event(self._document(self._chunk_kind, []) | counts)
        except ApiError as error:
            yield event(error.body())
        yield "data: [DONE]\n\n"

    def _of_prompts(self, choices: Sequence[Generation]) -> list[Sequence[Generation]]:
        """The candidates of each prompt."""
        size = self._request.candidates
        return [choices[first : first + size] for first in range(0, len(choices), size)]

    def _best(self, candidates: Sequence[Generation]) -> Sequence[Generation]:
        """So many as are wanted, in the order of what the model gave their tokens, if there are more."""
        count = self._request.choices
        if len(candidates) == count:
            return candidates
        return sorted(candidates, key=lambda one: -one.mean_chance)[:count]

    def _whole_choice(self, place: int, choice: Generation) -> Json:
        text = "".join(one for one in choice.said if isinstance(one, str))
        calls = [_call(one) for one in choice.said if isinstance(one, Call)]
        message: Json = {"role": "assistant", "content": text if text or not calls else None}
        message |= {"tool_calls": calls} if calls else {}
        message |= {"reasoning_content": thoughts} if (thoughts := choice.thoughts) else {}
        content = {"message": message} if self._chat else {"text": text}
        found = _choice(place, content, self._logprobs(choice.chances, 0), choice.reason)
        return found | ({"kvdrive": choice.stored} if self._request.several else {})

    def _piece(self, stream: _Stream, said: Piece | None, chances: Sequence[Chances], reason: str) -> Json:
        """A chunk with text or thoughts, or with a whole call; or the last one. `chances`: of the tokens since the one
        before.
        """
        found = self._logprobs(chances, stream.characters)
        if said is None:
            return self._chunk(stream.place, {"delta": {}} if self._chat else {"text": ""}, found, reason)
        if isinstance(said, Call):
            stream.calls += 1
            called = {"tool_calls": [{"index": stream.calls - 1, **_call(said)}]}
            return self._chunk(stream.place, {"delta": called}, found)
        if isinstance(said, Thought):
            return self._chunk(stream.place, {"delta": {"reasoning_content": said.text}}, found)
        stream.characters += len(said)
        return self._chunk(stream.place, {"delta": {"content": said}} if self._chat else {"text": said}, found)

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _chunk(self, place: int, content: Json, logprobs: Json | None = None, reason: str | None = None) -> Json:
        return self._document(self._chunk_kind, [_choice(place, content, logprobs, reason)])

    def _document(self, kind: str, choices: list[Json]) -> Json:
        return self._head | {"object": kind, "choices": choices}

    def _logprobs(self, chances: Sequence[Chances], characters: int) -> Json | None:
        """`characters`: those of the choice before the first of these tokens."""
        if not chances or self._request.chances is None:
            return None
        return as_chat(self._tokenizer, chances) if self._chat else as_completion(self._tokenizer, chances, characters)


class _Stream:
    """What was sent of a choice: calls, and characters of its text."""

    def __init__(self, place: int) -> None:
        self.place, self.calls, self.characters = place, 0, 0


def _choice(place: int, content: Json, logprobs: Json | None, reason: str | None) -> Json:
    return {"index": place, **content, "logprobs": logprobs, "finish_reason": reason}


def _call(call: Call) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
