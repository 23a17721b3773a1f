"""Answers that are generated whether or not anybody reads them, and are kept for a while, so that a page that was
loaded again joins them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator

from kvdrive.server.errors import ApiError
from kvdrive.server.events import event
from kvdrive.server.fields import Json
from kvdrive.server.generation import Generation

log = logging.getLogger(__name__)


class KeptAnswer:
    """An answer as far as it has come. `patience`: seconds that it goes on without anybody who reads it.

    For the event loop. `ended` is done when it has its end.
    """

    def __init__(self, generation: Generation, bytes_per_token: int, patience: float) -> None:
        self._generation = generation
        self._bytes_per_token = bytes_per_token
        self._patience = patience
        self._pieces: list[str] = []
        self._stopped = ""
        self._end: Json | None = None
        self._news = asyncio.Condition()
        self._readers = 0
        self._leaving = self._wait_for_readers()
        self.ended = asyncio.ensure_future(self._generate())

    @property
    def characters(self) -> int:
        """Characters of the text so far."""
        return sum(map(len, self._pieces))

    def stop(self, reason: str) -> None:
        """Generate no more. `reason`: what its end says. Does nothing once the answer has ended."""
        self._leaving.cancel()
        if self._end is None and not self._stopped:
            self._stopped = reason
            self._generation.cancel()

    async def events(self) -> AsyncIterator[str]:
        """All of the answer as server-sent events: first what there is, then what comes, at last its end.

        A reader that is slow gets fewer and larger events; nothing is queued for it.
        """
        self._readers += 1
        self._leaving.cancel()
        taken = 0
        try:
            while True:
                async with self._news:
                    while len(self._pieces) == taken and self._end is None:
                        await self._news.wait()
                text, taken = "".join(self._pieces[taken:]), len(self._pieces)
                if text:
                    yield event({"text": text})
                elif self._end is not None:
                    yield event(self._end)
                    return
        finally:
            self._readers -= 1
            if not self._readers and self._end is None:
                self._leaving = self._wait_for_readers()

    def _wait_for_readers(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._patience, self.stop, "unread")

    async def _generate(self) -> None:
        began, first = time.perf_counter(), 0.0
        try:
            async for piece in self._generation.pieces():
                if isinstance(piece, str):
                    first = first or time.perf_counter() - began
                    await self._add(piece)
            end = self._as_end(first, time.perf_counter() - began)
        except ApiError as error:
            end = error.body()
        except Exception:
            log.exception("an answer failed")
            end = ApiError(500, "this server failed: its log says why", code="internal_error").body()
        self._leaving.cancel()
        async with self._news:
            self._end = end
            self._news.notify_all()

    async def _add(self, piece: str) -> None:
        async with self._news:
            self._pieces.append(piece)
            self._news.notify_all()

    def _as_end(self, first: float, seconds: float) -> Json:
        """Why it ended, its counts, what the drive had of its prompt, and seconds until its first piece and its end."""
        usage = self._generation.usage
        found = usage["prompt_tokens_details"]["cached_tokens"]
        return {
            "end": self._stopped or self._generation.reason,
            "usage": usage,
            "kvdrive": self._generation.stored | {"found_bytes": found * self._bytes_per_token},
            "seconds": {"first": round(first, 3), "all": round(seconds, 3)},
        }


class KeptAnswers:
    """The answers of each tenant by their names. `most` ended ones of a tenant are kept, of `characters` together, for
    `seconds`; the oldest go first. Running ones are as many as the scheduler takes. For the event loop.

    `patience`: see KeptAnswer. The text is in memory only: no file has it.
    """

    def __init__(
        self,
        bytes_per_token: int,
        *,
        most: int = 16,
        characters: int = 4 << 20,
        seconds: float = 600,
        patience: float = 60,
    ) -> None:
        self._bytes_per_token, self._patience = bytes_per_token, patience
        self._most, self._characters, self._seconds = most, characters, seconds
        self._kept: dict[str, OrderedDict[str, KeptAnswer]] = {}

    def check_free(self, tenant: str, name: str) -> None:
        """Raises ApiError for a name that an answer of the tenant has."""
        if name in self._kept.get(tenant, {}):
            raise ApiError(409, f"there is an answer '{name}' already: choose another name", code="answer_exists")

    def start(self, tenant: str, name: str, generation: Generation) -> None:
        """Keep an answer from its beginning on."""
        answer = KeptAnswer(generation, self._bytes_per_token, self._patience)
        self._kept.setdefault(tenant, OrderedDict())[name] = answer
        answer.ended.add_done_callback(lambda _: self._has_ended(tenant, name, answer))

    def get(self, tenant: str, name: str) -> KeptAnswer:
        """The answer of a tenant with this name. Raises ApiError."""
        found = self._kept.get(tenant, OrderedDict()).get(name)
        if found is None:
            text = (
                f"there is no answer '{name[:100]}' here (removed, too old, or the server was restarted): ask again, "
                "the drive has the conversation"
            )
            raise ApiError(404, text, code="answer_not_found")
        return found

    def drop(self, tenant: str, name: str) -> None:
        """Stop an answer if it runs, and forget it; those who read it get its end. Raises ApiError."""
        self.get(tenant, name).stop("stopped")
        del self._kept[tenant][name]

    def _has_ended(self, tenant: str, name: str, answer: KeptAnswer) -> None:
        own = self._kept[tenant]
        if own.get(name) is not answer:
            return
        own.move_to_end(name)  # in the order of their ends
        asyncio.get_running_loop().call_later(self._seconds, self._forget, tenant, name, answer)
        ended = [(other, one) for other, one in own.items() if one.ended.done()]
        held = sum(one.characters for _, one in ended)
        for place, (other, one) in enumerate(ended):
            if len(ended) - place <= self._most and held <= self._characters:
                return
            held -= one.characters
            del own[other]

    def _forget(self, tenant: str, name: str, answer: KeptAnswer) -> None:
        if self._kept[tenant].get(name) is answer:
            del self._kept[tenant][name]
