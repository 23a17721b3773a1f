"""The prefix store: finds what the drives hold of a prompt, forks it, and saves what was computed.

A stored session never changes. To continue it, it is forked, and the fork is saved as a session of its own; the drive
shares what both have. Each save (`open_session`) goes in the order data, chain, FLUSH, index: whatever the index names
is durable. Removal goes in the other order. So a process that is killed at any step leaves nothing wrong, at most
an orphan that `collect` removes. Before a session is used, the tokens on the drive itself are compared with the wanted
ones.
"""

from __future__ import annotations

from collections.abc import Sequence as Several

import torch

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.hf_cache import HfCache
from kvdrive.prefix.context import Context
from kvdrive.prefix.evictor import Evictor
from kvdrive.prefix.index import Index
from kvdrive.prefix.lookup import Lookup, Lookups
from kvdrive.prefix.open_session import OpenSession
from kvdrive.prefix.opener import Opener
from kvdrive.prefix.options import SessionOptions
from kvdrive.prefix.placement import Placements, Planner, costs_of
from kvdrive.prefix.prefetch import Prefetch
from kvdrive.prefix.request import STEPS, Request
from kvdrive.prefix.stored import StoredSessions
from kvdrive.prefix.wear import Governor


class PrefixStore:
    """Sessions of one model on one group of drives. `shape`: the model's KV heads and head dimension.

    What one tenant stores, another one does not find; `options.tenant` is whose sessions are meant where none is named.
    `placements` makes empty batches of the attached model, and says what loading into memory costs. Raises InputError.
    """

    def __init__(
        self, backing: Backing, index: Index, shape: tuple[int, int], placements: Placements, options: SessionOptions
    ) -> None:
        self.index = index
        self.options = options
        self.stored = StoredSessions(index, backing)
        self.stats = self.stored.stats
        self.evictor = Evictor(self.stored, options)
        self.governor = Governor(index.accounts, options.daily_bytes, lambda: index.now)
        self.costs = costs_of(backing, index, placements)
        self.context = Context(
            self.stored,
            self.evictor,
            self.governor,
            self.costs,
            every=options.every or backing.spill,
            check_model=placements.check_model,
            eviction=options.eviction,
            memory_bytes=options.memory if placements.fits(0) else 0,
            device=placements.device,
        )
        self.memory = self.context.memory
        example = placements.on_drives()
        append_options, with_state = int(example.part.shared.append_options), not example.is_on_drives
        if not example.rows:
            raise UnsupportedError(
                "no layer of this model attends to all tokens, so drives have nothing of its sessions"
            )
        if with_state and backing.xcache is not None:
            raise UnsupportedError("X-cache stores no sessions of a model with layers in memory: attach it without")
        lookups = Lookups(self.stored, self.governor, shape, append_options, with_state=with_state)
        self._opener = Opener(self.context, lookups, Planner(placements, self.costs, self.memory))
        self.prefetch = Prefetch(self._opener, self.stored, self.evictor, self.memory)
        with index.transaction():
            index.close_dead()
            index.forget_future()

    @property
    def block(self) -> int:
        """Tokens of a block."""
        return self.lookup_of().layouts.kv.block

    @property
    def opened(self) -> list[OpenSession]:
        """The sessions that are open."""
        return self._opener.opened

    def lookup_of(self, tenant: str | None = None) -> Lookup:
        """What finds the sessions of a tenant; None: of `options.tenant`."""
        return self._opener.lookups.of(self.options.tenant if tenant is None else tenant)

    def cache(
        self,
        ids: torch.Tensor | Several[int] = (),
        name: str = "",
        *,
        find: bool = True,
        new_tokens: int = STEPS,
        tenant: str | None = None,
    ) -> HfCache:
        """A cache that holds as many of the first tokens of `ids` [tokens] or [1, tokens] as the drives have.

        At most all but the last; without `ids` all tokens of the session called `name`. It is saved while the model
        computes, as `name` if there is one. `find` False: it is empty. `new_tokens`: how many will be generated behind
        `ids`. `tenant`: whose it is; None: `options.tenant`. Where sequences are in memory, the fastest strategy is
        chosen (`resume`): the tokens are loaded, or the drive attends to them, or the cache is empty because computing
        them again is faster.

        Raises InputError for a name that belongs to another model or is in use, TargetError.
        """
        self.context.check_model()
        owned = self.options.tenant if tenant is None else tenant
        request = Request(tuple(_plain(ids)), name, new_tokens, owned)
        session = self.prefetch.take(request) or self._opener.open(request, find=find)
        return HfCache(session.batch)

    def save(self, cache: HfCache) -> int | None:
        """Save all tokens of `cache`, pending ones as well. Returns the session's number; None if it is not saved."""
        return _session_of(cache).save_all()

    def release(self, cache: HfCache) -> int | None:
        """Save all tokens of a cache that `self.cache` returned, and empty it. Returns as `save` does."""
        if cache.batch.listener is None:
            cache.reset()
            return None
        return _session_of(cache).finish()

    def discard(self, cache: HfCache) -> None:
        """Close a cache that `self.cache` returned and that nothing used: nothing is saved, and it is empty."""
        _session_of(cache).discard()

    def model_changed(self) -> None:
        """The model has another identity, under which other sessions are found. Its batches know it already."""
        self.prefetch.close()
        if self.memory is not None:
            self.memory.clear()
        self._opener.lookups.renew()

    def stop(self) -> None:
        """The model is about to be detached: load nothing before its turn, and keep no more copies in memory."""
        if self.memory is not None:
            self.memory.stop()
        self.prefetch.close()

    def close(self) -> None:
        """Save what is open, and close the index."""
        self.stop()
        for session in self.opened:
            session.finish()
        with self.index.transaction():
            self.index.close_owned(self.context.owner)
        self.context.saver.shutdown()
        if self.memory is not None:
            self.memory.close()
        self.index.close()


def _session_of(cache: HfCache) -> OpenSession:
    listener = cache.batch.listener
    if not isinstance(listener, OpenSession):
        raise UnsupportedError("this cache is not saved: get one from sessions.cache()")
    return listener


def _plain(ids: torch.Tensor | Several[int]) -> list[int]:
    if not isinstance(ids, torch.Tensor):
        return list(ids)
    if ids.dim() == 2 and ids.shape[0] != 1:
        raise UnsupportedError("sessions are saved one by one: give the tokens of one row")
    found: list[int] = ids.reshape(-1).tolist()
    return found
