"""The documents of Anthropic's messages: whole answers, and events of streams."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Sequence

from kvdrive.server.calls import Call, Piece, Thought
from kvdrive.server.errors import ApiError
from kvdrive.server.events import named
from kvdrive.server.fields import Json
from kvdrive.server.generation import Generation

_THINKING: Json = {"type": "thinking", "thinking": "", "signature": ""}
_EMPTY: dict[str, Json] = {"text": {"type": "text", "text": ""}, "thinking": _THINKING}
_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}
_ERRORS = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error"}


class AnthropicAnswer:
    """Documents of a message; see `documents.Documents`. `shows_thoughts`: the client has asked for them."""

    def __init__(self, model: str, *, shows_thoughts: bool = False) -> None:
        self._shows_thoughts = shows_thoughts
        self._head = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": model}

    async def whole(self, choices: Sequence[Generation]) -> Json:
        """See Documents. What is thought comes before what is said, and that before what is called."""
        (generation,) = choices
        said = generation.said
        text = "".join(one for one in said if isinstance(one, str))
        thoughts = generation.thoughts if self._shows_thoughts else ""
        content: list[Json] = [_THINKING | {"thinking": thoughts}] if thoughts else []
        content += [{"type": "text", "text": text}] if text else []
        content += [_call(one) | {"input": json.loads(one.arguments)} for one in said if isinstance(one, Call)]
        return self._message(content) | _ended(generation) | {"usage": usage(generation), "kvdrive": generation.stored}

    async def events(self, choices: Sequence[Generation]) -> AsyncIterator[str]:
        """See Documents."""
        (generation,) = choices
        place, begun, block = 0, False, ""  # the type of the block that is open
        try:
            async for piece in generation.pieces():
                if not begun:
                    yield self._beginning(generation)
                    begun = True
                if isinstance(piece, Thought) and not self._shows_thoughts:
                    continue
                if block and block != _type_of(piece):
                    yield _event("content_block_stop", index=place)
                    place, block = place + 1, ""
                if isinstance(piece, Call):
                    for event in _called(piece, place):
                        yield event
                    place += 1
                    continue
                if not block:
                    block = _type_of(piece)
                    yield _event("content_block_start", index=place, content_block=_EMPTY[block])
                yield _event("content_block_delta", index=place, delta=_delta(piece))
            if not begun:
                yield self._beginning(generation)
            if block:
                yield _event("content_block_stop", index=place)
            yield _event("message_delta", delta=_ended(generation), usage=usage(generation), kvdrive=generation.stored)
            yield _event("message_stop")
        except ApiError as error:
            yield _event("error", **error_body(error))

    def _beginning(self, generation: Generation) -> str:
        message = self._message([]) | {"stop_reason": None, "stop_sequence": None, "usage": usage(generation)}
        return _event("message_start", message=message)

    def _message(self, content: Sequence[Json]) -> Json:
        return self._head | {"content": content}


def usage(generation: Generation) -> Json:
    """Tokens of the prompt that were computed, those that were on the drive, and those of the answer so far."""
    counts = generation.usage
    cached = counts["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": counts["prompt_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": counts["completion_tokens"],
    }


def error_body(error: ApiError) -> Json:
    """An error in Anthropic's format."""
    kind = "api_error" if error.status >= 500 else _ERRORS.get(error.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": str(error)}}


def _ended(generation: Generation) -> Json:
    reason = _REASONS.get(generation.reason) or ("stop_sequence" if generation.stop_text else "end_turn")
    return {"stop_reason": reason, "stop_sequence": generation.stop_text or None}


def _type_of(piece: Piece) -> str:
    """The type of the block that a piece is in."""
    return "tool_use" if isinstance(piece, Call) else "thinking" if isinstance(piece, Thought) else "text"


def _delta(piece: str | Thought) -> Json:
    if isinstance(piece, Thought):
        return {"type": "thinking_delta", "thinking": piece.text}
    return {"type": "text_delta", "text": piece}


def _call(call: Call) -> Json:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}


def _called(call: Call, place: int) -> list[str]:
    delta = {"type": "input_json_delta", "partial_json": call.arguments}
    return [
        _event("content_block_start", index=place, content_block=_call(call)),
        _event("content_block_delta", index=place, delta=delta),
        _event("content_block_stop", index=place),
    ]


def _event(kind: str, **fields: object) -> str:
    return named({"type": kind, **fields})
