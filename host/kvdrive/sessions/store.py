"""The store: finds what the drives hold of a prompt, forks it, and keeps what was computed.

A kept session never changes. To go on with it, it is forked, and the fork is kept as a session of its own; the drive
shares what both have. Each save (`saving`) goes in the order data, chain, FLUSH, index: whatever the index names is
durable. Removal goes in the other order. So a process that is killed at any step leaves nothing wrong, at most
an orphan that `collect` removes. Before a session is used, the tokens on the drive itself are compared with the wanted
ones.
"""

from __future__ import annotations

import itertools
import logging
import sqlite3
from collections.abc import Sequence as Several
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING

import torch

from kvdrive.errors import TargetError, UnsupportedError
from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.hf_cache import HfCache
from kvdrive.kvcache.loading import LoadStats
from kvdrive.kvcache.overflow import Removal
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.nvme.errors import CommandError
from kvdrive.nvme.rows import tokens_per_group
from kvdrive.sessions import owner
from kvdrive.sessions.ahead import LookAhead, Waiting
from kvdrive.sessions.entry import Entry
from kvdrive.sessions.finder import Finder
from kvdrive.sessions.index import Index
from kvdrive.sessions.kept import KeptSequence
from kvdrive.sessions.layouts import Layouts
from kvdrive.sessions.options import SessionOptions
from kvdrive.sessions.placing import Found, Places, Placing
from kvdrive.sessions.rates import costs_file
from kvdrive.sessions.record import Record, RecordsFullError
from kvdrive.sessions.resume import STEPS, Costs
from kvdrive.sessions.saving import Saving
from kvdrive.sessions.shelf import Shelf, trim_all
from kvdrive.sessions.wear import Governor

if TYPE_CHECKING:
    from kvdrive.kvcache.batch import Batch

log = logging.getLogger(__name__)
_stores = itertools.count()


