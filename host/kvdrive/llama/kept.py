"""One running sequence, as the drive keeps it beyond the process.

It is a session of the plugin's. What is kept is a copy of it, which shares its pages and has the marks of the prefix
store. In the order of `_store_copy`, a process that is killed at any step leaves a copy that the plugin's list names,
or one with a record that no index names; the next process removes both.
"""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import replace

from kvdrive.errors import KvdriveError
from kvdrive.kvcache.backing import drop
from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.session import Session
from kvdrive.kvcache.slices import Slice
from kvdrive.llama.context import Sequence
from kvdrive.llama.kept_store import KeptStore
from kvdrive.prefix.commit import Committed
from kvdrive.prefix.entry import Entry
from kvdrive.prefix.lookup import Match
from kvdrive.prefix.metadata import Metadata
from kvdrive.prefix.record import Record
from kvdrive.prefix.request import Request
from kvdrive.prefix.tokens import Tokens

log = logging.getLogger(__name__)


class KeptSequence:
    """A sequence of the context, on the plugin's drive. `tenant`: whose it is."""

    def __init__(self, store: KeptStore, sequence: Sequence) -> None:
        self._store, self._sequence = store, sequence
        self.tenant = ""
        self._source: Entry | None = None  # what it continues
        self._named = 0  # tokens that the marks in its session name
        self._record: str | None = None  # the record there
        sequence.shortened = self._shortened

    @property
    def tokens(self) -> list[int]:
        """Those that were computed."""
        return self._sequence.tokens

    def resume(self, request: Request) -> int:
        """Fill the empty sequence with what the drive has of a prompt, at most all but its last token; without a
        prompt, with the session of the request's name. Returns the number of tokens.

        Raises InputError for a name that another model has, CommandError, TargetError.
        """
        lookup, stats = self._store.lookup_of(request.tenant), self._store.stored.stats
        if request.name:
            lookup.require_own(request.name)
        self.tenant = request.tenant
        stats.lookups += 1
        match = lookup.find(request)
        if match is None or not self._fill(match):
            return 0
        stats.count("attend")
        self._source, self._record, self._named = match.entry, match.entry.record, len(match.tokens)
        return len(match.tokens)

    def keep(self, name: str = "") -> int | None:
        """Keep the tokens, as `name` if there is one, in place of the session that they continue. Returns the number of
        the session. A failure is logged, the text continues, and the number is None.
        """
        if not self.tokens:
            return None
        stats = self._store.stored.stats
        try:
            self._source = self._store_copy(name)
        except (KvdriveError, sqlite3.Error) as error:
            stats.failed_saves += 1
            log.warning("a session could not be saved: %s", error)
            return None
        stats.saves += 1
        self._store.context.evictor.enforce(self.tenant)
        return self._source.id

    def forget(self) -> None:
        """The drive has nothing of this sequence but its rows."""
        self._source, self._named, self._record = None, 0, None

    def _fill(self, match: Match) -> bool:
        """Make a match the running sequence. False where llama.cpp does not take it."""
        plugin, sequence = self._store.plugin, self._sequence
        session, tokens = match.sequence.slices[0].session, len(match.tokens)
        try:
            plugin.take(sequence.number, session.number, tokens)
        except KvdriveError as error:
            log.warning("a session is computed again: %s", error)
            drop([match.sequence])
            return False
        done = sequence.restore(match.tokens, self._store.rows)
        if done and not plugin.taken():
            sequence.truncate(0)
            done = False
        if not done:
            log.warning("a session is computed again: %s", sequence.model.reason("llama.cpp does not restore it"))
        return done

    def _store_copy(self, name: str) -> Entry:
        store, held, count = self._store, list(self.tokens), len(self.tokens)
        queue, (heads, _) = store.backing.queues[0], store.shape
        copy = Session.existing(queue.target, store.plugin.fork(self._sequence.number, count), store.append_options)
        sequence = DriveSequence([Slice(queue, copy, 0, heads)])
        layouts = store.lookup_of(self.tenant).layouts
        record = replace(layouts.kv, name=name, **store.layers)
        try:
            self._mark(sequence, record, held)
        except BaseException:
            drop([sequence])
            raise
        store.plugin.release(copy.number)
        store.backing.flush()
        tokens = Tokens(layouts.group, lambda: record.chain)
        tokens.fill(held, [])
        committed = Committed(store.context)
        if self._source is not None:
            committed.forked(self._source, self._source.tokens)
        committed.commit(record, sequence, tokens, count)
        committed.close()
        assert committed.number is not None
        kept = store.index.get(committed.number)
        assert kept is not None
        return kept

    def _mark(self, sequence: DriveSequence, record: Record, held: list[int]) -> None:
        """Make a copy say what it is. Raises CommandError, RecordsFullError, TargetError."""
        marks, label = Metadata(), self._store.backing.label
        if self._record is None:
            sequence.each(lambda session: session.put_label(label))
        else:
            marks.forked(1, min(self._named, len(held)), self._record)
        self._store.context.making_room(lambda: marks.write(sequence.slices, record, held))

    def _shortened(self, count: int) -> None:
        """llama.cpp has freed the cells behind the first `count`."""
        self._store.plugin.shorten(self._sequence.number, count)
        self._named = min(self._named, count)
        if count == 0:
            self.forget()
