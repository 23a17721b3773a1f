"""The OpenAPI document of the server, made from its routes and from the tables that it checks requests with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import kvdrive
from kvdrive.server.fields import Fields, Json
from kvdrive.server.requests import BODIES
from kvdrive.server.session_paths import SessionPaths

_OPEN = {"type": "object"}
_NULLABLE = {"type": ["string", "null"]}
_KINDS = ["invalid_request_error", "authentication_error", "rate_limit_error", "server_error"]


def _closed(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


_MESSAGE = {"type": "string", "minLength": 1}
_ERROR = _closed(error=_closed(message=_MESSAGE, type={"enum": _KINDS}, param=_NULLABLE, code=_NULLABLE))
_ANTHROPIC_ERROR = _closed(type={"const": "error"}, error=_closed(type={"type": "string"}, message=_MESSAGE))
_KINDS_OF = {  # of answers that are not JSON alone
    **dict.fromkeys(
        ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"),
        ("application/json", "text/event-stream"),
    ),
    "/v1/answers/{answer}": ("application/json", "text/event-stream"),
    "/metrics": ("text/plain",),
}


def document(routes: Iterable[tuple[str, str]], models: Sequence[str], slots: int) -> Json:
    """The document for these routes, each a path and a method. `models`: the names that requests may send."""
    paths: dict[str, Json] = {}
    for path, method in routes:
        name = path.replace(":path}", "}")
        paths.setdefault(name, {})[method.lower()] = _operation(path, name, method, models, slots)
    schemas = {name: part for kind in BODIES.values() for name, part in _schema(kind).get("$defs", {}).items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "kvdrive serve", "version": kvdrive.__version__},
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"key": []}],
        "paths": paths,
    }


def _operation(path: str, name: str, method: str, models: Sequence[str], slots: int) -> Json:
    kind = BODIES.get(path) if method == "POST" else None
    error = _ANTHROPIC_ERROR if path.startswith("/v1/messages") else _ERROR
    kinds = _KINDS_OF.get(path, ("application/json",))
    parameters = [_in_path(one, models, slots) for one in re.findall(r"{(\w+)}", name)]
    for one in sorted(SessionPaths.QUERY.get(path, ())):
        choice = {"enum": ["save", "restore", "erase"]}
        parameters.append({"name": one, "in": "query", "required": True, "schema": choice})
    found: Json = {
        "responses": {
            "200": {"description": "an answer", "content": {kind: {"schema": _OPEN} for kind in kinds}},
            "default": {"description": "an error", "content": {"application/json": {"schema": error}}},
        },
        "parameters": parameters,
    }
    if kind is not None:
        schema = _schema(kind)
        schema.pop("$defs", None)
        if "model" in schema["properties"]:
            schema["properties"]["model"] = {"enum": [*models]}
        found["summary"] = str(kind.__doc__).strip()
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return found


def _in_path(name: str, models: Sequence[str], slots: int) -> Json:
    schemas: dict[str, Json] = {
        "slot": {"type": "integer", "minimum": 0, "maximum": slots - 1},
        "name": {"type": "string", "examples": [*models]},
        "answer": {"type": "string", "pattern": "^[A-Za-z0-9-]{8,64}$"},
    }
    schema = schemas.get(name, {"type": "string", "minLength": 1})
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _schema(kind: type[Fields]) -> Json:
    return kind.model_json_schema(ref_template="#/components/schemas/{model}")