class SessionStore:
    """Sessions of one model on one group of drives. `shape`: the model's KV heads and head dimension.

    What one tenant keeps, another one does not find; `options.tenant` is whose sessions are meant where none is named.
    `places` makes empty caches of the attached model, and says what loading into memory costs. Raises InputError.
    """

    def __init__(
        self,
        backing: Backing,
        index: Index,
        shape: tuple[int, int],
        places: Places,
        options: SessionOptions,
    ) -> None:
        self.group = tokens_per_group(backing.stored_as, shape[1])
        self.index = index
        self.options = options
        self.shelf = Shelf(index, backing, options)
        self.stats = self.shelf.stats
        self.every = options.every or backing.spill
        self.governor = Governor(index, options.daily_bytes)
        self._backing = backing
        self._places = places
        self.costs = Costs(costs_file(index.path), self._rates_key(), places.measure)
        self._saver = ThreadPoolExecutor(1, "kvdrive-saver")
        self._owner = owner.this_process(next(_stores))
        append_options = int(places.on_drives().part.shared.append_options)
        self._layouts_of = partial(Layouts, backing, shape, append_options=append_options)
        self._finders: dict[str, Finder] = {}
        self.saving = Saving(self.shelf, self.governor, self._owner)
        self.finder = self.finder_of(options.tenant)
        self.placing = Placing(places, self.costs)
        self.ahead = LookAhead(self)
        self._open: list[KeptSequence] = []
        with index.transaction():
            self.shelf.close_dead()
            index.forget_future()

    @property
    def block(self) -> int:
        """Tokens of a block."""
        return self.finder.layouts.kv.block

    # ---- finding ----

    def finder_of(self, tenant: str) -> Finder:
        """What finds the sessions of a tenant."""
        if tenant not in self._finders:
            self._finders[tenant] = Finder(self.shelf, self._layouts_of(tenant=tenant), self.governor)
        return self._finders[tenant]

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

        At most all but the last; without `ids` all tokens of the session called `name`. It is kept while the model
        computes, as `name` if there is one. `find` False: it is empty. `new_tokens`: how many will be generated behind
        `ids`. `tenant`: whose it is; None: `options.tenant`. Where sequences are in memory, the fastest way is taken
        (`resume`): the tokens are loaded, or the drive attends to them, or the cache is empty because computing them
        again is faster.

        Raises InputError for a name that belongs to another model or is in use, TargetError.
        """
        self._places.check_model()
        request = Waiting(tuple(_plain(ids)), name, new_tokens, self.options.tenant if tenant is None else tenant)
        return HfCache(self.ahead.take(request) or self._begin(request, find=find))

    def _begin(self, request: Waiting, *, find: bool = True, ahead: bool = False) -> Batch:
        """See `cache`. `ahead`: the request waits, so that all layers may be loaded before the first one computes."""
        wanted, name, finder = list(request.prompt), request.name, self.finder_of(request.tenant)
        if name:
            finder.require_own(name)
        found = finder.find_shortened(name, wanted) if name and wanted else None
        anew = find and found is None and self.placing.pays_anew(request, finder)
        if find and found is None and not anew:
            found = finder.find_named(name) if name and not wanted else finder.find(wanted)
        self.stats.lookups += find or found is not None
        try:
            cache, way = self.placing.cache_for(request, found, ahead=ahead)
            cache.require_all_on_drives()
        except BaseException:
            if found is not None:
                trim_all([found[1]])
            raise
        kept = KeptSequence(self, cache, finder.layouts, name, "recompute" if anew else way)
        cache.listener = kept
        self.stats.count(kept.way)
        if found is not None:
            self._fill(kept, found)
        elif wanted and not self._admits(kept, wanted):
            cache.placement.write_nothing()
        self._open.append(kept)
        return cache

    def model_changed(self) -> None:
        """The model has another identity, under which other sessions are found. Its caches know it already."""
        self.ahead.close()
        for finder in self._finders.values():
            finder.layouts.renew()

    def load_ahead(self, request: Waiting, known: int, entry: Entry) -> Batch | None:
        """Begin to load `known` tokens of a waiting request; None where that does not pay, or memory has no room.

        Raises InputError, TargetError.
        """
        return self._begin(request, ahead=True) if self.placing.loads(request, known, entry) else None

    @property
    def cache_bytes(self) -> int:
        """K and V that the drives keep in this machine's memory once they were read, where they attend to them."""
        return 0 if self.placing.in_memory else sum(queue.target.cache_bytes for queue in self._backing.alive)

    def warm(self, entry: Entry, tokens: int) -> None:
        """Begin to read a session's first `tokens` tokens, so that they are in the page cache. Layer by layer, so that
        the drives attend to other sequences in between.
        """
        told = Record.of(entry.record)
        existing = self.shelf.existing(entry)
        for layer, kind, _, numbers in told.lists():
            existing.start_read(layer, kind, tokens, numbers)

    def discard(self, cache: Batch) -> None:
        """Forget an unused cache of `cache`."""
        kept = self._kept(cache)
        self.forget(kept)
        cache.listener = None
        cache.reset()

    def _fill(self, kept: KeptSequence, found: Found) -> None:
        entry, sequence, ids = found
        told = Record.of(entry.record)
        kept.cache.adopt(
            [sequence], torch.tensor([ids]), told.layers, [Removal(at, tokens) for at, tokens in told.removals]
        )
        held, kept.removed = told.split(ids)
        kept.ids = list(held) if kept.way != "recompute" else []
        kept.named = [len(held)] * len(sequence.slices)
        # with X the fork's record may tell of tokens that the fork does not have: the next save replaces it
        kept.recorded = None if told.inputs else entry.record
        kept.counted, kept.source = len(held), entry
        kept.rename()
        kept.growing.extend(kept.ids)

    # ---- keeping ----

    def save(self, kept: KeptSequence) -> None:
        """Make what the drives have of a sequence durable, and note it in the index. Generation goes on when that
        fails.

        Raises TargetError, and CommandError when K and V themselves could not be stored.
        """
        kept.settle()
        self._places.check_model()
        tokens = self._to_save(kept)
        if tokens:
            kept.cache.synchronize()
            self._try_to_save(kept, tokens)
            self._stop_if_full(kept)

    def save_behind(self, kept: KeptSequence) -> None:
        """`save` what is on its way to the drives now, in the background. One save of a sequence runs at a time.

        Raises the TargetError of the save before.
        """
        if kept.saving is not None and not kept.saving.done():
            return
        kept.settle()
        self._places.check_model()
        tokens = self._to_save(kept)
        if tokens:
            kept.saving = self._saver.submit(self._save_sent, kept, tokens, kept.cache.transfers.outstanding())

    def _save_sent(self, kept: KeptSequence, tokens: int, sent: list[Future[None]]) -> None:
        """In the background: save `tokens` tokens once the appends `sent` have ended."""
        wait(sent)
        if not any(one.exception() for one in sent):  # the next call of the model raises such an error
            self._try_to_save(kept, tokens)

    def loaded(self, stats: LoadStats) -> None:
        """A load has ended. The next choices know its rate."""
        self.stats.late_loads += stats.late
        self.stats.loaded_bytes += stats.bytes
        self.costs.loaded(stats)

    def _rates_key(self) -> str:
        """What rates depend on, besides the machine and the drive's place."""
        return f"{self._backing.label.hex()[:16]}/{len(self._backing.queues)}/{torch.get_num_threads()}"

    def _to_save(self, kept: KeptSequence) -> int:
        """Tokens that should be saved now; 0: there is nothing to do."""
        tokens = kept.stored
        if kept.cache.listener is not kept or tokens <= kept.saved or self._stop_if_full(kept):
            return 0
        if not self._admits(kept, kept.ids[:tokens]):
            return 0
        row = kept.cache.sequences[0]
        if len(row.slices) != kept.layout.parts:
            kept.stop("a drive has failed")
            return 0
        if isinstance(row, InputSequence) and not row.in_order:
            kept.stop("its positions are not the numbers of its tokens, by which K is rebuilt from stored layer inputs")
            return 0
        return tokens

    def _stop_if_full(self, kept: KeptSequence) -> bool:
        """Keep no more of a sequence whose session takes no more records; what the index names of it stays.

        In the model's thread. Raises CommandError, TargetError.
        """
        if kept.full:
            kept.cache.synchronize()
            self.part(kept)
            kept.stop(kept.full)
        return bool(kept.full)

    def _try_to_save(self, kept: KeptSequence, tokens: int) -> None:
        """Save; a failure is counted and said. Raises TargetError."""
        try:
            self.saving.save(kept, tokens)
        except RecordsFullError as error:
            kept.full = str(error)  # the model's thread stops it: to fork, its appends must have ended
            return
        except (CommandError, sqlite3.Error) as error:
            self.stats.failed_saves += 1
            log.warning("a session could not be saved: %s", str(error))
            return
        self.stats.saves += 1

    def keep(self, cache: HfCache) -> int | None:
        """Save all tokens of `cache`, pending ones as well. Returns the session's number; None if it is not kept."""
        return self._keep(self._kept(cache.batch))

    def _keep(self, kept: KeptSequence) -> int | None:
        while True:
            try:
                kept.cache.write_all()
                break
            except CommandError as error:
                if not kept.cache.send_again(error):
                    raise
        self.save(kept)
        return kept.number

    def finish(self, kept: KeptSequence) -> int | None:
        """Save all tokens; nothing is added to the session any more, and its cache is empty. Returns its number."""
        cache = kept.cache
        try:
            kept.settle()
            if kept.admitted is False:
                with self.index.transaction():  # going on with all of it is a second use
                    self.index.wanted(_wanted_keys(kept, kept.ids))
            elif kept.ids and kept.stored:
                self._keep(kept)
        except (CommandError, TargetError, sqlite3.Error) as error:
            self.stats.failed_saves += 1
            log.warning("the last tokens of a session could not be saved: %s", str(error))
        finally:
            self.forget(kept)
            cache.listener = None
            cache.transfers.abandon()
            if kept.number is not None:
                cache.hand_over()
                self.close_entry(kept)
            cache.reset()
        self.shelf.enforce(kept.layouts.tenant)
        return kept.number

    def release(self, cache: HfCache) -> int | None:
        """`finish` for a cache that `self.cache` returned. One that is not kept any more is emptied."""
        if cache.batch.listener is None:
            cache.reset()
            return None
        return self.finish(self._kept(cache.batch))

    def _kept(self, cache: Batch) -> KeptSequence:
        if not isinstance(cache.listener, KeptSequence):
            raise UnsupportedError("this cache is not kept: get one from sessions.cache()")
        return cache.listener

    def _admits(self, kept: KeptSequence, ids: list[int]) -> bool:
        """True if a sequence that begins with `ids` is written for later use. The governor is asked once."""
        if kept.admitted is None:
            keys = _wanted_keys(kept, ids)
            with self.index.transaction():
                kept.admitted = bool(kept.name) or kept.source is not None or self.governor.admits(keys)
        return kept.admitted

    # ---- removing ----

    def leave_behind(self, kept: KeptSequence) -> None:
        """Tokens are about to be removed from the middle of a running sequence. What the index names of it stays, as a
        session of its own; the sequence goes on with a fork, which no rebuilt index takes for whole. Raises
        CommandError, TargetError.
        """
        self.part(kept)
        self.saving.mark_unusable(kept)

    def part(self, kept: KeptSequence) -> None:
        """What the index names of a running sequence stays as a session of its own; the sequence becomes a fork."""
        if kept.number is not None:
            kept.cache.sequences[:] = [sequence.fork() for sequence in kept.cache.sequences]
            with self.index.transaction():
                self.index.set(kept.number, owner="")
            kept.source = self.index.get(kept.number)
            kept.number, kept.saved = None, 0

    def withdraw(self, kept: KeptSequence) -> None:
        """Remove a running sequence from the index; its cache is still in use."""
        if kept.number is not None:
            with self.index.transaction():
                self.index.remove(kept.number)
        kept.number, kept.saved = None, 0

    def forget(self, kept: KeptSequence) -> None:
        """Do not save this sequence any more."""
        if kept in self._open:
            self._open.remove(kept)

    def close_entry(self, kept: KeptSequence) -> None:
        """Nothing is added to a running sequence's session any more; it stays as it was saved last."""
        self.forget(kept)
        if kept.number is not None:
            with self.index.transaction():
                self.index.set(kept.number, owner="")

    def drop_lost(self, kept: KeptSequence) -> None:
        """A drive lost tokens of a running sequence: neither it nor the one that it was forked from is used again."""
        self.stats.lost += 1
        source = None if kept.source is None else self.index.get(kept.source.id)
        self.withdraw(kept)
        kept.source = None
        if source is not None and not source.owner:
            self.shelf.drop([source.id])

    def close(self) -> None:
        """Save what is open, and close the index."""
        self.ahead.close()
        for kept in list(self._open):
            self.finish(kept)
        with self.index.transaction():
            self.index.close_owned(self._owner)
        self._saver.shutdown()
        self.index.close()


def _wanted_keys(kept: KeptSequence, ids: list[int]) -> list[int]:
    """The names under which the governor knows a prompt, in whatever layout it would be stored."""
    return list(kept.layouts.kv.chain.keys(ids))


def _plain(ids: torch.Tensor | Several[int]) -> list[int]:
    if not isinstance(ids, torch.Tensor):
        return list(ids)
    if ids.dim() == 2 and ids.shape[0] != 1:
        raise UnsupportedError("sessions are kept one by one: give the tokens of one row")
    found: list[int] = ids.reshape(-1).tolist()
    return found
