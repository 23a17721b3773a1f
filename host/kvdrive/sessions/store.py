"""The store: finds what the drives hold of a prompt, forks it, and keeps what was computed.

A kept session never changes. To go on with it, it is forked, and the fork is kept as a session of its own; the drive
shares what both have. Each save goes in the order data, chain, FLUSH, index: whatever the index names is durable.
Whatever
leaves goes in the other order. So a process that is killed at any step leaves nothing wrong, at most an orphan
that `collect` removes. Before a session is used, the tokens on the drive itself are compared with the wanted ones.
"""

from __future__ import annotations

import itertools
import logging
import sqlite3
from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from kvdrive import abi
from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.sequence import Sequence, Slice, gather
from kvdrive.nvme.errors import CommandError
from kvdrive.sessions import owner, record
from kvdrive.sessions.chain import Chain, block_tokens
from kvdrive.sessions.entry import Entry, NewEntry
from kvdrive.sessions.finder import Finder
from kvdrive.sessions.index import Index
from kvdrive.sessions.kept import KeptSequence
from kvdrive.sessions.options import SessionOptions
from kvdrive.sessions.record import Record
from kvdrive.sessions.shelf import Shelf
from kvdrive.sessions.wear import Governor
from kvdrive.targets.base import Target
from kvdrive.targets.group import split

if TYPE_CHECKING:
    from kvdrive.kvcache.cache import DriveCache

log = logging.getLogger(__name__)
_stores = itertools.count()
_TRIES = 4  # sessions that are tried when the first ones turn out to be stale


