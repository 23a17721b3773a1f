"""The grammar that a request asks for, and how its calls of tools are read."""

from __future__ import annotations

from kvdrive.errors import InputError
from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.server.errors import ApiError
from kvdrive.server.grammar import Grammar, Grammars
from kvdrive.server.protocol import ChatRequest, Request
from kvdrive.server.tool_formats import AnyFormat, format_of, known_format


def calls_of(tokenizer: Tokenizer, request: ChatRequest) -> AnyFormat | None:
    """How the model writes calls of the offered tools; None without tools, where its answers are plain text then.

    Raises ApiError.
    """
    template = tokenizer.chat_template
    template = template if isinstance(template, str) or template is None else str(template)
    if not request.offered:
        found = known_format(template)
        return found if found is not None and found.always else None
    try:
        return format_of(template)
    except InputError as error:
        raise ApiError(400, str(error), param="tools", code="unsupported_parameter") from error


def grammar_of(grammars: Grammars, request: Request, calls: AnyFormat | None) -> Grammar | None:
    """What the answer keeps to; None: anything may be said. Raises ApiError."""
    try:
        if calls and request.must_call:
            return grammars.lark(calls.must_call(request.must_call, grammars.marker, several=request.several_calls))
        schema = request.response_format and request.response_format.schema_of_answer
        if schema and calls and request.may_call:
            tools, several = request.may_call, request.several_calls
            return grammars.lark(calls.may_call(tools, grammars.marker, schema, several=several))
        if schema:
            return grammars.json(schema)
    except InputError as error:
        raise ApiError(400, str(error), param=asks_for_grammar(request), code="invalid_value") from error
    return None


def asks_for_grammar(request: Request) -> str:
    """The field of a request because of which its answer has a grammar."""
    return "response_format" if request.response_format else "tools"
