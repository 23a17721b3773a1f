"""Requests and answers of OpenAI's completions and chat completions, as far as this server serves them.

A field that is not supported and would change the answer is refused unless it has its neutral value. All other unknown
fields are ignored, as OpenAI's clients expect.
"""

from __future__ import annotations

import time
import uuid
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator

from kvdrive.generation.decode import Sampling

Token = StrictInt
NAME = r"^[\w.-]{1,128}$"  # of a session
URI = "kvdrive:"
Json = dict[str, Any]


class StreamOptions(BaseModel):
    """Options of a stream: what it contains besides text."""

    include_usage: bool = False


class Request(BaseModel):
    """Fields that both kinds of request share."""

    model_config = ConfigDict(extra="ignore")

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    top_k: int | None = Field(None, ge=0)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = Field(None, max_length=4096)
    n: Literal[1] | None = None
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None
    logit_bias: dict[str, float] | None = Field(None, max_length=0)
    session: str | None = Field(None, pattern=NAME)
    kv_uri: str | None = Field(None, pattern=f"^{URI}{NAME[1:]}")
    deadline_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)

    @property
    def session_name(self) -> str:
        """The name under which the sequence is kept, as `session` or in `kv_uri`; "" without one."""
        return self.session or (self.kv_uri or "").removeprefix(URI)

    @model_validator(mode="after")
    def _few_stops(self) -> Request:
        stops = self.stops
        if len(stops) > 4 or not all(0 < len(stop) <= 256 for stop in stops):
            raise ValueError("stop takes up to 4 texts of 1 to 256 characters")
        return self

    @property
    def stops(self) -> list[str]:
        """Texts that end the answer."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def sampling(self) -> Sampling:
        """OpenAI's default temperature is 1."""
        temperature = 1.0 if self.temperature is None else self.temperature
        seed = uuid.uuid4().int % 2**63 if self.seed is None else self.seed
        return Sampling(temperature, self.top_k or 0, 1.0 if self.top_p is None else self.top_p, seed)


class CompletionRequest(Request):
    """/v1/completions: one prompt, as text or as token numbers."""

    prompt: str | list[Token] | list[str]
    max_tokens: int | None = Field(16, ge=1)
    echo: Literal[False] | None = None
    logprobs: None = None
    best_of: Literal[1] | None = None
    suffix: None = None

    @model_validator(mode="after")
    def _one_prompt(self) -> CompletionRequest:
        if isinstance(self.prompt, list) and (not self.prompt or isinstance(self.prompt[0], str)):
            if len(self.prompt) != 1:
                raise ValueError("one prompt for each request: send the others as requests of their own")
            self.prompt = str(self.prompt[0])
        return self


class ContentPart(BaseModel):
    """A piece of a message; only text is served."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ContentPart]

    @property
    def text(self) -> str:
        """The content as one text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(Request):
    """/v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: Literal[False] | None = None
    tools: list[Any] | None = Field(None, max_length=0)


class Answer:
    """Builds the documents of one answer: chunks of a stream, or the whole."""

    def __init__(self, chat: bool, model: str) -> None:
        self._chat = chat
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, text: str, reason: str, usage: Json, kept: Json) -> Json:
        """The whole answer as one document. `kept` is described by the function of this name."""
        content = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        kind = "chat.completion" if self._chat else "text_completion"
        return self._document(kind, [_choice(content, reason)]) | {"usage": usage, "kvdrive": kept}

    def opening(self) -> Json | None:
        """The chunk that begins a chat stream."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, None) if self._chat else None

    def piece(self, text: str) -> Json:
        """A chunk with text."""
        return self._chunk({"delta": {"content": text}} if self._chat else {"text": text}, None)

    def closing(self, reason: str, kept: Json) -> Json:
        """The chunk with the reason why the answer ended, and what is kept of it."""
        return self._chunk({"delta": {}} if self._chat else {"text": ""}, reason) | {"kvdrive": kept}

    def usage(self, usage: Json, kept: Json) -> Json:
        """The chunk with the counts, which has no choices."""
        return self._document(self._chunk_kind, []) | {"usage": usage, "kvdrive": kept}

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _chunk(self, content: Json, reason: str | None) -> Json:
        return self._document(self._chunk_kind, [_choice(content, reason)])

    def _document(self, kind: str, choices: list[Json]) -> Json:
        return self._head | {"object": kind, "choices": choices}


def _choice(content: Json, reason: str | None) -> Json:
    return {"index": 0, **content, "logprobs": None, "finish_reason": reason}


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
