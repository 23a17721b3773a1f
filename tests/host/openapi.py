"""The server's requests and answers as an OpenAPI document, made from the tables that the server checks with."""

from kvdrive.server.anthropic_messages import CountRequest, MessagesRequest
from kvdrive.server.protocol import ChatRequest, CompletionRequest, SlotRequest
from kvdrive.server.responses_requests import ResponseRequest

ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string", "minLength": 1},
                "type": {"enum": ["invalid_request_error", "authentication_error", "rate_limit_error", "server_error"]},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "param", "code"],
            "additionalProperties": False,
        }
    },
    "required": ["error"],
    "additionalProperties": False,
}
ANTHROPIC = {
    "type": "object",
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "properties": {"type": {"type": "string"}, "message": {"type": "string", "minLength": 1}},
            "required": ["type", "message"],
            "additionalProperties": False,
        },
    },
    "required": ["type", "error"],
    "additionalProperties": False,
}
OBJECT = {"type": "object"}


def body(kind, names):
    """The schema of a request, with its fields that change nothing; `names`: those that the server knows as models."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    for name, values in kind.neutral.items():
        schema["properties"][name] = {"enum": [*values, None]}
    for name in kind.harmless:
        schema["properties"][name] = {}
    if "model" in schema["properties"]:
        schema["properties"]["model"] = {"enum": names}
    return schema


def answer(kinds=("application/json",), schema=OBJECT):
    return {"description": "an answer", "content": {kind: {"schema": schema} for kind in kinds}}


def operation(*, parameters=(), request=None, kinds=("application/json",), error=ERROR):
    found = {"responses": {"200": answer(kinds), "default": answer(schema=error)}, "parameters": list(parameters)}
    if request is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": request}}}
    return found


def parameter(name, place, schema):
    return {"name": name, "in": place, "required": True, "schema": schema}


def document(names):
    """The paths that take anything from a client."""
    whole = ("application/json", "text/event-stream")
    number = parameter("slot", "path", {"type": "integer", "minimum": 0, "maximum": 1})
    action = parameter("action", "query", {"enum": ["save", "restore", "erase"]})
    session = parameter("session", "path", {"type": "string", "minLength": 1})
    kinds = CompletionRequest, ChatRequest, ResponseRequest, MessagesRequest, CountRequest
    parts = {name: part for kind in kinds for name, part in kind.model_json_schema()["$defs"].items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "kvdrive serve", "version": "1"},
        "components": {"schemas": parts},
        "paths": {
            "/v1/completions": {"post": operation(request=body(CompletionRequest, names), kinds=whole)},
            "/v1/chat/completions": {"post": operation(request=body(ChatRequest, names), kinds=whole)},
            "/v1/responses": {"post": operation(request=body(ResponseRequest, names), kinds=whole)},
            "/v1/messages": {"post": operation(request=body(MessagesRequest, names), kinds=whole, error=ANTHROPIC)},
            "/v1/messages/count_tokens": {"post": operation(request=body(CountRequest, names), error=ANTHROPIC)},
            "/slots/{slot}": {"post": operation(parameters=[number, action], request=body(SlotRequest, names))},
            "/v1/sessions": {"get": operation()},
            "/v1/sessions/{session}": {"delete": operation(parameters=[session])},
            "/v1/models": {"get": operation()},
            "/v1/models/{name}": {"get": operation(parameters=[parameter("name", "path", {"type": "string"})])},
            "/v1/stats": {"get": operation()},
            "/health": {"get": operation()},
        },
    }
