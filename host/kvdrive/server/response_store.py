"""Responses that clients may go on with by their name, after a restart as well."""

from __future__ import annotations

import logging

from kvdrive.server.errors import ApiError
from kvdrive.server.kept_responses import Kept, KeptResponses
from kvdrive.server.session_paths import SessionPaths

log = logging.getLogger(__name__)


class ResponseStore:
    """Responses of each tenant. The last ones are in memory. Where sessions are stored, the index has each one as a
    note beside the session with its name, as long as that session and its note have room.

    For the event loop. All methods raise ApiError.
    """

    def __init__(self, sessions: SessionPaths) -> None:
        self._sessions = sessions
        self._in_memory = KeptResponses()

    async def keep(self, tenant: str, name: str, kept: Kept) -> None:
        """Keep a response, whose session is stored already. One that cannot be written is in memory only."""
        self._in_memory.keep(tenant, name, kept)
        try:
            await self._sessions.write_note(name, tenant, kept.as_note())
        except ApiError as error:
            log.warning("a response does not survive the server: %s", error)

    async def get(self, tenant: str, name: str, param: str | None = None) -> Kept:
        """The response with this name, which the field `param` asks for."""
        kept = self._in_memory.get(tenant, name)
        if kept is None:
            note = await self._sessions.note(name, tenant)
            kept = None if note is None else _read(name, note)
            if kept is not None:
                self._in_memory.keep(tenant, name, kept)
        if kept is None:
            text = (
                f"there is no response '{name[:100]}' here (not stored, removed, or others needed its room): send the "
                "whole conversation as `input`"
            )
            raise ApiError(404, text, param=param, code="response_not_found")
        return kept

    async def drop(self, tenant: str, name: str) -> None:
        """Forget a response and its session."""
        await self.get(tenant, name)
        self._in_memory.drop(tenant, name)
        await self._sessions.forget(name, tenant)


def _read(name: str, note: bytes) -> Kept | None:
    try:
        return Kept.of_note(note)
    except (ApiError, ValueError, KeyError, TypeError) as error:
        log.warning("response %s is not read, another version has written it: %s", name, error)
        return None
