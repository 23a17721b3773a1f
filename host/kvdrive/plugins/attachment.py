"""A model that is attached to drives."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from weakref import WeakSet

import torch
from transformers import PreTrainedModel

from kvdrive.config.resolve import Plan
from kvdrive.errors import InputError, KvdriveError
from kvdrive.kvcache.hf_cache import HfCache
from kvdrive.plugins.batches import Batches
from kvdrive.plugins.call import Calls
from kvdrive.plugins.continuous_batching import ContinuousBatching
from kvdrive.plugins.forward import Forward
from kvdrive.plugins.prefix_store import open_prefix_store
from kvdrive.plugins.rates import ModelRates
from kvdrive.plugins.storage import open_storage
from kvdrive.prefix import saved
from kvdrive.prefix.options import SessionOptions
from kvdrive.prefix.store import PrefixStore
from kvdrive.targets.group import Drives
from kvdrive.targets.process import leave_alone

log = logging.getLogger(__name__)
_attached: WeakSet[Attachment] = WeakSet()


@atexit.register
def _detach_all() -> None:
    """At the end of the process: what a script has left attached is saved and closed as `detach` does it."""
    for one in list(_attached):
        try:
            one.detach()
        except KvdriveError as error:
            log.warning("a model was not detached: %s", error)


class Attachment:
    """A model that is attached to drives, until `detach` or the end of the process. `rates`: what both take."""

    def __init__(self, model: PreTrainedModel, target: Drives, plan: Plan) -> None:
        place = plan.config.placement
        self.target = target
        self.limits = plan.config.limits
        self._session_memory = place.session_memory
        self._model = model
        self._opened = ExitStack()
        self._sessions: PrefixStore | None = None
        self._forward = Forward(model)
        self._storage = open_storage(
            model, target, plan, self._forward, lambda *args, **named: self._calls.call(*args, **named)
        )
        self.rates = ModelRates(model, self._forward.own, self._storage.backing)
        memory = place.memory if place.active == "memory" else None
        self._batches = Batches(model, self._storage, memory, self.rates, self.limits)
        self._schedule = self.rates.schedule(place.mini_batches)
        self._calls = Calls(
            model, self._forward, self._storage.watched, self._batches.new, self._schedule, self.limits,
            recomputes=place.on_failure == "recompute",
        )  # fmt: skip
        self._batching = ContinuousBatching(model, self._forward, self._calls, self._schedule)
        _attached.add(self)
        try:
            if place.xcache == "auto" and self._storage.backing.xcache is not None:
                self.rates.choose_share()
            if plan.config.sessions is not None:
                self.open_sessions(plan.config.sessions)
        except BaseException:
            self.detach()
            raise

    def cache(self, tokens: int = 0, rows: int = 1) -> HfCache:
        """A new, empty cache for one batch: pass it as `past_key_values`. Detaching the model empties it.

        `tokens`: how many each of its `rows` will have, where that is known. If memory has no room for them, the drives
        attend.
        """
        self._calls.require_own()
        return HfCache(self._batches.new(tokens, rows))

    def on_drives(self) -> HfCache:
        """As `cache`; the drives attend. Without effect for policies that hold K and V on the host."""
        self._calls.require_own()
        return HfCache(self._batches.on_drives())

    @property
    def recoveries(self) -> int:
        """How often lost tokens were computed again."""
        return self._calls.recoveries

    @property
    def sessions(self) -> PrefixStore:
        """What outlives this process. Raises InputError unless the model was attached with `sessions`."""
        self._calls.require_own()
        if self._sessions is None:
            raise InputError("no sessions are stored here: attach the model with sessions=True")
        return self._sessions

    def open_sessions(self, options: SessionOptions) -> None:
        """Open the prefix store. Raises InputError, TargetError, UnsupportedError, ConflictError."""
        options = replace(options, memory=options.memory or self._session_memory)
        self._sessions = open_prefix_store(self._model, self._storage, self._batches, options)

    def save(self, cache: HfCache, path: Path) -> None:
        """Make `cache` durable; `path` describes it for `reopen`. It survives detaching and the end of the process.

        Removing tokens or rows later removes the file. Raises UnsupportedError, CommandError, TargetError.
        """
        saved.save(cache.batch, path)

    def reopen(self, path: Path) -> HfCache:
        """The cache that `save` stored on these drives, maybe in another process. Its tokens are
        `cache.batch.token_ids()`.

        Raises InputError when it was saved by another model or precision, CommandError, TargetError.
        """
        cache = self.cache()
        saved.reopen(cache.batch, path, self._model.device)
        return cache

    def why_alone(self, cache: HfCache) -> str | None:
        """The reason why `step_together` cannot take `cache`; None if it can."""
        return self._batching.refusal(cache.batch)

    def step_together(self, caches: Sequence[HfCache], ids: Sequence[Sequence[int]]) -> tuple[torch.Tensor, list[int]]:
        """The next tokens of several caches, one or more of each, in one call of the model. Returns the logits behind
        each token, in this order: [tokens, vocabulary].

        Each cache holds one sequence. Of several tokens, all but the first are drafted: `verified` follows. A call that
        fails is undone in all caches, and raises its error. Also returns the numbers of the caches for which only the
        end of the call failed: it was undone for them, and their logits mean nothing. What failed can be repeated with
        one cache at a time, where lost data is recomputed.
        """
        return self._batching.step([cache.batch for cache in caches], ids)

    def verified(self, cache: HfCache, rejected: int) -> None:
        """Remove the last `rejected` tokens of the last step of `cache`. The others may be saved from now on.

        Raises CommandError, TargetError.
        """
        cache.batch.part.unverified = 0
        cache.crop(-rejected)

    def detach(self) -> None:
        """Give the model its own attention back and empty every cache that is not saved."""
        if not self._forward.is_replaced:
            return
        self._forward.restore()
        _attached.discard(self)
        family = self._storage.watched.family
        if self._calls.is_foreign:
            return leave_alone(self._sessions, self._storage.backing, self._opened, list(family))
        if self._sessions is not None:
            self._sessions.stop()
        for batch in list(family):
            batch.detaching()
        if self._sessions is not None:
            self._sessions.close()
            self._sessions = None
        self._storage.backing.close()
        self._schedule.close()
        self._opened.close()

    def close_with(self, opened: ExitStack) -> None:
        """Detaching the model closes `opened` as well, last of all."""
        self._opened.push(opened)

    def __enter__(self) -> Attachment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()
