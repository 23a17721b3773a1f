"""Requests and answers of OpenAI's completions and chat completions, as far as this server serves them.

`fields` says what happens to a field. docs/reference/requests.md is made from the tables of this module: `make pages`.
"""

from __future__ import annotations

import time
import uuid
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, FailFast, Field, WithJsonSchema, model_validator

from kvdrive.generation.decode import Sampling
from kvdrive.server.fields import Fields, Says, refuse

NAME = r"^[\w.-]{1,128}$"  # of a session
URI = "kvdrive:"
Json = dict[str, Any]
_MOST_STOPS, _STOP_CHARACTERS = 4, 256
_NAMED = "letters, digits, '_', '.' and '-', 128 at most"

# Fields that change the answer, or that a client waits for, and that this server does not implement; the values that
# change nothing. With an empty list, only null is accepted.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (False, True),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "reasoning_effort": (),
    "verbosity": ("medium",),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "prompt_cache_retention": (),
    "service_tier": ("auto", "default"),
}
HARMLESS = {
    "user": "the name of the client's own user, for its statistics",
    "safety_identifier": "as `user`",
    "prompt_cache_key": "a hint which prompts begin alike; prefixes are found by their tokens",
    "metadata": "notes for answers that OpenAI stores",
    "store": "OpenAI keeps the answer for its own tools; this server keeps K and V whatever it says",
}


def _as_list(value: Any) -> Any:
    """A text as a list with one text."""
    return [value] if isinstance(value, str) else value


def _as_parts(value: Any) -> Any:
    """A text as the one part of a message."""
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


def _prompt(value: Any) -> str | list[int]:
    """A text, or token numbers. A list with one text is that text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(type(one) is int for one in value):
        return value
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        if len(value) > 1:
            refuse("one prompt for each request: send the others as requests of their own", "prompt")
        return str(value[0])
    raise ValueError("neither")


class StreamOptions(Fields):
    """What a stream contains besides text."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {"include_obfuscation": (False,)}

    include_usage: Annotated[bool, Says("true or false", "true: the last chunk has the counts of tokens")] = False


class Request(Fields):
    """Fields that both kinds of request share."""

    neutral = NEUTRAL
    harmless = HARMLESS
    limits: ClassVar[tuple[str, ...]]  # the fields that bound the answer's tokens, the one that counts first

    model: Annotated[str, Says("the name of this server's model, as /v1/models has it", "the model")]
    stream: Annotated[bool | None, Says("true or false", "true: the answer comes piece by piece")] = None
    stream_options: Annotated[
        StreamOptions | None, Says('an object such as {"include_usage": true}', "goes with `stream`")
    ] = None
    temperature: Annotated[
        float | None,
        Field(ge=0, le=2, allow_inf_nan=False),
        Says("a number from 0 to 2", "0: always the most likely token; default: 1"),
    ] = None
    top_p: Annotated[
        float | None,
        Field(gt=0, le=1, allow_inf_nan=False),
        Says("a number above 0 and up to 1", "samples from this share of the probability"),
    ] = None
    top_k: Annotated[
        int | None, Field(ge=0), Says("a whole number, 0 or more", "samples from so many tokens; 0: from all")
    ] = None
    seed: Annotated[
        int | None,
        Field(ge=-(2**63), lt=2**63),
        Says("a whole number of 64 bits", "the same seed samples the same tokens; default: a random one"),
    ] = None
    stop: Annotated[
        list[str] | None,
        FailFast(),
        BeforeValidator(_as_list),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
        Says("a text, or a list of texts", f"ends the answer; {_MOST_STOPS} texts of {_STOP_CHARACTERS} characters"),
    ] = None
    session: Annotated[
        str | None,
        Field(pattern=NAME),
        Says(f"a name of {_NAMED}", "keeps the sequence under this name, and goes on with it; see guide/server.md"),
    ] = None
    kv_uri: Annotated[
        str | None,
        Field(pattern=f"^{URI}{NAME[1:]}"),
        Says(f"{URI} and a name of {_NAMED}", "the same, as an answer's `kvdrive.kv_uri` has it"),
    ] = None
    deadline_seconds: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False),
        Says("a number above 0", "ends the answer with an error when it takes longer"),
    ] = None

    @property
    def session_name(self) -> str:
        """The name under which the sequence is saved, as `session` or in `kv_uri`; "" without one."""
        return self.session or (self.kv_uri or "").removeprefix(URI)

    @model_validator(mode="after")
    def _fits_together(self) -> Request:
        """No wish of a request is dropped because another one says something else."""
        if len(self.stops) > _MOST_STOPS or not all(0 < len(stop) <= _STOP_CHARACTERS for stop in self.stops):
            refuse(f"stop must be up to {_MOST_STOPS} texts of 1 to {_STOP_CHARACTERS} characters", "stop")
        if self.stream_options is not None and not self.stream:
            refuse("stream_options go with stream: send stream true, or leave them out", "stream_options")
        if self.session and self.kv_uri and self.kv_uri != URI + self.session:
            refuse("session and kv_uri name two sessions: send one of them", "kv_uri")
        first, *others = [name for name in self.limits if getattr(self, name) is not None] or [""]
        for name in others:
            if getattr(self, name) != getattr(self, first):
                refuse(f"{first} and {name} differ: send one of them", name)
        return self

    @property
    def stops(self) -> list[str]:
        """Texts that end the answer."""
        return self.stop or []

    @property
    def limit(self) -> tuple[str, int | None]:
        """The field that bounds the answer's tokens, and its value; None: it was not sent."""
        name = next((name for name in self.limits if getattr(self, name) is not None), self.limits[0])
        return name, getattr(self, name)

    @property
    def sampling(self) -> Sampling:
        """OpenAI's default temperature is 1."""
        temperature = 1.0 if self.temperature is None else self.temperature
        seed = uuid.uuid4().int % 2**63 if self.seed is None else self.seed
        return Sampling(temperature, self.top_k or 0, 1.0 if self.top_p is None else self.top_p, seed)


