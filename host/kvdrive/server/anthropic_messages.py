"""Requests of Anthropic's messages, turned into chats."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, FailFast, Field, WithJsonSchema, model_validator

from kvdrive.server.calls import TOOL_NAME
from kvdrive.server.common_fields import MOST_TOOLS, Model, Stream, TopK, TopP
from kvdrive.server.fields import AsChat, Fields, Json, OfTypes, Says, refuse

_HINT = {"cache_control": "a hint what to keep; prefixes are found by their tokens"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def _as_blocks(value: Any) -> Any:
    """A text as one block."""
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


class TextBlock(Fields):
    """A piece of text."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {"citations": ([],)}
    harmless = _HINT

    type: Annotated[Literal["text"], Says('"text": other blocks are not served')]
    text: Annotated[str, Says("a text")]


_Texts = Annotated[
    list[TextBlock] | None,
    FailFast(),
    BeforeValidator(_as_blocks),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": TextBlock.model_json_schema()}]}),
]


class Block(OfTypes):
    """A piece of a message."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {"citations": ([],), "caller": ({"type": "direct"},)}
    harmless = _HINT | {"signature": "of what was thought; this server signs nothing"}

    type: Annotated[
        Literal["text", "tool_use", "tool_result", "thinking"],
        Says('"text", "tool_use", "tool_result" or "thinking": other blocks are not served'),
    ]
    thinking: Annotated[str | None, Says("a text", "what was thought; of type thinking")] = None
    text: Annotated[str | None, Says("a text", "of a block of type text")] = None
    id: Annotated[str | None, Says("a text", "the call, as the answer had it; of type tool_use")] = None
    name: Annotated[
        str | None, Field(pattern=TOOL_NAME), Says("the name of a tool", "what was called; of type tool_use")
    ] = None
    input: Annotated[Json | None, Says("a JSON object", "its arguments; of type tool_use")] = None
    tool_use_id: Annotated[str | None, Says("a text", "the call that this answers; of type tool_result")] = None
    content: Annotated[_Texts, Says("a text, or a list of blocks of type text", "of a block of type tool_result")] = (
        None
    )
    is_error: Annotated[
        bool | None, Says("true or false", 'the tool failed; the model reads "error: " before the content')
    ] = None

    called = "blocks"
    fields_of: ClassVar = {
        "text": (("text",), ()),
        "tool_use": (("id", "name", "input"), ()),
        "tool_result": (("tool_use_id",), ("content", "is_error")),
        "thinking": (("thinking",), ()),
    }

    def result(self) -> Json:
        """A result of a tool as a message of a chat."""
        text = "".join(one.text for one in self.content or ())
        return {
            "role": "tool",
            "tool_call_id": self.tool_use_id,
            "content": ("error: " if self.is_error else "") + text,
        }

    def call(self) -> Json:
        """A call of a tool as a chat has it."""
        arguments = json.dumps(self.input, ensure_ascii=False)
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


class AnthropicMessage(Fields):
    """One turn."""

    role: Annotated[Literal["user", "assistant"], Says('"user" or "assistant"', "who says it")]
    content: Annotated[
        list[Block],
        FailFast(),
        BeforeValidator(_as_blocks),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]}),
        Says("a text, or a list of blocks", "what is said, called or answered"),
    ]

    @model_validator(mode="after")
    def _fits_its_role(self) -> AnthropicMessage:
        wrong = {"user": ("tool_use", "thinking"), "assistant": ("tool_result",)}[self.role]
        if found := next((one.type for one in self.content if one.type in wrong), None):
            refuse(f"{{param}} of role {self.role} has no blocks of type {found}", "content")
        return self

    def for_chat(self) -> list[Json]:
        """The messages of a chat that say the same: results of tools come first, each on its own."""
        texts = [{"type": "text", "text": one.text} for one in self.content if one.type == "text"]
        results = [one.result() for one in self.content if one.type == "tool_result"]
        calls = [one.call() for one in self.content if one.type == "tool_use"]
        thought = "".join(one.thinking or "" for one in self.content if one.type == "thinking")
        said: Json = {"role": self.role, "content": texts} | ({"tool_calls": calls} if calls else {})
        said |= {"reasoning_content": thought} if thought else {}
        return results + ([said] if texts or calls or not results else [])


class AnthropicTool(Fields):
    """A tool."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "defer_loading": (False,),
        "allowed_callers": (["direct"],),
        "eager_input_streaming": (False,),
        "input_examples": ([],),
    }
    harmless = _HINT | {"strict": "as `strict` of a chat"}

    type: Annotated[Literal["custom"] | None, Says('"custom"')] = None
    name: Annotated[str, Field(pattern=TOOL_NAME), Says("a name of letters, digits, '_', '.' and '-'", "the tool")]
    description: Annotated[str | None, Says("a text", "what the tool is for; the model reads it")] = None
    input_schema: Annotated[Json, Says("a JSON schema, as an object", "the arguments")]

    def for_chat(self) -> Json:
        """The tool as a chat has it."""
        function = {"name": self.name, "description": self.description, "parameters": self.input_schema}
        return {"type": "function", "function": function}


