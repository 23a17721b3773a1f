"""How families of models write calls of tools, as their chat templates ask them to.

A format has a grammar for an answer that must call, and reads the calls of an answer. Which one a model has is seen
from the markers in its template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kvdrive.errors import InputError
from kvdrive.server.calls import Call, Marker, Parse, Tool, json_value, named_call
from kvdrive.server.gemma_calls import gemma_calls
from kvdrive.server.grammar import Schema, schema_in_lark
from kvdrive.server.harmony import NO_CHOICE, Harmony


@dataclass(frozen=True)
class Format:
    """How a family writes calls.

    `signs`: texts that its template contains, all of them. `begin` and `end` stand around a call; without `end`, the
    calls are the end of the answer. Without `begin`, an answer that begins with one of `first` may be a call whole.
    `parse`: the calls in a text without `begin` and `end`, None if it is no call. `grammar`: a call of a tool without
    `begin` and `end`, in Lark. `space` is around a call in them, and `between` two calls; None: there is one at most.
    """

    always: ClassVar[bool] = False  # see Harmony

    name: str
    signs: Sequence[str]
    begin: str
    end: str
    parse: Parse
    grammar: Callable[[Tool, Marker], str]
    first: tuple[str, ...] = ()
    space: str = ""
    between: str | None = None

    def must_call(self, tools: Sequence[Tool], marker: Marker, *, several: bool) -> str:
        """A grammar in Lark for an answer that calls one of `tools`, or `several`. Raises InputError."""
        return "\n".join(["start: calls", *self._calls(tools, marker, several=several)])

    def may_call(self, tools: Sequence[Tool], marker: Marker, schema: Schema, *, several: bool) -> str:
        """The same for an answer that does so, or is JSON of `schema`. Raises InputError."""
        if not self.begin or self.grammar is _not_forced:
            raise InputError(NO_CHOICE)
        answer = f"answer: {schema_in_lark(schema)}"
        return "\n".join(["start: calls | answer", answer, *self._calls(tools, marker, several=several)])

    def _calls(self, tools: Sequence[Tool], marker: Marker, *, several: bool) -> list[str]:
        """The rule `calls`, and those that it needs."""
        calls = [f"call_{number}: {self.grammar(tool, marker)}" for number, tool in enumerate(tools)]
        any_call = " | ".join(f"call_{number}" for number in range(len(tools)))
        space, between = (json.dumps(text) if text else "" for text in (self.space, self.between))
        begin, end = (marker(text) if text else "" for text in (self.begin, self.end))
        more = f"({between} call)*" if several and self.between is not None else ""
        return [f"calls: call {more}", f"call: {begin} {space} ({any_call}) {space} {end}", *calls]


AnyFormat = Format | Harmony


def known_format(template: str | None) -> AnyFormat | None:
    """The format that a chat template asks for; None: it has none, or one that is not known here."""
    for one in FORMATS:
        if template is not None and all(sign in template for sign in one.signs):
            return one
    return None


def format_of(template: str | None) -> AnyFormat:
    """The format that a chat template asks for. Raises InputError where it has none, or one that is not known here."""
    if found := known_format(template):
        return found
    if template is None or "tools" not in template:
        raise InputError("this model's chat template has no place for tools: leave them out, or take another model")
    known = ", ".join(one.name for one in FORMATS)
    raise InputError(f"this model writes calls of tools in a way that is not known here (known: {known})")


# ---- calls as JSON objects with a name and arguments ----


def _json_calls(arguments: str) -> Parse:
    """One object, or a list of them; `arguments`: the key of the arguments."""

    def parse(text: str) -> list[Call] | None:
        found = json_value(text.strip().removeprefix("<|python_tag|>"))
        calls = [_call(one, arguments) for one in (found if isinstance(found, list) else [found])]
        return [call for call in calls if call] if calls and all(calls) else None

    return parse


def _call(found: Any, arguments: str) -> Call | None:
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    given = found.get(arguments, {})
    return named_call(found["name"], json_value(given) if isinstance(given, str) else given)


def _json_call(arguments: str) -> Callable[[Tool, Marker], str]:
    def grammar(tool: Tool, marker: Marker) -> str:
        # References count from the root of a schema, so the definitions of the arguments move there.
        definitions = {key: tool.parameters[key] for key in ("$defs", "definitions") if key in tool.parameters}
        properties = {"name": {"const": tool.name}, arguments: tool.parameters}
        closed = {"required": [*properties], "additionalProperties": False}
        return schema_in_lark({"type": "object", "properties": properties, **closed, **definitions})

    return grammar


def _json_list(tool: Tool, marker: Marker) -> str:
    return f'"[" ({_json_call("arguments")(tool, marker)}) "]"'


# ---- calls as a name, a marker and JSON ----

_ARGS, _TOOL_CALLS = "[ARGS]", "[TOOL_CALLS]"


def _marked_calls(text: str) -> list[Call] | None:
    calls = []
    for one in text.split(_TOOL_CALLS):
        name, _, arguments = one.strip().partition(_ARGS)
        calls.append(named_call(name, json_value(arguments)))
    return [call for call in calls if call] if all(calls) else None


def _marked_call(tool: Tool, marker: Marker) -> str:
    return f"{json.dumps(tool.name)} {marker(_ARGS)} {schema_in_lark(tool.parameters)}"


# ---- calls as tags ----

_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)


def _tagged_calls(text: str) -> list[Call] | None:
    """<function=NAME>, a <parameter=NAME> for each argument, whose value is JSON or else a text."""
    found = _FUNCTION.fullmatch(text)
    if not found or _PARAMETER.sub("", found[2]).strip():
        return None
    given = {
        name: text if (value := json_value(text)) is None else value for name, text in _PARAMETER.findall(found[2])
    }
    call = named_call(found[1], given)
    return [call] if call else None


def _not_forced(tool: Tool, marker: Marker) -> str:
    raise InputError("this server cannot make this model call: send tool_choice auto")


def _tags(name: str, signs: Sequence[str], parse: Parse, grammar: Callable[[Tool, Marker], str]) -> Format:
    return Format(name, signs, "<tool_call>", "</tool_call>", parse, grammar, space="\n", between="\n")


def _gemma(name: str, begin: str, end: str, quote: str) -> Format:
    return Format(name, (begin, quote), begin, end, gemma_calls(quote), _not_forced, between="")


_HERMES = _json_calls("arguments"), _json_call("arguments")
FORMATS: tuple[AnyFormat, ...] = (
    Harmony(),
    _gemma("Gemma 4", "<|tool_call>", "<tool_call|>", '<|"|>'),
    _gemma("FunctionGemma", "<start_function_call>", "<end_function_call>", "<escape>"),
    _tags("Qwen3-Coder", ("<tool_call>", "<function="), _tagged_calls, _not_forced),
    _tags("Hermes, Qwen 2.5 and 3, SmolLM3", ("<tool_call>",), *_HERMES),
    Format("Mistral", (_TOOL_CALLS, _ARGS), _TOOL_CALLS, "", _marked_calls, _marked_call, between=""),
    Format("Mistral of 2024", (_TOOL_CALLS,), _TOOL_CALLS, "", _HERMES[0], _json_list),
    Format(
        "Llama 3",
        ("<|start_header_id|>", '"parameters"'),
        begin="",
        end="",
        parse=_json_calls("parameters"),
        grammar=_json_call("parameters"),
        first=("{", "<|python_tag|>"),
    ),
)
