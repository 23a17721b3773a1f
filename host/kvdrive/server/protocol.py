"""Requests of OpenAI's completions and chat completions, as far as this server serves them.

`fields` says what happens to a field. docs/reference/requests.md is made from the tables of this module: `make pages`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, FailFast, Field, WithJsonSchema, model_validator

from kvdrive.generation.rules import Rules
from kvdrive.generation.sampling import Sampling
from kvdrive.server.calls import Tool
from kvdrive.server.common_fields import (
    MOST_TOOLS,
    NAME,
    NAMED,
    MinP,
    Model,
    ParallelCalls,
    RepetitionPenalty,
    Seed,
    Session,
    Stream,
    Temperature,
    TopK,
    TopP,
)
from kvdrive.server.fields import Fields, Json, OfTypes, Says, refuse
from kvdrive.server.messages import Message, ToolDefinition

URI = "kvdrive:"
MOST_CHOICES = 64  # of a request, over all of its prompts
_MOST_STOPS, _STOP_CHARACTERS = 4, 256
_MOST_STOP_IDS, _MOST_BIASES, _MOST_TOP = 64, 1024, 20

# Fields that change the answer, or that a client waits for, and that this server does not implement; the values that
# change nothing. With an empty list, only null is accepted.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "prompt_logprobs": (),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "chat_template": (),
    "verbosity": ("medium",),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "prompt_cache_retention": (),
    "service_tier": ("auto", "default"),
}
NO_TOOLS: dict[str, tuple[Any, ...]] = {  # in completions
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (False, True),
    "top_logprobs": (0,),
}
NO_CHAT: dict[str, tuple[Any, ...]] = {"chat_template_kwargs": ({},), "reasoning_effort": ()}  # in completions
NO_CANDIDATES: dict[str, tuple[Any, ...]] = {"best_of": (1,), "echo": (False,), "suffix": ("",)}  # in chats
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


def _prompts(value: Any) -> list[str | list[int]]:
    """Prompts, each a text or token numbers, of one of the four forms."""
    several = value if isinstance(value, list) and value and not _is_tokens(value) else [value]
    texts, tokens = all(isinstance(one, str) for one in several), all(map(_is_tokens, several))
    if not texts and not tokens:
        raise ValueError("neither")
    return several


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int for one in value)


def _bias(value: Any) -> dict[int, float]:
    """Token numbers, which are texts in JSON, and what is added to their logits."""
    if not isinstance(value, dict) or len(value) > _MOST_BIASES:
        raise ValueError("no such object")
    for token, added in value.items():
        if not token.isdecimal() or len(token) > 9 or type(added) not in (int, float) or not -100 <= added <= 100:
            raise ValueError("no such entry")
    return {int(token): float(added) for token, added in value.items()}


def _format(value: Any) -> Any:
    """A response format; the one for free text is none."""
    return None if value == {"type": "text"} else value


class JsonSchema(Fields):
    """The schema that an answer keeps to."""

    harmless: ClassVar[dict[str, str]] = {"strict": "an answer keeps to the schema in any case"}

    name: Annotated[str, Says("a text", "the name of the format, for the client's own use")]
    description: Annotated[str | None, Says("a text", "what the format is for, for the client's own use")] = None
    json_schema: Annotated[Json, Field(alias="schema"), Says("a JSON schema, as an object", "the schema")]


class ResponseFormat(OfTypes):
    """What the answer is."""

    type: Annotated[
        Literal["json_object", "json_schema"],
        Says('"text", "json_object" or "json_schema"', "JSON is written in one line"),
    ]
    json_schema: Annotated[JsonSchema | None, Says("an object with name and schema", "goes with type json_schema")] = (
        None
    )

    called = "formats"
    fields_of: ClassVar = {"json_object": ((), ()), "json_schema": (("json_schema",), ())}

    @property
    def schema_of_answer(self) -> Mapping[str, Any]:
        """The JSON schema of the whole answer."""
        return self.json_schema.json_schema if self.json_schema else {"type": "object"}


class StreamOptions(Fields):
    """What a stream contains besides text."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {"include_obfuscation": (False,)}

    include_usage: Annotated[bool, Says("true or false", "true: the last chunk has the counts of tokens")] = False


