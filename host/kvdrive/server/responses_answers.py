"""The documents of OpenAI's responses: whole answers, and events of streams."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

from kvdrive.server.calls import Call, Piece, Thought
from kvdrive.server.errors import ApiError
from kvdrive.server.events import named
from kvdrive.server.fields import Json
from kvdrive.server.generation import Generation
from kvdrive.server.responses_requests import ResponseRequest


class ResponseAnswer:
    """Documents of the answer to `request`, called `name`; see `documents.Documents`.

    `keep` is called with the whole answer, before the client gets its end.
    """

    def __init__(
        self, request: ResponseRequest, name: str, keep: Callable[[Json], Awaitable[None]] | None = None
    ) -> None:
        self._id = name
        self._keep = keep
        self._created = int(time.time())
        self._request = request
        self._events = 0

    async def whole(self, choices: Sequence[Generation]) -> Json:
        """See Documents. What is thought comes before what is said, and that before what is called."""
        (generation,) = choices
        said = generation.said
        text = "".join(one for one in said if isinstance(one, str))
        output = [_reasoning(_named("rs"), thoughts)] if (thoughts := generation.thoughts) else []
        output += [_message(_named("msg"), text)] if text else []
        output += [_call(_named("fc"), one) for one in said if isinstance(one, Call)]
        return await self._ended(output, generation)

    async def events(self, choices: Sequence[Generation]) -> AsyncIterator[str]:
        """See Documents."""
        (generation,) = choices
        output: list[Json] = []
        item: _Item | None = None
        try:
            for kind in ("response.created", "response.in_progress"):
                yield self._event(kind, response=self._document("in_progress", []))
            async for piece in generation.pieces():
                if item and not item.takes(piece):
                    for event in self._closed(output, item):
                        yield event
                    item = None
                if isinstance(piece, Call):
                    for event in self._called(output, piece):
                        yield event
                    continue
                if item is None:
                    item = _Item(thinks=isinstance(piece, Thought))
                    for event in self._opened(output, item):
                        yield event
                delta = piece.text if isinstance(piece, Thought) else piece
                item.text += delta
                place = {"item_id": item.name, "output_index": len(output), "content_index": 0}
                yield self._event(f"response.{item.kind}.delta", delta=delta, **item.more, **place)
            if item:
                for event in self._closed(output, item):
                    yield event
            last = await self._ended(output, generation)
            yield self._event(f"response.{last['status']}", response=last)
        except ApiError as error:
            found = {"code": error.code or "server_error", "message": str(error)}
            failed = self._document("failed", output) | {"error": found}
            yield self._event("response.failed", response=failed)

    def _opened(self, output: list[Json], item: _Item) -> Iterator[str]:
        begun = item.document() | {"status": "in_progress", "content": []}
        yield self._event("response.output_item.added", output_index=len(output), item=begun)
        place = {"item_id": item.name, "output_index": len(output), "content_index": 0}
        yield self._event("response.content_part.added", part=item.part(), **place)

    def _closed(self, output: list[Json], item: _Item) -> Iterator[str]:
        """The end of a message or of thoughts, which become part of `output`."""
        place = {"item_id": item.name, "output_index": len(output), "content_index": 0}
        yield self._event(f"response.{item.kind}.done", text=item.text, **item.more, **place)
        yield self._event("response.content_part.done", part=item.part(), **place)
        yield self._event("response.output_item.done", output_index=len(output), item=item.document())
        output.append(item.document())

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

    async def _ended(self, output: list[Json], generation: Generation) -> Json:
        counts = generation.usage
        found = self._document("incomplete" if generation.reason == "length" else "completed", output)
        if generation.reason == "length":
            found["incomplete_details"] = {"reason": "max_output_tokens"}
        found["usage"] = {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": counts["prompt_tokens_details"],
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": generation.thought_tokens},
            "total_tokens": counts["total_tokens"],
        }
        found["kvdrive"] = generation.stored
        if self._keep:
            await self._keep(found)
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
        return named(document)


class _Item:
    """A message that comes, or thoughts."""

    def __init__(self, *, thinks: bool) -> None:
        self._thinks = thinks
        self.name = _named("rs" if thinks else "msg")
        self.kind = "reasoning_text" if thinks else "output_text"  # in names of events
        self.more: Json = {} if thinks else {"logprobs": []}
        self.text = ""

    def takes(self, piece: Piece) -> bool:
        """True if a piece is of this item."""
        return not isinstance(piece, Call) and isinstance(piece, Thought) == self._thinks

    def part(self) -> Json:
        """Its only part, as far as it has come."""
        return {"type": self.kind, "text": self.text} if self._thinks else _part(self.text)

    def document(self) -> Json:
        """The item, as far as it has come."""
        return _reasoning(self.name, self.text) if self._thinks else _message(self.name, self.text)


def _named(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _message(name: str, text: str) -> Json:
    return {"type": "message", "id": name, "role": "assistant", "status": "completed", "content": [_part(text)]}


def _call(name: str, call: Call) -> Json:
    called = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
    return {"type": "function_call", "id": name, "status": "completed", **called}


def _reasoning(name: str, text: str) -> Json:
    content = [{"type": "reasoning_text", "text": text}]
    return {"id": name, "type": "reasoning", "status": "completed", "summary": [], "content": content}
