"""The documents of OpenAI's completions and chat completions: whole answers, and chunks of streams."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from kvdrive.server.chances import Chances, as_chat, as_completion
from kvdrive.server.protocol import URI
from kvdrive.server.tool_formats import Call

Json = dict[str, Any]
Said = Sequence[str | Call]


class Answer:
    """Builds the documents of one answer: chunks of a stream, or the whole. `shows`: they have `logprobs`."""

    def __init__(self, chat: bool, model: str, tokenizer: PreTrainedTokenizerBase, *, shows: bool = False) -> None:
        self._chat = chat
        self._tokenizer = tokenizer
        self._shows = shows
        self._calls = 0
        self._characters = 0
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, said: Said, chances: Sequence[Chances], reason: str, usage: Json, kept: Json) -> Json:
        """The whole answer as one document. `kept` is described by the function of this name."""
        text = "".join(one for one in said if isinstance(one, str))
        calls = [_call(one) for one in said if isinstance(one, Call)]
        message: Json = {"role": "assistant", "content": text if text or not calls else None}
        message |= {"tool_calls": calls} if calls else {}
        kind = "chat.completion" if self._chat else "text_completion"
        choice = self._choice({"message": message} if self._chat else {"text": text}, reason, chances)
        return self._document(kind, [choice]) | {"usage": usage, "kvdrive": kept}

    def opening(self) -> Json | None:
        """The chunk that begins a chat stream."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, None) if self._chat else None

    def piece(self, said: str | Call, chances: Sequence[Chances] = ()) -> Json:
        """A chunk with text, or with a whole call. `chances`: of the tokens that came since the last chunk."""
        if isinstance(said, Call):
            content: Json = {"delta": {"tool_calls": [{"index": self._calls, **_call(said)}]}}
            self._calls += 1
        else:
            content = {"delta": {"content": said}} if self._chat else {"text": said}
        found = self._chunk(content, None, chances)
        self._characters += len(said) if isinstance(said, str) else 0
        return found

    def closing(self, reason: str, kept: Json, chances: Sequence[Chances] = ()) -> Json:
        """The chunk with the reason why the answer ended, and what is kept of it."""
        return self._chunk({"delta": {}} if self._chat else {"text": ""}, reason, chances) | {"kvdrive": kept}

    def usage(self, usage: Json, kept: Json) -> Json:
        """The chunk with the counts, which has no choices."""
        return self._document(self._chunk_kind, []) | {"usage": usage, "kvdrive": kept}

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _chunk(self, content: Json, reason: str | None, chances: Sequence[Chances] = ()) -> Json:
        return self._document(self._chunk_kind, [self._choice(content, reason, chances)])

    def _document(self, kind: str, choices: list[Json]) -> Json:
        return self._head | {"object": kind, "choices": choices}

    def _choice(self, content: Json, reason: str | None, chances: Sequence[Chances]) -> Json:
        found = None
        if self._shows and chances:
            found = (
                as_chat(self._tokenizer, chances)
                if self._chat
                else as_completion(self._tokenizer, chances, self._characters)
            )
        return {"index": 0, **content, "logprobs": found, "finish_reason": reason}


def _call(call: Call) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def usage(prompt_tokens: int, new_tokens: int, cached_tokens: int) -> Json:
    """The counts of an answer; `cached_tokens` of the prompt were on the drive already."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": new_tokens,
        "total_tokens": prompt_tokens + new_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def kept(session: int | None, name: str, resume: str, removed: int) -> Json:
    """What an answer says of its session: number and address, and how its prompt went on with it (see `idle.Taken`).

    `removed`: tokens that have left it because the positions were used up.
    """
    uri = f"{URI}{name}" if name and session is not None else None
    return {"session": session, "kv_uri": uri, "resume": resume, "removed_tokens": removed}
