"""The documents of OpenAI's responses: whole answers, and events of streams."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from kvdrive.server.calls import Call
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import Json
from kvdrive.server.generation import Generation
from kvdrive.server.responses_requests import ResponseRequest


class ResponseAnswer:
    """Documents of the answer to `request`, called `name`; see `documents.Documents`.

    `keep` is called with the whole answer.
    """

    def __init__(self, request: ResponseRequest, name: str, keep: Callable[[Json], None] | None = None) -> None:
        self._id = name
        self._keep = keep
        self._created = int(time.time())
        self._request = request
        self._events = 0

    def whole(self, choices: Sequence[Generation]) -> Json:
        """See Documents. What is said comes before what is called."""
        (generation,) = choices
        said = generation.said
        text = "".join(one for one in said if isinstance(one, str))
        output = [_message(_named("msg"), text)] if text else []
        output += [_call(_named("fc"), one) for one in said if isinstance(one, Call)]
        return self._ended(output, generation)

    async def events(self, choices: Sequence[Generation]) -> AsyncIterator[str]:
        """See Documents."""
        (generation,) = choices
        output: list[Json] = []
        message, text = "", ""
        try:
            for kind in ("response.created", "response.in_progress"):
                yield self._event(kind, response=self._document("in_progress", []))
            async for piece in generation.pieces():
                if isinstance(piece, Call):
                    if message:
                        for event in self._said(output, message, text):
                            yield event
                        message, text = "", ""
                    for event in self._called(output, piece):
                        yield event
                    continue
                if not message:
                    message = _named("msg")
                    for event in self._opened(output, message):
                        yield event
                text += piece
                place = {"item_id": message, "output_index": len(output), "content_index": 0}
                yield self._event("response.output_text.delta", delta=piece, logprobs=[], **place)
            if message:
                for event in self._said(output, message, text):
                    yield event
            last = self._ended(output, generation)
            yield self._event(f"response.{last['status']}", response=last)
        except ApiError as error:
            found = {"code": error.code or "server_error", "message": str(error)}
            failed = self._document("failed", output) | {"error": found}
            yield self._event("response.failed", response=failed)

    def _opened(self, output: list[Json], message: str) -> Iterator[str]:
        item = _message(message, "") | {"status": "in_progress", "content": []}
        yield self._event("response.output_item.added", output_index=len(output), item=item)
        place = {"item_id": message, "output_index": len(output), "content_index": 0}
        yield self._event("response.content_part.added", part=_part(""), **place)

    def _said(self, output: list[Json], message: str, text: str) -> Iterator[str]:
        """The end of a message, which becomes part of `output`."""
        place = {"item_id": message, "output_index": len(output), "content_index": 0}
        yield self._event("response.output_text.done", text=text, logprobs=[], **place)
        yield self._event("response.content_part.done", part=_part(text), **place)
        item = _message(message, text)
        yield self._event("response.output_item.done", output_index=len(output), item=item)
        output.append(item)

    def _called(self, output: list[Json], call: Call) -> Iterator[str]:
        """A whole call, which becomes part of `output`."""
        item = _call(_named("fc"), call)
        begun = item | {"arguments": "", "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=len(output), item=begun)
        place = {"item_id": item["id"], "output_index": len(output)}
        yield self._event("response.function_call_arguments.delta", delta=call.arguments, **place)
        yield self._event("response.function_call_arguments.done", arguments=call.arguments, name=call.name, **place)
        yield self._event("response.output_item.done", output_index=len(output), item=item)
        output.append(item)

    def _ended(self, output: list[Json], generation: Generation) -> Json:
        counts = generation.usage
        found = self._document("incomplete" if generation.reason == "length" else "completed", output)
        if generation.reason == "length":
            found["incomplete_details"] = {"reason": "max_output_tokens"}
        found["usage"] = {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": counts["prompt_tokens_details"],
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["total_tokens"],
        }
        found["kvdrive"] = generation.stored
        if self._keep:
            self._keep(found)
        return found

    def _document(self, status: str, output: list[Json]) -> Json:
        request = self._request
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "model": request.model,
            "output": output,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": request.previous_response_id,
            "temperature": 1.0 if request.temperature is None else request.temperature,
            "tool_choice": request.tool_choice or "auto",
            "tools": [one.model_dump() for one in request.tools or ()],
            "top_p": 1.0 if request.top_p is None else request.top_p,
            "usage": None,
        }

    def _event(self, kind: str, **fields: object) -> str:
        document = {"type": kind, "sequence_number": self._events, **fields}
        self._events += 1
        return f"event: {kind}\ndata: {json.dumps(document, ensure_ascii=False)}\n\n"


def _named(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _message(name: str, text: str) -> Json:
    return {"type": "message", "id": name, "role": "assistant", "status": "completed", "content": [_part(text)]}


def _call(name: str, call: Call) -> Json:
    called = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
    return {"type": "function_call", "id": name, "status": "completed", **called}
