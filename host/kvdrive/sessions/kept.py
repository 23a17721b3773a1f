"""A running sequence that is being kept: what of it the drives and the index know already."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from kvdrive.errors import KvdriveError
from kvdrive.identity.calls import why_not_plain
from kvdrive.sessions.chain import GrowingChain
from kvdrive.sessions.entry import Entry
from kvdrive.sessions.record import Record
from kvdrive.sessions.resume import Way

if TYPE_CHECKING:
    from kvdrive.kvcache.batch import Batch
    from kvdrive.sessions.layouts import Layouts
    from kvdrive.sessions.store import SessionStore

log = logging.getLogger(__name__)


class KeptSequence:
    """The keeper of `cache` (see `kvcache.listener.Listener`).

    `ids`: its tokens; `removed`: those that were behind the first group and are gone. `saved`: how many of `ids` the
    index knows, as session `number`; None: it does not know it. `named`: how many each part of it on the drives names.
    `source`: the session that it was forked from, which it replaces once it holds all of its tokens. `recorded`: the
    record that the drives have. `admitted`: what the governor said; None before it was asked. `counted`: tokens whose
    writes were counted, or that were not written again. `way`: how it goes on with tokens that were found; None: none
    were. `saving`: its save in the background. `full`: why no more changes can be noted; "": they can. `layouts`: those
    of its tenant.
    """

    def __init__(self, store: SessionStore, cache: Batch, layouts: Layouts, name: str, way: Way | None = None) -> None:
        self.store = store
        self.cache: Batch = cache
        self.layouts = layouts
        self.name = name
        self.way = way
        self.saving: Future[None] | None = None
        self.ids: list[int] = []
        self.number: int | None = None
        self.saved = 0
        self.named: list[int] = []
        self.source: Entry | None = None
        self.recorded: str | None = None
        self.full = ""
        self.admitted: bool | None = None
        self.counted = 0
        self.removed: list[int] = []
        self._growing: GrowingChain | None = None

    @property
    def removals(self) -> list[list[int]]:
        """See Record."""
        return [[removal.at, removal.tokens] for removal in self.cache.removals]

    @property
    def layout(self) -> Record:
        """How it lies on the drives."""
        return self.layouts.of(self.cache.sequences)

    @property
    def growing(self) -> GrowingChain:
        """The keys of its blocks."""
        if self._growing is None:
            self._growing = GrowingChain(self.layout.chain.without(self.removals))
        return self._growing

    def rename(self) -> None:
        """Other tokens, or another layout, have other keys: compute them again when they are asked for."""
        self._growing = None

    def all_ids(self, tokens: int) -> list[int]:
        """Its first `tokens` tokens, and those that were removed from between them."""
        first = self.store.group
        return self.ids[:first] + self.removed + self.ids[first:tokens] if self.removed else self.ids[:tokens]

    @property
    def stored(self) -> int:
        """Tokens that the drives have in every layer, as far as their numbers are known."""
        return min(len(self.ids), *(layer.stored for layer in self.cache.drive_layers))

    @property
    def tail(self) -> list[int]:
        """The saved tokens behind the last whole block; valid after `growing` was extended to them."""
        return self.ids[len(self.growing.keys) * self.store.block : self.saved]

    def called(self, arguments: dict[str, Any]) -> None:
        """See Listener. Saves when enough tokens have come."""
        held = len(self.ids) + len(self.removed)
        if reason := why_not_plain(arguments, held):
            return self.stop(reason)
        ids = arguments["input_ids"]
        if self.cache.length != held + ids.shape[1]:
            return self.stop("some of its tokens did not come through the model's own forward")
        if (load := self.cache.placement.load_ended()) is not None:
            self.way = "recompute" if load.late else "load"
            self.store.loaded(load)
        before = len(self.ids)
        self.ids += ids[0].tolist()
        if self.stored // self.store.every > self.saved // self.store.every:
            try:
                if self.cache.placement.saves_behind:
                    self.store.save_behind(self)
                else:
                    self.store.save(self)
            except BaseException:
                self.ids = self.ids[:before]  # the call counts as failed
                raise
        return None

    def shrinks(self, tokens: int) -> None:
        """See Listener. The index forgets the session before the drives do; a later save adds it again."""
        self._wait()
        if tokens < self.saved:
            self.store.withdraw(self)
            self.rename()
        self.ids = self.ids[:tokens]
        self.named = [min(named, tokens) for named in self.named]
        self.counted = min(self.counted, tokens)
        if tokens == 0:
            self.removed = []
            self._begin_anew()

    def removes(self, tokens: int) -> None:
        """See Listener. What the index names stays as it is; the cache goes on with a fork of it."""
        self._wait()
        self.store.leave_behind(self)

    def removed_tokens(self, tokens: int) -> None:
        """See Listener."""
        first = self.store.group
        self.removed += self.ids[first : first + tokens]
        del self.ids[first : first + tokens]
        self.counted = max(self.counted - tokens, 0)
        self.rename()

    def reordered(self) -> None:
        """See Listener."""
        self.stop("its rows change places")

    def model_changed(self, reason: str) -> None:
        """See Listener. What was saved stays what it is; the cache goes on with a fork of it."""
        if not self.cache.length:
            return self.rename()
        self._wait()
        try:
            self.store.part(self)
        except KvdriveError as error:
            log.info("a session does not stay: %s", error)
        return self.stop(reason)

    def lost(self) -> None:
        """See Listener. The session that this one was forked from has lost the same tokens."""
        self._wait()
        self.store.drop_lost(self)
        self.counted = 0
        self._begin_anew()

    def make_room(self) -> bool:
        """See Listener."""
        return self.store.shelf.make_room()

    def runs_in_memory_alone(self, reason: str) -> bool:
        """See Listener."""
        log.warning("a sequence goes on in memory, its later tokens are not kept: %s", reason)
        self._wait()
        self.store.close_entry(self)
        self.cache.listener = None
        return self.number is not None

    def detaching(self) -> None:
        """See Listener."""
        self.store.finish(self)

    def settle(self) -> None:
        """Wait for the save in the background. Raises its TargetError."""
        if self.saving is not None:
            saving, self.saving = self.saving, None
            saving.result()

    def _begin_anew(self) -> None:
        """Its next session on the drives will be an empty one."""
        self.named, self.recorded, self.full = [], None, ""
        self.rename()

    def _wait(self) -> None:
        """`settle` where an error of the drive does not matter any more."""
        try:
            self.settle()
        except KvdriveError as error:
            log.info("a save in the background failed: %s", error)

    def stop(self, reason: str) -> None:
        """Do not keep this sequence any more; what was saved before stays if the cache still has it."""
        log.warning("a sequence is not kept: %s", reason)
        self._wait()
        self.store.withdraw(self)
        self.store.forget(self)
        self.cache.listener = None
