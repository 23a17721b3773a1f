"""Server-sent events, whatever protocol they are of."""

from __future__ import annotations

from pydantic_core import to_json

from kvdrive.server.fields import Json


def event(document: Json) -> str:
    """An event without a name."""
    return f"data: {to_json(document).decode()}\n\n"


def named(document: Json) -> str:
    """An event with the name that the document has as its type."""
    return f"event: {document['type']}\n{event(document)}"
