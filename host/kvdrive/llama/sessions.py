"""Sequences that outlive their process: kept on the drive, found by their tokens, and continued without moving a row.

The running sequence is the plugin's session. What is kept is a copy of it, which shares its pages and has the marks of
the prefix store. In the order of `_store`, a process that is killed at any step leaves a copy that the plugin's list
names, or one with a record that no index names; the next process removes both.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from kvdrive import abi
from kvdrive.errors import KvdriveError, UnsupportedError
from kvdrive.kvcache.backing import Backing, drop
from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.session import Session
from kvdrive.kvcache.slices import Slice
from kvdrive.llama.context import Context
from kvdrive.llama.state import Rows, state_of
from kvdrive.prefix.commit import Committed
from kvdrive.prefix.context import Context as StoreContext
from kvdrive.prefix.entry import Entry
from kvdrive.prefix.lookup import Lookup, Lookups, Match
from kvdrive.prefix.metadata import Metadata
from kvdrive.prefix.request import Request
from kvdrive.prefix.tokens import Tokens

log = logging.getLogger(__name__)
_WHOSE = ""  # the tenant


class Sessions:
    """The sessions of one model and its only context, on the plugin's drive. `append_options`: see nvme.rows.joined.

    `opened` is what the prefix store needs of the drive and its index (`store_context.open_store`). Raises
    UnsupportedError for a model whose cache cannot be kept.
    """

    def __init__(self, context: Context, backing: Backing, store: StoreContext, append_options: int) -> None:
        plugin = context.model.plugin
        if plugin is None:
            raise UnsupportedError("sessions are kept on a drive: there is none")
        self._plugin, self._context, self._backing, self._store = plugin, context, backing, store
        self._append_options = append_options
        _, self._rows = plugin.session()
        self._heads, self._dim = _shape(self._rows)
        self._lookup: Lookup = Lookups(store.stored, store.governor, (self._heads, self._dim), append_options).of(
            _WHOSE
        )
        self._source: Entry | None = None  # what the running sequence continues
        self._named = 0  # tokens that the marks in its session name
        self._record: str | None = None  # the record there
        context.shortened = self._shortened

    def resume(self, ids: list[int], name: str = "") -> int:
        """Fill the empty context with what the drive has of `ids`, at most all but the last one; without `ids`, with
        the session called `name`. Returns the number of tokens.

        Raises InputError for a name that another model has, or that is in use, TargetError.
        """
        if name:
            self._lookup.require_own(name)
        match = self._lookup.find(Request(tuple(ids), name))
        if match is None or not self._fill(match):
            return 0
        self._source, self._record, self._named = match.entry, match.entry.record, len(match.tokens)
        return len(match.tokens)

    def keep(self, name: str = "") -> None:
        """Keep the tokens of the context, as `name` if there is one, in place of the session that they continue.

        A failure is logged, and the text continues.
        """
        if not self._context.tokens:
            return
        try:
            self._store_copy(name)
        except KvdriveError as error:
            log.warning("a session could not be saved: %s", error)

    def forget(self) -> None:
        """Erase all sessions of the drive's index. Raises CommandError, TargetError."""
        stored = self._store.stored
        stored.erase([entry.id for entry in stored.index.entries()])
        self._source, self._record, self._named = None, None, 0

    def tokens_of(self, name: str) -> list[int]:
        """The tokens of the session called `name`; empty where there is none."""
        return self._lookup.tokens_of(name)

    def _fill(self, match: Match) -> bool:
        """Make a match the running sequence. False where llama.cpp does not take it."""
        session, tokens = match.sequence.slices[0].session, len(match.tokens)
        try:
            self._plugin.take(session.number, tokens)
        except KvdriveError as error:
            log.warning("a session is computed again: %s", error)
            drop([match.sequence])
            return False
        done = self._context.restore(match.tokens, state_of(self._rows, tokens))
        if done and not self._plugin.taken():
            self._context.truncate(0)
            done = False
        if not done:
            log.warning("a session is computed again: %s", self._context.model.reason("llama.cpp does not restore it"))
        return done

    def _store_copy(self, name: str) -> None:
        held, count = list(self._context.tokens), len(self._context.tokens)
        copy = Session.existing(self._backing.queues[0].target, self._plugin.fork(count), self._append_options)
        sequence = DriveSequence([Slice(self._backing.queues[0], copy, 0, self._heads)])
        record = replace(
            self._lookup.layouts.kv,
            name=name,
            indices=sorted({one.layer for one in self._rows}),
            layers=[{"kv_heads": self._heads, "head_dim": self._dim} for _ in {one.layer for one in self._rows}],
        )
        marks = Metadata()
        if self._record is None:
            sequence.each(lambda session: session.put_label(self._backing.label))
        else:
            marks.forked(1, min(self._named, count), self._record)
        marks.write(sequence.slices, record, held)
        self._plugin.release(copy.number)
        self._backing.flush()
        tokens = Tokens(self._lookup.layouts.group, lambda: record.chain)
        tokens.fill(held, [])
        committed = Committed(self._store)
        if self._source is not None:
            committed.forked(self._source, self._source.tokens)
        committed.commit(record, sequence, tokens, count)
        committed.close()
        assert committed.number is not None
        self._source = self._store.stored.index.get(committed.number)

    def _shortened(self, count: int) -> None:
        """llama.cpp has freed the cells behind the first `count`."""
        self._plugin.shorten(count)
        self._named = min(self._named, count)
        if count == 0:
            self._record = None


def _shape(rows: list[Rows]) -> tuple[int, int]:
    """KV heads and head dimension. Raises UnsupportedError for layers of different shapes."""
    shapes = {(one.heads, one.dim) for one in rows}
    kinds = {kind: {one.layer for one in rows if one.kind == kind} for kind in abi.KvKind}
    if len(shapes) != 1 or len({frozenset(layers) for layers in kinds.values()}) != 1:
        raise UnsupportedError("layers of different shapes cannot be kept")
    return shapes.pop()
