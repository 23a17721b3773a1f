"""The grammar that a request asks for, and how its calls of tools are read."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from kvdrive.errors import InputError
from kvdrive.server.errors import ApiError
from kvdrive.server.grammar import Grammar, Grammars
from kvdrive.server.protocol import ChatRequest, Request
from kvdrive.server.tool_formats import Format, format_of


def calls_of(tokenizer: PreTrainedTokenizerBase, request: ChatRequest) -> Format | None:
    """How the model writes calls of the offered tools; None without tools. Raises ApiError."""
    if not request.offered:
        return None
    try:
        template = tokenizer.chat_template
        return format_of(template if isinstance(template, str) or template is None else str(template))
    except InputError as error:
        raise ApiError(400, str(error), param="tools", code="unsupported_parameter") from error


def grammar_of(grammars: Grammars, request: Request, calls: Format | None) -> Grammar | None:
    """What the answer keeps to; None: anything may be said. Raises ApiError."""
    param = "response_format"
    try:
        if request.response_format:
            return grammars.json(request.response_format.schema_of_answer)
        if calls and request.must_call:
            param = "tools"
            return grammars.lark(calls.must_call(request.must_call, grammars.marker, several=request.several_calls))
    except InputError as error:
        raise ApiError(400, str(error), param=param, code="invalid_value") from error
    return None
