"""The server's paths for stored sessions: a list, removal, and slots as llama.cpp's server has them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import ClassVar, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from kvdrive.errors import InputError, KvdriveError, UnsupportedError
from kvdrive.prefix.entry import Entry
from kvdrive.server.engine import SessionStore
from kvdrive.server.errors import ApiError
from kvdrive.server.fields import Json, parse
from kvdrive.server.guard import Handler
from kvdrive.server.protocol import SlotRequest
from kvdrive.server.scheduler import Scheduler

Result = TypeVar("Result")
Slot = tuple[str, int]  # whose it is, and its number
_BODY_BYTES = 4096


class SessionPaths:
    """Handlers that work with the store in the scheduler's thread. Each tenant has sessions and slots of its own.

    QUERY: the query parameters of each path. `ignore_unknown`: see `settings.Settings`.
    """

    QUERY: ClassVar[dict[str, set[str]]] = {"/slots/{slot}": {"action"}}

    def __init__(self, scheduler: Scheduler, *, ignore_unknown: bool = False) -> None:
        self._scheduler = scheduler
        self._ignore_unknown = ignore_unknown

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Path, method and handler of each route."""
        return [
            ("/v1/sessions", "GET", self._list),
            ("/v1/sessions/{session}", "DELETE", self._drop),
            ("/slots/{slot}", "POST", self._slot),
        ]

    async def with_store(self, work: Callable[[SessionStore], Result]) -> Result | None:
        """Call `work` in the scheduler's thread; None where no sessions are stored. Raises ApiError."""
        try:
            return await asyncio.wrap_future(self._scheduler.with_sessions(work))
        except UnsupportedError:
            return None
        except KvdriveError as error:
            raise ApiError(503, str(error), code="unavailable") from error

    async def tokens(self, name: str, tenant: str) -> list[int]:
        """The tokens of the session with this name; empty without one. Raises ApiError."""
        found = await self.with_store(lambda store: store.lookup_of(tenant).tokens_of(name)) if name else None
        return found or []

    async def forget(self, name: str, tenant: str) -> None:
        """Remove the session with this name, if there is one that no request uses, and its note. Raises ApiError."""

        def forget(store: SessionStore) -> None:
            entry = store.index.named(name, tenant)
            if entry is not None:
                store.index.notes.remove(entry.id)
            if entry is not None and not entry.owner:
                store.stored.drop([entry.id])

        await self.with_store(forget)

    async def note(self, name: str, tenant: str) -> bytes | None:
        """What was written beside the session with this name. Raises ApiError."""

        def read(store: SessionStore) -> bytes | None:
            entry = store.index.named(name, tenant)
            return None if entry is None else store.index.notes.of(entry)

        return await self.with_store(read)

    async def write_note(self, name: str, tenant: str, text: bytes) -> None:
        """Write beside the session with this name, if there is one. Raises ApiError."""

        def write(store: SessionStore) -> None:
            with store.index.transaction():
                entry = store.index.named(name, tenant)
                if entry is not None:
                    store.index.notes.put(entry, text)

        await self.with_store(write)

    async def _list(self, http: HttpRequest) -> Response:
        tenant = http.state.tenant

        def cards(store: SessionStore) -> list[Json]:
            now, in_memory = store.index.now, self._scheduler.in_memory
            return [_card(entry, now, entry.id in in_memory) for entry in store.index.entries(tenant)]

        return JSONResponse({"object": "list", "data": await self._with(cards)})

    async def _drop(self, http: HttpRequest) -> Response:
        wanted, tenant = http.path_params["session"], http.state.tenant

        def drop(store: SessionStore) -> bool:
            entry = _find(store, wanted, tenant)
            if not entry.owner:
                store.stored.drop([entry.id])
            return not entry.owner

        if not await self._with(drop):
            text = f"session '{wanted[:100]}' is in use: try again when its answer is complete"
            raise ApiError(409, text, code="session_unavailable")
        return JSONResponse({"id": wanted, "object": "session", "deleted": True})

    async def _slot(self, http: HttpRequest) -> Response:
        number, action = http.path_params["slot"], http.query_params.get("action")
        actions = {"save": self._save, "restore": self._restore, "erase": self._erase}
        if action not in actions:
            raise ApiError(400, "action must be save, restore or erase", param="action", code="invalid_value")
        count = self._scheduler.slot_count
        if not re.fullmatch(r"[0-9]{1,9}", number) or int(number) >= count:
            raise ApiError(404, f"there is no slot {number[:20]}: take 0 to {count - 1}", code="slot_not_found")
        began = time.perf_counter()
        slot = (http.state.tenant, int(number))
        answer = await actions[action](slot, "" if action == "erase" else await self._filename(http))
        took = round(1000 * (time.perf_counter() - began), 3)
        return JSONResponse({"id_slot": slot[1], **answer, "timings": {f"{action}_ms": took}})

    async def _save(self, slot: Slot, name: str) -> Json:
        """Give the session that ran last on the slot a name. Its K and V are on the drive already."""

        def save(store: SessionStore) -> Entry:
            entry = self._on_slot(store, slot)
            with store.index.transaction():
                other = store.index.named(name, entry.tenant)
                if other is not None and other.id != entry.id:
                    text = f"another session is called '{name}': choose another name, or remove that one first"
                    raise ApiError(409, text, param="filename", code="session_unavailable")
                store.index.set(entry.id, name=name)
            return entry

        entry = await self._with(save)
        return {"filename": name, "n_saved": entry.tokens, "n_written": entry.bytes}

    async def _restore(self, slot: Slot, name: str) -> Json:
        """Compare a session on the drive with what the index says of it, token by token."""

        def restore(store: SessionStore) -> Entry:
            entry = _find(store, name, slot[0])
            found = store.lookup_of(slot[0]).check(entry)
            if not found:
                raise InputError(f"session '{name}' is not on the drive any more: its prompt is computed again")
            self._scheduler.slots[slot] = entry.id
            return entry

        entry = await self._with(restore)
        return {"filename": name, "n_restored": entry.tokens, "n_read": entry.bytes}

    async def _erase(self, slot: Slot, name: str) -> Json:
        def erase(store: SessionStore) -> Entry:
            entry = self._on_slot(store, slot)
            store.stored.drop([entry.id])
            return entry

        return {"n_erased": (await self._with(erase)).tokens}

    def _on_slot(self, store: SessionStore, slot: Slot) -> Entry:
        entry = store.index.get(self._scheduler.slots.get(slot, 0))
        if entry is None:
            raise InputError(f"slot {slot[1]} has no finished sequence")
        return entry

    async def _filename(self, http: HttpRequest) -> str:
        body = b""
        async for chunk in http.stream():
            body += chunk
            if len(body) > _BODY_BYTES:
                raise ApiError(413, f"the body exceeds {_BODY_BYTES} bytes", code="body_too_large")
        return parse(SlotRequest, body, ignore_unknown=self._ignore_unknown).filename

    async def _with(self, work: Callable[[SessionStore], Result]) -> Result:
        """Call `work` in the scheduler's thread. Raises ApiError."""
        try:
            return await asyncio.wrap_future(self._scheduler.with_sessions(work))
        except InputError as error:
            raise ApiError(404, str(error), code="session_not_found") from error
        except UnsupportedError as error:
            raise ApiError(501, str(error), code="no_sessions") from error
        except KvdriveError as error:
            raise ApiError(503, str(error), code="unavailable") from error


def _find(store: SessionStore, wanted: str, tenant: str) -> Entry:
    """The session with this name or number. Raises InputError."""
    entry = store.index.look_up(wanted, tenant)
    if entry is None:
        raise InputError(f"there is no session '{wanted[:100]}'")
    return entry


def _card(entry: Entry, now: float, in_memory: bool) -> Json:
    return {
        "id": entry.id,
        "object": "session",
        "name": entry.name or None,
        "tokens": entry.tokens,
        "bytes": entry.bytes,
        "age_seconds": round(max(now - entry.used, 0), 1),
        "uses": entry.uses,
        "pinned": entry.pinned,
        "open": bool(entry.owner),
        "where": "memory" if in_memory else "flash",
    }