class SessionStore:
    """Sessions of one model on one group of drives. `shape`: the model's KV heads and head dimension.

    `new_cache` makes an empty cache of the attached model. `on_step` is called with the name of each step of a save,
    for tests. Raises InputError.
    """

    def __init__(
        self,
        backing: Backing,
        index: Index,
        shape: tuple[int, int],
        new_cache: Callable[[], DriveCache],
        options: SessionOptions,
    ) -> None:
        kv_heads, head_dim = shape
        block = block_tokens(head_dim)
        self.index = index
        self.options = options
        self.shelf = Shelf(index, backing, options)
        self.stats = self.shelf.stats
        self.every = options.every or backing.spill
        self.governor = Governor(index, options.daily_bytes)
        self.on_step: Callable[[str], None] = lambda step: None
        self._backing = backing
        self._new_cache = new_cache
        self._owner = owner.this_process(next(_stores))
        self._append_options = int(new_cache().append_options)
        parts = len(split(1, kv_heads, len(backing.queues))[0])
        self._record_of = Record(backing.label.hex(), options.tenant, "", self._append_options, block, parts=parts)
        self._chain = Chain(backing.label, options.tenant, self._record_of.layout, block)
        self.finder = Finder(self.shelf, self._chain, self.governor)
        self._open: list[KeptSequence] = []
        with index.transaction():
            for name in index.owners():
                if not owner.is_alive(name):
                    index.close_owned(name)
            index.forget_future()

    @property
    def block(self) -> int:
        """Tokens of a block."""
        return self._chain.block

    # ---- finding ----

    def cache(self, ids: torch.Tensor | Several[int] = (), name: str = "", *, find: bool = True) -> DriveCache:
        """A cache that holds as many of the first tokens of `ids` [tokens] or [1, tokens] as the drives have.

        At most all but the last; without `ids` all tokens of the session called `name`. It is kept while the model
        computes, as `name` if there is one. `find` False: it is empty.

        Raises InputError for a name that belongs to another model or is in use, TargetError.
        """
        wanted = _plain(ids)
        if name:
            self.finder.require_own(name)
        cache = self._new_cache()
        cache.require_all_on_drives()
        kept = KeptSequence(self, cache, self._chain, name)
        cache.keeper = kept
        found = None
        if find:
            found = self.finder.find_named(name) if name and not wanted else self.finder.find(wanted)
            self.stats.lookups += 1
        if found is not None:
            self._fill(kept, *found)
        self._open.append(kept)
        return cache

    def _fill(self, kept: KeptSequence, entry: Entry, sequence: Sequence, ids: list[int]) -> None:
        found = Record.of(entry.record)
        kept.cache.adopt([sequence], torch.tensor([ids]), found.layers)
        kept.ids, kept.named = list(ids), [len(ids)] * len(sequence.slices)
        kept.recorded, kept.counted, kept.source = entry.record, len(ids), entry
        kept.growing.extend(kept.ids)

    # ---- keeping ----

    def save(self, kept: KeptSequence) -> None:
        """Make what the drives have of a sequence durable, and note it in the index. Generation goes on when that
        fails.

        Raises TargetError, and CommandError when K and V themselves could not be stored.
        """
        tokens = kept.stored
        if tokens <= kept.saved or not self._admits(kept, tokens):
            return
        if len(kept.cache.sequences[0].slices) != self._record_of.parts:
            kept.stop("a drive has failed")
            return
        kept.cache.synchronize()
        try:
            self._save(kept, tokens)
        except (CommandError, sqlite3.Error) as error:
            self.stats.failed_saves += 1
            log.warning("a session could not be saved: %s", str(error))
            return
        self.stats.saves += 1

    def _save(self, kept: KeptSequence, tokens: int) -> None:
        try:
            self._explain(kept, tokens)
        except CommandError as error:
            if error.status != abi.NvmeStatus.CAPACITY_EXCEEDED or not self.shelf.make_room():
                raise
            self._explain(kept, tokens)
        self.on_step("explained")
        kept.cache.flush()
        self.on_step("durable")
        self._note(kept, tokens)

    def keep(self, cache: DriveCache) -> int | None:
        """Save all tokens of `cache`, pending ones as well. Returns the session's number; None if it is not kept."""
        kept = self._kept(cache)
        for layer in cache.drive_layers:
            layer.write_all()
        self.save(kept)
        return kept.number

    def finish(self, kept: KeptSequence) -> int | None:
        """Save all tokens; nothing is added to the session any more, and its cache is empty. Returns its number."""
        cache = kept.cache
        try:
            if kept.ids and kept.stored:
                self.keep(cache)
        except CommandError as error:
            self.stats.failed_saves += 1
            log.warning("the last tokens of a session could not be saved: %s", str(error))
        finally:
            self.forget(kept)
            cache.keeper = None
            cache.transfers.abandon()
            if kept.number is not None:
                cache.let_go()
                with self.index.transaction():
                    self.index.set(kept.number, owner="")
            cache.reset()
        self.shelf.enforce()
        return kept.number

    def release(self, cache: DriveCache) -> int | None:
        """`finish` for a cache that `self.cache` returned."""
        return self.finish(self._kept(cache))

    def _kept(self, cache: DriveCache) -> KeptSequence:
        if not isinstance(cache.keeper, KeptSequence):
            raise UnsupportedError("this cache is not kept: get one from sessions.cache()")
        return cache.keeper

    def _admits(self, kept: KeptSequence, tokens: int) -> bool:
        if kept.admitted is None:
            keys = list(self._chain.keys(kept.ids[:tokens]))
            with self.index.transaction():
                kept.admitted = bool(kept.name) or kept.source is not None or self.governor.admits(keys)
        return kept.admitted

    def _record(self, kept: KeptSequence) -> Record:
        cache = kept.cache
        indices = [layer.index for layer in cache.drive_layers]
        return replace(self._record_of, name=kept.name, indices=indices, layers=cache.describe_layers())

    def _explain(self, kept: KeptSequence, tokens: int) -> None:
        """Give the session on the drives its record and the numbers of its tokens. Raises CommandError."""
        slices = kept.cache.sequences[0].slices
        kept.named = kept.named or [0] * len(slices)
        told = self._record(kept)
        fresh = kept.recorded != told.text()

        def work(part: int, one: Slice, target: Target) -> None:
            if fresh:
                record.put_record(one.session, replace(told, part=part, first=one.first, last=one.last))
            if kept.named[part] < tokens:
                record.put_tokens(one.session, kept.named[part], kept.ids[kept.named[part] : tokens])
                kept.named[part] = tokens

        gather([one.queue.start(partial(work, part, one)) for part, one in enumerate(slices)])
        kept.recorded = told.text()

    def _note(self, kept: KeptSequence, tokens: int) -> None:
        """Tell the index. The session that this one replaces, and those beyond the bounds, leave it at the same
        time.
        """
        told = self._record(kept)
        written = max(tokens - kept.counted, 0) * told.bytes_per_token
        gone: list[Entry] = []
        growing, before = kept.growing, kept.saved
        growing.extend(kept.ids[:tokens])
        kept.saved = tokens
        try:
            with self.index.transaction():
                replaced = self._replaced(kept)
                if replaced is not None:
                    gone += [entry for entry in [self.index.remove(replaced.id)] if entry]
                known = kept.number is not None and self.index.grow(
                    kept.number, growing.keys, tokens, kept.tail, growing.last
                )
                if not known:
                    kept.number = self.index.add(
                        self._new_entry(kept, told), growing.keys, pinned=replaced is not None and replaced.pinned
                    )
                self.governor.wrote(written)
                self.on_step("noted")
        except BaseException:
            kept.saved = before
            raise
        self.on_step("committed")
        kept.counted = max(kept.counted, tokens)
        kept.source = None if replaced is not None else kept.source
        self.shelf.remove(gone)
        self.shelf.enforce()

    def _new_entry(self, kept: KeptSequence, told: Record) -> NewEntry:
        numbers = {queue: number for number, queue in enumerate(self._backing.queues)}
        slices = [[numbers[s.queue], s.session.number, s.first, s.last] for s in kept.cache.sequences[0]]
        return NewEntry(
            self._chain.root, self.options.tenant, told.model, slices, told.text(), told.bytes_per_token, self.block,
            kept.name, self._owner, kept.saved, kept.tail, kept.growing.last,
        )  # fmt: skip

    def _replaced(self, kept: KeptSequence) -> Entry | None:
        """The session that `kept` takes the place of: the one of its name, or the one that it goes on with."""
        if kept.name:
            named = self.index.named(kept.name, self.options.tenant)
            return named if named is not None and named.id != kept.number and not owner.is_alive(named.owner) else None
        source = None if kept.source is None else self.index.get(kept.source.id)
        if source is None or source.pinned or source.name or source.owner or source.tokens > kept.saved:
            return None
        known = source.tokens - len(source.tail)
        same = kept.growing.keys[known // self.block - 1] == source.last if known else True
        return source if same and kept.ids[known : source.tokens] == source.tail else None

    # ---- removing ----

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
        for kept in list(self._open):
            self.finish(kept)
        with self.index.transaction():
            self.index.close_owned(self._owner)
        self.index.close()


def _plain(ids: torch.Tensor | Several[int]) -> list[int]:
    if not isinstance(ids, torch.Tensor):
        return list(ids)
    if ids.dim() == 2 and ids.shape[0] != 1:
        raise UnsupportedError("sessions are kept one by one: give the tokens of one row")
    found: list[int] = ids.reshape(-1).tolist()
    return found
