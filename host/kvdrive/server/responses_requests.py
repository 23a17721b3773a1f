"""Requests of OpenAI's responses, turned into chats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, FailFast, Field, WithJsonSchema, model_validator

from kvdrive.server.calls import TOOL_NAME
from kvdrive.server.common_fields import MOST_TOOLS, Model, ParallelCalls, Stream, Temperature, TopP
from kvdrive.server.fields import AsChat, Fields, Json, OfTypes, Says, refuse
from kvdrive.server.messages import check_arguments


def _as_items(value: Any) -> Any:
    """A text as one message of the user."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


def _as_parts(value: Any) -> Any:
    """A text as one part."""
    return [{"type": "input_text", "text": value}] if isinstance(value, str) else value


class InputPart(Fields):
    """A piece of a message."""

    harmless: ClassVar[dict[str, str]] = {"annotations": "of an earlier answer", "logprobs": "of an earlier answer"}

    type: Annotated[
        Literal["input_text", "output_text", "reasoning_text"],
        Says('"input_text", "output_text" or "reasoning_text": other parts are not served'),
    ]
    text: Annotated[str, Says("a text")]


_Parts = Annotated[
    list[InputPart] | None,
    FailFast(),
    BeforeValidator(_as_parts),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]}),
]


class InputItem(OfTypes):
    """A message, a call of a tool, its result, or what was thought."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {"encrypted_content": ()}
    harmless: ClassVar[dict[str, str]] = {
        "id": "the item in an earlier answer",
        "status": "of an earlier answer",
        "phase": "of an earlier answer",
    }

    type: Annotated[
        Literal["message", "function_call", "function_call_output", "reasoning"],
        Says('"message", "function_call", "function_call_output" or "reasoning"', "default: message"),
    ] = "message"
    role: Annotated[
        Literal["system", "developer", "user", "assistant"] | None,
        Says('"system", "developer", "user" or "assistant"', "of a message"),
    ] = None
    content: Annotated[
        _Parts, Says("a text, or a list of parts with type and text", "of a message, or what was thought")
    ] = None
    summary: Annotated[
        list[Any] | None, Says("`[]`", "of what was thought; this server writes none"), Field(max_length=0)
    ] = None
    call_id: Annotated[str | None, Says("a text", "of a call and of its result")] = None
    name: Annotated[str | None, Field(pattern=TOOL_NAME), Says("the name of a tool", "of a call")] = None
    arguments: Annotated[str | None, AfterValidator(check_arguments), Says("a JSON object, as text", "of a call")] = (
        None
    )
    output: Annotated[_Parts, Says("a text, or a list of parts with type and text", "of a result")] = None

    called = "items"
    fields_of: ClassVar = {
        "message": (("role", "content"), ()),
        "function_call": (("call_id", "name", "arguments"), ()),
        "function_call_output": (("call_id", "output"), ()),
        "reasoning": ((), ("content", "summary")),
    }

    @property
    def characters(self) -> int:
        """Characters of its texts."""
        texts = [self.name or "", self.arguments or "", self.call_id or "", _text(self.content), _text(self.output)]
        return sum(map(len, texts))

    def for_chat(self) -> Json:
        """The message of a chat that says the same."""
        if self.type == "function_call":
            function = {"name": self.name, "arguments": self.arguments}
            return {"role": "assistant", "tool_calls": [{"id": self.call_id, "type": "function", "function": function}]}
        if self.type == "function_call_output":
            return {"role": "tool", "tool_call_id": self.call_id, "content": _text(self.output)}
        if self.type == "reasoning":
            return {"role": "assistant", "reasoning_content": _text(self.content)}
        return {"role": self.role, "content": _text(self.content)}


def _text(parts: Sequence[InputPart] | None) -> str:
    return "".join(one.text for one in parts or ())


class ResponseTool(Fields):
    """A tool."""

    type: Annotated[Literal["function"], Says('"function": other tools are not served')]
    name: Annotated[str, Field(pattern=TOOL_NAME), Says("a name of letters, digits, '_', '.' and '-'", "the tool")]
    description: Annotated[str | None, Says("a text", "what the tool is for; the model reads it")] = None
    parameters: Annotated[Json | None, Says("a JSON schema, as an object", "the arguments")] = None
    strict: Annotated[bool | None, Says("true or false", "as `strict` of a chat")] = None

    def for_chat(self) -> Json:
        """The tool as a chat has it."""
        function = self.model_dump(include={"name", "description", "parameters", "strict"}, exclude_none=True)
        return {"type": "function", "function": function}


class TextFormat(OfTypes):
    """What the answer is."""

    harmless: ClassVar[dict[str, str]] = {"strict": "an answer keeps to the schema in any case"}

    type: Annotated[
        Literal["text", "json_object", "json_schema"],
        Says('"text", "json_object" or "json_schema"', "JSON is written in one line"),
    ]
    name: Annotated[str | None, Says("a text", "the name of the format, for the client's own use")] = None
    description: Annotated[str | None, Says("a text", "what it is for, for the client's own use")] = None
    json_schema: Annotated[
        Json | None, Field(alias="schema"), Says("a JSON schema, as an object", "goes with type json_schema")
    ] = None

    called = "formats"
    fields_of: ClassVar = {
        "text": ((), ()),
        "json_object": ((), ()),
        "json_schema": (("schema",), ("name", "description")),
    }

    def for_chat(self) -> Json:
        """The format as a chat has it."""
        schema = {"name": self.name or "answer", "schema": self.json_schema}
        return {"type": self.type} | ({"json_schema": schema} if self.json_schema is not None else {})


class TextOptions(Fields):
    """How the answer is written."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {"verbosity": ("medium",)}

    format: Annotated[TextFormat | None, Says("an object with type", "the answer is JSON, of a schema")] = None


