"""Responses that clients may go on with by their name, as long as the process lives and there is room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kvdrive.server.errors import ApiError
from kvdrive.server.fields import Json
from kvdrive.server.responses_requests import InputItem


@dataclass(frozen=True)
class Kept:
    """A response as it was sent, and the items of its conversation, those of the response included."""

    document: Json
    items: Sequence[InputItem]

    @cached_property
    def characters(self) -> int:
        """Characters of the conversation."""
        return sum(item.characters for item in self.items)


class KeptResponses:
    """`most`: responses of a tenant; `characters`: of their conversations together. The least recently used ones go.

    The text is in memory only: no file has it. For the event loop.
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

    def get(self, tenant: str, name: str, param: str | None = None) -> Kept:
        """The response of a tenant with this name, which the field `param` asks for. Raises ApiError."""
        own = self._kept.get(tenant, OrderedDict())
        if name not in own:
            text = (
                f"there is no response '{name[:100]}' here (not stored, or others needed its room, or the server was "
                "restarted): send the whole conversation as `input`"
            )
            raise ApiError(404, text, param=param, code="response_not_found")
        own.move_to_end(name)
        return own[name]

    def drop(self, tenant: str, name: str) -> None:
        """Forget a response. Raises ApiError where there is none."""
        self.get(tenant, name)
        del self._kept[tenant][name]
