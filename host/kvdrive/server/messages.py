"""The messages of a conversation in a request, and the tools that the model may call."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, FailFast, Field, WithJsonSchema, model_validator

from kvdrive.server.calls import TOOL_NAME, Tool, json_value
from kvdrive.server.fields import Fields, Json, Says, refuse

THOUGHT_IN_TEMPLATES = ("reasoning_content", "thinking")
_NAMED = "letters, digits, '_', '.' and '-', 64 at most"


def _as_parts(value: Any) -> Any:
    """A text as the one part of a message."""
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


def _object(text: str) -> Json | None:
    """The JSON object in a text; None for anything else."""
    found = json_value(text)
    return found if isinstance(found, dict) else None


def check_arguments(text: str | None) -> str | None:
    """For pydantic: raises ValueError for a text that is no JSON object."""
    if text is not None and _object(text) is None:
        raise ValueError("no object")
    return text


class ContentPart(Fields):
    """A piece of a message."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {"image_url": (), "input_audio": (), "file": ()}

    type: Annotated[Literal["text"], Says('"text": other parts are not served')]
    text: Annotated[str, Says("a text")]


class CalledFunction(Fields):
    """What the model called."""

    name: Annotated[str, Field(pattern=TOOL_NAME), Says(f"a name of {_NAMED}", "the tool")]
    arguments: Annotated[str, AfterValidator(check_arguments), Says("a JSON object, as text", "its arguments")]


class ToolCall(Fields):
    """A call in an earlier answer."""

    harmless: ClassVar[dict[str, str]] = {"index": "the place of a call in a stream"}

    id: Annotated[str, Says("a text", "the call, as the answer had it")]
    type: Annotated[Literal["function"], Says('"function"')]
    function: Annotated[CalledFunction, Says("an object with name and arguments")]


class Message(Fields):
    """One message of a conversation."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {
        "function_call": (),
        "annotations": ([],),
        "audio": (),
        "refusal": (),
    }

    role: Annotated[
        Literal["system", "developer", "user", "assistant", "tool"],
        Says('"system", "developer", "user", "assistant" or "tool"', "who says it"),
    ]
    content: Annotated[
        list[ContentPart] | None,
        FailFast(),
        BeforeValidator(_as_parts),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": ContentPart.model_json_schema()}]}),
        Says(
            'a text, or a list of parts {"type": "text", "text": "..."}',
            "what is said; may be missing in an assistant's message with `tool_calls`",
        ),
    ] = None
    tool_calls: Annotated[
        list[ToolCall] | None,
        FailFast(),
        Says("a list of objects with id, type and function", "what an assistant's message calls"),
    ] = None
    tool_call_id: Annotated[str | None, Says("a text", "the call that a message of role tool answers")] = None
    name: Annotated[str | None, Says("a text", "the tool that a message of role tool comes from")] = None
    reasoning_content: Annotated[
        str | None, Says("a text", "what was thought before an assistant's message, as the answer had it")
    ] = None

    @model_validator(mode="after")
    def _fits_its_role(self) -> Message:
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            refuse('{param} is missing: it must be a text, or a list of {"type": "text", "text": "..."}', "content")
        if self.tool_calls and self.role != "assistant":
            refuse("{param} is for messages of role assistant: leave it out of the others", "tool_calls")
        if (self.tool_call_id is None) != (self.role != "tool"):
            refuse("{param} is for messages of role tool, and each of them needs it", "tool_call_id")
        if self.reasoning_content is not None and self.role != "assistant":
            refuse("{param} is for messages of role assistant: leave it out of the others", "reasoning_content")
        if self.name is not None and self.role != "tool":
            refuse("{param} is for messages of role tool: leave it out of the others", "name")
        return self

    @property
    def text(self) -> str:
        """The content as one text."""
        return "".join(part.text for part in self.content or ())

    @property
    def characters(self) -> int:
        """Characters of all that a template writes of the message."""
        calls = self.tool_calls or ()
        said = len(self.text) + len(self.reasoning_content or "")
        return said + sum(len(one.function.name) + len(one.function.arguments) for one in calls)

    def for_template(self) -> Json:
        """The message as chat templates take it. What was thought has one of two names in them."""
        found: Json = {"role": self.role, "content": self.text}
        if self.reasoning_content:
            found |= dict.fromkeys(THOUGHT_IN_TEMPLATES, self.reasoning_content)
        if self.tool_calls:
            found["tool_calls"] = [
                {
                    "id": one.id,
                    "type": "function",
                    "function": {"name": one.function.name, "arguments": _object(one.function.arguments)},
                }
                for one in self.tool_calls
            ]
        found |= {} if self.tool_call_id is None else {"tool_call_id": self.tool_call_id}
        return found | ({} if self.name is None else {"name": self.name})


class ToolFunction(Fields):
    """What the model may call."""

    name: Annotated[str, Field(pattern=TOOL_NAME), Says(f"a name of {_NAMED}", "the tool")]
    description: Annotated[str | None, Says("a text", "what the tool is for; the model reads it")] = None
    parameters: Annotated[
        Json | None, Says("a JSON schema, as an object", "the arguments; default: an object with any keys")
    ] = None
    strict: Annotated[
        bool | None, Says("true or false", "arguments keep to `parameters` where `tool_choice` makes the model call")
    ] = None


class ToolDefinition(Fields):
    """A tool."""

    type: Annotated[Literal["function"], Says('"function"')]
    function: Annotated[ToolFunction, Says("an object with name, description and parameters")]

    @property
    def tool(self) -> Tool:
        """The name and the schema."""
        parameters = self.function.parameters
        return Tool(self.function.name) if parameters is None else Tool(self.function.name, parameters)

    def for_template(self) -> Json:
        """The tool as chat templates take it."""
        function = self.function.model_dump(include={"name", "description", "parameters"}, exclude_none=True)
        return {"type": "function", "function": {"description": "", "parameters": {"type": "object"}} | function}
