"""Responses in memory, with their conversations."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kvdrive.server.fields import Json, taken
from kvdrive.server.responses_requests import InputItem


@dataclass(frozen=True)
class Kept:
    """A response as it was sent, and the items of its conversation, those of the response included."""

    document: Json
    items: Sequence[InputItem]

    @classmethod
    def of(cls, document: Json, asked: Sequence[InputItem]) -> Kept:
        """A response to the items `asked`."""
        return cls(document, [*asked, *(taken(InputItem, item) for item in document["output"])])

    def as_note(self) -> bytes:
        """What stands beside its session."""
        asked = self.items[: len(self.items) - len(self.document["output"])]
        items = [item.model_dump(exclude_none=True) for item in asked]
        return json.dumps({"document": self.document, "asked": items}).encode()

    @classmethod
    def of_note(cls, note: bytes) -> Kept:
        """The response of a note. Raises ApiError, ValueError, KeyError, TypeError for one of another version."""
        found = json.loads(note)
        return cls.of(found["document"], [taken(InputItem, item) for item in found["asked"]])

    @cached_property
    def characters(self) -> int:
        """Characters of the conversation."""
        return sum(item.characters for item in self.items)


class KeptResponses:
    """`most`: responses of a tenant; `characters`: of their conversations together. The least recently used ones go.

    For the event loop.
    """

    def __init__(self, most: int = 1000, characters: int = 32 << 20) -> None:
        self._most = most
        self._characters = characters
        self._kept: dict[str, OrderedDict[str, Kept]] = {}

    def keep(self, tenant: str, name: str, kept: Kept) -> None:
        """Keep a response of a tenant, and drop older ones that have no room beside it."""
        own = self._kept.setdefault(tenant, OrderedDict())
        own[name] = kept
        held = sum(one.characters for one in own.values())
        while own and (len(own) > self._most or held > self._characters):
            _, dropped = own.popitem(last=False)
            held -= dropped.characters

    def get(self, tenant: str, name: str) -> Kept | None:
        """The response of a tenant with this name."""
        own = self._kept.get(tenant, OrderedDict())
        if name in own:
            own.move_to_end(name)
        return own.get(name)

    def drop(self, tenant: str, name: str) -> None:
        """Forget a response, if it is here."""
        self._kept.get(tenant, OrderedDict()).pop(name, None)
