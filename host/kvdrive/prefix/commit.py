"""What the index names of one running sequence."""

from __future__ import annotations

from kvdrive.kvcache.drive_sequence import places_of
from kvdrive.kvcache.sequence import Sequence
from kvdrive.prefix.checkpoints import BLOCKS, surplus
from kvdrive.prefix.context import Context
from kvdrive.prefix.entry import Entry, describe
from kvdrive.prefix.owner import is_alive
from kvdrive.prefix.record import Record
from kvdrive.prefix.tokens import Tokens


class Committed:
    """`number`: the sequence's session in the index, None before the first commit; `tokens`: how many that names.

    `source`: the stored session that the sequence began with. A commit replaces it once it names all of its tokens.
    """

    def __init__(self, context: Context) -> None:
        self.number: int | None = None
        self.tokens = 0
        self.source: Entry | None = None
        self._context = context
        self._index = context.stored.index
        self._counted = 0  # tokens whose writes the governor counted, or that were not written again

    def forked(self, source: Entry, tokens: int) -> None:
        """The sequence begins with `tokens` tokens of a stored session."""
        self.source, self._counted = source, tokens

    def commit(self, record: Record, sequence: Sequence, tokens: Tokens, count: int, *, last: bool = False) -> None:
        """Name the first `count` tokens, which are durable with their `record`. Replaced sessions, and those beyond the
        bounds, are removed from the index at the same time. `last`: the sequence ends, and enforces the bounds then.
        Raises sqlite3.Error.
        """
        context, index, number = self._context, self._index, self.number
        written = max(count - self._counted, 0) * record.bytes_per_token
        written += record.state.bytes if record.state is not None else 0
        keys, tail = tokens.keys(count), tokens.tail(count)
        with index.transaction():
            replaced = self._replaced(record, tokens, count)
            pinned = any(one.pinned for one in replaced)
            for one in replaced:
                index.remove(one.id)
            if number is None or not index.grow(number, keys.keys, count, tail, keys.last):
                places = places_of(sequence, context.stored.backing.queues)
                new = describe(record, places, tokens.held[:count], keys, owner=context.owner)
                number = index.add(new, keys.keys, pinned=pinned)
            context.governor.wrote(written)
            context.on_step("noted")
        self.number, self.tokens = number, count
        context.on_step("committed")
        self._counted = max(self._counted, count)
        if any(self.source is not None and one.id == self.source.id for one in replaced):
            self.source = None
        context.stored.remove(replaced)
        if not last:
            context.evictor.enforce(record.tenant)

    def withdraw(self) -> None:
        """Remove the session from the index; the sequence still runs."""
        gone = None
        if self.number is not None:
            with self._index.transaction():
                gone = self._index.remove(self.number)
        self.number, self.tokens = None, 0
        if gone is not None:
            self._context.stored.remove_state(gone)

    def truncate(self, tokens: int) -> None:
        """The drives are about to remove all but the first `tokens` tokens, so what names more is withdrawn first."""
        if tokens < self.tokens:
            self.withdraw()
        self._counted = min(self._counted, tokens)

    def removed(self, tokens: int) -> None:
        """`tokens` tokens were removed behind the first group."""
        self._counted = max(self._counted - tokens, 0)

    def close(self) -> None:
        """The session stays as it was committed last."""
        if self.number is not None:
            with self._index.transaction():
                self._index.set(self.number, owner="")

    def detach(self) -> None:
        """The session stays as it is; the sequence, a fork of it from now on, has none."""
        if self.number is not None:
            self.close()
            self.source = self._index.get(self.number)
            self.number, self.tokens = None, 0

    def lost(self) -> None:
        """A drive lost tokens of the sequence: neither it nor the one that it was forked from is found again."""
        source = None if self.source is None else self._index.get(self.source.id)
        self.withdraw()
        self.source, self._counted = None, 0
        if source is not None and not source.owner:
            self._context.stored.drop([source.id])

    def _replaced(self, record: Record, tokens: Tokens, count: int) -> list[Entry]:
        """The sessions that a commit replaces."""
        named = self._index.named(record.name, record.tenant) if record.name else None
        if named is not None and (named.id == self.number or is_alive(named.owner)):
            named = None
        if record.state is not None:
            return self._outdated(record, tokens, count, named)
        if record.name:
            return [] if named is None else [named]
        source = None if self.source is None else self._index.get(self.source.id)
        return [source] if source is not None and self._continues(source, record, tokens, count) else []

    def _continues(self, source: Entry, record: Record, tokens: Tokens, count: int) -> bool:
        """True if the first `count` tokens stand for those of `source` as well, and nobody else wants it."""
        if Record.of(source.record).removals != record.removals:
            return False
        if source.pinned or source.name or source.owner or source.tokens > count:
            return False
        known = source.tokens - len(source.tail)
        same = tokens.keys(count).keys[known // record.block - 1] == source.last if known else True
        return same and tokens.held[known : source.tokens] == source.tail

    def _outdated(self, record: Record, tokens: Tokens, count: int, named: Entry | None) -> list[Entry]:
        """The checkpoints of the same tokens that go. `named`: the session with the record's name, which loses it."""
        keys, ids = tokens.keys(count), tokens.held[:count]
        older = [
            one
            for one in self._index.prefixes(keys.root, keys.keys, ids)
            if one.id != self.number and ((named is not None and one.id == named.id) or not (one.pinned or one.name))
        ]
        older = [one for one in older if not one.owner]
        gone = surplus((one.tokens for one in older if one.tokens < count), BLOCKS * record.block)
        replaced = [one for one in older if one.tokens in gone or one.tokens == count]
        if named is not None and named.id not in {one.id for one in replaced}:
            if named.id not in {one.id for one in older} or named.pinned:
                return [*replaced, named]
            self._index.set(named.id, name="")
        return replaced
