"""Which models are loaded: a request loads the one that it names, and those that are not in use make room for it.

For the event loop. One model is loaded at a time, in the order in which requests asked. One that is in use is never
unloaded: it takes no new requests when its memory is wanted, and goes when its last answer is complete.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kvdrive.errors import KvdriveError
from kvdrive.server.errors import ApiError
from kvdrive.server.settings import no_model

log = logging.getLogger(__name__)
_LOOK = 1.0  # seconds between two looks at answers that nobody waits for


class LoadError(KvdriveError):
    """A model could not be loaded."""


class Loaded(Protocol):
    """A model that is loaded. `context`: tokens of a prompt with its answer at most. `place`: its socket."""

    context: int
    place: Path

    @property
    def ended(self) -> bool:
        """True if it is gone without having been stopped."""

    async def stop(self) -> None:
        """Unload it."""


class Offer(Protocol):
    """A model that can be loaded. `name`: for clients."""

    name: str

    def bytes(self) -> int:
        """Memory for its weights. Raises LoadError."""

    async def load(self) -> Loaded:
        """Raises LoadError."""

    async def answers(self, loaded: Loaded) -> bool:
        """True while it generates an answer that no request waits for."""


@dataclass(frozen=True)
class Bounds:
    """`memory`: bytes for the weights of all loaded models, 0: as many as the machine has free. `idle`: seconds after
    which one that nobody uses is unloaded. `waiting`: requests of a tenant that may wait for models.
    """

    memory: float = 0
    idle: float = math.inf
    waiting: int = 64
    free: Callable[[], float] = lambda: math.inf


@dataclass(eq=False)
class Model:
    """A model and its state. `users`: requests that it answers. `waiting`: those that wait for it. `used`: when it was
    used last. `leaving`: it takes no new requests. `loads`, `failures`: how often.
    """

    offer: Offer
    loaded: Loaded | None = None
    bytes: int = 0
    users: int = 0
    waiting: list[asyncio.Future[Loaded]] = field(default_factory=list)
    loading: asyncio.Task[None] | None = None
    leaving: bool = False
    used: float = 0.0
    context: int | None = None
    loads: int = 0
    failures: int = 0

    @property
    def ready(self) -> Loaded | None:
        """What may take a request."""
        return None if self.loaded is None or self.loaded.ended or self.leaving else self.loaded

    @property
    def state(self) -> str:
        """In the words of llama.cpp's server."""
        return "loaded" if self.ready else "loading" if self.loading else "unloaded"