class ReasoningOptions(Fields):
    """How much the model thinks before it answers."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {"summary": ("auto",), "generate_summary": ("auto",)}

    effort: Annotated[
        Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None,
        Says('"none", "minimal", "low", "medium", "high" or "xhigh"', "as `reasoning_effort` of a chat"),
    ] = None


class ResponseRequest(AsChat):
    """`POST /v1/responses`: a conversation, which the model answers, as OpenAI's newer API has it."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "background": (False,),
        "conversation": (),
        "include": ([],),
        "max_tool_calls": (),
        "prompt": (),
        "prompt_cache_retention": (),
        "service_tier": ("auto", "default"),
        "stream_options": ({"include_obfuscation": False},),
        "top_logprobs": (0,),
        "truncation": ("disabled",),
    }
    harmless: ClassVar[dict[str, str]] = {
        "metadata": "the client's own notes",
        "prompt_cache_key": "a hint which prompts begin alike; prefixes are found by their tokens",
        "safety_identifier": "the name of the client's own user, for its statistics",
        "user": "as `safety_identifier`",
    }

    names: ClassVar[dict[str, str]] = {
        "messages": "input",
        "max_completion_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "response_format": "text.format",
    }

    model: Model
    input: Annotated[
        list[InputItem],
        FailFast(),
        Field(min_length=1),
        BeforeValidator(_as_items),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]}),
        Says("a text, or a list of items", "the conversation so far"),
    ]
    instructions: Annotated[
        str | None, Says("a text", "what the model is told first; not taken over from an earlier response")
    ] = None
    previous_response_id: Annotated[
        str | None, Says("the id of a response", "its conversation stands before `input`; see guide/server.md")
    ] = None
    store: Annotated[
        bool | None, Says("true or false", "false: the response is not kept for `previous_response_id`; default: true")
    ] = None
    max_output_tokens: Annotated[
        int | None,
        Field(ge=1),
        Says("a whole number, 1 or more", "tokens of the answer at most; default: as many as there is room"),
    ] = None
    stream: Stream = None
    temperature: Temperature = None
    top_p: TopP = None
    tools: Annotated[
        list[ResponseTool] | None,
        FailFast(),
        Field(max_length=MOST_TOOLS),
        Says(f"a list of up to {MOST_TOOLS} objects with type and name", "what the model may call"),
    ] = None
    tool_choice: Annotated[
        Any,
        WithJsonSchema({"enum": ["none", "auto", "required"]}),
        Says('"none", "auto", "required" or {"type": "function", "name": "..."}', "whether the model calls"),
    ] = None
    parallel_tool_calls: ParallelCalls = None
    text: Annotated[TextOptions | None, Says("an object with format", "how the answer is written")] = None
    reasoning: Annotated[ReasoningOptions | None, Says("an object with effort", "how much the model thinks")] = None

    @model_validator(mode="after")
    def _choice_is_known(self) -> ResponseRequest:
        choice = self.tool_choice
        named = isinstance(choice, dict) and choice.keys() == {"type", "name"} and choice["type"] == "function"
        if choice is not None and not named and choice not in ("none", "auto", "required"):
            refuse('{param} must be "none", "auto", "required" or {"type": "function", "name": "..."}', "tool_choice")
        return self

    @property
    def stored(self) -> bool:
        """True if a later request may go on with the response."""
        return self.store is not False

    def behind(self, items: Sequence[InputItem]) -> ResponseRequest:
        """The same request, whose conversation begins with earlier items."""
        return self.model_copy(update={"input": [*items, *self.input]})

    def for_chat(self) -> Json:
        """See AsChat. What the model said and called in one turn is one message."""
        messages: list[Json] = [{"role": "system", "content": self.instructions}] if self.instructions else []
        for item in self.input:
            message = item.for_chat()
            last = messages[-1] if messages and messages[-1]["role"] == message["role"] == "assistant" else {}
            thought_only = last.keys() == {"role", "reasoning_content"}
            if "tool_calls" in message and last:
                messages[-1] = last | {"tool_calls": last.get("tool_calls", []) + message["tool_calls"]}
            elif thought_only and "content" in message:
                messages[-1] = last | message
            else:
                messages.append(message)
        messages = [one for one in messages if one.keys() != {"role", "reasoning_content"}]  # nothing followed
        names = ("model", "stream", "temperature", "top_p", "parallel_tool_calls")
        found: Json = {"messages": messages, "max_completion_tokens": self.max_output_tokens}
        found |= {name: getattr(self, name) for name in names}
        if self.tools:
            found["tools"] = [one.for_chat() for one in self.tools]
        if self.tool_choice:
            choice = self.tool_choice
            named = {"type": "function", "function": {"name": choice["name"]}} if isinstance(choice, dict) else choice
            found["tool_choice"] = named
        if self.reasoning and self.reasoning.effort:
            found["reasoning_effort"] = self.reasoning.effort
        if self.text and self.text.format:
            found["response_format"] = self.text.format.for_chat()
        return found