class AnthropicChoice(OfTypes):
    """Whether the model calls."""

    type: Annotated[Literal["auto", "any", "tool", "none"], Says('"auto", "any", "tool" or "none"')]
    name: Annotated[str | None, Says("the name of a tool", "goes with type tool")] = None
    disable_parallel_tool_use: Annotated[
        bool | None, Says("true or false", "true: the answer has one call at most")
    ] = None

    called = "choices"
    fields_of: ClassVar = {
        kind: (("name",) if kind == "tool" else (), ("disable_parallel_tool_use",))
        for kind in ("auto", "any", "tool", "none")
    }

    def for_chat(self) -> Any:
        """The choice as a chat has it."""
        return _CHOICES.get(self.type) or {"type": "function", "function": {"name": self.name}}


class OutputFormat(Fields):
    """What the answer is."""

    type: Annotated[Literal["json_schema"], Says('"json_schema"', "JSON is written in one line")]
    json_schema: Annotated[Json, Field(alias="schema"), Says("a JSON schema, as an object", "the schema")]


class OutputConfig(Fields):
    """How the answer is made."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {"effort": ()}

    format: Annotated[OutputFormat | None, Says("an object with type and schema", "the answer is JSON of it")] = None


class ThinkingOptions(OfTypes):
    """Whether the model thinks before it answers."""

    type: Annotated[
        Literal["enabled", "adaptive", "disabled"],
        Says('"enabled", "adaptive" or "disabled"', "the first two: the answer has blocks of type thinking"),
    ]
    budget_tokens: Annotated[
        int | None, Field(ge=1024), Says("a whole number, 1024 or more", "not kept to: max_tokens bounds all tokens")
    ] = None

    called = "choices"
    fields_of: ClassVar = {"enabled": (("budget_tokens",), ()), "adaptive": ((), ()), "disabled": ((), ())}


class CountRequest(AsChat):
    """`POST /v1/messages/count_tokens`: how many tokens a conversation has."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "container": (),
        "mcp_servers": ([],),
        "context_management": (),
        "speed": ("standard",),
        "inference_geo": (),
        "diagnostics": (),
    }
    harmless: ClassVar[dict[str, str]] = _HINT
    names: ClassVar[dict[str, str]] = {
        "response_format": "output_config.format",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    }

    model: Model
    messages: Annotated[
        list[AnthropicMessage],
        FailFast(),
        Field(min_length=1),
        Says("a list of one message or more, each with role and content", "the conversation so far"),
    ]
    system: Annotated[_Texts, Says("a text, or a list of blocks of type text", "what the model is told first")] = None
    tools: Annotated[
        list[AnthropicTool] | None,
        FailFast(),
        Field(max_length=MOST_TOOLS),
        Says(f"a list of up to {MOST_TOOLS} objects with name and input_schema", "what the model may call"),
    ] = None
    tool_choice: Annotated[
        AnthropicChoice | None, Says('an object such as {"type": "any"}', "whether the model calls; default: auto")
    ] = None

    output_config: Annotated[OutputConfig | None, Says("an object with format", "how the answer is made")] = None
    thinking: Annotated[
        ThinkingOptions | None,
        Says(
            'an object such as {"type": "adaptive"}', "whether the model thinks; default: as it does by itself, unseen"
        ),
    ] = None

    @property
    def thinks(self) -> bool | None:
        """See AsChat."""
        return None if self.thinking is None else self.thinking.type != "disabled"

    def for_chat(self) -> Json:
        """See AsChat."""
        system = [{"role": "system", "content": "".join(one.text for one in self.system)}] if self.system else []
        found: Json = {"model": self.model, "messages": system + [m for one in self.messages for m in one.for_chat()]}
        if self.tools:
            found["tools"] = [one.for_chat() for one in self.tools]
        if self.tool_choice:
            found["tool_choice"] = self.tool_choice.for_chat()
            found["parallel_tool_calls"] = not self.tool_choice.disable_parallel_tool_use
        if self.output_config and self.output_config.format:
            wanted = {"name": "answer", "schema": self.output_config.format.json_schema}
            found["response_format"] = {"type": "json_schema", "json_schema": wanted}
        return found


class MessagesRequest(CountRequest):
    """`POST /v1/messages`: a conversation as Anthropic's API has it, which the model answers."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = CountRequest.neutral | {
        "service_tier": ("auto", "standard_only"),
        "user_profile_id": (),
        "workspace_id": (),
    }
    harmless: ClassVar[dict[str, str]] = _HINT | {"metadata": "the client's own user, for its statistics"}
    names: ClassVar[dict[str, str]] = CountRequest.names | {"stop": "stop_sequences"}

    max_tokens: Annotated[int, Field(ge=1), Says("a whole number, 1 or more", "tokens of the answer at most")]
    stream: Stream = None
    stop_sequences: Annotated[
        list[str] | None, FailFast(), Says("a list of texts", "each ends the answer; limits as of `stop` of a chat")
    ] = None
    temperature: Annotated[
        float | None, Field(ge=0, le=1, allow_inf_nan=False), Says("a number from 0 to 1", "default: 1")
    ] = None
    top_p: TopP = None
    top_k: TopK = None

    def for_chat(self) -> Json:
        """See AsChat."""
        names = ("max_tokens", "stream", "temperature", "top_p", "top_k")
        found = super().for_chat() | {name: getattr(self, name) for name in names}
        return found | ({"stop": self.stop_sequences} if self.stop_sequences else {})