class Request(Fields):
    """Fields that both kinds of request share."""

    neutral = NEUTRAL
    harmless = HARMLESS
    limits: ClassVar[tuple[str, ...]]  # the fields that bound the answer's tokens, the one that counts first

    model: Model
    stream: Stream = None
    stream_options: Annotated[
        StreamOptions | None, Says('an object such as {"include_usage": true}', "goes with `stream`")
    ] = None
    temperature: Temperature = None
    top_p: TopP = None
    top_k: TopK = None
    seed: Seed = None
    stop: Annotated[
        list[str] | None,
        FailFast(),
        BeforeValidator(_as_list),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
        Says("a text, or a list of texts", f"ends the answer; {_MOST_STOPS} texts of {_STOP_CHARACTERS} characters"),
    ] = None
    min_p: MinP = None
    presence_penalty: Annotated[
        float | None,
        Field(ge=-2, le=2, allow_inf_nan=False),
        Says("a number from -2 to 2", "is subtracted from the logits of tokens that the answer has already"),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        Field(ge=-2, le=2, allow_inf_nan=False),
        Says("a number from -2 to 2", "the same, for each time that the answer has the token"),
    ] = None
    repetition_penalty: RepetitionPenalty = None
    logit_bias: Annotated[
        Any,
        BeforeValidator(_bias),
        WithJsonSchema({"type": "object", "additionalProperties": {"type": "number"}}),
        Says(
            f"an object of up to {_MOST_BIASES} token numbers with numbers from -100 to 100",
            "is added to the logits of these tokens",
        ),
    ] = None
    n: Annotated[
        int | None,
        Field(ge=1, le=MOST_CHOICES),
        Says(
            f"a whole number from 1 to {MOST_CHOICES}",
            "so many choices; the prompt is computed once. Choice i has the seed `seed` + i",
        ),
    ] = None
    min_tokens: Annotated[
        int | None,
        Field(ge=0),
        Says("a whole number, 0 or more", "the answer has so many tokens at least"),
    ] = None
    ignore_eos: Annotated[
        bool | None, Says("true or false", "true: the model's own tokens for the end do not end the answer")
    ] = None
    stop_token_ids: Annotated[
        list[Annotated[int, Field(ge=0)]] | None,
        FailFast(),
        Field(max_length=_MOST_STOP_IDS),
        Says(f"a list of up to {_MOST_STOP_IDS} token numbers", "each ends the answer, and is no part of it"),
    ] = None
    response_format: Annotated[
        ResponseFormat | None,
        BeforeValidator(_format),
        Says('an object such as {"type": "json_schema", "json_schema": ...}', "the answer is JSON, of a schema"),
    ] = None
    session: Session = None
    kv_uri: Annotated[
        str | None,
        Field(pattern=f"^{URI}{NAME[1:]}"),
        Says(f"{URI} and a name of {NAMED}", "the same, as an answer's `kvdrive.kv_uri` has it"),
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
        if self.stops and self.min_tokens:
            refuse("min_tokens cannot be kept to where stop texts end an answer: leave one of them out", "min_tokens")
        if self.response_format and self.min_tokens:
            refuse("min_tokens cannot be kept to where a format ends an answer: leave one of them out", "min_tokens")
        if self.session and self.kv_uri and self.kv_uri != URI + self.session:
            refuse("session and kv_uri name two sessions: send one of them", "kv_uri")
        if self.session_name and self.several:
            refuse("a session holds one sequence: leave session out, or ask for one choice of one prompt", "session")
        first, *others = [name for name in self.limits if getattr(self, name) is not None] or [""]
        for name in others:
            if getattr(self, name) != getattr(self, first):
                refuse(f"{first} and {name} differ: send one of them", name)
        name, most = self.limit
        if most is not None and most < (self.min_tokens or 0):
            refuse(f"min_tokens is more than {name}", "min_tokens")
        return self

    @property
    def choices(self) -> int:
        """Choices of each prompt."""
        return self.n or 1

    @property
    def candidates(self) -> int:
        """Answers that are generated for each prompt, of which the likeliest are the choices."""
        return self.choices

    @property
    def several(self) -> bool:
        """True if more than one answer is generated."""
        return self.candidates > 1

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
        """Of the first choice. OpenAI's default temperature is 1."""
        temperature = 1.0 if self.temperature is None else self.temperature
        seed = uuid.uuid4().int % 2**63 if self.seed is None else self.seed
        top_p = 1.0 if self.top_p is None else self.top_p
        return Sampling(temperature, self.top_k or 0, top_p, seed, self.min_p or 0.0)

    def rules(self, stop_ids: frozenset[int]) -> Rules:
        """What it asks of the tokens of the answer; `stop_ids`: those that end a text of the model."""
        return Rules(
            ends=frozenset(self.stop_token_ids or ()) | (frozenset() if self.ignore_eos else stop_ids),
            least=self.min_tokens or 0,
            bias=self.logit_bias or {},
            repetition=1.0 if self.repetition_penalty is None else self.repetition_penalty,
            presence=self.presence_penalty or 0.0,
            frequency=self.frequency_penalty or 0.0,
        )

    @property
    def must_call(self) -> list[Tool]:
        """The tools of which the answer has to call one; empty: it may say something instead."""
        return []

    @property
    def may_call(self) -> list[Tool]:
        """The tools of which the answer may call some."""
        return []

    @property
    def several_calls(self) -> bool:
        """True if the answer may have more than one call."""
        return False

    @property
    def chances(self) -> int | None:
        """How many of the most likely tokens are shown beside each token of the answer; None: it has no `logprobs`."""
        raise NotImplementedError

    @property
    def scores(self) -> bool:
        """True if the tokens of the prompt have `logprobs`, too."""
        return False


_WHOLE = "a whole number, 0 or more"
_MAX_TOKENS = Says(_WHOLE, "tokens of the answer at most; 0: the prompt is computed and stored; default: 16")
_MAX_CHAT_TOKENS = Says(_WHOLE, "as in a completion; default: as many as there is room")


class CompletionRequest(Request):
    """`POST /v1/completions`: prompts, as texts or as token numbers."""

    neutral = NEUTRAL | NO_TOOLS | NO_CHAT
    limits = ("max_tokens",)

    prompt: Annotated[
        Any,
        BeforeValidator(_prompts),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}},
                    {"type": "array", "items": {"type": "integer"}},
                    {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                ]
            }
        ),
        Says(
            "a text, a list of token numbers, or a list of several of the same kind",
            f"the beginning, which the model continues; up to {MOST_CHOICES} of them",
        ),
    ]
    max_tokens: Annotated[int | None, Field(ge=0), _MAX_TOKENS] = None
    best_of: Annotated[
        int | None,
        Field(ge=1, le=MOST_CHOICES),
        Says(
            f"a whole number from 1 to {MOST_CHOICES}",
            "so many answers are generated, and the `n` likeliest for each token are sent",
        ),
    ] = None
    echo: Annotated[
        bool | None,
        Says("true or false", "true: the prompt stands before the answer; with `logprobs`, its tokens have theirs"),
    ] = None
    suffix: Annotated[
        str | None, Says("a text", "what follows the answer, for models with tokens for that; with prompts as texts")
    ] = None
    logprobs: Annotated[
        int | None,
        Field(ge=0, le=_MOST_TOP),
        Says(f"a whole number from 0 to {_MOST_TOP}", "says how likely the tokens were, beside so many others"),
    ] = None

    @model_validator(mode="after")
    def _candidates_fit(self) -> CompletionRequest:
        if self.best_of is not None and self.best_of < self.choices:
            refuse("best_of is less than n: send n at least, or leave it out", "best_of")
        if self.stream and self.candidates != self.choices:
            refuse("best_of compares whole answers: leave it or stream out", "best_of")
        if self.candidates * len(self.prompt) > MOST_CHOICES:
            refuse(f"prompt and n ask for more than {MOST_CHOICES} answers: send several requests", "prompt")
        if self.suffix and self.echo:
            refuse("suffix goes without echo: leave one of them out", "suffix")
        if self.suffix and not all(isinstance(one, str) for one in self.prompt):
            refuse("suffix goes with prompts that are texts", "suffix")
        return self

    @property
    def candidates(self) -> int:
        """See Request."""
        return self.best_of or self.choices

    @property
    def several(self) -> bool:
        """See Request."""
        return self.candidates * len(self.prompt) > 1

    @property
    def chances(self) -> int | None:
        """See Request."""
        return self.logprobs

    @property
    def scores(self) -> bool:
        """See Request."""
        return bool(self.echo) and self.logprobs is not None


