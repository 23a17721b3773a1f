"""Makes what the drives have of a running sequence a session: record and tokens on the drives, FLUSH, index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kvdrive import abi
from kvdrive.kvcache.slices import Slice, gather
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.nvme.errors import CommandError
from kvdrive.sessions import owner, record
from kvdrive.sessions.entry import Entry, NewEntry
from kvdrive.sessions.kept import KeptSequence
from kvdrive.sessions.record import Record
from kvdrive.sessions.shelf import Shelf
from kvdrive.sessions.wear import Governor
from kvdrive.targets.base import Target


class Saving:
    """Saves sequences as sessions of `process`.

    `on_step` is called with the name of each step, for tests.
    """

    def __init__(self, shelf: Shelf, governor: Governor, process: str) -> None:
        self.on_step: Callable[[str], None] = lambda step: None
        self._shelf = shelf
        self._index = shelf.index
        self._governor = governor
        self._owner = process

    def save(self, kept: KeptSequence, tokens: int) -> None:
        """Save the first `tokens` tokens, which the drives have. Raises CommandError, TargetError, RecordsFullError."""
        try:
            self._explain(kept, tokens)
        except CommandError as error:
            if error.status != abi.NvmeStatus.CAPACITY_EXCEEDED or not self._shelf.make_room():
                raise
            self._explain(kept, tokens)
        self.on_step("explained")
        kept.cache.part.shared.backing.flush()
        self.on_step("durable")
        self._note(kept, tokens)

    def record(self, kept: KeptSequence) -> Record:
        """What is needed to go on with a sequence."""
        cache = kept.cache
        indices = [layer.index for layer in cache.drive_layers]
        layers, told, inputs = cache.describe_layers(), kept.layout, None
        if isinstance(row := cache.sequences[0], InputSequence) and told.inputs is not None:
            inputs = told.inputs | {"layers": row.describe_layers()}
        return replace(told, name=kept.name, indices=indices, layers=layers, removals=kept.removals, inputs=inputs)

    def mark_unusable(self, kept: KeptSequence) -> None:
        """Say on the drives that K and V do not fit the tokens until the next save.

        Raises CommandError, TargetError.
        """
        if kept.recorded is None:
            return
        told = replace(self.record(kept), usable=False)
        slices = kept.cache.sequences[0].slices

        def mark(part: int, one: Slice, target: Target) -> None:
            record.put_record(one.session, replace(told, part=part, first=one.first, last=one.last))

        kept.recorded = None
        gather([one.queue.start(partial(mark, part, one)) for part, one in enumerate(slices)])

    def _explain(self, kept: KeptSequence, tokens: int) -> None:
        """Give the session on the drives its record and the numbers of its tokens. Raises CommandError."""
        slices = kept.cache.sequences[0].slices
        kept.named = kept.named or [0] * len(slices)
        told, ids = self.record(kept), kept.all_ids(tokens)
        text = told.text()
        fresh = kept.recorded != text

        def work(part: int, one: Slice, target: Target) -> None:
            if fresh:
                record.put_record(one.session, replace(told, part=part, first=one.first, last=one.last))
            if kept.named[part] < len(ids):
                record.put_tokens(one.session, kept.named[part], ids[kept.named[part] :])
                kept.named[part] = len(ids)

        gather([one.queue.start(partial(work, part, one)) for part, one in enumerate(slices)])
        kept.recorded = text

    def _note(self, kept: KeptSequence, tokens: int) -> None:
        """Tell the index. The session that this one replaces, and those beyond the bounds, leave it at the same
        time.
        """
        told = self.record(kept)
        written = max(tokens - kept.counted, 0) * told.bytes_per_token
        gone: list[Entry] = []
        growing, before = kept.growing, kept.saved
        growing.extend(kept.ids[:tokens])
        kept.saved = tokens
        try:
            with self._index.transaction():
                replaced = self._replaced(kept)
                if replaced is not None:
                    gone += [entry for entry in [self._index.remove(replaced.id)] if entry]
                known = kept.number is not None and self._index.grow(
                    kept.number, growing.keys, tokens, kept.tail, growing.last
                )
                if not known:
                    kept.number = self._index.add(
                        self._new_entry(kept, told), growing.keys, pinned=replaced is not None and replaced.pinned
                    )
                self._governor.wrote(written)
                self.on_step("noted")
        except BaseException:
            kept.saved = before
            raise
        self.on_step("committed")
        kept.counted = max(kept.counted, tokens)
        kept.source = None if replaced is not None else kept.source
        self._shelf.remove(gone)
        self._shelf.enforce(told.tenant)

    def _new_entry(self, kept: KeptSequence, told: Record) -> NewEntry:
        numbers = {queue: number for number, queue in enumerate(self._shelf.backing.queues)}
        slices = [[numbers[s.queue], s.session.number, s.first, s.last] for s in kept.cache.sequences[0].slices]
        return NewEntry(
            kept.growing.root, told.tenant, told.model, slices, told.text(), told.bytes_per_token,
            told.block, kept.name, self._owner, kept.saved, kept.tail, kept.growing.last,
        )  # fmt: skip

    def _replaced(self, kept: KeptSequence) -> Entry | None:
        """The session that `kept` takes the place of: the one of its name, or the one that it goes on with."""
        if kept.name:
            named = self._index.named(kept.name, kept.layouts.tenant)
            return named if named is not None and named.id != kept.number and not owner.is_alive(named.owner) else None
        source = None if kept.source is None else self._index.get(kept.source.id)
        if source is None or Record.of(source.record).removals != kept.removals:
            return None
        if source.pinned or source.name or source.owner or source.tokens > kept.saved:
            return None
        known = source.tokens - len(source.tail)
        same = kept.growing.keys[known // kept.layout.block - 1] == source.last if known else True
        return source if same and kept.ids[known : source.tokens] == source.tail else None