class Models:
    """`clock`: seconds."""

    def __init__(self, offers: Sequence[Offer], bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        self.all = {one.name: Model(one) for one in offers}
        self._bounds, self._clock = bounds, clock
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self._asking: dict[str, int] = {}

    @property
    def idle(self) -> float:
        """Seconds after which a model that nobody uses is unloaded; infinite: it is not."""
        return self._bounds.idle

    def find(self, name: str) -> Model:
        """Raises ApiError for a name that is not served."""
        if name not in self.all:
            raise no_model(name, [*self.all])
        return self.all[name]

    @asynccontextmanager
    async def using(self, name: str, tenant: str, seconds: float) -> AsyncIterator[Loaded]:
        """The model, loaded, until the end of the block. `seconds`: how long the request may wait. Raises ApiError."""
        one = self.find(name)
        if loaded := one.ready:
            one.users += 1
        else:
            loaded = await self._wait(one, tenant, seconds)
        try:
            yield loaded
        finally:
            self._release(one)

    def _release(self, one: Model) -> None:
        one.users -= 1
        one.used = self._clock()
        self._freed.set()

    async def _wait(self, one: Model, tenant: str, seconds: float) -> Loaded:
        """Wait for a model, which counts as used from then on. Raises ApiError."""
        if self._asking.get(tenant, 0) >= self._bounds.waiting:
            text = f"{self._bounds.waiting} requests wait for models already: try again in a moment"
            raise ApiError(429, text, code="queue_full")
        self._asking[tenant] = self._asking.get(tenant, 0) + 1
        place: asyncio.Future[Loaded] = asyncio.get_running_loop().create_future()
        one.waiting.append(place)
        one.loading = one.loading or asyncio.ensure_future(self._load(one))
        try:
            async with asyncio.timeout(None if math.isinf(seconds) else max(seconds, 0)):
                return await place
        except BaseException as error:
            if place in one.waiting:
                one.waiting.remove(place)
                self._freed.set()
            elif place.done() and not place.cancelled() and place.exception() is None:
                self._release(one)  # it was ready at the same moment
            if isinstance(error, TimeoutError):
                text = f"model '{one.offer.name}' was not loaded in time: allow more seconds, or ask again"
                raise ApiError(504, text, code="deadline_passed") from None
            raise
        finally:
            self._asking[tenant] -= 1

    async def _load(self, one: Model) -> None:
        """Load a model, and hand it to those that wait for it. They get the error where that fails."""
        try:
            async with self._turn:
                if one.ready is None and one.loaded is not None:
                    await self._unload(one)
                if one.ready is None and await self._has_room(one):
                    one.loaded = await one.offer.load()
                    one.context, one.used = one.loaded.context, self._clock()
                    one.loads += 1
                    log.info("model %s is loaded", one.offer.name)
                self._hand_out(one)
        except LoadError as error:
            one.failures += 1
            text = f"model '{one.offer.name}' cannot be loaded: {error}"
            log.warning("%s", text)
            self._refuse(one, lambda: ApiError(503, text, param="model", code="model_unavailable"))
        except Exception:
            one.failures += 1
            log.exception("model %s cannot be loaded", one.offer.name)
            text = f"model '{one.offer.name}' cannot be loaded: the log of this server says why"
            self._refuse(one, lambda: ApiError(500, text, param="model", code="internal_error"))
        finally:
            one.loading = None

    def _hand_out(self, one: Model) -> None:
        if (loaded := one.ready) is None:
            return
        places, one.waiting = one.waiting, []
        for place in places:
            if not place.done():
                one.users += 1
                place.set_result(loaded)

    def _refuse(self, one: Model, error: Callable[[], ApiError]) -> None:
        places, one.waiting = one.waiting, []
        for place in places:
            if not place.done():
                place.set_exception(error())

    async def _has_room(self, one: Model) -> bool:
        """Unload others until there is room for a model; False if nobody waits for it any more. Raises LoadError."""
        one.bytes = await asyncio.to_thread(one.offer.bytes)
        while one.waiting:
            missing = self._missing(one)
            if missing <= 0:
                return True
            others = [other for other in self.all.values() if other is not one and other.loaded is not None]
            if not others:
                raise LoadError(self._too_large(one))
            await self._leave(min(others, key=lambda other: (other.users > 0, other.used)), one)
        return False

    def _missing(self, one: Model) -> float:
        """Bytes that the loaded models have to give back."""
        if not self._bounds.memory:
            return one.bytes - self._bounds.free()
        return one.bytes + sum(other.bytes for other in self.all.values() if other.loaded) - self._bounds.memory

    def _too_large(self, one: Model) -> str:
        if self._bounds.memory:
            return f"its weights take {_size(one.bytes)}, and `models_memory` is {_size(self._bounds.memory)}"
        return f"its weights take {_size(one.bytes)}, and the machine has {_size(self._bounds.free())} of memory free"

    async def _leave(self, victim: Model, wanted: Model) -> None:
        """Unload a model when its answers are complete; it stays where nobody waits for the `wanted` one any more."""
        victim.leaving = True
        try:
            while victim.loaded and not victim.loaded.ended and (victim.users or await self._answers(victim)):
                self._freed.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._freed.wait(), None if victim.users else _LOOK)
                if not wanted.waiting:
                    return
            await self._unload(victim)
        finally:
            victim.leaving = False

    async def _answers(self, one: Model) -> bool:
        return one.loaded is not None and await one.offer.answers(one.loaded)

    async def _unload(self, one: Model) -> None:
        """Nobody uses it."""
        loaded, one.leaving = one.loaded, True
        try:
            if loaded is not None and not loaded.ended:
                await loaded.stop()
                log.info("model %s is unloaded", one.offer.name)
        finally:
            one.loaded, one.leaving = None, False

    async def unload_idle(self) -> None:
        """Unload the models that nobody has used for long enough."""
        for one in self.all.values():
            async with self._turn:
                if not self._is_idle(one):
                    continue
                if await self._answers(one):
                    one.used = self._clock()
                elif self._is_idle(one):  # still
                    await self._unload(one)

    def _is_idle(self, one: Model) -> bool:
        in_use = one.loaded is None or one.users > 0 or bool(one.waiting)
        return not in_use and self._clock() - one.used >= self._bounds.idle

    async def watch(self) -> None:
        """Unload idle models, until it is cancelled."""
        while True:
            await asyncio.sleep(max(min(self._bounds.idle / 4, 10), _LOOK / 4))
            await self.unload_idle()

    async def close(self) -> None:
        """Unload all models. No request comes any more."""
        tasks = [one.loading for one in self.all.values() if one.loading]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(self._unload(one) for one in self.all.values()))


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