def _tool_choice(value: Any) -> str:
    """A word, or the name of a tool behind a colon, which no name has."""
    if isinstance(value, str) and value in ("none", "auto", "required"):
        return value
    found = value if isinstance(value, dict) and value.keys() == {"type", "function"} else {}
    named = found.get("function")
    if found.get("type") != "function" or not isinstance(named, dict) or named.keys() != {"name"}:
        raise ValueError("neither")
    return f":{named['name']}"


class TemplateOptions(Fields):
    """What the model's chat template is asked by name."""

    enable_thinking: Annotated[bool | None, Says("true or false", "false: the model does not think before")] = None
    thinking: Annotated[bool | None, Says("true or false", "the same, as DeepSeek's templates call it")] = None
    reasoning_effort: Annotated[
        Literal["low", "medium", "high"] | None, Says('"low", "medium" or "high"', "the same as outside of it")
    ] = None


class ChatRequest(Request):
    """`POST /v1/chat/completions`: a conversation, which the model answers."""

    neutral = NEUTRAL | NO_CANDIDATES
    limits = ("max_completion_tokens", "max_tokens")

    messages: Annotated[
        list[Message],
        FailFast(),
        Field(min_length=1),
        Says("a list of one message or more, each with role and content", "the conversation so far"),
    ]
    max_tokens: Annotated[int | None, Field(ge=0), _MAX_CHAT_TOKENS] = None
    max_completion_tokens: Annotated[
        int | None, Field(ge=0), Says(_MAX_CHAT_TOKENS.takes, "the newer name of `max_tokens`")
    ] = None
    logprobs: Annotated[bool | None, Says("true or false", "true: the answer says how likely its tokens were")] = None
    top_logprobs: Annotated[
        int | None,
        Field(ge=0, le=_MOST_TOP),
        Says(f"a whole number from 0 to {_MOST_TOP}", "goes with `logprobs`: so many others beside each token"),
    ] = None
    tools: Annotated[
        list[ToolDefinition] | None,
        FailFast(),
        Field(max_length=MOST_TOOLS),
        Says(f"a list of up to {MOST_TOOLS} objects with type and function", "what the model may call"),
    ] = None
    tool_choice: Annotated[
        Any,
        BeforeValidator(_tool_choice),
        WithJsonSchema({"enum": ["none", "auto", "required"]}),
        Says(
            '"none", "auto", "required" or {"type": "function", "function": {"name": "..."}}',
            "whether the model calls; default: auto",
        ),
    ] = None
    parallel_tool_calls: ParallelCalls = None
    reasoning_effort: Annotated[
        Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None,
        Says(
            '"none", "minimal", "low", "medium", "high" or "xhigh"',
            "how much the model thinks, where its chat template has levels; none where it can be switched off",
        ),
    ] = None
    chat_template_kwargs: Annotated[
        TemplateOptions | None,
        Says('an object such as {"enable_thinking": false}', "for the chat template, where it knows these names"),
    ] = None

    @model_validator(mode="after")
    def _tools_fit(self) -> ChatRequest:
        names = [one.function.name for one in self.tools or ()]
        if len(names) != len(set(names)):
            refuse("two tools have the same name", "tools")
        if self.tool_choice not in (None, "none", "auto") and not names:
            refuse("tool_choice goes with tools: send some, or leave it out", "tool_choice")
        if self.tool_choice not in (None, "none", "auto", "required", *(f":{name}" for name in names)):
            refuse("tool_choice names a tool that is not in tools", "tool_choice")
        if self.must_call and self.min_tokens:
            refuse("min_tokens cannot be kept to where a call ends an answer: leave one of them out", "min_tokens")
        if self.top_logprobs and not self.logprobs:
            refuse("top_logprobs goes with logprobs: send logprobs true, or leave it out", "top_logprobs")
        return self

    @property
    def offered(self) -> list[ToolDefinition]:
        """The tools that the model learns of."""
        return [] if self.tool_choice == "none" else self.tools or []

    @property
    def must_call(self) -> list[Tool]:
        """See Request."""
        if self.tool_choice in (None, "none", "auto"):
            return []
        return [one.tool for one in self.offered if self.tool_choice in ("required", f":{one.function.name}")]

    @property
    def may_call(self) -> list[Tool]:
        """See Request."""
        return [one.tool for one in self.offered]

    @property
    def several_calls(self) -> bool:
        """See Request."""
        return self.parallel_tool_calls is not False and self.tool_choice in (None, "auto", "required")

    @property
    def chances(self) -> int | None:
        """See Request."""
        return (self.top_logprobs or 0) if self.logprobs else None


class SlotRequest(Fields):
    """`POST /slots/N?action=save` and `restore`: the session that the slot ran last, as in llama.cpp's server."""

    filename: Annotated[str, Field(pattern=NAME), Says(f"a name of {NAMED}", "the name of the session")]