_MAX_TOKENS = Says("a whole number, 1 or more", "tokens of the answer at most; default: 16")
_MAX_CHAT_TOKENS = Says("a whole number, 1 or more", "tokens of the answer at most; default: as many as there is room")


class CompletionRequest(Request):
    """`POST /v1/completions`: one prompt, as text or as token numbers."""

    limits = ("max_tokens",)

    prompt: Annotated[
        Any,
        BeforeValidator(_prompt),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]}),
        Says("a text, a list with one text, or a list of token numbers", "the beginning, which the model continues"),
    ]
    max_tokens: Annotated[int | None, Field(ge=1), _MAX_TOKENS] = None


class ContentPart(Fields):
    """A piece of a message."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {"image_url": (), "input_audio": (), "file": ()}

    type: Annotated[Literal["text"], Says('"text": other parts are not served')]
    text: Annotated[str, Says("a text")]


class Message(Fields):
    """One message of a conversation."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "tool_calls": ([],),
        "function_call": (),
        "annotations": ([],),
        "audio": (),
        "refusal": (),
    }

    role: Annotated[
        Literal["system", "developer", "user", "assistant"],
        Says('"system", "developer", "user" or "assistant"', "who says it"),
    ]
    content: Annotated[
        list[ContentPart],
        FailFast(),
        BeforeValidator(_as_parts),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": ContentPart.model_json_schema()}]}),
        Says('a text, or a list of parts {"type": "text", "text": "..."}', "what is said"),
    ]

    @property
    def text(self) -> str:
        """The content as one text."""
        return "".join(part.text for part in self.content)


class ChatRequest(Request):
    """`POST /v1/chat/completions`: a conversation, which the model answers."""

    limits = ("max_completion_tokens", "max_tokens")

    messages: Annotated[
        list[Message],
        FailFast(),
        Field(min_length=1),
        Says("a list of one message or more, each with role and content", "the conversation so far"),
    ]
    max_tokens: Annotated[int | None, Field(ge=1), _MAX_CHAT_TOKENS] = None
    max_completion_tokens: Annotated[
        int | None, Field(ge=1), Says(_MAX_CHAT_TOKENS.takes, "the newer name of `max_tokens`")
    ] = None


class SlotRequest(Fields):
    """`POST /slots/N?action=save` and `restore`: the session that the slot ran last, as in llama.cpp's server."""

    filename: Annotated[str, Field(pattern=NAME), Says(f"a name of {_NAMED}", "the name of the session")]


REQUESTS: tuple[type[Fields], ...] = (CompletionRequest, ChatRequest, SlotRequest)


class Answer:
    """Builds the documents of one answer: chunks of a stream, or the whole."""

    def __init__(self, chat: bool, model: str) -> None:
        self._chat = chat
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, text: str, reason: str, usage: Json, stored: Json) -> Json:
        """The whole answer as one document. `stored` is described by the function of this name."""
        content = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        kind = "chat.completion" if self._chat else "text_completion"
        return self._document(kind, [_choice(content, reason)]) | {"usage": usage, "kvdrive": stored}

    def opening(self) -> Json | None:
        """The chunk that begins a chat stream."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, None) if self._chat else None

    def piece(self, text: str) -> Json:
        """A chunk with text."""
        return self._chunk({"delta": {"content": text}} if self._chat else {"text": text}, None)

    def closing(self, reason: str, stored: Json) -> Json:
        """The chunk with the reason why the answer ended, and what is stored of it."""
        return self._chunk({"delta": {}} if self._chat else {"text": ""}, reason) | {"kvdrive": stored}

    def usage(self, usage: Json, stored: Json) -> Json:
        """The chunk with the counts, which has no choices."""
        return self._document(self._chunk_kind, []) | {"usage": usage, "kvdrive": stored}

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


def stored(session: int | None, name: str, resume: str, removed: int) -> Json:
    """What an answer says of its session: number and address, and how its prompt went on with it (see `idle.Taken`).

    `removed`: tokens that have left it because the positions were used up.
    """
    uri = f"{URI}{name}" if name and session is not None else None
    return {"session": session, "kv_uri": uri, "resume": resume, "removed_tokens": removed}
