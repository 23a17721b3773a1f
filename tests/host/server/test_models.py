"""Which models are loaded at a time: who waits, who is unloaded, and what happens when a load fails."""

import asyncio
import math
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kvdrive.server.errors import ApiError
from kvdrive.server.router.models import Bounds, LoadError, Models


class Loaded:
    context, place = 64, Path()

    def __init__(self):
        self.ended = False
        self.stopped = 0

    async def stop(self):
        self.stopped += 1


class Offer:
    """A model of `size` bytes, whose load takes until `gate` is set. `generating`: an answer that nobody waits for."""

    def __init__(self, name, size=1, error=""):
        self.name, self._size, self.error = name, size, error
        self.gate = asyncio.Event()
        self.gate.set()
        self.generating = False
        self.made = []

    def bytes(self):
        return self._size

    async def load(self):
        await self.gate.wait()
        if self.error:
            raise LoadError(self.error)
        self.made.append(Loaded())
        return self.made[-1]

    async def answers(self, loaded):
        return self.generating


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def ran(work):
    asyncio.run(asyncio.wait_for(work, 30))


async def turns(count=20):
    """Let everything that can go on do so."""
    for _ in range(count):
        await asyncio.sleep(0)
    await asyncio.to_thread(lambda: None)  # the sizes of models are read in a thread
    for _ in range(count):
        await asyncio.sleep(0)


async def use(models, name, seconds=math.inf):
    async with models.using(name, "", seconds) as loaded:
        return loaded


def test_a_model_is_loaded_once_for_all_that_wait():
    async def work():
        one = Offer("a")
        models = Models([one], Bounds())
        one.gate.clear()
        several = [asyncio.ensure_future(use(models, "a")) for _ in range(3)]
        await turns()
        assert models.all["a"].state == "loading"
        one.gate.set()
        assert set(await asyncio.gather(*several)) == {*one.made}
        assert len(one.made) == 1
        assert models.all["a"].state == "loaded"

    ran(work())


def test_an_unknown_name_is_refused():
    async def work():
        models = Models([Offer("a"), Offer("b")], Bounds())
        with pytest.raises(ApiError, match="this server has 'a', 'b'") as refused:
            await use(models, "c")
        assert (refused.value.status, refused.value.code) == (404, "model_not_found")

    ran(work())


def test_the_least_recently_used_model_makes_room():
    async def work():
        clock = Clock()
        several = [Offer(name) for name in "abc"]
        models = Models(several, Bounds(memory=2), clock)
        for name in "abac":
            clock.now += 1
            await use(models, name)
        assert [one.state for one in models.all.values()] == ["loaded", "unloaded", "loaded"]
        assert several[1].made[0].stopped == 1

    ran(work())


def test_a_model_in_use_is_unloaded_when_its_answer_is_complete():
    """Until then the other one waits, and new requests for the first one stand behind it."""

    async def work():
        first, second = Offer("a"), Offer("b")
        models = Models([first, second], Bounds(memory=1))
        async with AsyncExitStack() as answering:
            loaded = await answering.enter_async_context(models.using("a", "", math.inf))
            waits = asyncio.ensure_future(use(models, "b"))
            await turns()
            late = asyncio.ensure_future(use(models, "a"))
            await turns()
            assert not waits.done()
            assert not late.done()
            assert loaded.stopped == 0
        assert await waits is second.made[0]
        assert await late is first.made[1]
        assert loaded.stopped == second.made[0].stopped == 1

    ran(work())


def test_a_model_that_nobody_wants_any_more_takes_no_place():
    async def work():
        first, second = Offer("a"), Offer("b")
        models = Models([first, second], Bounds(memory=1))
        async with models.using("a", "", math.inf) as loaded:
            waits = asyncio.ensure_future(use(models, "b"))
            await turns()
            waits.cancel()
            await turns()
            assert models.all["a"].ready is loaded
            async with models.using("a", "", 0) as again:
                assert again is loaded
        assert not second.made

    ran(work())


def test_a_request_waits_no_longer_than_its_deadline():
    async def work():
        one = Offer("a")
        models = Models([one], Bounds())
        one.gate.clear()
        with pytest.raises(ApiError, match="not loaded in time") as late:
            await use(models, "a", 0)
        assert (late.value.status, late.value.code) == (504, "deadline_passed")
        one.gate.set()
        assert await use(models, "a") is one.made[0]  # the load went on
        assert len(one.made) == 1

    ran(work())


def test_so_many_requests_of_a_tenant_wait():
    async def work():
        one = Offer("a")
        models = Models([one], Bounds(waiting=1))
        one.gate.clear()
        waits = asyncio.ensure_future(use(models, "a"))
        await turns()
        with pytest.raises(ApiError, match="1 requests wait") as full:
            await use(models, "a")
        assert full.value.status == 429
        one.gate.set()
        await waits

    ran(work())


def test_a_load_that_fails_fails_its_requests_alone():
    async def work():
        bad, good = Offer("bad", error="there is no folder"), Offer("good")
        models = Models([bad, good], Bounds())
        answers = await asyncio.gather(
            use(models, "bad"), use(models, "bad"), use(models, "good"), return_exceptions=True
        )
        assert [str(one) for one in answers[:2]] == ["model 'bad' cannot be loaded: there is no folder"] * 2
        assert answers[0].code == "model_unavailable"
        assert answers[2] is good.made[0]
        bad.error = ""
        assert await use(models, "bad") is bad.made[0]
        assert (models.all["bad"].loads, models.all["bad"].failures) == (1, 1)

    ran(work())


def test_what_is_too_large_is_refused():
    async def work():
        models = Models([Offer("small"), Offer("large", 3 << 20)], Bounds(memory=2 << 20))
        with pytest.raises(ApiError, match=r"weights take 3\.0 MiB, and `models_memory` is 2\.0 MiB"):
            await use(models, "large")
        models = Models([Offer("large", 3 << 20)], Bounds(free=lambda: 2 << 20))
        with pytest.raises(ApiError, match=r"the machine has 2\.0 MiB of memory free"):
            await use(models, "large")

    ran(work())


def test_idle_models_are_unloaded():
    async def work():
        clock = Clock()
        one = Offer("a")
        models = Models([one], Bounds(idle=10), clock)
        async with models.using("a", "", math.inf):
            clock.now = 100
            await models.unload_idle()
            assert models.all["a"].ready
        clock.now = 109
        await models.unload_idle()
        assert models.all["a"].ready
        one.generating = True
        clock.now = 111
        await models.unload_idle()
        assert models.all["a"].ready
        one.generating = False
        clock.now = 120
        await models.unload_idle()
        assert models.all["a"].ready  # it was used until 111
        clock.now = 121
        await models.unload_idle()
        assert models.all["a"].state == "unloaded"
        assert await use(models, "a") is one.made[1]

    ran(work())


def test_a_model_whose_process_is_gone_is_loaded_anew():
    async def work():
        one = Offer("a")
        models = Models([one], Bounds())
        (await use(models, "a")).ended = True
        assert models.all["a"].state == "unloaded"
        assert await use(models, "a") is one.made[1]
        assert one.made[0].stopped == 0
        await models.close()
        assert one.made[1].stopped == 1

    ran(work())
