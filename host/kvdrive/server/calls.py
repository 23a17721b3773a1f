"""Tools that a model may call, its calls, and what reads them in its answers."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvdrive.server.grammar import Schema

TOOL_NAME = r"^[A-Za-z0-9_.-]{1,64}$"


@dataclass(frozen=True)
class Tool:
    """A function that the model may call. `parameters`: the JSON schema of its arguments, an object."""

    name: str
    parameters: Schema = field(default_factory=lambda: {"type": "object"})


@dataclass(frozen=True)
class Call:
    """A call that the model has written. `arguments`: a JSON object, as text."""

    name: str
    arguments: str
    id: str = field(default_factory=lambda: f"call_{uuid.uuid4().hex[:24]}")


Parse = Callable[[str], list[Call] | None]
Marker = Callable[[str], str]  # see Grammars.marker


@dataclass(frozen=True)
class Thought:
    """A piece of an answer that is thought and not said."""

    text: str


Piece = str | Call | Thought


class Reader(Protocol):
    """Splits an answer, while it comes, into what is said, thoughts and calls. `calls`: how many have come. `thinks`:
    true while thoughts come.
    """

    calls: int

    @property
    def thinks(self) -> bool: ...

    def put(self, text: str) -> list[Piece]:
        """The pieces and calls that are certain with this text."""

    def end(self) -> list[Piece]:
        """What is left when no more text comes."""


def named_call(name: str, arguments: Any) -> Call | None:
    """A call, if `name` is a tool's name and `arguments` an object."""
    if not re.fullmatch(TOOL_NAME, name) or not isinstance(arguments, dict):
        return None
    return Call(name, json.dumps(arguments, ensure_ascii=False))


def json_value(text: str) -> Any:
    """The value; None for a text that is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
